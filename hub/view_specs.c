#include "hub/view_specs.h"

#include <string.h>

#include "common/text.h"
#include "common/yaml_node.h"
#include "hub/view.h"

/* What every reader of a part gets. */
struct context {
    struct hub_view_specs *specs;
    struct sb_yaml yaml;
};

static bool is_view_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = strlen(text);
    return n > 0 && n <= HUB_VIEW_NAME_MAX && strspn(text, allowed) == n;
}

static enum sb_rc check_label(struct context *self, yaml_node_t *node, const char *name, struct sb_err *err)
{
    if (!name || !sb_label_name_is_valid(name, strlen(name)))
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is not a label name", name ? name : "?");
    if (hub_label_is_foreign(name))
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is a label of Prometheus' own", name);
    return SB_OK;
}

/* A list of texts; an empty one is none. */
static enum sb_rc read_texts(struct context *self, yaml_node_t *node, const char *name, struct hub_texts *out,
                             struct sb_err *err)
{
    if (node->type == YAML_SEQUENCE_NODE && sb_yaml_count(node) == 0)
        return SB_OK;
    return sb_yaml_strings(&self->yaml, node, name, &self->specs->arena, &out->at, &out->n, err);
}

static bool is_grouped_by(const struct hub_view_spec *spec, const char *label)
{
    for (size_t i = 0; i < spec->by.n; i++) {
        if (strcmp(spec->by.at[i], label) == 0)
            return true;
    }
    return hub_label_is_in_every_view(label);
}

static enum sb_rc read_by(struct context *self, yaml_node_t *node, struct hub_view_spec *spec, struct sb_err *err)
{
    struct hub_texts by = {0};
    enum sb_rc rc = read_texts(self, node, "by", &by, err);
    if (rc != SB_OK)
        return rc;
    if (by.n > HUB_VIEW_LABELS_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "a view groups by over %d labels", HUB_VIEW_LABELS_MAX);
    for (size_t i = 0; rc == SB_OK && i < by.n; i++) {
        rc = check_label(self, node, by.at[i], err);
        if (rc == SB_OK && is_grouped_by(spec, by.at[i]))
            rc = sb_yaml_fail(&self->yaml, node, err, "'%s' is grouped by already", by.at[i]);
        spec->by = (struct hub_texts){.at = by.at, .n = i + 1};
    }
    return rc;
}

static enum sb_rc read_where(struct context *self, yaml_node_t *node, struct hub_view_spec *spec, struct sb_err *err)
{
    if (node->type != YAML_MAPPING_NODE || sb_yaml_count(node) > HUB_VIEW_LABELS_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "where must be a map of at most %d labels", HUB_VIEW_LABELS_MAX);
    yaml_node_t *key, *values;
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && sb_yaml_pair(&self->yaml, node, i, &key, &values); i++) {
        const char *label = sb_yaml_text(key);
        struct hub_where *where = &spec->where[spec->n_where++];
        rc = check_label(self, key, label, err);
        if (rc != SB_OK)
            return rc;
        where->label = sb_arena_text(&self->specs->arena, label, strlen(label));
        if (!where->label)
            return sb_fail(err, SB_NOMEM, "view '%s'", spec->name);
        rc = sb_yaml_strings(&self->yaml, values, label, &self->specs->arena, &where->values.at, &where->values.n, err);
    }
    return rc;
}

static enum sb_rc read_rename(struct context *self, yaml_node_t *node, struct hub_view_spec *spec, struct sb_err *err)
{
    if (node->type != YAML_MAPPING_NODE || sb_yaml_count(node) > HUB_VIEW_LABELS_MAX)
        return sb_yaml_fail(&self->yaml, node, err, "rename must be a map of at most %d labels", HUB_VIEW_LABELS_MAX);
    yaml_node_t *key, *value;
    for (size_t i = 0; sb_yaml_pair(&self->yaml, node, i, &key, &value); i++) {
        const char *label = sb_yaml_text(key);
        const char *from = sb_yaml_text(value);
        enum sb_rc rc = check_label(self, key, label, err);
        if (rc != SB_OK)
            return rc;
        if (is_grouped_by(spec, label))
            return sb_yaml_fail(&self->yaml, key, err, "'%s' is grouped by already", label);
        if (!from || !is_grouped_by(spec, from))
            return sb_yaml_fail(&self->yaml, value, err, "'%s' is not a label that the view groups by",
                                from ? from : "?");
        const struct hub_rename rename = {.label = sb_arena_text(&self->specs->arena, label, strlen(label)),
                                          .from = sb_arena_text(&self->specs->arena, from, strlen(from))};
        if (!rename.label || !rename.from)
            return sb_fail(err, SB_NOMEM, "view '%s'", spec->name);
        spec->renames[spec->n_renames++] = rename;
    }
    return SB_OK;
}

static enum sb_rc read_flag(struct context *self, yaml_node_t *node, bool *out, struct sb_err *err)
{
    const char *text = sb_yaml_text(node);
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return sb_yaml_fail(&self->yaml, node, err, "'%s' is neither true nor false", text ? text : "?");
    *out = strcmp(text, "true") == 0;
    return SB_OK;
}

static enum sb_rc read_flags(struct context *self, yaml_node_t *node, struct hub_view_spec *spec, struct sb_err *err)
{
    const struct {
        const char *key;
        bool *out;
    } flags[] = {
        {"keep", &spec->is_kept},        {"role_scope", &spec->is_role_scoped}, {"own", &spec->has_own},
        {"buckets", &spec->has_buckets}, {"derived", &spec->has_derived},       {"windows", &spec->has_windows},
    };
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && i < SB_COUNT(flags); i++) {
        yaml_node_t *flag = sb_yaml_get(&self->yaml, node, flags[i].key);
        if (flag)
            rc = read_flag(self, flag, flags[i].out, err);
    }
    return rc;
}

static enum sb_rc read_view(struct context *self, yaml_node_t *node, struct hub_view_spec *spec, struct sb_err *err)
{
    static const char *const keys[] = {"by",         "where", "rename",  "allow",   "deny",    "keep",
                                       "role_scope", "own",   "buckets", "derived", "windows", NULL};
    enum sb_rc rc = sb_yaml_check_keys(&self->yaml, node, keys, spec->name, err);
    if (rc != SB_OK)
        return rc;
    yaml_node_t *by = sb_yaml_get(&self->yaml, node, "by");
    yaml_node_t *where = sb_yaml_get(&self->yaml, node, "where");
    yaml_node_t *rename = sb_yaml_get(&self->yaml, node, "rename");
    yaml_node_t *allow = sb_yaml_get(&self->yaml, node, "allow");
    yaml_node_t *deny = sb_yaml_get(&self->yaml, node, "deny");
    if (!by)
        return sb_yaml_fail(&self->yaml, node, err, "view '%s' needs the labels to group by: 'by'", spec->name);
    rc = read_by(self, by, spec, err);
    if (rc == SB_OK && where)
        rc = read_where(self, where, spec, err);
    if (rc == SB_OK && rename)
        rc = read_rename(self, rename, spec, err);
    if (rc == SB_OK && allow)
        rc = read_texts(self, allow, "allow", &spec->allow, err);
    if (rc == SB_OK && deny)
        rc = read_texts(self, deny, "deny", &spec->deny, err);
    return rc == SB_OK ? read_flags(self, node, spec, err) : rc;
}

static enum sb_rc add_view(void *arg, yaml_node_t *key, yaml_node_t *node, struct sb_err *err)
{
    struct context *self = arg;
    struct hub_view_specs *specs = self->specs;
    const char *name = sb_yaml_text(key);
    if (!name || !is_view_name(name))
        return sb_yaml_fail(&self->yaml, key, err, "'%s' is not a name of a view: letters, digits, _ and -, at most %d",
                            name ? name : "?", HUB_VIEW_NAME_MAX);
    struct hub_view_spec spec = {
        .name = sb_arena_text(&specs->arena, name, strlen(name)), .has_buckets = true, .has_derived = true};
    if (!spec.name)
        return sb_fail(err, SB_NOMEM, "view '%s'", name);
    enum sb_rc rc = read_view(self, node, &spec, err);
    if (rc != SB_OK)
        return rc;
    struct hub_view_spec *known = hub_view_specs_find(specs, name);
    if (!known && specs->n == HUB_VIEWS_MAX)
        return sb_yaml_fail(&self->yaml, key, err, "there are over %d views", HUB_VIEWS_MAX);
    if (!known)
        known = &specs->at[specs->n++];
    *known = spec;
    return SB_OK;
}

static enum sb_rc read_document(struct context *self, struct sb_err *err)
{
    static const char *const keys[] = {"version", "views", NULL};
    enum sb_rc rc = sb_yaml_check_document(&self->yaml, keys, "a file of views", err);
    return rc == SB_OK ? sb_yaml_entries(&self->yaml, "views", "view ", add_view, self, err) : rc;
}

enum sb_rc hub_view_specs_read(struct hub_view_specs *self, const struct sb_catalog_file *file, struct sb_err *err)
{
    struct context context = {.specs = self};
    enum sb_rc rc = sb_yaml_load(&context.yaml, file->name, file->text, file->len, err);
    if (rc != SB_OK)
        return rc;
    rc = read_document(&context, err);
    sb_yaml_release(&context.yaml);
    return rc;
}

static enum sb_rc read_operators(struct hub_view_specs *self, const char *path, struct sb_err *err)
{
    SB_OWN(sb_buf_release) struct sb_buf text;
    struct sb_catalog_file file;
    enum sb_rc rc = sb_catalog_file_read(&file, &text, path, "--views", err);
    return rc == SB_OK ? hub_view_specs_read(self, &file, err) : rc;
}

enum sb_rc hub_view_specs_load(struct hub_view_specs *self, const char *path, struct sb_err *err)
{
    *self = (struct hub_view_specs){.n = 0};
    sb_arena_init(&self->arena);
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && i < sb_views_embedded_count; i++)
        rc = hub_view_specs_read(self, &sb_views_embedded[i], err);
    if (rc == SB_OK && path && path[0] != '\0')
        rc = read_operators(self, path, err);
    if (rc != SB_OK)
        hub_view_specs_release(self);
    return rc;
}

void hub_view_specs_release(struct hub_view_specs *self)
{
    sb_arena_release(&self->arena);
    self->n = 0;
}

struct hub_view_spec *hub_view_specs_find(struct hub_view_specs *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++) {
        if (strcmp(self->at[i].name, name) == 0)
            return &self->at[i];
    }
    return NULL;
}

void hub_view_specs_lift_role_scopes(struct hub_view_specs *self)
{
    for (size_t i = 0; i < self->n; i++)
        self->at[i].is_role_scoped = false;
}

enum sb_rc hub_view_specs_add_engine(struct hub_view_specs *self, struct sb_err *err)
{
    struct hub_view_spec *dp = hub_view_specs_find(self, "dp");
    if (!dp || !is_grouped_by(dp, "dp_rank"))
        return sb_fail(err, SB_INVAL, "dp_engine_label needs a view dp that is grouped by dp_rank");
    for (size_t i = 0; i < dp->n_renames; i++) {
        if (strcmp(dp->renames[i].label, "engine") == 0)
            return SB_OK;
    }
    if (is_grouped_by(dp, "engine") || dp->n_renames == HUB_VIEW_LABELS_MAX)
        return sb_fail(err, SB_INVAL, "dp_engine_label: the view dp has no place for a label engine");
    dp->renames[dp->n_renames++] = (struct hub_rename){.label = "engine", .from = "dp_rank"};
    return SB_OK;
}

/* Equal, but for a _total that only one of them has? */
static bool is_family(const char *family, const char *said)
{
    size_t n = strlen(said);
    return strncmp(family, said, n) == 0 && (family[n] == '\0' || strcmp(family + n, "_total") == 0);
}

bool hub_texts_have_family(const struct hub_texts *self, const char *family)
{
    for (size_t i = 0; i < self->n; i++) {
        if (is_family(family, self->at[i]))
            return true;
    }
    return false;
}

bool hub_view_spec_has(const struct hub_view_spec *self, const char *family)
{
    if (self->allow.n > 0 && !hub_texts_have_family(&self->allow, family))
        return false;
    return !hub_texts_have_family(&self->deny, family);
}
