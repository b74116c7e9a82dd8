/* gzip, whole or in pieces. */
#ifndef SB_GZIP_H
#define SB_GZIP_H

#include <stdbool.h>
#include <zlib.h>

#include "buf.h"
#include "err.h"

struct sb_gzip {
    z_stream stream;
};

/* How much of the compressor's own buffer a call gives out. */
enum sb_gzip_flush {
    SB_GZIP_MORE, /* as it likes: nothing may come out for long */
    SB_GZIP_END,  /* that was all */
};

/* NOMEM. The fastest level: metrics shrink about tenfold with it, and a loop waits for us. */
enum sb_rc sb_gzip_init(struct sb_gzip *self) SB_CHECK;
void sb_gzip_release(struct sb_gzip *self);

/* Compresses n bytes (may be 0) and appends what comes out; a full out shows as its is_overflow. */
void sb_gzip_put(struct sb_gzip *self, const void *bytes, size_t n, enum sb_gzip_flush flush, struct sb_buf *out);

#endif
