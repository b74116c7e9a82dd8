/* The agent's table of settings: its rows are sound, and what they must keep among each other. */
#include "agent/agent_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char *no_variable(const char *name)
{
    (void) name;
    return NULL;
}

static enum sb_rc load(const char *const *flags, struct agent_settings *values, struct sb_err *err)
{
    char *argv[8] = {(char *) (uintptr_t) "statsbus-agent"};
    int argc = 1;
    for (; flags[argc - 1]; argc++)
        argv[argc] = (char *) (uintptr_t) flags[argc - 1];
    struct sb_settings settings;
    enum sb_settings_todo todo;
    sb_settings_init(&settings, &agent_settings_spec, argc, argv, no_variable, values);
    const enum sb_rc rc = sb_settings_load(&settings, stdout, &todo, err);
    sb_settings_release(&settings);
    return rc;
}

/* Which also parses both ends of every range. */
static void the_defaults_are_allowed(void **state)
{
    (void) state;
    static const char *const none[] = {NULL};
    struct agent_settings values = {0};
    struct sb_err err = {0};
    if (load(none, &values, &err) != SB_OK)
        fail_msg("%s", err.text);
    assert_int_equal(values.commit_period, 1000);
    assert_int_equal(values.forget_after, 3600 * 1000);
}

static void settings_that_do_not_go_together_are_refused(void **state)
{
    (void) state;
    static const struct {
        const char *flags[5];
        const char *text; /* NULL: fine */
    } cases[] = {
        {{"--engines=ipc:///x", "--replay=ipc:///x"}, "--replay: 'ipc:///x' is the endpoint of --engines already"},
        {{"--engines=tcp://127.0.0.1:*", "--replay=tcp://127.0.0.1:*"}, NULL},
        {{"--forget-after=2s", "--source-timeout=3s"}, "--forget-after is below --source-timeout"},
        {{"--forget-after=3s", "--source-timeout=3s"}, NULL},
        {{"--hub=tcp://a:1,tcp://a:2,tcp://a:3,tcp://a:4,tcp://a:5,tcp://a:6,tcp://a:7, tcp://a:8,"}, NULL},
        {{"--hub=tcp://a:1,tcp://a:2,tcp://a:3,tcp://a:4,tcp://a:5,tcp://a:6,tcp://a:7,tcp://a:8,tcp://a:9"},
         "--hub: more than 8 hubs"},
        {{"--hub=tcp://a:1, tcp://a:11,tcp://a:1"}, "--hub: 'tcp://a:1' stands here twice"},
        {{"--hub=tcp://a:1,,ipc:///a,,"}, NULL},
        {{"--hub="}, NULL},
        {{"--hub=,"}, "--hub: ',' names no endpoint (the empty text is none)"},
        {{"--hub= , "}, "--hub: ' , ' names no endpoint (the empty text is none)"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct agent_settings values = {0};
        struct sb_err err = {0};
        const enum sb_rc rc = load(cases[i].flags, &values, &err);
        if (rc != SB_OK && !cases[i].text)
            fail_msg("%s", err.text);
        assert_int_equal(rc == SB_OK, cases[i].text == NULL);
        if (cases[i].text)
            assert_string_equal(err.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_allowed),
        cmocka_unit_test(settings_that_do_not_go_together_are_refused),
    };
    return cmocka_run_group_tests_name("agent_settings", tests, NULL, NULL);
}
