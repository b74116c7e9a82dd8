#include "hub/rows.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct hub_row_slot {
    uint64_t group;
    struct hub_row_sums *sums; /* NULL: it is read where its numbers are, or wasn't read yet; owned */
};

bool hub_sum_memory_is_short(const struct hub_sum_memory *self)
{
    return self->bytes >= self->max / HUB_SCRAPES_A_LIMIT;
}

void hub_rows_init(struct hub_rows *self, const struct hub_store *store, const struct hub_view *view,
                   const struct hub_query *query, struct hub_sum_memory *memory, int64_t now_ms)
{
    *self = (struct hub_rows){.store = store, .view = view, .query = query, .memory = memory, .now_ms = now_ms};
}

void hub_rows_release(struct hub_rows *self)
{
    for (size_t i = 0; i < self->n; i++)
        hub_row_sums_destroy(&self->slots[i].sums);
    hub_adding_release(&self->adding);
    free(self->slots);
    if (self->memory)
        self->memory->bytes -= self->bytes;
    *self = (struct hub_rows){0};
}

static enum hub_step cut(const struct hub_rows *self)
{
    self->store->counters->limits[HUB_LIMIT_scrape_memory]++;
    return HUB_CUT;
}

/* Memory that was `before` bytes is now more or less. False: over the limit. */
static bool note_bytes(struct hub_rows *self, size_t before, size_t now)
{
    self->bytes += now - before;
    if (!self->memory)
        return true;
    self->memory->bytes += now - before;
    return self->memory->bytes <= self->memory->max;
}

/* --- which rows there are --- */

static bool has_wanted_role(const struct hub_rows *self, const struct hub_group *group)
{
    if (self->query->narrow[HUB_NARROW_role].n == 0)
        return true;
    for (uint32_t i = 0; i < group->n_members; i++) {
        if (hub_query_wants(self->query, HUB_NARROW_role, hub_role_of(group->members[i]->role)))
            return true;
    }
    for (uint32_t i = 0; i < group->n_retired; i++) {
        if (hub_query_wants(self->query, HUB_NARROW_role, hub_role_of(group->retired[i].role)))
            return true;
    }
    return false;
}

static bool is_shown(const struct hub_rows *self, const struct hub_group *group)
{
    return hub_view_shows(self->view, group, self->now_ms, self->store->linger_ms) &&
           hub_query_wants(self->query, HUB_NARROW_model_name, sb_labelset_value(group->labels, "model_name")) &&
           hub_query_wants(self->query, HUB_NARROW_service_name, sb_labelset_value(group->labels, "service_name")) &&
           has_wanted_role(self, group);
}

static bool reserve(struct hub_rows *self)
{
    if (self->n < self->cap)
        return true;
    size_t cap = self->cap ? self->cap * 2 : 16;
    struct hub_row_slot *slots = realloc(self->slots, cap * sizeof slots[0]);
    if (!slots)
        return false;
    const bool is_within = note_bytes(self, self->cap * sizeof slots[0], cap * sizeof slots[0]);
    self->slots = slots;
    self->cap = cap;
    return is_within;
}

/* The first row from this id on that was met and is still there; NULL: there is none. */
static const struct hub_group *find_met(struct hub_rows *self, uint64_t from)
{
    if (self->at > self->n || (self->at > 0 && self->slots[self->at - 1].group >= from))
        self->at = 0;
    for (; self->at < self->n; self->at++) {
        const uint64_t id = self->slots[self->at].group;
        if (id < from)
            continue;
        const struct hub_group *group = hub_view_after(self->view, id - 1, &self->group_at);
        if (group && group->id == id)
            return group;
    }
    return NULL;
}

enum hub_step hub_rows_find(struct hub_rows *self, uint64_t from, const struct hub_group **out)
{
    const struct hub_group *group = from <= self->met ? find_met(self, from) : NULL;
    if (group) {
        *out = group;
        return HUB_FOUND;
    }
    while ((group = hub_view_after(self->view, self->met, &self->group_at)) != NULL) {
        if (self->looks == 0)
            return HUB_LATER;
        self->looks--;
        self->met = group->id;
        if (!is_shown(self, group))
            continue;
        if (!reserve(self))
            return cut(self);
        self->at = self->n++;
        self->slots[self->at] = (struct hub_row_slot){.group = group->id};
        *out = group;
        return HUB_FOUND;
    }
    return HUB_NONE;
}

/* --- their numbers --- */

static enum hub_step add_up(struct hub_rows *self, const struct hub_group *group, struct hub_row_slot *slot)
{
    if (self->looks == 0)
        return HUB_LATER;
    const struct hub_adding_ask ask = {.store = self->store, .query = self->query, .view = self->view->spec};
    const enum hub_adding_step step = hub_adding_go(&self->adding, &ask, group, &self->looks, &slot->sums);
    const size_t bytes = hub_row_sums_bytes(step == HUB_ADDING_DONE ? slot->sums : self->adding.sums);
    const bool is_within = note_bytes(self, self->adding_bytes, bytes);
    self->adding_bytes = step == HUB_ADDING_DONE ? 0 : bytes; /* what is done is the slot's */
    if (step == HUB_ADDING_NO_MEMORY || !is_within)
        return cut(self);
    return step == HUB_ADDING_DONE ? HUB_FOUND : HUB_LATER;
}

static enum hub_step read_sums(const struct hub_row_sums *sums, uint32_t scope, struct hub_row *out)
{
    if (scope >= sums->n_scopes || sums->of[scope] == HUB_NO_SUM) /* a scope may be of a family that came later */
        return HUB_NONE;
    const struct hub_sum *sum = &sums->at[sums->of[scope]];
    *out = (struct hub_row){.values = &sum->values, .maxima = sum->maxima, .has_gauges = true};
    return HUB_FOUND;
}

/* The sums of the row that was found last; NULL in *out: it is one contribution. */
static enum hub_step sums_of(struct hub_rows *self, const struct hub_group *group, const struct hub_row_sums **out)
{
    struct hub_row_slot *slot = &self->slots[self->at];
    assert(self->at < self->n && slot->group == group->id);
    if (!slot->sums && (group->n_members != 1 || group->n_retired > 0)) {
        const enum hub_step step = add_up(self, group, slot);
        if (step != HUB_FOUND)
            return step;
    }
    *out = slot->sums;
    return HUB_FOUND;
}

enum hub_step hub_rows_read(struct hub_rows *self, const struct hub_group *group, uint32_t scope, struct hub_row *out)
{
    const struct hub_row_sums *sums;
    const enum hub_step step = sums_of(self, group, &sums);
    if (step != HUB_FOUND)
        return step;
    if (!self->view->spec->is_role_scoped)
        scope = 0;
    if (sums)
        return read_sums(sums, scope, out);
    const struct hub_contribution *only = group->members[0];
    const char *role = hub_role_of(only->role);
    *out = (struct hub_row){.values = &only->values, .has_gauges = only->source->shown == only};
    return hub_query_wants(self->query, HUB_NARROW_role, role) &&
                   (scope == 0 || hub_index_has_role(&self->store->index, scope, role))
               ? HUB_FOUND
               : HUB_NONE;
}

static enum hub_step compute_row(struct hub_rows *self, uint64_t id, uint32_t number, double *out)
{
    size_t at = self->group_at;
    struct hub_group *group = hub_view_after(self->view, id - 1, &at);
    return group && group->id == id && hub_computed_of_row(self->store, number, group, self->query, out) ? HUB_FOUND
                                                                                                         : HUB_NONE;
}

enum hub_step hub_rows_compute(struct hub_rows *self, const struct hub_group *group, uint32_t number, double *out)
{
    if (!hub_computed_is_added_up(&self->store->computed, number))
        return compute_row(self, group->id, number, out);
    const struct hub_row_sums *sums;
    const enum hub_step step = sums_of(self, group, &sums);
    if (step != HUB_FOUND)
        return step;
    if (sums) {
        *out = number < sums->n_computed ? sums->computed[number] : NAN;
        return isnan(*out) ? HUB_NONE : HUB_FOUND;
    }
    const struct hub_contribution *only = group->members[0];
    return only->is_live && hub_query_wants(self->query, HUB_NARROW_role, hub_role_of(only->role)) &&
                   hub_computed_of_member(self->store, number, only, out)
               ? HUB_FOUND
               : HUB_NONE;
}
