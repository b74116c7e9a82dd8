/* The settings of statsbus-agent, from agent_settings.def. */
#ifndef AGENT_SETTINGS_H
#define AGENT_SETTINGS_H

#include "common/settings.h"

struct agent_settings {
#define SETTING(name, kind, fallback, range, change, help) SB_FIELD_##kind name;
#include "agent/agent_settings.def"
#undef SETTING
};

extern const struct sb_settings_spec agent_settings_spec;

/* Reads the settings anew and logs what came of it; false: a fault, and nothing is changed. */
bool agent_settings_reload(struct sb_settings *settings);

#endif
