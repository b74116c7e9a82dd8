#include "common/log.h"

#include <unistd.h>

#include "cmocka_all.h"

/* What the calls between start and stop write to stderr, by a pipe. */
static int saved = -1;
static int reader = -1;

static void start(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    reader = fds[0];
}

static size_t stop(char *out, size_t size)
{
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    const ssize_t n = read(reader, out, size - 1);
    close(reader);
    assert_true(n >= 0);
    out[n] = '\0';
    return (size_t) n;
}

/* The line behind its time: "level=... \n". */
static const char *behind_time(const char *line)
{
    assert_memory_equal(line, "time=20", 7);
    assert_int_equal(line[9], '-');
    const char *end = strchr(line, ' ');
    assert_non_null(end);
    assert_int_equal(end - line, strlen("time=2026-07-30T12:00:00.123Z"));
    assert_int_equal(end[-1], 'Z');
    assert_int_equal(end[-5], '.');
    return end + 1;
}

static void a_line_is_logfmt(void **state)
{
    (void) state;
    char out[4096];
    sb_log_init("statsbus-test", SB_LOG_INFO);
    start();
    sb_log(SB_LOG_WARN, "hub went away", "hub=%s reason=\"%s\" n=%d", "tcp://h:1", "connection refused", 3);
    stop(out, sizeof out);
    assert_string_equal(behind_time(out), "level=warn program=statsbus-test msg=\"hub went away\" hub=tcp://h:1 "
                                          "reason=\"connection refused\" n=3\n");
    start();
    sb_log(SB_LOG_INFO, "ready", "%s", "");
    stop(out, sizeof out);
    assert_string_equal(behind_time(out), "level=info program=statsbus-test msg=\"ready\" \n");
    start();
    sb_log(SB_LOG_INFO, "ready", "n=%d", 5);
    sb_log(SB_LOG_ERROR, "other", "n=%d", 6);
    stop(out, sizeof out);
    assert_non_null(strstr(out, "n=5\ntime="));
}

static void levels_below_the_least_are_silent(void **state)
{
    (void) state;
    char out[4096];
    for (int least = SB_LOG_DEBUG; least <= SB_LOG_ERROR; least++) {
        sb_log_init("statsbus-test", (enum sb_log_level) least);
        for (int level = SB_LOG_DEBUG; level <= SB_LOG_ERROR; level++) {
            start();
            sb_log((enum sb_log_level) level, "x", "n=%d", 1);
            assert_int_equal(stop(out, sizeof out) > 0, level >= least);
        }
    }
}

static void values_cannot_end_the_line_or_their_quotes(void **state)
{
    (void) state;
    static const struct {
        const char *value;
        const char *want;
    } cases[] = {
        {"a\nlevel=error", "reason=\"a?level=error\" end=1\n"},
        {"a\" level=error x=\"", "reason=\"a? level=error x=?\" end=1\n"},
        {"a\x7f\x1b[31m", "reason=\"a??[31m\" end=1\n"},
        {"a\x01 level=error", "reason=?a?_level=error?_end=1\n"},
    };
    sb_log_init("statsbus-test", SB_LOG_INFO);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char out[4096];
        start();
        sb_log(SB_LOG_INFO, "x", "reason=\"%s\" end=%d", cases[i].value, 1);
        stop(out, sizeof out);
        const char *at = strstr(out, "reason=");
        assert_non_null(at);
        assert_string_equal(at, cases[i].want);
    }
}

static void a_long_line_is_cut_and_still_one_line(void **state)
{
    (void) state;
    static char value[5000];
    memset(value, ' ', sizeof value - 1);
    char out[8192];
    sb_log_init("statsbus-test", SB_LOG_INFO);
    start();
    sb_log(SB_LOG_INFO, "x", "a=\"%s\" end=1", value);
    const size_t n = stop(out, sizeof out);
    assert_in_range(n, 2000, 2048);
    assert_int_equal(out[n - 1], '\n');
    assert_ptr_equal(strchr(out, '\n'), out + n - 1);
    assert_null(strstr(out, "  "));
}

static void level_names(void **state)
{
    (void) state;
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        enum sb_log_level level;
        assert_int_equal(sb_log_parse_level(names[i], &level, NULL), SB_OK);
        assert_int_equal(level, i);
    }
    struct sb_err err = {0};
    enum sb_log_level level;
    assert_int_equal(sb_log_parse_level("loud", &level, &err), SB_INVAL);
    assert_string_equal(err.text, "'loud' is not debug, info, warn or error");
}

/* Would hang if it waited. */
static void a_full_pipe_costs_lines_and_no_time(void **state)
{
    (void) state;
    char out[1 << 12];
    const uint64_t before = sb_log_dropped();
    sb_log_init("statsbus-test", SB_LOG_INFO);
    start();
    for (int i = 0; i < 5000; i++)
        sb_log(SB_LOG_INFO, "one of many", "text=%0100d", i);
    assert_true(sb_log_dropped() - before > 1000);
    stop(out, sizeof out);
    const uint64_t then = sb_log_dropped();
    start();
    sb_log(SB_LOG_INFO, "heard again", "n=%d", 1);
    assert_true(stop(out, sizeof out) > 0);
    assert_int_equal(sb_log_dropped(), then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_logfmt),
        cmocka_unit_test(levels_below_the_least_are_silent),
        cmocka_unit_test(values_cannot_end_the_line_or_their_quotes),
        cmocka_unit_test(a_long_line_is_cut_and_still_one_line),
        cmocka_unit_test(a_full_pipe_costs_lines_and_no_time),
        cmocka_unit_test(level_names),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
