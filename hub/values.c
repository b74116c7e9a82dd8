#include "hub/values.h"

#include <stdlib.h>
#include <string.h>

static const double absent[HUB_PAGE_CELLS] = {
#define FOUR -0.0, -0.0, -0.0, -0.0
    FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR,
#undef FOUR
};

void hub_values_release(struct hub_values *self)
{
    for (uint32_t i = 0; i < self->n_pages; i++)
        free(self->pages[i]);
    free(self->pages);
    free(self->gauges);
    *self = (struct hub_values){0};
}

bool hub_values_reserve_pages(struct hub_values *self, uint32_t n)
{
    if (n <= self->n_pages)
        return true;
    double **pages = realloc(self->pages, n * sizeof pages[0]);
    if (!pages)
        return false;
    memset(pages + self->n_pages, 0, (n - self->n_pages) * sizeof pages[0]);
    self->pages = pages;
    self->n_pages = n;
    return true;
}

size_t hub_values_bytes(const struct hub_values *self)
{
    size_t bytes = self->n_pages * sizeof self->pages[0] + self->cap_gauges * sizeof self->gauges[0];
    for (uint32_t i = 0; i < self->n_pages; i++)
        bytes += self->pages[i] ? sizeof absent : 0;
    return bytes;
}

double *hub_values_page(struct hub_values *self, uint32_t cell)
{
    uint32_t p = cell >> HUB_PAGE_BITS;
    if (!hub_values_reserve_pages(self, p + 1))
        return NULL;
    if (!self->pages[p]) {
        self->pages[p] = malloc(sizeof absent);
        if (!self->pages[p])
            return NULL;
        memcpy(self->pages[p], absent, sizeof absent);
    }
    return self->pages[p];
}

/* Copies n cells of one page without their signs; true if any of them has a value, which is one without sign. */
static bool read_cells(const double *cells, uint32_t n, double *out)
{
    uint64_t signs = ~(uint64_t) 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &cells[i], sizeof bits);
        signs &= bits;
        out[i] = fabs(cells[i]);
    }
    return signs >> 63 == 0;
}

bool hub_values_read(const struct hub_values *self, uint32_t first, uint32_t n, double *out)
{
    bool is_any = false;
    for (uint32_t done = 0; done < n;) {
        uint32_t cell = first + done;
        uint32_t p = cell >> HUB_PAGE_BITS;
        uint32_t at = cell & (HUB_PAGE_CELLS - 1);
        uint32_t take = HUB_PAGE_CELLS - at < n - done ? HUB_PAGE_CELLS - at : n - done;
        const double *page = p < self->n_pages && self->pages[p] ? self->pages[p] : absent;
        is_any |= read_cells(page + at, take, out + done);
        done += take;
    }
    return is_any;
}

const struct hub_gauge *hub_values_gauges(const struct hub_values *self, uint32_t family, uint32_t *n)
{
    uint32_t low = 0;
    uint32_t high = self->n_gauges;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (self->gauges[middle].family < family)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t end = low;
    while (end < self->n_gauges && self->gauges[end].family == family)
        end++;
    *n = end - low;
    return end > low ? &self->gauges[low] : NULL;
}

bool hub_values_reserve_gauges(struct hub_values *self, uint32_t n)
{
    if (n <= self->cap_gauges)
        return true;
    struct hub_gauge *gauges = realloc(self->gauges, n * sizeof gauges[0]);
    if (!gauges)
        return false;
    self->gauges = gauges;
    self->cap_gauges = n;
    return true;
}

static int compare_gauges(const void *left, const void *right)
{
    const struct hub_gauge *a = left;
    const struct hub_gauge *b = right;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

void hub_values_sort_gauges(struct hub_values *self)
{
    if (self->n_gauges > 1)
        qsort(self->gauges, self->n_gauges, sizeof self->gauges[0], compare_gauges);
}

bool hub_values_reserve_like(struct hub_values *self, const struct hub_values *like)
{
    for (uint32_t p = 0; p < like->n_pages; p++) {
        if (like->pages[p] && !hub_values_page(self, p << HUB_PAGE_BITS))
            return false;
    }
    return true;
}

size_t hub_values_bytes_like(const struct hub_values *self, const struct hub_values *like)
{
    static const struct hub_values none = {0};
    if (!self)
        self = &none;
    size_t bytes = 0;
    uint32_t n_pages = self->n_pages;
    for (uint32_t p = 0; p < like->n_pages; p++) {
        if (!like->pages[p] || (p < self->n_pages && self->pages[p]))
            continue;
        bytes += sizeof absent;
        n_pages = p >= n_pages ? p + 1 : n_pages;
    }
    return bytes + (n_pages - self->n_pages) * sizeof self->pages[0];
}
