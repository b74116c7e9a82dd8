#include "accept.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The piece of *rest before the separator (outside quotes) or end, without blanks around; *rest moves behind it. */
static struct sb_slice next_piece(const char **rest, const char *end, char separator)
{
    const char *from = *rest;
    const char *to = from;
    for (bool is_quoted = false; to < end && (is_quoted || *to != separator); to++)
        is_quoted ^= *to == '"';
    *rest = to < end ? to + 1 : end;
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (from < to && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return (struct sb_slice){.at = from, .len = (size_t) (to - from)};
}

bool sb_accept_is(struct sb_slice slice, const char *text)
{
    return slice.len == strlen(text) && strncasecmp(slice.at, text, slice.len) == 0;
}

/* What follows a q: "0.5", "1", "0"; anything else is 0. */
static double weight_of(struct sb_slice text)
{
    char digits[8]; /* "0.123" is the longest that the RFC allows */
    if (text.len == 0 || text.len >= sizeof digits)
        return 0;
    memcpy(digits, text.at, text.len);
    digits[text.len] = '\0';
    if (strspn(digits, "0123456789.") != text.len)
        return 0;
    char *end;
    const double q = strtod(digits, &end);
    return *end == '\0' && q <= 1 ? q : 0;
}

static void read_parameter(struct sb_slice parameter, struct sb_preference *out)
{
    const char *equals = memchr(parameter.at, '=', parameter.len);
    if (!equals)
        return;
    const struct sb_slice name = {.at = parameter.at, .len = (size_t) (equals - parameter.at)};
    struct sb_slice value = {.at = equals + 1, .len = parameter.len - name.len - 1};
    if (value.len >= 2 && value.at[0] == '"' && value.at[value.len - 1] == '"')
        value = (struct sb_slice){.at = value.at + 1, .len = value.len - 2};
    if (sb_accept_is(name, "q"))
        out->q = weight_of(value);
    if (sb_accept_is(name, "version"))
        out->version = value;
}

bool sb_accept_next(const char **header, struct sb_preference *out)
{
    if (**header == '\0')
        return false;
    const struct sb_slice piece = next_piece(header, *header + strlen(*header), ',');
    const char *rest = piece.at;
    const char *end = piece.at + piece.len;
    *out = (struct sb_preference){.value = next_piece(&rest, end, ';'), .q = 1};
    while (rest < end)
        read_parameter(next_piece(&rest, end, ';'), out);
    return true;
}

bool sb_accept_gzip(const char *header)
{
    double gzip = -1; /* not named */
    double identity = -1;
    double others = 0;
    struct sb_preference preference;
    while (header && sb_accept_next(&header, &preference)) {
        if (sb_accept_is(preference.value, "gzip") || sb_accept_is(preference.value, "x-gzip"))
            gzip = preference.q;
        else if (sb_accept_is(preference.value, "identity"))
            identity = preference.q;
        else if (sb_accept_is(preference.value, "*"))
            others = preference.q;
    }
    if (gzip < 0)
        gzip = others;
    return gzip > 0 && gzip >= identity;
}
