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

static bool reserve_pages(struct hub_values *self, uint32_t n)
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
    if (!reserve_pages(self, p + 1))
        return NULL;
    if (!self->pages[p]) {
        self->pages[p] = malloc(sizeof absent);
        if (!self->pages[p])
            return NULL;
        memcpy(self->pages[p], absent, sizeof absent);
    }
    return self->pages[p];
}

bool hub_values_read(const struct hub_values *self, uint32_t first, uint32_t n, double *out)
{
    bool is_any = false;
    for (uint32_t done = 0; done < n;) {
        uint32_t cell = first + done;
        uint32_t p = cell >> HUB_PAGE_BITS;
        uint32_t at = cell & (HUB_PAGE_CELLS - 1);
        uint32_t take = HUB_PAGE_CELLS - at < n - done ? HUB_PAGE_CELLS - at : n - done;
        const double *page = p < self->n_pages ? self->pages[p] : NULL;
        for (uint32_t i = 0; i < take; i++) {
            double value = page ? page[at + i] : -0.0;
            is_any |= !signbit(value);
            out[done + i] = fabs(value);
        }
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

/* Adds a page in double-double: the sum's rounding error is kept beside it. */
static inline __attribute__((always_inline)) void add_page_body(double *restrict high, double *restrict low,
                                                                const double *restrict page)
{
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++) {
        double sum = high[i] + page[i];
        double part = sum - high[i];
        low[i] += (high[i] - (sum - part)) + (page[i] - part);
        high[i] = sum;
    }
}

/* Two at a time, so that high and low go through memory half as often. */
static inline __attribute__((always_inline)) void add_pages_body(double *restrict high, double *restrict low,
                                                                 const double *restrict a, const double *restrict b)
{
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++) {
        double first = high[i] + a[i];
        double part = first - high[i];
        double error = (high[i] - (first - part)) + (a[i] - part);
        double second = first + b[i];
        part = second - first;
        error += (first - (second - part)) + (b[i] - part);
        low[i] += error;
        high[i] = second;
    }
}

struct adder {
    void (*one)(double *restrict high, double *restrict low, const double *restrict page);
    void (*two)(double *restrict high, double *restrict low, const double *restrict a, const double *restrict b);
};

static void add_page(double *restrict high, double *restrict low, const double *restrict page)
{
    add_page_body(high, low, page);
}

static void add_pages(double *restrict high, double *restrict low, const double *restrict a, const double *restrict b)
{
    add_pages_body(high, low, a, b);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_page_avx2(double *restrict high, double *restrict low,
                                                          const double *restrict page)
{
    add_page_body(high, low, page);
}

__attribute__((target("avx2"))) static void add_pages_avx2(double *restrict high, double *restrict low,
                                                           const double *restrict a, const double *restrict b)
{
    add_pages_body(high, low, a, b);
}
#endif

static struct adder pick_adder(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return (struct adder){.one = add_page_avx2, .two = add_pages_avx2};
#endif
    return (struct adder){.one = add_page, .two = add_pages};
}

static const double *page_of(const struct hub_part *part, uint32_t p)
{
    return p < part->values->n_pages ? part->values->pages[p] : NULL;
}

static bool fold_page(struct hub_values *out, uint32_t p, const struct hub_part *parts, size_t n,
                      const struct adder *adder)
{
    double high[HUB_PAGE_CELLS];
    double low[HUB_PAGE_CELLS] = {0};
    const double *waiting = NULL;
    bool is_any = false;

    memcpy(high, absent, sizeof high);
    for (size_t i = 0; i < n; i++) {
        const double *page = page_of(&parts[i], p);
        if (!page)
            continue;
        is_any = true;
        if (!waiting) {
            waiting = page;
            continue;
        }
        adder->two(high, low, waiting, page);
        waiting = NULL;
    }
    if (waiting)
        adder->one(high, low, waiting);
    if (!is_any)
        return true;

    double *page = hub_values_page(out, p << HUB_PAGE_BITS);
    if (!page)
        return false;
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        page[i] = signbit(high[i]) ? -0.0 : high[i] + low[i];
    return true;
}

static bool fold_cells(struct hub_values *out, const struct hub_part *parts, size_t n)
{
    const struct adder adder = pick_adder();
    uint32_t n_pages = 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].values->n_pages > n_pages)
            n_pages = parts[i].values->n_pages;
    }
    for (uint32_t p = 0; p < n_pages; p++) {
        if (!fold_page(out, p, parts, n, &adder))
            return false;
    }
    return true;
}

/* What a gauge is so far, at the place of its id. */
struct meeting {
    double high;
    double low;
    uint32_t n;
};

static void meet(struct meeting *self, double value, enum sb_aggregate aggregate)
{
    if (self->n++ == 0) {
        self->high = value;
        return;
    }
    if (aggregate == SB_AGGREGATE_MAX || aggregate == SB_AGGREGATE_INFO) {
        self->high = value > self->high ? value : self->high;
        return;
    }
    double sum = self->high + value;
    double part = sum - self->high;
    self->low += (self->high - (sum - part)) + (value - part);
    self->high = sum;
}

static double met(const struct meeting *self, enum sb_aggregate aggregate)
{
    double sum = self->high + self->low;
    return aggregate == SB_AGGREGATE_MEAN ? sum / self->n : sum;
}

static bool fold_gauges(struct hub_values *out, const struct hub_part *parts, size_t n, const uint8_t *aggregate)
{
    uint32_t n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t g = 0; parts[i].has_gauges && g < parts[i].values->n_gauges; g++) {
            if (parts[i].values->gauges[g].id >= n_ids)
                n_ids = parts[i].values->gauges[g].id + 1;
        }
    }
    if (n_ids == 0)
        return true;
    struct meeting *meetings = calloc(n_ids, sizeof meetings[0]);
    if (!meetings)
        return false;

    uint32_t n_met = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t g = 0; parts[i].has_gauges && g < parts[i].values->n_gauges; g++) {
            const struct hub_gauge *gauge = &parts[i].values->gauges[g];
            n_met += meetings[gauge->id].n == 0;
            meet(&meetings[gauge->id], gauge->value, aggregate[gauge->family]);
        }
    }

    bool is_ok = hub_values_reserve_gauges(out, n_met);
    for (size_t i = 0; is_ok && i < n; i++) {
        for (uint32_t g = 0; parts[i].has_gauges && g < parts[i].values->n_gauges; g++) {
            struct hub_gauge gauge = parts[i].values->gauges[g];
            struct meeting *meeting = &meetings[gauge.id];
            if (meeting->n == 0)
                continue; /* taken already */
            gauge.value = met(meeting, aggregate[gauge.family]);
            out->gauges[out->n_gauges++] = gauge;
            meeting->n = 0;
        }
    }
    free(meetings);
    hub_values_sort_gauges(out);
    return is_ok;
}

bool hub_values_fold(struct hub_values *out, const struct hub_part *parts, size_t n, const uint8_t *aggregate)
{
    if (fold_cells(out, parts, n) && fold_gauges(out, parts, n, aggregate))
        return true;
    hub_values_release(out);
    return false;
}
