/*
 * How many workers a row has, by role. A worker is an engine with all of its ranks: the sources that differ in dp_rank
 * alone. It is active while one of them lives. Front-end sources are none.
 */
#ifndef HUB_WORKERS_H
#define HUB_WORKERS_H

#include "hub/store.h"

struct hub_worker_count {
    const struct sb_labelset *role; /* borrowed: a member's */
    uint32_t n_active;
    uint32_t n_known; /* those that are not forgotten */
};

/* By role; borrowed until the next change of the store. *n: how many. NULL: none, or out of memory. Counted anew only
 * when a source came, went, or changed its life. */
const struct hub_worker_count *hub_workers_of(const struct hub_store *store, struct hub_group *group, uint32_t *n);
void hub_workers_destroy(struct hub_workers **self_p);

#endif
