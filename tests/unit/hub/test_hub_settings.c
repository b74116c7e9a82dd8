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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_allowed),
    };
    return cmocka_run_group_tests_name("hub_settings", tests, NULL, NULL);
}
