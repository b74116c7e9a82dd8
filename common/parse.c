#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

/* A number of digits alone, and where it ends. */
static enum sb_rc parse_digits(const char *text, int64_t *out, const char **rest, struct sb_err *err)
{
    if (!isdigit((unsigned char) text[0]))
        return sb_fail(err, SB_FORMAT, "'%s' does not start with a number", text);
    char *end;
    errno = 0;
    const long long amount = strtoll(text, &end, 10);
    if (errno == ERANGE)
        return sb_fail(err, SB_RANGE, "'%s' is too large", text);
    *out = amount;
    *rest = end;
    return SB_OK;
}

struct unit {
    const char *suffix;
    int64_t factor;
};

static enum sb_rc parse_amount(const char *text, const struct unit *units, size_t n, const char *hint, int64_t *out,
                               struct sb_err *err)
{
    int64_t amount = 0;
    const char *rest = "";
    const enum sb_rc rc = parse_digits(text, &amount, &rest, err);
    if (rc != SB_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rest, units[i].suffix) != 0)
            continue;
        if (amount > INT64_MAX / units[i].factor)
            return sb_fail(err, SB_RANGE, "'%s' is too large", text);
        *out = amount * units[i].factor;
        return SB_OK;
    }
    return sb_fail(err, SB_FORMAT, "'%s' %s", text, hint);
}

enum sb_rc sb_parse_duration_ms(const char *text, int64_t *out_ms, struct sb_err *err)
{
    static const struct unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000}};
    return parse_amount(text, units, SB_COUNT(units), "needs a unit: ms, s, m or h", out_ms, err);
}

enum sb_rc sb_parse_seconds_ms(const char *text, int64_t *out_ms, struct sb_err *err)
{
    static const struct unit units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000}};
    return parse_amount(text, units, SB_COUNT(units), "has no unit of ours: ms, s, m, h, or none for seconds", out_ms,
                        err);
}

enum sb_rc sb_parse_bytes(const char *text, int64_t *out_bytes, struct sb_err *err)
{
    static const struct unit units[] = {{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    return parse_amount(text, units, SB_COUNT(units), "has no unit of ours: KiB, MiB, GiB, or none for bytes",
                        out_bytes, err);
}

enum sb_rc sb_parse_count(const char *text, int64_t *out, struct sb_err *err)
{
    static const struct unit units[] = {{"", 1}};
    return parse_amount(text, units, SB_COUNT(units), "is not a whole number", out, err);
}
