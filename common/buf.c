#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

void sb_buf_init(struct sb_buf *self, size_t max)
{
    *self = (struct sb_buf){.max = max};
}

void sb_buf_release(struct sb_buf *self)
{
    free(self->data);
    *self = (struct sb_buf){.max = self->max};
}

void sb_buf_clear(struct sb_buf *self)
{
    self->len = 0;
    self->is_overflow = false;
}

uint8_t *sb_buf_grow(struct sb_buf *self, size_t n)
{
    if (n > self->max - self->len) {
        self->is_overflow = true;
        return NULL;
    }

    /* One byte more than asked, so that data is never NULL and printf has room for its NUL. */
    size_t need = self->len + n + 1;
    if (need > self->cap) {
        size_t cap = self->cap ? self->cap : FIRST_CAP;
        while (cap < need)
            cap = cap > SIZE_MAX / 2 ? need : 2 * cap;
        if (cap > self->max && need <= self->max)
            cap = self->max; /* no waste at the end of a buffer's growth */
        uint8_t *data = realloc(self->data, cap);
        if (!data) {
            self->is_overflow = true;
            return NULL;
        }
        self->data = data;
        self->cap = cap;
    }
    return self->data + self->len;
}

void sb_buf_put(struct sb_buf *self, const void *bytes, size_t n)
{
    uint8_t *to = sb_buf_reserve(self, n);
    if (!to || n == 0)
        return;
    memcpy(to, bytes, n);
    self->len += n;
}

void sb_buf_put_byte(struct sb_buf *self, uint8_t byte)
{
    uint8_t *to = sb_buf_reserve(self, 1);
    if (!to)
        return;
    *to = byte;
    self->len++;
}

void sb_buf_put_text(struct sb_buf *self, const char *text)
{
    sb_buf_put(self, text, strlen(text));
}

void sb_buf_printf(struct sb_buf *self, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);

    int n = vsnprintf(NULL, 0, fmt, args);
    uint8_t *to = n < 0 ? NULL : sb_buf_reserve(self, (size_t) n);
    if (to) {
        vsnprintf((char *) to, (size_t) n + 1, fmt, again); /* reserve always has a byte more, for the NUL */
        self->len += (size_t) n;
    }
    if (n < 0)
        self->is_overflow = true;

    va_end(again);
    va_end(args);
}
