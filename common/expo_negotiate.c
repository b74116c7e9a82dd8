/* Which text format an Accept header asks for (RFC 9110, 12.5.1). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "expo.h"
#include "mp.h"

/* The piece of *rest before the separator (outside quotes), without blanks around it; *rest moves behind it. */
static struct sb_slice next_piece(const char **rest, char separator)
{
    const char *start = *rest;
    const char *end = start;
    for (bool is_quoted = false; *end != '\0' && (is_quoted || *end != separator); end++)
        is_quoted ^= *end == '"';
    *rest = *end == '\0' ? end : end + 1;
    while (start < end && (*start == ' ' || *start == '\t'))
        start++;
    while (start < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (struct sb_slice){.at = start, .len = (size_t) (end - start)};
}

static bool is(struct sb_slice slice, const char *text)
{
    return slice.len == strlen(text) && strncasecmp(slice.at, text, slice.len) == 0;
}

/* One range of the header: its type and what we look at of its parameters. */
struct range {
    struct sb_slice type;
    struct sb_slice version; /* at NULL: none named */
    double q;
};

static struct range parse_range(struct sb_slice piece)
{
    char text[256]; /* a range longer than this is none of ours */
    struct range range = {.q = 1};
    if (piece.len >= sizeof text)
        return range;
    memcpy(text, piece.at, piece.len);
    text[piece.len] = '\0';

    const char *rest = text;
    const struct sb_slice type = next_piece(&rest, ';');
    range.type = (struct sb_slice){.at = piece.at + (type.at - text), .len = type.len};
    while (*rest != '\0') {
        const struct sb_slice parameter = next_piece(&rest, ';');
        const char *equals = memchr(parameter.at, '=', parameter.len);
        if (!equals)
            continue;
        const struct sb_slice name = {.at = parameter.at, .len = (size_t) (equals - parameter.at)};
        struct sb_slice value = {.at = equals + 1, .len = parameter.len - name.len - 1};
        if (value.len >= 2 && value.at[0] == '"' && value.at[value.len - 1] == '"')
            value = (struct sb_slice){.at = value.at + 1, .len = value.len - 2};
        if (is(name, "q"))
            range.q = strtod(value.at, NULL);
        if (is(name, "version"))
            range.version = (struct sb_slice){.at = piece.at + (value.at - text), .len = value.len};
    }
    if (!(range.q >= 0 && range.q <= 1))
        range.q = 0; /* not a weight: as if the range were not there */
    return range;
}

/* How closely a range names a format: 0 not at all, else higher for closer; the closest one's weight counts. */
static int closeness(const struct range *range, const char *type, const char *main_type, const char *version)
{
    if (is(range->type, type)) {
        if (!range->version.at)
            return 3;
        return is(range->version, version) ? 4 : 0;
    }
    if (is(range->type, main_type))
        return 2;
    return is(range->type, "*/*") ? 1 : 0;
}

enum sb_expo_format sb_expo_negotiate(const char *accept)
{
    if (!accept)
        return SB_EXPO_TEXT;

    int closest_text = 0;
    double q_text = 0;
    double q_openmetrics = 0; /* only where it is named: who asks for anything gets the plain text */
    while (*accept != '\0') {
        const struct range range = parse_range(next_piece(&accept, ','));
        const int text = closeness(&range, "text/plain", "text/*", "0.0.4");
        if (text > closest_text) {
            closest_text = text;
            q_text = range.q;
        }
        if (closeness(&range, "application/openmetrics-text", "application/*", "1.0.0") >= 3 && range.q > q_openmetrics)
            q_openmetrics = range.q;
    }
    return q_openmetrics > 0 && q_openmetrics >= q_text ? SB_EXPO_OPENMETRICS : SB_EXPO_TEXT;
}
