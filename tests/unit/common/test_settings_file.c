/* Settings from a file, --check-config, and SIGHUP's part that needs no process. */
#include <sys/stat.h>

#include "settings_rig.h"
#include "temp_dir.h"

static const char *file_args[4];

/* Writes the file and loads it, with one more argument (or NULL). */
static enum sb_rc load_file(void **state, struct settings_rig *rig, const char *text, const char *more)
{
    static char path[256];
    write_text(temp_path(state, path, "s.yaml"), text);
    file_args[0] = "--config";
    file_args[1] = path;
    file_args[2] = more;
    return rig_load(rig, file_args);
}

static void all_kinds_come_from_a_file_that_may_go_afterwards(void **state)
{
    environment = NULL;
    struct settings_rig rig;
    const enum sb_rc rc = load_file(state, &rig,
                                    "# of the sample\n"
                                    "engines: tcp://*:1\n"
                                    "commit_every: 2m   # two\n"
                                    "sources_max: 7\n"
                                    "body_max: 64KiB\n"
                                    "check: true\n"
                                    "node: \"a \\\"b\\\"\"\n"
                                    "log_level: 'error'\n"
                                    "hubs: tcp://a:1, tcp://b:2\n",
                                    NULL);
    if (rc != SB_OK)
        fail_msg("%s", rig.err.text);
    char path[256];
    assert_int_equal(remove(temp_path(state, path, "s.yaml")), 0);
    assert_int_equal(rig.todo, SB_SETTINGS_RUN);
    assert_string_equal(rig.values.engines, "tcp://*:1");
    assert_int_equal(rig.values.commit_every, 120000);
    assert_int_equal(rig.values.sources_max, 7);
    assert_int_equal(rig.values.body_max, 65536);
    assert_int_equal(rig.values.check, 1);
    assert_string_equal(rig.values.node, "a \"b\"");
    assert_int_equal(rig.values.log_level, 3);
    assert_string_equal(rig.values.hubs, "tcp://a:1, tcp://b:2");
    assert_string_equal(rig.values.http, "127.0.0.1:80"); /* not in the file: the default */
    rig_drop(&rig);
}

static void flags_win_over_the_environment_that_over_the_file(void **state)
{
    static const char *const with[] = {"STATSBUS_SAMPLE_COMMIT_EVERY", "3s", "STATSBUS_SAMPLE_NODE", "env", NULL};
    environment = with;
    struct settings_rig rig;
    const char *text = "commit_every: 2s\nnode: file\nsources_max: 5\n";
    assert_int_equal(load_file(state, &rig, text, "--node=flag"), SB_OK);
    assert_string_equal(rig.values.node, "flag");
    assert_int_equal(rig.values.commit_every, 3000);
    assert_int_equal(rig.values.sources_max, 5);
    rig_drop(&rig);
}

static void the_environment_names_the_file_and_a_flag_another(void **state)
{
    char first[256], second[256];
    write_text(temp_path(state, first, "1.yaml"), "node: one\n");
    write_text(temp_path(state, second, "2.yaml"), "node: two\n");
    static const char *with[] = {"STATSBUS_SAMPLE_CONFIG", NULL, NULL};
    with[1] = first;
    environment = with;
    const char *const none[] = {NULL};
    const char *const other[] = {"--config", second, NULL};
    const char *const empty[] = {"--config=", NULL};
    const struct {
        const char *const *args;
        const char *node;
    } cases[] = {{none, "one"}, {other, "two"}, {empty, ""}};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct settings_rig rig;
        assert_int_equal(rig_load(&rig, cases[i].args), SB_OK);
        assert_string_equal(rig.values.node, cases[i].node);
        rig_drop(&rig);
    }
    environment = NULL;
}

static void files_without_settings_are_fine(void **state)
{
    static const char *const texts[] = {"", "# nothing\n", "---\n", "{}\n", "--- ~\n"};
    environment = NULL;
    for (size_t i = 0; i < SB_COUNT(texts); i++) {
        struct settings_rig rig;
        if (load_file(state, &rig, texts[i], NULL) != SB_OK)
            fail_msg("%zu: %s", i, rig.err.text);
        assert_int_equal(rig.values.sources_max, 64);
        rig_drop(&rig);
    }
}

static void errors_name_the_line(void **state)
{
    static const struct {
        const char *text;
        const char *more;
        const char *want; /* after the path */
    } cases[] = {
        {"\ncommit_every: 1\n", NULL, ":2: commit_every: '1' needs a unit: ms, s, m or h"},
        {"node: a\ncomit_every: 1s\n", NULL, ":2: no setting is called 'comit_every'"},
        {"config: x\n", NULL, ":1: no setting is called 'config'"},
        {"commit_every: 2h\n", NULL, ":1: commit_every: '2h' is more than 1h"},
        {"commit_every: 1\n", "--commit-every=1s", ":1: commit_every: '1' needs a unit: ms, s, m or h"},
        {"node: a\nsources_max: 1\nnode: b\n", NULL, ":3: 'node' stands here twice"},
        {"node: &a [x]\n", NULL, ":1: node: one value is expected"},
        {"node: \"a\\0b\"\n", NULL, ":1: node: one value is expected"},
        {"node:\n", NULL, ":1: node: there is no value (\"\" is the empty text)"},
        {"node: null\n", NULL, ":1: node: there is no value (\"\" is the empty text)"},
        {"? [node]\n: a\n", NULL, ":1: no setting is called '?'"},
        {"- node\n", NULL, ":1: settings are a map: lines of `name: value`"},
        {"node\n", NULL, ":1: settings are a map: lines of `name: value`"},
        {"check: yes\n", NULL, ":1: check: 'yes' is neither true nor false"},
        {"sources_max: -1\n", NULL, ":1: sources_max: '-1' does not start with a number"},
        {"node: 'a\n", NULL, ":2: found unexpected end of stream"},
        {"node: a\n---\nnode: b\n", NULL, ":2: a second document begins here: only one is read"},
    };
    environment = NULL;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct settings_rig rig;
        assert_int_not_equal(load_file(state, &rig, cases[i].text, cases[i].more), SB_OK);
        char want[512], path[256];
        snprintf(want, sizeof want, "%s%s", temp_path(state, path, "s.yaml"), cases[i].want);
        assert_string_equal(rig.err.text, want);
        const struct sample untouched = {0};
        assert_memory_equal(&rig.values, &untouched, sizeof untouched);
        rig_drop(&rig);
    }
}

static void files_that_cannot_be_read_are_named(void **state)
{
    environment = NULL;
    char want[512], path[256], pipe[256];
    struct settings_rig rig;
    const char *const missing[] = {"--config", temp_path(state, path, "none.yaml"), NULL};
    assert_int_equal(rig_load(&rig, missing), SB_IO);
    snprintf(want, sizeof want, "--config: cannot open %s: No such file or directory", path);
    assert_string_equal(rig.err.text, want);
    rig_drop(&rig);

    const char *const folder[] = {"--config", *state, NULL};
    assert_int_equal(rig_load(&rig, folder), SB_IO);
    rig_drop(&rig);

    assert_int_equal(mkfifo(temp_path(state, pipe, "pipe"), 0600), 0);
    const char *const fifo[] = {"--config", pipe, NULL};
    assert_int_equal(rig_load(&rig, fifo), SB_IO); /* and does not wait for a writer */
    snprintf(want, sizeof want, "--config: %s is not a file", pipe);
    assert_string_equal(rig.err.text, want);
    rig_drop(&rig);
}

static void a_file_of_a_mebibyte_is_read_and_a_longer_one_refused(void **state)
{
    environment = NULL;
    const size_t max = 1 << 20;
    char *text = malloc(max + 2);
    assert_non_null(text);
    memset(text, '#', max + 1);
    text[max] = '\0';
    struct settings_rig rig;
    assert_int_equal(load_file(state, &rig, text, NULL), SB_OK);
    rig_drop(&rig);
    text[max] = '#';
    text[max + 1] = '\0';
    assert_int_equal(load_file(state, &rig, text, NULL), SB_FULL);
    rig_drop(&rig);
    free(text);
}

static void check_config_prints_what_config_takes(void **state)
{
    static const char *const with[] = {"STATSBUS_SAMPLE_SOURCES_MAX", "9", NULL};
    environment = with;
    struct settings_rig rig, again;
    const char *text = "node: \"q\\\"u\\\\o\\tte #\"\ncommit_every: 2m\n";
    static char path[256];
    write_text(temp_path(state, path, "s.yaml"), text);
    const char *const args[] = {"--check-config", "--config", path, "--check", NULL};
    assert_int_equal(rig_load(&rig, args), SB_OK);
    assert_int_equal(rig.todo, SB_SETTINGS_EXIT_OK);
    char origin[300];
    snprintf(origin, sizeof origin, "commit_every: 2m # %s:2\n", path);
    const char *const parts[] = {origin, "sources_max: 9 # STATSBUS_SAMPLE_SOURCES_MAX\n", "check: true # --check\n",
                                 "body_max: 1MiB # default\n", "node: \"q\\\"u\\\\o\\x09te #\" # "};
    for (size_t i = 0; i < SB_COUNT(parts); i++) {
        if (!strstr(rig.printed, parts[i]))
            fail_msg("lacks '%s':\n%s", parts[i], rig.printed);
    }

    environment = NULL;
    assert_int_equal(load_file(state, &again, rig.printed, NULL), SB_OK);
    for (size_t i = 0; i < sample_spec.n; i++)
        assert_false(sb_setting_differs(&sample_settings[i], &rig.values, &again.values));
    rig_drop(&again);
    rig_drop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_kinds_come_from_a_file_that_may_go_afterwards, temp_dir_make,
                                        temp_dir_drop),
        cmocka_unit_test_setup_teardown(flags_win_over_the_environment_that_over_the_file, temp_dir_make,
                                        temp_dir_drop),
        cmocka_unit_test_setup_teardown(the_environment_names_the_file_and_a_flag_another, temp_dir_make,
                                        temp_dir_drop),
        cmocka_unit_test_setup_teardown(files_without_settings_are_fine, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(errors_name_the_line, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(files_that_cannot_be_read_are_named, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(a_file_of_a_mebibyte_is_read_and_a_longer_one_refused, temp_dir_make,
                                        temp_dir_drop),
        cmocka_unit_test_setup_teardown(check_config_prints_what_config_takes, temp_dir_make, temp_dir_drop),
    };
    return cmocka_run_group_tests_name("settings_file", tests, NULL, NULL);
}
