/*
 * msgpack: a reader that walks bytes in place and a writer that appends to a buffer.
 *
 * The reader never allocates and never trusts a count: whatever a length claims, it stops at the end of the bytes.
 * Source: the msgpack specification (github.com/msgpack/msgpack, spec.md).
 */
#ifndef SB_MP_H
#define SB_MP_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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
    /* NULL plus 0 would be undefined */
    return (struct sb_mp){.at = bytes, .end = n ? (const uint8_t *) bytes + n : bytes};
}

bool sb_slice_is(struct sb_slice slice, const char *text);

/* The type of the value that the cursor stands at. */
enum sb_mp_type sb_mp_peek(const struct sb_mp *self);

/*
 * Checks that `n` bytes are exactly one well-formed value, nested no deeper than depth_max (at most SB_MP_DEPTH_MAX; a
 * scalar has depth 0, an array or map one more than what it holds). Keys of maps may be of any type, arrays too (tuples
 * in Python): a reader that wants texts passes over others. One walk that skips; after it every read of that value
 * succeeds if the type fits.
 * Errors: SB_FORMAT (cut, bytes left over, 0xc1), SB_FULL (too deep). The text says at which byte.
 */
enum sb_rc sb_mp_validate(const void *bytes, size_t n, unsigned depth_max, struct sb_err *err) SB_CHECK;

/* Each reads one value of that type and moves on; false (cursor unmoved) if it is of another type or cut. */
bool sb_mp_nil(struct sb_mp *self) SB_CHECK;
bool sb_mp_bool(struct sb_mp *self, bool *out) SB_CHECK;
static inline bool sb_mp_uint(struct sb_mp *self, uint64_t *out) SB_CHECK;
/* Integers of either sign, floats and bools (true is 1), as a double: what Python calls a number. */
static inline bool sb_mp_number(struct sb_mp *self, double *out) SB_CHECK;
static inline bool sb_mp_str(struct sb_mp *self, struct sb_slice *out) SB_CHECK;
bool sb_mp_bin(struct sb_mp *self, struct sb_slice *out) SB_CHECK;
static inline bool sb_mp_array(struct sb_mp *self, uint32_t *n) SB_CHECK; /* then n values follow */
static inline bool sb_mp_map(struct sb_mp *self, uint32_t *n) SB_CHECK;   /* then n pairs follow */
/* Steps over one value of any type; false if it is cut, malformed or nested deeper than SB_MP_DEPTH_MAX. */
bool sb_mp_skip(struct sb_mp *self) SB_CHECK;

/* Writing: appends to the buffer; an overflow is the buffer's to remember. */
void sb_mp_put_nil(struct sb_buf *buf);
void sb_mp_put_bool(struct sb_buf *buf, bool value);
void sb_mp_put_uint(struct sb_buf *buf, uint64_t value);
void sb_mp_put_float(struct sb_buf *buf, double value);
void sb_mp_put_str(struct sb_buf *buf, const char *text);
void sb_mp_put_str_or_nil(struct sb_buf *buf, const char *text); /* nil: text is NULL */
void sb_mp_put_slice(struct sb_buf *buf, struct sb_slice slice); /* as str */
void sb_mp_put_bin(struct sb_buf *buf, const void *bytes, size_t n);
void sb_mp_put_bin_head(struct sb_buf *buf, size_t n); /* then n bytes follow */
void sb_mp_put_array(struct sb_buf *buf, uint32_t n);
void sb_mp_put_map(struct sb_buf *buf, uint32_t n);

/* The short encodings, which nearly all values have, are read in place; the others by these. */
bool sb_mp_uint_any(struct sb_mp *self, uint64_t *out) SB_CHECK;
bool sb_mp_number_any(struct sb_mp *self, double *out) SB_CHECK;
bool sb_mp_str_any(struct sb_mp *self, struct sb_slice *out) SB_CHECK;
bool sb_mp_array_any(struct sb_mp *self, uint32_t *n) SB_CHECK;
bool sb_mp_map_any(struct sb_mp *self, uint32_t *n) SB_CHECK;

static inline bool sb_mp_uint(struct sb_mp *self, uint64_t *out)
{
    if (self->at == self->end || *self->at > 0x7f)
        return sb_mp_uint_any(self, out);
    *out = *self->at++;
    return true;
}

/* The double whose eight big-endian bytes follow. */
static inline double sb_mp_double_at(const uint8_t *at)
{
    uint64_t bits;
    memcpy(&bits, at, sizeof bits);
    bits = be64toh(bits);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline bool sb_mp_number(struct sb_mp *self, double *out)
{
    if (self->end - self->at < 9 || *self->at != 0xcb)
        return sb_mp_number_any(self, out);
    *out = sb_mp_double_at(self->at + 1);
    self->at += 9;
    return true;
}

static inline bool sb_mp_str(struct sb_mp *self, struct sb_slice *out)
{
    if (self->at == self->end || (*self->at & 0xe0) != 0xa0)
        return sb_mp_str_any(self, out);
    const size_t len = *self->at & 0x1f;
    if (len >= (size_t) (self->end - self->at))
        return false;
    *out = (struct sb_slice){.at = (const char *) self->at + 1, .len = len};
    self->at += 1 + len;
    return true;
}

static inline bool sb_mp_array(struct sb_mp *self, uint32_t *n)
{
    if (self->at == self->end || (*self->at & 0xf0) != 0x90)
        return sb_mp_array_any(self, n);
    *n = *self->at++ & 0x0f;
    return true;
}

static inline bool sb_mp_map(struct sb_mp *self, uint32_t *n)
{
    if (self->at == self->end || (*self->at & 0xf0) != 0x80)
        return sb_mp_map_any(self, n);
    *n = *self->at++ & 0x0f;
    return true;
}

#endif
