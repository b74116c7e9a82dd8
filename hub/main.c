#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/signals.h"
#include "hub/hub.h"

static int fail(const struct sb_err *err)
{
    fprintf(stderr, "statsbus-hub: %s\n", err->text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct sb_err err;
    struct hub_settings settings;
    enum sb_settings_todo todo;
    enum sb_log_level level;
    if (sb_settings_load(&hub_settings_spec, argc, argv, getenv, stdout, &settings, &todo, &err) != SB_OK)
        return fail(&err);
    if (todo == SB_SETTINGS_EXIT_OK)
        return EXIT_SUCCESS;
    if (sb_log_parse_level(settings.log_level, &level, &err) != SB_OK)
        return fail(&err);
    sb_log_init("statsbus-hub", level);

    if (sb_signals_block(&err) != SB_OK)
        return fail(&err);
    struct hub *hub = hub_new(&settings, &err);
    if (!hub)
        return fail(&err);
    hub_run(hub);
    hub_destroy(&hub);
    return EXIT_SUCCESS;
}
