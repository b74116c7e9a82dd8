/* What a scrape asks for beside the view: some roles, models, services, families. Applied before anything is added up.
 */
#ifndef HUB_QUERY_H
#define HUB_QUERY_H

#include "common/labels.h"
#include "hub/view_specs.h"

enum { HUB_QUERY_VALUES_MAX = 64 }; /* of one kind */

enum hub_narrow { HUB_NARROW_role, HUB_NARROW_model_name, HUB_NARROW_service_name, HUB_NARROW_COUNT };

extern const char *const hub_narrow_labels[HUB_NARROW_COUNT];

/* Texts are borrowed. Any of the values of a kind will do; a kind without values does not narrow. */
struct hub_query {
    const struct hub_view_spec *view;
    struct {
        const char *values[HUB_QUERY_VALUES_MAX];
        size_t n;
    } narrow[HUB_NARROW_COUNT];
    const char *families[HUB_QUERY_VALUES_MAX];
    size_t n_families;
};

/* Adds a value; an empty one means sources without that label. False: there are too many. */
bool hub_query_narrow(struct hub_query *self, enum hub_narrow what, const char *value) SB_CHECK;
bool hub_query_add_family(struct hub_query *self, const char *name) SB_CHECK;

/* A copy whose texts live in the arena. False: out of memory. */
bool hub_query_copy(struct hub_query *to, const struct hub_query *from, struct sb_arena *arena) SB_CHECK;

bool hub_query_is_narrowed(const struct hub_query *self); /* by labels */
bool hub_query_wants_family(const struct hub_query *self, const char *name);
/* NULL: the label is absent. */
bool hub_query_wants(const struct hub_query *self, enum hub_narrow what, const char *value);

#endif
