#include "hub/hub_settings.h"

static const struct sb_setting settings[] = {
#define SETTING(name, kind, fallback, help)                                                                            \
    {#name, SB_SETTING_##kind, fallback, help, offsetof(struct hub_settings, name)},
#include "hub/hub_settings.def"
#undef SETTING
};

const struct sb_settings_spec hub_settings_spec = {
    .program = "statsbus-hub",
    .about = "Merges what agents counted and serves it to Prometheus.",
    .env_prefix = "STATSBUS_HUB_",
    .settings = settings,
    .n = SB_COUNT(settings),
};
