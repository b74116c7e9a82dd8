#include "expo.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "num.h"

static const char total[] = "_total";
enum { TOTAL_LEN = sizeof total - 1 };

const char *sb_type_text(enum sb_type type)
{
    static const char *const texts[] = {
        [SB_COUNTER] = "counter",
        [SB_GAUGE] = "gauge",
        [SB_HISTOGRAM] = "histogram",
    };
    _Static_assert(SB_COUNT(texts) == SB_TYPE_COUNT, "every type needs a row");
    return texts[type];
}

const char *sb_expo_content_type(enum sb_expo_format format)
{
    return format == SB_EXPO_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                         : "text/plain; version=0.0.4; charset=utf-8";
}

/* The length of a counter's name without _total; of any other, the whole. */
static size_t base_len(const char *name, enum sb_type type)
{
    const size_t len = strlen(name);
    if (type == SB_COUNTER && len > TOTAL_LEN && memcmp(name + len - TOTAL_LEN, total, TOTAL_LEN) == 0)
        return len - TOTAL_LEN;
    return len;
}

/* Does the name end in _unit? */
static bool has_unit(const char *name, size_t len, const char *unit)
{
    if (!unit || unit[0] == '\0')
        return false;
    const size_t unit_len = strlen(unit);
    return len > unit_len + 1 && name[len - unit_len - 1] == '_' && memcmp(name + len - unit_len, unit, unit_len) == 0;
}

/* Appends text with a backslash before each of the two characters, and newlines as \n; plain runs in one piece. */
static void put_escaped(struct sb_buf *out, const char *text, bool escapes_quotes)
{
    const char *set = escapes_quotes ? "\\\n\"" : "\\\n";
    for (;;) {
        const size_t plain = strcspn(text, set);
        sb_buf_put(out, text, plain);
        text += plain;
        if (*text == '\0')
            return;
        const char escaped[2] = {'\\', *text == '\n' ? 'n' : *text};
        sb_buf_put(out, escaped, sizeof escaped);
        text++;
    }
}

void sb_expo_escape(struct sb_buf *out, const char *value)
{
    put_escaped(out, value, true);
}

static void put_comment(struct sb_buf *out, const char *what, const char *name, size_t len)
{
    sb_buf_put(out, "# ", 2);
    sb_buf_put_text(out, what);
    sb_buf_put_byte(out, ' ');
    sb_buf_put(out, name, len);
    sb_buf_put_byte(out, ' ');
}

void sb_expo_family(const struct sb_expo *self, const char *name, enum sb_type type, const char *unit, const char *help)
{
    const bool is_openmetrics = self->format == SB_EXPO_OPENMETRICS;
    const size_t len = is_openmetrics ? base_len(name, type) : strlen(name);
    if (help[0] != '\0') {
        put_comment(self->out, "HELP", name, len);
        put_escaped(self->out, help, is_openmetrics);
        sb_buf_put_byte(self->out, '\n');
    }
    put_comment(self->out, "TYPE", name, len);
    sb_buf_put_text(self->out, sb_type_text(type));
    sb_buf_put_byte(self->out, '\n');
    if (is_openmetrics && has_unit(name, len, unit)) {
        put_comment(self->out, "UNIT", name, len);
        sb_buf_put_text(self->out, unit);
        sb_buf_put_byte(self->out, '\n');
    }
}

static inline char *put(char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

/* The most bytes that the labels of a line need, with commas between the parts. */
static size_t labels_size(const struct sb_expo_labels *labels)
{
    size_t size = 0;
    for (size_t i = 0; i < SB_COUNT(labels->text); i++)
        size += labels->len[i] + 1u;
    return size;
}

static char *put_labels(char *to, const struct sb_expo_labels *labels)
{
    bool is_first = true;
    for (size_t i = 0; i < SB_COUNT(labels->text); i++) {
        if (labels->len[i] == 0)
            continue;
        if (!is_first)
            *to++ = ',';
        is_first = false;
        to = put(to, labels->text[i], labels->len[i]);
    }
    return to;
}

/* name suffix {labels} value newline, where room has been reserved for. */
static char *put_line(char *to, const char *name, size_t name_len, const char *suffix,
                      const struct sb_expo_labels *labels, double value)
{
    to = put(to, name, name_len);
    to = put(to, suffix, strlen(suffix));
    char *open = to;
    char *close = put_labels(open + 1, labels);
    if (close > open + 1) {
        *open = '{';
        *close = '}';
        to = close + 1;
    }
    *to++ = ' ';
    to += sb_num_value(to, value);
    *to++ = '\n';
    return to;
}

enum { LINE_REST = SB_NUM_MAX + 16 }; /* a number, braces, a suffix, newline */

void sb_expo_value(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels, double value)
{
    const size_t name_len = strlen(name);
    char *start = (char *) sb_buf_reserve(self->out, name_len + labels_size(labels) + LINE_REST);
    if (!start)
        return;
    self->out->len += (size_t) (put_line(start, name, name_len, "", labels, value) - start);
}

void sb_expo_histogram(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels,
                       const struct sb_bounds *bounds, const double *buckets, double sum)
{
    enum { LE_REST = SB_NUM_MAX + 8 }; /* the bound and le="" around it */
    const size_t name_len = strlen(name);
    const size_t line = name_len + labels_size(labels) + LINE_REST;
    char *start = (char *) sb_buf_reserve(self->out, (bounds->n + 1) * (line + LE_REST) + 2 * line);
    if (!start)
        return;

    /* All bucket lines begin alike: the first one is composed, the others copy it. */
    char *at = put(start, name, name_len);
    at = put(at, "_bucket{", 8);
    char *after = put_labels(at, labels);
    if (after > at)
        *after++ = ',';
    after = put(after, "le=\"", 4);
    const size_t prefix = (size_t) (after - start);

    double cumulative = 0;
    at = start;
    for (uint32_t i = 0; i <= bounds->n; i++) {
        if (i > 0)
            memcpy(at, start, prefix);
        at += prefix;
        memcpy(at, bounds->le[i].text, SB_NUM_MAX); /* a number of bytes that is known is copied faster */
        at = put(at + bounds->le[i].len, "\"} ", 3);
        cumulative += buckets[i];
        at += sb_num_value(at, cumulative);
        *at++ = '\n';
    }

    /* OpenMetrics forbids both with buckets below zero: a sum that may fall is no counter. */
    if (self->format == SB_EXPO_TEXT || bounds->upper[0] >= 0) {
        at = put_line(at, name, name_len, "_sum", labels, sum);
        at = put_line(at, name, name_len, "_count", labels, cumulative);
    }
    self->out->len += (size_t) (at - start);
}

void sb_expo_histogram_totals(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels,
                              double count, double sum)
{
    static const double upper[] = {INFINITY};
    static const struct sb_le le[] = {{"+Inf", 4}};
    static const struct sb_bounds none = {.n = 0, .upper = upper, .le = le};
    if (self->format == SB_EXPO_OPENMETRICS) {
        sb_expo_histogram(self, name, labels, &none, &count, sum);
        return;
    }
    const size_t name_len = strlen(name);
    char *start = (char *) sb_buf_reserve(self->out, 2 * (name_len + labels_size(labels) + LINE_REST));
    if (!start)
        return;
    char *at = put_line(start, name, name_len, "_sum", labels, sum);
    at = put_line(at, name, name_len, "_count", labels, count);
    self->out->len += (size_t) (at - start);
}

void sb_expo_end(const struct sb_expo *self)
{
    if (self->format == SB_EXPO_OPENMETRICS)
        sb_buf_put(self->out, "# EOF\n", 6);
}

size_t sb_expo_claims(const char *name, enum sb_type type, char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX])
{
    static const char *const suffixes[][SB_EXPO_CLAIMS_MAX] = {
        [SB_COUNTER] = {"", "_total", "_created"},
        [SB_GAUGE] = {""},
        [SB_HISTOGRAM] = {"", "_bucket", "_sum", "_count", "_created"},
    };
    _Static_assert(SB_COUNT(suffixes) == SB_TYPE_COUNT, "every type needs a row");

    const size_t len = base_len(name, type);
    assert(len + sizeof "_created" <= SB_EXPO_NAME_MAX); /* names are checked long before they are exposed */
    size_t n = 0;
    for (; n < SB_EXPO_CLAIMS_MAX && suffixes[type][n]; n++)
        snprintf(claims[n], SB_EXPO_NAME_MAX, "%.*s%s", (int) len, name, suffixes[type][n]);
    return n;
}
