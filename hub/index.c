#include "hub/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An exposed name and the family that has it. Both texts follow in one block. */
struct claim {
    const char *owner;
    char name[];
};

struct series_key {
    const struct hub_variant *variant;
    const struct sb_labelset *labels;
};

static bool is_text(const char *text, struct sb_slice slice)
{
    return strlen(text) == slice.len && memcmp(text, slice.at, slice.len) == 0;
}

static bool family_is(const void *item, const void *key)
{
    return is_text(((const struct hub_family *) item)->name, *(const struct sb_slice *) key);
}

static bool claim_is(const void *item, const void *key)
{
    return is_text(((const struct claim *) item)->name, *(const struct sb_slice *) key);
}

static bool clash_is(const void *item, const void *key)
{
    return is_text(((const struct hub_clash *) item)->name, *(const struct sb_slice *) key);
}

static bool series_is(const void *item, const void *key)
{
    const struct hub_series *series = item;
    const struct series_key *wanted = key;
    return series->variant == wanted->variant && series->labels == wanted->labels;
}

static uint64_t hash_slice(struct sb_slice slice)
{
    return hub_hash(slice.at, slice.len, 0);
}

static struct sb_slice slice_of(const char *text)
{
    return (struct sb_slice){.at = text, .len = strlen(text)};
}

/* Makes room for one more element. */
static bool grow(void *array_p, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    uint32_t wanted = *cap ? *cap * 2 : 8;
    void *old;
    memcpy(&old, array_p, sizeof old);
    void *made = realloc(old, wanted * size);
    if (!made)
        return false;
    memcpy(array_p, &made, sizeof made);
    *cap = wanted;
    return true;
}

static const struct claim *find_claim(const struct hub_index *self, const char *name)
{
    struct sb_slice key = slice_of(name);
    return hub_table_find(&self->claims, hash_slice(key), claim_is, &key);
}

static bool add_claim(struct hub_index *self, const char *name, const char *owner)
{
    if (find_claim(self, name))
        return true;
    size_t name_size = strlen(name) + 1;
    size_t owner_size = strlen(owner) + 1;
    struct claim *claim = malloc(sizeof *claim + name_size + owner_size);
    if (!claim)
        return false;
    memcpy(claim->name, name, name_size);
    memcpy(claim->name + name_size, owner, owner_size);
    claim->owner = claim->name + name_size;
    if (hub_table_add(&self->claims, hash_slice(slice_of(name)), claim))
        return true;
    free(claim);
    return false;
}

bool hub_index_claim(struct hub_index *self, const char *name, enum sb_type type, const char *owner)
{
    char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    size_t n = sb_expo_claims(name, type, claims);
    for (size_t i = 0; i < n; i++) {
        if (!add_claim(self, claims[i], owner))
            return false;
    }
    return true;
}

/* Names that another family has, or that are kept for statsbus itself. */
bool hub_index_is_clash(const struct hub_index *self, const char *name, enum sb_type type, const char *owner)
{
    char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    size_t n = sb_expo_claims(name, type, claims);
    for (size_t i = 0; i < n; i++) {
        const struct claim *claim = find_claim(self, claims[i]);
        if (claim && strcmp(claim->owner, owner) != 0)
            return true;
    }
    return strncmp(name, "statsbus_", strlen("statsbus_")) == 0;
}

enum sb_rc hub_index_count_clash(struct hub_index *self, const char *name, struct sb_err *err)
{
    struct sb_slice key = slice_of(name);
    struct hub_clash *clash = hub_table_find(&self->clashes, hash_slice(key), clash_is, &key);
    if (!clash && self->clashes.n >= HUB_CLASH_NAMES_MAX) {
        self->counters->limits[HUB_LIMIT_clash_names]++;
        key = slice_of("_overflow");
        clash = hub_table_find(&self->clashes, hash_slice(key), clash_is, &key);
    }
    if (clash) {
        clash->count++;
        return SB_OK;
    }
    clash = calloc(1, sizeof *clash);
    char *copy = strdup(key.at);
    if (!clash || !copy || !hub_table_add(&self->clashes, hash_slice(key), clash)) {
        free(copy);
        free(clash);
        return sb_fail(err, SB_NOMEM, "no memory to count clashes of %s", name);
    }
    *clash = (struct hub_clash){.name = copy, .count = 1};
    return SB_OK;
}

enum sb_rc hub_index_init(struct hub_index *self, const struct sb_catalog *catalog, struct hub_counters *counters,
                          struct sb_err *err)
{
    *self = (struct hub_index){
        .catalog = catalog, .counters = counters, .n_cells = HUB_FIRST_PLACE, .n_gauges = HUB_FIRST_PLACE};
    self->labelsets = sb_labelsets_new();
    if (!self->labelsets)
        return sb_fail(err, SB_NOMEM, "no memory for label sets");
    for (size_t i = 0; i < catalog->n_families; i++) {
        if (!hub_index_claim(self, catalog->families[i].name, catalog->families[i].type, catalog->families[i].name))
            return sb_fail(err, SB_NOMEM, "no memory for the names of the catalog");
    }
    if (!hub_entries_claim_catalog(self))
        return sb_fail(err, SB_NOMEM, "no memory for the names of the catalog");
    return SB_OK;
}

static void destroy_variant(struct hub_variant *variant, struct sb_labelsets *labelsets)
{
    for (uint32_t i = 0; i < variant->n_series; i++) {
        sb_labelsets_drop(labelsets, &variant->series[i]->labels);
        free(variant->series[i]);
    }
    free(variant->series);
    sb_bounds_destroy(&variant->bounds);
    free(variant);
}

static void destroy_family(struct hub_family *family, struct sb_labelsets *labelsets)
{
    for (uint32_t i = 0; i < family->n_variants; i++)
        destroy_variant(family->variants[i], labelsets);
    free(family->variants);
    free(family->name);
    free(family->help);
    free(family->unit);
    free(family);
}

void hub_index_release(struct hub_index *self)
{
    size_t at = 0;
    for (struct hub_clash *clash; (clash = hub_table_next(&self->clashes, &at)) != NULL;) {
        free(clash->name);
        free(clash);
    }
    at = 0;
    for (struct claim *claim; (claim = hub_table_next(&self->claims, &at)) != NULL;)
        free(claim);
    for (uint32_t i = 0; i < self->n_families; i++)
        destroy_family(self->families[i], self->labelsets);
    hub_table_release(&self->clashes);
    hub_table_release(&self->claims);
    hub_table_release(&self->family_table);
    hub_table_release(&self->series_table);
    for (uint32_t i = 0; i < self->n_scopes; i++) {
        for (uint32_t role = 0; role < self->scopes[i].n; role++)
            free(self->scopes[i].roles[role]);
    }
    hub_entries_release(self);
    free(self->families);
    free(self->aggregates);
    free(self->family_of_gauge);
    free(self->series_of_gauge);
    if (self->labelsets)
        sb_labelsets_destroy(&self->labelsets);
}

const struct hub_family *hub_index_find(const struct hub_index *self, const char *name)
{
    const struct sb_slice key = slice_of(name);
    return hub_table_find(&self->family_table, hash_slice(key), family_is, &key);
}

static bool is_role(const struct sb_slice *role, const char *text)
{
    return is_text(text, *role);
}

static bool is_scope(const struct hub_scope *scope, const struct sb_slice *roles, uint32_t n)
{
    bool is_same = scope->n == n;
    for (uint32_t i = 0; is_same && i < n; i++)
        is_same = is_role(&roles[i], scope->roles[i]);
    return is_same;
}

/* The number of a scope, made if need be; 0 without roles, at the limit (counted) and without memory. */
static uint32_t find_scope(struct hub_index *self, const struct sb_slice *roles, uint32_t n)
{
    for (uint32_t i = 0; n > 0 && i < self->n_scopes; i++) {
        if (is_scope(&self->scopes[i], roles, n))
            return i + 1;
    }
    if (n == 0 || n > SB_ROLES_MAX || self->n_scopes == HUB_SCOPES_MAX) {
        self->counters->limits[HUB_LIMIT_role_scopes] += n > 0;
        return 0;
    }
    struct hub_scope made = {.n = n};
    bool is_ok = true;
    for (uint32_t i = 0; i < n; i++) {
        made.roles[i] = strndup(roles[i].at, roles[i].len);
        is_ok = is_ok && made.roles[i];
    }
    if (is_ok) {
        self->scopes[self->n_scopes++] = made;
        return self->n_scopes;
    }
    for (uint32_t i = 0; i < n; i++)
        free(made.roles[i]);
    return 0;
}

static uint32_t scope_of(struct hub_index *self, const struct sb_family *known, const struct hub_family_def *def)
{
    struct sb_slice roles[SB_ROLES_MAX];
    if (!known)
        return find_scope(self, def->role_scope, def->n_role_scope);
    for (size_t i = 0; i < known->n_role_scope; i++)
        roles[i] = slice_of(known->role_scope[i]);
    return find_scope(self, roles, (uint32_t) known->n_role_scope);
}

bool hub_index_has_role(const struct hub_index *self, uint32_t scope, const char *role)
{
    if (!role || strcmp(role, "both") == 0)
        return true;
    const struct hub_scope *of = &self->scopes[scope - 1];
    for (uint32_t i = 0; i < of->n; i++) {
        if (strcmp(of->roles[i], role) == 0)
            return true;
    }
    return false;
}

struct hub_series *hub_index_find_series(const struct hub_index *self, const struct hub_variant *variant,
                                         const struct sb_labelset *labels)
{
    const struct series_key key = {.variant = variant, .labels = labels};
    return hub_table_find(&self->series_table, hub_hash(&variant, sizeof variant, labels->hash), series_is, &key);
}

static char *clean_copy(struct sb_slice text, struct sb_text_faults *faults)
{
    char clean[HUB_HELP_MAX + 1];
    sb_text_clean(clean, HUB_HELP_MAX, text.at, text.len, faults);
    return strdup(clean);
}

static enum sb_aggregate aggregate_of(enum sb_type type, enum sb_semantic semantic)
{
    enum sb_aggregate aggregate = sb_semantic_aggregate(semantic);
    if (type == SB_HISTOGRAM)
        return SB_AGGREGATE_MERGE;
    /* Counters add up, whatever is said of them; only gauges can be anything else. */
    return type == SB_COUNTER || aggregate == SB_AGGREGATE_MERGE ? SB_AGGREGATE_SUM : aggregate;
}

/* Everything about a family but its numbers: the catalog's words, else the agent's. */
static bool describe(struct hub_family *family, const struct hub_family_def *def, struct sb_text_faults *faults)
{
    const struct sb_family *known = family->catalog;
    if (known) {
        family->aggregate = aggregate_of(known->type, known->semantic);
        family->quantiles = known->quantiles;
        family->n_quantiles = known->n_quantiles;
        family->help = strdup(known->help ? known->help : "");
        family->unit = known->unit ? strdup(known->unit) : NULL;
        return family->help && (!known->unit || family->unit);
    }
    enum sb_semantic semantic = sb_semantic_of_type(def->type);
    if (def->semantic.len > 0) {
        enum sb_semantic said;
        if (sb_semantic_parse(def->semantic.at, def->semantic.len, &said))
            semantic = said;
    }
    family->aggregate = aggregate_of(def->type, semantic);
    if (def->type == SB_HISTOGRAM)
        family->quantiles = sb_semantic_quantiles(semantic, &family->n_quantiles);
    family->help = clean_copy(def->help, faults);
    bool has_unit = def->unit.len > 0 && sb_metric_name_is_valid(def->unit.at, def->unit.len);
    family->unit = has_unit ? strndup(def->unit.at, def->unit.len) : NULL;
    return family->help && (!has_unit || family->unit);
}

static bool reserve_family(struct hub_index *self)
{
    uint32_t cap = self->cap_families;
    uint32_t aggregates_cap = cap;
    if (!grow(&self->aggregates, self->n_families, &aggregates_cap, sizeof(uint8_t)) ||
        !grow(&self->families, self->n_families, &cap, sizeof(struct hub_family *)))
        return false;
    self->cap_families = cap;
    return true;
}

static struct hub_family *add_family(struct hub_index *self, const char *name, const struct sb_family *known,
                                     const struct hub_family_def *def)
{
    struct hub_family *family = calloc(1, sizeof *family);
    if (!family)
        return NULL;
    family->id = self->n_families;
    family->type = def->type;
    family->catalog = known;
    family->name = strdup(name);
    family->scope = scope_of(self, known, def);
    if (!family->name || !describe(family, def, &self->counters->label_faults) || !reserve_family(self) ||
        !hub_index_claim(self, name, def->type, name) ||
        !hub_table_add(&self->family_table, hash_slice(slice_of(family->name)), family)) {
        destroy_family(family, self->labelsets);
        return NULL;
    }
    self->families[family->id] = family;
    self->aggregates[family->id] = (uint8_t) family->aggregate;
    if (!hub_entries_add(self, family)) {
        hub_table_remove(&self->family_table, hash_slice(slice_of(family->name)), family);
        destroy_family(family, self->labelsets);
        return NULL;
    }
    if (known && known->count != SB_AGENT_COUNT_NONE)
        self->counts[known->count] = family;
    self->n_families++;
    return family;
}

static bool has_bounds(const struct hub_variant *variant, const struct hub_family_def *def)
{
    if (!variant->bounds)
        return true; /* of a family without bounds: there is one variant only */
    return variant->bounds->n == def->n_bounds &&
           memcmp(variant->bounds->upper, def->bounds, def->n_bounds * sizeof def->bounds[0]) == 0;
}

static enum sb_rc add_variant(struct hub_index *self, struct hub_family *family, const struct hub_family_def *def,
                              struct hub_variant **out, struct sb_err *err)
{
    struct hub_variant *variant = calloc(1, sizeof *variant);
    if (!variant || !grow(&family->variants, family->n_variants, &family->cap_variants, sizeof variant)) {
        free(variant);
        return sb_fail(err, SB_NOMEM, "no memory for bounds of %s", family->name);
    }
    variant->family = family;
    variant->n_cells = 1;
    if (def->type == SB_HISTOGRAM) {
        variant->bounds = sb_bounds_new(def->bounds, def->n_bounds, err);
        if (!variant->bounds) {
            free(variant);
            return err ? err->rc : SB_INVAL;
        }
        variant->n_cells = def->n_bounds + 2;
    }
    family->variants[family->n_variants++] = variant;
    self->n_variants++;
    *out = variant;
    return SB_OK;
}

enum sb_rc hub_index_variant(struct hub_index *self, const struct hub_family_def *def, struct hub_variant **out,
                             struct sb_err *err)
{
    char name[SB_EXPO_NAME_MAX];
    bool is_bare =
        def->type == SB_COUNTER && (def->name.len < 6 || memcmp(def->name.at + def->name.len - 6, "_total", 6));
    int len = snprintf(name, sizeof name, "%.*s%s", (int) def->name.len, def->name.at, is_bare ? "_total" : "");
    const struct sb_slice key = {.at = name, .len = (size_t) len};

    struct hub_family *family = hub_table_find(&self->family_table, hash_slice(key), family_is, &key);
    const struct sb_family *known = sb_catalog_family(self->catalog, name, (size_t) len);
    *out = NULL;
    if (family ? family->type != def->type
               : (known ? known->type != def->type : hub_index_is_clash(self, name, def->type, name)))
        return hub_index_count_clash(self, name, err);

    for (uint32_t i = 0; family && i < family->n_variants; i++) {
        if (has_bounds(family->variants[i], def)) {
            *out = family->variants[i];
            return SB_OK;
        }
    }
    if (self->n_variants >= HUB_FAMILIES_MAX) {
        self->counters->limits[HUB_LIMIT_families]++;
        return SB_OK;
    }
    if (!family)
        family = add_family(self, name, known, def);
    if (!family)
        return sb_fail(err, SB_NOMEM, "no memory for family %s", name);
    return add_variant(self, family, def, out, err);
}

static bool reserve_gauge(struct hub_index *self)
{
    if (self->cap_gauges == 0 && self->n_gauges > 0) { /* the reserved places have no series */
        self->family_of_gauge = calloc(64, sizeof self->family_of_gauge[0]);
        self->series_of_gauge = calloc(64, sizeof(struct hub_series *));
        if (!self->family_of_gauge || !self->series_of_gauge)
            return false;
        self->cap_gauges = 64;
    }
    uint32_t cap = self->cap_gauges;
    uint32_t same = cap;
    if (!grow(&self->family_of_gauge, self->n_gauges, &same, sizeof self->family_of_gauge[0]) ||
        !grow(&self->series_of_gauge, self->n_gauges, &cap, sizeof(struct hub_series *)))
        return false;
    self->cap_gauges = cap;
    return true;
}

/* Gives the series its cells, or its gauge, for which there is room. */
static void place_series(struct hub_index *self, struct hub_series *series)
{
    if (series->variant->family->type != SB_GAUGE) {
        series->first = self->n_cells;
        self->n_cells += series->n_cells;
        return;
    }
    series->first = self->n_gauges++;
    self->family_of_gauge[series->first] = series->variant->family->id;
    self->series_of_gauge[series->first] = series;
}

static bool is_full(const struct hub_index *self, const struct hub_variant *variant)
{
    if (variant->family->type == SB_GAUGE)
        return self->n_gauges >= HUB_GAUGES_MAX;
    return self->n_cells + variant->n_cells > HUB_CELLS_MAX;
}

enum sb_rc hub_index_series(struct hub_index *self, struct hub_variant *variant, const struct sb_label_draft *labels,
                            struct hub_series **out, struct sb_err *err)
{
    *out = NULL;
    struct sb_labelset *set = sb_labelsets_get(self->labelsets, labels);
    if (!set)
        return sb_fail(err, SB_NOMEM, "no memory for labels of %s", variant->family->name);

    struct hub_series *series = hub_index_find_series(self, variant, set);
    if (series || is_full(self, variant)) {
        self->counters->limits[HUB_LIMIT_cells] += series == NULL;
        sb_labelsets_drop(self->labelsets, &set);
        *out = series;
        return SB_OK;
    }

    series = calloc(1, sizeof *series);
    if (series)
        *series = (struct hub_series){.variant = variant, .labels = set, .n_cells = variant->n_cells};
    if (!series || !grow(&variant->series, variant->n_series, &variant->cap_series, sizeof series) ||
        (variant->family->type == SB_GAUGE && !reserve_gauge(self)) ||
        !hub_table_add(&self->series_table, hub_hash(&variant, sizeof variant, set->hash), series)) {
        free(series);
        sb_labelsets_drop(self->labelsets, &set);
        return sb_fail(err, SB_NOMEM, "no memory for series of %s", variant->family->name);
    }
    place_series(self, series);
    variant->series[variant->n_series++] = series;
    self->n_series++;
    *out = series;
    return SB_OK;
}
