/*
 * The families and series that all contributions share, and where each series' numbers are.
 *
 * Two spaces of numbers: cells (of counters and histograms) and gauges. A histogram with n bounds takes n + 2 cells, as
 * on the wire. Cell and gauge HUB_NOWHERE take what has no place: values of families that were refused.
 */
#ifndef HUB_INDEX_H
#define HUB_INDEX_H

#include "common/bounds.h"
#include "common/catalog.h"
#include "common/labels.h"
#include "common/num.h"
#include "hub/counters.h"
#include "hub/table.h"

enum {
    HUB_NOWHERE = 1, /* 0 is no cell at all */
    HUB_FIRST_PLACE = 2,
    HUB_FAMILIES_MAX = 65536, /* pairs of name and bounds */
    HUB_CELLS_MAX = 4 * 1048576,
    HUB_GAUGES_MAX = 1048576,
    HUB_CLASH_NAMES_MAX = 256,
    HUB_HELP_MAX = 1024,
    HUB_SCOPES_MAX = 15, /* sets of roles, over all families */
};

struct hub_series {
    struct hub_variant *variant;
    struct sb_labelset *labels; /* the family's own; owned */
    uint32_t first;             /* cell, or gauge */
    uint32_t n_cells;
    uint32_t checked_views; /* bit by view: whether its labels were compared with the view's */
    uint32_t renamed_views; /* bit by view: whether any is printed as exported_... there */
};

/* A family under one set of bounds. Families without bounds have one variant. */
struct hub_variant {
    struct hub_family *family;
    struct sb_bounds *bounds; /* owned; NULL unless a histogram */
    uint32_t n_cells;         /* of each series */
    uint32_t n_series;
    uint32_t cap_series;
    struct hub_series **series; /* owned */
};

/* What a scrape prints under one name: a family, or what is computed from one or two of them in each row. */
enum { HUB_WINDOWS_MAX = 4 };

/* The lengths of windows (windows.h), each with the text that its label prints. */
struct hub_window_lengths {
    uint32_t n;
    struct hub_window_length {
        int64_t ms;
        char text[16];
    } at[HUB_WINDOWS_MAX];
};

enum hub_derivation {
    HUB_FAMILY_ITSELF,
    HUB_QUANTILE,
    HUB_MEAN,
    HUB_MAX,
    HUB_RATIO,
    HUB_SHARE,
    HUB_WITHIN,
    HUB_COMPUTED
};

struct hub_entry {
    char *name; /* owned, as help is */
    char *help;
    enum hub_derivation how;
    enum sb_type type;
    const struct hub_family *of;      /* the family, or the numerator; NULL: it is computed, or the share of a total */
    const struct hub_family *by;      /* the denominator, or NULL */
    const struct sb_derived *derived; /* a share or within; else NULL */
    const struct hub_family *totals[2][SB_TOTAL_MAX]; /* of a share, as sb_derived.totals; NULL: not known yet */
    uint32_t computed;                                /* its number in computed.h */
    uint32_t window;                                  /* over which it is derived; 0: over all time */
    double quantile;
    char label[SB_NUM_MAX + 48]; /* quantile="0.5",window="60s" */
};

/* Roles to which a family is restricted, where a view asks for that. */
struct hub_scope {
    uint32_t n;
    char *roles[SB_ROLES_MAX]; /* owned */
};

struct hub_family {
    uint32_t id;
    enum sb_type type;
    enum sb_aggregate aggregate;
    uint32_t scope;                  /* 0: all roles; else one more than its place in the index's scopes */
    const struct sb_family *catalog; /* NULL: an agent described it */
    char *name;                      /* as exposed in text format 0.0.4; owned, as help and unit are */
    char *help;
    char *unit;              /* NULL: none */
    const double *quantiles; /* that are derived, and the mean with them */
    size_t n_quantiles;
    uint32_t n_variants;
    uint32_t cap_variants;
    struct hub_variant **variants; /* owned */
};

struct hub_index {
    const struct sb_catalog *catalog;         /* borrowed */
    struct sb_labelsets *labelsets;           /* owned; the store's identities are in it as well */
    struct hub_counters *counters;            /* borrowed */
    const struct hub_window_lengths *windows; /* NULL: none; borrowed */
    struct hub_family **families;             /* by id; owned */
    struct hub_entry **entries;               /* rising by name, then by window; owned. They only ever become more */
    uint32_t n_entries;
    uint32_t cap_entries;
    const struct hub_family *counts[SB_AGENT_COUNTS]; /* families that the agents' own counts come as; NULL: not yet */
    uint32_t n_scopes;
    struct hub_scope scopes[HUB_SCOPES_MAX];
    uint8_t *aggregates; /* by id */
    uint32_t n_families;
    uint32_t cap_families;
    uint32_t n_variants;
    uint32_t n_series;
    uint32_t n_cells;  /* one past the last cell */
    uint32_t n_gauges; /* one past the last gauge */
    uint32_t cap_gauges;
    uint32_t *family_of_gauge;
    struct hub_series **series_of_gauge;
    struct hub_table family_table; /* by name */
    struct hub_table series_table; /* by variant and labels */
    struct hub_table claims;       /* exposed name to the family that has it */
    struct hub_table clashes;      /* family name to count */
};

/* A family as an agent defines it. Texts are borrowed pieces of the message. */
struct hub_family_def {
    struct sb_slice name;
    enum sb_type type;
    struct sb_slice unit; /* len 0: none */
    struct sb_slice help;
    struct sb_slice semantic;
    const double *bounds;
    uint32_t n_bounds;
    const struct sb_slice *role_scope; /* of families that the catalog doesn't know */
    uint32_t n_role_scope;
};

enum sb_rc hub_index_init(struct hub_index *self, const struct sb_catalog *catalog, struct hub_counters *counters,
                          struct sb_err *err) SB_CHECK;
void hub_index_release(struct hub_index *self);

/*
 * The variant that a definition means, made if need be; the catalog's words win over the definition's. *out is NULL
 * when the family cannot be had: its name clashes with one of the catalog's or with an earlier family's, its type is
 * another than before, or the limit is reached (all counted). Errors: SB_NOMEM; SB_INVAL: the bounds.
 */
enum sb_rc hub_index_variant(struct hub_index *self, const struct hub_family_def *def, struct hub_variant **out,
                             struct sb_err *err) SB_CHECK;

/* The series of a variant with these own labels, made if need be. *out is NULL at the limit (counted). SB_NOMEM. */
enum sb_rc hub_index_series(struct hub_index *self, struct hub_variant *variant, const struct sb_label_draft *labels,
                            struct hub_series **out, struct sb_err *err) SB_CHECK;

const struct hub_family *hub_index_find(const struct hub_index *self, const char *name); /* NULL: no such */

/* The place of the first entry above this name and window (NULL: of the first of all). */
uint32_t hub_index_place_after(const struct hub_index *self, const char *name, uint32_t window);

/* The first scope is 1. Do sources of this role (NULL: of none) count there? */
bool hub_index_has_role(const struct hub_index *self, uint32_t scope, const char *role);

/* NULL: the variant has no series with these labels. */
struct hub_series *hub_index_find_series(const struct hub_index *self, const struct hub_variant *variant,
                                         const struct sb_labelset *labels);

/* Names: only one owner may have them. A family is its own; what is derived has one that no family can be called. */
bool hub_index_claim(struct hub_index *self, const char *name, enum sb_type type, const char *owner)
    SB_CHECK; /* false: no memory */
bool hub_index_is_clash(const struct hub_index *self, const char *name, enum sb_type type, const char *owner);
enum sb_rc hub_index_count_clash(struct hub_index *self, const char *name, struct sb_err *err);

/* entries.c: enters a new family under its name, and what is derived from it. False: out of memory; a family's own
 * entry is never made without it, derived ones may be missing. */
bool hub_entries_add(struct hub_index *self, const struct hub_family *family) SB_CHECK;
bool hub_entries_claim_windows(struct hub_index *self) SB_CHECK; /* once index.windows is set */
/* Is anything derived from it that has windows, or may there be, once other families are known? */
bool hub_entries_may_be_in_windows(const struct hub_index *self, const struct hub_family *family);
/* Enters a computed metric and claims its name. Errors: SB_INVAL, it is taken; SB_NOMEM. */
enum sb_rc hub_entries_add_computed(struct hub_index *self, const char *name, const char *help, uint32_t number,
                                    struct sb_err *err) SB_CHECK;
void hub_entries_release(struct hub_index *self);
bool hub_entries_claim_catalog(struct hub_index *self) SB_CHECK; /* the names of all that may be derived */

/* How often a family was refused because of its name: the items of `clashes`. */
struct hub_clash {
    char *name;
    uint64_t count;
};

#endif
