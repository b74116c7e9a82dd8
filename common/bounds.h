/*
 * The upper bounds of a histogram's buckets, and the way from a value to its bucket.
 *
 * A table over the top bits of the double narrows the search to one or two comparisons, whatever the values are.
 */
#ifndef SB_BOUNDS_H
#define SB_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "err.h"
#include "num.h"

enum { SB_BOUNDS_MAX = 256 };

/* A bound as text: "0.005", "1.0", "+Inf". */
struct sb_le {
    char text[SB_NUM_MAX];
    size_t len;
};

struct sb_bounds {
    uint32_t n;             /* finite upper bounds; bucket n is +Inf */
    uint32_t hash;          /* equal bounds have equal hashes */
    const double *upper;    /* n of them, inclusive, rising, finite; then one +Inf */
    const struct sb_le *le; /* n + 1, as the engine prints them */
    /* start[key - first_key] is the first bucket that a value with these top bits can be in. */
    const uint16_t *start;
    uint32_t first_positive; /* the first bound above 0; n when there is none */
    uint64_t first_key;
    uint64_t n_keys;
    unsigned shift; /* a key is the value's bits without this many low ones */
};

/*
 * Makes bounds from n upper edges, in the unit that values will have.
 * Returns NULL with *err set: SB_INVAL (none, not finite, or not above the one before: the text names the first bad
 * one, as "bound 1 (125) is not above the one before (1000)"), SB_FULL (over SB_BOUNDS_MAX), SB_NOMEM.
 */
struct sb_bounds *sb_bounds_new(const double *upper, size_t n, struct sb_err *err) SB_CHECK;
void sb_bounds_destroy(struct sb_bounds **self_p);
bool sb_bounds_equal(const struct sb_bounds *self, const struct sb_bounds *other);

/*
 * The bucket of a value that is not NaN: the first whose upper bound is at least the value (le is inclusive).
 *
 * The table leaves at most one bound to compare with, unless bounds lie closer than its 4,096 keys can tell apart; so
 * the first comparison is an addition, and the loop nearly never taken.
 */
static inline uint32_t sb_bounds_bucket(const struct sb_bounds *self, double value)
{
    uint32_t bucket = 0;
    if (value > 0) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint64_t key = (bits >> self->shift) - self->first_key;
        if (key < self->n_keys)
            bucket = self->start[key];
        else if ((int64_t) key >= 0)
            return self->n; /* above every bound's key */
        else
            bucket = self->first_positive; /* below the first one's: the difference wrapped around */
    }
    bucket += self->upper[bucket] < value;
    while (self->upper[bucket] < value)
        bucket++;
    return bucket;
}

#endif
