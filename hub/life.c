/* Contributions that live, fall silent, end and are forgotten (store.h). */
#include "hub/store.h"

void hub_source_choose(struct hub_source *source)
{
    struct hub_contribution *best = NULL;
    for (uint32_t i = 0; i < source->n_contributions; i++) {
        struct hub_contribution *each = source->contributions[i];
        if (!each->is_live || each->values.n_gauges == 0)
            continue;
        if (!best || each->snapshot_ms >= best->snapshot_ms)
            best = each;
    }
    source->shown = best;
}

static void set_live(struct hub_store *self, struct hub_contribution *contribution, bool is_live)
{
    if (contribution->is_live == is_live)
        return;
    contribution->is_live = is_live;
    for (size_t i = 0; i < self->n_views; i++) {
        if (contribution->groups[i])
            hub_group_note_life(contribution->groups[i], is_live, self->now_ms);
    }
    hub_source_note_life(self, contribution, is_live);
}

void hub_contribution_bury(struct hub_store *self, struct hub_contribution *contribution, bool is_ended)
{
    set_live(self, contribution, false);
    contribution->is_ended = is_ended;
    contribution->values.n_gauges = 0;
    contribution->n_wire_gauges = 0;
    hub_source_choose(contribution->source);
}

void hub_contribution_revive(struct hub_store *self, struct hub_contribution *contribution)
{
    set_live(self, contribution, true);
    contribution->is_ended = false;
    hub_source_choose(contribution->source);
}

static size_t retired_bytes(const struct hub_group *group)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < group->n_retired; i++)
        bytes += hub_values_bytes(&group->retired[i].high) + hub_values_bytes(&group->retired[i].low);
    return bytes;
}

/* A row that is not shown, and has nothing else, needs no retired part: if it ever comes back, it is a new one. */
static bool is_row_over(const struct hub_store *self, size_t view, const struct hub_group *group)
{
    return group->n_members == 1 && group->n_retired == 0 &&
           !hub_view_shows(&self->views[view], group, self->now_ms, self->linger_ms);
}

/* Room for all that the contribution's rows will keep of it. */
static bool reserve_retired(struct hub_store *self, struct hub_contribution *contribution)
{
    bool is_ok = true;
    for (size_t i = 0; is_ok && i < self->n_views; i++) {
        struct hub_group *group = contribution->groups[i];
        if (!group || is_row_over(self, i, group))
            continue;
        size_t before = retired_bytes(group);
        is_ok = hub_group_retired(group, contribution->role, &contribution->values) != NULL;
        self->row_bytes += retired_bytes(group) - before;
    }
    return is_ok;
}

static bool has_cells(const struct hub_values *values)
{
    for (uint32_t p = 0; p < values->n_pages; p++) {
        if (values->pages[p])
            return true;
    }
    return false;
}

void hub_store_retire(struct hub_store *self, struct hub_contribution *contribution)
{
    contribution->is_forgotten = true;
    hub_contribution_bury(self, contribution, contribution->is_ended);
    if (!has_cells(&contribution->values)) {
        hub_store_remove(self, contribution);
        return;
    }
    if (!reserve_retired(self, contribution)) {
        self->counters->limits[HUB_LIMIT_memory]++;
        return;
    }
    for (size_t i = 0; i < self->n_views; i++) {
        struct hub_group *group = contribution->groups[i];
        if (!group || is_row_over(self, i, group))
            continue;
        struct hub_retired *retired = hub_group_retired(group, contribution->role, &contribution->values);
        if (retired) /* it was reserved */
            hub_values_add(&retired->high, &retired->low, &contribution->values);
    }
    hub_store_remove(self, contribution);
}

static void bury_silent(struct hub_store *self, int64_t now_ms, int64_t timeout_ms)
{
    size_t at = 0;
    for (struct hub_contribution *each; (each = hub_table_next(&self->contributions, &at)) != NULL;) {
        if (!each->is_live)
            continue;
        const struct hub_lineage *lineage = each->lineage;
        bool is_silent = now_ms - lineage->heard_ms >= timeout_ms;
        bool is_left_out = each->session != lineage->session && now_ms - lineage->began_ms >= timeout_ms;
        if (is_silent || (lineage->session != 0 && is_left_out))
            hub_contribution_bury(self, each, false);
    }
}

/* Tries again what there was no memory for: one a sweep. */
static void retire_forgotten(struct hub_store *self)
{
    size_t at = 0;
    for (struct hub_contribution *each; (each = hub_table_next(&self->contributions, &at)) != NULL;) {
        if (!each->is_forgotten)
            continue;
        hub_store_retire(self, each);
        return;
    }
}

/* A closed lineage stays in the table, with or without contributions. */
static void close_silent_lineages(struct hub_store *self, int64_t now_ms, int64_t closed_after_ms)
{
    size_t at = 0;
    for (struct hub_lineage *each; (each = hub_table_next(&self->lineages, &at)) != NULL;) {
        if (each->n_sessions > 0 || each->is_closed || now_ms - each->heard_ms < closed_after_ms)
            continue;
        each->is_closed = true;
        for (uint32_t i = each->n_contributions; i-- > 0;) /* what is retired leaves the list */
            hub_store_retire(self, each->contributions[i]);
    }
}

static void sweep_views(struct hub_store *self)
{
    for (size_t i = 0; i < self->n_views; i++) {
        size_t freed;
        self->counters->limits[HUB_LIMIT_kept_rows] +=
            hub_view_sweep(&self->views[i], self->now_ms, self->linger_ms, HUB_KEPT_ROWS_MAX, &freed);
        self->row_bytes -= freed;
    }
}

void hub_store_sweep(struct hub_store *self, int64_t now_ms, int64_t timeout_ms, int64_t closed_after_ms)
{
    self->now_ms = now_ms > self->now_ms ? now_ms : self->now_ms;
    bury_silent(self, now_ms, timeout_ms);
    retire_forgotten(self);
    close_silent_lineages(self, now_ms, closed_after_ms);
    sweep_views(self);
}
