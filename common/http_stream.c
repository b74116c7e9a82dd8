/* Streamed bodies: pieces of the handler's stream become chunks, plain or compressed. */
#include <stdlib.h>
#include <string.h>

#include "gzip.h"
#include "http_private.h"

enum {
    PIECE_MAX = 16 * 1024 * 1024, /* of what a stream gives at once */
    PIECES_A_STEP = 2,            /* that are compressed in one call of the loop: about 1 ms of it */
};

struct source {
    struct sb_http_stream stream;
    bool has_more; /* the stream was not at its end yet */
    bool is_cut;   /* the body can't go on: the client sees a cut one, not a wrong one */
    bool is_gzip;
    bool is_ended; /* the compressor has given its last byte */
    struct sb_gzip gzip;
    struct sb_buf piece; /* what the stream gave */
    struct sb_buf out;   /* compressed */
    size_t taken;        /* of piece, or of out, by the client */
};

/* Asks the stream once: a piece is as much work as the loop may be kept with, also when no text came of it. */
static void next_piece(struct source *self)
{
    sb_buf_clear(&self->piece);
    if (!self->has_more)
        return;
    const enum sb_http_more more = self->stream.next(self->stream.state, &self->piece);
    self->has_more = more == SB_HTTP_MORE;
    self->is_cut = more == SB_HTTP_CUT || self->piece.is_overflow;
}

static void compress_more(struct source *self)
{
    sb_buf_clear(&self->out);
    for (int i = 0; i < PIECES_A_STEP && self->out.len == 0 && !self->is_ended && !self->is_cut; i++) {
        next_piece(self);
        if (self->is_cut)
            return;
        self->is_ended = !self->has_more;
        sb_gzip_put(&self->gzip, self->piece.data, self->piece.len, self->is_ended ? SB_GZIP_END : SB_GZIP_MORE,
                    &self->out);
        self->is_cut = self->out.is_overflow;
    }
}

/* MHD's content reader: up to max bytes, 0 for none yet, or one of its codes for the end. */
static ssize_t read_more(void *arg, uint64_t position, char *to, size_t max)
{
    (void) position;
    struct source *self = arg;
    const struct sb_buf *from = self->is_gzip ? &self->out : &self->piece;
    if (self->taken == from->len) {
        self->taken = 0;
        if (self->is_gzip)
            compress_more(self);
        else
            next_piece(self);
    }
    if (self->is_cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    const size_t left = from->len - self->taken;
    const size_t n = left < max ? left : max;
    const bool is_over = self->is_gzip ? self->is_ended : !self->has_more;
    if (n == 0)
        return is_over ? MHD_CONTENT_READER_END_OF_STREAM : 0;
    memcpy(to, from->data + self->taken, n);
    self->taken += n;
    return (ssize_t) n;
}

static void close_source(void *arg)
{
    struct source *self = arg;
    if (self->stream.close)
        self->stream.close(self->stream.state);
    if (self->is_gzip)
        sb_gzip_release(&self->gzip);
    sb_buf_release(&self->piece);
    sb_buf_release(&self->out);
    free(self);
}

struct MHD_Response *sb_http_stream_response(struct sb_http_stream stream, bool is_gzip)
{
    struct source *self = calloc(1, sizeof *self);
    if (!self) {
        if (stream.close)
            stream.close(stream.state);
        return NULL;
    }
    self->stream = stream;
    self->has_more = true;
    sb_buf_init(&self->piece, PIECE_MAX);
    sb_buf_init(&self->out, PIECE_MAX);
    self->is_gzip = is_gzip && sb_gzip_init(&self->gzip) == SB_OK;
    if (is_gzip && !self->is_gzip) {
        close_source(self);
        return NULL;
    }

    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SB_HTTP_CONNECTION_MEMORY, read_more, self, close_source);
    if (!response)
        close_source(self);
    return response;
}
