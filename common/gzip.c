#include "gzip.h"

#include <assert.h>
#include <limits.h>

enum {
    WINDOW_GZIP = 15 + 16, /* zlib.h: the largest window, and 16 for gzip's header and trailer */
    MEMORY = 8,            /* zlib's default: 128 KiB beside the window's 128 KiB */
    ROOM = 16 * 1024,      /* given to deflate at a time */
};

enum sb_rc sb_gzip_init(struct sb_gzip *self)
{
    *self = (struct sb_gzip){0};
    const int rc = deflateInit2(&self->stream, Z_BEST_SPEED, Z_DEFLATED, WINDOW_GZIP, MEMORY, Z_DEFAULT_STRATEGY);
    return rc == Z_OK ? SB_OK : SB_NOMEM;
}

void sb_gzip_release(struct sb_gzip *self)
{
    deflateEnd(&self->stream); /* harmless twice: it clears the state */
}

void sb_gzip_put(struct sb_gzip *self, const void *bytes, size_t n, enum sb_gzip_flush flush, struct sb_buf *out)
{
    static const int flushes[] = {
        [SB_GZIP_MORE] = Z_NO_FLUSH,
        [SB_GZIP_END] = Z_FINISH,
    };
    z_stream *stream = &self->stream;
    assert(n <= UINT_MAX);
    stream->next_in = (z_const Bytef *) (uintptr_t) bytes; /* zlib only reads it; its type is older than const */
    stream->avail_in = (uInt) n;
    do {
        uint8_t *to = sb_buf_reserve(out, ROOM);
        if (!to)
            return;
        stream->next_out = to;
        stream->avail_out = ROOM;
        deflate(stream, flushes[flush]);
        out->len += ROOM - stream->avail_out;
    } while (stream->avail_out == 0); /* zlib.h: with room left over, all was taken and flushed */
}
