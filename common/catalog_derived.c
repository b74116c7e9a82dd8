/* What a catalog derives from families: quantiles and means of histograms, and the section `derived`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/catalog_read.h"

enum { QUANTILES_MAX = 32 };

const double *sb_semantic_quantiles(enum sb_semantic semantic, size_t *n)
{
    static const double usual[] = {0.5, 0.95, 0.99};
    bool has_any = semantic == SB_SEMANTIC_histogram_latency || semantic == SB_SEMANTIC_sla_metric;
    *n = has_any ? SB_COUNT(usual) : 0;
    return usual;
}

void sb_quantile_name(char *out, const char *family, double quantile)
{
    char percent[32]; /* rounded to what people write: 0.95 * 100 is not quite 95 */
    snprintf(percent, sizeof percent, "%.10g", quantile * 100);
    for (char *at = percent; *at; at++) {
        if (*at == '.' || *at == '-' || *at == '+')
            *at = '_';
    }
    snprintf(out, SB_EXPO_NAME_MAX, "%s_p%s", family, percent);
}

void sb_mean_name(char *out, const char *family)
{
    snprintf(out, SB_EXPO_NAME_MAX, "%s_mean", family);
}

/* Two that would share a name, or one that is none. */
static enum sb_rc check_quantile(struct sb_catalog_reader *self, const yaml_node_t *node, const double *quantiles,
                                 size_t i, struct sb_err *err)
{
    char name[SB_EXPO_NAME_MAX], other[SB_EXPO_NAME_MAX];
    if (!(quantiles[i] > 0 && quantiles[i] <= 1))
        return sb_yaml_fail(&self->yaml, node, err, "quantile %g is not above 0 and at most 1", quantiles[i]);
    sb_quantile_name(name, "", quantiles[i]);
    for (size_t k = 0; k < i; k++) {
        sb_quantile_name(other, "", quantiles[k]);
        if (strcmp(name, other) == 0)
            return sb_yaml_fail(&self->yaml, node, err, "two quantiles share the name '%s'", name);
    }
    return SB_OK;
}

enum sb_rc sb_catalog_read_quantiles(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                                     struct sb_err *err)
{
    yaml_node_t *list = sb_yaml_get(&self->yaml, node, "quantiles");
    if (!list) {
        family->quantiles = sb_semantic_quantiles(family->semantic, &family->n_quantiles);
        return SB_OK;
    }
    if (family->type != SB_HISTOGRAM)
        return sb_yaml_fail(&self->yaml, list, err, "quantiles go with histograms only");
    size_t n = sb_yaml_count(list);
    if (list->type != YAML_SEQUENCE_NODE || n > QUANTILES_MAX)
        return sb_yaml_fail(&self->yaml, list, err, "quantiles must be a list of at most %d numbers", QUANTILES_MAX);
    double *quantiles = n ? sb_arena_get(self->arena, n * sizeof *quantiles) : NULL;
    if (n && !quantiles)
        return sb_fail(err, SB_NOMEM, "quantiles of '%s'", family->name);
    yaml_node_t *item;
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && sb_yaml_item(&self->yaml, list, i, &item); i++) {
        rc = sb_yaml_number(&self->yaml, item, &quantiles[i], err);
        if (rc == SB_OK)
            rc = check_quantile(self, item, quantiles, i, err);
    }
    family->quantiles = quantiles;
    family->n_quantiles = n;
    return rc;
}

static enum sb_rc expose(struct sb_catalog_reader *self, const char **name, struct sb_err *err)
{
    *name = sb_catalog_name(self, *name);
    return *name ? SB_OK : sb_fail(err, SB_NOMEM, "a derived family");
}

/* One side of a ratio: a family, or [families] for their total. */
static enum sb_rc read_side(struct sb_catalog_reader *self, yaml_node_t *node, const char **family,
                            struct sb_total *total, struct sb_err *err)
{
    const char *text = sb_yaml_text(node);
    if (text) {
        *family = text;
        return expose(self, family, err);
    }
    const char *const *written;
    const char **names = sb_arena_get(self->arena, SB_TOTAL_MAX * sizeof *names);
    enum sb_rc rc = names ? sb_yaml_strings(&self->yaml, node, "ratio", self->arena, &written, &total->n, err)
                          : sb_fail(err, SB_NOMEM, "a ratio");
    if (rc == SB_OK && total->n > SB_TOTAL_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "a total is of at most %d families", SB_TOTAL_MAX);
    for (size_t i = 0; rc == SB_OK && i < total->n; i++) {
        names[i] = written[i];
        rc = expose(self, &names[i], err);
    }
    total->names = names;
    return rc;
}

/* ratio: [numerator, denominator] */
static enum sb_rc read_ratio(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_derived *out,
                             struct sb_err *err)
{
    yaml_node_t *of, *by;
    if (node->type != YAML_SEQUENCE_NODE || sb_yaml_count(node) != 2 || !sb_yaml_item(&self->yaml, node, 0, &of) ||
        !sb_yaml_item(&self->yaml, node, 1, &by))
        return sb_yaml_fail(&self->yaml, node, err, "ratio must name two families");
    enum sb_rc rc = read_side(self, of, &out->of, &out->totals[SB_SHARE_OF], err);
    if (rc == SB_OK)
        rc = read_side(self, by, &out->by, &out->totals[SB_SHARE_BY], err);
    if (rc == SB_OK && !out->of && out->by)
        return sb_yaml_fail(&self->yaml, node, err, "a total can't be divided by single series");
    out->kind = out->by ? SB_DERIVED_RATIO : SB_DERIVED_SHARE;
    return rc;
}

/* within: histogram, and the bound */
static enum sb_rc read_within(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_derived *out,
                              struct sb_err *err)
{
    yaml_node_t *bound = sb_yaml_get(&self->yaml, node, "bound");
    out->kind = SB_DERIVED_WITHIN;
    if (!bound)
        return sb_yaml_fail(&self->yaml, node, err, "'bound' is missing");
    return sb_yaml_number(&self->yaml, bound, &out->bound, err);
}

static enum sb_rc read_max_or_within(struct sb_catalog_reader *self, yaml_node_t *node, const char *key,
                                     struct sb_derived *out, struct sb_err *err)
{
    enum sb_rc rc = sb_yaml_string(&self->yaml, node, key, true, self->arena, &out->of, err);
    if (rc == SB_OK)
        rc = expose(self, &out->of, err);
    return rc == SB_OK && strcmp(key, "within") == 0 ? read_within(self, node, out, err) : rc;
}

static enum sb_rc add_derived(struct sb_catalog_reader *self, yaml_node_t *node, const struct sb_derived *derived,
                              struct sb_err *err)
{
    struct sb_catalog *catalog = &self->draft->catalog;
    size_t known = 0;
    while (known < catalog->n_derived && strcmp(catalog->derived[known].name, derived->name) != 0)
        known++;
    if (known < catalog->n_derived && catalog->derived[known].layer == self->layer)
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is there already (%s:%zu)", derived->name,
                            catalog->derived[known].file, catalog->derived[known].line);
    size_t at;
    enum sb_rc rc =
        sb_catalog_place(&self->draft->derived, catalog->n_derived, sizeof *self->draft->derived, known, &at, err);
    if (rc != SB_OK)
        return rc;
    self->draft->derived[at] = *derived;
    catalog->n_derived += at == catalog->n_derived;
    catalog->derived = self->draft->derived;
    return SB_OK;
}

enum sb_rc sb_catalog_read_derived(struct sb_catalog_reader *self, const char *name, yaml_node_t *node,
                                   struct sb_err *err)
{
    static const char *const keys[] = {"max", "ratio", "within", "bound", "help", NULL};
    struct sb_derived derived = {
        .name = name, .file = self->yaml.file, .line = sb_yaml_line(node), .layer = self->layer};
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, name, err);
    if (rc == SB_OK && (!sb_metric_name_is_valid(name, strlen(name))))
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s' is not a metric name", name);
    if (rc != SB_OK)
        return rc;
    yaml_node_t *ratio = sb_yaml_get(&self->yaml, node, "ratio");
    const bool is_max = sb_yaml_get(&self->yaml, node, "max");
    const bool is_within = sb_yaml_get(&self->yaml, node, "within");
    if ((ratio != NULL) + is_max + is_within != 1)
        return sb_yaml_fail(&self->yaml, node, err, "'%s' needs either max, ratio or within", name);
    if (!is_within && sb_yaml_get(&self->yaml, node, "bound"))
        return sb_yaml_fail(&self->yaml, node, err, "'%s': bound goes with within", name);
    rc = sb_yaml_string(&self->yaml, node, "help", true, self->arena, &derived.help, err);
    if (rc == SB_OK)
        rc = ratio ? read_ratio(self, ratio, &derived, err)
                   : read_max_or_within(self, node, is_max ? "max" : "within", &derived, err);
    return rc == SB_OK ? add_derived(self, node, &derived, err) : rc;
}
