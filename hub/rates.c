#include "hub/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct hub_rates {
    uint32_t n_counters;
    int64_t window_ms;
    int64_t slot_ms;
    bool is_from_zero;
    uint32_t first; /* a ring of times, and of rows of values */
    uint32_t n;
    uint32_t cap;
    int64_t *at_ms;
    double *values;
    double *rates; /* NAN: not known */
    double *peaks;
};

struct hub_rates *hub_rates_new(uint32_t n_counters, int64_t window_ms, bool is_from_zero)
{
    const int64_t spread_ms = window_ms / HUB_RATE_SLOTS;
    const int64_t slot_ms = spread_ms > HUB_RATE_SLOT_MS ? spread_ms : HUB_RATE_SLOT_MS;
    /* One at either end of the window, and some for those that come a little early. */
    const uint32_t cap = (uint32_t) (window_ms / slot_ms) + 8;
    struct hub_rates *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (struct hub_rates){.n_counters = n_counters,
                               .window_ms = window_ms,
                               .slot_ms = slot_ms,
                               .is_from_zero = is_from_zero,
                               .cap = cap,
                               .at_ms = calloc(cap, sizeof self->at_ms[0]),
                               .values = calloc((size_t) cap * n_counters, sizeof self->values[0]),
                               .rates = calloc(n_counters, sizeof self->rates[0]),
                               .peaks = calloc(n_counters, sizeof self->peaks[0])};
    if (!self->at_ms || !self->values || !self->rates || !self->peaks)
        hub_rates_destroy(&self);
    for (uint32_t i = 0; self && i < n_counters; i++)
        self->rates[i] = NAN;
    return self;
}

void hub_rates_destroy(struct hub_rates **self_p)
{
    struct hub_rates *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    free(self->at_ms);
    free(self->values);
    free(self->rates);
    free(self->peaks);
    free(self);
}

static uint32_t place(const struct hub_rates *self, uint32_t i)
{
    return (self->first + i) % self->cap;
}

static int64_t last_ms(const struct hub_rates *self)
{
    return self->at_ms[place(self, self->n - 1)];
}

bool hub_rates_is_due(const struct hub_rates *self, int64_t now_ms, int64_t heard_ms)
{
    return self->n == 0 || (heard_ms > last_ms(self) && now_ms - last_ms(self) >= self->slot_ms - self->slot_ms / 10);
}

void hub_rates_interrupt(struct hub_rates *self)
{
    self->n = 0;
    self->is_from_zero = false;
    for (uint32_t i = 0; i < self->n_counters; i++)
        self->rates[i] = NAN;
}

/* Drops what is older than the last sample that is at least a window old. */
static void drop_old(struct hub_rates *self, int64_t now_ms)
{
    while (self->n > 1 && (self->n == self->cap || now_ms - self->at_ms[place(self, 1)] >= self->window_ms)) {
        self->first = place(self, 1);
        self->n--;
    }
}

/* From the oldest sample that is kept: one that is a window old, or else the first of all. */
static double rate_of(const struct hub_rates *self, uint32_t counter)
{
    const double now = self->values[(size_t) place(self, self->n - 1) * self->n_counters + counter];
    const double then = self->values[(size_t) self->first * self->n_counters + counter];
    const int64_t span_ms = last_ms(self) - self->at_ms[self->first];
    if (isnan(now))
        return NAN;
    if (span_ms < self->window_ms && self->is_from_zero)
        return now * 1000 / (double) self->window_ms;
    return span_ms > 0 ? (now - (isnan(then) ? 0 : then)) * 1000 / (double) span_ms : NAN;
}

void hub_rates_sample(struct hub_rates *self, int64_t now_ms, const double *values)
{
    const int64_t gap_ms = self->window_ms + self->slot_ms;
    if (self->n > 0 && now_ms - last_ms(self) > (gap_ms > HUB_RATE_PAUSE_MS ? gap_ms : HUB_RATE_PAUSE_MS))
        hub_rates_interrupt(self);
    drop_old(self, now_ms);
    const uint32_t at = place(self, self->n++);
    self->at_ms[at] = now_ms;
    memcpy(&self->values[(size_t) at * self->n_counters], values, self->n_counters * sizeof values[0]);
    const bool is_whole = self->is_from_zero || now_ms - self->at_ms[self->first] >= self->window_ms;
    for (uint32_t i = 0; i < self->n_counters; i++) {
        self->rates[i] = rate_of(self, i);
        if (is_whole)
            self->peaks[i] = fmax(self->peaks[i], self->rates[i]); /* of NAN, the other */
    }
}

bool hub_rates_read(const struct hub_rates *self, uint32_t counter, double *out)
{
    if (counter >= self->n_counters || isnan(self->rates[counter]))
        return false;
    *out = self->rates[counter];
    return true;
}

double hub_rates_peak(const struct hub_rates *self, uint32_t counter)
{
    return counter < self->n_counters ? self->peaks[counter] : 0;
}
