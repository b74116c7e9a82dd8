#include "common/catalog_read.h"

#include <stdlib.h>
#include <string.h>

typedef enum sb_rc (*item_reader)(struct sb_catalog_reader *self, const char *name, yaml_node_t *node,
                                  struct sb_err *err);

const char *sb_catalog_name(struct sb_catalog_reader *self, const char *written)
{
    char made[SB_EXPO_NAME_MAX];
    const struct sb_slice name = {.at = written, .len = strlen(written)};
    const struct sb_slice exposed = sb_prefix_expose(&self->draft->catalog.prefix, name, made);
    return sb_arena_text(self->arena, exposed.at, exposed.len);
}

enum sb_rc sb_catalog_place(void *array_p, size_t n, size_t size, size_t known, size_t *at, struct sb_err *err)
{
    void **array = array_p;
    *at = known < n ? known : n;
    if (known < n)
        return SB_OK;
    if (n == SB_CATALOG_ITEMS_MAX)
        return sb_fail(err, SB_FULL, "the catalog has over %d items of a kind", SB_CATALOG_ITEMS_MAX);
    if (n & (n - 1)) /* grows at powers of two */
        return SB_OK;
    void *bigger = realloc(*array, (n ? 2 * n : 1) * size);
    if (!bigger)
        return sb_fail(err, SB_NOMEM, "the catalog");
    *array = bigger;
    return SB_OK;
}

static enum sb_rc read_root(struct sb_catalog_reader *self, const char *name, yaml_node_t *node, struct sb_err *err)
{
    const char *path = sb_yaml_text(node);
    if (!path || !*path)
        return sb_yaml_fail(&self->yaml, node, err, "root '%s' must be a path", name);
    struct sb_catalog *catalog = &self->draft->catalog;
    size_t known = 0;
    while (known < catalog->n_roots && strcmp(catalog->roots[known].name, name) != 0)
        known++;
    if (known < catalog->n_roots && strcmp(catalog->roots[known].path, path) == 0)
        return SB_OK; /* files may share a root */
    if (known < catalog->n_roots && catalog->roots[known].layer == self->layer)
        return sb_yaml_fail(&self->yaml, node, err, "root '%s' is '%s' elsewhere", name, catalog->roots[known].path);
    size_t at;
    enum sb_rc rc =
        sb_catalog_place(&self->draft->roots, catalog->n_roots, sizeof *self->draft->roots, known, &at, err);
    if (rc != SB_OK)
        return rc;
    struct sb_root root = {.name = name, .path = sb_arena_text(self->arena, path, strlen(path)), .layer = self->layer};
    if (!root.path)
        return sb_fail(err, SB_NOMEM, "root '%s'", name);
    self->draft->roots[at] = root;
    catalog->n_roots += at == catalog->n_roots;
    catalog->roots = self->draft->roots;
    return SB_OK;
}

static enum sb_rc read_bucket_set(struct sb_catalog_reader *self, const char *name, yaml_node_t *node,
                                  struct sb_err *err)
{
    struct sb_catalog *catalog = &self->draft->catalog;
    const struct sb_bucket_set *known = sb_catalog_bucket_set(catalog, name);
    if (known && known->layer == self->layer)
        return sb_yaml_fail(&self->yaml, node, err, "bucket set '%s' is there already", name);
    double upper[SB_BOUNDS_MAX];
    size_t n = sb_yaml_count(node);
    if (node->type != YAML_SEQUENCE_NODE || n == 0 || n > SB_BOUNDS_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "bucket set '%s' must be a list of 1 to %d bounds", name,
                            SB_BOUNDS_MAX);
    yaml_node_t *item;
    for (size_t i = 0; sb_yaml_item(&self->yaml, node, i, &item); i++) {
        enum sb_rc rc = sb_yaml_number(&self->yaml, item, &upper[i], err);
        if (rc != SB_OK)
            return rc;
    }
    size_t at;
    enum sb_rc rc =
        sb_catalog_place(&self->draft->bucket_sets, catalog->n_bucket_sets, sizeof *self->draft->bucket_sets,
                         known ? (size_t) (known - catalog->bucket_sets) : SIZE_MAX, &at, err);
    if (rc != SB_OK)
        return rc;
    struct sb_err reason;
    struct sb_bounds *bounds = sb_bounds_new(upper, n, &reason);
    if (!bounds)
        return sb_yaml_fail(&self->yaml, node, err, "bucket set '%s': %s", name, reason.text);
    if (known)
        sb_bounds_destroy(&self->draft->bucket_sets[at].bounds);
    self->draft->bucket_sets[at] = (struct sb_bucket_set){.name = name, .bounds = bounds, .layer = self->layer};
    catalog->n_bucket_sets += at == catalog->n_bucket_sets;
    catalog->bucket_sets = self->draft->bucket_sets;
    return SB_OK;
}

static enum sb_rc read_feature(struct sb_catalog_reader *self, const char *name, yaml_node_t *node, struct sb_err *err)
{
    static const char *const keys[] = {"path", "in", NULL};
    struct sb_catalog *catalog = &self->draft->catalog;
    struct sb_feature feature = {.name = name, .layer = self->layer};
    const struct sb_feature *known = sb_catalog_feature(catalog, name);
    size_t at = 0;
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, name, err);
    if (rc == SB_OK && known && known->layer == self->layer)
        rc = sb_yaml_fail(&self->yaml, node, err, "feature '%s' is there already", name);
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "path", true, self->arena, &feature.path, err);
    yaml_node_t *in = rc == SB_OK ? sb_yaml_get(&self->yaml, node, "in") : NULL;
    if (in)
        rc = sb_yaml_strings(&self->yaml, in, "in", self->arena, &feature.in, &feature.n_in, err);
    if (rc == SB_OK)
        rc = sb_catalog_place(&self->draft->features, catalog->n_features, sizeof *self->draft->features,
                              known ? (size_t) (known - catalog->features) : SIZE_MAX, &at, err);
    if (rc != SB_OK)
        return rc;
    self->draft->features[at] = feature;
    catalog->n_features += at == catalog->n_features;
    catalog->features = self->draft->features;
    return SB_OK;
}

/* values: {label: [a, b]} or {label: {count: path}}; initial: {a: 1} for a gauge's one label. */
static enum sb_rc read_one_values(struct sb_catalog_reader *self, yaml_node_t *node, yaml_node_t *initial,
                                  struct sb_values *out, struct sb_err *err)
{
    if (node->type == YAML_MAPPING_NODE)
        return sb_yaml_string(&self->yaml, node, "count", true, self->arena, &out->count_from, err);
    enum sb_rc rc = sb_yaml_strings(&self->yaml, node, out->label, self->arena, &out->values, &out->n, err);
    if (rc != SB_OK || !initial)
        return rc;
    double *start = sb_arena_get(self->arena, out->n * sizeof *start);
    if (!start)
        return sb_fail(err, SB_NOMEM, "initial values");
    yaml_node_t *name, *number;
    for (size_t i = 0; rc == SB_OK && sb_yaml_pair(&self->yaml, initial, i, &name, &number); i++) {
        size_t at = 0;
        while (at < out->n && strcmp(out->values[at], sb_yaml_text(name) ? sb_yaml_text(name) : "") != 0)
            at++;
        if (at == out->n)
            return sb_yaml_fail(&self->yaml, name, err, "initial: '%s' is not among the values of '%s'",
                                sb_yaml_text(name) ? sb_yaml_text(name) : "?", out->label);
        rc = sb_yaml_number(&self->yaml, number, &start[at], err);
    }
    out->initial = start;
    return rc;
}

static enum sb_rc read_values(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                              struct sb_err *err)
{
    yaml_node_t *map = sb_yaml_get(&self->yaml, node, "values");
    yaml_node_t *initial = sb_yaml_get(&self->yaml, node, "initial");
    size_t n = sb_yaml_count(map);
    if (!map)
        return initial ? sb_yaml_fail(&self->yaml, initial, err, "initial needs values") : SB_OK;
    if (map->type != YAML_MAPPING_NODE || n == 0 || n > SB_FEED_LABELS_MAX)
        return sb_yaml_fail(&self->yaml, map, err, "values must be a map of 1 to %d labels", SB_FEED_LABELS_MAX);
    if (initial && (n != 1 || family->type != SB_GAUGE))
        return sb_yaml_fail(&self->yaml, initial, err, "initial is for gauges with one label");
    struct sb_values *values = sb_arena_get(self->arena, n * sizeof *values);
    if (!values)
        return sb_fail(err, SB_NOMEM, "values of '%s'", family->name);

    yaml_node_t *key, *value;
    for (size_t i = 0; sb_yaml_pair(&self->yaml, map, i, &key, &value); i++) {
        const char *label = sb_yaml_text(key);
        if (!label || !sb_label_name_is_valid(label, strlen(label)))
            return sb_yaml_fail(&self->yaml, key, err, "'%s' is not a label name", label ? label : "?");
        values[i].label = sb_arena_text(self->arena, label, strlen(label));
        if (!values[i].label)
            return sb_fail(err, SB_NOMEM, "values of '%s'", family->name);
        enum sb_rc rc = read_one_values(self, value, initial, &values[i], err);
        if (rc != SB_OK)
            return rc;
    }
    family->values = values;
    family->n_values = n;
    return SB_OK;
}

/* labels: [a, b], or [] for none. */
static enum sb_rc read_label_names(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                                   struct sb_err *err)
{
    yaml_node_t *list = sb_yaml_get(&self->yaml, node, "labels");
    family->has_labels = list != NULL;
    if (!list || (list->type == YAML_SEQUENCE_NODE && sb_yaml_count(list) == 0))
        return SB_OK;
    enum sb_rc rc = sb_yaml_strings(&self->yaml, list, "labels", self->arena, &family->labels, &family->n_labels, err);
    for (size_t i = 0; rc == SB_OK && i < family->n_labels; i++)
        if (!sb_label_name_is_valid(family->labels[i], strlen(family->labels[i])))
            rc = sb_yaml_fail(&self->yaml, list, err, "'%s' is not a label name", family->labels[i]);
    return rc;
}

/* {name: text, ...} as pairs of borrowed texts. */
static enum sb_rc read_pairs(struct sb_catalog_reader *self, yaml_node_t *map, struct sb_feed_pair *out, size_t *n,
                             struct sb_err *err)
{
    *n = sb_yaml_count(map);
    if (!map)
        return SB_OK;
    if (map->type != YAML_MAPPING_NODE || *n > SB_FEED_LABELS_MAX)
        return sb_yaml_fail(&self->yaml, map, err, "a map of at most %d texts is expected", SB_FEED_LABELS_MAX);
    yaml_node_t *key, *value;
    for (size_t i = 0; sb_yaml_pair(&self->yaml, map, i, &key, &value); i++) {
        out[i] = (struct sb_feed_pair){.name = sb_yaml_text(key), .value = sb_yaml_text(value)};
        if (!out[i].name || !out[i].value)
            return sb_yaml_fail(&self->yaml, key, err, "names and values must be texts");
    }
    return SB_OK;
}

/* Every path of a feed without `each` starts at a root; with it, the element does. */
static enum sb_rc check_roots(struct sb_catalog_reader *self, yaml_node_t *node, const struct sb_feed *feed,
                              struct sb_err *err)
{
    const struct sb_catalog *catalog = &self->draft->catalog;
    const struct sb_path *paths[SB_FEED_OPS_MAX * SB_FEED_PATHS_MAX + SB_FEED_LABELS_MAX + 1];
    size_t n = 0;
    if (feed->element.n) {
        paths[n++] = &feed->element;
    } else {
        for (size_t i = 0; i < feed->n_ops; i++)
            for (size_t j = 0; j < feed->ops[i].n_paths; j++)
                paths[n++] = &feed->ops[i].paths[j];
        for (size_t i = 0; i < feed->n_labels; i++)
            if (!feed->labels[i].value)
                paths[n++] = &feed->labels[i].path;
    }
    if (n == 0)
        return sb_yaml_fail(&self->yaml, node, err, "a feed without any field never has a sample");
    for (size_t i = 0; i < n; i++) {
        const char *root = paths[i]->n && paths[i]->steps[0].kind == SB_STEP_KEY ? paths[i]->steps[0].name : "@";
        size_t at = 0;
        while (at < catalog->n_roots && strcmp(catalog->roots[at].name, root) != 0)
            at++;
        if (at == catalog->n_roots)
            return sb_yaml_fail(&self->yaml, node, err, "'%s' is not one of the roots", root);
    }
    return SB_OK;
}

enum { FEEDS_MAX = 16 };

struct feeds {
    size_t n;
    struct sb_feed at[FEEDS_MAX];
};

static enum sb_rc add_feed(struct sb_catalog_reader *self, yaml_node_t *node, const struct sb_feed_text *text,
                           unsigned group, struct feeds *out, struct sb_err *err)
{
    if (out->n == FEEDS_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "a family has over %d feeds", FEEDS_MAX);
    struct sb_err reason;
    enum sb_rc rc = sb_feed_parse(self->arena, text, &out->at[out->n], &reason);
    if (rc != SB_OK)
        return sb_yaml_fail(&self->yaml, node, err, "%s", reason.text);
    out->at[out->n].group = group;
    return check_roots(self, node, &out->at[out->n++], err);
}

/* "a[] | b[]": one feed each, of one group. */
static enum sb_rc read_alternatives(struct sb_catalog_reader *self, yaml_node_t *node, struct feeds *out,
                                    struct sb_err *err)
{
    const char *text = sb_yaml_text(node);
    bool is_group = strpbrk(text, "[{") && strchr(text, '|');
    unsigned group = is_group ? ++self->draft->n_groups : 0;
    for (const char *from = text; from;) {
        const char *bar = is_group ? strchr(from, '|') : NULL;
        while (*from == ' ')
            from++;
        size_t len = bar ? (size_t) (bar - from) : strlen(from);
        while (len && from[len - 1] == ' ')
            len--;
        struct sb_feed_text feed = {.value = sb_arena_text(self->arena, from, len)};
        if (!feed.value)
            return sb_fail(err, SB_NOMEM, "feed '%s'", text);
        enum sb_rc rc = add_feed(self, node, &feed, group, out, err);
        if (rc != SB_OK)
            return rc;
        from = bar ? bar + 1 : NULL;
    }
    return SB_OK;
}

/* true or false; absent is false. */
static enum sb_rc read_flag(struct sb_catalog_reader *self, yaml_node_t *map, const char *key, bool *out,
                            struct sb_err *err)
{
    yaml_node_t *node = sb_yaml_get(&self->yaml, map, key);
    const char *text = node ? sb_yaml_text(node) : "false";
    *out = text && strcmp(text, "true") == 0;
    if (*out || (text && strcmp(text, "false") == 0))
        return SB_OK;
    return sb_yaml_fail(&self->yaml, map, err, "'%s' is neither true nor false", key);
}

static enum sb_rc read_feed(struct sb_catalog_reader *self, yaml_node_t *node, struct feeds *out, struct sb_err *err)
{
    static const char *const keys[] = {"each", "value", "labels", "is", "nonzero", NULL};
    if (sb_yaml_text(node))
        return read_alternatives(self, node, out, err);

    struct sb_feed_pair labels[SB_FEED_LABELS_MAX], is[SB_FEED_LABELS_MAX];
    struct sb_feed_text text = {.labels = labels, .is = is};
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, "a feed", err);
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "each", false, self->arena, &text.each, err);
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "value", false, self->arena, &text.value, err);
    if (rc == SB_OK)
        rc = read_flag(self, node, "nonzero", &text.is_nonzero, err);
    if (rc == SB_OK)
        rc = read_pairs(self, sb_yaml_get(&self->yaml, node, "labels"), labels, &text.n_labels, err);
    if (rc == SB_OK)
        rc = read_pairs(self, sb_yaml_get(&self->yaml, node, "is"), is, &text.n_is, err);
    return rc == SB_OK ? add_feed(self, node, &text, 0, out, err) : rc;
}

static enum sb_rc read_feeds(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                             struct sb_err *err)
{
    yaml_node_t *from = sb_yaml_get(&self->yaml, node, "from");
    struct feeds *feeds = from ? sb_arena_get(self->arena, sizeof *feeds) : NULL;
    if (!from)
        return SB_OK;
    if (!feeds)
        return sb_fail(err, SB_NOMEM, "feeds of '%s'", family->name);
    enum sb_rc rc = SB_OK;
    if (from->type == YAML_SEQUENCE_NODE) {
        yaml_node_t *item;
        for (size_t i = 0; rc == SB_OK && sb_yaml_item(&self->yaml, from, i, &item); i++)
            rc = read_feed(self, item, feeds, err);
    } else {
        rc = read_feed(self, from, feeds, err);
    }
    family->feeds = feeds->at;
    family->n_feeds = feeds->n;
    return rc;
}

static enum sb_rc read_type(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                            struct sb_err *err)
{
    const char *text = sb_yaml_text(sb_yaml_get(&self->yaml, node, "type"));
    for (int type = 0; text && type < SB_TYPE_COUNT; type++) {
        if (strcmp(sb_type_text((enum sb_type) type), text) != 0)
            continue;
        family->type = (enum sb_type) type;
        size_t len = strlen(family->name);
        bool is_total = len > 6 && strcmp(family->name + len - 6, "_total") == 0;
        if (family->type == SB_COUNTER && !is_total)
            return sb_yaml_fail(&self->yaml, node, err, "counter '%s' must end in _total", family->name);
        return SB_OK;
    }
    return sb_yaml_fail(&self->yaml, node, err, "'%s' needs a type: counter, gauge or histogram", family->name);
}

static enum sb_rc read_semantic(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                                struct sb_err *err)
{
    yaml_node_t *semantic = sb_yaml_get(&self->yaml, node, "semantic");
    const char *text = sb_yaml_text(semantic);
    family->semantic = sb_semantic_of_type(family->type);
    if (!semantic)
        return SB_OK;
    if (!text || !sb_semantic_parse(text, strlen(text), &family->semantic)) {
        char known[sizeof err->text];
        sb_semantic_list(family->type, known, sizeof known);
        return sb_yaml_fail(&self->yaml, semantic, err, "'%.30s' is not a semantic; a %s has: %s", text ? text : "?",
                            sb_type_text(family->type), known);
    }
    if (!sb_semantic_fits(family->semantic, family->type))
        return sb_yaml_fail(&self->yaml, semantic, err, "semantic '%s' does not go with a %s", text,
                            sb_type_text(family->type));
    return SB_OK;
}

static enum sb_rc read_role_scope(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                                  struct sb_err *err)
{
    yaml_node_t *scope = sb_yaml_get(&self->yaml, node, "role_scope");
    const char *const *roles = NULL;
    if (!scope)
        return SB_OK;
    enum sb_rc rc = sb_yaml_strings(&self->yaml, scope, "role_scope", self->arena, &roles, &family->n_role_scope, err);
    if (rc != SB_OK)
        return rc;
    if (family->n_role_scope > SB_ROLES_MAX)
        return sb_yaml_fail(&self->yaml, scope, err, "role_scope has over %d roles", SB_ROLES_MAX);
    for (size_t i = 0; i < family->n_role_scope; i++)
        family->role_scope[i] = roles[i];
    return SB_OK;
}

static enum sb_rc read_count(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                             struct sb_err *err)
{
    static const char *const names[] = {
        [SB_AGENT_COUNT_NONE] = "",
#define COUNT(name) [SB_AGENT_COUNT_##name] = #name,
#include "common/agent_counts.def"
#undef COUNT
    };
    yaml_node_t *count = sb_yaml_get(&self->yaml, node, "count");
    const char *text = sb_yaml_text(count);
    for (size_t i = 1; text && i < SB_COUNT(names); i++) {
        if (strcmp(names[i], text) == 0)
            family->count = (enum sb_agent_count) i;
    }
    if (count && family->count == SB_AGENT_COUNT_NONE)
        return sb_yaml_fail(&self->yaml, count, err, "'%s' is nothing that an agent counts", text ? text : "?");
    if (count && (family->type != SB_COUNTER || family->n_feeds || family->n_values))
        return sb_yaml_fail(&self->yaml, count, err, "count is for counters without from and values");
    return SB_OK;
}

static enum sb_rc check_family(struct sb_catalog_reader *self, yaml_node_t *node, const struct sb_family *family,
                               const char *scope, struct sb_err *err)
{
    const struct sb_family *other = sb_catalog_family(&self->draft->catalog, family->name, strlen(family->name));
    if (other && other->layer == self->layer)
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is there already (%s:%zu)", family->name, other->file,
                            other->line);
    if (!sb_metric_name_is_valid(family->name, strlen(family->name)))
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is not a metric name", family->name);
    if (scope && strcmp(scope, "publisher") != 0)
        return sb_yaml_fail(&self->yaml, node, err, "scope '%s' is not known: only publisher is", scope);
    if (!family->bucket_set != (family->type != SB_HISTOGRAM))
        return sb_yaml_fail(&self->yaml, node, err, "'%s': buckets go with histograms, and only with them",
                            family->name);
    if (family->info && family->n_feeds)
        return sb_yaml_fail(&self->yaml, node, err, "'%s' has both info and from", family->name);
    if (family->observes && (!family->has_labels || family->n_feeds || family->info || family->count))
        return sb_yaml_fail(&self->yaml, node, err, "'%s': observes needs labels, and is all that feeds a family",
                            family->name);
    const bool is_fed = family->n_feeds || family->n_values || family->observes || family->count;
    if (family->is_cumulative && (family->type == SB_GAUGE || is_fed))
        return sb_yaml_fail(&self->yaml, node, err,
                            "cumulative is for counters and histograms without from, values, observes and count");
    return SB_OK;
}

static enum sb_rc read_family(struct sb_catalog_reader *self, const char *name, yaml_node_t *node, struct sb_err *err)
{
    static const char *const keys[] = {"type",      "semantic", "help",    "unit",     "if",         "buckets",
                                       "values",    "from",     "initial", "scope",    "info",       "role_scope",
                                       "quantiles", "count",    "labels",  "observes", "cumulative", NULL};
    struct sb_catalog *catalog = &self->draft->catalog;
    struct sb_family family = {.name = name, .file = self->yaml.file, .line = sb_yaml_line(node), .layer = self->layer};
    const struct {
        const char *key;
        bool is_needed;
        const char **out;
    } texts[] = {
        {"help", true, &family.help},  {"unit", false, &family.unit},          {"if", false, &family.feature},
        {"info", false, &family.info}, {"buckets", false, &family.bucket_set}, {"observes", false, &family.observes},
    };
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, name, err);
    if (rc == SB_OK)
        rc = read_type(self, node, &family, err);
    for (size_t i = 0; rc == SB_OK && i < SB_COUNT(texts); i++)
        rc = sb_yaml_string(&self->yaml, node, texts[i].key, texts[i].is_needed, self->arena, texts[i].out, err);
    const char *scope = NULL;
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "scope", false, self->arena, &scope, err);
    family.is_per_publisher = scope != NULL;
    if (rc == SB_OK && family.observes && !(family.observes = sb_catalog_name(self, family.observes)))
        rc = sb_fail(err, SB_NOMEM, "'%s'", name);
    if (rc == SB_OK)
        rc = read_semantic(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_role_scope(self, node, &family, err);
    if (rc == SB_OK)
        rc = sb_catalog_read_quantiles(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_values(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_label_names(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_feeds(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_count(self, node, &family, err);
    if (rc == SB_OK)
        rc = read_flag(self, node, "cumulative", &family.is_cumulative, err);
    if (rc == SB_OK)
        rc = check_family(self, node, &family, scope, err);
    const struct sb_family *known = sb_catalog_family(catalog, name, strlen(name));
    size_t at = 0;
    if (rc == SB_OK)
        rc = sb_catalog_place(&self->draft->families, catalog->n_families, sizeof *self->draft->families,
                              known ? (size_t) (known - catalog->families) : SIZE_MAX, &at, err);
    if (rc != SB_OK)
        return rc;
    self->draft->families[at] = family;
    catalog->n_families += at == catalog->n_families;
    catalog->families = self->draft->families;
    return SB_OK;
}

static enum sb_rc read_items(struct sb_catalog_reader *self, const char *part, bool is_exposed, item_reader read,
                             struct sb_err *err)
{
    yaml_node_t *map = sb_yaml_get(&self->yaml, self->yaml.root, part);
    if (!map)
        return SB_OK;
    if (map->type != YAML_MAPPING_NODE)
        return sb_yaml_fail(&self->yaml, map, err, "%s must be a map", part);
    yaml_node_t *key, *value;
    for (size_t i = 0; sb_yaml_pair(&self->yaml, map, i, &key, &value); i++) {
        const char *text = sb_yaml_text(key);
        if (!text)
            return sb_yaml_fail(&self->yaml, key, err, "a name in %s must be text", part);
        const char *name = is_exposed ? sb_catalog_name(self, text) : sb_arena_text(self->arena, text, strlen(text));
        if (!name)
            return sb_fail(err, SB_NOMEM, "%s", part);
        enum sb_rc rc = read(self, name, value, err);
        if (rc != SB_OK)
            return rc;
    }
    return SB_OK;
}

static enum sb_rc read_document(struct sb_catalog_reader *self, struct sb_err *err)
{
    static const char *const keys[] = {"version", "roots", "bucket_sets", "features", "families", "derived", NULL};
    static const struct {
        const char *part;
        bool is_exposed; /* its items are names of a scrape */
        item_reader read;
    } parts[] = {
        {"roots", false, read_root},     {"bucket_sets", false, read_bucket_set},    {"features", false, read_feature},
        {"families", true, read_family}, {"derived", true, sb_catalog_read_derived},
    };

    enum sb_rc rc = sb_yaml_check_document(&self->yaml, keys, "a catalog file", err);
    for (size_t i = 0; rc == SB_OK && i < SB_COUNT(parts); i++)
        rc = read_items(self, parts[i].part, parts[i].is_exposed, parts[i].read, err);
    return rc;
}

enum sb_rc sb_catalog_read(struct sb_catalog_draft *draft, const struct sb_catalog_file *file, struct sb_err *err)
{
    struct sb_catalog_reader self = {.draft = draft, .arena = &draft->arena, .layer = file->layer};
    const char *name = sb_arena_text(&draft->arena, file->name, strlen(file->name));
    if (!name)
        return sb_fail(err, SB_NOMEM, "catalog file '%s'", file->name);
    enum sb_rc rc = sb_yaml_load(&self.yaml, name, file->text, file->len, err);
    if (rc != SB_OK)
        return rc;
    rc = read_document(&self, err);
    sb_yaml_release(&self.yaml);
    return rc;
}
