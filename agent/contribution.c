/* One contribution: its rows, gauges and inputs (ledger.h). */
#include <stdlib.h>
#include <string.h>

#include "agent/ledger_private.h"

/* All rows get `need` cells, the new ones 0. */
static bool grow_rows(struct agent_contribution *to, uint32_t need)
{
    uint32_t cap_live = to->cap_cells, cap_told = to->cap_cells;
    return sb_grow(&to->live, &cap_live, need, sizeof *to->live) &&
           sb_grow(&to->told, &cap_told, need, sizeof *to->told) &&
           sb_grow(&to->staged, &to->cap_cells, need, sizeof *to->staged);
}

/* The slot of `order` that holds the series, or the free one where it belongs. */
static uint32_t *find_slot(const struct agent_contribution *self, uint32_t series)
{
    const uint32_t mask = self->cap_order - 1;
    uint32_t at = series & mask; /* indexes mostly come in runs: they spread by themselves */
    while (self->order[at] && self->series[self->order[at] - 1].index != series)
        at = (at + 1) & mask;
    return &self->order[at];
}

/* The table stays at least half empty. */
static bool grow_order(struct agent_contribution *to)
{
    enum { LEAST = 64 };
    if (2 * (to->n_series + 1) <= to->cap_order)
        return true;
    const uint32_t cap = to->cap_order ? 2 * to->cap_order : LEAST;
    uint32_t *made = calloc(cap, sizeof *made);
    if (!made)
        return false;
    free(to->order);
    to->order = made;
    to->cap_order = cap;
    for (uint32_t i = 0; i < to->n_series; i++)
        *find_slot(to, to->series[i].index) = i + 1;
    return true;
}

bool agent_ledger_give_series(struct agent_ledger *self, struct agent_contribution *to, uint32_t index)
{
    const uint32_t n = self->series[index].n;
    if (!sb_grow(&to->series, &to->cap_series, to->n_series + 1, sizeof *to->series) || !grow_order(to) ||
        !grow_rows(to, to->n_cells + n))
        return false;
    *find_slot(to, index) = to->n_series + 1;
    to->series[to->n_series++] = (struct agent_own_series){.index = index, .place = to->n_cells};
    to->n_cells += n;
    self->n_row_cells += n;
    return true;
}

uint32_t agent_contribution_place(const struct agent_contribution *self, uint32_t series)
{
    const uint32_t found = self->cap_order ? *find_slot(self, series) : 0;
    return found ? self->series[found - 1].place : AGENT_NONE;
}

bool agent_contribution_is_staged(const struct agent_contribution *self)
{
    return self->n_staged_series == self->n_series &&
           (!self->n_cells || memcmp(self->live, self->staged, self->n_cells * sizeof *self->live) == 0);
}

uint32_t agent_contribution_gauge(struct agent_contribution *to, const struct agent_series *series, uint32_t input)
{
    for (uint32_t i = 0; i < to->n_gauges; i++)
        if (to->gauges[i].cell == series->first && to->gauges[i].input == input)
            return i;
    if (!sb_grow(&to->gauges, &to->cap_gauges, to->n_gauges + 1, sizeof *to->gauges))
        return AGENT_NONE;
    to->gauges[to->n_gauges] = (struct agent_gauge){.cell = series->first, .input = input};
    return to->n_gauges++;
}

uint32_t agent_contribution_input(struct agent_contribution *to, uint32_t key)
{
    for (uint32_t i = 0; i < to->n_inputs; i++)
        if (to->inputs[i].key == key)
            return i;
    if (!sb_grow(&to->inputs, &to->cap_inputs, to->n_inputs + 1, sizeof *to->inputs))
        return AGENT_NONE;
    to->inputs[to->n_inputs] = (struct agent_input){.key = key};
    return to->n_inputs++;
}

bool agent_input_begin(struct agent_contribution *to, uint32_t input, const struct agent_moment *when)
{
    struct agent_input *have = &to->inputs[input];
    double mine = have->time, theirs = when->time;
    if (have->host != when->host) {
        mine += have->shift;
        theirs += when->shift;
    }
    if (have->generation && theirs < mine)
        return false;
    have->generation++;
    have->time = when->time;
    have->host = when->host;
    have->publisher = when->publisher;
    have->shift = when->shift;
    to->is_gauge_changed = true;
    return true;
}

uint32_t agent_contribution_check_times(struct agent_contribution *to, uint32_t publisher, double time)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < to->n_inputs; i++) {
        struct agent_input *input = &to->inputs[i];
        if (input->publisher != publisher || input->time <= time + AGENT_AHEAD_MAX_S)
            continue;
        input->time = time;
        n++;
    }
    return n;
}

void agent_contribution_drop_gauges(struct agent_contribution *self)
{
    for (uint32_t i = 0; i < self->n_inputs; i++)
        if (!self->inputs[i].is_lasting)
            self->inputs[i].generation++;
    self->is_gauge_changed = true;
}

static bool is_present(const struct agent_contribution *self, const struct agent_gauge *gauge)
{
    return gauge->generation && gauge->generation == self->inputs[gauge->input].generation;
}

bool agent_contribution_publish(struct agent_contribution *self)
{
    uint32_t cap = self->cap_shown;
    if (!sb_grow(&self->shown_cells, &cap, self->n_gauges, sizeof *self->shown_cells) ||
        !sb_grow(&self->shown_values, &self->cap_shown, self->n_gauges, sizeof *self->shown_values))
        return false;
    self->n_shown = 0;
    for (uint32_t i = 0; self->is_live && i < self->n_gauges; i++) {
        if (!is_present(self, &self->gauges[i]))
            continue;
        self->shown_cells[self->n_shown] = self->gauges[i].cell;
        self->shown_values[self->n_shown++] = self->gauges[i].value;
    }
    self->shown_version++;
    self->shown_ms = self->snapshot_ms;
    self->is_gauge_changed = false;
    return true;
}
