#include "hub/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = SB_BOUNDS_MAX + 2 };

/* No bound in common: everything is in +Inf. */
static const double no_upper[] = {INFINITY};
static const struct sb_le no_le[] = {{"+Inf", 4}};
static const struct sb_bounds no_bounds = {.n = 0, .upper = no_upper, .le = no_le};

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
static void add_series(const struct sb_bounds *common, const struct sb_bounds *bounds, const double *cells,
                       double *into)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i <= bounds->n; i++) {
        double upper = i < bounds->n ? bounds->upper[i] : INFINITY;
        while (to < common->n && common->upper[to] < upper)
            to++;
        into[to] += cells[i];
    }
    into[common->n + 1] += cells[bounds->n + 1];
}

/* Is this the first set of bounds under which the row has a series of these labels? */
static bool is_first(const struct hub_merge *self, uint32_t variant, const struct sb_labelset *labels)
{
    double cells[CELLS_MAX];
    for (uint32_t i = 0; i < variant; i++) {
        const struct hub_series *twin = hub_index_find_series(self->index, self->family->variants[i], labels);
        if (twin && hub_values_read(self->values, twin->first, twin->n_cells, cells))
            return false;
    }
    return true;
}

bool hub_merge_read(const struct hub_merge *self, uint32_t variant, const struct hub_series *series,
                    const struct sb_bounds **bounds, double *cells)
{
    double own[CELLS_MAX];
    *bounds = self->common ? self->common : series->variant->bounds;
    if (!self->common)
        return hub_values_read(self->values, series->first, series->n_cells, cells);
    if (!hub_values_read(self->values, series->first, series->n_cells, own) || !is_first(self, variant, series->labels))
        return false;
    memset(cells, 0, (self->common->n + 2) * sizeof cells[0]);
    add_series(self->common, series->variant->bounds, own, cells);
    for (uint32_t i = variant + 1; i < self->family->n_variants; i++) {
        const struct hub_variant *other = self->family->variants[i];
        const struct hub_series *twin = hub_index_find_series(self->index, other, series->labels);
        if (twin && hub_values_read(self->values, twin->first, twin->n_cells, own))
            add_series(self->common, other->bounds, own, cells);
    }
    return true;
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

bool hub_merge_begin(struct hub_merge *self, const struct hub_index *index, const struct hub_family *family,
                     const struct hub_values *values)
{
    *self = (struct hub_merge){.index = index, .family = family, .values = values};
    if (family->n_variants < 2)
        return true;
    double upper[SB_BOUNDS_MAX];
    uint32_t n_present;
    size_t n = common_bounds(family, values, upper, &n_present);
    if (n_present < 2)
        return true;
    self->made = n > 0 ? sb_bounds_new(upper, n, NULL) : NULL;
    self->common = self->made ? self->made : &no_bounds;
    return n == 0 || self->made;
}

void hub_merge_end(struct hub_merge *self)
{
    sb_bounds_destroy(&self->made);
}
