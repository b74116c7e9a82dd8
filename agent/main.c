#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "common/health.h"
#include "common/log.h"
#include "common/signals.h"

static int fail(const struct sb_err *err)
{
    fprintf(stderr, "statsbus-agent: %s\n", err->text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct sb_err err;
    struct agent_settings values;
    enum sb_settings_todo todo;
    SB_OWN(sb_settings_release) struct sb_settings settings;
    sb_settings_init(&settings, &agent_settings_spec, argc, argv, getenv, &values);
    if (sb_settings_load(&settings, stdout, &todo, &err) != SB_OK)
        return fail(&err);
    if (todo == SB_SETTINGS_EXIT_OK)
        return EXIT_SUCCESS;
    if (todo == SB_SETTINGS_ASK_HEALTH)
        return sb_health_check(values.http, SB_HEALTH_TIMEOUT_MS, &err) == SB_OK ? EXIT_SUCCESS : fail(&err);
    sb_log_init("statsbus-agent", (enum sb_log_level) values.log_level);

    if (sb_signals_block(&err) != SB_OK)
        return fail(&err);
    struct agent *agent = agent_new(&settings, &err);
    if (!agent)
        return fail(&err);
    agent_run(agent);
    agent_destroy(&agent);
    return EXIT_SUCCESS;
}
