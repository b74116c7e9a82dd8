#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sb_rc_text(enum sb_rc rc)
{
    static const char *const texts[] = {
#define X(name, text) [SB_##name] = text,
        SB_RC_MAP(X)
#undef X
    };
    if ((unsigned) rc >= SB_RC_COUNT)
        return "unknown result";
    return texts[rc];
}

/* Texts quote what peers sent, and end up in log lines and HTTP bodies: no control character may survive. */
static void put_text(struct sb_err *err, const char *text)
{
    size_t i = 0;
    for (; text[i] != '\0' && i < sizeof err->text - 1; i++) {
        unsigned char c = (unsigned char) text[i];
        err->text[i] = c < 0x20 || c == 0x7f ? '?' : (char) c;
    }
    err->text[i] = '\0';
}

enum sb_rc sb_fail(struct sb_err *err, enum sb_rc rc, const char *fmt, ...)
{
    if (!err)
        return rc;

    char text[sizeof err->text]; /* apart, since the arguments may point into err */
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        text[0] = '\0';
    va_end(args);

    err->rc = rc;
    put_text(err, text);
    return rc;
}

enum sb_rc sb_fail_at(struct sb_err *err, enum sb_rc rc, const char *fmt, ...)
{
    if (!err)
        return rc;

    char where[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(where, sizeof where, fmt, args) < 0)
        where[0] = '\0';
    va_end(args);

    char text[2 * sizeof err->text + 2];
    snprintf(text, sizeof text, "%s: %s", where, err->text);
    put_text(err, text);
    return err->rc;
}
