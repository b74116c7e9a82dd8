#include "hub/computed_specs.h"

#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "common/yaml_node.h"

const struct hub_compute_type hub_compute_types[HUB_COMPUTES] = {
#define COMPUTE(name, of, phase, sources, roles_min, roles_max, function)                                              \
    [HUB_COMPUTE_##name] = {#name, HUB_OF_##of, HUB_PHASE_##phase, HUB_SOURCE_##sources, roles_min, roles_max},
#include "hub/computed_types.def"
#undef COMPUTE
};

static const char *const phases[] = {
    [HUB_PHASE_BEFORE] = "before_aggregation", [HUB_PHASE_AFTER] = "after_aggregation"};
static const char *const states[] = {[HUB_WORKERS_ACTIVE] = "active", [HUB_WORKERS_INACTIVE] = "inactive"};

/* What every reader of a part gets. */
struct context {
    struct hub_computed_specs *specs;
    const struct sb_catalog *catalog;
    struct sb_yaml yaml;
};

/* The length without _total, which the name of a family may have or not. */
static size_t stem(const char *name)
{
    static const char total[] = "_total";
    const size_t len = strlen(name);
    const size_t n = sizeof total - 1;
    return len > n && strcmp(name + len - n, total) == 0 ? len - n : len;
}

/* Does any of the first i mean the same as the one at i? */
static bool has_before(const struct hub_texts *texts, size_t i)
{
    const size_t len = stem(texts->at[i]);
    for (size_t k = 0; k < i; k++) {
        if (stem(texts->at[k]) == len && strncmp(texts->at[k], texts->at[i], len) == 0)
            return true;
    }
    return false;
}

static enum sb_rc read_texts(struct context *self, yaml_node_t *map, const char *key, size_t max, struct hub_texts *out,
                             struct sb_err *err)
{
    yaml_node_t *node = sb_yaml_get(&self->yaml, map, key);
    if (!node)
        return SB_OK;
    enum sb_rc rc = sb_yaml_strings(&self->yaml, node, key, &self->specs->arena, &out->at, &out->n, err);
    if (rc == SB_OK && out->n > max)
        rc = sb_yaml_fail(&self->yaml, node, err, "%s has over %zu items", key, max);
    for (size_t i = 1; rc == SB_OK && i < out->n; i++) {
        if (has_before(out, i))
            rc = sb_yaml_fail(&self->yaml, node, err, "%s has '%s' twice, and would count it twice", key, out->at[i]);
    }
    return rc;
}

static enum sb_rc read_type(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec, struct sb_err *err)
{
    const char *text = sb_yaml_text(sb_yaml_get(&self->yaml, node, "type"));
    char known[256] = "";
    size_t len = 0;
    for (int type = 0; type < HUB_COMPUTES; type++) {
        if (text && strcmp(hub_compute_types[type].name, text) == 0) {
            spec->type = (enum hub_compute) type;
            return SB_OK;
        }
        len +=
            (size_t) snprintf(known + len, sizeof known - len, "%s%s", type ? ", " : "", hub_compute_types[type].name);
    }
    return sb_yaml_fail(&self->yaml, node, err, "'%s' needs a type that is one of %s", spec->name, known);
}

static enum sb_rc check_phase(struct context *self, yaml_node_t *node, const struct hub_computed_spec *spec,
                              struct sb_err *err)
{
    const struct hub_compute_type *type = &hub_compute_types[spec->type];
    const char *text = sb_yaml_text(sb_yaml_get(&self->yaml, node, "phase"));
    if (text && strcmp(text, phases[type->phase]) == 0)
        return SB_OK;
    return sb_yaml_fail(&self->yaml, node, err, "'%s' needs the phase of %s: %s", spec->name, type->name,
                        phases[type->phase]);
}

/* The family of the catalog that is meant, with or without _total; NULL: it doesn't know one. */
static const struct sb_family *find_family(const struct sb_catalog *catalog, const char *name)
{
    char total[SB_EXPO_NAME_MAX];
    const struct sb_family *family = sb_catalog_family(catalog, name, strlen(name));
    snprintf(total, sizeof total, "%s_total", name);
    return family ? family : sb_catalog_family(catalog, total, strlen(total));
}

/* Of families that the catalog knows. */
static enum sb_rc check_types(struct context *self, yaml_node_t *node, const struct hub_computed_spec *spec,
                              const struct hub_texts *names, enum sb_type wanted, struct sb_err *err)
{
    for (size_t i = 0; i < names->n; i++) {
        const struct sb_family *family = find_family(self->catalog, names->at[i]);
        if (family && family->type != wanted)
            return sb_yaml_fail(&self->yaml, node, err, "'%s': %s is a %s, and %s takes a %s", spec->name, family->name,
                                sb_type_text(family->type), hub_compute_types[spec->type].name, sb_type_text(wanted));
    }
    return SB_OK;
}

static enum sb_rc read_sources(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec,
                               struct sb_err *err)
{
    const struct hub_compute_type *type = &hub_compute_types[spec->type];
    enum sb_rc rc = read_texts(self, node, "sources", HUB_COMPUTED_SOURCES_MAX, &spec->sources, err);
    if (rc != SB_OK)
        return rc;
    if ((spec->sources.n > 0) != (type->sources != HUB_SOURCE_NONE))
        return sb_yaml_fail(&self->yaml, node, err, "'%s': %s has %s sources", spec->name, type->name,
                            type->sources == HUB_SOURCE_NONE ? "no" : "families as");
    return check_types(self, node, spec, &spec->sources, type->sources == HUB_SOURCE_GAUGE ? SB_GAUGE : SB_COUNTER,
                       err);
}

static enum sb_rc read_roles(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec,
                             struct sb_err *err)
{
    const struct hub_compute_type *type = &hub_compute_types[spec->type];
    enum sb_rc rc = read_texts(self, node, "roles", HUB_COMPUTED_ROLES_MAX, &spec->roles, err);
    if (rc == SB_OK && (spec->roles.n < type->roles_min || spec->roles.n > type->roles_max))
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s': %s takes %zu to %zu roles", spec->name, type->name,
                          type->roles_min, type->roles_max);
    return rc;
}

static enum sb_rc read_state(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec,
                             struct sb_err *err)
{
    yaml_node_t *state = sb_yaml_get(&self->yaml, node, "state");
    if (!state)
        return SB_OK;
    if (spec->type != HUB_COMPUTE_worker_count)
        return sb_yaml_fail(&self->yaml, state, err, "state goes with worker_count only");
    const char *text = sb_yaml_text(state);
    for (size_t i = 0; text && i < SB_COUNT(states); i++) {
        if (strcmp(states[i], text) == 0) {
            spec->state = (enum hub_worker_state) i;
            return SB_OK;
        }
    }
    return sb_yaml_fail(&self->yaml, state, err, "state is active or inactive");
}

static bool is_capacity(enum hub_compute type)
{
    return type == HUB_COMPUTE_capacity_demand || type == HUB_COMPUTE_capacity_estimate ||
           type == HUB_COMPUTE_capacity_utilisation || type == HUB_COMPUTE_capacity_replicas;
}

static enum sb_rc read_capacity(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec,
                                struct sb_err *err)
{
    yaml_node_t *target = sb_yaml_get(&self->yaml, node, "target");
    enum sb_rc rc = read_texts(self, node, "backlog", 2, &spec->backlog, err);
    if (rc == SB_OK && spec->backlog.n == 1)
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s': backlog names two gauges: requests that wait, that run",
                          spec->name);
    if (rc == SB_OK && spec->backlog.n > 0 && !is_capacity(spec->type))
        rc = sb_yaml_fail(&self->yaml, node, err, "'%s': backlog goes with types of capacity only", spec->name);
    if (rc == SB_OK)
        rc = check_types(self, node, spec, &spec->backlog, SB_GAUGE, err);
    if (rc == SB_OK && target && spec->type != HUB_COMPUTE_capacity_replicas)
        rc = sb_yaml_fail(&self->yaml, target, err, "target goes with capacity_replicas only");
    if (rc == SB_OK && target)
        rc = sb_yaml_number(&self->yaml, target, &spec->target, err);
    if (rc == SB_OK && target && !(spec->target > 0 && spec->target <= 1))
        rc = sb_yaml_fail(&self->yaml, target, err, "target is above 0 and at most 1");
    return rc;
}

static enum sb_rc read_spec(struct context *self, yaml_node_t *node, struct hub_computed_spec *spec, struct sb_err *err)
{
    static const char *const keys[] = {"type", "phase", "sources", "roles", "state", "backlog", "target", "help", NULL};
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, spec->name, err);
    if (rc == SB_OK)
        rc = read_type(self, node, spec, err);
    if (rc == SB_OK)
        rc = check_phase(self, node, spec, err);
    if (rc == SB_OK)
        rc = sb_yaml_string(&self->yaml, node, "help", true, &self->specs->arena, &spec->help, err);
    if (rc == SB_OK)
        rc = read_sources(self, node, spec, err);
    if (rc == SB_OK)
        rc = read_roles(self, node, spec, err);
    if (rc == SB_OK)
        rc = read_state(self, node, spec, err);
    return rc == SB_OK ? read_capacity(self, node, spec, err) : rc;
}

/* The name as it is printed, for ever. */
static enum sb_rc full_name(struct context *self, yaml_node_t *key, const char **out, struct sb_err *err)
{
    char name[SB_EXPO_NAME_MAX];
    const char *written = sb_yaml_text(key);
    int n = snprintf(name, sizeof name, "%s%s", self->specs->prefix, written ? written : "");
    if (!written || written[0] == '\0' || n < 0 || (size_t) n >= sizeof name ||
        !sb_metric_name_is_valid(name, (size_t) n))
        return sb_yaml_fail(&self->yaml, key, err, "'%s%s' is not a metric name", self->specs->prefix,
                            written ? written : "?");
    *out = sb_arena_text(&self->specs->arena, name, (size_t) n);
    return *out ? SB_OK : sb_fail(err, SB_NOMEM, "computed metric '%s'", name);
}

static enum sb_rc add_spec(void *arg, yaml_node_t *key, yaml_node_t *node, struct sb_err *err)
{
    struct context *self = arg;
    struct hub_computed_specs *specs = self->specs;
    struct hub_computed_spec spec = {.file = sb_arena_text(&specs->arena, self->yaml.file, strlen(self->yaml.file)),
                                     .line = sb_yaml_line(key)};
    enum sb_rc rc = full_name(self, key, &spec.name, err);
    if (rc == SB_OK && !spec.file)
        rc = sb_fail(err, SB_NOMEM, "computed metric '%s'", spec.name);
    if (rc == SB_OK)
        rc = read_spec(self, node, &spec, err);
    if (rc != SB_OK)
        return rc;
    size_t at = 0;
    while (at < specs->n && strcmp(specs->at[at].name, spec.name) != 0)
        at++;
    if (at == HUB_COMPUTED_MAX)
        return sb_yaml_fail(&self->yaml, key, err, "there are over %d computed metrics", HUB_COMPUTED_MAX);
    specs->at[at] = spec;
    specs->n += at == specs->n;
    return SB_OK;
}

static enum sb_rc read_document(struct context *self, struct sb_err *err)
{
    static const char *const keys[] = {"version", "computed", NULL};
    enum sb_rc rc = sb_yaml_check_document(&self->yaml, keys, "a file of computed metrics", err);
    return rc == SB_OK ? sb_yaml_entries(&self->yaml, "computed", "", add_spec, self, err) : rc;
}

enum sb_rc hub_computed_specs_read(struct hub_computed_specs *self, const struct sb_catalog_file *file,
                                   const struct sb_catalog *catalog, struct sb_err *err)
{
    struct context context = {.specs = self, .catalog = catalog};
    enum sb_rc rc = sb_yaml_load(&context.yaml, file->name, file->text, file->len, err);
    if (rc != SB_OK)
        return rc;
    rc = read_document(&context, err);
    sb_yaml_release(&context.yaml);
    return rc;
}

static enum sb_rc read_operators(struct hub_computed_specs *self, const char *path, const struct sb_catalog *catalog,
                                 struct sb_err *err)
{
    SB_OWN(sb_buf_release) struct sb_buf text;
    struct sb_catalog_file file;
    enum sb_rc rc = sb_catalog_file_read(&file, &text, path, "--computed", err);
    return rc == SB_OK ? hub_computed_specs_read(self, &file, catalog, err) : rc;
}

enum sb_rc hub_computed_specs_load(struct hub_computed_specs *self, const char *path, const char *prefix,
                                   bool has_capacity, const struct sb_catalog *catalog, struct sb_err *err)
{
    *self = (struct hub_computed_specs){.prefix = prefix};
    sb_arena_init(&self->arena);
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && i < sb_computed_embedded_count; i++)
        rc = hub_computed_specs_read(self, &sb_computed_embedded[i], catalog, err);
    for (size_t i = 0; rc == SB_OK && has_capacity && i < sb_capacity_embedded_count; i++)
        rc = hub_computed_specs_read(self, &sb_capacity_embedded[i], catalog, err);
    if (rc == SB_OK && path && path[0] != '\0')
        rc = read_operators(self, path, catalog, err);
    if (rc != SB_OK)
        hub_computed_specs_release(self);
    return rc;
}

void hub_computed_specs_release(struct hub_computed_specs *self)
{
    sb_arena_release(&self->arena);
    self->n = 0;
}
