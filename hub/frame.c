/* FRAME: the numbers of one contribution. The hot path of the hub: nothing is allocated once a cell has its page. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hub/session_parts.h"
#include "hub/windows.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are packed little-endian and read in place");

enum { BLOCK = 16 }; /* ids that are looked at together */

/* Vectors by hand, in the form that gcc and clang share: neither finds them by itself in bytes that aren't aligned. */
typedef uint32_t ids4 __attribute__((vector_size(16)));
typedef double values2 __attribute__((vector_size(16)));
typedef uint64_t bits2 __attribute__((vector_size(16)));
typedef int64_t mask2 __attribute__((vector_size(16)));

static inline ids4 load_ids(const void *at)
{
    ids4 ids;
    memcpy(&ids, at, sizeof ids);
    return ids;
}

static inline values2 load_values(const void *at)
{
    values2 values;
    memcpy(&values, at, sizeof values);
    return values;
}

/* Are these BLOCK numbers first, first + 1, ...? */
static inline bool is_run(const void *numbers, uint32_t first)
{
    const uint8_t *at = numbers;
    ids4 expected = {first, first + 1, first + 2, first + 3};
    ids4 differs = {0};
    for (size_t k = 0; k < BLOCK; k += 4, expected += 4)
        differs |= load_ids(at + k * sizeof(uint32_t)) ^ expected;
    mask2 halves = (mask2) differs;
    return (halves[0] | halves[1]) == 0;
}

#define SIGN_BIT 0x8000000000000000u
#define EXPONENT_ONE 0x0010000000000000
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
    bool has_snapshot; /* else there is no age */
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

static bool read_age(struct sb_mp *at, struct frame *out)
{
    out->age_ms = 0;
    out->has_snapshot = !sb_mp_nil(at);
    return !out->has_snapshot || sb_mp_uint(at, &out->age_ms);
}

static enum hub_refusal read_frame(struct sb_mp *at, struct frame *out)
{
    if (!sb_mp_uint(at, &out->number) || !sb_mp_uint(at, &out->generation) || !sb_mp_uint(at, &out->contribution) ||
        !read_age(at, out) || !sb_mp_bool(at, &out->is_live))
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

/* Cells hold what was counted: finite, not below 0 (-0.0 is 0). NaN fails both comparisons. */
static inline bool is_countable(double value)
{
    return (value >= 0) & (value <= DBL_MAX);
}

/*
 * Adding one to the exponent carries infinities and NaN into the sign bit, where negative values have a 1 already. What
 * this suspects (-0.0 among it) is looked at again one by one.
 */
static bool cells_are_countable(const struct packed *packed)
{
    const mask2 one = {EXPONENT_ONE, EXPONENT_ONE};
    mask2 suspect = {0};
    size_t i = 0;
    for (; i + 2 <= packed->n; i += 2) {
        mask2 bits = (mask2) load_values(packed->values + i * sizeof(double));
        suspect |= bits | (mask2) ((bits2) bits + (bits2) one);
    }
    if ((suspect[0] | suspect[1]) < 0)
        i = 0;
    bool is_good = true;
    for (; i < packed->n; i++)
        is_good &= is_countable(value_at(packed, i));
    return is_good;
}

static bool gauges_are_finite(const struct packed *packed)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < packed->n; i++)
        bad |= (uint64_t) ((bits_at(packed, i) & ~SIGN_BIT) > LARGEST_FINITE);
    return bad == 0;
}

/*
 * Cells of one family are neighbours, in a session as in the index, so most ids come in runs. If the BLOCK ids from i
 * on are such a run, and name a run of cells: the first of these; else 0.
 */
static inline uint32_t run_cell(const struct hub_session *self, const struct packed *packed, size_t i)
{
    uint32_t id = id_at(packed, i);
    if (packed->n - i < BLOCK || id >= self->n_cells || self->n_cells - id < BLOCK)
        return 0;
    uint32_t cell = self->cells[id];
    bool is_both = is_run(packed->ids + i * sizeof id, id) && is_run(&self->cells[id], cell);
    return is_both && cell < HUB_CELLS_MAX ? cell : 0;
}

static inline bool is_paged(const struct hub_values *values, uint32_t cell)
{
    uint32_t page = cell >> HUB_PAGE_BITS;
    return page < values->n_pages && values->pages[page];
}

/* Do all ids name cells? *has_pages: and every one of them has its page already. */
static enum hub_refusal check_cells(const struct hub_session *self, const struct packed *packed,
                                    const struct hub_values *values, bool *has_pages)
{
    *has_pages = true;
    if (!cells_are_countable(packed))
        return HUB_REFUSAL_value;
    for (size_t i = 0; i < packed->n;) {
        uint32_t first = run_cell(self, packed, i);
        if (first) {
            *has_pages &= is_paged(values, first) && is_paged(values, first + BLOCK - 1);
            i += BLOCK;
            continue;
        }
        uint32_t id = id_at(packed, i++);
        uint32_t cell = id < self->n_cells ? self->cells[id] : 0;
        if (cell == 0 || cell & HUB_GAUGE_MARK)
            return HUB_REFUSAL_unknown_id;
        *has_pages &= is_paged(values, cell);
    }
    return HUB_OK;
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

/* Room for all that a frame brings, within the limit of the store (which one frame may overstep). False: there is none.
 */
static bool make_room(struct hub_session *self, const struct frame *frame, struct hub_contribution *contribution)
{
    struct hub_store *store = self->store;
    size_t before = hub_contribution_bytes(contribution);
    bool is_made = store->row_bytes < store->row_bytes_max && make_pages(self, &frame->cells, &contribution->values) &&
                   reserve_gauges(contribution, &frame->gauges);
    store->row_bytes += hub_contribution_bytes(contribution) - before;
    store->counters->limits[HUB_LIMIT_memory] += !is_made;
    return is_made;
}

/* The larger of the two, without the sign of -0.0; of a cell without a value (-0.0) and 0, the 0. */
static inline void raise_cell(double *cell, double value)
{
    value = fabs(value);
    *cell = *cell > value ? *cell : value;
}

static inline void raise_run(double *cells, const uint8_t *values)
{
    const mask2 no_sign = {INT64_MAX, INT64_MAX};
    for (size_t k = 0; k < BLOCK; k += 2) {
        values2 before = load_values(&cells[k]);
        values2 value = (values2) ((mask2) load_values(values + k * sizeof(double)) & no_sign);
        mask2 keeps = before > value;
        mask2 after = (keeps & (mask2) before) | (~keeps & (mask2) value);
        memcpy(&cells[k], &after, sizeof after);
    }
}

static void apply_cells(const struct hub_session *self, const struct packed *packed, struct hub_values *values)
{
    enum { IN_PAGE = HUB_PAGE_CELLS - 1 };
    double *const *pages = values->pages;
    for (size_t i = 0; i < packed->n;) {
        uint32_t first = run_cell(self, packed, i);
        if (first && (first & IN_PAGE) <= HUB_PAGE_CELLS - BLOCK) {
            raise_run(&pages[first >> HUB_PAGE_BITS][first & IN_PAGE], packed->values + i * sizeof(double));
            i += BLOCK;
            continue;
        }
        size_t end = first ? i + BLOCK : i + 1;
        for (; i < end; i++) {
            uint32_t cell = self->cells[id_at(packed, i)];
            raise_cell(&pages[cell >> HUB_PAGE_BITS][cell & IN_PAGE], value_at(packed, i));
        }
    }
}

/* Without room for all of a frame: what has its place already is still taken. */
static void apply_placed_cells(const struct hub_session *self, const struct packed *packed, struct hub_values *values)
{
    for (size_t i = 0; i < packed->n; i++) {
        uint32_t cell = self->cells[id_at(packed, i)];
        if (is_paged(values, cell))
            raise_cell(&values->pages[cell >> HUB_PAGE_BITS][cell & (HUB_PAGE_CELLS - 1)], value_at(packed, i));
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
        hub_contribution_bury(self->store, contribution, contribution->is_ended);
        return;
    }
    apply_gauges(self, contribution, &frame->gauges);
    contribution->session = self->serial;
    contribution->snapshot_ms = frame->has_snapshot ? now_ms - age_ms : HUB_NO_SNAPSHOT;
    hub_contribution_revive(self->store, contribution);
}

/* *has_room false: values of the frame have no place, nor can one be made. */
static enum hub_refusal check_frame(struct hub_session *self, const struct frame *frame,
                                    struct hub_contribution *contribution, bool *has_room)
{
    bool has_pages;
    enum hub_refusal refusal = check_cells(self, &frame->cells, &contribution->values, &has_pages);
    if (refusal == HUB_OK)
        refusal = check_gauges(self, &frame->gauges);
    if (refusal == HUB_OK && (!has_pages || frame->gauges.n > contribution->cap_wire_gauges))
        *has_room = make_room(self, frame, contribution);
    return refusal;
}

/* A session over a limit of the store lives: a new one would end the same way, again and again. */
static void apply_what_fits(struct hub_session *self, struct hub_contribution *contribution, struct frame *frame)
{
    apply_placed_cells(self, &frame->cells, &contribution->values);
    if (frame->gauges.n > contribution->cap_wire_gauges)
        frame->gauges.n = 0;
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
    bool has_room = true;
    if (contribution)
        refusal = check_frame(self, &frame, contribution, &has_room);
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
    const bool is_unseen =
        !contribution->is_watched && frame.cells.n > 0; /* it comes all at once, and is of the past */
    if (is_unseen)
        hub_windows_pass_over(self->store, contribution, true);
    if (has_room)
        apply_cells(self, &frame.cells, &contribution->values);
    else
        apply_what_fits(self, contribution, &frame);
    if (is_unseen) {
        hub_windows_pass_over(self->store, contribution, false);
        contribution->is_watched = true;
    }
    if (!is_late) {
        slot->last_number = frame.number;
        apply_snapshot(self, contribution, &frame, now_ms);
    }
    return HUB_OK;
}
