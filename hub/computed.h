/*
 * Metrics that are computed from what contributions and rows have (computed_specs.h). A new type of them is a line of
 * computed_types.def and its function in computed.c.
 */
#ifndef HUB_COMPUTED_H
#define HUB_COMPUTED_H

#include "hub/computed_specs.h"

struct hub_contribution;
struct hub_group;
struct hub_index;
struct hub_query;
struct hub_store;

enum { HUB_EXPECTATIONS_MAX = 64 };

/* How many workers of a role there should be. */
struct hub_expectation {
    char service[SB_LABEL_VALUE_MAX + 1]; /* "": any that isn't named */
    char role[SB_LABEL_VALUE_MAX + 1];
    uint32_t n;
};

struct hub_expectations {
    uint32_t n;
    struct hub_expectation at[HUB_EXPECTATIONS_MAX];
};

/* "prefill=2,chat/decode=8": a number for each role, of one service or of all. SB_INVAL: what is wrong. */
enum sb_rc hub_expectations_parse(struct hub_expectations *self, const char *text, struct sb_err *err) SB_CHECK;

struct hub_computed {
    const struct hub_computed_specs *specs; /* borrowed; NULL: nothing is computed */
    struct hub_expectations expected;
    int64_t rate_window_ms;
    /* Where the sources of each metric are: looked up anew when there are more series. */
    struct hub_computed_places *places; /* by metric; owned */
    uint32_t n_series;
    uint32_t n_rates;
    uint8_t rate_of[HUB_COMPUTED_MAX]; /* by metric that is a rate: which one it is in rates of contributions */
    /* Sampling of rates, in slices: the source that comes next is the first above this. */
    uint64_t sampled_source;
    int64_t sampling_ms; /* 0: nothing is under way */
};

/* Claims the names and enters them into the index. specs is borrowed. Errors: SB_INVAL, a name is taken: "file:line:
 * ..."; SB_NOMEM. */
enum sb_rc hub_computed_init(struct hub_computed *self, const struct hub_computed_specs *specs,
                             const struct hub_expectations *expected, int64_t rate_window_ms, struct hub_index *index,
                             struct sb_err *err) SB_CHECK;
void hub_computed_release(struct hub_computed *self);

/* Finds where the sources of all metrics are now; before a scrape. */
void hub_computed_look_up(struct hub_store *store);

/* Samples what lives, for rates: begins a round, and goes on with it. False: the round is over. */
void hub_computed_begin_round(struct hub_store *store, int64_t now_ms);
bool hub_computed_go_on(struct hub_store *store);

/* Does the view print it? */
bool hub_computed_is_in(const struct hub_computed *self, uint32_t number, const struct hub_view_spec *view);

/*
 * Of one contribution: adds its values to those that rows add up, by metric (NAN: none so far). Of rows, each by
 * itself; false: the row has none.
 */
void hub_computed_add(const struct hub_store *store, const struct hub_view_spec *view,
                      const struct hub_contribution *member, double *totals);
bool hub_computed_is_added_up(const struct hub_computed *self, uint32_t number);
bool hub_computed_of_row(const struct hub_store *store, uint32_t number, struct hub_group *group,
                         const struct hub_query *query, double *out) SB_CHECK;

/* One metric of one contribution. */
bool hub_computed_of_member(const struct hub_store *store, uint32_t number, const struct hub_contribution *member,
                            double *out) SB_CHECK;

#endif
