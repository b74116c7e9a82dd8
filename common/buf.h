/* A growing byte buffer that is told its limit at birth. */
#ifndef SB_BUF_H
#define SB_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct sb_buf {
    uint8_t *data; /* owned; NULL until the first byte */
    size_t len;
    size_t cap;
    size_t max;       /* len never exceeds this */
    bool is_overflow; /* something was refused since init or clear: the content is not whole */
};

/* An empty buffer of at most max bytes. Allocates nothing. */
void sb_buf_init(struct sb_buf *self, size_t max);
void sb_buf_release(struct sb_buf *self);

/* Empties it and keeps its memory; takes the overflow mark away. */
void sb_buf_clear(struct sb_buf *self);

/* Room for n more bytes at data + len (len is the caller's to raise), or NULL: over the limit or out of
 * memory, and is_overflow is set. */
uint8_t *sb_buf_grow(struct sb_buf *self, size_t n); /* the slow path of: */
static inline uint8_t *sb_buf_reserve(struct sb_buf *self, size_t n)
{
    if (n < self->cap - self->len && n <= self->max - self->len)
        return self->data + self->len;
    return sb_buf_grow(self, n);
}

/* Appending. A refusal sets is_overflow; check that once at the end instead of every call. */
void sb_buf_put(struct sb_buf *self, const void *bytes, size_t n);
void sb_buf_put_byte(struct sb_buf *self, uint8_t byte);
void sb_buf_put_text(struct sb_buf *self, const char *text); /* without its NUL */
void sb_buf_printf(struct sb_buf *self, const char *fmt, ...) SB_PRINTF(2, 3);

#endif
