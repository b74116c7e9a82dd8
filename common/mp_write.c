/* Writing msgpack: every value in its shortest form, floats as float64. */
#include <assert.h>

#include "mp_format.h"

/* Appends a first byte and a big-endian number of `width` bytes. */
static void put_head(struct sb_buf *buf, uint8_t first, uint64_t number, size_t width)
{
    uint8_t *to = sb_buf_reserve(buf, 1 + width);
    if (!to)
        return;
    *to = first;
    for (size_t i = width; i > 0; i--, number >>= 8)
        to[i] = (uint8_t) number;
    buf->len += 1 + width;
}

void sb_mp_put_nil(struct sb_buf *buf)
{
    sb_buf_put_byte(buf, MP_NIL);
}

void sb_mp_put_bool(struct sb_buf *buf, bool value)
{
    sb_buf_put_byte(buf, value ? MP_TRUE : MP_FALSE);
}

void sb_mp_put_uint(struct sb_buf *buf, uint64_t value)
{
    if (value <= 0x7f)
        sb_buf_put_byte(buf, (uint8_t) value);
    else if (value <= UINT8_MAX)
        put_head(buf, MP_UINT8, value, 1);
    else if (value <= UINT16_MAX)
        put_head(buf, MP_UINT16, value, 2);
    else if (value <= UINT32_MAX)
        put_head(buf, MP_UINT32, value, 4);
    else
        put_head(buf, MP_UINT64, value, 8);
}

void sb_mp_put_float(struct sb_buf *buf, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_head(buf, MP_FLOAT64, bits, 8);
}

void sb_mp_put_str(struct sb_buf *buf, const char *text)
{
    sb_mp_put_slice(buf, (struct sb_slice){.at = text, .len = strlen(text)});
}

void sb_mp_put_slice(struct sb_buf *buf, struct sb_slice slice)
{
    assert(slice.len <= UINT32_MAX);
    if (slice.len <= 0x1f)
        sb_buf_put_byte(buf, (uint8_t) (0xa0 | slice.len));
    else if (slice.len <= UINT8_MAX)
        put_head(buf, MP_STR8, slice.len, 1);
    else if (slice.len <= UINT16_MAX)
        put_head(buf, MP_STR16, slice.len, 2);
    else
        put_head(buf, MP_STR32, slice.len, 4);
    sb_buf_put(buf, slice.at, slice.len);
}

void sb_mp_put_str_or_nil(struct sb_buf *buf, const char *text)
{
    if (text)
        sb_mp_put_str(buf, text);
    else
        sb_mp_put_nil(buf);
}

void sb_mp_put_bin_head(struct sb_buf *buf, size_t n)
{
    assert(n <= UINT32_MAX);
    if (n <= UINT8_MAX)
        put_head(buf, MP_BIN8, n, 1);
    else if (n <= UINT16_MAX)
        put_head(buf, MP_BIN16, n, 2);
    else
        put_head(buf, MP_BIN32, n, 4);
}

void sb_mp_put_bin(struct sb_buf *buf, const void *bytes, size_t n)
{
    sb_mp_put_bin_head(buf, n);
    sb_buf_put(buf, bytes, n);
}

static void put_container(struct sb_buf *buf, uint32_t n, uint8_t fix, uint8_t first_of_two)
{
    if (n <= 0x0f)
        sb_buf_put_byte(buf, (uint8_t) (fix | n));
    else if (n <= UINT16_MAX)
        put_head(buf, first_of_two, n, 2);
    else
        put_head(buf, first_of_two + 1, n, 4);
}

void sb_mp_put_array(struct sb_buf *buf, uint32_t n)
{
    put_container(buf, n, 0x90, MP_ARRAY16);
}

void sb_mp_put_map(struct sb_buf *buf, uint32_t n)
{
    put_container(buf, n, 0x80, MP_MAP16);
}
