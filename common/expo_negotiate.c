/* Which text format an Accept header asks for. */
#include "accept.h"
#include "expo.h"

/* How closely a preference names a format: 0 not at all, else higher for closer; the closest one's weight counts. */
static int closeness(const struct sb_preference *range, const char *type, const char *main_type, const char *version)
{
    if (sb_accept_is(range->value, type)) {
        if (!range->version.at)
            return 3;
        return sb_accept_is(range->version, version) ? 4 : 0;
    }
    if (sb_accept_is(range->value, main_type))
        return 2;
    return sb_accept_is(range->value, "*/*") ? 1 : 0;
}

enum sb_expo_format sb_expo_negotiate(const char *accept)
{
    int closest = 0;
    double text = 0;
    double openmetrics = 0; /* only where it is named: who asks for anything gets the plain text */
    struct sb_preference range;
    while (accept && sb_accept_next(&accept, &range)) {
        const int close = closeness(&range, "text/plain", "text/*", "0.0.4");
        if (close > closest) {
            closest = close;
            text = range.q;
        }
        if (closeness(&range, "application/openmetrics-text", "application/*", "1.0.0") >= 3 && range.q > openmetrics)
            openmetrics = range.q;
    }
    return openmetrics > 0 && openmetrics >= text ? SB_EXPO_OPENMETRICS : SB_EXPO_TEXT;
}
