#include "agent/stat_lines.h"

#include <stdlib.h>

#include "common/grow.h"

struct agent_stat_seen {
    uint64_t epoch; /* whose: indexes are used again; 0: nobody's */
    int64_t at_ms;
    struct sb_statline line;
};

void agent_stat_lines_init(struct agent_stat_lines *self, int64_t period_ms,
                           void (*say)(void *arg, const struct agent_contribution *source, const char *text), void *arg)
{
    *self = (struct agent_stat_lines){.period_ms = period_ms, .next = AGENT_NONE, .say = say, .arg = arg};
}

void agent_stat_lines_release(struct agent_stat_lines *self)
{
    free(self->stats);
    free(self->seen);
    *self = (struct agent_stat_lines){.next = AGENT_NONE};
}

/* Families only ever become more. */
static bool look_up(struct agent_stat_lines *self, const struct agent_ledger *ledger)
{
    const uint32_t n = agent_ledger_n_families(ledger);
    if (!sb_grow(&self->stats, &self->cap_families, n, sizeof *self->stats))
        return false;
    for (; self->n_families < n; self->n_families++)
        self->stats[self->n_families] =
            (uint8_t) sb_stat_of_family(agent_ledger_family_at(ledger, self->n_families)->name);
    return true;
}

/* False: it isn't there now. */
static bool read_gauge(const struct agent_contribution *of, uint32_t cell, double *out)
{
    for (uint32_t i = 0; of->is_live && i < of->n_gauges; i++) {
        const struct agent_gauge *gauge = &of->gauges[i];
        if (gauge->cell != cell || gauge->generation != of->inputs[gauge->input].generation)
            continue;
        *out = gauge->value;
        return true;
    }
    return false;
}

static struct sb_statline read_line(const struct agent_stat_lines *self, const struct agent_ledger *ledger,
                                    const struct agent_contribution *of)
{
    struct sb_statline line = {0};
    for (uint32_t i = 0; i < of->n_series; i++) {
        const struct agent_series *series = agent_ledger_series_at(ledger, of->series[i].index);
        const enum sb_stat stat =
            series->family < self->n_families ? (enum sb_stat) self->stats[series->family] : SB_STATS;
        double value;
        if (stat == SB_STATS)
            continue;
        if (sb_stat_is_count(stat))
            sb_statline_put(&line, stat, of->live[of->series[i].place]);
        else if (read_gauge(of, series->first, &value))
            sb_statline_put(&line, stat, value);
    }
    return line;
}

static void look_at(struct agent_stat_lines *self, const struct agent_ledger *ledger,
                    const struct agent_contribution *of, int64_t now_ms)
{
    struct agent_stat_seen *seen = &self->seen[of->index];
    const struct agent_stat_seen now = {.epoch = of->epoch, .at_ms = now_ms, .line = read_line(self, ledger, of)};
    const struct agent_stat_seen none = {.at_ms = now_ms};
    const struct agent_stat_seen *before = seen->epoch == of->epoch ? seen : &none;
    const struct sb_statline line = sb_statline_since(&now.line, &before->line);
    if (of->is_live && !sb_statline_is_empty(&line)) {
        char text[SB_STATLINE_MAX];
        sb_statline_text(&line, (double) (now_ms - before->at_ms) / 1000, text);
        self->say(self->arg, of, text);
    }
    *seen = now;
}

void agent_stat_lines_tick(struct agent_stat_lines *self, const struct agent_ledger *ledger, int64_t now_ms)
{
    const uint32_t n = agent_ledger_n_contributions(ledger);
    if (self->next == AGENT_NONE && (self->period_ms == 0 || now_ms - self->round_ms < self->period_ms))
        return;
    if (!look_up(self, ledger) || !sb_grow(&self->seen, &self->cap_seen, n, sizeof *self->seen))
        return; /* memory is short: the next call tries again */
    if (self->next == AGENT_NONE) {
        self->round_ms = now_ms;
        self->next = 0;
    }
    for (uint32_t looks = 0; self->next < n; self->next++) {
        const struct agent_contribution *each = agent_ledger_contribution_at(ledger, self->next);
        if (!each || each->is_front_end)
            continue;
        if (looks++ == AGENT_STAT_LINES_MAX)
            return;
        look_at(self, ledger, each, now_ms);
    }
    self->next = AGENT_NONE;
}
