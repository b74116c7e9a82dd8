#include "hub/adding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hub_row_sums_destroy(struct hub_row_sums **self_p)
{
    struct hub_row_sums *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    for (uint32_t i = 0; i < self->n; i++)
        hub_sum_release(&self->at[i]);
    free(self->computed);
    free(self);
}

size_t hub_row_sums_bytes(const struct hub_row_sums *self)
{
    if (!self)
        return 0;
    size_t bytes = sizeof *self + self->n_computed * sizeof self->computed[0];
    for (uint32_t i = 0; i < self->n; i++)
        bytes += hub_sum_bytes(&self->at[i]);
    return bytes;
}

void hub_adding_release(struct hub_adding *self)
{
    hub_row_sums_destroy(&self->sums);
    hub_gauge_places_release(&self->places);
    free(self->parts);
    free(self->computed);
    *self = (struct hub_adding){0};
}

const char *hub_role_of(const struct sb_labelset *role)
{
    return role->n > 0 ? role->labels[0].value : NULL;
}

/* --- the parts of one go --- */

/* Parts under way, and what is known of the role that came last: roles come in runs. */
struct parts {
    const struct hub_adding_ask *ask;
    struct hub_part *at;
    size_t n;
    uint32_t n_scopes;
    const struct sb_labelset *role;
    uint32_t scopes; /* bit by scope: the role counts there */
    bool is_wanted;
    double *computed; /* NULL: nothing is */
};

static uint32_t scopes_of_role(const struct parts *parts, const char *role)
{
    uint32_t scopes = 1;
    for (uint32_t scope = 1; scope < parts->n_scopes; scope++) {
        if (hub_index_has_role(&parts->ask->store->index, scope, role))
            scopes |= 1u << scope;
    }
    return scopes;
}

static void note_role(struct parts *parts, const struct sb_labelset *role)
{
    if (role == parts->role)
        return;
    parts->role = role;
    parts->is_wanted = hub_query_wants(parts->ask->query, HUB_NARROW_role, hub_role_of(role));
    parts->scopes = scopes_of_role(parts, hub_role_of(role));
}

static size_t looks_at(const struct hub_values *values)
{
    return 1 + (values->n_pages + values->n_gauges) / HUB_PAGES_A_LOOK;
}

static void spend(size_t *looks, size_t n)
{
    *looks -= n < *looks ? n : *looks;
}

static void put_member(struct parts *parts, const struct hub_contribution *member)
{
    note_role(parts, member->role);
    if (!parts->is_wanted)
        return;
    parts->at[parts->n++] =
        (struct hub_part){.values = &member->values,
                          .sums = parts->scopes,
                          .has_gauges = !parts->ask->is_without_gauges && member->source->shown == member};
    if (parts->computed)
        hub_computed_add(parts->ask->store, parts->ask->view, member, parts->computed);
}

static void put_retired(struct parts *parts, const struct hub_retired *retired)
{
    note_role(parts, retired->role);
    if (parts->is_wanted)
        parts->at[parts->n++] =
            (struct hub_part){.values = &retired->high, .low = &retired->low, .sums = parts->scopes};
}

static bool is_all_in(const struct hub_adding *self, const struct hub_group *group)
{
    return self->next_member >= group->n_members && self->next_retired >= group->n_retired;
}

/* The next parts of the group, for as many looks as are left; at least one. */
static void collect(struct hub_adding *self, const struct hub_group *group, bool is_hurried, size_t *looks,
                    struct parts *parts)
{
    while (parts->n < HUB_PARTS_MAX && !is_all_in(self, group)) {
        const bool is_member = self->next_member < group->n_members;
        const struct hub_contribution *member = is_member ? group->members[self->next_member] : NULL;
        const struct hub_retired *retired = is_member ? NULL : &group->retired[self->next_retired];
        const size_t cost = looks_at(is_member ? &member->values : &retired->high);
        if (is_member)
            put_member(parts, member);
        else
            put_retired(parts, retired);
        self->next_member += is_member;
        self->next_retired += !is_member;
        spend(looks, cost);
        if (*looks == 0 && !is_hurried)
            return;
    }
}

/* Brings parts of the same sums together, keeping their order. */
static void gather(struct parts *parts)
{
    struct hub_part *sorted = parts->at + HUB_PARTS_MAX;
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
    parts->at = sorted;
}

static bool is_one_run(const struct parts *parts)
{
    for (size_t i = 1; i < parts->n; i++) {
        if (parts->at[i].sums != parts->at[0].sums)
            return false;
    }
    return true;
}

/* --- the sums --- */

/* Do two scopes count the same parts? */
static bool is_same_scope(const struct parts *parts, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < parts->n; i++) {
        if ((parts->at[i].sums >> a & 1) != (parts->at[i].sums >> b & 1))
            return false;
    }
    return true;
}

static bool has_any(const struct parts *parts, uint32_t scope)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->at[i].sums >> scope & 1)
            return true;
    }
    return false;
}

/* The sum that an earlier scope has with the same parts, or a new one. */
static uint8_t sum_of_scope(const struct parts *parts, const struct hub_row_sums *sums, uint32_t scope)
{
    if (!has_any(parts, scope))
        return HUB_NO_SUM;
    for (uint32_t earlier = 0; earlier < scope; earlier++) {
        if (sums->of[earlier] != HUB_NO_SUM && is_same_scope(parts, earlier, scope))
            return sums->of[earlier];
    }
    return (uint8_t) sums->n;
}

/* Parts say by scope what they are part of; this makes that by sum. */
static void number_by_sum(struct parts *parts, const struct hub_row_sums *sums)
{
    for (size_t i = 0; i < parts->n; i++) {
        uint32_t by_sum = 0;
        for (uint32_t scope = 0; scope < sums->n_scopes; scope++) {
            if (sums->of[scope] != HUB_NO_SUM && (parts->at[i].sums >> scope & 1))
                by_sum |= 1u << sums->of[scope];
        }
        parts->at[i].sums = by_sum;
    }
}

/* is_whole: these are all parts of the row, so that scopes which they count for alike can share a sum. */
static struct hub_row_sums *make_sums(struct parts *parts, bool is_whole)
{
    struct hub_row_sums *self = calloc(1, sizeof *self + parts->n_scopes * sizeof self->at[0]);
    if (!self)
        return NULL;
    self->n_scopes = parts->n_scopes;
    for (uint32_t scope = 0; scope < parts->n_scopes; scope++) {
        self->of[scope] = is_whole ? sum_of_scope(parts, self, scope) : (uint8_t) scope;
        if (self->of[scope] == self->n)
            self->n++;
    }
    return self;
}

/* New memory is dearer than what is added to it. */
static size_t looks_at_memory(const struct hub_row_sums *sums)
{
    enum { DEARER = 4 };
    size_t looks = 0;
    for (uint32_t i = 0; i < sums->n; i++)
        looks += DEARER * looks_at(&sums->at[i].values);
    return looks;
}

/* --- turns --- */

static void begin(struct hub_adding *self, const struct hub_adding_ask *ask, const struct hub_group *group)
{
    hub_row_sums_destroy(&self->sums);
    free(self->computed);
    self->computed = NULL;
    const struct hub_computed_specs *specs = ask->store->computed.specs;
    if (specs && specs->n > 0 && ask->view->has_derived)
        self->computed = malloc(specs->n * sizeof self->computed[0]); /* without memory: not part of this scrape */
    for (size_t i = 0; self->computed && i < specs->n; i++)
        self->computed[i] = NAN;
    self->group = group->id;
    self->n_moves = group->n_moves;
    self->next_member = self->next_retired = 0;
}

/* Begins with the group, unless it goes on. What has moved may be in the sums already, and come again. */
static bool resume(struct hub_adding *self, const struct hub_adding_ask *ask, const struct hub_group *group)
{
    if (self->group != group->id) {
        begin(self, ask, group);
        self->n_restarts = 0;
    } else if (self->n_moves != group->n_moves) {
        begin(self, ask, group);
        self->n_restarts++;
    }
    if (!self->parts)
        self->parts = malloc(2 * (size_t) HUB_PARTS_MAX * sizeof self->parts[0]);
    return self->parts;
}

static bool add_parts(struct hub_adding *self, struct parts *parts, bool is_last)
{
    const bool is_first = !self->sums;
    if (is_first)
        self->sums = make_sums(parts, is_last);
    if (!self->sums)
        return false;
    if (is_first && is_last)
        number_by_sum(parts, self->sums);
    if (!is_one_run(parts))
        gather(parts);
    const struct hub_fold fold = {
        .aggregates = parts->ask->store->index.aggregates, .places = &self->places, .is_last = is_last};
    return hub_sums_add(&fold, self->sums->at, self->sums->n, parts->at, parts->n);
}

enum hub_adding_step hub_adding_go(struct hub_adding *self, const struct hub_adding_ask *ask,
                                   const struct hub_group *group, size_t *looks, struct hub_row_sums **out)
{
    if (!resume(self, ask, group))
        return HUB_ADDING_NO_MEMORY;
    const bool is_hurried = self->n_restarts >= HUB_RESTARTS_MAX;
    do {
        struct parts parts = {.ask = ask, .at = self->parts, .computed = self->computed};
        parts.n_scopes = self->sums                  ? self->sums->n_scopes
                         : ask->view->is_role_scoped ? 1 + ask->store->index.n_scopes
                                                     : 1;
        collect(self, group, is_hurried, looks, &parts);
        const bool is_last = is_all_in(self, group);
        if (!add_parts(self, &parts, is_last)) {
            self->group = 0;
            return HUB_ADDING_NO_MEMORY;
        }
        if (is_last) {
            spend(looks, looks_at_memory(self->sums));
            self->sums->computed = self->computed;
            self->sums->n_computed = self->computed ? (uint32_t) ask->store->computed.specs->n : 0;
            *out = self->sums;
            self->sums = NULL;
            self->computed = NULL;
            self->group = 0;
            return HUB_ADDING_DONE;
        }
    } while (*looks > 0 || is_hurried);
    return HUB_ADDING_LATER;
}
