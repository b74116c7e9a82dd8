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

/* ratio: [numerator, denominator] */
static enum sb_rc read_ratio(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_derived *out,
                             struct sb_err *err)
{
    const char *const *names;
    size_t n = 0;
    enum sb_rc rc = sb_yaml_strings(&self->yaml, node, "ratio", self->arena, &names, &n, err);
    if (rc == SB_OK && n != 2)
        rc = sb_yaml_fail(&self->yaml, node, err, "ratio must name two families");
    if (rc != SB_OK)
        return rc;
    out->kind = SB_DERIVED_RATIO;
    out->of = names[0];
    out->by = names[1];
    return SB_OK;
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
    static const char *const keys[] = {"max", "ratio", "help", NULL};
    struct sb_derived derived = {
        .name = name, .file = self->yaml.file, .line = sb_yaml_line(node), .layer = self->layer};
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, name, err);
    if (rc == SB_OK && (!sb_metric_name_is_valid(name, strlen(name))))
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s' is not a metric name", name);
    yaml_node_t *ratio = rc == SB_OK ? sb_yaml_get(&self->yaml, node, "ratio") : NULL;
    if (rc == SB_OK && !ratio == !sb_yaml_get(&self->yaml, node, "max"))
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s' needs either max or ratio", name);
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "help", true, self->arena, &derived.help, err);
    if (rc == SB_OK && ratio)
        rc = read_ratio(self, ratio, &derived, err);
    if (rc == SB_OK && !ratio)
        rc = sb_yaml_string(&self->yaml, node, "max", true, self->arena, &derived.of, err);
    if (rc == SB_OK)
        derived.of = sb_catalog_name(self, derived.of);
    if (rc == SB_OK && derived.by)
        derived.by = sb_catalog_name(self, derived.by);
    if (rc == SB_OK && (!derived.of || (ratio && !derived.by)))
        rc = sb_fail(err, SB_NOMEM, "'%s'", name);
    return rc == SB_OK ? add_derived(self, node, &derived, err) : rc;
}
