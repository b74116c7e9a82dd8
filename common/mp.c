#include "mp_format.h"

static uint16_t be16_at(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return be16toh(value);
}

static uint32_t be32_at(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static uint64_t be64_at(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return be64toh(value);
}

/* A big-endian number of `width` (1, 2, 4 or 8) bytes. */
static uint64_t be_at(const uint8_t *at, size_t width)
{
    switch (width) {
    case 1:
        return at[0];
    case 2:
        return be16_at(at);
    case 4:
        return be32_at(at);
    default:
        return be64_at(at);
    }
}

/*
 * By first byte: the whole length of a value that has always the same; 0 for those that tell their length (str8, bin,
 * ext) or hold others (arrays, maps), and for 0xc1.
 */
#define EIGHT(n) n, n, n, n, n, n, n, n
static const uint8_t fixed_size[256] = {
    EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), /* 00: positive fixint */
    EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1), /* 40 */
    EIGHT(0), EIGHT(0),                                                             /* 80: fixmap */
    EIGHT(0), EIGHT(0),                                                             /* 90: fixarray */
    1,        2,        3,        4,        5,        6,        7,        8,
    9,        10,       11,       12,       13,       14,       15,       16, /* a0: fixstr */
    17,       18,       19,       20,       21,       22,       23,       24,
    25,       26,       27,       28,       29,       30,       31,       32, /* b0 */
    1,        0,        1,        1,        0,        0,        0,        0,
    0,        0,        5,        9,        2,        3,        5,        9, /* c0: nil to uint64 */
    2,        3,        5,        9,        3,        4,        6,        10,
    18,       0,        0,        0,        0,        0,        0,        0, /* d0: int8 to map32 */
    EIGHT(1), EIGHT(1), EIGHT(1), EIGHT(1),                                  /* e0: negative fixint */
};
#undef EIGHT

/* What goes wrong in a walk. */
enum walk { WALK_OK, WALK_CUT, WALK_NEVER, WALK_DEEP };

/* The length of a value that tells it in `width` bytes after the first, `extra` more of them being a type. */
struct told {
    uint8_t width;
    uint8_t extra;
};

static struct told told_of(uint8_t first)
{
    switch (first) {
    case MP_BIN8:
    case MP_STR8:
        return (struct told){1, 0};
    case MP_BIN16:
    case MP_STR16:
        return (struct told){2, 0};
    case MP_BIN32:
    case MP_STR32:
        return (struct told){4, 0};
    case MP_EXT8:
        return (struct told){1, 1};
    case MP_EXT16:
        return (struct told){2, 1};
    case MP_EXT32:
        return (struct told){4, 1};
    default:
        return (struct told){0, 0};
    }
}

/* Reads the head of an array or map that starts at `at`: false if it is neither, *head 0 if it is cut. */
static inline bool read_head(const uint8_t *at, const uint8_t *end, size_t *head, uint32_t *n, bool *is_map)
{
    const uint8_t first = *at;
    const size_t left = (size_t) (end - at);
    if ((first & 0xe0) == 0x80) {
        *head = 1;
        *n = first & 0x0f;
        *is_map = first < 0x90;
        return true;
    }
    if (first < MP_ARRAY16 || first > MP_MAP32)
        return false;
    *is_map = first >= MP_MAP16;
    const bool is_wide = first & 1;
    *head = is_wide ? 5 : 3;
    if (left < *head)
        *head = 0;
    else
        *n = is_wide ? be32_at(at + 1) : be16_at(at + 1);
    return true;
}

/* How many of at most `n` float64 stand at `at`, whole. The hot loop of records with many latencies. */
static inline uint64_t count_doubles(const uint8_t *at, const uint8_t *end, uint64_t n)
{
    const uint64_t fit = (uint64_t) (end - at) / 9;
    const uint64_t max = n < fit ? n : fit;
    uint64_t i = 0;
    for (; i + 4 <= max; i += 4, at += 36) {
        if (((at[0] ^ MP_FLOAT64) | (at[9] ^ MP_FLOAT64) | (at[18] ^ MP_FLOAT64) | (at[27] ^ MP_FLOAT64)) != 0)
            break;
    }
    for (; i < max && *at == MP_FLOAT64; i++, at += 9)
        ;
    return i;
}

/* Steps over a value that is neither an array or map nor of fixed size. */
static enum walk walk_told(const uint8_t **at_p, const uint8_t *end)
{
    const uint8_t *at = *at_p;
    const struct told told = told_of(*at);
    if (told.width == 0)
        return WALK_NEVER;
    const uint64_t left = (uint64_t) (end - at);
    const uint64_t head = 1u + told.width + told.extra;
    if (left < head)
        return WALK_CUT;
    const uint64_t len = be_at(at + 1, told.width);
    if (left - head < len)
        return WALK_CUT;
    *at_p = at + head + len;
    return WALK_OK;
}

/*
 * As fixed_size. Where the next value starts depends on this one's length, and a table look-up would make each step
 * wait for two loads. These branches let the processor guess instead: records of one engine look alike.
 */
static inline size_t size_of(uint8_t first)
{
    if (first < MP_FIXMAP || first == MP_NIL)
        return 1;
    if ((first & 0xe0) == MP_FIXSTR)
        return 1u + (first & 0x1f);
    return first == MP_FLOAT64 ? 9 : fixed_size[first];
}

/* Steps over one value; *at_p is where it ends, or where it went wrong. */
static enum walk walk(const uint8_t **at_p, const uint8_t *end, unsigned depth_max)
{
    uint64_t stack[SB_MP_DEPTH_MAX + 1]; /* values to come, keys of maps among them */
    unsigned depth = 0;
    uint64_t left = 1; /* of the innermost array or map; the outermost is the one value itself */
    const uint8_t *at = *at_p;
    enum walk result = WALK_OK;

    for (;;) {
        while (left == 0 && depth > 0)
            left = stack[--depth];
        if (left == 0)
            break;
        if (at == end) {
            result = WALK_CUT;
            break;
        }

        const size_t size = size_of(*at);
        if (size != 0) {
            if (size > (size_t) (end - at)) {
                result = WALK_CUT;
                break;
            }
            at += size;
            left--;
            continue;
        }

        size_t head;
        uint32_t n = 0;
        bool opens_map;
        if (!read_head(at, end, &head, &n, &opens_map)) {
            result = walk_told(&at, end);
            if (result != WALK_OK)
                break;
            left--;
            continue;
        }
        const uint64_t values = opens_map ? 2 * (uint64_t) n : n;
        if (head == 0 || values > (uint64_t) (end - at) - head)
            result = WALK_CUT; /* each value takes a byte at least: no count is believed beyond that */
        else if (depth == depth_max)
            result = WALK_DEEP;
        if (result != WALK_OK)
            break;

        stack[depth++] = left - 1;
        at += head;
        left = values;
        if (!opens_map) {
            const uint64_t doubles = count_doubles(at, end, left);
            at += 9 * doubles;
            left -= doubles;
        }
    }
    *at_p = at;
    return result;
}

enum sb_rc sb_mp_validate(const void *bytes, size_t n, unsigned depth_max, struct sb_err *err)
{
    const uint8_t *start = bytes;
    const uint8_t *at = start;
    if (n == 0)
        return sb_fail(err, SB_FORMAT, "the message is empty");

    const unsigned depth = depth_max < SB_MP_DEPTH_MAX ? depth_max : SB_MP_DEPTH_MAX;
    const enum walk result = walk(&at, start + n, depth);
    const size_t where = (size_t) (at - start);
    switch (result) {
    case WALK_OK:
        break;
    case WALK_CUT:
        return sb_fail(err, SB_FORMAT, "the value at byte %zu does not fit into the %zu bytes", where, n);
    case WALK_NEVER:
        return sb_fail(err, SB_FORMAT, "byte %zu is 0xc1, which msgpack never uses", where);
    case WALK_DEEP:
        return sb_fail(err, SB_FULL, "the value at byte %zu is nested deeper than %u", where, depth);
    }
    if (where != n)
        return sb_fail(err, SB_FORMAT, "the value ends at byte %zu, but there are %zu", where, n);
    return SB_OK;
}

bool sb_mp_skip(struct sb_mp *self)
{
    const uint8_t *at = self->at;
    if (at == self->end || walk(&at, self->end, SB_MP_DEPTH_MAX) != WALK_OK)
        return false;
    self->at = at;
    return true;
}

bool sb_slice_is(struct sb_slice slice, const char *text)
{
    const size_t len = strlen(text);
    return slice.len == len && memcmp(slice.at, text, len) == 0;
}

static enum sb_mp_type peek_long(const struct sb_mp *self, uint8_t first)
{
    switch (first) {
    case MP_NIL:
        return SB_MP_NIL;
    case MP_NEVER:
        return SB_MP_END;
    case MP_FALSE:
    case MP_TRUE:
        return SB_MP_BOOL;
    case MP_BIN8:
    case MP_BIN16:
    case MP_BIN32:
        return SB_MP_BIN;
    case MP_FLOAT32:
    case MP_FLOAT64:
        return SB_MP_FLOAT;
    case MP_UINT8:
    case MP_UINT16:
    case MP_UINT32:
    case MP_UINT64:
        return SB_MP_UINT;
    case MP_STR8:
    case MP_STR16:
    case MP_STR32:
        return SB_MP_STR;
    case MP_ARRAY16:
    case MP_ARRAY32:
        return SB_MP_ARRAY;
    case MP_MAP16:
    case MP_MAP32:
        return SB_MP_MAP;
    default:
        break;
    }
    if (first >= MP_INT8 && first <= MP_INT64)
        return self->end - self->at > 1 && self->at[1] >= 0x80 ? SB_MP_INT : SB_MP_UINT; /* the sign bit */
    return SB_MP_EXT;
}

enum sb_mp_type sb_mp_peek(const struct sb_mp *self)
{
    if (self->at == self->end)
        return SB_MP_END;
    const uint8_t first = *self->at;
    if (first <= 0x7f)
        return SB_MP_UINT;
    if (first <= 0x8f)
        return SB_MP_MAP;
    if (first <= 0x9f)
        return SB_MP_ARRAY;
    if (first <= 0xbf)
        return SB_MP_STR;
    if (first >= 0xe0)
        return SB_MP_INT;
    return peek_long(self, first);
}

/* Is there a whole value of fixed size? Then its first byte. */
static bool fixed_first(const struct sb_mp *self, uint8_t *first)
{
    if (self->at == self->end)
        return false;
    *first = *self->at;
    return fixed_size[*first] <= (size_t) (self->end - self->at);
}

bool sb_mp_nil(struct sb_mp *self)
{
    uint8_t first;
    if (!fixed_first(self, &first) || first != MP_NIL)
        return false;
    self->at++;
    return true;
}

bool sb_mp_bool(struct sb_mp *self, bool *out)
{
    uint8_t first;
    if (!fixed_first(self, &first) || (first != MP_FALSE && first != MP_TRUE))
        return false;
    *out = first == MP_TRUE;
    self->at++;
    return true;
}

/* The integer at the cursor, if it is one and whole: its bits, and whether they mean a negative number. */
static bool read_integer(const struct sb_mp *self, int64_t *bits, bool *is_negative)
{
    uint8_t first;
    if (!fixed_first(self, &first))
        return false;
    const uint8_t *at = self->at + 1;
    *is_negative = false;
    if (first <= 0x7f) {
        *bits = first;
        return true;
    }
    if (first >= 0xe0) {
        *bits = (int8_t) first;
        *is_negative = true;
        return true;
    }
    if (first < MP_UINT8 || first > MP_INT64)
        return false;

    const size_t width =
        (size_t) 1 << (first & 3); /* uint8 .. uint64 and int8 .. int64 both start at a multiple of 4 */
    const uint64_t raw = be_at(at, width);
    if (first < MP_INT8) {
        *bits = (int64_t) raw;
        return true;
    }
    const unsigned unused = 64 - 8 * (unsigned) width;
    *bits = (int64_t) (raw << unused) >> unused;
    *is_negative = *bits < 0;
    return true;
}

bool sb_mp_uint_any(struct sb_mp *self, uint64_t *out)
{
    int64_t bits;
    bool is_negative;
    if (!read_integer(self, &bits, &is_negative) || is_negative)
        return false;
    *out = (uint64_t) bits;
    self->at += fixed_size[*self->at];
    return true;
}

bool sb_mp_number_any(struct sb_mp *self, double *out)
{
    uint8_t first;
    int64_t bits;
    bool is_negative;
    if (!fixed_first(self, &first))
        return false;

    if (read_integer(self, &bits, &is_negative)) {
        *out = is_negative ? (double) bits : (double) (uint64_t) bits;
    } else if (first == MP_FLOAT64) {
        *out = sb_mp_double_at(self->at + 1);
    } else if (first == MP_FLOAT32) {
        const uint32_t raw = be32_at(self->at + 1);
        float value;
        memcpy(&value, &raw, sizeof value);
        *out = (double) value;
    } else if (first == MP_FALSE || first == MP_TRUE) {
        *out = first == MP_TRUE;
    } else {
        return false;
    }
    self->at += fixed_size[first];
    return true;
}

/* A value that tells its length in 1, 2 or 4 bytes, by its three first bytes in order (str8.. or bin8..). */
static bool read_told(struct sb_mp *self, uint8_t first_of_three, struct sb_slice *out)
{
    const uint64_t left = (uint64_t) (self->end - self->at);
    if (left == 0 || *self->at < first_of_three || *self->at > first_of_three + 2)
        return false;
    const size_t width = (size_t) 1 << (*self->at - first_of_three);
    if (left < 1 + width)
        return false;
    const uint64_t len = be_at(self->at + 1, width);
    if (left - 1 - width < len)
        return false;
    *out = (struct sb_slice){.at = (const char *) self->at + 1 + width, .len = len};
    self->at += 1 + width + len;
    return true;
}

bool sb_mp_str_any(struct sb_mp *self, struct sb_slice *out)
{
    return read_told(self, MP_STR8, out);
}

bool sb_mp_bin(struct sb_mp *self, struct sb_slice *out)
{
    return read_told(self, MP_BIN8, out);
}

static bool read_container(struct sb_mp *self, bool wants_map, uint32_t *n)
{
    size_t head;
    uint32_t count;
    bool is_map;
    if (self->at == self->end || !read_head(self->at, self->end, &head, &count, &is_map) || is_map != wants_map ||
        head == 0)
        return false;
    *n = count;
    self->at += head;
    return true;
}

bool sb_mp_array_any(struct sb_mp *self, uint32_t *n)
{
    return read_container(self, false, n);
}

bool sb_mp_map_any(struct sb_mp *self, uint32_t *n)
{
    return read_container(self, true, n);
}
