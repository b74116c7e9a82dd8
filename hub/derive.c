#include "hub/derive.h"

/* Counts are whole numbers, so that any order is exact; four additions at a time need not wait for each other. */
double hub_count(const struct sb_bounds *bounds, const double *buckets)
{
    double counts[4] = {0};
    uint32_t i = 0;
    for (; i + 3 <= bounds->n; i += 4) {
        for (int k = 0; k < 4; k++)
            counts[k] += buckets[i + k];
    }
    for (; i <= bounds->n; i++)
        counts[0] += buckets[i];
    return (counts[0] + counts[1]) + (counts[2] + counts[3]);
}

bool hub_quantile(const struct sb_bounds *bounds, const double *buckets, double q, double *out)
{
    double count = hub_count(bounds, buckets);
    if (bounds->n == 0 || count == 0)
        return false;
    double rank = q * count;
    double below = 0;
    uint32_t at = 0;
    while (at < bounds->n && below + buckets[at] < rank)
        below += buckets[at++];
    if (at == bounds->n) {
        *out = bounds->upper[bounds->n - 1];
        return true;
    }
    double end = bounds->upper[at];
    if (at == 0 && end <= 0) {
        *out = end;
        return true;
    }
    double start = at > 0 ? bounds->upper[at - 1] : 0;
    *out = start + (end - start) * ((rank - below) / buckets[at]);
    return true;
}

bool hub_mean(const struct sb_bounds *bounds, const double *buckets, double sum, double *out)
{
    double count = hub_count(bounds, buckets);
    *out = sum / count;
    return count > 0;
}

bool hub_within(const struct sb_bounds *bounds, const double *buckets, double bound, double *out)
{
    double within = 0;
    uint32_t at = 0;
    while (at < bounds->n && bounds->upper[at] <= bound)
        within += buckets[at++];
    return at > 0 && bounds->upper[at - 1] == bound && hub_ratio(within, hub_count(bounds, buckets), out);
}

bool hub_ratio(double numerator, double denominator, double *out)
{
    if (denominator <= 0)
        return false;
    double ratio = numerator / denominator;
    *out = ratio < 0 ? 0 : ratio > 1 ? 1 : ratio;
    return true;
}
