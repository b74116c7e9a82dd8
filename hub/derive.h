/* What is computed from the numbers of one series in one row. Each is absent (false) where it has no meaning. */
#ifndef HUB_DERIVE_H
#define HUB_DERIVE_H

#include <stdbool.h>

#include "common/bounds.h"

double hub_count(const struct sb_bounds *bounds, const double *buckets); /* of all observations */

/*
 * The quantile (0 < q <= 1) of a histogram's buckets, each for itself, by the rules of Prometheus' histogram_quantile:
 * linear within a bucket, from 0 in the first where its bound is positive; the highest finite bound when it lies in
 * +Inf. False: nothing was observed, or there is no finite bound.
 */
bool hub_quantile(const struct sb_bounds *bounds, const double *buckets, double q, double *out);

/* False: nothing was observed. */
bool hub_mean(const struct sb_bounds *bounds, const double *buckets, double sum, double *out);

/* The share of what was observed that is not above the bound. False: nothing was, or no bucket ends there. */
bool hub_within(const struct sb_bounds *bounds, const double *buckets, double bound, double *out);

/* Within 0 and 1. False: the denominator is 0. */
bool hub_ratio(double numerator, double denominator, double *out);

#endif
