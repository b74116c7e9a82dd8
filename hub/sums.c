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

static const double *page_of(const struct hub_values *values, uint32_t p)
{
    return values && p < values->n_pages ? values->pages[p] : NULL;
}

static void clear_page(struct page *page)
{
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        page->high[i] = -0.0; /* no value */
    memcpy(page->low, zeros, sizeof zeros);
    page->is_any = false;
}

/* What earlier parts came to. */
static void load_page(struct page *page, const struct hub_sum *sum, uint32_t p)
{
    const double *high = page_of(&sum->values, p);
    const double *low = page_of(&sum->low, p);
    page->is_any = high;
    if (high)
        memcpy(page->high, high, sizeof page->high);
    memcpy(page->low, low ? low : zeros, sizeof page->low);
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

/* Adds one page of n parts to what the run is so far. */
static void fold_run(struct page *run, uint32_t p, const struct hub_part *parts, size_t n, const struct adder *adder)
{
    const double *waiting = NULL;
    for (size_t i = 0; i < n; i++) {
        const double *page = page_of(parts[i].values, p);
        const double *low = page_of(parts[i].low, p);
        fetch_ahead(parts, n, i, p);
        for (size_t k = 0; low && k < HUB_PAGE_CELLS; k++)
            run->low[k] += low[k];
        if (!page)
            continue;
        if (!run->is_any) {
            run->is_any = true;
            memcpy(run->high, page, sizeof run->high);
        } else if (!waiting) {
            waiting = page;
        } else {
            adder->two(run->high, run->low, waiting, page);
            waiting = NULL;
        }
    }
    if (waiting)
        adder->one(run->high, run->low, waiting);
}

static void add_run(struct page *to, const struct page *run, const struct adder *adder)
{
    adder->one(to->high, to->low, run->high);
    for (size_t i = 0; i < HUB_PAGE_CELLS; i++)
        to->low[i] += run->low[i];
    to->is_any = true;
}

static bool put_page(struct hub_sum *out, uint32_t p, const struct page *sum, bool is_last)
{
    if (!sum->is_any)
        return true;
    double *page = hub_values_page(&out->values, p << HUB_PAGE_BITS);
    double *low = is_last ? NULL : hub_values_page(&out->low, p << HUB_PAGE_BITS);
    if (!page || (!low && !is_last))
        return false;
    if (!is_last) {
        memcpy(page, sum->high, sizeof sum->high);
        memcpy(low, sum->low, sizeof sum->low);
        return true;
    }
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

static bool fold_page(const struct hub_fold *fold, struct hub_sum *sums, size_t n_sums, uint32_t p,
                      const struct hub_part *parts, size_t n, const struct adder *adder)
{
    struct page run;
    struct page pages[HUB_SUMS_MAX];
    if (n_sums == 1) {
        load_page(&run, &sums[0], p);
        fold_run(&run, p, parts, n, adder);
        return put_page(&sums[0], p, &run, fold->is_last);
    }
    for (size_t s = 0; s < n_sums; s++) {
        load_page(&pages[s], &sums[s], p);
        if (!pages[s].is_any)
            clear_page(&pages[s]);
    }
    for (size_t from = 0, to; from < n; from = to) {
        to = end_of_run(parts, n, from);
        run.is_any = false;
        memcpy(run.low, zeros, sizeof zeros);
        fold_run(&run, p, parts + from, to - from, adder);
        for (size_t s = 0; run.is_any && s < n_sums; s++) {
            if (parts[from].sums & (1u << s))
                add_run(&pages[s], &run, adder);
        }
    }
    for (size_t s = 0; s < n_sums; s++) {
        if (!put_page(&sums[s], p, &pages[s], fold->is_last))
            return false;
    }
    return true;
}

static bool fold_cells(const struct hub_fold *fold, struct hub_sum *sums, size_t n_sums, const struct hub_part *parts,
                       size_t n)
{
    const struct adder adder = pick_adder();
    uint32_t n_pages = n_sums > 0 ? sums[0].values.n_pages : 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].values->n_pages > n_pages)
            n_pages = parts[i].values->n_pages;
    }
    for (size_t s = 0; s < n_sums; s++) {
        if (!hub_values_reserve_pages(&sums[s].values, n_pages))
            return false;
    }
    for (uint32_t p = 0; p < n_pages; p++) {
        if (!fold_page(fold, sums, n_sums, p, parts, n, &adder))
            return false;
    }
    for (size_t s = 0; fold->is_last && s < n_sums; s++)
        hub_values_release(&sums[s].low);
    return true;
}

/* What a gauge is so far. */
struct hub_meeting {
    uint32_t family;
    uint32_t id;
    uint32_t n;
    double high;
    double low;
    double largest;
};

static void meet(struct hub_meeting *self, double value)
{
    self->n++;
    self->largest = value > self->largest ? value : self->largest;
    double sum = self->high + value;
    double part = sum - self->high;
    self->low += (self->high - (sum - part)) + (value - part);
    self->high = sum;
}

static double met(const struct hub_meeting *self, enum sb_aggregate aggregate)
{
    if (aggregate == SB_AGGREGATE_MAX || aggregate == SB_AGGREGATE_INFO)
        return self->largest;
    double sum = self->high + self->low;
    return aggregate == SB_AGGREGATE_MEAN ? sum / self->n : sum;
}

/* Do the part's gauges go into the sum? */
static bool has_part(const struct hub_part *part, size_t sum)
{
    return part->has_gauges && (part->sums & (1u << sum));
}

void hub_gauge_places_release(struct hub_gauge_places *self)
{
    free(self->at);
    *self = (struct hub_gauge_places){0};
}

static bool reserve_places(struct hub_gauge_places *self, uint32_t id)
{
    if (id < self->n)
        return true;
    uint32_t n = id < 2 * self->n ? 2 * self->n : id + 1;
    uint32_t *at = realloc(self->at, n * sizeof at[0]);
    if (!at)
        return false;
    memset(at + self->n, 0, (n - self->n) * sizeof at[0]);
    self->at = at;
    self->n = n;
    return true;
}

/* Room for one more, or at once for as many as a part has that may come first. */
static bool reserve_meeting(struct hub_sum *sum, uint32_t of_part)
{
    if (sum->n_met < sum->cap_met)
        return true;
    uint32_t cap = sum->cap_met ? sum->cap_met * 2 : of_part;
    struct hub_meeting *grown = realloc(sum->met, cap * sizeof grown[0]);
    if (!grown)
        return false;
    sum->met = grown;
    sum->cap_met = cap;
    return true;
}

static bool meet_part(struct hub_sum *sum, struct hub_gauge_places *places, const struct hub_values *values)
{
    for (uint32_t g = 0; g < values->n_gauges; g++) {
        const struct hub_gauge *gauge = &values->gauges[g];
        if (!reserve_places(places, gauge->id))
            return false;
        uint32_t place = places->at[gauge->id];
        if (place > 0) {
            meet(&sum->met[place - 1], gauge->value);
            continue;
        }
        if (!reserve_meeting(sum, values->n_gauges))
            return false;
        sum->met[sum->n_met++] = (struct hub_meeting){
            .family = gauge->family, .id = gauge->id, .n = 1, .high = gauge->value, .largest = gauge->value};
        places->at[gauge->id] = sum->n_met;
    }
    return true;
}

static int compare_meetings(const void *left, const void *right)
{
    const struct hub_meeting *a = left;
    const struct hub_meeting *b = right;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* In the order of hub_values.gauges; mostly they are, as those of the first part were. */
static void sort_meetings(struct hub_sum *sum)
{
    for (uint32_t i = 1; i < sum->n_met; i++) {
        if (compare_meetings(&sum->met[i - 1], &sum->met[i]) > 0) {
            qsort(sum->met, sum->n_met, sizeof sum->met[0], compare_meetings);
            return;
        }
    }
}

/* All parts have been met: this is what came of it. */
static bool take_met(struct hub_sum *sum, const uint8_t *aggregates)
{
    if (sum->n_met == 0)
        return true;
    sum->maxima = malloc(sum->n_met * sizeof sum->maxima[0]);
    if (!sum->maxima || !hub_values_reserve_gauges(&sum->values, sum->n_met))
        return false;
    sort_meetings(sum);
    for (uint32_t i = 0; i < sum->n_met; i++) {
        const struct hub_meeting *each = &sum->met[i];
        sum->maxima[i] = each->largest;
        sum->values.gauges[i] =
            (struct hub_gauge){.family = each->family, .id = each->id, .value = met(each, aggregates[each->family])};
    }
    sum->values.n_gauges = sum->n_met;
    free(sum->met);
    sum->met = NULL;
    sum->n_met = sum->cap_met = 0;
    return true;
}

static bool fold_gauges_of(const struct hub_fold *fold, struct hub_sum *sum, size_t number,
                           const struct hub_part *parts, size_t n)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < sum->n_met; i++)
        fold->places->at[sum->met[i].id] = i + 1;
    for (size_t i = 0; is_ok && i < n; i++) {
        if (has_part(&parts[i], number))
            is_ok = meet_part(sum, fold->places, parts[i].values);
    }
    for (uint32_t i = 0; i < sum->n_met; i++)
        fold->places->at[sum->met[i].id] = 0;
    return is_ok && (!fold->is_last || take_met(sum, fold->aggregates));
}

void hub_sum_release(struct hub_sum *self)
{
    hub_values_release(&self->values);
    hub_values_release(&self->low);
    free(self->maxima);
    free(self->met);
    *self = (struct hub_sum){0};
}

size_t hub_sum_bytes(const struct hub_sum *self)
{
    return sizeof *self + hub_values_bytes(&self->values) + hub_values_bytes(&self->low) +
           self->cap_met * sizeof self->met[0] + (self->maxima ? self->values.n_gauges * sizeof self->maxima[0] : 0);
}

bool hub_sums_add(const struct hub_fold *fold, struct hub_sum *sums, size_t n_sums, const struct hub_part *parts,
                  size_t n)
{
    if (!fold_cells(fold, sums, n_sums, parts, n))
        return false;
    for (size_t s = 0; s < n_sums; s++) {
        if (!fold_gauges_of(fold, &sums[s], s, parts, n))
            return false;
    }
    return true;
}
