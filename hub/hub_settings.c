#include "hub/hub_settings.h"

#include <stddef.h>
#include <string.h>

#include "common/catalog.h"
#include "common/log.h"
#include "common/text.h"
#include "hub/store.h"
#include "hub/windows.h"

static const struct sb_setting settings[] = {
#define SETTING(...) SB_SETTING_ROW(struct hub_settings, __VA_ARGS__),
#include "hub/hub_settings.def"
#undef SETTING
};

static enum sb_rc check(const void *values, struct sb_err *err)
{
    const struct hub_settings *self = values;
    /* Any other prefix could make names that are somebody else's. */
    if (strcmp(self->omni_prefix, HUB_OMNI_PREFIX) != 0 && strcmp(self->omni_prefix, "vllm:omni_") != 0)
        return sb_fail(err, SB_INVAL, "--omni-prefix: '%s' is neither vllm_omni: nor vllm:omni_", self->omni_prefix);
    if (!sb_metric_name_is_valid(self->computed_prefix, strlen(self->computed_prefix)))
        return sb_fail(err, SB_INVAL, "--computed-prefix: '%s' can't begin a metric's name", self->computed_prefix);
    struct hub_expectations expected;
    if (hub_expectations_parse(&expected, self->expected_workers, err) != SB_OK)
        return sb_fail_at(err, SB_INVAL, "--expected-workers");
    struct hub_window_lengths windows;
    const enum sb_rc rc = hub_window_lengths_parse(&windows, self->windows, err);
    return rc == SB_OK ? SB_OK : sb_fail_at(err, rc, "--windows");
}

struct sb_catalog *hub_settings_read_catalog(const struct hub_settings *self, struct sb_err *err)
{
    const struct sb_prefix prefix = {.from = HUB_OMNI_PREFIX, .to = self->omni_prefix};
    return sb_catalog_load(self->catalog, &prefix, err);
}

enum sb_rc hub_settings_read_views(const struct hub_settings *self, struct hub_view_specs *out, struct sb_err *err)
{
    enum sb_rc rc = hub_view_specs_load(out, self->views, err);
    if (rc != SB_OK)
        return rc;
    if (!self->role_scope)
        hub_view_specs_lift_role_scopes(out);
    if (self->dp_engine_label)
        rc = hub_view_specs_add_engine(out, err);
    if (rc != SB_OK)
        hub_view_specs_release(out);
    return rc;
}

enum sb_rc hub_settings_read_computed(const struct hub_settings *self, const struct sb_catalog *catalog,
                                      struct hub_computed_specs *out, struct sb_err *err)
{
    return hub_computed_specs_load(out, self->computed, self->computed_prefix, self->capacity_signals, catalog, err);
}

/* All files together, as the hub's start does it: names may clash. */
static enum sb_rc try_store(const struct hub_settings *self, const struct sb_catalog *catalog,
                            const struct hub_view_specs *views, struct sb_err *err)
{
    struct hub_computed_specs computed;
    enum sb_rc rc = hub_settings_read_computed(self, catalog, &computed, err);
    if (rc != SB_OK)
        return rc;
    struct hub_counters counters = {.messages = 0};
    struct hub_store store;
    rc = hub_store_init(&store, catalog, views, &counters, (struct hub_store_limits){.contributions = 1}, err);
    struct hub_window_lengths windows = {.n = 0};
    if (rc == SB_OK) {
        const struct hub_expectations none = {.n = 0};
        rc = hub_window_lengths_parse(&windows, self->windows, err);
        if (rc == SB_OK)
            rc = hub_windows_init(&store, &windows, (size_t) self->window_memory_max, err);
        if (rc == SB_OK)
            rc = hub_store_compute(&store, &computed, &none, self->rate_window, err);
        hub_store_release(&store);
    }
    hub_computed_specs_release(&computed);
    return rc;
}

static enum sb_rc try_files(const void *values, struct sb_err *err)
{
    const struct hub_settings *self = values;
    struct sb_catalog *catalog = hub_settings_read_catalog(self, err);
    if (!catalog)
        return err->rc;
    struct hub_view_specs views;
    enum sb_rc rc = hub_settings_read_views(self, &views, err);
    if (rc == SB_OK) {
        rc = try_store(self, catalog, &views, err);
        hub_view_specs_release(&views);
    }
    sb_catalog_destroy(&catalog);
    return rc;
}

const struct sb_settings_spec hub_settings_spec = {
    .program = "statsbus-hub",
    .about = "Merges what agents counted and serves it to Prometheus.",
    .env_prefix = "STATSBUS_HUB_",
    .settings = settings,
    .n = SB_COUNT(settings),
    .size = sizeof(struct hub_settings),
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

bool hub_settings_reload(struct sb_settings *self)
{
    const struct hub_settings *values = self->values;
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
