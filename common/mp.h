/*
 * msgpack: a reader that walks bytes in place and a writer that appends to a buffer.
 *
 * The reader never allocates and never trusts a count: whatever a length claims, it stops at the end of the bytes.
 * Source: the msgpack specification (github.com/msgpack/msgpack, spec.md).
 */
#ifndef SB_MP_H
#define SB_MP_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

enum { SB_MP_DEPTH_MAX = 16 }; /* nesting of arrays and maps in any message (schemas, limits) */

enum sb_mp_type {
    SB_MP_NIL,
    SB_MP_BOOL,
    SB_MP_UINT,  /* an integer that is not negative, whatever its encoding */
    SB_MP_INT,   /* a negative integer */
    SB_MP_FLOAT, /* float32 or float64 */
    SB_MP_STR,
    SB_MP_BIN,
    SB_MP_ARRAY,
    SB_MP_MAP,
    SB_MP_EXT,
    SB_MP_END, /* no bytes left, or a first byte that msgpack never uses (0xc1) */
};

/* A cursor over borrowed bytes. A failed read leaves it where it was. */
struct sb_mp {
    const uint8_t *at;
    const uint8_t *end;
};

/* A borrowed piece of the message: str, bin or key. Not NUL-terminated. */
struct sb_slice {
    const char *at;
    size_t len;
};

static inline struct sb_mp sb_mp_over(const void *bytes, size_t n)
{
    return (struct sb_mp){.at = bytes, .end = (const uint8_t *) bytes + n};
}

bool sb_slice_is(struct sb_slice slice, const char *text);

/* The type of the value that the cursor stands at. */
enum sb_mp_type sb_mp_peek(const struct sb_mp *self);

/*
 * Checks that `n` bytes are exactly one well-formed value, no deeper than depth_max, with str or bin keys in every
 * map... (any scalar key is accepted). One skip walk; after it all reads of that value succeed if their types fit.
 * Errors: SB_FORMAT (cut, trailing bytes, 0xc1), SB_FULL (too deep). The text says at which byte.
 */
enum sb_rc sb_mp_validate(const void *bytes, size_t n, unsigned depth_max, struct sb_err *err) SB_CHECK;

/* Each reads one value of that type and moves on; false (cursor unmoved) if it is of another type or cut. */
bool sb_mp_nil(struct sb_mp *self) SB_CHECK;
bool sb_mp_bool(struct sb_mp *self, bool *out) SB_CHECK;
bool sb_mp_uint(struct sb_mp *self, uint64_t *out) SB_CHECK;
/* Integers of either sign, floats and bools (true is 1), as a double: what Python calls a number. */
bool sb_mp_number(struct sb_mp *self, double *out) SB_CHECK;
bool sb_mp_str(struct sb_mp *self, struct sb_slice *out) SB_CHECK;
bool sb_mp_bin(struct sb_mp *self, struct sb_slice *out) SB_CHECK;
bool sb_mp_array(struct sb_mp *self, uint32_t *n) SB_CHECK; /* then n values follow */
bool sb_mp_map(struct sb_mp *self, uint32_t *n) SB_CHECK;   /* then n pairs follow */
/* Steps over one value of any type; false if it is cut, malformed or nested deeper than SB_MP_DEPTH_MAX. */
bool sb_mp_skip(struct sb_mp *self) SB_CHECK;

/* Writing: appends to the buffer; an overflow is the buffer's to remember. */
void sb_mp_put_nil(struct sb_buf *buf);
void sb_mp_put_bool(struct sb_buf *buf, bool value);
void sb_mp_put_uint(struct sb_buf *buf, uint64_t value);
void sb_mp_put_float(struct sb_buf *buf, double value);
void sb_mp_put_str(struct sb_buf *buf, const char *text);
void sb_mp_put_slice(struct sb_buf *buf, struct sb_slice slice); /* as str */
void sb_mp_put_bin(struct sb_buf *buf, const void *bytes, size_t n);
void sb_mp_put_array(struct sb_buf *buf, uint32_t n);
void sb_mp_put_map(struct sb_buf *buf, uint32_t n);

#endif
