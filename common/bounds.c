#include "bounds.h"

#include <math.h>
#include <stdlib.h>

#include "hash.h"

enum {
    KEYS_MAX = 4096,
    SHIFT_OCTAVE = 52, /* one key a power of two: all positive doubles have 2,047 of these */
    FINER = 2,         /* bits of detail beyond what tells all bounds apart: fewer values share a key with a bound */
};

static uint64_t key_of(double value, unsigned shift)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> shift;
}

static enum sb_rc check(const double *upper, size_t n, struct sb_err *err)
{
    if (n == 0)
        return sb_fail(err, SB_INVAL, "there are no bounds");
    if (n > SB_BOUNDS_MAX)
        return sb_fail(err, SB_FULL, "%zu bounds are more than %d", n, SB_BOUNDS_MAX);
    for (size_t i = 0; i < n; i++) {
        char this[SB_NUM_MAX];
        char before[SB_NUM_MAX];
        sb_num_value(this, upper[i]);
        if (!isfinite(upper[i]))
            return sb_fail(err, SB_INVAL, "bound %zu (%s) is not finite", i, this);
        if (i == 0 || upper[i] > upper[i - 1])
            continue;
        sb_num_value(before, upper[i - 1]);
        return sb_fail(err, SB_INVAL, "bound %zu (%s) is not above the one before (%s)", i, this, before);
    }
    return SB_OK;
}

/* Do any two of the positive bounds have the same key? */
static bool has_shared_key(const double *upper, size_t first, size_t n, unsigned shift)
{
    for (size_t i = first + 1; i < n; i++) {
        if (key_of(upper[i], shift) == key_of(upper[i - 1], shift))
            return true;
    }
    return false;
}

/* The coarsest shift that tells all positive bounds apart, then a little finer, as far as KEYS_MAX allows. */
static unsigned choose_shift(const double *upper, size_t first, size_t n)
{
    unsigned shift = SHIFT_OCTAVE;
    unsigned finer = 0;
    while (shift > 0 && finer < FINER) {
        if (!has_shared_key(upper, first, n, shift))
            finer++;
        if (key_of(upper[n - 1], shift - 1) - key_of(upper[first], shift - 1) >= KEYS_MAX)
            break;
        shift--;
    }
    return shift;
}

static uint32_t hash_of(const double *upper, size_t n)
{
    const uint64_t hash = sb_hash_more(SB_HASH_START, upper, n * sizeof *upper);
    return (uint32_t) (hash ^ hash >> 32);
}

/* Everything in one piece of memory; the public struct comes first. */
struct whole {
    struct sb_bounds bounds;
    double upper[SB_BOUNDS_MAX + 1];
    struct sb_le le[SB_BOUNDS_MAX + 1];
    uint16_t start[]; /* n_keys */
};

static void fill_table(const struct sb_bounds *self, uint16_t *start)
{
    uint16_t bucket = (uint16_t) self->first_positive;
    for (uint64_t i = 0; i < self->n_keys; i++) {
        while (key_of(self->upper[bucket], self->shift) < self->first_key + i)
            bucket++; /* the last key has a bound, so this stops before n */
        start[i] = bucket;
    }
}

struct sb_bounds *sb_bounds_new(const double *upper, size_t n, struct sb_err *err)
{
    if (check(upper, n, err) != SB_OK)
        return NULL;

    size_t first = 0;
    while (first < n && upper[first] <= 0)
        first++;
    unsigned shift = SHIFT_OCTAVE;
    uint64_t first_key = 0;
    uint64_t n_keys = 0;
    if (first < n) {
        shift = choose_shift(upper, first, n);
        first_key = key_of(upper[first], shift);
        n_keys = key_of(upper[n - 1], shift) - first_key + 1;
    }

    struct whole *whole = calloc(1, sizeof *whole + n_keys * sizeof whole->start[0]);
    if (!whole) {
        sb_fail(err, SB_NOMEM, "%zu bounds", n);
        return NULL;
    }
    for (size_t i = 0; i <= n; i++) {
        whole->upper[i] = i < n ? upper[i] + 0.0 : INFINITY; /* + 0.0 makes 0 of -0 */
        whole->le[i].len = sb_num_le(whole->le[i].text, whole->upper[i]);
    }
    whole->bounds = (struct sb_bounds){
        .n = (uint32_t) n,
        .hash = hash_of(whole->upper, n),
        .upper = whole->upper,
        .le = whole->le,
        .start = whole->start,
        .first_positive = (uint32_t) first,
        .first_key = first_key,
        .n_keys = n_keys,
        .shift = shift,
    };
    fill_table(&whole->bounds, whole->start);
    return &whole->bounds;
}

void sb_bounds_destroy(struct sb_bounds **self_p)
{
    free(*self_p); /* first in its struct whole */
    *self_p = NULL;
}

bool sb_bounds_equal(const struct sb_bounds *self, const struct sb_bounds *other)
{
    return self == other || (self->hash == other->hash && self->n == other->n &&
                             memcmp(self->upper, other->upper, self->n * sizeof self->upper[0]) == 0);
}
