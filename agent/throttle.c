#include "agent/throttle.h"

#include <stdlib.h>
#include <string.h>

void agent_throttle_init(struct agent_throttle *self, int64_t period_ms)
{
    *self = (struct agent_throttle){.period_ms = period_ms};
}

void agent_throttle_release(struct agent_throttle *self)
{
    free(self->entries);
    *self = (struct agent_throttle){0};
}

static bool make_room(struct agent_throttle *self, uint32_t n)
{
    if (n <= self->n)
        return true;
    struct agent_throttle_entry *grown = realloc(self->entries, n * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + self->n, 0, (n - self->n) * sizeof *grown); /* epoch 0: nobody's */
    self->entries = grown;
    self->n = n;
    return true;
}

void agent_throttle_pass(struct agent_throttle *self, struct agent_ledger *ledger, int64_t now_ms)
{
    const uint32_t n = agent_ledger_n_contributions(ledger);
    if (!make_room(self, n))
        return; /* memory is short: the next pass tries again */
    for (uint32_t i = 0; i < n; i++) {
        struct agent_contribution *contribution = agent_ledger_contribution_at(ledger, i);
        if (!contribution || !contribution->is_gauge_changed)
            continue;
        struct agent_throttle_entry *entry = &self->entries[i];
        if (entry->epoch == contribution->epoch && now_ms - entry->left_ms < self->period_ms)
            continue;
        if (agent_contribution_publish(contribution))
            *entry = (struct agent_throttle_entry){.epoch = contribution->epoch, .left_ms = now_ms};
    }
}
