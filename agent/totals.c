/* Observations of cumulative families: a value is what its process has counted so far (schemas/engine-wire.md). */
#include "agent/config.h"
#include "agent/plan_private.h"
#include "agent/raws.h"

/* The family's own bounds? */
static bool has_bounds(struct sb_mp at, const struct sb_bounds *bounds)
{
    uint32_t n;
    double bound;
    if (!sb_mp_array(&at, &n) || n != bounds->n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!sb_mp_number(&at, &bound) || bound != bounds->upper[i])
            return false;
    return true;
}

/* Counts of observations up to each bound, the last one of all, into those of each bucket. */
static bool read_buckets(struct sb_mp at, const struct sb_bounds *bounds, double *cells)
{
    uint32_t n;
    double count, before = 0;
    if (!sb_mp_array(&at, &n) || n != bounds->n + 1)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!sb_mp_number(&at, &count) || !agent_amount_is_possible(count) || count < before)
            return false;
        cells[i] = count - before;
        before = count;
    }
    return true;
}

static bool read_distribution(struct sb_slice value, const struct sb_bounds *bounds, double *cells)
{
    struct sb_mp le, buckets, sum;
    return agent_map_find(value, "le", 2, &le) && agent_map_find(value, "buckets", 7, &buckets) &&
           agent_map_find(value, "sum", 3, &sum) && has_bounds(le, bounds) && read_buckets(buckets, bounds, cells) &&
           sb_mp_number(&sum, &cells[bounds->n + 1]) && agent_amount_is_possible(cells[bounds->n + 1]);
}

static bool read_total(struct sb_slice value, const struct sb_bounds *bounds, double *cells)
{
    struct sb_mp at = sb_mp_over(value.at, value.len);
    if (bounds)
        return read_distribution(value, bounds, cells);
    return sb_mp_number(&at, cells) && agent_amount_is_possible(*cells);
}

/* Is it this publisher that the run listens to, and this record not older than what was left to another one? */
static bool is_heard(struct agent_binding *self, uint64_t number)
{
    if (strcmp(agent_run_owner(self->run), self->publisher) == 0)
        return number > self->unheard;
    if (number > self->unheard)
        self->unheard = number;
    return false;
}

void binding_observe_total(struct agent_binding *self, const struct plan_family *family, struct sb_slice labels,
                           struct sb_slice value, enum agent_apply_parts parts)
{
    double cells[SB_BOUNDS_MAX + 2];
    const bool is_told_again = parts == AGENT_APPLY_GAUGES;
    struct sb_mp at = sb_mp_over(value.at, value.len);
    if (sb_mp_nil(&at))
        return;
    if (is_told_again && (!self->when->number || !self->run || !agent_run_needs_base(self->run)))
        return;
    if (!read_total(value, family->bounds, cells)) {
        if (!is_told_again)
            binding_refuse(self, family->family, 1);
        return;
    }
    if (self->run && !is_heard(self, self->when->number))
        return;
    const uint32_t index = binding_target_of_observation(self, family, labels, AGENT_NONE);
    if (index == AGENT_NONE)
        return;
    const struct agent_series *series = agent_ledger_series_at(self->ledger, index);
    const struct agent_raw raw = {
        .family = family->family, .series = index, .number = self->when->number, .values = cells, .n = series->n};
    const bool has_room = self->run && agent_run_has_room(self->raws, self->run, &raw);
    const uint32_t place = has_room ? agent_ledger_place_of(self->ledger, self->to, index) : AGENT_NONE;
    bool is_taken = place != AGENT_NONE;
    if (is_taken && is_told_again)
        agent_run_base(self->raws, self->run, &raw);
    else if (is_taken)
        is_taken = agent_run_add(self->raws, self->run, &raw, self->to->live + place);
    agent_ledger_counters(self->ledger)->totals_left_out += !is_taken;
}
