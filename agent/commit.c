#include "agent/commit.h"

#include <string.h>

void agent_commit_init(struct agent_commit *self, const struct agent_commit_cfg *cfg, const struct agent_state *state)
{
    *self = (struct agent_commit){.cfg = *cfg, .state = *state, .is_wanted = true};
    sb_buf_init(&self->buf, AGENT_STATE_MAX);
}

void agent_commit_release(struct agent_commit *self)
{
    sb_buf_release(&self->buf);
}

static enum sb_rc write_state(struct agent_commit *self, const struct agent_state *next)
{
    sb_buf_clear(&self->buf);
    agent_state_save(next, self->cfg.ledger, self->cfg.publishers, self->cfg.counters, &self->buf);
    if (self->buf.is_overflow)
        return sb_fail(&self->err, SB_FULL, "the state is over %d bytes, or memory ran out", AGENT_STATE_MAX);
    self->bytes = self->buf.len;
    return self->cfg.write(self->cfg.arg, self->buf.data, self->buf.len, &self->err);
}

static void commit(struct agent_commit *self, int64_t now_ms)
{
    const struct agent_state before = self->state;
    struct agent_state next = before;
    next.generation++;
    const uint64_t changes = agent_publishers_changes(self->cfg.publishers);
    self->is_released = false;
    self->due_ms = now_ms + self->cfg.period_ms;
    self->err = (struct sb_err){0};
    agent_ledger_stage(self->cfg.ledger);
    if (write_state(self, &next) != SB_OK) {
        self->cfg.counters->commit_failures++;
        self->is_wanted = true;
        return;
    }
    self->cfg.counters->commits++;
    self->state = next;
    self->changes = changes;
    self->is_wanted = false;
    self->is_waiting = true;
    self->written_ms = now_ms;
    agent_publishers_send_applied(self->cfg.publishers, now_ms);
}

static void try_release(struct agent_commit *self, int64_t now_ms)
{
    if (!agent_publishers_all_marked(self->cfg.publishers)) {
        if (now_ms - self->written_ms < AGENT_MARK_WAIT_MS)
            return;
        agent_publishers_give_up_marks(self->cfg.publishers);
    }
    self->is_waiting = false;
    self->is_released = true;
    self->released = self->state.generation;
}

static bool is_changed(const struct agent_commit *self)
{
    return self->is_wanted || self->changes != agent_publishers_changes(self->cfg.publishers);
}

bool agent_commit_tick(struct agent_commit *self, int64_t now_ms)
{
    if (self->is_waiting) {
        try_release(self, now_ms);
        const int64_t window_ms =
            self->cfg.period_ms < AGENT_RELEASED_MIN_MS ? self->cfg.period_ms : AGENT_RELEASED_MIN_MS;
        if (self->is_released && self->due_ms < now_ms + window_ms)
            self->due_ms = now_ms + window_ms; /* marks took long: the hubs get their turn all the same */
    }
    if (self->is_waiting || now_ms < self->due_ms || !is_changed(self))
        return false;
    commit(self, now_ms);
    if (self->is_waiting)
        try_release(self, now_ms); /* nobody to wait for: at once */
    return true;
}

void agent_commit_set_period(struct agent_commit *self, int64_t period_ms, int64_t now_ms)
{
    self->cfg.period_ms = period_ms;
    if (self->due_ms > now_ms + period_ms)
        self->due_ms = now_ms + period_ms;
}

void agent_commit_hurry(struct agent_commit *self)
{
    self->due_ms = INT64_MIN;
    self->is_wanted = true;
}

bool agent_commit_is_settled(const struct agent_commit *self)
{
    return self->is_released && !is_changed(self);
}

void agent_commit_new_lineage(struct agent_commit *self, const uint8_t fresh[AGENT_LINEAGE_LEN], bool is_closed)
{
    uint8_t old[AGENT_LINEAGE_LEN];
    memcpy(old, self->state.lineage, sizeof old);
    memcpy(self->state.lineage, fresh, AGENT_LINEAGE_LEN);
    if (is_closed) {
        agent_ledger_keep_untold(self->cfg.ledger);
        self->cfg.counters->lineages_closed++;
    } else {
        agent_ledger_clear(self->cfg.ledger);
        self->cfg.counters->state_losses++;
    }
    self->is_waiting = false;
    self->is_released = false;
    self->is_wanted = true;
    agent_publishers_new_lineage(self->cfg.publishers, old);
}
