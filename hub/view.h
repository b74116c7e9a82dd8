/*
 * A view: labels to group by, and the rows that come of it.
 *
 * Groups are kept as contributions come and go: adding one touches its own group and nothing else. A contribution that
 * is forgotten leaves its cells in the retired part of its groups, so that no counter of a row falls.
 */
#ifndef HUB_VIEW_H
#define HUB_VIEW_H

#include "common/labels.h"
#include "hub/table.h"
#include "hub/values.h"
#include "hub/view_specs.h"

#define HUB_NEVER_MS (INT64_MIN / 2) /* a time so long ago that any span since then is over */

struct hub_contribution;
struct hub_track;
struct hub_workers;

/* The cells of forgotten contributions of one role, in double-double. */
struct hub_retired {
    struct sb_labelset *role; /* the label role alone, or none; owned */
    struct hub_values high;
    struct hub_values low;
};

/* One row: the contributions whose identity has equal values of the view's labels. */
struct hub_group {
    uint64_t id;                /* rising in order of making, never used again: a cursor may hold it */
    struct sb_labelset *labels; /* owned; an absent label isn't in it */
    int64_t idle_since_ms;      /* when the last member stopped to live; HUB_NEVER_MS: none has lived */
    uint32_t n_live;            /* members that live */
    uint32_t n_members;
    uint32_t cap_members;
    uint32_t n_retired;
    uint32_t n_moves; /* how often numbers changed places: a member left, or another member's gauges are shown now */
    struct hub_contribution **members; /* in order of joining */
    struct hub_retired *retired;       /* owned; one for each role */
    struct hub_workers *workers;       /* counts that are kept between scrapes (workers.h); NULL: none; owned */
    struct hub_track *track;           /* of windows (windows.h); NULL: none; owned */
};

struct hub_view {
    const struct hub_view_spec *spec;
    uint32_t bit; /* 1 << its number; 0: it isn't shown */
    uint32_t n_labels;
    const char *labels[2 * HUB_VIEW_LABELS_MAX + 2]; /* all that its rows print */
    uint64_t last_id;
    struct sb_labelsets *labelsets; /* borrowed */
    struct hub_table table;         /* groups by label set */
    struct hub_group **groups;      /* rising by id */
    size_t n_groups;
    size_t cap_groups;
};

/* number: its own; below HUB_VIEWS_MAX, if the view is shown. The spec is borrowed. */
void hub_view_init(struct hub_view *self, const struct hub_view_spec *spec, unsigned number,
                   struct sb_labelsets *labelsets);
void hub_view_release(struct hub_view *self);

/* Does the view count contributions with this identity? */
bool hub_view_takes(const struct hub_view *self, const struct sb_labelset *identity);

/* The labels of the row that an identity belongs to; to be dropped. NULL: out of memory. */
struct sb_labelset *hub_view_row_labels(const struct hub_view *self, const struct sb_labelset *identity) SB_CHECK;

/* Puts a contribution with this identity into its group, made if need be. NULL: out of memory. */
struct hub_group *hub_view_join(struct hub_view *self, struct hub_contribution *contribution,
                                const struct sb_labelset *identity) SB_CHECK;
/* Takes it out again. A group that has neither members nor retired cells then goes. */
void hub_view_leave(struct hub_view *self, struct hub_group *group, const struct hub_contribution *contribution);

/* One live member more, or one less. */
void hub_group_note_life(struct hub_group *group, bool is_live, int64_t now_ms);

/* The retired part for a role, with room for all cells of `like`. NULL: out of memory. */
struct hub_retired *hub_group_retired(struct hub_group *group, struct sb_labelset *role, const struct hub_values *like)
    SB_CHECK;

/* Are the group's numbers printed? */
bool hub_view_shows(const struct hub_view *self, const struct hub_group *group, int64_t now_ms, int64_t linger_ms);

/*
 * Drops groups without members whose time is over: those that are not shown any more, and of those that are kept for
 * good all but the `kept_max` that lived last. Returns how many went for that; *bytes is how much memory for numbers
 * was freed.
 */
size_t hub_view_sweep(struct hub_view *self, int64_t now_ms, int64_t linger_ms, size_t kept_max, size_t *bytes);

/* By how many bytes hub_group_retired makes the group larger. */
size_t hub_group_retired_bytes(const struct hub_group *group, const struct sb_labelset *role,
                               const struct hub_values *like);

/* Drops some of the groups without members, those that have been idle longest. Returns how many; 0: there are none.
 * *bytes as above. */
size_t hub_view_make_room(struct hub_view *self, int64_t now_ms, size_t *bytes);

/* The first group whose id is above this one, or NULL. *at: where the search starts, kept by the caller from call to
 * call; any value is right. */
struct hub_group *hub_view_after(const struct hub_view *self, uint64_t id, size_t *at);

/* Is a series' own label of this name printed as exported_<name>? Names that the view prints, that a histogram's
 * lines need, and those that Prometheus and its operator set on every target. */
bool hub_view_reserves(const struct hub_view *self, const char *label);

bool hub_label_is_in_every_view(const char *label);
bool hub_label_is_foreign(const char *label); /* set by Prometheus, or a label of histograms and quantiles */

#endif
