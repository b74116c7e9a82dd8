/*
 * Histograms of one family whose bounds differ, in one row: merged on the bounds that all of them share, which is
 * exact.
 */
#ifndef HUB_MERGE_H
#define HUB_MERGE_H

#include "hub/index.h"
#include "hub/values.h"

/* Gets each merged series: cells as bounds have them, then the sum. bounds may have no finite bound at all. */
typedef void (*hub_merge_put)(void *arg, struct hub_series *series, const struct sb_bounds *bounds,
                              const double *cells);

/*
 * Merges the family's series in a row, if it has series under more than one set of bounds. False: it has not, and
 * nothing was put. (True without anything put: memory ran out.)
 */
bool hub_merge_row(const struct hub_index *index, const struct hub_family *family, const struct hub_values *values,
                   hub_merge_put put, void *arg);

#endif
