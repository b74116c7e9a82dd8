/* The families of a plan: which of the catalog are active, with which bounds, and those that the hello describes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config.h"
#include "agent/plan_private.h"
#include "common/hash.h"
#include "common/num.h"

/* Notes a refusal that does not refuse the hello. */
static void SB_PRINTF(3, 4) refuse(struct agent_plan_counters *counters, uint64_t *counter, const char *fmt, ...)
{
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sb_fail(&counters->last, SB_INVAL, "%s", text);
    (*counter)++;
}

/* Reads an array of numbers into bounds; NULL with *err. */
static struct sb_bounds *read_bounds(struct sb_mp at, struct sb_err *err)
{
    double upper[SB_BOUNDS_MAX];
    uint32_t n;
    if (!sb_mp_array(&at, &n) || n > SB_BOUNDS_MAX) {
        sb_fail(err, SB_FORMAT, "it is no array of at most %d bounds", SB_BOUNDS_MAX);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (sb_mp_number(&at, &upper[i]))
            continue;
        sb_fail(err, SB_FORMAT, "bound %u is not a number", i);
        return NULL;
    }
    return sb_bounds_new(upper, n, err);
}

/* The bounds of a catalog's set: the hello's, or where that has none or bad ones, the catalog's. */
static struct sb_bounds *bounds_of_set(const struct sb_catalog *catalog, const char *set,
                                       const struct agent_hello *hello, struct sb_err *err)
{
    struct sb_mp at;
    if (agent_map_find(hello->buckets, set, strlen(set), &at)) {
        struct sb_bounds *bounds = read_bounds(at, NULL);
        if (bounds)
            return bounds;
    }
    const struct sb_bounds *fallback = sb_catalog_bucket_set(catalog, set)->bounds;
    return sb_bounds_new(fallback->upper, fallback->n, err);
}

static void check_buckets(const struct sb_catalog *catalog, const struct agent_hello *hello,
                          struct agent_plan_counters *counters)
{
    for (size_t i = 0; i < catalog->n_bucket_sets; i++) {
        const char *set = catalog->bucket_sets[i].name;
        struct sb_mp at;
        struct sb_err err;
        if (!agent_map_find(hello->buckets, set, strlen(set), &at))
            continue;
        struct sb_bounds *bounds = read_bounds(at, &err);
        if (!bounds)
            refuse(counters, &counters->bounds_refused, "bucket set '%s' of the hello: %s", set, err.text);
        sb_bounds_destroy(&bounds);
    }
}

/* The numbers 0 to n - 1 as texts, n being a number of the configuration. */
static bool count_values(struct agent_plan *self, const struct agent_hello *hello, const char *path,
                         struct plan_values *out)
{
    struct sb_mp at;
    double n = 0;
    if (!agent_config_find(hello->config, path, &at) || !sb_mp_number(&at, &n) || !(n >= 1))
        return true; /* no such number: no values */
    size_t count = n > PLAN_VALUES_MAX ? PLAN_VALUES_MAX : (size_t) n;
    const char **values = sb_arena_get(&self->arena, count * sizeof *values);
    if (!values)
        return false;
    for (size_t i = 0; i < count; i++) {
        char text[SB_NUM_MAX];
        values[i] = sb_arena_text(&self->arena, text, sb_num_value(text, (double) i));
        if (!values[i])
            return false;
    }
    out->values = values;
    out->n = count;
    return true;
}

static bool resolve_values(struct agent_plan *self, const struct agent_hello *hello, struct plan_family *family)
{
    size_t n = family->catalog->n_values;
    struct plan_values *values = n ? sb_arena_get(&self->arena, n * sizeof *values) : NULL;
    if (n && !values)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct sb_values *from = &family->catalog->values[i];
        values[i] =
            (struct plan_values){.label = from->label, .values = from->values, .initial = from->initial, .n = from->n};
        if (from->count_from && !count_values(self, hello, from->count_from, &values[i]))
            return false;
    }
    family->values = values;
    family->n_values = n;
    return true;
}

static bool has_values(const struct plan_family *family, const char *label)
{
    for (size_t i = 0; i < family->n_values; i++)
        if (strcmp(family->values[i].label, label) == 0)
            return true;
    return false;
}

/* Zero from the start: families with a feed, whose own labels are all enumerated or which have none. */
static bool is_declared(const struct plan_family *family)
{
    const struct sb_family *catalog = family->catalog;
    for (size_t i = 0; i < catalog->n_feeds; i++) {
        const struct sb_feed *feed = &catalog->feeds[i];
        for (size_t j = 0; j < feed->n_labels; j++)
            if (!has_values(family, feed->labels[j].name))
                return false;
        for (size_t j = 0; j < feed->element.n; j++) {
            const struct sb_step *step = &feed->element.steps[j];
            if (step->kind != SB_STEP_KEY && step->name[0] && !has_values(family, step->name))
                return false;
        }
    }
    return catalog->n_feeds > 0;
}

/* Which root the gauges of a family come with. */
static uint32_t root_of(const struct sb_catalog *catalog, const struct sb_family *family)
{
    if (!family->n_feeds)
        return 0;
    const struct sb_feed *feed = &family->feeds[0];
    const struct sb_path *path = &feed->element;
    for (size_t i = 0; !path->n && i < feed->n_ops; i++)
        path = feed->ops[i].n_paths ? &feed->ops[i].paths[0] : path;
    uint32_t root = 0;
    while (path->n && root + 1 < catalog->n_roots && strcmp(catalog->roots[root].name, path->steps[0].name) != 0)
        root++;
    return root;
}

/* Enters a family into ledger and plan. NULL with *err. */
static struct plan_family *add_family(struct agent_plan *self, const struct agent_family_spec *spec,
                                      struct sb_bounds **bounds_p, struct sb_err *err)
{
    uint32_t index = agent_ledger_family(self->ledger, spec, bounds_p, err);
    if (index == AGENT_NONE)
        return NULL;
    struct plan_family *family = sb_arena_get(&self->arena, sizeof *family);
    char *name = sb_arena_text(&self->arena, spec->name, strlen(spec->name));
    if (!family || !name) {
        sb_fail(err, SB_NOMEM, "family '%s'", spec->name);
        return NULL;
    }
    *family = (struct plan_family){
        .name = name,
        .family = index,
        .type = spec->type,
        .bounds = agent_ledger_family_at(self->ledger, index)->bounds,
    };
    if (family->bounds) {
        self->shape = sb_hash_more(self->shape, name, strlen(name) + 1);
        self->shape = sb_hash_more(self->shape, family->bounds->upper, family->bounds->n * sizeof(double));
    }
    HASH_ADD_KEYPTR(hh, self->families, family->name, strlen(family->name), family);
    return family;
}

static enum sb_rc add_from_catalog(struct agent_plan *self, const struct sb_family *catalog,
                                   const struct agent_hello *hello, struct sb_err *err)
{
    const struct agent_family_spec spec = {
        .name = catalog->name,
        .help = catalog->help,
        .unit = catalog->unit,
        .type = catalog->type,
        .semantic = catalog->semantic,
        .is_in_catalog = true,
    };
    struct sb_bounds *bounds = NULL;
    if (catalog->bucket_set) {
        bounds = bounds_of_set(self->catalog, catalog->bucket_set, hello, err);
        if (!bounds)
            return SB_NOMEM;
    }
    struct plan_family *family = add_family(self, &spec, &bounds, err);
    if (!family)
        return err ? err->rc : SB_FULL;
    family->catalog = catalog;
    family->is_front_end = catalog->is_per_publisher;
    family->input = root_of(self->catalog, catalog);
    if (!resolve_values(self, hello, family))
        return sb_fail(err, SB_NOMEM, "family '%s'", catalog->name);
    family->is_declared = is_declared(family);
    family->is_cumulative = catalog->is_cumulative;
    return plan_add_feeds(self, family, err);
}

static enum sb_rc add_catalog(struct agent_plan *self, const struct agent_hello *hello, struct sb_err *err)
{
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; i < self->catalog->n_families && rc == SB_OK; i++) {
        const struct sb_family *family = &self->catalog->families[i];
        const struct sb_feature *feature = family->feature ? sb_catalog_feature(self->catalog, family->feature) : NULL;
        if (!feature || agent_config_has(hello->config, feature))
            rc = add_from_catalog(self, family, hello, err);
    }
    return rc;
}

/* What a hello says of a family, as far as it has been read. */
struct description {
    char name[SB_EXPO_NAME_MAX];
    char help[512];
    char unit[32];
    char scope[16];
    char type[16];
    char semantic[40];
    bool has_labels;
    bool has_cumulative, is_cumulative;
};

static bool read_text(struct sb_slice map, const char *key, char *out, size_t cap)
{
    struct sb_mp at;
    struct sb_slice text;
    out[0] = '\0';
    if (!agent_map_find(map, key, strlen(key), &at) || sb_mp_nil(&at))
        return true;
    if (!sb_mp_str(&at, &text))
        return false;
    sb_text_clean(out, cap - 1, text.at, text.len, NULL);
    return true;
}

static enum sb_rc read_description(struct sb_slice map, struct description *out, struct agent_family_spec *spec,
                                   struct sb_err *err)
{
    struct sb_mp at;
    uint32_t n = 0;
    if (!read_text(map, "name", out->name, sizeof out->name) || !read_text(map, "help", out->help, sizeof out->help) ||
        !read_text(map, "unit", out->unit, sizeof out->unit) || !read_text(map, "type", out->type, sizeof out->type) ||
        !read_text(map, "scope", out->scope, sizeof out->scope) ||
        !read_text(map, "semantic", out->semantic, sizeof out->semantic))
        return sb_fail(err, SB_FORMAT, "family '%s': one of its texts is none", out->name);
    if (!sb_metric_name_is_valid(out->name, strlen(out->name)))
        return sb_fail(err, SB_FORMAT, "'%s' is not a metric name", out->name);
    out->has_labels = agent_map_find(map, "labels", 6, &at) && sb_mp_array(&at, &n) && n > 0;
    out->has_cumulative = agent_map_find(map, "cumulative", 10, &at) && !sb_mp_nil(&at);
    out->is_cumulative = false;
    if (out->has_cumulative && !sb_mp_bool(&at, &out->is_cumulative))
        return sb_fail(err, SB_FORMAT, "family '%s': 'cumulative' is neither true nor false", out->name);

    int type = 0;
    while (type < SB_TYPE_COUNT && strcmp(sb_type_text((enum sb_type) type), out->type) != 0)
        type++;
    if (type == SB_TYPE_COUNT)
        return sb_fail(err, SB_FORMAT, "family '%s': '%s' is not a type", out->name, out->type);
    *spec = (struct agent_family_spec){
        .name = out->name,
        .help = out->help,
        .unit = out->unit[0] ? out->unit : NULL,
        .type = (enum sb_type) type,
        .semantic = sb_semantic_of_type((enum sb_type) type),
    };
    if (out->semantic[0] && !sb_semantic_parse(out->semantic, strlen(out->semantic), &spec->semantic))
        return sb_fail(err, SB_FORMAT, "family '%s': '%s' is not a semantic", out->name, out->semantic);
    size_t len = strlen(out->name);
    if (type == SB_COUNTER && (len < 7 || strcmp(out->name + len - 6, "_total") != 0))
        return sb_fail(err, SB_FORMAT, "counter '%s' must end in _total", out->name);
    if (type == SB_GAUGE && out->is_cumulative)
        return sb_fail(err, SB_FORMAT, "gauge '%s' can't be cumulative", out->name);
    return SB_OK;
}

/*
 * One family that the hello describes. Of the catalog's families the catalog knows better; one that it doesn't give
 * this engine by itself (a connector's behind another connector) exists by being described, with the catalog's texts.
 */
static enum sb_rc add_described(struct agent_plan *self, struct sb_slice map, struct sb_err *err)
{
    struct description text;
    struct agent_family_spec spec;
    struct sb_bounds *bounds = NULL;
    struct sb_mp at;
    enum sb_rc rc = read_description(map, &text, &spec, err);
    if (rc != SB_OK)
        return rc;
    const struct sb_family *catalog = sb_catalog_family(self->catalog, text.name, strlen(text.name));
    struct plan_family *have = NULL;
    HASH_FIND_STR(self->families, text.name, have);
    if (catalog && catalog->type == spec.type) {
        if (text.has_cumulative && text.is_cumulative != catalog->is_cumulative)
            return sb_fail(err, SB_INVAL, "family '%s': the catalog says that it is%s cumulative", text.name,
                           catalog->is_cumulative ? "" : " not");
        text.is_cumulative = catalog->is_cumulative;
        if (have)
            return SB_OK;
        spec.help = catalog->help;
        spec.unit = catalog->unit;
        spec.semantic = catalog->semantic;
        spec.is_in_catalog = true;
    }
    if (have && !catalog)
        return sb_fail(err, SB_INVAL, "family '%s' is described twice", text.name);
    if (spec.type == SB_HISTOGRAM) {
        struct sb_err reason;
        if (!agent_map_find(map, "buckets", 7, &at))
            return sb_fail(err, SB_FORMAT, "histogram '%s' has no buckets", text.name);
        bounds = read_bounds(at, &reason);
        if (!bounds)
            return sb_fail(err, SB_FORMAT, "buckets of '%s': %s", text.name, reason.text);
    }
    struct plan_family *family = add_family(self, &spec, &bounds, err);
    if (!family)
        return err ? err->rc : SB_INVAL;
    family->is_front_end = strcmp(text.scope, "publisher") == 0;
    family->is_cumulative = text.is_cumulative;
    family->is_declared = !text.has_labels && spec.type != SB_GAUGE && !text.is_cumulative;
    return SB_OK;
}

static enum sb_rc add_all_described(struct agent_plan *self, const struct agent_hello *hello,
                                    struct agent_plan_counters *counters, struct sb_err *err)
{
    struct sb_mp at = sb_mp_over(hello->families.at, hello->families.len);
    uint32_t n;
    if (!hello->families.len || sb_mp_nil(&at))
        return SB_OK;
    if (!sb_mp_array(&at, &n))
        return sb_fail(err, SB_FORMAT, "the hello's families are no array");
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *from = at.at;
        if (!sb_mp_skip(&at))
            return sb_fail(err, SB_FORMAT, "family %u of the hello is cut", i);
        struct sb_slice map = {.at = (const char *) from, .len = (size_t) (at.at - from)};
        struct sb_err reason;
        if (i >= AGENT_DESCRIBED_FAMILIES_MAX)
            refuse(counters, &counters->families_refused, "a hello describes over %d families",
                   AGENT_DESCRIBED_FAMILIES_MAX);
        else if (add_described(self, map, &reason) != SB_OK)
            refuse(counters, &counters->families_refused, "%s", reason.text);
    }
    return SB_OK;
}

/* Families that have the observations of another, too, where both are active. */
static void link_observers(struct agent_plan *self)
{
    for (struct plan_family *family = self->families; family; family = family->hh.next) {
        struct plan_family *of = NULL;
        if (family->catalog && family->catalog->observes)
            HASH_FIND_STR(self->families, family->catalog->observes, of);
        if (!of)
            continue;
        family->next_observer = of->observer;
        of->observer = family;
    }
}

struct agent_plan *agent_plan_new(const struct sb_catalog *catalog, struct agent_ledger *ledger,
                                  const struct agent_hello *hello, struct agent_plan_counters *counters,
                                  struct sb_err *err)
{
    struct agent_plan *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "a plan");
        return NULL;
    }
    sb_arena_init(&self->arena);
    self->catalog = catalog;
    self->ledger = ledger;
    self->shape = SB_HASH_START;
    self->n_groups = 1;
    check_buckets(catalog, hello, counters);
    enum sb_rc rc = add_catalog(self, hello, err);
    if (rc == SB_OK)
        rc = add_all_described(self, hello, counters, err);
    link_observers(self);
    if (rc != SB_OK)
        agent_plan_destroy(&self);
    return self;
}

void agent_plan_destroy(struct agent_plan **self_p)
{
    struct agent_plan *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    HASH_CLEAR(hh, self->families);
    sb_arena_release(&self->arena);
    free(self);
}

uint64_t agent_plan_shape(const struct agent_plan *self)
{
    return self->shape;
}

bool agent_plan_feeds_front_end(const struct agent_plan *plan, enum agent_record_type type)
{
    if (type < AGENT_RECORD_OBS)
        return plan->front_end.records[type] != NULL;
    for (const struct plan_family *family = plan->families; family; family = family->hh.next)
        if (family->is_front_end)
            return type == AGENT_RECORD_OBS;
    return false;
}
