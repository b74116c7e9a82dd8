/* Meeting a publisher: its hello, where its records go from then on, and where counting starts (publishers.h). */
#include <stdlib.h>
#include <string.h>

#include "agent/publisher.h"

static void unbind_slot(struct slot *slot)
{
    agent_binding_destroy(&slot->binding);
    slot->contribution = NULL;
    slot->run = NULL;
}

static void unbind_slots(struct slot *slots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        unbind_slot(&slots[i]);
    free(slots);
}

void agent_publisher_unbind(struct publisher *self)
{
    unbind_slots(self->slots, self->n_slots);
    unbind_slot(&self->front_end);
    agent_plan_destroy(&self->plan);
    self->slots = NULL;
    self->n_slots = 0;
}

void agent_publisher_note_time(struct publisher *self, double time, int64_t now_ms)
{
    const double shift = (double) now_ms / 1000 - time;
    if (!self->has_host || shift < self->shift)
        self->shift = shift;
}

bool agent_publishers_note_foreign(struct agent_publishers *self, const uint8_t lineage[AGENT_LINEAGE_LEN])
{
    for (uint32_t i = 0; i < self->n_foreign; i++)
        if (memcmp(self->foreign[i], lineage, AGENT_LINEAGE_LEN) == 0)
            return false;
    if (self->n_foreign == AGENT_FOREIGN_LINEAGES_MAX) {
        memmove(self->foreign[0], self->foreign[1], sizeof self->foreign - AGENT_LINEAGE_LEN);
        self->n_foreign--;
    }
    memcpy(self->foreign[self->n_foreign++], lineage, AGENT_LINEAGE_LEN);
    self->changes++;
    return true;
}

/* Where the records of one source are counted from now on. Leaves the slot without binding where the ledger is full. */
static void bind_slot(struct agent_publishers *self, const struct publisher *publisher, struct agent_plan *plan,
                      const struct agent_hello *hello, const struct agent_hello_source *source, bool is_front_end,
                      struct slot *slot, int64_t now_ms)
{
    bool is_new = false;
    slot->contribution = agent_ledger_contribution(self->cfg.ledger, is_front_end, source->source, source->identity,
                                                   agent_plan_shape(plan), &is_new, &self->err);
    if (slot->contribution)
        slot->binding =
            agent_binding_new(plan, self->cfg.ledger, slot->contribution, hello, source, is_new && !hello->has_mark);
    if (slot->binding) {
        agent_slot_count_run(self, publisher, slot, source, now_ms);
        return;
    }
    slot->contribution = NULL;
    self->cfg.counters->contributions_refused++;
}

static int by_index(const void *a, const void *b)
{
    const struct slot *left = a, *right = b;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Compiles the hello and binds all of its sources; what was bound before is let go only when that has worked. */
static enum sb_rc rebind(struct agent_publishers *self, struct publisher *publisher, const struct agent_hello *hello,
                         int64_t now_ms)
{
    struct agent_plan_counters refused = {0};
    struct agent_plan *plan = agent_plan_new(self->cfg.catalog, self->cfg.ledger, hello, &refused, &self->err);
    if (!plan)
        return self->err.rc;
    self->cfg.counters->plans++;
    self->cfg.counters->bounds_refused += refused.bounds_refused;
    self->cfg.counters->families_refused += refused.families_refused;
    if (refused.last.rc != SB_OK)
        self->plan_warning = refused.last;
    struct slot *slots = calloc(hello->n_sources, sizeof *slots);
    if (!slots) {
        agent_plan_destroy(&plan);
        return sb_fail(&self->err, SB_NOMEM, "%zu sources", hello->n_sources);
    }
    bool is_whole = true;
    for (size_t i = 0; i < hello->n_sources; i++) {
        const struct slot *before = agent_publisher_slot(publisher, hello->sources[i].index);
        slots[i].index = hello->sources[i].index;
        slots[i].is_ended = before && before->is_ended;
        bind_slot(self, publisher, plan, hello, &hello->sources[i], false, &slots[i], now_ms);
        is_whole = is_whole && slots[i].binding;
    }
    qsort(slots, hello->n_sources, sizeof *slots, by_index);
    struct slot front_end = {.is_ended = publisher->front_end.is_ended};
    bool feeds_any = false;
    for (int type = 0; type <= AGENT_RECORD_UNKNOWN; type++) {
        publisher->feeds_front_end[type] = agent_plan_feeds_front_end(plan, (enum agent_record_type) type);
        feeds_any = feeds_any || publisher->feeds_front_end[type];
    }
    if (feeds_any)
        bind_slot(self, publisher, plan, hello, &hello->front_end, true, &front_end, now_ms);

    agent_publisher_unbind(publisher);
    publisher->plan = plan;
    publisher->slots = slots;
    publisher->n_slots = (uint32_t) hello->n_sources;
    publisher->front_end = front_end;
    publisher->shape = hello->shape;
    publisher->is_stale = !is_whole; /* the next hello tries again */
    self->changes++;
    return SB_OK;
}

/* Is every number of the mark among the applied ones? */
static bool holds(const struct sb_ranges *applied, const struct sb_ranges *mark)
{
    size_t i = 0;
    for (size_t j = 0; j < mark->n; j++) {
        while (i < applied->n && applied->at[i].to < mark->at[j].from)
            i++;
        if (i == applied->n || applied->at[i].from > mark->at[j].from || applied->at[i].to < mark->at[j].to)
            return false;
    }
    return true;
}

static void add_mark(struct agent_publishers *self, struct publisher *publisher, const struct sb_ranges *mark)
{
    for (size_t i = 0; i < mark->n; i++)
        if (!sb_ranges_add(&publisher->applied, mark->at[i].from, mark->at[i].to))
            self->cfg.counters->records_over_ranges++;
    self->changes++;
}

/* What the mark says has been counted before: by this lineage, or by one whose state is gone. True: there was any. */
static bool take_mark(struct agent_publishers *self, struct publisher *publisher, const struct agent_hello *hello,
                      bool is_new)
{
    if (!hello->has_mark || holds(&publisher->applied, &hello->mark))
        return false;
    const bool is_ours = memcmp(hello->mark_lineage, self->cfg.lineage, AGENT_LINEAGE_LEN) == 0;
    const bool is_back = is_new && agent_publishers_has_dropped(self, publisher->id);
    if (!is_ours && agent_publishers_note_foreign(self, hello->mark_lineage))
        self->cfg.counters->state_losses++;
    if (is_ours && !is_back)
        self->cfg.rolled_back(self->cfg.arg); /* before anything is added: the mark is of the lineage that ends */
    add_mark(self, publisher, &hello->mark);
    agent_publisher_resume_runs(self, publisher);
    return true;
}

static void apply_latest_to(const struct slot *slot, const struct agent_record *record, const uint8_t *end,
                            const struct agent_moment *when)
{
    struct sb_mp content = {.at = record->content, .end = end};
    if (slot && slot->binding)
        agent_apply(slot->binding, record->type, &content, when, AGENT_APPLY_GAUGES);
}

/* The latest of every gauge input, as if it had just been sent; its age is the one it had when the hello was sent. */
static void apply_latest(struct agent_publishers *self, struct publisher *publisher, const struct agent_hello *hello,
                         bool is_resumed, int64_t now_ms)
{
    struct sb_mp at = sb_mp_over(hello->latest.at, hello->latest.len);
    struct agent_moment when = agent_publisher_moment(publisher);
    uint64_t room = AGENT_FAN_OUT_MAX;
    uint32_t n, elements;
    if (!sb_mp_array(&at, &n))
        return;
    for (; n > 0; n--) {
        struct agent_record record;
        uint64_t number;
        if (!sb_mp_array(&at, &elements) || !sb_mp_uint(&at, &number) || !agent_record_read(&at, &record))
            return; /* can't be: hello.c has read them all */
        for (; elements > 4; elements--)
            if (!sb_mp_skip(&at))
                return;
        if (record.type >= AGENT_RECORD_UNKNOWN)
            continue;
        const bool is_for_all = record.source == AGENT_NONE;
        const uint64_t cost = is_for_all ? (uint64_t) (at.at - record.content) * publisher->n_slots : 0;
        if (cost > room) {
            self->cfg.counters->latest_skipped++;
            continue;
        }
        room -= cost;
        const double age_ms = (hello->time - record.time) * 1000;
        when.arrival_ms = age_ms > 0 && age_ms < 1e15 ? now_ms - (int64_t) age_ms : now_ms;
        when.time = record.time;
        when.number = is_resumed && sb_ranges_has(&publisher->applied, number) ? number : 0;
        for (uint32_t i = 0; is_for_all && i < publisher->n_slots; i++)
            apply_latest_to(&publisher->slots[i], &record, at.end, &when);
        if (!is_for_all)
            apply_latest_to(agent_publisher_slot(publisher, record.source), &record, at.end, &when);
        if (publisher->feeds_front_end[record.type])
            apply_latest_to(&publisher->front_end, &record, at.end, &when);
    }
}

static void note_introduction(struct agent_publishers *self, const struct agent_hello *hello)
{
    struct agent_introduction *note = &self->introduction;
    *note = (struct agent_introduction){.pid = hello->pid, .n_sources = hello->n_sources};
    memcpy(note->publisher, hello->publisher, sizeof note->publisher);
    memcpy(note->engine, hello->engine_name, sizeof note->engine);
    memcpy(note->version, hello->engine_version, sizeof note->version);
    self->has_introduction = true;
}

/* A hello names all sources, ended ones among them: those wait for a beat or a record to live again. */
static void welcome(struct slot *slot, int64_t now_ms)
{
    if (slot->contribution && !slot->contribution->is_ended)
        agent_slot_touch(slot, now_ms);
}

static enum agent_refusal greet(struct agent_publishers *self, struct publisher *publisher,
                                const struct agent_hello *hello, bool is_new, int64_t now_ms)
{
    if (!publisher->has_host && !agent_hosts_hold(self->hosts, hello->host, &publisher->host))
        return AGENT_REFUSED_no_memory;
    agent_publisher_note_time(publisher, hello->time, now_ms);
    publisher->has_host = true;
    const bool is_first = !publisher->plan;
    if (is_first || publisher->is_stale || publisher->shape != hello->shape) {
        const enum sb_rc rc = rebind(self, publisher, hello, now_ms);
        if (rc != SB_OK)
            return rc == SB_NOMEM ? AGENT_REFUSED_no_memory : AGENT_REFUSED_bad_hello;
        for (uint32_t i = 0; i < publisher->n_slots; i++)
            welcome(&publisher->slots[i], now_ms);
        welcome(&publisher->front_end, now_ms);
    }
    if (is_first)
        note_introduction(self, hello);
    const bool is_resumed = take_mark(self, publisher, hello, is_new);
    apply_latest(self, publisher, hello, is_resumed, now_ms);
    return AGENT_ACCEPTED;
}

static enum agent_refusal meet(struct agent_publishers *self, const struct agent_hello *hello, uint64_t next,
                               int64_t now_ms)
{
    struct publisher *publisher = agent_publisher_find(self, hello->publisher);
    const bool is_new = !publisher;
    if (is_new && !agent_publishers_make_room(self, now_ms)) {
        sb_fail(&self->err, SB_FULL, "the table of %d publishers is full", AGENT_PUBLISHERS_MAX);
        return AGENT_REFUSED_too_many_publishers;
    }
    if (is_new)
        publisher = agent_publisher_add(self, hello->publisher, now_ms);
    if (!publisher)
        return AGENT_REFUSED_no_memory;
    const enum agent_refusal refusal = greet(self, publisher, hello, is_new, now_ms);
    if (refusal != AGENT_ACCEPTED) {
        if (is_new)
            agent_publisher_drop(self, publisher);
        return refusal;
    }
    publisher->seen_ms = now_ms;
    agent_publisher_note_next(publisher, AGENT_KIND_HELLO, next);
    self->cfg.counters->hellos++;
    return AGENT_ACCEPTED;
}

enum agent_refusal agent_publisher_hello(struct agent_publishers *self, const struct agent_envelope *message,
                                         int64_t now_ms)
{
    struct agent_hello hello;
    const enum sb_rc rc = agent_hello_read(&hello, message->payload.at, message->payload.len, self->cfg.node,
                                           agent_ledger_labelsets(self->cfg.ledger),
                                           agent_ledger_text_faults(self->cfg.ledger), &self->err);
    if (rc == SB_NOMEM)
        return AGENT_REFUSED_no_memory;
    if (rc != SB_OK)
        return AGENT_REFUSED_bad_hello;
    enum agent_refusal refusal = AGENT_REFUSED_bad_hello;
    if (strcmp(hello.publisher, message->publisher) == 0)
        refusal = meet(self, &hello, message->first, now_ms);
    else
        sb_fail(&self->err, SB_FORMAT, "'publisher' is not the one of the topic");
    agent_hello_release(&hello);
    return refusal;
}
