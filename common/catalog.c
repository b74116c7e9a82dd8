#include "common/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/catalog_read.h"

static const struct semantic {
    const char *text;
    enum sb_aggregate aggregate;
} semantics[] = {
#define SEMANTIC(name, how) [SB_SEMANTIC_##name] = {.text = #name, .aggregate = SB_AGGREGATE_##how},
#include "semantics.def"
#undef SEMANTIC
};
_Static_assert(SB_COUNT(semantics) == SB_SEMANTIC_COUNT, "every semantic needs a row");

const char *sb_semantic_text(enum sb_semantic semantic)
{
    return semantics[semantic].text;
}

bool sb_semantic_parse(const char *text, size_t len, enum sb_semantic *out)
{
    for (size_t i = 0; i < SB_COUNT(semantics); i++) {
        if (strlen(semantics[i].text) != len || memcmp(semantics[i].text, text, len) != 0)
            continue;
        *out = (enum sb_semantic) i;
        return true;
    }
    return false;
}

enum sb_aggregate sb_semantic_aggregate(enum sb_semantic semantic)
{
    return semantics[semantic].aggregate;
}

bool sb_semantic_fits(enum sb_semantic semantic, enum sb_type type)
{
    const bool is_merge = sb_semantic_aggregate(semantic) == SB_AGGREGATE_MERGE;
    const bool is_sum = sb_semantic_aggregate(semantic) == SB_AGGREGATE_SUM;
    return type == SB_HISTOGRAM ? is_merge : type == SB_COUNTER ? is_sum : !is_merge;
}

void sb_semantic_list(enum sb_type type, char *out, size_t n)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < SB_COUNT(semantics) && len < n; i++) {
        if (sb_semantic_fits((enum sb_semantic) i, type))
            len += (size_t) snprintf(out + len, n - len, "%s%s", len ? ", " : "", semantics[i].text);
    }
}

enum sb_semantic sb_semantic_of_type(enum sb_type type)
{
    static const enum sb_semantic of_type[] = {
        [SB_COUNTER] = SB_SEMANTIC_counter,
        [SB_GAUGE] = SB_SEMANTIC_state_gauge,
        [SB_HISTOGRAM] = SB_SEMANTIC_histogram,
    };
    _Static_assert(SB_COUNT(of_type) == SB_TYPE_COUNT, "every type needs a row");
    return of_type[type];
}

struct sb_slice sb_prefix_expose(const struct sb_prefix *self, struct sb_slice name, char *out)
{
    const size_t from = self->from ? strlen(self->from) : 0;
    if (from == 0 || name.len < from || memcmp(name.at, self->from, from) != 0)
        return name;
    const size_t to = strlen(self->to);
    const size_t len = to + name.len - from;
    if (len >= SB_EXPO_NAME_MAX)
        return name;
    memcpy(out, self->to, to);
    memcpy(out + to, name.at + from, name.len - from);
    out[len] = '\0';
    return (struct sb_slice){.at = out, .len = len};
}

static enum sb_rc copy_prefix(struct sb_catalog_draft *draft, const struct sb_prefix *prefix, struct sb_err *err)
{
    if (!prefix || !prefix->from)
        return SB_OK;
    draft->catalog.prefix.from = sb_arena_text(&draft->arena, prefix->from, strlen(prefix->from));
    draft->catalog.prefix.to = sb_arena_text(&draft->arena, prefix->to, strlen(prefix->to));
    return draft->catalog.prefix.from && draft->catalog.prefix.to ? SB_OK : sb_fail(err, SB_NOMEM, "the catalog");
}

struct sb_catalog *sb_catalog_new(const struct sb_catalog_file *files, size_t n, struct sb_err *err)
{
    return sb_catalog_new_exposed(files, n, NULL, err);
}

struct sb_catalog *sb_catalog_new_exposed(const struct sb_catalog_file *files, size_t n, const struct sb_prefix *prefix,
                                          struct sb_err *err)
{
    struct sb_catalog_draft *draft = calloc(1, sizeof *draft);
    if (!draft) {
        sb_fail(err, SB_NOMEM, "the catalog");
        return NULL;
    }
    sb_arena_init(&draft->arena);
    enum sb_rc rc = copy_prefix(draft, prefix, err);
    for (size_t i = 0; i < n && rc == SB_OK; i++)
        rc = sb_catalog_read(draft, &files[i], err);
    if (rc == SB_OK)
        rc = sb_catalog_check(draft, err);
    struct sb_catalog *self = &draft->catalog;
    if (rc != SB_OK)
        sb_catalog_destroy(&self);
    return self;
}

void sb_catalog_destroy(struct sb_catalog **self_p)
{
    struct sb_catalog_draft *draft = (struct sb_catalog_draft *) *self_p; /* its first member */
    *self_p = NULL;
    if (!draft)
        return;
    for (size_t i = 0; i < draft->catalog.n_bucket_sets; i++) {
        struct sb_bounds *bounds = draft->bucket_sets[i].bounds;
        sb_bounds_destroy(&bounds);
    }
    free(draft->families);
    free(draft->features);
    free(draft->bucket_sets);
    free(draft->roots);
    free(draft->derived);
    sb_arena_release(&draft->arena);
    free(draft);
}

const struct sb_family *sb_catalog_family(const struct sb_catalog *self, const char *name, size_t len)
{
    for (size_t i = 0; i < self->n_families; i++) {
        const char *have = self->families[i].name;
        if (strncmp(have, name, len) == 0 && have[len] == '\0')
            return &self->families[i];
    }
    return NULL;
}

const struct sb_feature *sb_catalog_feature(const struct sb_catalog *self, const char *name)
{
    for (size_t i = 0; i < self->n_features; i++)
        if (strcmp(self->features[i].name, name) == 0)
            return &self->features[i];
    return NULL;
}

const struct sb_bucket_set *sb_catalog_bucket_set(const struct sb_catalog *self, const char *name)
{
    for (size_t i = 0; i < self->n_bucket_sets; i++)
        if (strcmp(self->bucket_sets[i].name, name) == 0)
            return &self->bucket_sets[i];
    return NULL;
}
