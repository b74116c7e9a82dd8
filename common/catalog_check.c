/* What can be judged only when all files of a catalog are read: references, and names that clash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/catalog_read.h"

/* A name of a scrape, and where it is written. */
struct owner {
    const char *name;
    enum sb_type type;
    const char *file;
    size_t line;
};

struct claim {
    char name[SB_EXPO_NAME_MAX];
    size_t owner;
};

struct claims {
    struct owner *owners;
    size_t n_owners;
    struct claim *claims;
    size_t n_claims;
};

static enum sb_rc check_references(const struct sb_catalog *catalog, const struct sb_family *family, struct sb_err *err)
{
    if (family->feature && !sb_catalog_feature(catalog, family->feature))
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': there is no feature '%s'", family->file, family->line,
                       family->name, family->feature);
    if (family->bucket_set && !sb_catalog_bucket_set(catalog, family->bucket_set))
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': there is no bucket set '%s'", family->file, family->line,
                       family->name, family->bucket_set);
    return SB_OK;
}

static bool has_label(const struct sb_family *family, const char *label)
{
    for (size_t i = 0; i < family->n_labels; i++)
        if (strcmp(family->labels[i], label) == 0)
            return true;
    return false;
}

/* Is the other one a family whose observations this one can have, too? */
static enum sb_rc check_observed(const struct sb_catalog *catalog, const struct sb_family *family, struct sb_err *err)
{
    const struct sb_family *other = sb_catalog_family(catalog, family->observes, strlen(family->observes));
    if (!other)
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': there is no family '%s'", family->file, family->line,
                       family->name, family->observes);
    if (other->type != family->type || family->type == SB_GAUGE || other->is_per_publisher != family->is_per_publisher)
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': '%s' must be a %s of the same scope", family->file, family->line,
                       family->name, other->name,
                       family->type == SB_GAUGE ? "counter or histogram" : sb_type_text(family->type));
    if (other->observes || other->n_feeds > 0 || !other->has_labels)
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': '%s' is not observed with stated labels", family->file,
                       family->line, family->name, other->name);
    if (other->is_cumulative)
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': '%s' is cumulative: its totals can't be observed", family->file,
                       family->line, family->name, other->name);
    for (size_t i = 0; i < family->n_labels; i++)
        if (!has_label(other, family->labels[i]))
            return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': '%s' has no label '%s'", family->file, family->line,
                           family->name, other->name, family->labels[i]);
    return SB_OK;
}

/* The family of this name. NULL with *err: there is none, or it is of another type. */
static const struct sb_family *source_of(const struct sb_catalog *catalog, const struct sb_derived *derived,
                                         const char *name, enum sb_type type, struct sb_err *err)
{
    const struct sb_family *family = sb_catalog_family(catalog, name, strlen(name));
    if (family && family->type == type)
        return family;
    if (family)
        sb_fail(err, SB_FORMAT, "%s:%zu: '%s': '%s' is not a %s", derived->file, derived->line, derived->name, name,
                sb_type_text(type));
    else
        sb_fail(err, SB_FORMAT, "%s:%zu: '%s': there is no family '%s'", derived->file, derived->line, derived->name,
                name);
    return NULL;
}

/* Totals are of counters and of histograms. */
static bool has_total(const struct sb_catalog *catalog, const struct sb_derived *derived, const struct sb_total *total,
                      struct sb_err *err)
{
    for (size_t i = 0; i < total->n; i++) {
        const struct sb_family *family = sb_catalog_family(catalog, total->names[i], strlen(total->names[i]));
        const bool is_histogram = family && family->type == SB_HISTOGRAM;
        if (!is_histogram && !source_of(catalog, derived, total->names[i], SB_COUNTER, err))
            return false;
    }
    return true;
}

static enum sb_rc check_bound(const struct sb_catalog *catalog, const struct sb_derived *derived,
                              const struct sb_family *family, struct sb_err *err)
{
    const struct sb_bounds *bounds = sb_catalog_bucket_set(catalog, family->bucket_set)->bounds;
    for (size_t i = 0; i < bounds->n; i++)
        if (bounds->upper[i] == derived->bound)
            return SB_OK;
    return sb_fail(err, SB_FORMAT, "%s:%zu: '%s': %g is not a bound of '%s'", derived->file, derived->line,
                   derived->name, derived->bound, family->bucket_set);
}

static enum sb_rc check_derived(const struct sb_catalog *catalog, const struct sb_derived *derived, struct sb_err *err)
{
    static const enum sb_type types[] = {[SB_DERIVED_MAX] = SB_GAUGE,
                                         [SB_DERIVED_RATIO] = SB_COUNTER,
                                         [SB_DERIVED_SHARE] = SB_COUNTER,
                                         [SB_DERIVED_WITHIN] = SB_HISTOGRAM};
    const struct sb_family *of = NULL;
    if (derived->of && !(of = source_of(catalog, derived, derived->of, types[derived->kind], err)))
        return SB_FORMAT;
    if (derived->by && !source_of(catalog, derived, derived->by, SB_COUNTER, err))
        return SB_FORMAT;
    for (size_t i = 0; i < SB_COUNT(derived->totals); i++)
        if (!has_total(catalog, derived, &derived->totals[i], err))
            return SB_FORMAT;
    return derived->kind == SB_DERIVED_WITHIN ? check_bound(catalog, derived, of, err) : SB_OK;
}

static void add_owner(struct claims *self, const char *name, enum sb_type type, const char *file, size_t line)
{
    char names[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    size_t n = sb_expo_claims(name, type, names);
    for (size_t i = 0; i < n; i++) {
        struct claim *claim = &self->claims[self->n_claims++];
        memcpy(claim->name, names[i], sizeof names[i]);
        claim->owner = self->n_owners;
    }
    self->owners[self->n_owners++] = (struct owner){.name = name, .type = type, .file = file, .line = line};
}

/* By name; of equal ones the earlier owner first. */
static int compare_claims(const void *left, const void *right)
{
    const struct claim *a = left;
    const struct claim *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->owner > b->owner) - (a->owner < b->owner);
}

/* Two families whose sample names would be mixed up by every parser. */
static enum sb_rc find_clash(struct claims *self, struct sb_err *err)
{
    if (self->n_claims > 1)
        qsort(self->claims, self->n_claims, sizeof self->claims[0], compare_claims);
    for (size_t i = 1; i < self->n_claims; i++) {
        if (strcmp(self->claims[i - 1].name, self->claims[i].name) != 0)
            continue;
        const struct owner *other = &self->owners[self->claims[i - 1].owner];
        const struct owner *one = &self->owners[self->claims[i].owner];
        return sb_fail(err, SB_FORMAT, "%s:%zu: '%s' clashes with '%s' (%s:%zu): both have '%s'", one->file, one->line,
                       one->name, other->name, other->file, other->line, self->claims[i].name);
    }
    return SB_OK;
}

static enum sb_rc check_length(const struct sb_family *family, struct sb_err *err)
{
    for (size_t i = 0; i < family->n_quantiles; i++) {
        char name[SB_EXPO_NAME_MAX];
        sb_quantile_name(name, family->name, family->quantiles[i]);
        if (!sb_metric_name_is_valid(name, strlen(name)))
            return sb_fail(err, SB_FORMAT, "%s:%zu: '%s' is too long a name for quantiles", family->file, family->line,
                           family->name);
    }
    return SB_OK;
}

/* A family's own names, then those of what is derived from it. False: out of memory. */
static bool add_family(struct claims *self, struct sb_arena *arena, const struct sb_family *family)
{
    char name[SB_EXPO_NAME_MAX];
    add_owner(self, family->name, family->type, family->file, family->line);
    for (size_t i = 0; i < family->n_quantiles; i++) {
        sb_quantile_name(name, family->name, family->quantiles[i]);
        const char *copy = sb_arena_text(arena, name, strlen(name));
        if (!copy)
            return false;
        add_owner(self, copy, SB_GAUGE, family->file, family->line);
    }
    if (family->n_quantiles == 0)
        return true;
    sb_mean_name(name, family->name);
    const char *copy = sb_arena_text(arena, name, strlen(name));
    if (copy)
        add_owner(self, copy, SB_GAUGE, family->file, family->line);
    return copy;
}

static enum sb_rc check_names(struct sb_catalog_draft *draft, struct sb_err *err)
{
    const struct sb_catalog *catalog = &draft->catalog;
    size_t n = catalog->n_derived;
    for (size_t i = 0; i < catalog->n_families; i++)
        n += 2 + catalog->families[i].n_quantiles;
    struct claims claims = {.owners = calloc(n + 1, sizeof claims.owners[0]),
                            .claims = calloc(n + 1, SB_EXPO_CLAIMS_MAX * sizeof claims.claims[0])};
    bool is_ok = claims.owners && claims.claims;
    for (size_t i = 0; is_ok && i < catalog->n_families; i++)
        is_ok = add_family(&claims, &draft->arena, &catalog->families[i]);
    for (size_t i = 0; is_ok && i < catalog->n_derived; i++) {
        const struct sb_derived *derived = &catalog->derived[i];
        add_owner(&claims, derived->name, SB_GAUGE, derived->file, derived->line);
    }
    enum sb_rc rc = is_ok ? find_clash(&claims, err) : sb_fail(err, SB_NOMEM, "the names of the catalog");
    free(claims.owners);
    free(claims.claims);
    return rc;
}

enum sb_rc sb_catalog_check(struct sb_catalog_draft *draft, struct sb_err *err)
{
    const struct sb_catalog *catalog = &draft->catalog;
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && i < catalog->n_families; i++) {
        rc = check_references(catalog, &catalog->families[i], err);
        if (rc == SB_OK)
            rc = check_length(&catalog->families[i], err);
        if (rc == SB_OK && catalog->families[i].observes)
            rc = check_observed(catalog, &catalog->families[i], err);
    }
    for (size_t i = 0; rc == SB_OK && i < catalog->n_derived; i++)
        rc = check_derived(catalog, &catalog->derived[i], err);
    return rc == SB_OK ? check_names(draft, err) : rc;
}
