/*
 * Histograms of one family whose bounds differ, in one row: merged on the bounds that all of them share, which is
 * exact.
 */
#ifndef HUB_MERGE_H
#define HUB_MERGE_H

#include "hub/index.h"
#include "hub/values.h"

/* How the histograms of one family are read in one row. */
struct hub_merge {
    const struct hub_index *index; /* borrowed, as all but `made` */
    const struct hub_family *family;
    const struct hub_values *values;
    const struct sb_bounds *common; /* that all sets of bounds in the row share; NULL: there is one set */
    struct sb_bounds *made;
};

/* False: out of memory. Nothing is to be ended then. */
bool hub_merge_begin(struct hub_merge *self, const struct hub_index *index, const struct hub_family *family,
                     const struct hub_values *values) SB_CHECK;
void hub_merge_end(struct hub_merge *self);

/*
 * The cells of a series of variant number `variant`, merged with its twins under other bounds: as *bounds has them,
 * then the sum (cells: SB_BOUNDS_MAX + 2). False: the row has none, or has them with a twin of an earlier variant.
 */
bool hub_merge_read(const struct hub_merge *self, uint32_t variant, const struct hub_series *series,
                    const struct sb_bounds **bounds, double *cells) SB_CHECK;

#endif
