#include <stdio.h>
#include <stdlib.h>

#include "common/health.h"
#include "common/log.h"
#include "common/signals.h"
#include "hub/hub.h"
#include "hub/memory.h"

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
