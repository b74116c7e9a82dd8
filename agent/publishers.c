/* The table of publishers: looking up, taking messages, counting records (publishers.h). */
#include "agent/publishers.h"

#include <stdlib.h>
#include <string.h>

#include "agent/publisher.h"

enum { OUT_MAX = 64 * 1024 }; /* the largest message to a publisher: 1,024 ranges */

struct agent_publishers *agent_publishers_new(const struct agent_publishers_cfg *cfg)
{
    struct agent_publishers *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->cfg = *cfg;
    sb_ranges_init(&self->ranges);
    sb_buf_init(&self->out, OUT_MAX);
    for (size_t i = 0; i < STRANGERS; i++)
        self->strangers_ms[i] = INT64_MIN;
    self->hosts = agent_hosts_new();
    self->raws = agent_raws_new(cfg->ledger);
    if (!self->hosts || !self->raws)
        agent_publishers_destroy(&self);
    return self;
}

void agent_publishers_destroy(struct agent_publishers **self_p)
{
    struct agent_publishers *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    struct publisher *publisher, *next;
    HASH_ITER(hh, self->table, publisher, next)
    {
        agent_publisher_drop(self, publisher);
    }
    agent_hosts_destroy(&self->hosts);
    agent_raws_destroy(&self->raws);
    sb_ranges_release(&self->ranges);
    sb_buf_release(&self->out);
    free(self);
}

const char *agent_publishers_last_error(const struct agent_publishers *self)
{
    return self->err.text;
}

const char *agent_publishers_take_warning(struct agent_publishers *self)
{
    if (self->plan_warning.rc == SB_OK)
        return NULL;
    self->plan_warning.rc = SB_OK;
    return self->plan_warning.text;
}

bool agent_publishers_take_introduction(struct agent_publishers *self, struct agent_introduction *out)
{
    if (!self->has_introduction)
        return false;
    self->has_introduction = false;
    *out = self->introduction;
    return true;
}

uint64_t agent_publishers_changes(const struct agent_publishers *self)
{
    return self->changes;
}

struct publisher *agent_publisher_find(struct agent_publishers *self, const char *id)
{
    if (self->last && memcmp(self->last->id, id, AGENT_PUBLISHER_ID_LEN) == 0)
        return self->last;
    struct publisher *found = NULL;
    HASH_FIND(hh, self->table, id, AGENT_PUBLISHER_ID_LEN, found);
    if (found)
        self->last = found;
    return found;
}

struct publisher *agent_publisher_add(struct agent_publishers *self, const char *id, int64_t now_ms)
{
    struct publisher *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    memcpy(made->id, id, AGENT_PUBLISHER_ID_LEN);
    made->number = ++self->last_number;
    made->next = 1;
    made->seen_ms = now_ms;
    made->hello_asked_ms = INT64_MIN;
    sb_ranges_init(&made->applied);
    HASH_ADD(hh, self->table, id, AGENT_PUBLISHER_ID_LEN, made);
    return made;
}

void agent_publisher_note_next(struct publisher *self, enum agent_kind kind, uint64_t next)
{
    const bool is_stated = kind == AGENT_KIND_HELLO || kind == AGENT_KIND_BEAT;
    if (is_stated || next > self->next)
        self->next = next;
}

uint64_t agent_publisher_missing(const struct publisher *self)
{
    uint64_t missing = 0;
    struct sb_range hole = {0};
    while (sb_ranges_first_hole(&self->applied, hole.to + 1, self->next - 1, &hole))
        missing += hole.to - hole.from + 1;
    return missing;
}

void agent_publisher_drop(struct agent_publishers *self, struct publisher *publisher)
{
    if (self->last == publisher)
        self->last = NULL;
    HASH_DELETE(hh, self->table, publisher);
    agent_publisher_unbind(publisher);
    agent_raws_drop(self->raws, publisher->id);
    if (publisher->has_host)
        agent_hosts_drop(self->hosts, publisher->host);
    sb_ranges_release(&publisher->applied);
    free(publisher);
}

struct slot *agent_publisher_slot(const struct publisher *self, uint32_t index)
{
    if (index < self->n_slots && self->slots[index].index == index)
        return &self->slots[index];
    uint32_t low = 0, high = self->n_slots;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (self->slots[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < self->n_slots && self->slots[low].index == index ? &self->slots[low] : NULL;
}

/* Talking to a publisher */

static void send_out(struct agent_publishers *self, const char *id)
{
    if (!self->out.is_overflow)
        self->cfg.send(self->cfg.arg, id, self->out.data, self->out.len);
}

static void ask_hello(struct agent_publishers *self, const char *id, int64_t *asked_ms, int64_t now_ms)
{
    if (*asked_ms != INT64_MIN && now_ms - *asked_ms < AGENT_HELLO_RETRY_MS)
        return;
    *asked_ms = now_ms;
    sb_buf_clear(&self->out);
    sb_mp_put_array(&self->out, 1);
    sb_mp_put_str(&self->out, "hello");
    send_out(self, id);
    self->cfg.counters->hello_requests++;
}

/* One that isn't in the table: nothing is kept of it but the time, so that made-up ids cost no memory. */
static void ask_stranger(struct agent_publishers *self, const char *id, int64_t now_ms)
{
    unsigned hash;
    HASH_VALUE(id, AGENT_PUBLISHER_ID_LEN, hash);
    ask_hello(self, id, &self->strangers_ms[hash % STRANGERS], now_ms);
}

static void ask_records(struct agent_publishers *self, struct publisher *publisher, int64_t now_ms)
{
    struct sb_range question;
    if (!agent_asking_next(&publisher->asking, &publisher->applied, publisher->next - 1, now_ms, &question))
        return;
    sb_buf_clear(&self->out);
    sb_mp_put_array(&self->out, 3);
    sb_mp_put_str(&self->out, "ask");
    sb_mp_put_uint(&self->out, question.from);
    sb_mp_put_uint(&self->out, question.to);
    send_out(self, publisher->id);
    self->cfg.counters->asks++;
}

static void count_lost(struct agent_publishers *self, struct publisher *publisher, uint64_t lost)
{
    if (lost == 0)
        return;
    if (publisher->front_end.binding)
        agent_binding_count(publisher->front_end.binding, SB_AGENT_COUNT_lost_records, lost);
    self->cfg.counters->records_lost += lost;
    self->changes++;
}

/* Records */

static void apply_to(struct slot *slot, const struct agent_record *record, const uint8_t *end,
                     const struct agent_moment *when, enum agent_apply_parts parts)
{
    if (!slot->binding)
        return;
    struct sb_mp content = {.at = record->content, .end = end};
    agent_apply(slot->binding, record->type, &content, when, parts);
    agent_slot_touch(slot, when->arrival_ms);
}

static void apply_record(struct publisher *publisher, struct slot *slot, const struct agent_record *record,
                         const uint8_t *end, const struct agent_moment *when)
{
    if (slot)
        apply_to(slot, record, end, when, AGENT_APPLY_ALL);
    enum agent_apply_parts parts = AGENT_APPLY_ALL;
    for (uint32_t i = 0; !slot && i < publisher->n_slots; i++) {
        apply_to(&publisher->slots[i], record, end, when, parts);
        if (publisher->slots[i].binding)
            parts = AGENT_APPLY_AGAIN;
    }
    if (publisher->feeds_front_end[record->type])
        apply_to(&publisher->front_end, record, end, when, AGENT_APPLY_ALL);
}

/* True: it was new, and is counted. */
static bool take_record(struct agent_publishers *self, struct publisher *publisher, uint64_t number,
                        const struct agent_record *record, const uint8_t *end, struct agent_moment *when)
{
    struct agent_counters *counters = self->cfg.counters;
    if (sb_ranges_has(&publisher->applied, number)) {
        counters->records_duplicate++;
        return false;
    }
    struct slot *slot = NULL;
    if (record->source != AGENT_NONE && record->type < AGENT_RECORD_UNKNOWN) {
        slot = agent_publisher_slot(publisher, record->source);
        if (!slot || !slot->binding) {
            publisher->is_stale = publisher->is_stale || (slot && slot->is_ended); /* it was released */
            counters->records_unknown_source++;
            ask_hello(self, publisher->id, &publisher->hello_asked_ms, when->arrival_ms);
            return false;
        }
    }
    if (!sb_ranges_add(&publisher->applied, number, number)) {
        counters->records_over_ranges++;
        return false;
    }
    if (record->type == AGENT_RECORD_LOST) {
        count_lost(self, publisher, 1);
        return true;
    }
    counters->records_applied++;
    if (record->type == AGENT_RECORD_UNKNOWN)
        return true;
    when->time = record->time;
    when->number = number;
    apply_record(publisher, slot, record, end, when);
    return true;
}

/* A record is read once for each source that it is for: by all sources, if it names none. */
static bool is_too_wide(const struct publisher *publisher, const struct agent_envelope *message, const uint8_t *end)
{
    uint64_t bytes = 0;
    if (publisher->n_slots <= AGENT_FAN_OUT_MAX / AGENT_PAYLOAD_MAX)
        return false;
    for (uint32_t i = 0; i < message->count; i++) {
        const struct agent_record *record = &message->records[i];
        const uint8_t *next = i + 1 < message->count ? record[1].content : end;
        if (record->source == AGENT_NONE && record->type < AGENT_RECORD_UNKNOWN)
            bytes += (uint64_t) (next - record->content);
    }
    return bytes * publisher->n_slots > AGENT_FAN_OUT_MAX;
}

static enum agent_refusal take_records(struct agent_publishers *self, struct publisher *publisher,
                                       const struct agent_envelope *message, enum agent_socket socket, int64_t now_ms)
{
    if (!publisher->plan) {
        self->cfg.counters->records_unknown_publisher += message->count;
        ask_hello(self, publisher->id, &publisher->hello_asked_ms, now_ms);
        return AGENT_ACCEPTED;
    }
    struct agent_moment when = agent_publisher_moment(publisher);
    when.arrival_ms = now_ms;
    const uint8_t *end = (const uint8_t *) message->payload.at + message->payload.len;
    if (is_too_wide(publisher, message, end)) {
        if (socket == AGENT_REPLAY)
            agent_asking_refused(&publisher->asking);
        return AGENT_REFUSED_too_wide;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < message->count; i++)
        n += take_record(self, publisher, message->first + i, &message->records[i], end, &when);
    self->changes += n;
    if (socket == AGENT_REPLAY)
        agent_asking_gained(&publisher->asking, n, now_ms);
    return AGENT_ACCEPTED;
}

/* The other kinds */

/* Unknown, or released since it had ended: only a hello can bind it. */
static bool is_unbound(const struct slot *slot)
{
    return !slot || (slot->is_ended && !slot->binding);
}

static void check_times(struct agent_publishers *self, const struct publisher *publisher, double time)
{
    for (uint32_t i = 0; i < publisher->n_slots; i++)
        if (publisher->slots[i].contribution)
            self->cfg.counters->times_ahead +=
                agent_contribution_check_times(publisher->slots[i].contribution, publisher->number, time);
    if (publisher->front_end.contribution)
        self->cfg.counters->times_ahead +=
            agent_contribution_check_times(publisher->front_end.contribution, publisher->number, time);
}

static enum agent_refusal take_beat(struct agent_publishers *self, struct publisher *publisher,
                                    const struct agent_envelope *message, int64_t now_ms)
{
    struct agent_skipped skipped = {0};
    if (!agent_beat_read(message->payload, &self->beat, &skipped))
        return AGENT_REFUSED_bad_beat;
    self->cfg.counters->skipped_elements += skipped.elements;
    agent_publisher_note_time(publisher, self->beat.time, now_ms);
    check_times(self, publisher, self->beat.time);
    if (!publisher->plan)
        ask_hello(self, publisher->id, &publisher->hello_asked_ms, now_ms);
    for (uint32_t i = 0; publisher->plan && i < self->beat.n_live; i++)
        if (is_unbound(agent_publisher_slot(publisher, self->beat.live[i])))
            ask_hello(self, publisher->id, &publisher->hello_asked_ms, now_ms);
    agent_publisher_beat(self, publisher, &self->beat, now_ms);
    return AGENT_ACCEPTED;
}

static enum agent_refusal take_end(struct agent_publishers *self, struct publisher *publisher,
                                   const struct agent_envelope *message, int64_t now_ms)
{
    struct sb_range answered;
    if (!agent_end_read(message->payload, &answered))
        return AGENT_REFUSED_bad_end;
    count_lost(self, publisher,
               agent_asking_end(&publisher->asking, &publisher->applied, &answered, message->first, now_ms));
    ask_records(self, publisher, now_ms);
    return AGENT_ACCEPTED;
}

static enum agent_refusal take_mark(struct agent_publishers *self, struct publisher *publisher,
                                    const struct agent_envelope *message)
{
    uint8_t lineage[AGENT_LINEAGE_LEN];
    if (!agent_mark_read(message->payload, lineage, &self->ranges))
        return AGENT_REFUSED_bad_mark;
    const uint64_t total = sb_ranges_total(&self->ranges);
    if (memcmp(lineage, self->cfg.lineage, AGENT_LINEAGE_LEN) != 0 || total <= publisher->marked_total)
        return AGENT_ACCEPTED; /* an echo from before */
    publisher->marked_total = total;
    if (total < publisher->told_total)
        return AGENT_ACCEPTED;
    publisher->is_awaited = false;
    publisher->is_slow = false;
    return AGENT_ACCEPTED;
}

enum agent_refusal agent_publishers_take(struct agent_publishers *self, const struct agent_envelope *message,
                                         enum agent_socket socket, int64_t now_ms)
{
    if (message->kind == AGENT_KIND_COUNT)
        return AGENT_ACCEPTED;
    if (message->kind == AGENT_KIND_HELLO)
        return agent_publisher_hello(self, message, now_ms);
    struct publisher *publisher = agent_publisher_find(self, message->publisher);
    if (!publisher) {
        if (message->kind == AGENT_KIND_REC)
            self->cfg.counters->records_unknown_publisher += message->count;
        ask_stranger(self, message->publisher, now_ms);
        return AGENT_ACCEPTED;
    }
    publisher->seen_ms = now_ms;
    agent_publisher_note_next(publisher, message->kind, message->first + message->count);
    switch (message->kind) {
    case AGENT_KIND_REC:
        return take_records(self, publisher, message, socket, now_ms);
    case AGENT_KIND_BEAT:
        return take_beat(self, publisher, message, now_ms);
    case AGENT_KIND_END:
        return take_end(self, publisher, message, now_ms);
    case AGENT_KIND_MARK:
        return take_mark(self, publisher, message);
    case AGENT_KIND_HELLO:
    case AGENT_KIND_COUNT:
        break;
    }
    return AGENT_ACCEPTED;
}

void agent_publishers_refused(struct agent_publishers *self, const char *publisher_id)
{
    struct publisher *publisher = agent_publisher_find(self, publisher_id);
    if (publisher)
        agent_asking_refused(&publisher->asking);
}

void agent_publishers_tick(struct agent_publishers *self, int64_t now_ms)
{
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        if (!at->plan || now_ms - at->seen_ms > self->cfg.source_timeout_ms)
            continue;
        count_lost(self, at, agent_asking_expire(&at->asking, &at->applied, now_ms));
        ask_records(self, at, now_ms);
    }
}

/* Marks */

static bool is_alive(const struct agent_publishers *self, const struct publisher *publisher, int64_t now_ms)
{
    return publisher->plan && now_ms - publisher->seen_ms <= self->cfg.source_timeout_ms;
}

void agent_publishers_send_applied(struct agent_publishers *self, int64_t now_ms)
{
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        const uint64_t total = sb_ranges_total(&at->applied);
        if (total == at->marked_total || !at->plan)
            continue;
        sb_buf_clear(&self->out);
        sb_mp_put_array(&self->out, 3);
        sb_mp_put_str(&self->out, "applied");
        sb_mp_put_bin(&self->out, self->cfg.lineage, AGENT_LINEAGE_LEN);
        sb_ranges_pack(&at->applied, &self->out);
        send_out(self, at->id);
        at->told_total = total;
        at->is_awaited = !at->is_slow && is_alive(self, at, now_ms);
    }
}

bool agent_publishers_all_marked(const struct agent_publishers *self)
{
    for (const struct publisher *at = self->table; at; at = at->hh.next)
        if (at->is_awaited)
            return false;
    return true;
}

void agent_publishers_give_up_marks(struct agent_publishers *self)
{
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        if (!at->is_awaited)
            continue;
        at->is_awaited = false;
        at->is_slow = true;
        self->cfg.counters->marks_missed++;
    }
}

void agent_publishers_new_lineage(struct agent_publishers *self, const uint8_t old[AGENT_LINEAGE_LEN])
{
    (void) agent_publishers_note_foreign(self, old);
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        at->told_total = 0;
        at->marked_total = 0;
        at->is_awaited = false;
    }
    self->changes++;
}

void agent_publishers_count(const struct agent_publishers *self, int64_t now_ms, uint32_t *all, uint32_t *live,
                            uint64_t *missing)
{
    *all = HASH_COUNT(self->table);
    *live = 0;
    *missing = 0;
    for (const struct publisher *at = self->table; at; at = at->hh.next) {
        *live += is_alive(self, at, now_ms) && !at->is_ended;
        *missing += agent_publisher_missing(at);
    }
}
