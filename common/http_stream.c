/* Streamed bodies: pieces of the handler's stream become chunks, plain or compressed. */
#include <stdlib.h>
#include <string.h>

#include "gzip.h"
#include "http_private.h"

enum {
    PIECE_MAX = 16 * 1024 * 1024, /* of what a stream gives at once */
    INPUT_A_CHUNK = 128 * 1024,   /* about what one call compresses before it gives out what it has: 1 ms of the loop */
};

struct source {
    struct sb_http_stream stream;
    bool has_more; /* the stream was not at its end yet */
    bool is_gzip;
    bool is_ended; /* the compressor has given its last byte */
    struct sb_gzip gzip;
    struct sb_buf piece; /* what the stream gave */
    struct sb_buf out;   /* compressed */
    size_t taken;        /* of piece, or of out, by the client */
};

/* The next piece that is not empty; false at the end, or when it overflowed its limit. */
static bool next_piece(struct source *self)
{
    sb_buf_clear(&self->piece);
    while (self->has_more && self->piece.len == 0 && !self->piece.is_overflow)
        self->has_more = self->stream.next(self->stream.state, &self->piece);
    return self->piece.len > 0 && !self->piece.is_overflow;
}

/* Fills out with something, unless the stream has ended. */
static void compress_more(struct source *self)
{
    sb_buf_clear(&self->out);
    for (size_t input = 0; self->out.len == 0 && !self->is_ended && !self->out.is_overflow;) {
        const bool has_piece = next_piece(self);
        if (self->piece.is_overflow)
            return;
        input += self->piece.len;
        const enum sb_gzip_flush flush = !has_piece ? SB_GZIP_END : input > INPUT_A_CHUNK ? SB_GZIP_SYNC : SB_GZIP_MORE;
        sb_gzip_put(&self->gzip, self->piece.data, self->piece.len, flush, &self->out);
        self->is_ended = flush == SB_GZIP_END;
    }
}

/* MHD's content reader: up to max bytes, or one of its codes for the end. */
static ssize_t read_more(void *arg, uint64_t position, char *to, size_t max)
{
    (void) position;
    struct source *self = arg;
    struct sb_buf *from = self->is_gzip ? &self->out : &self->piece;
    size_t len = 0;
    while (len < max) {
        if (self->taken == from->len) {
            if (len > 0 && self->is_gzip)
                break; /* one step of compression a call is enough */
            self->taken = 0;
            if (self->is_gzip)
                compress_more(self);
            else
                (void) next_piece(self);
            if (self->piece.is_overflow || self->out.is_overflow)
                return MHD_CONTENT_READER_END_WITH_ERROR; /* the client sees a cut body, not a wrong one */
            if (from->len == 0)
                break;
        }
        const size_t left = from->len - self->taken;
        const size_t n = left < max - len ? left : max - len;
        memcpy(to + len, from->data + self->taken, n);
        self->taken += n;
        len += n;
    }
    return len > 0 ? (ssize_t) len : MHD_CONTENT_READER_END_OF_STREAM;
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
