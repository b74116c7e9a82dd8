/* Contributions that live, fall silent, end and are forgotten (store.h). */
#include "hub/rates.h"
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
    for (size_t i = 0; best && best != source->shown && i < HUB_ALL_VIEWS_MAX; i++) {
        if (best->groups[i])
            best->groups[i]->n_moves++;
    }
    source->shown = best;
}

static void set_live(struct hub_store *self, struct hub_contribution *contribution, bool is_live)
{
    if (contribution->is_live == is_live)
        return;
    contribution->is_live = is_live;
    self->n_lives++;
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
    if (is_ended)
        hub_source_note_end(self, contribution);
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

/* What the contribution's rows will keep of it. */
static size_t bytes_of_retired(const struct hub_store *self, const struct hub_contribution *contribution)
{
    size_t bytes = 0;
    for (size_t i = 0; i < self->n_views; i++) {
        const struct hub_group *group = contribution->groups[i];
        if (group && !is_row_over(self, i, group))
            bytes += hub_group_retired_bytes(group, contribution->role, &contribution->values);
    }
    return bytes;
}

/* Keeps memory within its limit by dropping rows that have no contribution any more, those that have been idle longest.
 * False: that is not enough. */
static bool make_room(struct hub_store *self, size_t more, size_t less)
{
    while (self->row_bytes - less + more > self->row_bytes_max) {
        size_t n = 0;
        for (size_t i = 0; i < self->n_views; i++) {
            size_t freed;
            n += hub_view_make_room(&self->views[i], self->now_ms, &freed);
            self->row_bytes -= freed;
        }
        self->counters->limits[HUB_LIMIT_kept_rows] += n;
        if (n == 0)
            return false;
    }
    return true;
}

/* Room for all that the contribution's rows will keep of it, in the place of its own. */
static bool reserve_retired(struct hub_store *self, struct hub_contribution *contribution)
{
    if (!make_room(self, bytes_of_retired(self, contribution), hub_contribution_bytes(contribution)))
        return false;
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

void hub_store_close(struct hub_store *self, struct hub_lineage *lineage)
{
    lineage->is_closed = true;
    for (uint32_t i = lineage->n_contributions; i-- > 0;) /* what is retired leaves the list */
        hub_store_retire(self, lineage->contributions[i]);
}

/*
 * A session names all that its agent has in its first moments. What it doesn't name has ended, some time ago, and is
 * forgotten. That becomes final as late as the counts of an agent that is silent: an agent whose state could not be
 * written meanwhile might come back with it.
 */
static void judge_left_out(struct hub_store *self, struct hub_contribution *contribution, int64_t now_ms,
                           int64_t closed_after_ms)
{
    struct hub_lineage *lineage = contribution->lineage;
    if (!contribution->is_left_out)
        contribution->left_out_ms = lineage->began_ms;
    contribution->is_left_out = true;
    if (contribution->is_live || !contribution->is_ended)
        hub_contribution_bury(self, contribution, true);
    if (contribution->is_forgotten || now_ms - contribution->left_out_ms < closed_after_ms)
        return;
    if (sb_ranges_add(&lineage->final, contribution->epoch, contribution->epoch))
        hub_store_retire(self, contribution);
    else
        self->counters->limits[HUB_LIMIT_final_epochs]++;
}

/* What it counts from now on comes unseen: when it is heard of again, that is of the past. */
static void fall_silent(struct hub_store *self, struct hub_contribution *contribution)
{
    if (contribution->is_live)
        hub_contribution_bury(self, contribution, false);
    contribution->is_watched = false;
    if (contribution->rates)
        hub_rates_interrupt(contribution->rates);
}

static void judge_contributions(struct hub_store *self, struct hub_lineage *lineage, int64_t now_ms, int64_t timeout_ms,
                                int64_t closed_after_ms)
{
    bool is_silent = now_ms - lineage->heard_ms >= timeout_ms;
    bool has_spoken = lineage->session != 0 && now_ms - lineage->began_ms >= timeout_ms;
    for (uint32_t i = lineage->n_contributions; i-- > 0;) { /* what is retired leaves the list */
        struct hub_contribution *each = lineage->contributions[i];
        if (has_spoken && each->named_by != lineage->session)
            judge_left_out(self, each, now_ms, closed_after_ms);
        else if (each->is_live ? is_silent || (has_spoken && each->session != lineage->session)
                               : is_silent && !each->is_ended)
            fall_silent(self, each);
    }
}

/* A lineage that is closed stays in the table, with or without contributions. */
static void judge_lineages(struct hub_store *self, int64_t now_ms, int64_t timeout_ms, int64_t closed_after_ms)
{
    size_t at = 0;
    for (struct hub_lineage *each; (each = hub_table_next(&self->lineages, &at)) != NULL;) {
        if (each->n_sessions == 0 && !each->is_closed && now_ms - each->heard_ms >= closed_after_ms)
            hub_store_close(self, each);
        else
            judge_contributions(self, each, now_ms, timeout_ms, closed_after_ms);
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
    (void) make_room(self, self->row_bytes_max / HUB_SPARE_SHARE, 0); /* without it, what lives stays as it is */
}

void hub_store_sweep(struct hub_store *self, int64_t now_ms, int64_t timeout_ms, int64_t closed_after_ms)
{
    self->now_ms = now_ms > self->now_ms ? now_ms : self->now_ms;
    retire_forgotten(self);
    judge_lineages(self, now_ms, timeout_ms, closed_after_ms);
    sweep_views(self);
    hub_store_sweep_sources(self);
}
