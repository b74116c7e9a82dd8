/* What SIGHUP does to settings, without the signal. */
#include "settings_rig.h"
#include "temp_dir.h"

enum { TOLD_MAX = 1024 };

/* "name before after", in the order of the table. */
static void note(void *arg, const struct sb_settings_difference *difference)
{
    char *told = arg;
    const size_t len = strlen(told);
    snprintf(told + len, TOLD_MAX - len, "%s:%s %s>%s; ",
             difference->setting->change == SB_SETTING_reload ? "now" : "later", difference->setting->name,
             difference->before, difference->after);
}

struct reload {
    struct settings_rig rig;
    char path[256];
    char told[TOLD_MAX];
    const char *args[4];
};

static void start(void **state, struct reload *self, const char *text, const char *more)
{
    environment = NULL;
    *self = (struct reload){0};
    write_text(temp_path(state, self->path, "s.yaml"), text);
    self->args[0] = "--config";
    self->args[1] = self->path;
    self->args[2] = more;
    if (rig_load(&self->rig, self->args) != SB_OK)
        fail_msg("%s", self->rig.err.text);
}

static enum sb_rc again(struct reload *self, const char *text)
{
    write_text(self->path, text);
    self->told[0] = '\0';
    return sb_settings_reload(&self->rig.settings, note, self->told, &self->rig.err);
}

static void what_can_be_changed_is_and_the_rest_is_told(void **state)
{
    struct reload self;
    start(state, &self, "commit_every: 2s\nsources_max: 5\n", NULL);
    assert_int_equal(again(&self, "commit_every: 3s\nsources_max: 6\nnode: n\nlog_level: debug\n"), SB_OK);
    assert_string_equal(self.told,
                        "now:commit_every 2s>3s; later:sources_max 5>6; now:node >n; now:log_level info>debug; ");
    assert_int_equal(self.rig.values.commit_every, 3000);
    assert_int_equal(self.rig.values.sources_max, 5);
    assert_string_equal(self.rig.values.node, "n");
    assert_int_equal(self.rig.values.log_level, 0);

    /* What waits for a restart is told each time; what was applied is not. */
    assert_int_equal(again(&self, "commit_every: 3s\nsources_max: 6\nnode: n\nlog_level: debug\n"), SB_OK);
    assert_string_equal(self.told, "later:sources_max 5>6; ");

    /* What is taken out of the file has its default again. */
    assert_int_equal(again(&self, "sources_max: 5\n"), SB_OK);
    assert_string_equal(self.told, "now:commit_every 3s>1s; now:node n>; now:log_level debug>info; ");
    assert_string_equal(self.rig.values.node, "");
    rig_drop(&self.rig);
}

static void the_same_value_in_other_words_is_no_change(void **state)
{
    struct reload self;
    start(state, &self, "commit_every: 1m\nbody_max: 1MiB\n", NULL);
    assert_int_equal(again(&self, "body_max: 1048576\ncommit_every: 60s\n"), SB_OK);
    assert_string_equal(self.told, "");
    rig_drop(&self.rig);
}

static void flags_still_win(void **state)
{
    struct reload self;
    start(state, &self, "commit_every: 1s\n", "--commit-every=5s");
    assert_int_equal(again(&self, "commit_every: 2s\nnode: n\n"), SB_OK);
    assert_string_equal(self.told, "now:node >n; ");
    assert_int_equal(self.rig.values.commit_every, 5000);
    rig_drop(&self.rig);
}

static void one_fault_and_nothing_changes(void **state)
{
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"node: n\ncommit_every: 3\n", ":2: commit_every: '3' needs a unit: ms, s, m or h"},
        {"node: n\nno: 3\n", ":2: no setting is called 'no'"},
        {"node: n\nsources_max: 0\n", ":2: sources_max: '0' is less than 1"},
        {"commit_every: 3s\nnode: forbidden\n", "node is forbidden"},
        {"{\n", "did not find expected node content"},
    };
    struct reload self;
    start(state, &self, "commit_every: 2s\n", NULL);
    const struct sample before = self.rig.values;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        assert_int_not_equal(again(&self, cases[i].text), SB_OK);
        if (!strstr(self.rig.err.text, cases[i].want))
            fail_msg("'%s' lacks '%s'", self.rig.err.text, cases[i].want);
        assert_string_equal(self.told, "");
        assert_memory_equal(&self.rig.values, &before, sizeof before);
    }
    assert_int_equal(remove(self.path), 0);
    assert_int_equal(sb_settings_reload(&self.rig.settings, note, self.told, &self.rig.err), SB_IO);
    assert_memory_equal(&self.rig.values, &before, sizeof before);

    assert_int_equal(again(&self, "commit_every: 4s\n"), SB_OK);
    assert_string_equal(self.told, "now:commit_every 2s>4s; ");
    rig_drop(&self.rig);
}

static void texts_live_on_over_many_reloads(void **state)
{
    struct reload self;
    start(state, &self, "node: first\n", NULL);
    for (unsigned i = 0; i < 100; i++) {
        char text[64], want[32];
        snprintf(want, sizeof want, "node-%u", i);
        snprintf(text, sizeof text, "node: %s\n", want);
        assert_int_equal(again(&self, text), SB_OK);
        assert_string_equal(self.rig.values.node, want);
    }
    rig_drop(&self.rig);
}

static void settings_are_compared_by_value(void **state)
{
    (void) state;
    char same[] = "ipc:///run/x"; /* another address */
    const struct sample a = {.engines = "ipc:///run/x", .node = "a", .commit_every = 1};
    const struct sample b = {.engines = same, .node = "b", .commit_every = 1};
    assert_false(sb_setting_differs(&sample_settings[0], &a, &b));
    assert_false(sb_setting_differs(&sample_settings[1], &a, &b));
    assert_string_equal(sample_settings[5].name, "node");
    assert_true(sb_setting_differs(&sample_settings[5], &a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_can_be_changed_is_and_the_rest_is_told, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(the_same_value_in_other_words_is_no_change, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(flags_still_win, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(one_fault_and_nothing_changes, temp_dir_make, temp_dir_drop),
        cmocka_unit_test_setup_teardown(texts_live_on_over_many_reloads, temp_dir_make, temp_dir_drop),
        cmocka_unit_test(settings_are_compared_by_value),
    };
    return cmocka_run_group_tests_name("settings_reload", tests, NULL, NULL);
}
