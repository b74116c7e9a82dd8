/* FRAME: the numbers of one contribution. The hot path of the hub: nothing is allocated once a cell has its page. */
#include <stdlib.h>
#include <string.h>

#include "hub/session_parts.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are packed little-endian and read in place");

#define SIGN_BIT 0x8000000000000000u
#define LARGEST_FINITE 0x7fefffffffffffffu

/* Ids and values of one kind, as they lie in the message: not aligned. */
struct packed {
    const uint8_t *ids;
    const uint8_t *values;
    size_t n;
};

struct frame {
    uint64_t number;
    uint64_t generation;
    uint64_t contribution;
    uint64_t age_ms;
    bool is_live;
    struct packed gauges;
    struct packed cells;
};

static inline uint32_t id_at(const struct packed *self, size_t i)
{
    uint32_t id;
    memcpy(&id, self->ids + i * sizeof id, sizeof id);
    return id;
}

static inline uint64_t bits_at(const struct packed *self, size_t i)
{
    uint64_t bits;
    memcpy(&bits, self->values + i * sizeof bits, sizeof bits);
    return bits;
}

static inline double value_at(const struct packed *self, size_t i)
{
    double value;
    memcpy(&value, self->values + i * sizeof value, sizeof value);
    return value;
}

static enum hub_refusal read_packed(struct sb_mp *at, struct packed *out)
{
    struct sb_slice ids;
    struct sb_slice values;
    if (!sb_mp_bin(at, &ids) || !sb_mp_bin(at, &values))
        return HUB_REFUSAL_type;
    if (ids.len % sizeof(uint32_t) != 0 || values.len % sizeof(double) != 0 ||
        ids.len / sizeof(uint32_t) != values.len / sizeof(double))
        return HUB_REFUSAL_length;
    *out = (struct packed){
        .ids = (const uint8_t *) ids.at, .values = (const uint8_t *) values.at, .n = ids.len / sizeof(uint32_t)};
    return HUB_OK;
}

static enum hub_refusal read_frame(struct sb_mp *at, struct frame *out)
{
    if (!sb_mp_uint(at, &out->number) || !sb_mp_uint(at, &out->generation) || !sb_mp_uint(at, &out->contribution) ||
        !sb_mp_uint(at, &out->age_ms) || !sb_mp_bool(at, &out->is_live))
        return HUB_REFUSAL_type;
    enum hub_refusal refusal = read_packed(at, &out->gauges);
    return refusal != HUB_OK ? refusal : read_packed(at, &out->cells);
}

static bool ids_are_below(const struct packed *packed, size_t limit)
{
    uint32_t highest = 0;
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t id = id_at(packed, i);
        highest = id > highest ? id : highest;
    }
    return packed->n == 0 || highest < limit;
}

/* Cells hold what was counted: finite, not below 0 (-0.0 is 0). */
static bool cells_are_countable(const struct packed *packed)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < packed->n; i++) {
        uint64_t bits = bits_at(packed, i);
        bad |= (uint64_t) (bits > LARGEST_FINITE) & (uint64_t) (bits != SIGN_BIT);
    }
    return bad == 0;
}

static bool gauges_are_finite(const struct packed *packed)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < packed->n; i++)
        bad |= (uint64_t) ((bits_at(packed, i) & ~SIGN_BIT) > LARGEST_FINITE);
    return bad == 0;
}

/* All ids name cells; *is_paged: and every one of them has its page already. */
static enum hub_refusal check_cells(const struct hub_session *self, const struct packed *packed,
                                    const struct hub_values *values, bool *is_paged)
{
    if (!ids_are_below(packed, self->n_cells))
        return HUB_REFUSAL_unknown_id;
    if (!cells_are_countable(packed))
        return HUB_REFUSAL_value;
    uint32_t bad = 0;
    uint32_t last = UINT32_MAX;
    *is_paged = true;
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t cell = self->cells[id_at(packed, i)];
        uint32_t page = cell >> HUB_PAGE_BITS;
        bad |= cell - 1; /* the top bit: 0, undefined; or a gauge */
        if (page == last)
            continue;
        last = page;
        *is_paged &= page < values->n_pages && values->pages[page];
    }
    return bad & HUB_GAUGE_MARK ? HUB_REFUSAL_unknown_id : HUB_OK;
}

static enum hub_refusal check_gauges(const struct hub_session *self, const struct packed *packed)
{
    if (!ids_are_below(packed, self->n_cells))
        return HUB_REFUSAL_unknown_id;
    if (!gauges_are_finite(packed))
        return HUB_REFUSAL_value;
    for (size_t i = 0; i < packed->n; i++) {
        if (!(self->cells[id_at(packed, i)] & HUB_GAUGE_MARK))
            return HUB_REFUSAL_unknown_id;
    }
    return HUB_OK;
}

/* Pages for all cells of a frame. A page that is made and then not used holds no value. */
static bool make_pages(const struct hub_session *self, const struct packed *packed, struct hub_values *values)
{
    for (size_t i = 0; i < packed->n; i++) {
        if (!hub_values_page(values, self->cells[id_at(packed, i)]))
            return false;
    }
    return true;
}

static bool reserve_gauges(struct hub_contribution *contribution, const struct packed *packed)
{
    if (packed->n > contribution->cap_wire_gauges) {
        struct hub_wire_gauge *made = realloc(contribution->wire_gauges, packed->n * sizeof made[0]);
        if (!made)
            return false;
        contribution->wire_gauges = made;
        contribution->cap_wire_gauges = (uint32_t) packed->n;
    }
    return hub_values_reserve_gauges(&contribution->values, (uint32_t) packed->n);
}

/* Room for all that a frame brings, within the limit of the store (which one frame may overstep). */
static enum hub_refusal make_room(struct hub_session *self, const struct frame *frame,
                                  struct hub_contribution *contribution)
{
    struct hub_store *store = self->store;
    size_t before = hub_contribution_bytes(contribution);
    bool is_made = store->row_bytes < store->row_bytes_max && make_pages(self, &frame->cells, &contribution->values) &&
                   reserve_gauges(contribution, &frame->gauges);
    store->row_bytes += hub_contribution_bytes(contribution) - before;
    if (is_made)
        return HUB_OK;
    store->counters->limits[HUB_LIMIT_memory]++;
    return HUB_REFUSAL_limit;
}

/* The maximum by integers: see values.h. */
static void apply_cells(const struct hub_session *self, const struct packed *packed, struct hub_values *values)
{
    double *const *pages = values->pages;
    const uint32_t *cells = self->cells;
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t cell = cells[id_at(packed, i)];
        double *at = &pages[cell >> HUB_PAGE_BITS][cell & (HUB_PAGE_CELLS - 1)];
        int64_t now = (int64_t) (bits_at(packed, i) & ~SIGN_BIT);
        int64_t before;
        memcpy(&before, at, sizeof before);
        now = now > before ? now : before;
        memcpy(at, &now, sizeof now);
    }
}

static bool are_same_gauges(const struct hub_session *self, const struct hub_contribution *contribution,
                            const struct packed *packed)
{
    if (contribution->session != self->serial || contribution->n_wire_gauges != packed->n)
        return false;
    for (size_t i = 0; i < packed->n; i++) {
        if (contribution->wire_gauges[i].id != id_at(packed, i))
            return false;
    }
    return true;
}

/* Of gauges that came twice, one is kept. */
static void drop_twins(struct hub_values *values)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < values->n_gauges; i++) {
        if (kept > 0 && values->gauges[kept - 1].id == values->gauges[i].id)
            continue;
        values->gauges[kept++] = values->gauges[i];
    }
    values->n_gauges = kept;
}

static uint32_t gauge_place(const struct hub_values *values, uint32_t family, uint32_t id)
{
    uint32_t n;
    const struct hub_gauge *run = hub_values_gauges(values, family, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (run[i].id == id)
            return (uint32_t) (&run[i] - values->gauges);
    }
    return UINT32_MAX;
}

/* Gauges of other series than the last frame's: the sorted list is made anew. */
static void replace_gauges(struct hub_session *self, struct hub_contribution *contribution, const struct packed *packed)
{
    const struct hub_index *index = &self->store->index;
    struct hub_values *values = &contribution->values;
    values->n_gauges = 0;
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t id = self->cells[id_at(packed, i)] & ~HUB_GAUGE_MARK;
        if (id == HUB_NOWHERE)
            continue;
        values->gauges[values->n_gauges++] =
            (struct hub_gauge){.family = index->family_of_gauge[id], .id = id, .value = value_at(packed, i)};
    }
    hub_values_sort_gauges(values);
    drop_twins(values);
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t id = self->cells[id_at(packed, i)] & ~HUB_GAUGE_MARK;
        uint32_t at = id == HUB_NOWHERE ? UINT32_MAX : gauge_place(values, index->family_of_gauge[id], id);
        contribution->wire_gauges[i] = (struct hub_wire_gauge){.id = id_at(packed, i), .at = at};
    }
    contribution->n_wire_gauges = (uint32_t) packed->n;
}

static void apply_gauges(struct hub_session *self, struct hub_contribution *contribution, const struct packed *packed)
{
    if (!are_same_gauges(self, contribution, packed)) {
        replace_gauges(self, contribution, packed);
        return;
    }
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t at = contribution->wire_gauges[i].at;
        if (at != UINT32_MAX)
            contribution->values.gauges[at].value = value_at(packed, i);
    }
}

/* Life and gauges follow the latest frame only; a late one adds its counts and changes nothing else. */
static void apply_snapshot(struct hub_session *self, struct hub_contribution *contribution, const struct frame *frame,
                           int64_t now_ms)
{
    int64_t age_ms = frame->age_ms < INT32_MAX ? (int64_t) frame->age_ms : INT32_MAX;
    if (!frame->is_live) {
        contribution->session = self->serial;
        hub_contribution_bury(contribution, contribution->is_ended);
        return;
    }
    apply_gauges(self, contribution, &frame->gauges);
    contribution->session = self->serial;
    contribution->snapshot_ms = now_ms - age_ms;
    contribution->is_live = true;
    contribution->is_ended = false;
    hub_source_choose(contribution->source);
}

static enum hub_refusal check_frame(struct hub_session *self, const struct frame *frame,
                                    struct hub_contribution *contribution)
{
    bool is_paged;
    enum hub_refusal refusal = check_cells(self, &frame->cells, &contribution->values, &is_paged);
    if (refusal == HUB_OK)
        refusal = check_gauges(self, &frame->gauges);
    if (refusal == HUB_OK && (!is_paged || frame->gauges.n > contribution->cap_wire_gauges))
        refusal = make_room(self, frame, contribution);
    return refusal;
}

enum hub_refusal hub_session_frame(struct hub_session *self, struct sb_mp *at, uint32_t n, int64_t now_ms)
{
    enum { ELEMENTS = 9 };
    struct hub_counters *counters = self->store->counters;
    struct frame frame;
    if (n < ELEMENTS)
        return HUB_REFUSAL_type;
    enum hub_refusal refusal = read_frame(at, &frame);
    if (refusal != HUB_OK)
        return refusal;
    struct hub_contribution_slot *slot = hub_session_contribution(self, frame.contribution);
    if (!slot)
        return HUB_REFUSAL_unknown_id;
    if (frame.number == 0)
        return HUB_REFUSAL_number;
    struct hub_contribution *contribution = slot->contribution;
    if (contribution)
        refusal = check_frame(self, &frame, contribution);
    if (refusal != HUB_OK)
        return refusal;
    if (!sb_ranges_add(&self->applied, frame.number, frame.number))
        return HUB_REFUSAL_number;

    bool is_late = frame.number <= slot->last_number;
    counters->frames++;
    counters->late_frames += is_late;
    counters->skipped_elements += n - ELEMENTS;
    self->is_ack_due = true;
    if (frame.generation > self->lineage->generation)
        self->lineage->generation = frame.generation;
    if (!contribution) {
        counters->dropped_frames++;
        return HUB_OK;
    }
    apply_cells(self, &frame.cells, &contribution->values);
    if (!is_late) {
        slot->last_number = frame.number;
        apply_snapshot(self, contribution, &frame, now_ms);
    }
    return HUB_OK;
}
