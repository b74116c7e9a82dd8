/* What each kind of setting accepts. Opens nothing: that an address can be bound is found out by binding it. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/endpoint.h"
#include "common/http.h"
#include "common/log.h"
#include "common/settings_private.h"

enum { BOUND_MAX = 32 }; /* of one end of a range, as text */

static enum sb_rc parse_text(const char *text, int64_t *out, struct sb_err *err)
{
    (void) text;
    (void) out;
    (void) err;
    return SB_OK;
}

static enum sb_rc parse_path(const char *text, int64_t *out, struct sb_err *err)
{
    (void) out;
    return text[0] ? SB_OK : sb_fail(err, SB_FORMAT, "'' names no file");
}

static enum sb_rc parse_endpoint(const char *text, int64_t *out, struct sb_err *err)
{
    (void) out;
    return sb_endpoint_check(text, err);
}

/* Names that stand for any address or port are for binding. */
static enum sb_rc check_peer(const char *endpoint, struct sb_err *err)
{
    const enum sb_rc rc = sb_endpoint_check(endpoint, err);
    if (rc != SB_OK)
        return rc;
    const bool is_port_0 = strncmp(endpoint, "tcp:", 4) == 0 && strcmp(strrchr(endpoint, ':'), ":0") == 0;
    if (is_port_0 || strchr(endpoint, '*'))
        return sb_fail(err, SB_FORMAT, "'%s' is nothing to connect to: it leaves host or port open", endpoint);
    return SB_OK;
}

/* Is the endpoint at `at`, of len bytes, in the list before that, too? */
static bool is_there_before(const char *list, const char *at, size_t len)
{
    for (list += strspn(list, " ,"); list < at; list += strspn(list, " ,")) {
        const size_t n = strcspn(list, ",");
        if (n == len && memcmp(list, at, len) == 0)
            return true;
        list += n;
    }
    return false;
}

static enum sb_rc parse_endpoints(const char *text, int64_t *out, struct sb_err *err)
{
    (void) out;
    if (*text && !text[strspn(text, " ,")])
        return sb_fail(err, SB_FORMAT, "'%s' names no endpoint (the empty text is none)", text);
    const char *list = text;
    while (*text) {
        text += strspn(text, " ,");
        const size_t len = strcspn(text, ",");
        char one[SB_ENDPOINT_MAX + 1]; /* one more than is allowed, so that a cut one is refused */
        snprintf(one, sizeof one, "%.*s", (int) (len < sizeof one ? len : sizeof one), text);
        const enum sb_rc rc = len ? check_peer(one, err) : SB_OK;
        if (rc != SB_OK)
            return rc;
        if (is_there_before(list, text, len))
            return sb_fail(err, SB_INVAL, "'%s' stands here twice", one);
        text += len;
    }
    return SB_OK;
}

static enum sb_rc parse_address(const char *text, int64_t *out, struct sb_err *err)
{
    (void) out;
    return sb_http_check_address(text, err);
}

static enum sb_rc parse_level(const char *text, int64_t *out, struct sb_err *err)
{
    enum sb_log_level level;
    const enum sb_rc rc = sb_log_parse_level(text, &level, err);
    if (rc == SB_OK)
        *out = level;
    return rc;
}

static enum sb_rc parse_flag(const char *text, int64_t *out, struct sb_err *err)
{
    const bool is_true = strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "false") != 0)
        return sb_fail(err, SB_FORMAT, "'%s' is neither true nor false", text);
    *out = is_true;
    return SB_OK;
}

static const struct kind {
    const char *word;
    bool is_text;
    enum sb_rc (*parse)(const char *, int64_t *, struct sb_err *);
} kinds[] = {
    [SB_SETTING_text] = {"TEXT", true, parse_text},
    [SB_SETTING_path] = {"FILE", true, parse_path},
    [SB_SETTING_endpoint] = {"ENDPOINT", true, parse_endpoint},
    [SB_SETTING_endpoints] = {"ENDPOINTS", true, parse_endpoints},
    [SB_SETTING_address] = {"ADDRESS", true, parse_address},
    [SB_SETTING_level] = {"LEVEL", false, parse_level},
    [SB_SETTING_duration] = {"DURATION", false, sb_parse_duration_ms},
    [SB_SETTING_seconds] = {"SECONDS", false, sb_parse_seconds_ms},
    [SB_SETTING_count] = {"COUNT", false, sb_parse_count},
    [SB_SETTING_bytes] = {"BYTES", false, sb_parse_bytes},
    [SB_SETTING_flag] = {"true|false", false, parse_flag},
};
_Static_assert(SB_COUNT(kinds) == SB_SETTING_KINDS, "every kind needs a row");

const char *sb_setting_kind_word(enum sb_setting_kind kind)
{
    return kinds[kind].word;
}

bool sb_setting_is_text(enum sb_setting_kind kind)
{
    return kinds[kind].is_text;
}

/* One end of a range, which is ours: a test parses all of them. */
static int64_t parse_bound(const struct sb_setting *setting, const char *bound, int64_t missing)
{
    int64_t value = missing;
    if (!*bound)
        return missing;
    const enum sb_rc rc = kinds[setting->kind].parse(bound, &value, NULL);
    assert(rc == SB_OK);
    (void) rc;
    return value;
}

static enum sb_rc check_range(const struct sb_setting *setting, const char *text, int64_t value, struct sb_err *err)
{
    const char *dots = strstr(setting->range, "..");
    if (!dots)
        return SB_OK;
    char least[BOUND_MAX];
    const char *most = dots + 2;
    snprintf(least, sizeof least, "%.*s", (int) (dots - setting->range), setting->range);
    if (value < parse_bound(setting, least, INT64_MIN))
        return sb_fail(err, SB_RANGE, "'%s' is less than %s", text, least);
    if (value > parse_bound(setting, most, INT64_MAX))
        return sb_fail(err, SB_RANGE, "'%s' is more than %s", text, most);
    return SB_OK;
}

enum sb_rc sb_setting_parse(const struct sb_setting *setting, const char *text, int64_t *out, struct sb_err *err)
{
    int64_t value = 0;
    const enum sb_rc rc = kinds[setting->kind].parse(text, &value, err);
    if (rc != SB_OK || kinds[setting->kind].is_text)
        return rc;
    const enum sb_rc in_range = check_range(setting, text, value, err);
    if (in_range == SB_OK)
        *out = value;
    return in_range;
}
