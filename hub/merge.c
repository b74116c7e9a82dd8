#include "hub/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = SB_BOUNDS_MAX + 2 };

/* No bound in common: everything is in +Inf. */
static const double no_upper[] = {INFINITY};
static const char *const no_le[] = {"+Inf"};
static const uint8_t no_le_len[] = {4};
static const struct sb_bounds no_bounds = {.n = 0, .upper = no_upper, .le = no_le, .le_len = no_le_len};

/* What merging one row needs to know. */
struct merge {
    const struct hub_index *index;
    const struct hub_family *family;
    const struct hub_values *values;
    const struct sb_bounds *bounds; /* the common ones */
};

static bool is_present(const struct hub_variant *variant, const struct hub_values *values)
{
    double cells[CELLS_MAX];
    for (uint32_t i = 0; i < variant->n_series; i++) {
        if (hub_values_read(values, variant->series[i]->first, variant->n_cells, cells))
            return true;
    }
    return false;
}

static bool has_bound(const struct sb_bounds *bounds, double upper)
{
    uint32_t at = upper <= bounds->upper[bounds->n - 1] ? sb_bounds_bucket(bounds, upper) : bounds->n;
    return at < bounds->n && bounds->upper[at] == upper;
}

/* Keeps of n bounds those that the other has as well. */
static size_t intersect(double *upper, size_t n, const struct sb_bounds *other)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (has_bound(other, upper[i]))
            upper[kept++] = upper[i];
    }
    return kept;
}

/* Adds a series' cells to the merged ones; each bucket goes into the first common one that holds it whole. */
static void add_series(const struct merge *self, const struct sb_bounds *bounds, const double *cells, double *into)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i <= bounds->n; i++) {
        double upper = i < bounds->n ? bounds->upper[i] : INFINITY;
        while (to < self->bounds->n && self->bounds->upper[to] < upper)
            to++;
        into[to] += cells[i];
    }
    into[self->bounds->n + 1] += cells[bounds->n + 1];
}

/* Is this the first set of bounds under which the row has a series of these labels? */
static bool is_first(const struct merge *self, uint32_t variant, const struct sb_labelset *labels)
{
    double cells[CELLS_MAX];
    for (uint32_t i = 0; i < variant; i++) {
        const struct hub_series *twin = hub_index_find_series(self->index, self->family->variants[i], labels);
        if (twin && hub_values_read(self->values, twin->first, twin->n_cells, cells))
            return false;
    }
    return true;
}

static void merge_series(const struct merge *self, uint32_t variant, struct hub_series *series, hub_merge_put put,
                         void *arg)
{
    double cells[CELLS_MAX];
    double merged[CELLS_MAX] = {0};
    if (!hub_values_read(self->values, series->first, series->n_cells, cells) ||
        !is_first(self, variant, series->labels))
        return;
    add_series(self, series->variant->bounds, cells, merged);
    for (uint32_t i = variant + 1; i < self->family->n_variants; i++) {
        const struct hub_variant *other = self->family->variants[i];
        const struct hub_series *twin = hub_index_find_series(self->index, other, series->labels);
        if (twin && hub_values_read(self->values, twin->first, twin->n_cells, cells))
            add_series(self, other->bounds, cells, merged);
    }
    put(arg, series, self->bounds, merged);
}

/* The bounds that all sets of bounds in this row share. *n_present: how many sets those are. */
static size_t common_bounds(const struct hub_family *family, const struct hub_values *values, double *upper,
                            uint32_t *n_present)
{
    size_t n = 0;
    *n_present = 0;
    for (uint32_t i = 0; i < family->n_variants; i++) {
        const struct hub_variant *variant = family->variants[i];
        if (!is_present(variant, values))
            continue;
        if ((*n_present)++ > 0) {
            n = intersect(upper, n, variant->bounds);
            continue;
        }
        n = variant->bounds->n;
        memcpy(upper, variant->bounds->upper, n * sizeof upper[0]);
    }
    return n;
}

bool hub_merge_row(const struct hub_index *index, const struct hub_family *family, const struct hub_values *values,
                   hub_merge_put put, void *arg)
{
    double upper[SB_BOUNDS_MAX];
    uint32_t n_present;
    size_t n = common_bounds(family, values, upper, &n_present);
    if (n_present < 2)
        return false;

    struct sb_bounds *made = n > 0 ? sb_bounds_new(upper, n, NULL) : NULL;
    if (n > 0 && !made)
        return true;
    const struct merge merge = {.index = index, .family = family, .values = values, .bounds = made ? made : &no_bounds};
    for (uint32_t v = 0; v < family->n_variants; v++) {
        const struct hub_variant *variant = family->variants[v];
        for (uint32_t i = 0; i < variant->n_series; i++)
            merge_series(&merge, v, variant->series[i], put, arg);
    }
    sb_bounds_destroy(&made);
    return true;
}
