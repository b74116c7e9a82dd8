#include <stdio.h>
#include <stdlib.h>

#include "common/health.h"
#include "common/log.h"
#include "common/open_files.h"
#include "common/signals.h"
#include "hub/hub.h"
#include "hub/memory.h"

enum { OPEN_FILES_BESIDE = 1024, OPEN_FILES_MOST = 1 << 17 };

static void raise_open_files(int64_t agents_max)
{
    const int64_t needed = agents_max + OPEN_FILES_BESIDE;
    const uint64_t limit = sb_open_files_raise(OPEN_FILES_MOST);
    if (limit < (uint64_t) needed)
        sb_log(SB_LOG_WARN, "few open files are allowed: as many agents as may come need more",
               "limit=%llu needed=%lld", (unsigned long long) limit, (long long) needed);
}

static int fail(const struct sb_err *err)
{
    fprintf(stderr, "statsbus-hub: %s\n", err->text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct sb_err err;
    struct hub_settings values;
    enum sb_settings_todo todo;
    SB_OWN(sb_settings_release) struct sb_settings settings;
    sb_settings_init(&settings, &hub_settings_spec, argc, argv, getenv, &values);
    if (sb_settings_load(&settings, stdout, &todo, &err) != SB_OK)
        return fail(&err);
    if (todo == SB_SETTINGS_EXIT_OK)
        return EXIT_SUCCESS;
    if (todo == SB_SETTINGS_ASK_HEALTH)
        return sb_health_check(values.http, SB_HEALTH_TIMEOUT_MS, &err) == SB_OK ? EXIT_SUCCESS : fail(&err);
    sb_log_init("statsbus-hub", (enum sb_log_level) values.log_level);

    raise_open_files(values.agents_max);
    if (sb_signals_block(&err) != SB_OK)
        return fail(&err);
    hub_memory_keep();
    struct hub *hub = hub_new(&settings, &err);
    if (!hub)
        return fail(&err);
    hub_run(hub);
    hub_destroy(&hub);
    return EXIT_SUCCESS;
}
