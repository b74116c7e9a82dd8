#include "settings_rig.h"

/* The fields that the cases are about. */
static void check_values(const struct sample *got, const struct sample *want)
{
    assert_string_equal(got->engines, want->engines);
    assert_int_equal(got->commit_every, want->commit_every);
    assert_int_equal(got->sources_max, want->sources_max);
    assert_int_equal(got->body_max, want->body_max);
    assert_int_equal(got->check, want->check);
    assert_string_equal(got->node, want->node);
}

static void defaults_then_environment_then_flags(void **state)
{
    (void) state;
    static const struct {
        const char *environment[8];
        const char *args[ARGS_MAX - 1];
        struct sample want;
    } cases[] = {
        {{NULL}, {NULL}, {"ipc:///run/x", 1000, 64, 1 << 20, 0, "", NULL, NULL, NULL, 0}},
        {{"STATSBUS_SAMPLE_COMMIT_EVERY", "250ms", "STATSBUS_SAMPLE_CHECK", "true", "OTHER", "x"},
         {NULL},
         {"ipc:///run/x", 250, 64, 1 << 20, 1, "", NULL, NULL, NULL, 0}},
        {{"STATSBUS_SAMPLE_COMMIT_EVERY", "250ms", "STATSBUS_SAMPLE_NODE", "a"},
         {"--commit-every", "2m", "--check", "--body-max=64KiB"},
         {"ipc:///run/x", 120000, 64, 64 << 10, 1, "a", NULL, NULL, NULL, 0}},
        {{"STATSBUS_SAMPLE_SOURCES_MAX", "bad, but overruled"},
         {"--sources-max", "7", "--hubs", "tcp://a:1, ipc:///b,", "--engines", "tcp://*:1", "--check=false", "--node",
          "n", "--node=m"},
         {"tcp://*:1", 1000, 7, 1 << 20, 0, "m", NULL, NULL, NULL, 0}},
        {{"STATSBUS_SAMPLE_CHECK", "true"},
         {"--check=false", "--node="},
         {"ipc:///run/x", 1000, 64, 1 << 20, 0, "", NULL, NULL, NULL, 0}},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        environment = cases[i].environment;
        struct settings_rig rig;
        if (rig_load(&rig, cases[i].args) != SB_OK)
            fail_msg("%s", rig.err.text);
        assert_int_equal(rig.todo, SB_SETTINGS_RUN);
        check_values(&rig.values, &cases[i].want);
        assert_string_equal(rig.printed, "");
        rig_drop(&rig);
    }
}

static void errors_name_the_flag_or_variable(void **state)
{
    (void) state;
    static const struct {
        const char *environment[4];
        const char *args[4];
        const char *text;
    } cases[] = {
        {{NULL}, {"--commit-every", "1"}, "--commit-every: '1' needs a unit: ms, s, m or h"},
        {{"STATSBUS_SAMPLE_COMMIT_EVERY", "1"},
         {NULL},
         "STATSBUS_SAMPLE_COMMIT_EVERY: '1' needs a unit: ms, s, m or h"},
        {{"STATSBUS_SAMPLE_SOURCES_MAX", ""}, {NULL}, "STATSBUS_SAMPLE_SOURCES_MAX: '' does not start with a number"},
        {{NULL}, {"--sources-max", "-3"}, "--sources-max: '-3' does not start with a number"},
        {{NULL}, {"--check=maybe"}, "--check: 'maybe' is neither true nor false"},
        {{NULL}, {"--comit-every", "1s"}, "no flag is called '--comit-every' (--help lists them)"},
        {{NULL}, {"-z"}, "no flag is called '-z' (--help lists them)"},
        {{NULL}, {"--node"}, "--node needs a value"},
        {{NULL}, {"--node", "n", "--engines"}, "--engines needs a value"},
        {{NULL}, {"--commit-every", "0s"}, "--commit-every: '0s' is less than 1ms"},
        {{NULL}, {"--commit-every", "3601s"}, "--commit-every: '3601s' is more than 1h"},
        {{NULL}, {"--sources-max", "0"}, "--sources-max: '0' is less than 1"},
        {{NULL}, {"--body-max", "2GiB"}, "--body-max: '2GiB' is more than 1GiB"},
        {{NULL}, {"--engines", "udp://x"}, "--engines: 'udp://x' starts with neither ipc:// nor tcp://"},
        {{NULL}, {"--engines", "tcp://x"}, "--engines: 'tcp://x' is not tcp://host:port"},
        {{NULL}, {"--engines", "tcp://:80"}, "--engines: 'tcp://:80' is not tcp://host:port"},
        {{NULL}, {"--engines", "tcp://x:65536"}, "--engines: 'tcp://x:65536' has no port from 0 to 65535, nor *"},
        {{NULL}, {"--engines", "ipc://"}, "--engines: 'ipc://' names no address"},
        {{NULL}, {"--hubs", "tcp://a:1, tcp://b:2, c"}, "--hubs: 'c' starts with neither ipc:// nor tcp://"},
        {{NULL}, {"--hubs", "tcp://*:1"}, "--hubs: 'tcp://*:1' is nothing to connect to: it leaves host or port open"},
        {{NULL}, {"--hubs", "tcp://a:0"}, "--hubs: 'tcp://a:0' is nothing to connect to: it leaves host or port open"},
        {{NULL}, {"--http", "localhost"}, "--http: 'localhost' is not address:port or [address]:port"},
        {{NULL}, {"--state", ""}, "--state: '' names no file"},
        {{NULL}, {"--log-level", "loud"}, "--log-level: 'loud' is not debug, info, warn or error"},
        {{NULL}, {"--node", "forbidden"}, "node is forbidden"},
        {{NULL}, {"--config"}, "--config needs a value"},
        {{NULL}, {"start"}, "'start' is neither a flag nor the value of one"},
        {{NULL}, {"--", "start"}, "'start' is neither a flag nor the value of one"},
        {{NULL}, {"--node", "n", "start", "--check"}, "'start' is neither a flag nor the value of one"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *args[5] = {0};
        memcpy(args, cases[i].args, sizeof cases[i].args);
        environment = cases[i].environment;
        struct settings_rig rig;
        assert_int_not_equal(rig_load(&rig, args), SB_OK);
        assert_string_equal(rig.err.text, cases[i].text);
        const struct sample untouched = {0};
        assert_memory_equal(&rig.values, &untouched, sizeof untouched);
        rig_drop(&rig);
    }
}

static void help_shows_everything_and_ends(void **state)
{
    (void) state;
    static const char *const args[][3] = {{"--help"}, {"--node=x", "--help"}, {"--help", "--no-such-flag"}};
    for (size_t i = 0; i < SB_COUNT(args); i++) {
        environment = NULL;
        const char *with_end[4] = {args[i][0], args[i][1], args[i][2], NULL};
        struct settings_rig rig;
        assert_int_equal(rig_load(&rig, with_end), SB_OK);
        assert_int_equal(rig.todo, SB_SETTINGS_EXIT_OK);
        static const char *const parts[] = {"Usage: statsbus-sample",
                                            "Shows settings.",
                                            "--commit-every=DURATION",
                                            "(default: 1s; 1ms..1h;",
                                            "STATSBUS_SAMPLE_COMMIT_EVERY",
                                            "--check[=true|false]",
                                            "(default: none;",
                                            "--version",
                                            "--config=FILE",
                                            "--check-config",
                                            "--hubs=ENDPOINTS"};
        for (size_t k = 0; k < SB_COUNT(parts); k++) {
            if (!strstr(rig.printed, parts[k]))
                fail_msg("--help lacks '%s':\n%s", parts[k], rig.printed);
        }
        assert_null(rig.values.engines);
        rig_drop(&rig);
    }
}

static void version_is_printed(void **state)
{
    (void) state;
    static const char *const args[] = {"--version", NULL};
    environment = NULL;
    struct settings_rig rig;
    assert_int_equal(rig_load(&rig, args), SB_OK);
    assert_int_equal(rig.todo, SB_SETTINGS_EXIT_OK);
    assert_string_equal(rig.printed, "statsbus-sample " STATSBUS_VERSION "\n");
    rig_drop(&rig);
}

static void health_is_asked_with_the_settings_of_the_daemon(void **state)
{
    (void) state;
    static const struct {
        const char *args[4];
        enum sb_settings_todo todo;
    } cases[] = {
        {{"--health", NULL}, SB_SETTINGS_ASK_HEALTH},
        {{"--node", "n", "--health", NULL}, SB_SETTINGS_ASK_HEALTH},
        {{"--health", "--check-config", NULL}, SB_SETTINGS_EXIT_OK},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        environment = (const char *const[]){"STATSBUS_SAMPLE_HTTP", "0.0.0.0:81", NULL};
        struct settings_rig rig;
        assert_int_equal(rig_load(&rig, cases[i].args), SB_OK);
        assert_int_equal(rig.todo, cases[i].todo);
        assert_string_equal(rig.values.http, "0.0.0.0:81");
        rig_drop(&rig);
    }
}

enum { NOT_WRITTEN = 77 };

static void durations(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        enum sb_rc rc;
        int64_t ms;
    } cases[] = {
        {"0s", SB_OK, 0},
        {"250ms", SB_OK, 250},
        {"2s", SB_OK, 2000},
        {"1m", SB_OK, 60000},
        {"24h", SB_OK, 86400000},
        {"9223372036854775807ms", SB_OK, INT64_MAX},
        {"9223372036854775807s", SB_RANGE, NOT_WRITTEN},
        {"9223372036854775808ms", SB_RANGE, NOT_WRITTEN},
        {"0", SB_FORMAT, NOT_WRITTEN},
        {"", SB_FORMAT, NOT_WRITTEN},
        {"s", SB_FORMAT, NOT_WRITTEN},
        {"1 s", SB_FORMAT, NOT_WRITTEN},
        {"-1s", SB_FORMAT, NOT_WRITTEN},
        {"+1s", SB_FORMAT, NOT_WRITTEN},
        {" 1s", SB_FORMAT, NOT_WRITTEN},
        {"1.5s", SB_FORMAT, NOT_WRITTEN},
        {"1S", SB_FORMAT, NOT_WRITTEN},
        {"1sx", SB_FORMAT, NOT_WRITTEN},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        int64_t ms = NOT_WRITTEN;
        assert_int_equal(sb_parse_duration_ms(cases[i].text, &ms, NULL), cases[i].rc);
        assert_true(ms == cases[i].ms);
    }
}

static void seconds(void **state)
{
    (void) state;
    int64_t ms = NOT_WRITTEN;
    assert_int_equal(sb_parse_seconds_ms("10", &ms, NULL), SB_OK);
    assert_true(ms == 10000);
    assert_int_equal(sb_parse_seconds_ms("250ms", &ms, NULL), SB_OK);
    assert_true(ms == 250);
    assert_int_equal(sb_parse_seconds_ms("2m", &ms, NULL), SB_OK);
    assert_true(ms == 120000);
    assert_int_equal(sb_parse_seconds_ms("10d", &ms, NULL), SB_FORMAT);
    assert_int_equal(sb_parse_seconds_ms("9223372036854775807", &ms, NULL), SB_RANGE);
    assert_true(ms == 120000);
}

static void sizes_and_counts(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        int64_t bytes; /* NOT_WRITTEN: refused */
        int64_t count;
    } cases[] = {
        {"0", 0, 0},
        {"100", 100, 100},
        {"64KiB", 65536, NOT_WRITTEN},
        {"1MiB", 1 << 20, NOT_WRITTEN},
        {"2GiB", 1ll << 31, NOT_WRITTEN},
        {"9223372036854775807", INT64_MAX, INT64_MAX},
        {"9223372036854775808", NOT_WRITTEN, NOT_WRITTEN},
        {"9223372036854775807KiB", NOT_WRITTEN, NOT_WRITTEN},
        {"1kb", NOT_WRITTEN, NOT_WRITTEN},
        {"0x10", NOT_WRITTEN, NOT_WRITTEN},
        {"-1", NOT_WRITTEN, NOT_WRITTEN},
        {"", NOT_WRITTEN, NOT_WRITTEN},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        int64_t bytes = NOT_WRITTEN;
        int64_t count = NOT_WRITTEN;
        assert_int_equal(sb_parse_bytes(cases[i].text, &bytes, NULL) == SB_OK, cases[i].bytes != NOT_WRITTEN);
        assert_int_equal(sb_parse_count(cases[i].text, &count, NULL) == SB_OK, cases[i].count != NOT_WRITTEN);
        assert_true(bytes == cases[i].bytes);
        assert_true(count == cases[i].count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_then_environment_then_flags),
        cmocka_unit_test(errors_name_the_flag_or_variable),
        cmocka_unit_test(help_shows_everything_and_ends),
        cmocka_unit_test(version_is_printed),
        cmocka_unit_test(health_is_asked_with_the_settings_of_the_daemon),
        cmocka_unit_test(durations),
        cmocka_unit_test(seconds),
        cmocka_unit_test(sizes_and_counts),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
