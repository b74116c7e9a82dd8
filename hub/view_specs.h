/* What views there are: schemas/views.yaml, which is built in, and the file that an operator adds. */
#ifndef HUB_VIEW_SPECS_H
#define HUB_VIEW_SPECS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/arena.h"
#include "common/catalog.h"

enum {
    HUB_VIEWS_MAX = 32,
    HUB_ALL_VIEWS_MAX = HUB_VIEWS_MAX + 1 /* one that is not shown */,
    HUB_VIEW_LABELS_MAX = 16,
    HUB_VIEW_NAME_MAX = 64
};

/* A list of texts. */
struct hub_texts {
    const char *const *at;
    size_t n;
};

/* A label, and the values of which it must have one; or a label that is printed as a copy of another. */
struct hub_where {
    const char *label;
    struct hub_texts values;
};

struct hub_rename {
    const char *label; /* as printed */
    const char *from;  /* a label that the view groups by */
};

struct hub_view_spec {
    const char *name;
    struct hub_texts by; /* beside service_name and model_name, which every view has */
    struct hub_where where[HUB_VIEW_LABELS_MAX];
    size_t n_where;
    struct hub_rename renames[HUB_VIEW_LABELS_MAX];
    size_t n_renames;
    struct hub_texts allow; /* families; none: all */
    struct hub_texts deny;
    bool is_kept;        /* its rows stay for good */
    bool is_role_scoped; /* families with a role scope count the sources of these roles alone */
    bool has_own;        /* the hub's own families and those about sources are part of it */
    bool has_buckets;
    bool has_derived;
    bool has_windows; /* and what is derived over sliding windows */
};

struct hub_view_specs {
    struct sb_arena arena; /* of all texts */
    size_t n;
    struct hub_view_spec at[HUB_VIEWS_MAX];
};

/* Reads the built-in views, then the file at `path` (NULL or "": none): a view of it replaces the one of the same name.
 * Errors: "file:line: reason"; *self holds nothing then. */
enum sb_rc hub_view_specs_load(struct hub_view_specs *self, const char *path, struct sb_err *err) SB_CHECK;
void hub_view_specs_release(struct hub_view_specs *self);

/* Adds one file; for tests. After an error *self is to be released. */
enum sb_rc hub_view_specs_read(struct hub_view_specs *self, const struct sb_catalog_file *file, struct sb_err *err)
    SB_CHECK;

struct hub_view_spec *hub_view_specs_find(struct hub_view_specs *self, const char *name); /* NULL: no such */

/* Settings that change views: all of them count every role; `dp` prints dp_rank as `engine`, too, unless it can't. */
void hub_view_specs_lift_role_scopes(struct hub_view_specs *self);
enum sb_rc hub_view_specs_add_engine(struct hub_view_specs *self, struct sb_err *err) SB_CHECK;

/* Does the view print the family of this name (of a counter, _total is optional)? */
bool hub_view_spec_has(const struct hub_view_spec *self, const char *family);

/* Is the name in the list, with or without _total? */
bool hub_texts_have_family(const struct hub_texts *self, const char *family);

#endif
