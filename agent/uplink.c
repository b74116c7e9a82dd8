#include "agent/uplink.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/mp.h"

enum { IDS_MAX = 256 }; /* of one END or FORGET */

enum sb_rc agent_uplink_init(struct agent_uplink *self, const struct agent_uplink_cfg *cfg)
{
    *self = (struct agent_uplink){.cfg = *cfg, .top_generation = cfg->loaded_generation};
    sb_buf_init(&self->out, AGENT_HUB_MESSAGE_MAX);
    sb_buf_init(&self->body, AGENT_HUB_MESSAGE_MAX);
    self->frames = calloc(AGENT_CONTRIBUTIONS_MAX, sizeof *self->frames);
    return self->frames ? SB_OK : SB_NOMEM;
}

void agent_uplink_destroy(struct agent_uplink *self)
{
    agent_uplink_stop(self);
    sb_buf_release(&self->out);
    sb_buf_release(&self->body);
    free(self->frames);
    free(self->forgets);
    free(self->cell_ids);
    free(self->cell_values);
    *self = (struct agent_uplink){0};
}

void agent_uplink_stop(struct agent_uplink *self)
{
    for (uint32_t i = 0; i < self->n_rows; i++)
        free(self->rows[i].sent);
    free(self->rows);
    self->rows = NULL;
    self->n_rows = self->cap_rows = self->n_families = self->n_series = self->next_id = 0;
    self->first_frame = self->n_frames = self->n_forgets = self->cursor = 0;
    self->number = 0;
    self->is_blocked = false;
    self->phase = AGENT_UPLINK_IDLE;
    sb_buf_release(&self->out);
    sb_buf_release(&self->body);
}

/* Sends what `out` holds, or keeps it to be offered again. */
static void send_out(struct agent_uplink *self, int64_t now_ms)
{
    self->is_blocked = !self->cfg.send(self->cfg.arg, self->out.data, self->out.len);
    if (self->is_blocked)
        return;
    self->sent_ms = now_ms;
    self->cfg.counters->hub_bytes += self->out.len;
}

void agent_uplink_start(struct agent_uplink *self, int64_t now_ms)
{
    agent_uplink_stop(self);
    self->phase = AGENT_UPLINK_GREETING;
    self->started_ms = self->heard_ms = self->sent_ms = now_ms;
    if (agent_uplink_render_hello(self))
        send_out(self, now_ms);
}

static enum agent_uplink_event over(struct agent_uplink *self, const char *why)
{
    sb_fail(&self->err, SB_IO, "%s", why);
    return AGENT_UPLINK_OVER;
}

/* Messages of the hub */

static enum agent_uplink_event bad_message(struct agent_uplink *self)
{
    self->cfg.counters->hub_bad_messages++;
    return over(self, "the hub sent a message that can't be understood");
}

static enum agent_uplink_event take_welcome(struct agent_uplink *self, struct sb_mp *at, uint32_t n)
{
    uint64_t version, highest;
    struct sb_slice hub;
    bool is_closed = false;
    if (self->phase != AGENT_UPLINK_GREETING || n < 4 || !sb_mp_uint(at, &version) || !sb_mp_bin(at, &hub) ||
        !sb_mp_uint(at, &highest))
        return bad_message(self);
    if (n > 4 && !sb_mp_bool(at, &is_closed)) /* an older hub doesn't say */
        return bad_message(self);
    if (is_closed) {
        sb_fail(&self->err, SB_INVAL, "the hub has not heard of this agent for long, and closed its lineage");
        return AGENT_UPLINK_CLOSED;
    }
    if (highest > self->top_generation) {
        sb_fail(&self->err, SB_INVAL, "the hub knows generation %llu of this lineage, the state is at %llu",
                (unsigned long long) highest, (unsigned long long) self->top_generation);
        return AGENT_UPLINK_ROLLED_BACK;
    }
    self->phase = AGENT_UPLINK_OPEN;
    self->cfg.counters->hub_sessions++;
    return AGENT_UPLINK_FINE;
}

static enum agent_uplink_event take_refused(struct agent_uplink *self, struct sb_mp *at, uint32_t n)
{
    struct sb_slice reason = {"", 0};
    if (n < 2 || !sb_mp_str(at, &reason))
        reason = (struct sb_slice){"no reason given", 15};
    self->cfg.counters->hub_refusals++;
    sb_fail(&self->err, SB_INVAL, "the hub refused the session: %.*s", reason.len < 160 ? (int) reason.len : 160,
            reason.at);
    return AGENT_UPLINK_OVER;
}

static enum agent_uplink_event take_ack(struct agent_uplink *self, struct sb_mp *at, uint32_t n)
{
    uint64_t number;
    if (self->phase != AGENT_UPLINK_OPEN || n < 2 || !sb_mp_uint(at, &number) || number > self->number)
        return bad_message(self);
    while (self->n_frames > 0 && self->frames[self->first_frame].number <= number) {
        const struct agent_uplink_frame *frame = &self->frames[self->first_frame];
        if (self->rows[frame->row].under_way == frame->number)
            self->rows[frame->row].under_way = 0;
        self->first_frame = (self->first_frame + 1) % AGENT_CONTRIBUTIONS_MAX;
        self->n_frames--;
    }
    return AGENT_UPLINK_FINE;
}

enum agent_uplink_event agent_uplink_receive(struct agent_uplink *self, const void *bytes, size_t n, int64_t now_ms)
{
    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t elements;
    struct sb_slice type;
    if (self->phase == AGENT_UPLINK_IDLE)
        return AGENT_UPLINK_FINE;
    if (n > AGENT_HUB_MESSAGE_MAX || sb_mp_validate(bytes, n, SB_MP_DEPTH_MAX, NULL) != SB_OK ||
        !sb_mp_array(&at, &elements) || elements == 0 || !sb_mp_str(&at, &type))
        return bad_message(self);
    self->heard_ms = now_ms;
    if (sb_slice_is(type, "ACK"))
        return take_ack(self, &at, elements);
    if (sb_slice_is(type, "WELCOME"))
        return take_welcome(self, &at, elements);
    if (sb_slice_is(type, "REFUSED"))
        return take_refused(self, &at, elements);
    self->cfg.counters->skipped_kinds++;
    return AGENT_UPLINK_FINE;
}

/* Sending */

/* Sends all that is undefined. False: something can't be made, err says why. */
static bool define(struct agent_uplink *self, int64_t now_ms)
{
    while (!self->is_blocked) {
        bool has_piece;
        if (!agent_uplink_render_define(self, &has_piece))
            return false;
        if (!has_piece)
            return true;
        send_out(self, now_ms);
    }
    return true;
}

static void note_under_way(struct agent_uplink *self, uint32_t index, const struct agent_uplink_release *release)
{
    assert(self->n_frames < AGENT_CONTRIBUTIONS_MAX); /* one a contribution */
    self->number++;
    self->rows[index].under_way = self->number;
    self->frames[(self->first_frame + self->n_frames++) % AGENT_CONTRIBUTIONS_MAX] =
        (struct agent_uplink_frame){.number = self->number, .row = index};
    if (release->generation > self->top_generation)
        self->top_generation = release->generation;
    self->cfg.counters->frames++;
}

/* Frames of those whose window is open, each in its turn. False: one can't be made. */
static bool send_frames(struct agent_uplink *self, const struct agent_uplink_release *release, int64_t now_ms)
{
    for (uint32_t i = 0; i < self->n_rows && !self->is_blocked; i++) {
        const uint32_t index = self->cursor;
        self->cursor = self->cursor + 1 < self->n_rows ? self->cursor + 1 : 0;
        struct agent_uplink_row *row = &self->rows[index];
        struct agent_contribution *contribution = agent_ledger_contribution_at(self->cfg.ledger, index);
        if (!contribution || row->epoch != contribution->epoch || row->under_way != 0)
            continue;
        bool is_needed;
        if (!agent_uplink_render_frame(self, row, contribution, release, now_ms, &is_needed))
            return false;
        if (!is_needed)
            continue;
        note_under_way(self, index, release);
        send_out(self, now_ms);
    }
    return true;
}

static void send_ends(struct agent_uplink *self, int64_t now_ms)
{
    uint32_t ids[IDS_MAX], n = 0;
    for (uint32_t i = 0; i < self->n_rows && n < IDS_MAX; i++) {
        struct agent_uplink_row *row = &self->rows[i];
        const struct agent_contribution *contribution = agent_ledger_contribution_at(self->cfg.ledger, i);
        if (!contribution || row->epoch != contribution->epoch)
            continue;
        if (!contribution->is_ended)
            row->is_end_sent = false;
        if (!contribution->is_ended || row->is_end_sent || !row->is_sent || row->is_live)
            continue; /* the end comes behind a frame that says that it doesn't live */
        row->is_end_sent = true;
        ids[n++] = row->id;
    }
    if (n > 0 && agent_uplink_render_ids(self, "END", ids, n))
        send_out(self, now_ms);
}

static void send_forgets(struct agent_uplink *self, const struct agent_uplink_release *release, int64_t now_ms)
{
    uint32_t ids[IDS_MAX], n = 0;
    for (uint32_t i = 0; i < self->n_forgets && n < IDS_MAX;) {
        if (self->forgets[i].after > release->generation) {
            i++;
            continue;
        }
        ids[n++] = self->forgets[i].id;
        self->forgets[i] = self->forgets[--self->n_forgets];
    }
    if (n > 0 && agent_uplink_render_ids(self, "FORGET", ids, n))
        send_out(self, now_ms);
}

static void send_beat(struct agent_uplink *self, int64_t now_ms)
{
    if (now_ms - self->sent_ms < AGENT_HUB_BEAT_MS)
        return;
    sb_buf_clear(&self->out);
    sb_mp_put_array(&self->out, 1);
    sb_mp_put_str(&self->out, "FRAME");
    send_out(self, now_ms);
}

enum agent_uplink_event agent_uplink_pump(struct agent_uplink *self, const struct agent_uplink_release *release,
                                          int64_t now_ms)
{
    if (self->phase == AGENT_UPLINK_IDLE)
        return AGENT_UPLINK_FINE;
    if (self->phase == AGENT_UPLINK_GREETING && now_ms - self->started_ms > AGENT_WELCOME_WAIT_MS)
        return over(self, "the hub did not answer the HELLO");
    if (now_ms - self->heard_ms > self->cfg.hub_timeout_ms)
        return over(self, "the hub is silent");
    if (self->is_blocked)
        send_out(self, now_ms);
    if (self->phase != AGENT_UPLINK_OPEN || self->is_blocked)
        return AGENT_UPLINK_FINE;
    if (!define(self, now_ms) || !send_frames(self, release, now_ms))
        return over(self, "a message to the hub can't be made: memory or a limit");
    if (!self->is_blocked)
        send_ends(self, now_ms);
    if (!self->is_blocked)
        send_forgets(self, release, now_ms);
    if (!self->is_blocked)
        send_beat(self, now_ms);
    return AGENT_UPLINK_FINE;
}

/* What the hub has */

bool agent_uplink_has(const struct agent_uplink *self, const struct agent_contribution *contribution,
                      const struct agent_uplink_release *release)
{
    if (self->phase != AGENT_UPLINK_OPEN || contribution->index >= self->n_rows || self->is_blocked)
        return false;
    const struct agent_uplink_row *row = &self->rows[contribution->index];
    return row->epoch == contribution->epoch && row->is_sent && row->under_way == 0 &&
           row->shown_version == contribution->shown_version && row->is_live == contribution->is_live &&
           release->is_released && row->generation == release->generation;
}

bool agent_uplink_is_settled(const struct agent_uplink *self, const struct agent_uplink_release *release)
{
    for (uint32_t i = 0; i < agent_ledger_n_contributions(self->cfg.ledger); i++) {
        const struct agent_contribution *contribution = agent_ledger_contribution_at(self->cfg.ledger, i);
        if (contribution && !agent_uplink_has(self, contribution, release))
            return false;
    }
    return true;
}

void agent_uplink_forget(struct agent_uplink *self, const struct agent_contribution *contribution, uint64_t after)
{
    if (contribution->index >= self->n_rows)
        return;
    struct agent_uplink_row *row = &self->rows[contribution->index];
    if (row->epoch != contribution->epoch)
        return;
    if (!sb_grow(&self->forgets, &self->cap_forgets, self->n_forgets + 1, sizeof *self->forgets))
        return; /* the hub keeps it until the lineage is closed */
    self->forgets[self->n_forgets++] = (struct agent_uplink_forget){.id = row->id, .after = after};
    free(row->sent);
    *row = (struct agent_uplink_row){0};
}
