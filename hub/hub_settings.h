/* The settings of statsbus-hub, from hub_settings.def. */
#ifndef HUB_SETTINGS_H
#define HUB_SETTINGS_H

#include "common/settings.h"

struct hub_settings {
#define SETTING(name, kind, fallback, range, change, help) SB_FIELD_##kind name;
#include "hub/hub_settings.def"
#undef SETTING
};

/* What names of vLLM-Omni's families begin with in catalog and records. */
#define HUB_OMNI_PREFIX "vllm_omni:"

extern const struct sb_settings_spec hub_settings_spec;

/* Reads the settings anew and logs what came of it; false: a fault, and nothing is changed. */
bool hub_settings_reload(struct sb_settings *settings);

#endif
