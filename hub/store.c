#include "hub/store.h"

#include <stdlib.h>
#include <string.h>

#include "hub/rates.h"
#include "hub/windows.h"

struct source_key {
    enum hub_kind kind;
    const struct sb_labelset *labels;
};

struct epoch_key {
    const struct hub_lineage *lineage;
    uint64_t epoch;
};

static bool lineage_is(const void *item, const void *key)
{
    return memcmp(((const struct hub_lineage *) item)->id, key, HUB_LINEAGE_BYTES) == 0;
}

static bool source_is(const void *item, const void *key)
{
    const struct hub_source *source = item;
    const struct source_key *wanted = key;
    return source->kind == wanted->kind && source->key == wanted->labels;
}

static bool epoch_is(const void *item, const void *key)
{
    const struct hub_contribution *contribution = item;
    const struct epoch_key *wanted = key;
    return contribution->lineage == wanted->lineage && contribution->epoch == wanted->epoch;
}

static uint64_t lineage_hash(const uint8_t id[HUB_LINEAGE_BYTES])
{
    return hub_hash(id, HUB_LINEAGE_BYTES, 0);
}

static uint64_t source_hash(enum hub_kind kind, const struct sb_labelset *labels)
{
    return hub_hash(&kind, sizeof kind, labels->hash);
}

static uint64_t epoch_hash(const struct hub_lineage *lineage, uint64_t epoch)
{
    return hub_hash(&epoch, sizeof epoch, lineage_hash(lineage->id));
}

/* A list of contributions, as lineages and sources have one. */
static bool list_reserve(struct hub_contribution ***list, uint32_t n, uint32_t *cap)
{
    if (n < *cap)
        return true;
    uint32_t wanted = *cap ? *cap * 2 : 2;
    struct hub_contribution **made = realloc(*list, wanted * sizeof made[0]);
    if (!made)
        return false;
    *list = made;
    *cap = wanted;
    return true;
}

static void list_remove(struct hub_contribution **list, uint32_t *n, const struct hub_contribution *item)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (list[i] != item)
            continue;
        --*n;
        memmove(&list[i], &list[i + 1], (*n - i) * sizeof list[0]);
        return;
    }
}

enum sb_rc hub_store_init(struct hub_store *self, const struct sb_catalog *catalog, const struct hub_view_specs *views,
                          struct hub_counters *counters, struct hub_store_limits limits, struct sb_err *err)
{
    *self = (struct hub_store){.counters = counters,
                               .contributions_max = limits.contributions,
                               .row_bytes_max = limits.row_bytes,
                               .linger_ms = limits.linger_ms};
    if (hub_index_init(&self->index, catalog, counters, err) != SB_OK)
        return SB_NOMEM;
    for (size_t i = 0; i < views->n; i++)
        hub_view_init(&self->views[self->n_views++], &views->at[i], (unsigned) i, self->index.labelsets);
    self->n_shown_views = self->n_views;
    return SB_OK;
}

static void destroy_source(struct hub_store *self, struct hub_source *source)
{
    sb_labelsets_drop(self->index.labelsets, &source->key);
    if (source->worker)
        sb_labelsets_drop(self->index.labelsets, &source->worker);
    if (source->identity)
        sb_labelsets_drop(self->index.labelsets, &source->identity);
    if (source->row)
        sb_labelsets_drop(self->index.labelsets, &source->row);
    free(source->contributions);
    free(source);
}

static void destroy_lineage(struct hub_lineage *lineage)
{
    sb_ranges_release(&lineage->final);
    free(lineage->contributions);
    free(lineage);
}

static void destroy_contribution(struct hub_store *self, struct hub_contribution *contribution)
{
    sb_labelsets_drop(self->index.labelsets, &contribution->identity);
    sb_labelsets_drop(self->index.labelsets, &contribution->role);
    hub_values_release(&contribution->values);
    hub_rates_destroy(&contribution->rates);
    free(contribution->stats);
    free(contribution->wire_gauges);
    free(contribution);
}

void hub_store_release(struct hub_store *self)
{
    size_t at = 0;
    for (struct hub_contribution *each; (each = hub_table_next(&self->contributions, &at)) != NULL;)
        destroy_contribution(self, each);
    at = 0;
    for (struct hub_source *each; (each = hub_table_next(&self->sources, &at)) != NULL;)
        destroy_source(self, each);
    at = 0;
    for (struct hub_lineage *each; (each = hub_table_next(&self->lineages, &at)) != NULL;)
        destroy_lineage(each);
    for (size_t i = 0; i < self->n_views; i++)
        hub_view_release(&self->views[i]);
    hub_table_release(&self->contributions);
    hub_table_release(&self->sources);
    free(self->source_list);
    hub_table_release(&self->lineages);
    hub_computed_release(&self->computed);
    hub_windows_destroy(&self->windows);
    hub_index_release(&self->index);
    *self = (struct hub_store){0};
}

enum sb_rc hub_store_compute(struct hub_store *self, const struct hub_computed_specs *specs,
                             const struct hub_expectations *expected, int64_t rate_window_ms, struct sb_err *err)
{
    return hub_computed_init(&self->computed, specs, expected, rate_window_ms, &self->index, err);
}

const struct hub_view *hub_store_view(const struct hub_store *self, const char *name)
{
    for (size_t i = 0; i < self->n_shown_views; i++) {
        if (strcmp(self->views[i].spec->name, name) == 0)
            return &self->views[i];
    }
    return NULL;
}

/* Of those that are closed, the one that was heard of longest ago makes room. */
static void forget_closed_lineage(struct hub_store *self)
{
    struct hub_lineage *oldest = NULL;
    size_t at = 0;
    for (struct hub_lineage *each; (each = hub_table_next(&self->lineages, &at)) != NULL;) {
        bool is_idle = each->is_closed && each->n_sessions == 0 && each->n_contributions == 0;
        if (is_idle && (!oldest || each->heard_ms < oldest->heard_ms))
            oldest = each;
    }
    if (!oldest)
        return;
    hub_table_remove(&self->lineages, lineage_hash(oldest->id), oldest);
    destroy_lineage(oldest);
}

struct hub_lineage *hub_store_lineage(struct hub_store *self, const uint8_t id[HUB_LINEAGE_BYTES], struct sb_err *err)
{
    struct hub_lineage *lineage = hub_table_find(&self->lineages, lineage_hash(id), lineage_is, id);
    if (lineage)
        return lineage;
    if (self->lineages.n >= HUB_LINEAGES_MAX) {
        self->counters->limits[HUB_LIMIT_lineages]++;
        forget_closed_lineage(self);
    }
    if (self->lineages.n >= HUB_LINEAGES_MAX) {
        sb_fail(err, SB_FULL, "%d lineages are known already", HUB_LINEAGES_MAX);
        return NULL;
    }
    lineage = calloc(1, sizeof *lineage);
    if (!lineage || !hub_table_add(&self->lineages, lineage_hash(id), lineage)) {
        free(lineage);
        sb_fail(err, SB_NOMEM, "no memory for a lineage");
        return NULL;
    }
    memcpy(lineage->id, id, HUB_LINEAGE_BYTES);
    sb_ranges_init(&lineage->final);
    return lineage;
}

void hub_lineage_begin_session(struct hub_lineage *lineage, uint64_t session, int64_t now_ms)
{
    lineage->session = session;
    lineage->n_sessions++;
    lineage->heard_ms = now_ms;
    lineage->began_ms = now_ms;
}

/* What must not be named again is remembered, until the lineage is closed and after. */
static void remove_idle_lineage(struct hub_store *self, struct hub_lineage *lineage)
{
    if (lineage->n_sessions > 0 || lineage->n_contributions > 0 || lineage->is_closed || lineage->final.n > 0)
        return;
    hub_table_remove(&self->lineages, lineage_hash(lineage->id), lineage);
    destroy_lineage(lineage);
}

void hub_store_end_session(struct hub_store *self, struct hub_lineage *lineage, uint64_t session)
{
    if (lineage->session == session)
        lineage->session = 0;
    lineage->n_sessions--;
    remove_idle_lineage(self, lineage);
}

struct hub_contribution *hub_store_find(const struct hub_store *self, const struct hub_lineage *lineage, uint64_t epoch)
{
    const struct epoch_key key = {.lineage = lineage, .epoch = epoch};
    return hub_table_find(&self->contributions, epoch_hash(lineage, epoch), epoch_is, &key);
}

static bool reserve_source(struct hub_store *self)
{
    if (self->n_sources < self->cap_sources)
        return true;
    size_t cap = self->cap_sources ? self->cap_sources * 2 : 16;
    struct hub_source **list = realloc(self->source_list, cap * sizeof list[0]);
    if (!list)
        return false;
    self->source_list = list;
    self->cap_sources = cap;
    return true;
}

/* The key of a source without its rank. NULL: out of memory. */
static struct sb_labelset *worker_of(struct hub_store *self, const struct sb_labelset *key)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    for (uint32_t i = 0; i < key->n; i++) {
        const struct sb_label *label = &key->labels[i];
        if (strcmp(label->name, "dp_rank") != 0 &&
            sb_label_draft_set(&draft, label->name, strlen(label->name), label->value, strlen(label->value), NULL,
                               NULL) != SB_OK)
            return NULL;
    }
    return sb_labelsets_get(self->index.labelsets, &draft);
}

/* The source of a key, made if need be; takes the label set. NULL: out of memory. */
static struct hub_source *get_source(struct hub_store *self, enum hub_kind kind, struct sb_labelset *labels)
{
    const struct source_key key = {.kind = kind, .labels = labels};
    struct hub_source *source = hub_table_find(&self->sources, source_hash(kind, labels), source_is, &key);
    if (source) {
        sb_labelsets_drop(self->index.labelsets, &labels);
        return source;
    }
    source = calloc(1, sizeof *source);
    struct sb_labelset *worker = worker_of(self, labels);
    if (!source || !worker || !reserve_source(self) ||
        !hub_table_add(&self->sources, source_hash(kind, labels), source)) {
        sb_labelsets_drop(self->index.labelsets, &labels);
        if (worker)
            sb_labelsets_drop(self->index.labelsets, &worker);
        free(source);
        return NULL;
    }
    source->kind = kind;
    source->key = labels;
    source->worker = worker;
    source->id = ++self->last_source;
    self->source_list[self->n_sources++] = source;
    return source;
}

/* One that was made for a contribution that could not be: the last of the list. */
static void unmake_source(struct hub_store *self, struct hub_source *source)
{
    if (source->row)
        return;
    self->n_sources--;
    hub_table_remove(&self->sources, source_hash(source->kind, source->key), source);
    destroy_source(self, source);
}

void hub_store_sweep_sources(struct hub_store *self)
{
    size_t n_idle = 0;
    for (size_t i = 0; i < self->n_sources; i++) {
        const struct hub_source *each = self->source_list[i];
        n_idle += each->n_contributions == 0 && hub_source_is_shown(self, each, self->now_ms);
    }
    size_t n_over = n_idle > HUB_IDLE_SOURCES_MAX ? n_idle - HUB_IDLE_SOURCES_MAX : 0;
    self->counters->limits[HUB_LIMIT_idle_sources] += n_over;
    size_t kept = 0;
    for (size_t i = 0; i < self->n_sources; i++) {
        struct hub_source *each = self->source_list[i];
        bool is_shown = hub_source_is_shown(self, each, self->now_ms);
        if (each->n_contributions > 0 || (is_shown && n_over == 0)) {
            self->source_list[kept++] = each;
            continue;
        }
        n_over -= is_shown;
        hub_table_remove(&self->sources, source_hash(each->kind, each->key), each);
        destroy_source(self, each);
    }
    self->n_sources = kept;
}

static void leave_views(struct hub_store *self, struct hub_contribution *contribution)
{
    for (size_t i = 0; i < self->n_views; i++) {
        if (contribution->groups[i])
            hub_view_leave(&self->views[i], contribution->groups[i], contribution);
        contribution->groups[i] = NULL;
    }
}

static bool join_views(struct hub_store *self, struct hub_contribution *contribution)
{
    for (size_t i = 0; i < self->n_views; i++) {
        if (!hub_view_takes(&self->views[i], contribution->identity))
            continue;
        contribution->groups[i] = hub_view_join(&self->views[i], contribution, contribution->identity);
        if (!contribution->groups[i]) {
            leave_views(self, contribution);
            return false;
        }
    }
    return true;
}

/* Puts a new contribution into lists, tables and views; all or nothing. */
static bool enlist(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_lineage *lineage = contribution->lineage;
    struct hub_source *source = contribution->source;
    uint64_t hash = epoch_hash(lineage, contribution->epoch);
    if (!list_reserve(&lineage->contributions, lineage->n_contributions, &lineage->cap_contributions) ||
        !list_reserve(&source->contributions, source->n_contributions, &source->cap_contributions) ||
        !hub_table_add(&self->contributions, hash, contribution))
        return false;
    if (!join_views(self, contribution)) {
        hub_table_remove(&self->contributions, hash, contribution);
        return false;
    }
    if (!hub_source_meet(self, contribution)) {
        leave_views(self, contribution);
        hub_table_remove(&self->contributions, hash, contribution);
        return false;
    }
    self->n_lives++;
    lineage->contributions[lineage->n_contributions++] = contribution;
    source->contributions[source->n_contributions++] = contribution;
    return true;
}

/* The label role by itself, so that equal roles are one pointer. NULL: out of memory. */
static struct sb_labelset *role_of(struct hub_store *self, const struct sb_labelset *identity)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    const char *role = sb_labelset_value(identity, "role");
    if (role && sb_label_draft_set(&draft, "role", strlen("role"), role, strlen(role), NULL, NULL) != SB_OK)
        return NULL;
    return sb_labelsets_get(self->index.labelsets, &draft);
}

static enum sb_rc add_contribution(struct hub_store *self, struct hub_lineage *lineage, uint64_t epoch,
                                   struct hub_source *source, struct sb_labelset *identity,
                                   struct hub_contribution **out, struct sb_err *err)
{
    struct sb_labelset *role = role_of(self, identity);
    struct hub_contribution *made = calloc(1, sizeof *made);
    if (made)
        *made = (struct hub_contribution){
            .lineage = lineage, .epoch = epoch, .source = source, .identity = identity, .role = role};
    if (!made || !role || !enlist(self, made)) {
        free(made);
        if (role)
            sb_labelsets_drop(self->index.labelsets, &role);
        sb_labelsets_drop(self->index.labelsets, &identity);
        unmake_source(self, source);
        return sb_fail(err, SB_NOMEM, "no memory for a contribution");
    }
    *out = made;
    return SB_OK;
}

enum sb_rc hub_store_contribution(struct hub_store *self, struct hub_lineage *lineage,
                                  const struct hub_contribution_def *def, struct hub_contribution **out,
                                  struct sb_err *err)
{
    *out = NULL;
    struct hub_contribution *known = hub_store_find(self, lineage, def->epoch);
    if (sb_ranges_has(&lineage->final, def->epoch) || (known && known->is_forgotten)) {
        hub_store_close(self, lineage);
        return sb_fail(err, SB_ABSENT, "epoch %llu was retired", (unsigned long long) def->epoch);
    }
    if (!known && self->contributions.n >= self->contributions_max) {
        self->counters->limits[HUB_LIMIT_contributions]++;
        return SB_OK;
    }
    struct sb_labelset *key = sb_labelsets_get(self->index.labelsets, def->source);
    struct sb_labelset *identity = sb_labelsets_get(self->index.labelsets, def->identity);
    if (key && identity && !known) {
        struct hub_source *source = get_source(self, def->kind, key);
        if (source)
            return add_contribution(self, lineage, def->epoch, source, identity, out, err);
        key = NULL;
    }

    enum sb_rc rc = SB_OK;
    if (!key || !identity)
        rc = sb_fail(err, SB_NOMEM, "no memory for labels of a contribution");
    else if (known->identity != identity || known->source->key != key || known->source->kind != def->kind)
        rc = sb_fail(err, SB_INVAL, "epoch %llu is known with other labels", (unsigned long long) def->epoch);
    else
        *out = known;
    if (key)
        sb_labelsets_drop(self->index.labelsets, &key);
    if (identity)
        sb_labelsets_drop(self->index.labelsets, &identity);
    return rc;
}

void hub_store_remove(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_lineage *lineage = contribution->lineage;
    struct hub_source *source = contribution->source;
    hub_contribution_bury(self, contribution, contribution->is_ended);
    leave_views(self, contribution);
    hub_table_remove(&self->contributions, epoch_hash(lineage, contribution->epoch), contribution);
    list_remove(lineage->contributions, &lineage->n_contributions, contribution);
    list_remove(source->contributions, &source->n_contributions, contribution);
    hub_source_leave(self, contribution);
    self->n_lives++;
    self->row_bytes -= hub_contribution_bytes(contribution);
    destroy_contribution(self, contribution);
    hub_source_choose(source);
    remove_idle_lineage(self, lineage);
}

size_t hub_contribution_bytes(const struct hub_contribution *contribution)
{
    return hub_values_bytes(&contribution->values) +
           contribution->cap_wire_gauges * sizeof contribution->wire_gauges[0];
}
