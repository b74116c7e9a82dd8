/* Results with a reason: what every function that can fail returns. */
#ifndef SB_ERR_H
#define SB_ERR_H

#include <stddef.h>

/* clang-format off */
/* One list makes the enum, the texts and the test that walks both. */
#define SB_RC_MAP(X)                          \
    X(OK,     "ok")                           \
    X(NOMEM,  "out of memory")                \
    X(INVAL,  "value not accepted")           \
    X(RANGE,  "number out of range")          \
    X(FORMAT, "input is malformed")           \
    X(FULL,   "limit reached")                \
    X(ABSENT, "not there")                    \
    X(IO,     "system or socket call failed")
/* clang-format on */

enum sb_rc {
#define X(name, text) SB_##name,
    SB_RC_MAP(X)
#undef X
        SB_RC_COUNT
};

struct sb_err {
    enum sb_rc rc;
    char text[240]; /* a full sentence without newline; cut where it does not fit */
};

#define SB_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SB_CHECK __attribute__((warn_unused_result))
#define SB_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define SB_OWN(destroy) __attribute__((cleanup(destroy)))

/* The short text of a result ("ok", "limit reached", ...). Never NULL. */
const char *sb_rc_text(enum sb_rc rc);

/* Records rc and the message in *err (err may be NULL) and returns rc. */
enum sb_rc sb_fail(struct sb_err *err, enum sb_rc rc, const char *fmt, ...) SB_PRINTF(3, 4);

/* Puts "where: " before the text that is already in *err (err may be NULL) and returns err's rc,
 * or rc when err is NULL. For callers that know the file, line or setting. */
enum sb_rc sb_fail_at(struct sb_err *err, enum sb_rc rc, const char *fmt, ...) SB_PRINTF(3, 4);

#endif
