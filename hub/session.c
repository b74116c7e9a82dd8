#include "hub/session.h"

#include <stdlib.h>
#include <string.h>

#include "hub/session_parts.h"

static enum hub_refusal on_hello(struct hub_session *self, struct sb_mp *at, uint32_t n, int64_t now_ms,
                                 const uint8_t hub_id[HUB_ID_BYTES], struct sb_buf *answer);
static enum hub_refusal on_ids(struct hub_session *self, struct sb_mp *at, uint32_t n,
                               void (*apply)(struct hub_session *self, struct hub_contribution_slot *slot));
static void end_slot(struct hub_session *self, struct hub_contribution_slot *slot);
static void forget_slot(struct hub_session *self, struct hub_contribution_slot *slot);

void hub_session_init(struct hub_session *self, struct hub_store *store, uint64_t serial, int64_t now_ms)
{
    *self = (struct hub_session){.serial = serial, .store = store, .heard_ms = now_ms};
    sb_ranges_init(&self->applied);
}

void hub_session_release(struct hub_session *self)
{
    if (self->lineage)
        hub_store_end_session(self->store, self->lineage, self->serial);
    sb_ranges_release(&self->applied);
    free(self->cells);
    free(self->families);
    free(self->contributions);
    *self = (struct hub_session){0};
}

struct hub_contribution_slot *hub_session_contribution(const struct hub_session *self, uint64_t id)
{
    if (id >= self->n_contributions || self->contributions[id].state != HUB_SLOT_DEFINED)
        return NULL;
    return &self->contributions[id];
}

static enum hub_refusal dispatch(struct hub_session *self, struct sb_slice type, struct sb_mp *at, uint32_t n,
                                 int64_t now_ms)
{
    if (self->lineage->session != self->serial)
        return HUB_REFUSAL_replaced;
    self->lineage->heard_ms = now_ms;
    if (self->lineage->is_closed)
        return HUB_REFUSAL_closed;
    if (sb_slice_is(type, "FRAME"))
        return n == 0 ? HUB_OK : hub_session_frame(self, at, n, now_ms);
    if (sb_slice_is(type, "DEFINE"))
        return hub_session_define(self, at, n);
    if (sb_slice_is(type, "END"))
        return on_ids(self, at, n, end_slot);
    if (sb_slice_is(type, "FORGET"))
        return on_ids(self, at, n, forget_slot);
    self->store->counters->skipped_messages++;
    return HUB_OK;
}

enum hub_refusal hub_session_take(struct hub_session *self, const uint8_t hub_id[HUB_ID_BYTES], const void *bytes,
                                  size_t n, int64_t now_ms, struct sb_buf *answer)
{
    if (n > HUB_MESSAGE_MAX)
        return HUB_REFUSAL_too_large;
    switch (sb_mp_validate(bytes, n, SB_MP_DEPTH_MAX, NULL)) {
    case SB_OK:
        break;
    case SB_FULL:
        return HUB_REFUSAL_too_deep;
    default:
        return HUB_REFUSAL_malformed;
    }

    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t n_elements;
    struct sb_slice type;
    if (!sb_mp_array(&at, &n_elements) || n_elements == 0 || !sb_mp_str(&at, &type))
        return HUB_REFUSAL_type;

    self->heard_ms = now_ms;
    self->store->now_ms = now_ms;
    bool is_hello = sb_slice_is(type, "HELLO");
    if (is_hello && self->lineage)
        return HUB_REFUSAL_again;
    if (is_hello)
        return on_hello(self, &at, n_elements - 1, now_ms, hub_id, answer);
    if (!self->lineage)
        return HUB_REFUSAL_no_session;
    return dispatch(self, type, &at, n_elements - 1, now_ms);
}

static void pack_welcome(struct sb_buf *answer, const uint8_t hub_id[HUB_ID_BYTES], uint64_t generation, bool is_closed)
{
    sb_mp_put_array(answer, 5);
    sb_mp_put_str(answer, "WELCOME");
    sb_mp_put_uint(answer, HUB_WIRE_VERSION);
    sb_mp_put_bin(answer, hub_id, HUB_ID_BYTES);
    sb_mp_put_uint(answer, generation);
    sb_mp_put_bool(answer, is_closed);
}

static enum hub_refusal on_hello(struct hub_session *self, struct sb_mp *at, uint32_t n, int64_t now_ms,
                                 const uint8_t hub_id[HUB_ID_BYTES], struct sb_buf *answer)
{
    enum { ELEMENTS = 5 };
    uint64_t version;
    uint64_t generation;
    struct sb_slice node;
    struct sb_slice id;
    struct sb_slice software;
    if (n == 0 || !sb_mp_uint(at, &version))
        return HUB_REFUSAL_type;
    if (version != HUB_WIRE_VERSION) /* the one before doesn't exist */
        return HUB_REFUSAL_version;
    if (n < ELEMENTS || !sb_mp_str(at, &node) || !sb_mp_bin(at, &id) || id.len != HUB_LINEAGE_BYTES ||
        !sb_mp_uint(at, &generation) || !sb_mp_str(at, &software))
        return HUB_REFUSAL_type;

    struct hub_counters *counters = self->store->counters;
    self->lineage = hub_store_lineage(self->store, (const uint8_t *) id.at, NULL);
    if (!self->lineage)
        return HUB_REFUSAL_limit;
    sb_text_clean(self->lineage->node, SB_LABEL_VALUE_MAX, node.at, node.len, &counters->label_faults);
    hub_lineage_begin_session(self->lineage, self->serial, now_ms);
    counters->sessions++;
    counters->skipped_elements += n - ELEMENTS;
    /* One whose counts are retired is told a generation above its own, upon which an agent starts a new lineage. If its
     * state was rolled back as well, that is what it has to know. */
    bool is_ahead = self->lineage->generation > generation;
    uint64_t highest = is_ahead ? self->lineage->generation : generation;
    bool is_closed = self->lineage->is_closed;
    pack_welcome(answer, hub_id, is_closed && highest < UINT64_MAX ? highest + 1 : self->lineage->generation,
                 is_closed && !is_ahead);
    return HUB_OK;
}

static void end_slot(struct hub_session *self, struct hub_contribution_slot *slot)
{
    if (slot->contribution)
        hub_contribution_bury(self->store, slot->contribution, true);
}

static void forget_slot(struct hub_session *self, struct hub_contribution_slot *slot)
{
    if (slot->contribution)
        hub_store_retire(self->store, slot->contribution);
    *slot = (struct hub_contribution_slot){.state = HUB_SLOT_FREE}; /* the agent may use the id again */
}

/* END and FORGET: an array of contributions' ids. */
static enum hub_refusal on_ids(struct hub_session *self, struct sb_mp *at, uint32_t n,
                               void (*apply)(struct hub_session *self, struct hub_contribution_slot *slot))
{
    uint32_t n_ids;
    if (n < 1 || !sb_mp_array(at, &n_ids))
        return HUB_REFUSAL_type;

    struct sb_mp walk = *at;
    for (uint32_t i = 0; i < n_ids; i++) {
        uint64_t id;
        if (!sb_mp_uint(&walk, &id))
            return HUB_REFUSAL_type;
        if (!hub_session_contribution(self, id))
            return HUB_REFUSAL_unknown_id;
    }
    for (uint32_t i = 0; i < n_ids; i++) {
        uint64_t id = 0;
        if (!sb_mp_uint(at, &id))
            break; /* was read above */
        struct hub_contribution_slot *slot = hub_session_contribution(self, id);
        if (slot) /* one that came twice is gone by now */
            apply(self, slot);
    }
    self->store->counters->skipped_elements += n - 1;
    return HUB_OK;
}

void hub_session_pack_ack(struct hub_session *self, struct sb_buf *out)
{
    bool is_any = self->applied.n > 0 && self->applied.at[0].from == 1;
    sb_mp_put_array(out, 2);
    sb_mp_put_str(out, "ACK");
    sb_mp_put_uint(out, is_any ? self->applied.at[0].to : 0);
    self->is_ack_due = false;
}

void hub_pack_refused(struct sb_buf *out, enum hub_refusal refusal)
{
    sb_mp_put_array(out, 2);
    sb_mp_put_str(out, "REFUSED");
    sb_mp_put_str(out, hub_refusal_text(refusal));
}
