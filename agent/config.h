/* Looking into a hello's configuration: nested msgpack maps of scalars. */
#ifndef AGENT_CONFIG_H
#define AGENT_CONFIG_H

#include <stdbool.h>

#include "common/catalog.h"
#include "common/mp.h"

/* The value at "a.b.c"; false when it is not there. */
bool agent_config_find(struct sb_slice config, const char *path, struct sb_mp *out);

/* Whether a feature holds: its value is one of `in`, or true as Python sees it (not nil, false, 0, or empty). */
bool agent_config_has(struct sb_slice config, const struct sb_feature *feature);

/* The value of a map's key; false when `map` is none or lacks it. */
bool agent_map_find(struct sb_slice map, const char *key, size_t len, struct sb_mp *out);

#endif
