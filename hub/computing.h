/* What the functions of computed_types.def compute from, and what they share. Private to computed.c and capacity.c. */
#ifndef HUB_COMPUTING_H
#define HUB_COMPUTING_H

#include "hub/query.h"
#include "hub/store.h"

struct hub_computing {
    const struct hub_store *store;
    const struct hub_computed_spec *spec;
    uint32_t number;
    const struct hub_contribution *member; /* of MEMBER types: one whose role counts */
    struct hub_group *group;               /* of ROW types, with query */
    const struct hub_query *query;
};

/* The functions themselves: false where there is no value. */
#define COMPUTE(name, of, phase, sources, roles_min, roles_max, function)                                              \
    bool function(const struct hub_computing *at, double *out);
#include "hub/computed_types.def"
#undef COMPUTE

/* Does the metric count members of this role? */
bool hub_computing_has_role(const struct hub_computed_spec *spec, const struct hub_contribution *member);
/* The sum of all gauges of a family over one member; false: it has none, or they aren't shown. */
bool hub_computing_gauge(const struct hub_store *store, const struct hub_contribution *member, const char *family,
                         double *out);

#endif
