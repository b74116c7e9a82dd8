#include "hub/workers.h"

#include <stdlib.h>

struct hub_workers {
    uint64_t n_lives; /* the store's, when they were counted */
    uint32_t n;
    struct hub_worker_count of[];
};

/* One source: what it counts as. */
struct lot {
    const struct sb_labelset *role;
    const struct sb_labelset *worker;
    bool is_live;
};

void hub_workers_destroy(struct hub_workers **self_p)
{
    free(*self_p);
    *self_p = NULL;
}

static int compare_pointers(const void *left, const void *right)
{
    return ((uintptr_t) left > (uintptr_t) right) - ((uintptr_t) left < (uintptr_t) right);
}

/* By role and worker; of one worker, who lives comes first. */
static int compare(const void *left, const void *right)
{
    const struct lot *a = left;
    const struct lot *b = right;
    if (a->role != b->role)
        return compare_pointers(a->role, b->role);
    if (a->worker != b->worker)
        return compare_pointers(a->worker, b->worker);
    return (int) b->is_live - (int) a->is_live;
}

/* Of each source its latest incarnation counts. */
static uint32_t collect(const struct hub_group *group, struct lot *lots)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n_members; i++) {
        const struct hub_contribution *member = group->members[i];
        if (member->source->kind == HUB_ENGINE && member->source->current == member)
            lots[n++] = (struct lot){
                .role = member->role, .worker = member->source->worker, .is_live = member->source->n_live > 0};
    }
    qsort(lots, n, sizeof lots[0], compare);
    return n;
}

static void count(struct hub_workers *self, const struct lot *lots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const bool is_new_role = i == 0 || lots[i].role != lots[i - 1].role;
        if (is_new_role)
            self->of[self->n++] = (struct hub_worker_count){.role = lots[i].role};
        if (!is_new_role && lots[i].worker == lots[i - 1].worker)
            continue;
        struct hub_worker_count *into = &self->of[self->n - 1];
        into->n_known++;
        into->n_active += lots[i].is_live;
    }
}

const struct hub_worker_count *hub_workers_of(const struct hub_store *store, struct hub_group *group, uint32_t *n)
{
    *n = 0;
    if (group->workers && group->workers->n_lives == store->n_lives) {
        *n = group->workers->n;
        return group->workers->of;
    }
    hub_workers_destroy(&group->workers);
    struct lot *lots = malloc((group->n_members + 1) * sizeof lots[0]);
    if (!lots)
        return NULL;
    const uint32_t n_lots = collect(group, lots);
    uint32_t n_roles = n_lots > 0;
    for (uint32_t i = 1; i < n_lots; i++)
        n_roles += lots[i].role != lots[i - 1].role;
    group->workers = calloc(1, sizeof *group->workers + n_roles * sizeof group->workers->of[0]);
    if (group->workers) {
        group->workers->n_lives = store->n_lives;
        count(group->workers, lots, n_lots);
        *n = n_roles;
    }
    free(lots);
    return group->workers ? group->workers->of : NULL;
}
