/* The settings of statsbus-hub, from hub_settings.def. */
#ifndef HUB_SETTINGS_H
#define HUB_SETTINGS_H

#include "common/settings.h"
#include "hub/computed.h"
#include "hub/view_specs.h"

struct hub_settings {
#define SETTING(name, kind, fallback, range, change, help) SB_FIELD_##kind name;
#include "hub/hub_settings.def"
#undef SETTING
};

/* What names of vLLM-Omni's families begin with in catalog and records. */
#define HUB_OMNI_PREFIX "vllm_omni:"

extern const struct sb_settings_spec hub_settings_spec;

/* The built-in catalog and that of the folder that `catalog` names. NULL: the file's fault, SB_NOMEM. */
struct sb_catalog *hub_settings_read_catalog(const struct hub_settings *self, struct sb_err *err) SB_CHECK;

/* The built-in views and those of the file that `views` names, as the other settings want them. Release only what was
 * read. Errors: the file's, SB_INVAL (views and settings do not go together), SB_NOMEM. */
enum sb_rc hub_settings_read_views(const struct hub_settings *self, struct hub_view_specs *out, struct sb_err *err)
    SB_CHECK;

/* The built-in computed metrics and those of the file that `computed` names; borrows the settings. Release only what
 * was read. Errors: the file's, SB_NOMEM. */
enum sb_rc hub_settings_read_computed(const struct hub_settings *self, const struct sb_catalog *catalog,
                                      struct hub_computed_specs *out, struct sb_err *err) SB_CHECK;

/* Reads the settings anew and logs what came of it; false: a fault, and nothing is changed. */
bool hub_settings_reload(struct sb_settings *settings);

#endif
