/* What metrics are computed: schemas/computed.yaml, which is built in, and the file that an operator adds. */
#ifndef HUB_COMPUTED_SPECS_H
#define HUB_COMPUTED_SPECS_H

#include "hub/view_specs.h"

enum { HUB_COMPUTED_MAX = 64, HUB_COMPUTED_SOURCES_MAX = 16, HUB_COMPUTED_ROLES_MAX = 8 };

enum hub_compute {
#define COMPUTE(name, of, phase, sources, roles_min, roles_max, function) HUB_COMPUTE_##name,
#include "hub/computed_types.def"
#undef COMPUTE
    HUB_COMPUTES
};

enum hub_compute_of { HUB_OF_MEMBER, HUB_OF_ROW };
enum hub_phase { HUB_PHASE_BEFORE, HUB_PHASE_AFTER }; /* of aggregation */
enum hub_source_type { HUB_SOURCE_NONE, HUB_SOURCE_COUNTER, HUB_SOURCE_GAUGE };

struct hub_compute_type {
    const char *name;
    enum hub_compute_of of;
    enum hub_phase phase;
    enum hub_source_type sources;
    size_t roles_min;
    size_t roles_max;
};

extern const struct hub_compute_type hub_compute_types[HUB_COMPUTES];

/* Of workers, those that live, or those that are expected and don't. */
enum hub_worker_state { HUB_WORKERS_ACTIVE, HUB_WORKERS_INACTIVE };

struct hub_computed_spec {
    const char *name; /* with the prefix */
    const char *help;
    enum hub_compute type;
    struct hub_texts sources; /* families */
    struct hub_texts roles;   /* none: all */
    enum hub_worker_state state;
    struct hub_texts backlog; /* of capacity: gauges of requests that wait, and that run; none, or both */
    double target;            /* of capacity_replicas: utilisation; 0: not said */
    const char *file;         /* where it is written, for messages */
    size_t line;
};

struct hub_computed_specs {
    struct sb_arena arena; /* of all texts */
    const char *prefix;    /* borrowed */
    size_t n;
    struct hub_computed_spec at[HUB_COMPUTED_MAX];
};

/* Reads the built-in metrics, if has_capacity those of capacity, too, then the file at `path` (NULL or "": none): a
 * metric of it replaces the one of the same name. Sources that the catalog knows must have the type that the
 * computation wants. Errors: "file:line: reason"; *self holds nothing then. */
enum sb_rc hub_computed_specs_load(struct hub_computed_specs *self, const char *path, const char *prefix,
                                   bool has_capacity, const struct sb_catalog *catalog, struct sb_err *err) SB_CHECK;
void hub_computed_specs_release(struct hub_computed_specs *self);

/* Adds one file; for tests. After an error *self is to be released. */
enum sb_rc hub_computed_specs_read(struct hub_computed_specs *self, const struct sb_catalog_file *file,
                                   const struct sb_catalog *catalog, struct sb_err *err) SB_CHECK;

#endif
