#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/publishers.h"
#include "common/health.h"
#include "common/log.h"
#include "common/open_files.h"
#include "common/signals.h"

enum {
    OPEN_FILES_NEEDED = 2 * AGENT_PUBLISHERS_MAX + 1024, /* both sockets of each publisher, and the rest */
    OPEN_FILES_MOST = 1 << 16,
};

static void raise_open_files(void)
{
    const uint64_t limit = sb_open_files_raise(OPEN_FILES_MOST);
    if (limit < OPEN_FILES_NEEDED)
        sb_log(SB_LOG_WARN, "few open files are allowed: a full table of publishers needs more", "limit=%llu needed=%d",
               (unsigned long long) limit, OPEN_FILES_NEEDED);
}

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

    raise_open_files();
    if (sb_signals_block(&err) != SB_OK)
        return fail(&err);
    struct agent *agent = agent_new(&settings, &err);
    if (!agent)
        return fail(&err);
    agent_run(agent);
    agent_destroy(&agent);
    return EXIT_SUCCESS;
}
