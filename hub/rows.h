/*
 * The numbers of a view's rows, as one scrape prints them: family by family, and in each in the order of the rows.
 *
 * A row of one contribution is read where its numbers are. One of several, or with retired cells, is added up once,
 * when the scrape meets it first, for each set of roles that families of the view are restricted to.
 */
#ifndef HUB_ROWS_H
#define HUB_ROWS_H

#include "hub/query.h"
#include "hub/store.h"

struct hub_row_slot;

struct hub_rows {
    const struct hub_store *store; /* borrowed, as view and query are */
    const struct hub_view *view;
    const struct hub_query *query;
    int64_t now_ms;
    struct hub_row_slot *slots; /* rising by id of group; owned */
    size_t n;
    size_t cap;
    size_t at; /* where the last one was found */
};

/* Borrowed until the next change of the store. */
struct hub_row {
    const struct hub_values *values;
    const double *maxima; /* beside each gauge of values the largest of the sources; NULL: the gauge itself */
    bool has_gauges;
};

void hub_rows_init(struct hub_rows *self, const struct hub_store *store, const struct hub_view *view,
                   const struct hub_query *query, int64_t now_ms);
void hub_rows_release(struct hub_rows *self);

/* The numbers of a row for families of a scope (0: that count all roles). False: the row is not part of this scrape, or
 * has nothing in that scope (or memory ran out). */
bool hub_rows_read(struct hub_rows *self, const struct hub_group *group, uint32_t scope, struct hub_row *out);

#endif
