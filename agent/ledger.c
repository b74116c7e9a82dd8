#include "agent/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "agent/ledger_private.h"

struct agent_ledger *agent_ledger_new(struct sb_labelsets *labelsets)
{
    struct agent_ledger *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->labelsets = labelsets;
    self->next_epoch = 1;
    return self;
}

static void free_contribution(struct agent_ledger *self, struct agent_contribution *contribution)
{
    if (!contribution)
        return;
    sb_labelsets_drop(self->labelsets, &contribution->source);
    sb_labelsets_drop(self->labelsets, &contribution->identity);
    free(contribution->live);
    free(contribution->staged);
    free(contribution->told);
    free(contribution->series);
    free(contribution->order);
    free(contribution->gauges);
    free(contribution->inputs);
    free(contribution->shown_cells);
    free(contribution->shown_values);
    free(contribution);
}

void agent_ledger_destroy(struct agent_ledger **self_p)
{
    struct agent_ledger *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    for (uint32_t i = 0; i < self->n_contributions; i++)
        free_contribution(self, self->contributions[i]);
    struct series_entry *entry, *next_entry;
    HASH_ITER(hh, self->series_index, entry, next_entry)
    {
        HASH_DEL(self->series_index, entry);
        free(entry);
    }
    for (uint32_t i = 0; i < self->n_series; i++)
        sb_labelsets_drop(self->labelsets, &self->series[i].labels);
    for (uint32_t i = 0; i < self->n_families; i++) {
        free(self->families[i].name);
        free(self->families[i].help);
        free(self->families[i].unit);
        sb_bounds_destroy(&self->families[i].bounds);
    }
    struct claim *claim, *next_claim;
    HASH_ITER(hh, self->claims, claim, next_claim)
    {
        HASH_DEL(self->claims, claim);
        free(claim->owner);
        free(claim);
    }
    free(self->saved_as);
    free(self->saved_families);
    free(self->contributions);
    free(self->series);
    free(self->families);
    free(self);
}

struct sb_labelsets *agent_ledger_labelsets(struct agent_ledger *self)
{
    return self->labelsets;
}

struct sb_text_faults *agent_ledger_text_faults(struct agent_ledger *self)
{
    return &self->text_faults;
}

struct agent_ledger_counters *agent_ledger_counters(struct agent_ledger *self)
{
    return &self->counters;
}

/* Families */

static enum sb_rc add_claim(struct agent_ledger *self, const char *name, const char *owner, enum sb_type type)
{
    struct claim *claim = NULL;
    HASH_FIND_STR(self->claims, name, claim);
    if (claim)
        return SB_OK;
    claim = calloc(1, sizeof *claim + strlen(name) + 1);
    char *owner_copy = strdup(owner);
    if (!claim || !owner_copy) {
        free(claim);
        free(owner_copy);
        return SB_NOMEM;
    }
    memcpy(claim->name, name, strlen(name) + 1);
    claim->owner = owner_copy;
    claim->type = type;
    HASH_ADD_STR(self->claims, name, claim);
    return SB_OK;
}

static enum sb_rc claim_names(struct agent_ledger *self, const char *name, enum sb_type type)
{
    char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    size_t n = sb_expo_claims(name, type, claims);
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; i < n && rc == SB_OK; i++)
        rc = add_claim(self, claims[i], name, type);
    return rc;
}

static enum sb_rc check_claims(struct agent_ledger *self, const struct agent_family_spec *spec, struct sb_err *err)
{
    char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    size_t n = sb_expo_claims(spec->name, spec->type, claims);
    for (size_t i = 0; i < n; i++) {
        struct claim *claim = NULL;
        HASH_FIND_STR(self->claims, claims[i], claim);
        if (!claim || (strcmp(claim->owner, spec->name) == 0 && claim->type == spec->type))
            continue;
        self->counters.clashes++;
        if (strcmp(claim->owner, spec->name) == 0)
            return sb_fail(err, SB_INVAL, "family '%s' is a %s, here it is called a %s", spec->name,
                           sb_type_text(claim->type), sb_type_text(spec->type));
        return sb_fail(err, SB_INVAL, "family '%s' clashes with '%s': both have '%s'", spec->name, claim->owner,
                       claims[i]);
    }
    return SB_OK;
}

enum sb_rc agent_ledger_reserve(struct agent_ledger *self, const struct sb_catalog *catalog, struct sb_err *err)
{
    for (size_t i = 0; i < catalog->n_families; i++)
        if (claim_names(self, catalog->families[i].name, catalog->families[i].type) != SB_OK)
            return sb_fail(err, SB_NOMEM, "names of the catalog");
    return SB_OK;
}

static uint32_t find_family(const struct agent_ledger *self, const char *name, const struct sb_bounds *bounds)
{
    for (uint32_t i = 0; i < self->n_families; i++) {
        const struct agent_family *have = &self->families[i];
        bool is_same_bounds = have->bounds && bounds ? sb_bounds_equal(have->bounds, bounds) : have->bounds == bounds;
        if (is_same_bounds && strcmp(have->name, name) == 0)
            return i;
    }
    return AGENT_NONE;
}

uint32_t agent_ledger_add_family(struct agent_ledger *self, const struct agent_family_spec *spec,
                                 struct sb_bounds **bounds_p)
{
    struct agent_family family = {
        .name = strdup(spec->name),
        .help = strdup(spec->help ? spec->help : ""),
        .unit = spec->unit ? strdup(spec->unit) : NULL,
        .type = spec->type,
        .semantic = spec->semantic,
        .is_in_catalog = spec->is_in_catalog,
        .bounds = *bounds_p,
    };
    *bounds_p = NULL;
    if (self->n_families < AGENT_FAMILIES_MAX && family.name && family.help && (family.unit || !spec->unit) &&
        claim_names(self, spec->name, spec->type) == SB_OK &&
        sb_grow(&self->families, &self->cap_families, self->n_families + 1, sizeof family)) {
        self->families[self->n_families] = family;
        return self->n_families++;
    }
    self->counters.limit_hits++;
    free(family.name);
    free(family.help);
    free(family.unit);
    sb_bounds_destroy(&family.bounds);
    return AGENT_NONE;
}

uint32_t agent_ledger_family(struct agent_ledger *self, const struct agent_family_spec *spec,
                             struct sb_bounds **bounds_p, struct sb_err *err)
{
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = *bounds_p;
    *bounds_p = NULL;
    if (check_claims(self, spec, err) != SB_OK)
        return AGENT_NONE;
    uint32_t found = find_family(self, spec->name, bounds);
    if (found != AGENT_NONE)
        return found;
    const uint32_t kept = spec->is_in_catalog ? 0 : AGENT_CATALOG_FAMILIES;
    uint32_t made = AGENT_NONE;
    if (self->n_families < AGENT_FAMILIES_MAX - kept)
        made = agent_ledger_add_family(self, spec, &bounds);
    else
        self->counters.limit_hits++;
    if (made == AGENT_NONE)
        sb_fail(err, SB_FULL, "family '%s': over %u families, or out of memory", spec->name,
                (unsigned) (AGENT_FAMILIES_MAX - kept));
    return made;
}

/* Series */

static uint32_t cells_of_family(const struct agent_ledger *self, uint32_t family)
{
    const struct sb_bounds *bounds = self->families[family].bounds;
    return bounds ? bounds->n + 2 : 1;
}

static bool has_room(const struct agent_ledger *self, uint32_t n_cells, uint32_t n_bytes, bool may_overflow)
{
    const uint32_t kept_cells = may_overflow ? 0 : AGENT_OVERFLOW_CELLS;
    const size_t kept_bytes = may_overflow ? 0 : AGENT_OVERFLOW_LABEL_BYTES;
    return self->n_cells + n_cells <= AGENT_CELLS_MAX - kept_cells &&
           self->n_label_bytes + n_bytes <= AGENT_LABEL_BYTES_MAX - kept_bytes;
}

static uint32_t find_series(const struct agent_ledger *self, uint32_t family, const struct sb_labelset *labels)
{
    const struct series_key key = {.family = family, .labels = labels};
    struct series_entry *entry = NULL;
    HASH_FIND(hh, self->series_index, &key, sizeof key, entry);
    return entry ? entry->index : AGENT_NONE;
}

uint32_t agent_ledger_intern_series(struct agent_ledger *self, uint32_t family, struct sb_labelset **labels_p,
                                    bool may_overflow)
{
    struct sb_labelset *labels = *labels_p;
    *labels_p = NULL;
    const uint32_t found = find_series(self, family, labels);
    if (found != AGENT_NONE) {
        sb_labelsets_drop(self->labelsets, &labels);
        return found;
    }

    const uint32_t n = cells_of_family(self, family);
    struct series_entry *entry = has_room(self, n, labels->text_len, may_overflow) ? calloc(1, sizeof *entry) : NULL;
    if (!entry || !sb_grow(&self->series, &self->cap_series, self->n_series + 1, sizeof *self->series)) {
        self->counters.limit_hits++;
        free(entry);
        sb_labelsets_drop(self->labelsets, &labels);
        return AGENT_NONE;
    }
    entry->key = (struct series_key){.family = family, .labels = labels};
    entry->index = self->n_series++;
    HASH_ADD(hh, self->series_index, key, sizeof entry->key, entry);
    self->series[entry->index] =
        (struct agent_series){.family = family, .first = self->n_cells, .n = n, .labels = labels};
    self->n_cells += n;
    self->n_label_bytes += labels->text_len;
    return entry->index;
}

/* May the contribution get one more series of this family? */
static bool has_row_room(const struct agent_ledger *self, const struct agent_contribution *to, uint32_t family,
                         bool may_overflow)
{
    const size_t kept = may_overflow ? 0 : AGENT_OVERFLOW_ROW_CELLS;
    return self->n_row_cells + cells_of_family(self, family) <= AGENT_ROW_CELLS_MAX - kept &&
           (may_overflow || to->n_series < AGENT_SERIES_OF_SOURCE_MAX);
}

/* The same label names, every value "_overflow". */
static uint32_t overflow_series(struct agent_ledger *self, uint32_t family, const struct sb_label_draft *labels)
{
    static const char value[] = "_overflow";
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    for (size_t i = 0; i < labels->n; i++)
        if (sb_label_draft_set(&draft, labels->labels[i].name, strlen(labels->labels[i].name), value, sizeof value - 1,
                               NULL, NULL) != SB_OK)
            return AGENT_NONE;
    struct sb_labelset *set = sb_labelsets_get(self->labelsets, &draft);
    self->counters.overflows += labels->n > 0;
    return set ? agent_ledger_intern_series(self, family, &set, true) : AGENT_NONE;
}

uint32_t agent_ledger_exact_series(struct agent_ledger *self, const struct agent_contribution *to, uint32_t family,
                                   const struct sb_label_draft *labels)
{
    struct sb_labelset *set = sb_labelsets_get(self->labelsets, labels);
    uint32_t index = AGENT_NONE;
    if (set && has_row_room(self, to, family, false)) {
        index = agent_ledger_intern_series(self, family, &set, false);
    } else if (set) { /* one that it has already may still be used */
        index = find_series(self, family, set);
        if (index != AGENT_NONE && agent_contribution_place(to, index) == AGENT_NONE)
            index = AGENT_NONE;
        sb_labelsets_drop(self->labelsets, &set);
    }
    return index;
}

uint32_t agent_ledger_place_of(struct agent_ledger *self, struct agent_contribution *to, uint32_t index)
{
    const uint32_t place = agent_contribution_place(to, index);
    if (place != AGENT_NONE || !has_row_room(self, to, self->series[index].family, false) ||
        !agent_ledger_give_series(self, to, index))
        return place;
    return agent_contribution_place(to, index);
}

uint32_t agent_ledger_series_of(struct agent_ledger *self, struct agent_contribution *to, uint32_t family,
                                const struct sb_label_draft *labels)
{
    uint32_t index = agent_ledger_exact_series(self, to, family, labels);
    if (index == AGENT_NONE)
        index = overflow_series(self, family, labels); /* without labels: the same, for which room is kept */
    if (index == AGENT_NONE || agent_contribution_place(to, index) != AGENT_NONE)
        return index;
    if (has_row_room(self, to, family, true) && agent_ledger_give_series(self, to, index))
        return index;
    self->counters.limit_hits++;
    return AGENT_NONE;
}

bool agent_ledger_remember(struct agent_ledger *self, size_t bytes)
{
    if (self->n_remembered + bytes > AGENT_REMEMBERED_MAX)
        return false;
    self->n_remembered += bytes;
    return true;
}

void agent_ledger_unremember(struct agent_ledger *self, size_t bytes)
{
    self->n_remembered -= bytes;
}

/* Contributions */

struct agent_contribution *agent_ledger_add_contribution(struct agent_ledger *self, bool is_front_end,
                                                         struct sb_labelset *source, struct sb_labelset *identity,
                                                         uint64_t shape, uint64_t epoch)
{
    uint32_t index = 0;
    while (index < self->n_contributions && self->contributions[index])
        index++;
    struct agent_contribution *made = index < AGENT_CONTRIBUTIONS_MAX ? calloc(1, sizeof *made) : NULL;
    if (!made || !sb_grow(&self->contributions, &self->cap_contributions, index + 1, sizeof made)) {
        self->counters.limit_hits++;
        free(made);
        return NULL;
    }
    *made = (struct agent_contribution){
        .index = index,
        .epoch = epoch,
        .is_front_end = is_front_end,
        .source = sb_labelset_share(source),
        .identity = sb_labelset_share(identity),
        .shape = shape,
        .snapshot_ms = -1,
        .shown_ms = -1,
    };
    self->contributions[index] = made;
    if (index == self->n_contributions)
        self->n_contributions++;
    return made;
}

struct agent_contribution *agent_ledger_contribution(struct agent_ledger *self, bool is_front_end,
                                                     struct sb_labelset *source, struct sb_labelset *identity,
                                                     uint64_t shape, bool *is_new, struct sb_err *err)
{
    if (is_new)
        *is_new = false;
    for (uint32_t i = 0; i < self->n_contributions; i++) {
        struct agent_contribution *have = self->contributions[i];
        if (have && have->source == source && have->identity == identity && have->shape == shape &&
            have->is_front_end == is_front_end)
            return have;
    }
    struct agent_contribution *made =
        agent_ledger_add_contribution(self, is_front_end, source, identity, shape, self->next_epoch);
    if (!made) {
        sb_fail(err, SB_FULL, "over %d contributions, or out of memory", AGENT_CONTRIBUTIONS_MAX);
        return NULL;
    }
    self->next_epoch++;
    if (is_new)
        *is_new = true;
    return made;
}

void agent_ledger_forget(struct agent_ledger *self, uint32_t index)
{
    self->n_row_cells -= self->contributions[index]->n_cells;
    free_contribution(self, self->contributions[index]);
    self->contributions[index] = NULL;
    while (self->n_contributions && !self->contributions[self->n_contributions - 1])
        self->n_contributions--;
}

void agent_ledger_keep_untold(struct agent_ledger *self)
{
    for (uint32_t i = 0; i < self->n_contributions; i++) {
        struct agent_contribution *each = self->contributions[i];
        for (uint32_t cell = 0; each && cell < each->n_cells; cell++) {
            each->live[cell] -= each->told[cell];
            each->staged[cell] -= each->told[cell]; /* only what is staged was told */
            each->told[cell] = 0;
        }
    }
}

void agent_ledger_clear(struct agent_ledger *self)
{
    for (uint32_t i = 0; i < self->n_contributions; i++) {
        struct agent_contribution *each = self->contributions[i];
        for (uint32_t cell = 0; each && cell < each->n_cells; cell++)
            each->live[cell] = each->staged[cell] = each->told[cell] = 0;
    }
}

void agent_ledger_stage(struct agent_ledger *self)
{
    for (uint32_t i = 0; i < self->n_contributions; i++) {
        struct agent_contribution *contribution = self->contributions[i];
        if (!contribution || !contribution->n_cells)
            continue;
        memcpy(contribution->staged, contribution->live, contribution->n_cells * sizeof(double));
        contribution->n_staged_series = contribution->n_series;
    }
}

void agent_ledger_hold_series(struct agent_ledger *self, uint32_t index)
{
    self->series[index].n_holders++;
}

void agent_ledger_let_go_of_series(struct agent_ledger *self, uint32_t index)
{
    self->series[index].n_holders--;
}

/* Walking */

uint32_t agent_ledger_n_families(const struct agent_ledger *self)
{
    return self->n_families;
}

struct agent_family *agent_ledger_family_at(const struct agent_ledger *self, uint32_t index)
{
    return &self->families[index];
}

uint32_t agent_ledger_n_series(const struct agent_ledger *self)
{
    return self->n_series;
}

const struct agent_series *agent_ledger_series_at(const struct agent_ledger *self, uint32_t index)
{
    return &self->series[index];
}

uint32_t agent_ledger_n_contributions(const struct agent_ledger *self)
{
    return self->n_contributions;
}

struct agent_contribution *agent_ledger_contribution_at(const struct agent_ledger *self, uint32_t index)
{
    return self->contributions[index];
}
