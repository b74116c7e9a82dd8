/*
 * A line in the log for each source that lives, every so often: what it did since the line before, and how it is now.
 *
 * Work is done in pieces. Pure: time comes in, lines leave through a callback.
 */
#ifndef AGENT_STAT_LINES_H
#define AGENT_STAT_LINES_H

#include "agent/ledger.h"
#include "common/statline.h"

enum { AGENT_STAT_LINES_MAX = 64 }; /* sources that are looked at in one call */

struct agent_stat_lines {
    int64_t period_ms; /* 0: off */
    int64_t round_ms;  /* when the round under way began, or the last one */
    uint32_t next;     /* contribution that comes next; AGENT_NONE: no round is under way */
    uint8_t *stats;    /* by family: what comes of it, or SB_STATS; owned */
    uint32_t n_families, cap_families;
    struct agent_stat_seen *seen; /* by contribution: what it had last time; owned */
    uint32_t cap_seen;
    void (*say)(void *arg, const struct agent_contribution *source, const char *text);
    void *arg;
};

void agent_stat_lines_init(struct agent_stat_lines *self, int64_t period_ms,
                           void (*say)(void *arg, const struct agent_contribution *source, const char *text),
                           void *arg);
void agent_stat_lines_release(struct agent_stat_lines *self);

/* To be called often. The first round says nothing of rates: it looks where counters stand. */
void agent_stat_lines_tick(struct agent_stat_lines *self, const struct agent_ledger *ledger, int64_t now_ms);

#endif
