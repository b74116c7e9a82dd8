#include "agent/asking.h"

/*
 * The hole to ask for: in turn, but back to the first one after an answer that brought nothing. Else an endless hole of
 * numbers that were never given would keep those before it waiting for ever.
 */
static bool choose_hole(struct agent_asking *self, const struct sb_ranges *applied, uint64_t last,
                        struct sb_range *hole, bool *is_other)
{
    struct sb_range first;
    if (!sb_ranges_first_hole(applied, 1, last, &first))
        return false;
    const bool has_next = sb_ranges_first_hole(applied, self->turn + 1, last, hole);
    const bool is_poor_beyond = self->is_poor && self->question.from > first.from;
    self->is_out_of_turn = has_next && is_poor_beyond && !self->is_out_of_turn;
    /* The rest of a hole that gave nothing is the same hole: a number that was never given must not keep us asking. */
    *is_other = has_next && !self->is_out_of_turn && hole->from > self->turn + 1;
    if (!has_next || self->is_out_of_turn)
        *hole = first;
    return true;
}

bool agent_asking_next(struct agent_asking *self, const struct sb_ranges *applied, uint64_t last, int64_t now_ms,
                       struct sb_range *question)
{
    if (self->is_out)
        return false;
    struct agent_asking next = *self;
    struct sb_range hole;
    bool is_other;
    if (!choose_hole(&next, applied, last, &hole, &is_other)) {
        self->has_hole = false;
        return false;
    }
    if (!self->has_hole) {
        self->has_hole = true;
        self->hole_ms = now_ms;
    }
    if (now_ms - self->hole_ms < AGENT_ASK_PATIENCE_MS)
        return false;
    if (self->is_poor && !is_other && now_ms - self->asked_ms < AGENT_ASK_RETRY_MS)
        return false;
    const uint64_t width = self->width ? self->width : AGENT_ASK_MAX;
    if (hole.to - hole.from >= width)
        hole.to = hole.from + width - 1;
    self->is_out = true;
    self->is_refused = false;
    self->is_out_of_turn = next.is_out_of_turn;
    if (!self->is_out_of_turn)
        self->turn = hole.to;
    self->question = hole;
    self->asked_ms = now_ms;
    self->gained = 0;
    *question = hole;
    return true;
}

void agent_asking_gained(struct agent_asking *self, uint32_t n, int64_t now_ms)
{
    if (!self->is_out)
        return;
    self->gained += n;
    self->asked_ms = now_ms;
}

void agent_asking_refused(struct agent_asking *self)
{
    self->is_refused = self->is_out;
}

/* Counts from..to as applied; returns how many of them were not. None where the ranges have no room for it. */
static uint64_t lose(struct sb_ranges *applied, uint64_t from, uint64_t to)
{
    if (from > to)
        return 0;
    const uint64_t before = sb_ranges_total(applied);
    return sb_ranges_add(applied, from, to) ? sb_ranges_total(applied) - before : 0;
}

/* The same hole is next. */
static void stay(struct agent_asking *self)
{
    if (!self->is_out_of_turn)
        self->turn = self->question.from - 1;
}

/* The question is over, one way or the other. */
static uint64_t close_question(struct agent_asking *self, struct sb_ranges *applied)
{
    const uint64_t n = self->question.to - self->question.from + 1;
    uint64_t lost = 0;
    if (self->is_refused && n > 1) {
        self->width = n / 2;
        stay(self);
    } else if (self->is_refused) {
        lost = lose(applied, self->question.from, self->question.to);
    } else if (self->width) {
        self->width = self->width < AGENT_ASK_MAX / 2 ? 2 * self->width : 0;
    }
    self->is_out = false;
    return lost;
}

uint64_t agent_asking_end(struct agent_asking *self, struct sb_ranges *applied, const struct sb_range *answered,
                          uint64_t first_held, int64_t now_ms)
{
    uint64_t lost = lose(applied, 1, first_held - 1);
    if (!self->is_out || answered->from != self->question.from || answered->to != self->question.to)
        return lost;
    lost += close_question(self, applied);
    self->is_poor = lost == 0 && self->gained == 0 && !self->is_refused;
    self->asked_ms = now_ms;
    return lost;
}

uint64_t agent_asking_expire(struct agent_asking *self, struct sb_ranges *applied, int64_t now_ms)
{
    if (!self->is_out || now_ms - self->asked_ms < AGENT_ASK_RETRY_MS)
        return 0;
    const uint64_t lost = close_question(self, applied);
    stay(self);
    return lost;
}
