/*
 * The numbers of one contribution, or of several added up: a row of cumulative cells and a list of gauges.
 *
 * All rows share one index of cells (index.h). A row is cut into pages of 64 cells that exist once a cell of theirs has
 * a value, so that cells which only one source has cost the others nothing. A cell without a value holds -0.0: it
 * adds nothing to a sum, and a sum of such cells is -0.0 again.
 */
#ifndef HUB_VALUES_H
#define HUB_VALUES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/catalog.h"
#include "common/err.h"

enum { HUB_PAGE_BITS = 6, HUB_PAGE_CELLS = 1 << HUB_PAGE_BITS };

struct hub_gauge {
    uint32_t family; /* hub_family id; gauges are sorted by it, then by id */
    uint32_t id;     /* in the index of gauges */
    double value;
};

struct hub_values {
    double **pages; /* owned; NULL: no cell of the page has a value */
    uint32_t n_pages;
    uint32_t n_gauges;
    uint32_t cap_gauges;
    struct hub_gauge *gauges; /* owned */
};

void hub_values_release(struct hub_values *self);

/* Room for the addresses of n pages in all, as calls for single pages would make it bit by bit. */
bool hub_values_reserve_pages(struct hub_values *self, uint32_t n) SB_CHECK;

/* The page of a cell, made if need be. NULL: out of memory. */
double *hub_values_page(struct hub_values *self, uint32_t cell) SB_CHECK;

size_t hub_values_bytes(const struct hub_values *self); /* of memory that it owns */

/* Copies cells first .. first + n - 1, those without a value as 0. True if any of them has one. */
bool hub_values_read(const struct hub_values *self, uint32_t first, uint32_t n, double *out);

/* The gauges of a family: *n of them, NULL for none. */
const struct hub_gauge *hub_values_gauges(const struct hub_values *self, uint32_t family, uint32_t *n);

bool hub_values_reserve_gauges(struct hub_values *self, uint32_t n) SB_CHECK; /* room for n in all */
void hub_values_sort_gauges(struct hub_values *self);

/* Room for all cells that another has. False: out of memory, and no harm done. */
bool hub_values_reserve_like(struct hub_values *self, const struct hub_values *like) SB_CHECK;
/* By how many bytes that makes it larger. self: NULL for an empty one. */
size_t hub_values_bytes_like(const struct hub_values *self, const struct hub_values *like);
/* Adds cells to a sum in double-double; both parts of it have room for them. */
void hub_values_add(struct hub_values *high, struct hub_values *low, const struct hub_values *more);

enum { HUB_SUMS_MAX = 32 };

/* One part of sums. */
struct hub_part {
    const struct hub_values *values;
    const struct hub_values *low; /* what values lack in precision; NULL: nothing */
    uint32_t sums;                /* bit by sum: those that it is part of */
    bool has_gauges; /* whether its gauges take part: those of sources that live, one contribution a source */
};

/* One sum of parts. While they are being added, values lack the precision that low has, and gauges are apart. */
struct hub_sum {
    struct hub_values values;
    double *maxima; /* beside each of its gauges the largest of the parts'; owned */
    struct hub_values low;
    struct hub_meeting *met; /* gauges that any part had so far; owned */
    uint32_t n_met;
    uint32_t cap_met;
};

void hub_sum_release(struct hub_sum *self);
size_t hub_sum_bytes(const struct hub_sum *self); /* of memory, its own size too */

/* Where each gauge is among those that a sum has met, by its id; all 0 between two calls. Starts as zeros, and serves
 * any number of sums. */
struct hub_gauge_places {
    uint32_t *at;
    uint32_t n;
};

void hub_gauge_places_release(struct hub_gauge_places *self);

struct hub_fold {
    const uint8_t *aggregates; /* by family */
    struct hub_gauge_places *places;
    bool is_last; /* these are the last parts: the sums are to be read next */
};

/*
 * Adds n parts to n_sums sums (at first empty): cells exact to the last bit whatever the order; gauges by the
 * aggregates of their families. Parts of the same sums are added fastest one behind the other. False: out of memory;
 * the sums are good for nothing then but to be released.
 */
bool hub_sums_add(const struct hub_fold *fold, struct hub_sum *sums, size_t n_sums, const struct hub_part *parts,
                  size_t n) SB_CHECK;

#endif
