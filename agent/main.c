#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
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
    struct agent_settings settings;
    enum sb_settings_todo todo;
    enum sb_log_level level;
    if (sb_settings_load(&agent_settings_spec, argc, argv, getenv, stdout, &settings, &todo, &err) != SB_OK)
        return fail(&err);
    if (todo == SB_SETTINGS_EXIT_OK)
        return EXIT_SUCCESS;
    if (sb_log_parse_level(settings.log_level, &level, &err) != SB_OK)
        return fail(&err);
    sb_log_init("statsbus-agent", level);

    if (sb_signals_block(&err) != SB_OK)
        return fail(&err);
    struct agent *agent = agent_new(&settings, &err);
    if (!agent)
        return fail(&err);
    agent_run(agent);
    agent_destroy(&agent);
    return EXIT_SUCCESS;
}
