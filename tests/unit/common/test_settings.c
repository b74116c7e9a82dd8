#include "common/settings.h"

#include <stdlib.h>

#include "cmocka_all.h"

struct sample {
#define SETTING(name, kind, fallback, help) SB_FIELD_##kind name;
#include "settings_sample.def"
#undef SETTING
};

static const struct sb_setting settings[] = {
#define SETTING(setting_name, setting_kind, setting_default, setting_help)                                             \
    {.name = #setting_name,                                                                                            \
     .kind = SB_SETTING_##setting_kind,                                                                                \
     .fallback = setting_default,                                                                                      \
     .help = setting_help,                                                                                             \
     .offset = offsetof(struct sample, setting_name)},
#include "settings_sample.def"
#undef SETTING
};

static const struct sb_settings_spec spec = {
    .program = "statsbus-sample",
    .about = "Shows settings.",
    .env_prefix = "STATSBUS_SAMPLE_",
    .settings = settings,
    .n = SB_COUNT(settings),
};

/* The environment of the running test: name, value, ..., NULL. */
static const char *const *environment;

/* For interfaces that are older than const and write nothing. */
static char *unconst(const char *text)
{
    return (char *) (uintptr_t) text;
}

static char *fake_getenv(const char *name)
{
    for (size_t i = 0; environment && environment[i]; i += 2) {
        if (strcmp(environment[i], name) == 0)
            return unconst(environment[i + 1]);
    }
    return NULL;
}

/* Loads with the arguments (NULL ends them); what --help and --version print lands in `printed`. */
static enum sb_rc load(const char *const *args, struct sample *into, enum sb_settings_todo *todo, char printed[4096],
                       struct sb_err *err)
{
    char *argv[16] = {unconst("statsbus-sample")};
    int argc = 1;
    for (; args[argc - 1]; argc++)
        argv[argc] = unconst(args[argc - 1]);
    memset(printed, 0, 4096);
    FILE *out = fmemopen(printed, 4095, "w");
    assert_non_null(out);
    const enum sb_rc rc = sb_settings_load(&spec, argc, argv, fake_getenv, out, into, todo, err);
    fclose(out);
    return rc;
}

static void defaults_then_environment_then_flags(void **state)
{
    (void) state;
    static const struct {
        const char *environment[8];
        const char *args[10];
        struct sample want;
    } cases[] = {
        {{NULL}, {NULL}, {"ipc:///run/x", 1000, 64, 1 << 20, 0, ""}},
        {{"STATSBUS_SAMPLE_COMMIT_EVERY", "250ms", "STATSBUS_SAMPLE_CHECK", "true", "OTHER", "x"},
         {NULL},
         {"ipc:///run/x", 250, 64, 1 << 20, 1, ""}},
        {{"STATSBUS_SAMPLE_COMMIT_EVERY", "250ms", "STATSBUS_SAMPLE_NODE", "a"},
         {"--commit-every", "2m", "--check", "--body-max=64KiB"},
         {"ipc:///run/x", 120000, 64, 64 << 10, 1, "a"}},
        {{"STATSBUS_SAMPLE_SOURCES_MAX", "bad, but overruled"},
         {"--sources-max", "7", "--engines", "tcp://*:1", "--check=false", "--node", "n", "--node=m"},
         {"tcp://*:1", 1000, 7, 1 << 20, 0, "m"}},
        {{"STATSBUS_SAMPLE_CHECK", "true"}, {"--check=false", "--node="}, {"ipc:///run/x", 1000, 64, 1 << 20, 0, ""}},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        environment = cases[i].environment;
        struct sample got = {0};
        enum sb_settings_todo todo = SB_SETTINGS_EXIT_OK;
        char printed[4096];
        struct sb_err err = {0};
        if (load(cases[i].args, &got, &todo, printed, &err) != SB_OK)
            fail_msg("%s", err.text);
        assert_int_equal(todo, SB_SETTINGS_RUN);
        assert_string_equal(got.engines, cases[i].want.engines);
        assert_int_equal(got.commit_every, cases[i].want.commit_every);
        assert_int_equal(got.sources_max, cases[i].want.sources_max);
        assert_int_equal(got.body_max, cases[i].want.body_max);
        assert_int_equal(got.check, cases[i].want.check);
        assert_string_equal(got.node, cases[i].want.node);
        assert_string_equal(printed, "");
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
        {{NULL}, {"start"}, "'start' is neither a flag nor the value of one"},
        {{NULL}, {"--", "start"}, "'start' is neither a flag nor the value of one"},
        {{NULL}, {"--node", "n", "start", "--check"}, "'start' is neither a flag nor the value of one"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *args[5] = {0};
        memcpy(args, cases[i].args, sizeof cases[i].args);
        environment = cases[i].environment;
        const struct sample before = {.engines = "untouched", .commit_every = 5};
        struct sample got = before;
        enum sb_settings_todo todo = SB_SETTINGS_RUN;
        char printed[4096];
        struct sb_err err = {0};
        assert_int_not_equal(load(args, &got, &todo, printed, &err), SB_OK);
        assert_string_equal(err.text, cases[i].text);
        assert_memory_equal(&got, &before, sizeof got);
    }
}

static void help_shows_everything_and_ends(void **state)
{
    (void) state;
    static const char *const args[][3] = {{"--help"}, {"--node=x", "--help"}, {"--help", "--no-such-flag"}};
    for (size_t i = 0; i < SB_COUNT(args); i++) {
        environment = NULL;
        struct sample got = {0};
        enum sb_settings_todo todo = SB_SETTINGS_RUN;
        char printed[4096];
        const char *with_end[4] = {args[i][0], args[i][1], args[i][2], NULL};
        assert_int_equal(load(with_end, &got, &todo, printed, NULL), SB_OK);
        assert_int_equal(todo, SB_SETTINGS_EXIT_OK);
        static const char *const parts[] = {
            "Usage: statsbus-sample",       "Shows settings.",      "--commit-every=DURATION", "(default: 1s;",
            "STATSBUS_SAMPLE_COMMIT_EVERY", "--check[=true|false]", "(default: none;",         "--version"};
        for (size_t k = 0; k < SB_COUNT(parts); k++) {
            if (!strstr(printed, parts[k]))
                fail_msg("--help lacks '%s':\n%s", parts[k], printed);
        }
        assert_null(got.engines);
    }
}

static void version_is_printed(void **state)
{
    (void) state;
    static const char *const args[] = {"--version", NULL};
    environment = NULL;
    struct sample got = {0};
    enum sb_settings_todo todo = SB_SETTINGS_RUN;
    char printed[4096];
    assert_int_equal(load(args, &got, &todo, printed, NULL), SB_OK);
    assert_int_equal(todo, SB_SETTINGS_EXIT_OK);
    assert_string_equal(printed, "statsbus-sample " STATSBUS_VERSION "\n");
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
        cmocka_unit_test(durations),
        cmocka_unit_test(sizes_and_counts),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
