/* The hub's table of settings is sound. */
#include "hub/hub_settings.h"
#include "hub_test.h"

static char *no_variable(const char *name)
{
    (void) name;
    return NULL;
}

/* Which also parses both ends of every range. */
static void the_defaults_are_allowed(void **state)
{
    (void) state;
    char *argv[] = {(char *) (uintptr_t) "statsbus-hub", NULL};
    struct hub_settings values = {0};
    struct sb_settings settings;
    enum sb_settings_todo todo;
    struct sb_err err = {0};
    sb_settings_init(&settings, &hub_settings_spec, 1, argv, no_variable, &values);
    if (sb_settings_load(&settings, stdout, &todo, &err) != SB_OK)
        fail_msg("%s", err.text);
    assert_int_equal(values.agent_timeout, 15000);
    assert_int_equal(values.agents_max, 4096);
    assert_true(values.row_memory_max == (int64_t) 2 << 30);
    sb_settings_release(&settings);
}

static void the_omni_prefix_is_one_of_two(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"--omni-prefix=vllm:omni_", NULL},
        {"--omni-prefix=vllm_omni:", NULL},
        {"--omni-prefix=vllm:", "--omni-prefix: 'vllm:' is neither vllm_omni: nor vllm:omni_"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char *argv[] = {(char *) (uintptr_t) "statsbus-hub", (char *) (uintptr_t) cases[i].text, NULL};
        struct hub_settings values = {0};
        struct sb_settings settings;
        enum sb_settings_todo todo;
        struct sb_err err = {.text = ""};
        sb_settings_init(&settings, &hub_settings_spec, 2, argv, no_variable, &values);
        const enum sb_rc rc = sb_settings_load(&settings, stdout, &todo, &err);
        assert_int_equal(rc == SB_OK, cases[i].reason == NULL);
        if (cases[i].reason)
            assert_non_null(strstr(err.text, cases[i].reason));
        sb_settings_release(&settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_allowed),
        cmocka_unit_test(the_omni_prefix_is_one_of_two),
    };
    return cmocka_run_group_tests_name("hub_settings", tests, NULL, NULL);
}
