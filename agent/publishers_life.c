/* Who lives: sources, their contributions, publishers (publishers.h). */
#include <string.h>

#include "agent/publisher.h"

enum { STANDSTILL_MS = 3000 }; /* between two sweeps: this process did not run */

void agent_slot_touch(struct slot *slot, int64_t now_ms)
{
    struct agent_contribution *contribution = slot->contribution;
    if (!contribution || slot->is_ended)
        return;
    contribution->alive_ms = now_ms;
    if (contribution->is_live)
        return;
    contribution->is_live = true;
    contribution->is_ended = false;
    contribution->is_gauge_changed = true;
}

/* The gauges leave at once. Should memory run out they leave with the throttle's next try. */
static void silence(struct agent_contribution *contribution)
{
    contribution->is_live = false;
    contribution->is_gauge_changed = !agent_contribution_publish(contribution);
}

static void end(struct agent_publishers *self, struct agent_contribution *contribution, int64_t now_ms)
{
    agent_contribution_drop_gauges(contribution);
    if (contribution->is_live)
        silence(contribution);
    contribution->is_ended = true;
    contribution->ended_ms = now_ms;
    self->cfg.counters->contributions_ended++;
    self->changes++;
}

bool agent_publisher_is_heard(const struct agent_publishers *self, const struct publisher *publisher, int64_t now_ms)
{
    return now_ms - publisher->seen_ms <= self->cfg.source_timeout_ms;
}

/* Does a publisher that is heard still count there? */
static bool is_served(const struct agent_publishers *self, const struct agent_contribution *contribution,
                      int64_t now_ms)
{
    for (const struct publisher *at = self->table; at; at = at->hh.next) {
        if (!agent_publisher_is_heard(self, at, now_ms))
            continue;
        if (at->front_end.contribution == contribution && !at->front_end.is_ended)
            return true;
        for (uint32_t i = 0; i < at->n_slots; i++)
            if (at->slots[i].contribution == contribution && !at->slots[i].is_ended)
                return true;
    }
    return false;
}

/* Did any publisher say in its final beat that this one has ended? */
static bool was_ended(const struct agent_publishers *self, const struct agent_contribution *contribution)
{
    for (const struct publisher *at = self->table; at; at = at->hh.next) {
        if (at->front_end.contribution == contribution && at->front_end.is_ended)
            return true;
        for (uint32_t i = 0; i < at->n_slots; i++)
            if (at->slots[i].contribution == contribution && at->slots[i].is_ended)
                return true;
    }
    return false;
}

static void end_slot(struct agent_publishers *self, struct slot *slot, int64_t now_ms)
{
    if (slot->is_ended)
        return;
    slot->is_ended = true;
    if (slot->contribution && !slot->contribution->is_ended && !is_served(self, slot->contribution, now_ms))
        end(self, slot->contribution, now_ms);
}

void agent_publisher_beat(struct agent_publishers *self, struct publisher *publisher, const struct agent_beat *beat,
                          int64_t now_ms)
{
    for (uint32_t i = 0; i < beat->n_ended; i++) {
        struct slot *slot = agent_publisher_slot(publisher, beat->ended[i]);
        if (slot)
            end_slot(self, slot, now_ms);
    }
    for (uint32_t i = 0; i < beat->n_live; i++) {
        struct slot *slot = agent_publisher_slot(publisher, beat->live[i]);
        if (!slot)
            continue;
        publisher->is_stale = publisher->is_stale || (slot->is_ended && !slot->binding); /* it was released */
        slot->is_ended = false;
        agent_slot_touch(slot, now_ms);
    }
    bool has_open = publisher->n_slots == 0;
    for (uint32_t i = 0; i < publisher->n_slots && !has_open; i++)
        has_open = !publisher->slots[i].is_ended;
    publisher->is_ended = !has_open;
    if (has_open) {
        publisher->is_stale = publisher->is_stale || (publisher->front_end.is_ended && !publisher->front_end.binding);
        publisher->front_end.is_ended = false;
        agent_slot_touch(&publisher->front_end, now_ms);
    } else {
        end_slot(self, &publisher->front_end, now_ms);
    }
}

bool agent_publishers_release(struct agent_publishers *self, const struct agent_contribution *contribution)
{
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        if (at->front_end.contribution == contribution && !at->front_end.is_ended)
            return false;
        for (uint32_t i = 0; i < at->n_slots; i++)
            if (at->slots[i].contribution == contribution && !at->slots[i].is_ended)
                return false;
    }
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        for (uint32_t i = 0; i <= at->n_slots; i++) {
            struct slot *slot = i < at->n_slots ? &at->slots[i] : &at->front_end;
            if (slot->contribution != contribution)
                continue;
            agent_binding_destroy(&slot->binding);
            slot->contribution = NULL;
        }
    }
    return true;
}

/* Publishers */

/* What it announced and never delivered is lost now. */
static void forget_publisher(struct agent_publishers *self, struct publisher *publisher)
{
    self->cfg.counters->records_lost += agent_publisher_missing(publisher);
    memcpy(self->dropped[self->n_dropped++ % DROPPED_MAX], publisher->id, AGENT_PUBLISHER_ID_LEN);
    self->cfg.counters->publishers_dropped++;
    self->changes++;
    agent_publisher_drop(self, publisher);
}

bool agent_publishers_has_dropped(const struct agent_publishers *self, const char *id)
{
    for (uint32_t i = 0; i < self->n_dropped && i < DROPPED_MAX; i++)
        if (memcmp(self->dropped[i], id, AGENT_PUBLISHER_ID_LEN) == 0)
            return true;
    return false;
}

bool agent_publishers_make_room(struct agent_publishers *self, int64_t now_ms)
{
    if (HASH_COUNT(self->table) < AGENT_PUBLISHERS_MAX)
        return true;
    struct publisher *oldest = self->table;
    for (struct publisher *at = self->table; at; at = at->hh.next)
        if (at->seen_ms < oldest->seen_ms)
            oldest = at;
    if (now_ms - oldest->seen_ms < AGENT_EVICT_SILENT_MS)
        return false;
    forget_publisher(self, oldest);
    return true;
}

static void sweep_publishers(struct agent_publishers *self, int64_t now_ms)
{
    struct publisher *at, *next;
    HASH_ITER(hh, self->table, at, next)
    {
        const int64_t silent_ms = now_ms - at->seen_ms;
        if (silent_ms > self->cfg.forget_after_ms || (at->is_ended && silent_ms > AGENT_ENDED_LINGER_MS))
            forget_publisher(self, at);
    }
}

/* Contributions */

/* Does the same source live on under other labels, say a new instance_id? */
static bool is_superseded(const struct agent_ledger *ledger, const struct agent_contribution *contribution)
{
    for (uint32_t i = 0; i < agent_ledger_n_contributions(ledger); i++) {
        const struct agent_contribution *other = agent_ledger_contribution_at(ledger, i);
        if (other && other->is_live && other->source == contribution->source &&
            other->is_front_end == contribution->is_front_end && other->epoch > contribution->epoch)
            return true;
    }
    return false;
}

static void judge(struct agent_publishers *self, struct agent_contribution *contribution, int64_t now_ms)
{
    const int64_t silent_ms = now_ms - contribution->alive_ms;
    if (contribution->is_ended)
        return;
    if (contribution->is_live && silent_ms > self->cfg.source_timeout_ms) {
        silence(contribution);
        if (was_ended(self, contribution)) {
            end(self, contribution, now_ms);
            return;
        }
    }
    if (!contribution->is_live &&
        (silent_ms > self->cfg.forget_after_ms || is_superseded(self->cfg.ledger, contribution)))
        end(self, contribution, now_ms);
}

/* This process stood still (stopped, or the machine slept): nobody could be heard meanwhile. */
static void excuse(struct agent_publishers *self, int64_t pause_ms, int64_t now_ms)
{
    for (struct publisher *at = self->table; at; at = at->hh.next)
        at->seen_ms = at->seen_ms + pause_ms < now_ms ? at->seen_ms + pause_ms : now_ms;
    for (uint32_t i = 0; i < agent_ledger_n_contributions(self->cfg.ledger); i++) {
        struct agent_contribution *at = agent_ledger_contribution_at(self->cfg.ledger, i);
        if (at)
            at->alive_ms = at->alive_ms + pause_ms < now_ms ? at->alive_ms + pause_ms : now_ms;
    }
}

void agent_publishers_set_timeouts(struct agent_publishers *self, int64_t source_timeout_ms, int64_t forget_after_ms)
{
    self->cfg.source_timeout_ms = source_timeout_ms;
    self->cfg.forget_after_ms = forget_after_ms;
}

void agent_publishers_sweep(struct agent_publishers *self, bool is_drained, int64_t now_ms)
{
    if (self->is_swept && now_ms - self->swept_ms > STANDSTILL_MS)
        excuse(self, now_ms - self->swept_ms, now_ms);
    self->is_swept = true;
    self->swept_ms = now_ms;
    if (!is_drained && ++self->n_postponed <= AGENT_SWEEPS_POSTPONED_MAX)
        return;
    self->n_postponed = 0;
    for (uint32_t i = 0; i < agent_ledger_n_contributions(self->cfg.ledger); i++) {
        struct agent_contribution *contribution = agent_ledger_contribution_at(self->cfg.ledger, i);
        if (contribution)
            judge(self, contribution, now_ms);
    }
    sweep_publishers(self, now_ms);
    agent_publishers_sweep_runs(self, now_ms);
}
