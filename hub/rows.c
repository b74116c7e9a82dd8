#include "hub/rows.h"

#include <stdlib.h>
#include <string.h>

/* A row that the scrape has met. What it was then, shown and added up or not, it stays. */
struct hub_row_slot {
    uint64_t group;
    bool is_shown;
    uint8_t n_sums;       /* 0: it is read where its numbers are */
    struct hub_sum *sums; /* by scope; owned */
};

void hub_rows_init(struct hub_rows *self, const struct hub_store *store, const struct hub_view *view,
                   const struct hub_query *query, int64_t now_ms)
{
    *self = (struct hub_rows){.store = store, .view = view, .query = query, .now_ms = now_ms};
}

void hub_rows_release(struct hub_rows *self)
{
    for (size_t i = 0; i < self->n; i++) {
        for (size_t s = 0; s < self->slots[i].n_sums; s++)
            hub_sum_release(&self->slots[i].sums[s]);
        free(self->slots[i].sums);
    }
    free(self->slots);
    *self = (struct hub_rows){0};
}

static const char *role_of(const struct sb_labelset *role)
{
    return role->n > 0 ? role->labels[0].value : NULL;
}

/* Bit by sum: 0 for all roles, then one for each scope. */
static uint32_t sums_of_role(const struct hub_rows *self, const char *role, size_t n_sums)
{
    uint32_t sums = 1;
    for (uint32_t scope = 1; scope < n_sums; scope++) {
        if (hub_index_has_role(&self->store->index, scope, role))
            sums |= 1u << scope;
    }
    return sums;
}

/* Parts under way, and what is known of the role that came last: roles come in runs. */
struct parts {
    struct hub_part *at;
    size_t n;
    size_t n_sums;
    const struct sb_labelset *role;
    uint32_t sums;
    bool is_wanted;
};

static void note_role(const struct hub_rows *self, struct parts *parts, const struct sb_labelset *role)
{
    if (role == parts->role)
        return;
    parts->role = role;
    parts->is_wanted = hub_query_wants(self->query, HUB_NARROW_role, role_of(role));
    parts->sums = sums_of_role(self, role_of(role), parts->n_sums);
}

static void collect(const struct hub_rows *self, const struct hub_group *group, struct parts *parts)
{
    for (uint32_t i = 0; i < group->n_members; i++) {
        const struct hub_contribution *member = group->members[i];
        note_role(self, parts, member->role);
        if (parts->is_wanted)
            parts->at[parts->n++] = (struct hub_part){
                .values = &member->values, .sums = parts->sums, .has_gauges = member->source->shown == member};
    }
    for (uint32_t i = 0; i < group->n_retired; i++) {
        const struct hub_retired *retired = &group->retired[i];
        note_role(self, parts, retired->role);
        if (parts->is_wanted)
            parts->at[parts->n++] =
                (struct hub_part){.values = &retired->high, .low = &retired->low, .sums = parts->sums};
    }
}

/* Brings parts of the same sums together, keeping their order. */
static bool gather(struct parts *parts)
{
    struct hub_part *sorted = malloc((parts->n + 1) * sizeof sorted[0]);
    if (!sorted)
        return false;
    size_t n = 0;
    for (uint32_t seen = 0; n < parts->n;) {
        uint32_t next = UINT32_MAX;
        for (size_t i = 0; i < parts->n; i++) {
            if (parts->at[i].sums > seen && parts->at[i].sums < next)
                next = parts->at[i].sums;
        }
        for (size_t i = 0; i < parts->n; i++) {
            if (parts->at[i].sums == next)
                sorted[n++] = parts->at[i];
        }
        seen = next;
    }
    free(parts->at);
    parts->at = sorted;
    return true;
}

static bool is_one_run(const struct parts *parts)
{
    for (size_t i = 1; i < parts->n; i++) {
        if (parts->at[i].sums != parts->at[0].sums)
            return false;
    }
    return true;
}

static size_t count_sums(const struct hub_rows *self)
{
    return self->view->spec->is_role_scoped ? 1 + self->store->index.n_scopes : 1;
}

/* Adds a row up. False: out of memory. */
static bool add_up(const struct hub_rows *self, const struct hub_group *group, struct hub_row_slot *slot)
{
    struct parts parts = {.at = malloc((group->n_members + group->n_retired + 1u) * sizeof parts.at[0]),
                          .n_sums = count_sums(self)};
    struct hub_sum *sums = calloc(parts.n_sums, sizeof sums[0]);
    bool is_ok = parts.at && sums;
    if (is_ok)
        collect(self, group, &parts);
    if (is_ok && !is_one_run(&parts))
        is_ok = gather(&parts);
    if (is_ok)
        is_ok = hub_sums_fold(sums, parts.n_sums, parts.at, parts.n, self->store->index.aggregates);
    free(parts.at);
    if (!is_ok) {
        free(sums);
        return false;
    }
    slot->sums = sums;
    slot->n_sums = (uint8_t) parts.n_sums;
    return true;
}

static bool is_shown(const struct hub_rows *self, const struct hub_group *group)
{
    return hub_view_shows(self->view, group, self->now_ms, self->store->linger_ms) &&
           hub_query_wants(self->query, HUB_NARROW_model_name, sb_labelset_value(group->labels, "model_name")) &&
           hub_query_wants(self->query, HUB_NARROW_service_name, sb_labelset_value(group->labels, "service_name"));
}

static bool reserve(struct hub_rows *self)
{
    if (self->n < self->cap)
        return true;
    size_t cap = self->cap ? self->cap * 2 : 16;
    struct hub_row_slot *slots = realloc(self->slots, cap * sizeof slots[0]);
    if (!slots)
        return false;
    self->slots = slots;
    self->cap = cap;
    return true;
}

/* The slot of a row, made when it is met first: ids of later groups are higher than all that were met. */
static struct hub_row_slot *find_slot(struct hub_rows *self, const struct hub_group *group)
{
    if (self->at >= self->n || self->slots[self->at].group > group->id)
        self->at = 0;
    while (self->at < self->n && self->slots[self->at].group < group->id)
        self->at++;
    if (self->at < self->n && self->slots[self->at].group == group->id)
        return &self->slots[self->at];
    if (self->at < self->n || !reserve(self))
        return NULL;
    self->slots[self->n++] = (struct hub_row_slot){.group = group->id, .is_shown = is_shown(self, group)};
    return &self->slots[self->at];
}

bool hub_rows_read(struct hub_rows *self, const struct hub_group *group, uint32_t scope, struct hub_row *out)
{
    struct hub_row_slot *slot = find_slot(self, group);
    if (!slot || !slot->is_shown)
        return false;
    if (!self->view->spec->is_role_scoped)
        scope = 0;
    if (slot->n_sums == 0 && (group->n_members != 1 || group->n_retired > 0) && !add_up(self, group, slot))
        return false;
    if (slot->n_sums > 0) {
        if (scope >= slot->n_sums)
            return false; /* of a family that came later */
        *out = (struct hub_row){
            .values = &slot->sums[scope].values, .maxima = slot->sums[scope].maxima, .has_gauges = true};
        return true;
    }
    const struct hub_contribution *only = group->members[0];
    const char *role = role_of(only->role);
    *out = (struct hub_row){.values = &only->values, .has_gauges = only->source->shown == only};
    return hub_query_wants(self->query, HUB_NARROW_role, role) &&
           (scope == 0 || hub_index_has_role(&self->store->index, scope, role));
}
