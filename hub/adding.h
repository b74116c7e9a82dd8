/*
 * Adding a row up whose numbers are those of several contributions, or has retired cells: in turns, as a row may have
 * very many. Each contribution goes into the sums whole.
 */
#ifndef HUB_ADDING_H
#define HUB_ADDING_H

#include "hub/query.h"
#include "hub/store.h"

enum {
    HUB_PARTS_MAX = 1024,   /* contributions that are added up in one go */
    HUB_PAGES_A_LOOK = 4,   /* pages that are added up in about the time of one look */
    HUB_RESTARTS_MAX = 3,   /* of a row whose numbers move meanwhile; then it is added up in one turn, however long */
    HUB_NO_SUM = UINT8_MAX, /* nothing in the row counts for that scope */
};

/* The sums of a row: by scope, 0 for all roles. Scopes that count the same parts share one. */
struct hub_row_sums {
    uint32_t n;
    uint32_t n_scopes;
    uint8_t of[HUB_SUMS_MAX]; /* by scope: its sum, or HUB_NO_SUM */
    double *computed;         /* by metric (computed.h); NULL: nothing is; owned */
    uint32_t n_computed;
    struct hub_sum at[];
};

void hub_row_sums_destroy(struct hub_row_sums **self_p);
size_t hub_row_sums_bytes(const struct hub_row_sums *self); /* NULL: 0 */

/* What takes part. */
struct hub_adding_ask {
    const struct hub_store *store;
    const struct hub_query *query;
    const struct hub_view_spec *view;
    bool is_without_gauges;
};

struct hub_adding {
    uint64_t group;   /* that is being added up; 0: none */
    uint32_t n_moves; /* the group's, when it began */
    uint32_t n_restarts;
    uint32_t next_member; /* those before are in the sums */
    uint32_t next_retired;
    struct hub_row_sums *sums; /* owned until they are taken, as computed is */
    double *computed;
    struct hub_part *parts; /* room for twice HUB_PARTS_MAX, made at first use; owned */
    struct hub_gauge_places places;
};

void hub_adding_release(struct hub_adding *self);

enum hub_adding_step { HUB_ADDING_DONE, HUB_ADDING_LATER, HUB_ADDING_NO_MEMORY };

/* Adds parts of the group until all are in (*out: owned) or *looks are used up: then to be called again. Another group
 * than before begins anew. */
enum hub_adding_step hub_adding_go(struct hub_adding *self, const struct hub_adding_ask *ask,
                                   const struct hub_group *group, size_t *looks, struct hub_row_sums **out) SB_CHECK;

/* The role of a label set that has it alone; NULL: none. */
const char *hub_role_of(const struct sb_labelset *role);

#endif
