/* DEFINE: families, series and contributions get their ids. Walked twice: once to check all of it, once to apply. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hub/session_parts.h"

enum { STAGED_CELL = 0x7fffffff }; /* checked, and not yet placed */

/* An array of slots that reaches to an id; new ones are zero. Untouched memory of a fresh block costs nothing. */
static bool reach(void *array_p, size_t *n, size_t wanted, size_t size)
{
    if (wanted <= *n)
        return true;
    size_t made_n = *n * 2 > wanted ? *n * 2 : wanted;
    void *old;
    memcpy(&old, array_p, sizeof old);
    void *made = calloc(made_n, size);
    if (!made)
        return false;
    if (old)
        memcpy(made, old, *n * size);
    free(old);
    memcpy(array_p, &made, sizeof made);
    *n = made_n;
    return true;
}

struct family_element {
    uint64_t id;
    struct hub_family_def def;
    char exposed[SB_EXPO_NAME_MAX];
    double bounds[SB_BOUNDS_MAX];
    struct sb_slice roles[SB_ROLES_MAX];
};

struct series_element {
    uint64_t id;
    uint64_t family;
    struct sb_mp labels;
};

struct contribution_element {
    uint64_t id;
    uint64_t epoch;
    enum hub_kind kind;
    struct sb_mp source;
    struct sb_mp identity;
};

/* A str, or nothing for nil. */
static bool read_text(struct sb_mp *at, struct sb_slice *out)
{
    *out = (struct sb_slice){.at = "", .len = 0};
    return sb_mp_nil(at) || sb_mp_str(at, out);
}

/* Skips the last of the elements that this release knows, and counts what comes behind it. */
static bool skip_last(struct hub_session *self, struct sb_mp *at, uint32_t n, uint32_t known)
{
    for (uint32_t i = known - 1; i < n; i++) {
        if (!sb_mp_skip(at))
            return false;
    }
    self->store->counters->skipped_elements += n - known;
    return true;
}

static enum hub_refusal read_bounds(struct sb_mp *at, struct family_element *out)
{
    uint32_t n;
    out->def.bounds = out->bounds;
    out->def.n_bounds = 0;
    if (out->def.type != SB_HISTOGRAM)
        return sb_mp_skip(at) ? HUB_OK : HUB_REFUSAL_type;
    if (!sb_mp_array(at, &n))
        return HUB_REFUSAL_type;
    if (n == 0 || n > SB_BOUNDS_MAX)
        return HUB_REFUSAL_bounds;
    for (uint32_t i = 0; i < n; i++) {
        if (!sb_mp_number(at, &out->bounds[i]))
            return HUB_REFUSAL_type;
        if (!isfinite(out->bounds[i]) || (i > 0 && out->bounds[i] <= out->bounds[i - 1]))
            return HUB_REFUSAL_bounds;
    }
    out->def.n_bounds = n;
    return HUB_OK;
}

static bool read_type(struct sb_mp *at, enum sb_type *out)
{
    struct sb_slice text;
    if (!sb_mp_str(at, &text))
        return false;
    for (int type = 0; type < SB_TYPE_COUNT; type++) {
        if (sb_slice_is(text, sb_type_text((enum sb_type) type))) {
            *out = (enum sb_type) type;
            return true;
        }
    }
    return false;
}

/* nil, or an array of str. */
static enum hub_refusal read_roles(struct sb_mp *at, struct family_element *out)
{
    uint32_t n;
    out->def.role_scope = out->roles;
    out->def.n_role_scope = 0;
    if (sb_mp_nil(at))
        return HUB_OK;
    if (!sb_mp_array(at, &n))
        return HUB_REFUSAL_type;
    if (n > SB_ROLES_MAX)
        return HUB_REFUSAL_limit;
    for (uint32_t i = 0; i < n; i++) {
        if (!sb_mp_str(at, &out->roles[i]))
            return HUB_REFUSAL_type;
    }
    out->def.n_role_scope = n;
    return HUB_OK;
}

static enum hub_refusal read_family(struct hub_session *self, struct sb_mp *at, struct family_element *out)
{
    enum { ELEMENTS = 8 };
    uint32_t n;
    if (!sb_mp_array(at, &n) || n < ELEMENTS || !sb_mp_uint(at, &out->id) || !sb_mp_str(at, &out->def.name) ||
        !read_type(at, &out->def.type) || !read_text(at, &out->def.unit))
        return HUB_REFUSAL_type;
    out->def.name = sb_prefix_expose(&self->store->index.catalog->prefix, out->def.name, out->exposed);
    enum hub_refusal refusal = read_bounds(at, out);
    if (refusal != HUB_OK)
        return refusal;
    if (!read_text(at, &out->def.help) || !read_text(at, &out->def.semantic))
        return HUB_REFUSAL_type;
    struct sb_mp roles = *at;
    if (!skip_last(self, at, n, ELEMENTS))
        return HUB_REFUSAL_type;
    return read_roles(&roles, out);
}

static enum hub_refusal check_family(struct hub_session *self, struct sb_mp *at)
{
    struct family_element element;
    enum hub_refusal refusal = read_family(self, at, &element);
    if (refusal != HUB_OK)
        return refusal;
    if (!sb_metric_name_is_valid(element.def.name.at, element.def.name.len))
        return HUB_REFUSAL_name;
    if (element.id >= HUB_SESSION_FAMILIES_MAX)
        return HUB_REFUSAL_id_range;
    if (!reach(&self->families, &self->n_families, element.id + 1, sizeof self->families[0]))
        return HUB_REFUSAL_limit;
    struct hub_family_slot *slot = &self->families[element.id];
    if (slot->state != HUB_SLOT_FREE)
        return HUB_REFUSAL_id_taken;
    *slot = (struct hub_family_slot){.n_cells = element.def.type == SB_HISTOGRAM ? element.def.n_bounds + 2 : 1,
                                     .state = HUB_SLOT_STAGED,
                                     .type = (uint8_t) element.def.type};
    return HUB_OK;
}

static enum hub_refusal apply_family(struct hub_session *self, struct sb_mp *at)
{
    struct family_element element;
    enum hub_refusal refusal = read_family(self, at, &element);
    if (refusal != HUB_OK)
        return refusal;
    struct hub_family_slot *slot = &self->families[element.id];
    if (hub_index_variant(&self->store->index, &element.def, &slot->variant, NULL) != SB_OK)
        return HUB_REFUSAL_limit;
    slot->state = HUB_SLOT_DEFINED;
    return HUB_OK;
}

static enum hub_refusal read_series(struct hub_session *self, struct sb_mp *at, struct series_element *out)
{
    enum { ELEMENTS = 3 };
    uint32_t n;
    if (!sb_mp_array(at, &n) || n < ELEMENTS || !sb_mp_uint(at, &out->id) || !sb_mp_uint(at, &out->family))
        return HUB_REFUSAL_type;
    out->labels = *at;
    return skip_last(self, at, n, ELEMENTS) ? HUB_OK : HUB_REFUSAL_type;
}

/* Reads a map of labels into a draft; faults are counted when it is applied, not when it is checked. */
static enum hub_refusal read_labels(struct sb_label_draft *draft, struct sb_mp from, struct sb_text_faults *faults)
{
    if (sb_mp_peek(&from) == SB_MP_NIL)
        return HUB_OK;
    if (sb_mp_peek(&from) != SB_MP_MAP)
        return HUB_REFUSAL_type;
    switch (sb_label_draft_read(draft, &from, faults, NULL)) {
    case SB_OK:
        return HUB_OK;
    case SB_FULL:
        return HUB_REFUSAL_limit;
    default:
        return HUB_REFUSAL_name;
    }
}

static enum hub_refusal check_series(struct hub_session *self, struct sb_mp *at)
{
    struct series_element element;
    struct sb_label_draft draft;
    enum hub_refusal refusal = read_series(self, at, &element);
    if (refusal != HUB_OK)
        return refusal;
    if (element.family >= self->n_families || self->families[element.family].state == HUB_SLOT_FREE)
        return HUB_REFUSAL_unknown_id;
    uint32_t n_cells = self->families[element.family].n_cells;
    if (element.id >= HUB_SESSION_CELLS_MAX || element.id + n_cells > HUB_SESSION_CELLS_MAX)
        return HUB_REFUSAL_id_range;

    sb_label_draft_clear(&draft);
    refusal = read_labels(&draft, element.labels, NULL);
    if (refusal != HUB_OK)
        return refusal;
    if (!reach(&self->cells, &self->n_cells, element.id + n_cells, sizeof self->cells[0]))
        return HUB_REFUSAL_limit;
    for (uint32_t i = 0; i < n_cells; i++) {
        if (self->cells[element.id + i] != 0)
            return HUB_REFUSAL_id_taken;
        self->cells[element.id + i] = STAGED_CELL;
    }
    return HUB_OK;
}

static enum hub_refusal apply_series(struct hub_session *self, struct sb_mp *at)
{
    struct series_element element;
    struct sb_label_draft draft;
    enum hub_refusal refusal = read_series(self, at, &element);
    sb_label_draft_clear(&draft);
    if (refusal == HUB_OK)
        refusal = read_labels(&draft, element.labels, &self->store->counters->label_faults);
    if (refusal != HUB_OK)
        return refusal;

    const struct hub_family_slot *family = &self->families[element.family];
    struct hub_series *series = NULL;
    if (family->variant && hub_index_series(&self->store->index, family->variant, &draft, &series, NULL) != SB_OK)
        return HUB_REFUSAL_limit;
    uint32_t mark = family->type == SB_GAUGE ? HUB_GAUGE_MARK : 0;
    for (uint32_t i = 0; i < family->n_cells; i++)
        self->cells[element.id + i] = mark | (series ? series->first + i : HUB_NOWHERE);
    return HUB_OK;
}

static enum hub_refusal read_contribution(struct hub_session *self, struct sb_mp *at, struct contribution_element *out)
{
    enum { ELEMENTS = 5 };
    uint32_t n;
    struct sb_slice kind;
    if (!sb_mp_array(at, &n) || n < ELEMENTS || !sb_mp_uint(at, &out->id) || !sb_mp_uint(at, &out->epoch) ||
        !sb_mp_str(at, &kind))
        return HUB_REFUSAL_type;
    if (!sb_slice_is(kind, "engine") && !sb_slice_is(kind, "front-end"))
        return HUB_REFUSAL_type;
    out->kind = sb_slice_is(kind, "engine") ? HUB_ENGINE : HUB_FRONT_END;
    out->source = *at;
    if (!sb_mp_skip(at))
        return HUB_REFUSAL_type;
    out->identity = *at;
    return skip_last(self, at, n, ELEMENTS) ? HUB_OK : HUB_REFUSAL_type;
}

/* The labels of the source by themselves, and all labels; those of the source win. */
static enum hub_refusal read_identity(const struct contribution_element *element, struct sb_label_draft *source,
                                      struct sb_label_draft *all, struct sb_text_faults *faults)
{
    sb_label_draft_clear(source);
    sb_label_draft_clear(all);
    enum hub_refusal refusal = read_labels(source, element->source, faults);
    if (refusal == HUB_OK)
        refusal = read_labels(all, element->identity, faults);
    if (refusal == HUB_OK)
        refusal = read_labels(all, element->source, NULL);
    return refusal;
}

static enum hub_refusal check_contribution(struct hub_session *self, struct sb_mp *at)
{
    struct contribution_element element;
    struct sb_label_draft source;
    struct sb_label_draft identity;
    enum hub_refusal refusal = read_contribution(self, at, &element);
    if (refusal == HUB_OK)
        refusal = read_identity(&element, &source, &identity, NULL);
    if (refusal != HUB_OK)
        return refusal;
    if (element.id >= HUB_SESSION_CONTRIBUTIONS_MAX)
        return HUB_REFUSAL_id_range;
    if (!reach(&self->contributions, &self->n_contributions, element.id + 1, sizeof self->contributions[0]))
        return HUB_REFUSAL_limit;
    if (self->contributions[element.id].state != HUB_SLOT_FREE)
        return HUB_REFUSAL_id_taken;
    self->contributions[element.id].state = HUB_SLOT_STAGED;
    return HUB_OK;
}

/* A session names all that its agent has in its first moments. What comes later begins then, with nothing counted. */
static bool is_settled(const struct hub_session *self)
{
    return self->store->now_ms - self->lineage->began_ms >= HUB_SETTLED_MS;
}

static enum hub_refusal apply_contribution(struct hub_session *self, struct sb_mp *at)
{
    struct contribution_element element;
    struct sb_label_draft source;
    struct sb_label_draft identity;
    enum hub_refusal refusal = read_contribution(self, at, &element);
    if (refusal == HUB_OK)
        refusal = read_identity(&element, &source, &identity, &self->store->counters->label_faults);
    if (refusal != HUB_OK)
        return refusal;

    struct hub_contribution_slot *slot = &self->contributions[element.id];
    const struct hub_contribution_def def = {
        .epoch = element.epoch, .kind = element.kind, .source = &source, .identity = &identity};
    switch (hub_store_contribution(self->store, self->lineage, &def, &slot->contribution, NULL)) {
    case SB_OK:
        break;
    case SB_INVAL:
        return HUB_REFUSAL_identity;
    case SB_ABSENT:
        return HUB_REFUSAL_closed;
    default:
        return HUB_REFUSAL_limit;
    }
    if (slot->contribution && slot->contribution->named_by == self->serial) {
        slot->contribution = NULL;
        return HUB_REFUSAL_id_taken;
    }
    if (slot->contribution) {
        if (slot->contribution->named_by == 0 && is_settled(self)) /* new, and not only to this hub */
            slot->contribution->is_watched = slot->contribution->is_from_zero = true;
        slot->contribution->named_by = self->serial;
        slot->contribution->is_left_out = false;
    }
    slot->state = HUB_SLOT_DEFINED;
    return HUB_OK;
}

/* The message's three arrays: what each may hold at most, and its two walks. */
static const struct part {
    uint32_t max;
    enum hub_refusal (*check)(struct hub_session *self, struct sb_mp *at);
    enum hub_refusal (*apply)(struct hub_session *self, struct sb_mp *at);
} parts[] = {
    {HUB_SESSION_FAMILIES_MAX, check_family, apply_family},
    {HUB_SESSION_CELLS_MAX, check_series, apply_series},
    {HUB_SESSION_CONTRIBUTIONS_MAX, check_contribution, apply_contribution},
};

static enum hub_refusal walk(struct hub_session *self, struct sb_mp at, bool is_check)
{
    for (size_t p = 0; p < SB_COUNT(parts); p++) {
        uint32_t n;
        if (!sb_mp_array(&at, &n))
            return HUB_REFUSAL_type;
        if (n > parts[p].max)
            return HUB_REFUSAL_limit;
        for (uint32_t i = 0; i < n; i++) {
            enum hub_refusal refusal = is_check ? parts[p].check(self, &at) : parts[p].apply(self, &at);
            if (refusal != HUB_OK)
                return refusal;
        }
    }
    return HUB_OK;
}

/*
 * The first walk touches the session's own slots only, and a session that is refused takes them along. The second can
 * fail for want of memory, or for an epoch that is known with other labels; what it has made by then has no values.
 */
enum hub_refusal hub_session_define(struct hub_session *self, struct sb_mp *at, uint32_t n)
{
    if (n < SB_COUNT(parts))
        return HUB_REFUSAL_type;
    struct hub_counters *counters = self->store->counters;
    uint64_t skipped = counters->skipped_elements;
    enum hub_refusal refusal = walk(self, *at, true);
    counters->skipped_elements = skipped; /* counted by the second walk */
    if (refusal != HUB_OK)
        return refusal;
    counters->skipped_elements += n - SB_COUNT(parts);
    return walk(self, *at, false);
}
