#include "log.h"

#include <assert.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 2048,
    FORMAT_MAX = 512,
    QUOTE = 1, /* stands for the quotes of the format while values are printed into it */
};

/* Set at start and by SIGHUP, in the one thread that logs: a log is the process's, like stderr. */
static const char *program = "statsbus";
static enum sb_log_level least_level = SB_LOG_INFO;
static uint64_t n_dropped;

static const char *const levels[] = {
    [SB_LOG_DEBUG] = "debug",
    [SB_LOG_INFO] = "info",
    [SB_LOG_WARN] = "warn",
    [SB_LOG_ERROR] = "error",
};

void sb_log_init(const char *name, enum sb_log_level least)
{
    program = name;
    least_level = least;
}

enum sb_rc sb_log_parse_level(const char *text, enum sb_log_level *out, struct sb_err *err)
{
    for (size_t i = 0; i < SB_COUNT(levels); i++) {
        if (strcmp(text, levels[i]) == 0) {
            *out = (enum sb_log_level) i;
            return SB_OK;
        }
    }
    return sb_fail(err, SB_INVAL, "'%s' is not debug, info, warn or error", text);
}

/* time, level, program and event; returns the length. */
static size_t put_start(char *line, size_t size, enum sb_log_level level, const char *event)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm parts = {0};
    gmtime_r(&now.tv_sec, &parts);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &parts);
    const int n = snprintf(line, size, "time=%s.%03dZ level=%s program=%s msg=\"%s\"", stamp,
                           (int) (now.tv_nsec / 1000000), levels[level], program, event);
    return n < 0 ? 0 : (size_t) n < size ? (size_t) n : size - 1;
}

/* The format with QUOTE for each quote, so that quotes of values can be told from its own; returns how many. */
static size_t mark_quotes(char marked[FORMAT_MAX], const char *fmt)
{
    size_t quotes = 0;
    size_t i = 0;
    assert(strlen(fmt) < FORMAT_MAX);
    for (; fmt[i] != '\0' && i < FORMAT_MAX - 1; i++) {
        quotes += fmt[i] == '"';
        marked[i] = fmt[i] == '"' ? QUOTE : fmt[i];
    }
    marked[i] = '\0';
    return quotes;
}

/*
 * Nothing that a value holds may look like the end of the value or of the line. If there are more or fewer marks than
 * quotes (a value holds that byte, or the line was cut), none is believed, and the blanks go as well.
 */
static void make_harmless(char *text, size_t quotes)
{
    size_t marks = 0;
    for (const char *at = text; *at != '\0'; at++)
        marks += *at == QUOTE;
    for (char *at = text; *at != '\0'; at++) {
        if (*at == QUOTE && marks == quotes)
            *at = '"';
        else if (*at == '"' || (unsigned char) *at < 0x20 || *at == 0x7f)
            *at = '?';
        else if (*at == ' ' && marks != quotes)
            *at = '_';
    }
}

/* A pipe that nobody empties must not stop the program: a line that would have to wait is dropped. */
static void put_line(const char *line, size_t len)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    const bool is_ready = poll(&out, 1, 0) == 1 && (out.revents & POLLOUT);
    if (!is_ready || write(STDERR_FILENO, line, len) < 0)
        n_dropped++;
}

uint64_t sb_log_dropped(void)
{
    return n_dropped;
}

void sb_log(enum sb_log_level level, const char *event, const char *fmt, ...)
{
    if (level < least_level)
        return;

    char line[LINE_MAX_BYTES];
    size_t len = put_start(line, sizeof line - 1, level, event);
    if (fmt[0] != '\0') {
        char marked[FORMAT_MAX];
        const size_t quotes = mark_quotes(marked, fmt);
        char *details = line + len;
        const size_t room = sizeof line - 1 - len; /* 1 for the newline */
        va_list args;
        va_start(args, fmt);
        details[0] = ' ';
/* The format was checked at the call, by sb_log's own attribute; this is the same one with other quotes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        const int n = room > 1 ? vsnprintf(details + 1, room - 1, marked, args) : -1;
#pragma GCC diagnostic pop
        va_end(args);
        const bool is_cut = n >= 0 && (size_t) n >= room - 1;
        if (n >= 0) {
            make_harmless(details + 1, is_cut ? SIZE_MAX : quotes);
            len += 1 + strlen(details + 1);
        }
    }
    line[len++] = '\n';
    put_line(line, len);
}
