/*
 * A view: labels to group by, and the rows that come of it.
 *
 * Groups are kept as contributions come and go: adding one touches its own group and nothing else.
 */
#ifndef HUB_VIEW_H
#define HUB_VIEW_H

#include "common/labels.h"
#include "hub/table.h"

enum { HUB_VIEWS_MAX = 32, HUB_VIEW_LABELS_MAX = 16 };

struct hub_contribution;

/* One row: the contributions whose identity has equal values of the view's labels. */
struct hub_group {
    uint64_t id;                /* rising in order of making, never used again: a cursor may hold it */
    struct sb_labelset *labels; /* owned; an absent label isn't in it */
    uint32_t n_members;
    uint32_t cap_members;
    struct hub_contribution **members; /* in order of joining */
};

struct hub_view_spec {
    const char *name;
    const char *labels[HUB_VIEW_LABELS_MAX]; /* beside service_name and model_name, which every view has */
    bool has_own;                            /* the hub's own families are part of it */
};

extern const struct hub_view_spec hub_views[];
extern const size_t hub_views_count;

struct hub_view {
    const struct hub_view_spec *spec;
    uint32_t bit; /* 1 << its number */
    uint32_t n_labels;
    const char *labels[HUB_VIEW_LABELS_MAX + 2]; /* all that it groups by */
    uint64_t last_id;
    struct sb_labelsets *labelsets; /* borrowed */
    struct hub_table table;         /* groups by label set */
    struct hub_group **groups;      /* rising by id */
    size_t n_groups;
    size_t cap_groups;
};

/* number: below HUB_VIEWS_MAX, its own. */
void hub_view_init(struct hub_view *self, const struct hub_view_spec *spec, unsigned number,
                   struct sb_labelsets *labelsets);
void hub_view_release(struct hub_view *self);

/* Puts a contribution with this identity into its group, made if need be. NULL: out of memory. */
struct hub_group *hub_view_join(struct hub_view *self, struct hub_contribution *contribution,
                                const struct sb_labelset *identity) SB_CHECK;
/* Takes it out again; the last one takes the group along. */
void hub_view_leave(struct hub_view *self, struct hub_group *group, const struct hub_contribution *contribution);

/* The first group whose id is above this one, or NULL. */
struct hub_group *hub_view_after(const struct hub_view *self, uint64_t id);

/* Is a series' own label of this name printed as exported_<name>? Names that the view prints, that a histogram's
 * lines need, and those that Prometheus and its operator set on every target. */
bool hub_view_reserves(const struct hub_view *self, const char *label);

#endif
