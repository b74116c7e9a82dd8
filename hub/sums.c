/* Adding rows of numbers up (values.h). */
#include <stdlib.h>
#include <string.h>

#include "hub/values.h"

static const double zeros[HUB_PAGE_CELLS];

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

void hub_values_add(struct hub_values *high, struct hub_values *low, const struct hub_values *more)
{
    for (uint32_t p = 0; p < more->n_pages; p++) {
        if (more->pages[p])
            add_page(high->pages[p], low->pages[p], more->pages[p]);
    }
}

/* A page of a sum under way, in double-double. */
struct page {
    double high[HUB_PAGE_CELLS];
    double low[HUB_PAGE_CELLS];
    bool is_any;
};

static void clear_page(struct page *page)
{
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        page->high[i] = -0.0; /* no value */
    memcpy(page->low, zeros, sizeof zeros);
    page->is_any = false;
}

static const double *page_of(const struct hub_values *values, uint32_t p)
{
    return values && p < values->n_pages ? values->pages[p] : NULL;
}

/* Has the page come near that is added some parts later: adding is faster than memory. Always inline: gcc takes a call
 * that does nothing but this for one without effect, and drops it. */
static inline __attribute__((always_inline)) void fetch_ahead(const struct hub_part *parts, size_t n, size_t i,
                                                              uint32_t p)
{
    enum { AHEAD = 6, LINE = 64 / sizeof(double) };
    const bool is_of_this_page = i + AHEAD < n;
    size_t next = is_of_this_page ? i + AHEAD : i + AHEAD - n;
    if (next >= n)
        next = i; /* there are few */
    const double *page = page_of(parts[next].values, is_of_this_page ? p : p + 1);
    for (size_t at = 0; page && at < HUB_PAGE_CELLS; at += LINE)
        __builtin_prefetch(page + at);
}

/* Adds one page of n parts up. */
static void fold_run(struct page *out, uint32_t p, const struct hub_part *parts, size_t n, const struct adder *adder)
{
    const double *waiting = NULL;
    memcpy(out->low, zeros, sizeof zeros);
    out->is_any = false;
    for (size_t i = 0; i < n; i++) {
        const double *page = page_of(parts[i].values, p);
        const double *low = page_of(parts[i].low, p);
        fetch_ahead(parts, n, i, p);
        for (size_t k = 0; low && k < HUB_PAGE_CELLS; k++)
            out->low[k] += low[k];
        if (!page)
            continue;
        if (!out->is_any) {
            out->is_any = true;
            memcpy(out->high, page, sizeof out->high);
        } else if (!waiting) {
            waiting = page;
        } else {
            adder->two(out->high, out->low, waiting, page);
            waiting = NULL;
        }
    }
    if (waiting)
        adder->one(out->high, out->low, waiting);
}

static void add_run(struct page *to, const struct page *run, const struct adder *adder)
{
    adder->one(to->high, to->low, run->high);
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        to->low[i] += run->low[i];
    to->is_any = true;
}

static bool put_page(struct hub_values *out, uint32_t p, const struct page *sum)
{
    if (!sum->is_any)
        return true;
    double *page = hub_values_page(out, p << HUB_PAGE_BITS);
    if (!page)
        return false;
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        page[i] = signbit(sum->high[i]) ? -0.0 : sum->high[i] + sum->low[i];
    return true;
}

/* Where the run of parts that take part in the same sums ends. */
static size_t end_of_run(const struct hub_part *parts, size_t n, size_t from)
{
    size_t to = from + 1;
    while (to < n && parts[to].sums == parts[from].sums)
        to++;
    return to;
}

static bool fold_page(struct hub_sum *sums, size_t n_sums, uint32_t p, const struct hub_part *parts, size_t n,
                      const struct adder *adder)
{
    struct page run;
    struct page pages[HUB_SUMS_MAX];
    if (n_sums == 1) {
        fold_run(&run, p, parts, n, adder);
        return put_page(&sums[0].values, p, &run);
    }
    for (size_t s = 0; s < n_sums; s++)
        clear_page(&pages[s]);
    for (size_t from = 0, to; from < n; from = to) {
        to = end_of_run(parts, n, from);
        fold_run(&run, p, parts + from, to - from, adder);
        for (size_t s = 0; run.is_any && s < n_sums; s++) {
            if (parts[from].sums & (1u << s))
                add_run(&pages[s], &run, adder);
        }
    }
    for (size_t s = 0; s < n_sums; s++) {
        if (!put_page(&sums[s].values, p, &pages[s]))
            return false;
    }
    return true;
}

static bool fold_cells(struct hub_sum *sums, size_t n_sums, const struct hub_part *parts, size_t n)
{
    const struct adder adder = pick_adder();
    uint32_t n_pages = 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].values->n_pages > n_pages)
            n_pages = parts[i].values->n_pages;
    }
    for (size_t s = 0; s < n_sums; s++) {
        if (!hub_values_reserve_pages(&sums[s].values, n_pages))
            return false;
    }
    for (uint32_t p = 0; p < n_pages; p++) {
        if (!fold_page(sums, n_sums, p, parts, n, &adder))
            return false;
    }
    return true;
}

/* What a gauge is so far, at the place of its id. */
struct meeting {
    double high;
    double low;
    double largest;
    uint32_t n;
};

static void meet(struct meeting *self, double value)
{
    if (self->n++ == 0) {
        self->high = self->largest = value;
        return;
    }
    self->largest = value > self->largest ? value : self->largest;
    double sum = self->high + value;
    double part = sum - self->high;
    self->low += (self->high - (sum - part)) + (value - part);
    self->high = sum;
}

static double met(const struct meeting *self, enum sb_aggregate aggregate)
{
    if (aggregate == SB_AGGREGATE_MAX || aggregate == SB_AGGREGATE_INFO)
        return self->largest;
    double sum = self->high + self->low;
    return aggregate == SB_AGGREGATE_MEAN ? sum / self->n : sum;
}

/* Does the part's every gauge go into the sum? */
static bool has_part(const struct hub_part *part, size_t sum)
{
    return part->has_gauges && (part->sums & (1u << sum));
}

static uint32_t count_ids(const struct hub_part *parts, size_t n)
{
    uint32_t n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t g = 0; parts[i].has_gauges && g < parts[i].values->n_gauges; g++) {
            if (parts[i].values->gauges[g].id >= n_ids)
                n_ids = parts[i].values->gauges[g].id + 1;
        }
    }
    return n_ids;
}

/* Takes each gauge that was met once, in their order, and leaves the meetings empty. */
static void take_met(struct hub_sum *out, struct meeting *meetings, const struct hub_values *values,
                     const uint8_t *aggregate)
{
    for (uint32_t g = 0; g < values->n_gauges; g++) {
        struct hub_gauge gauge = values->gauges[g];
        struct meeting *meeting = &meetings[gauge.id];
        if (meeting->n == 0)
            continue; /* taken already */
        gauge.value = met(meeting, aggregate[gauge.family]);
        out->values.gauges[out->values.n_gauges++] = gauge;
        out->maxima[gauge.id] = meeting->largest;
        meeting->n = 0;
    }
}

/* maxima by id become maxima by place. */
static bool order_maxima(struct hub_sum *out)
{
    double *by_id = out->maxima;
    out->maxima = malloc((out->values.n_gauges + 1) * sizeof out->maxima[0]);
    for (uint32_t g = 0; out->maxima && g < out->values.n_gauges; g++)
        out->maxima[g] = by_id[out->values.gauges[g].id];
    free(by_id);
    return out->maxima;
}

static bool fold_gauges_of(struct hub_sum *out, size_t sum, struct meeting *meetings, uint32_t n_ids,
                           const struct hub_part *parts, size_t n, const uint8_t *aggregate)
{
    uint32_t n_met = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t g = 0; has_part(&parts[i], sum) && g < parts[i].values->n_gauges; g++) {
            const struct hub_gauge *gauge = &parts[i].values->gauges[g];
            n_met += meetings[gauge->id].n == 0;
            meet(&meetings[gauge->id], gauge->value);
        }
    }
    if (n_met == 0)
        return true;
    out->maxima = malloc(n_ids * sizeof out->maxima[0]);
    if (!out->maxima || !hub_values_reserve_gauges(&out->values, n_met))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (has_part(&parts[i], sum))
            take_met(out, meetings, parts[i].values, aggregate);
    }
    for (uint32_t id = 0; id < n_ids; id++)
        meetings[id] = (struct meeting){0};
    hub_values_sort_gauges(&out->values);
    return order_maxima(out);
}

static bool fold_gauges(struct hub_sum *sums, size_t n_sums, const struct hub_part *parts, size_t n,
                        const uint8_t *aggregate)
{
    uint32_t n_ids = count_ids(parts, n);
    if (n_ids == 0)
        return true;
    struct meeting *meetings = calloc(n_ids, sizeof meetings[0]);
    bool is_ok = meetings;
    for (size_t s = 0; is_ok && s < n_sums; s++)
        is_ok = fold_gauges_of(&sums[s], s, meetings, n_ids, parts, n, aggregate);
    free(meetings);
    return is_ok;
}

void hub_sum_release(struct hub_sum *self)
{
    hub_values_release(&self->values);
    free(self->maxima);
    self->maxima = NULL;
}

bool hub_sums_fold(struct hub_sum *sums, size_t n_sums, const struct hub_part *parts, size_t n,
                   const uint8_t *aggregate)
{
    if (fold_cells(sums, n_sums, parts, n) && fold_gauges(sums, n_sums, parts, n, aggregate))
        return true;
    for (size_t s = 0; s < n_sums; s++)
        hub_sum_release(&sums[s]);
    return false;
}
