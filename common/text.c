#include "text.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The first byte's rule: how many bytes the character has, and what its second byte may be (Unicode 15, table 3-7). */
struct lead {
    uint8_t len; /* 0: never a first byte */
    uint8_t second_from;
    uint8_t second_to;
};

static struct lead lead_of(uint8_t byte)
{
    if (byte < 0xc2)
        return (struct lead){0}; /* continuation bytes, overlong c0 and c1 (ASCII is not asked for) */
    if (byte <= 0xdf)
        return (struct lead){2, 0x80, 0xbf};
    if (byte <= 0xef) /* e0: no overlong, ed: no surrogates */
        return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    if (byte <= 0xf4) /* f0: no overlong, f4: not above U+10FFFF */
        return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0};
}

/*
 * The length of the character at `at`, *is_valid true; or of the piece that one U+FFFD stands for, *is_valid false: the
 * longest start of a character that could have become one, at least a byte (what Unicode recommends and Python does).
 */
static size_t next_char(const uint8_t *at, size_t n, bool *is_valid)
{
    *is_valid = false;
    if (at[0] < 0x80) {
        *is_valid = at[0] != 0;
        return 1;
    }

    const struct lead lead = lead_of(at[0]);
    if (lead.len == 0 || n < 2 || at[1] < lead.second_from || at[1] > lead.second_to)
        return 1;
    for (size_t i = 2; i < lead.len; i++) {
        if (i >= n || at[i] < 0x80 || at[i] > 0xbf)
            return i;
    }
    *is_valid = true;
    return lead.len;
}

static bool is_plain(const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] == 0 || at[i] >= 0x80)
            return false;
    }
    return true;
}

size_t sb_text_clean(char *out, size_t max, const char *bytes, size_t n, struct sb_text_faults *faults)
{
    const uint8_t *at = (const uint8_t *) bytes;
    if (n <= max && is_plain(at, n)) {
        if (n)
            memcpy(out, at, n);
        out[n] = '\0';
        return n;
    }

    size_t len = 0;
    bool has_bad = false;
    bool is_cut = false;
    for (size_t i = 0; i < n;) {
        bool is_valid;
        const size_t taken = next_char(at + i, n - i, &is_valid);
        const size_t given = is_valid ? taken : sizeof replacement - 1;
        if (given > max - len) {
            is_cut = true;
            break;
        }
        memcpy(out + len, is_valid ? (const char *) at + i : replacement, given);
        has_bad |= !is_valid;
        len += given;
        i += taken;
    }
    out[len] = '\0';
    if (faults) {
        faults->replaced += has_bad;
        faults->cut += is_cut;
    }
    return len;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool sb_label_name_is_valid(const char *bytes, size_t n)
{
    if (n == 0 || n > SB_LABEL_NAME_MAX || !is_letter(bytes[0]))
        return false;
    if (n >= 2 && bytes[0] == '_' && bytes[1] == '_')
        return false;
    for (size_t i = 1; i < n; i++) {
        if (!is_letter(bytes[i]) && !is_digit(bytes[i]))
            return false;
    }
    return true;
}

bool sb_metric_name_is_valid(const char *bytes, size_t n)
{
    enum { METRIC_NAME_MAX = 200 };
    if (n == 0 || n > METRIC_NAME_MAX || is_digit(bytes[0]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(bytes[i]) && !is_digit(bytes[i]) && bytes[i] != ':')
            return false;
    }
    return true;
}
