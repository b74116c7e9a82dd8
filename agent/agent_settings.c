#include "agent/agent_settings.h"

#include <stddef.h>
#include <string.h>

#include "agent/hublink.h"
#include "common/catalog.h"
#include "common/log.h"

static const struct sb_setting settings[] = {
#define SETTING(...) SB_SETTING_ROW(struct agent_settings, __VA_ARGS__),
#include "agent/agent_settings.def"
#undef SETTING
};

static size_t count_hubs(const char *list)
{
    size_t n = 0;
    for (list += strspn(list, " ,"); *list; list += strspn(list, " ,")) {
        list += strcspn(list, ",");
        n++;
    }
    return n;
}

static enum sb_rc check(const void *values, struct sb_err *err)
{
    const struct agent_settings *self = values;
    /* With a * in it each of the two sockets gets an address of its own. */
    if (strcmp(self->engines, self->replay) == 0 && !strchr(self->engines, '*'))
        return sb_fail(err, SB_INVAL, "--replay: '%s' is the endpoint of --engines already", self->replay);
    if (count_hubs(self->hub) > AGENT_HUBS_MAX)
        return sb_fail(err, SB_FULL, "--hub: more than %d hubs", AGENT_HUBS_MAX);
    if (self->forget_after < self->source_timeout)
        return sb_fail(err, SB_RANGE, "--forget-after is below --source-timeout");
    return SB_OK;
}

static enum sb_rc try_files(const void *values, struct sb_err *err)
{
    const struct agent_settings *self = values;
    struct sb_catalog *catalog = sb_catalog_load(self->catalog, NULL, err);
    if (!catalog)
        return err->rc;
    sb_catalog_destroy(&catalog);
    return SB_OK;
}

const struct sb_settings_spec agent_settings_spec = {
    .program = "statsbus-agent",
    .about = "Counts what the engines of a node publish, and feeds it to the hubs.",
    .env_prefix = "STATSBUS_AGENT_",
    .settings = settings,
    .n = SB_COUNT(settings),
    .size = sizeof(struct agent_settings),
    .check = check,
    .try_files = try_files,
};

struct tally {
    size_t changed;
    size_t waiting; /* for a restart */
};

static void log_difference(void *arg, const struct sb_settings_difference *difference)
{
    struct tally *tally = arg;
    const bool is_changed = difference->setting->change == SB_SETTING_reload;
    *(is_changed ? &tally->changed : &tally->waiting) += 1;
    sb_log(is_changed ? SB_LOG_INFO : SB_LOG_WARN, is_changed ? "setting changed" : "setting needs a restart",
           "name=%s from=\"%s\" to=\"%s\" origin=\"%s\"", difference->setting->name, difference->before,
           difference->after, difference->origin);
}

bool agent_settings_reload(struct sb_settings *self)
{
    const struct agent_settings *values = self->values;
    struct tally tally = {0};
    struct sb_err err;
    sb_log_init(self->spec->program, SB_LOG_INFO); /* whoever asks for it wants to see what came of it */
    const bool is_good = sb_settings_reload(self, log_difference, &tally, &err) == SB_OK;
    if (is_good)
        sb_log(SB_LOG_INFO, "settings reloaded", "changed=%zu waiting=%zu", tally.changed, tally.waiting);
    else
        sb_log(SB_LOG_ERROR, "settings not reloaded: nothing changes", "reason=\"%s\"", err.text);
    sb_log_init(self->spec->program, (enum sb_log_level) values->log_level);
    return is_good;
}
