#include "agent/agent_settings.h"

#include <stddef.h>

static const struct sb_setting settings[] = {
#define SETTING(name, kind, fallback, help)                                                                            \
    {#name, SB_SETTING_##kind, fallback, help, offsetof(struct agent_settings, name)},
#include "agent/agent_settings.def"
#undef SETTING
};

const struct sb_settings_spec agent_settings_spec = {
    .program = "statsbus-agent",
    .about = "Counts what the engines of a node publish, and feeds it to the hubs.",
    .env_prefix = "STATSBUS_AGENT_",
    .settings = settings,
    .n = SB_COUNT(settings),
};
