/*
 * How fast some counters of one contribution rise: sampled now and then, over a window that slides. Time comes in.
 *
 * A contribution that began while the hub watched counts from zero, so its rate covers the whole window at once. Of any
 * other the first sample says where it stands, and the second is the first to make a rate.
 */
#ifndef HUB_RATES_H
#define HUB_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum {
    HUB_RATE_SLOTS = 60,      /* samples a window, at most */
    HUB_RATE_SLOT_MS = 1000,  /* time between two, at least */
    HUB_RATE_PAUSE_MS = 5000, /* that may pass between two, however short the window is: an idle agent says so now and
                                 then */
};

struct hub_rates;

/* NULL: out of memory. */
struct hub_rates *hub_rates_new(uint32_t n_counters, int64_t window_ms, bool is_from_zero) SB_CHECK;
void hub_rates_destroy(struct hub_rates **self_p);

/* Is it time for a sample? Only behind a word of the agent: what it counts while it can't be heard comes all at once,
 * and would be a burst if the time that it took were sampled as quiet. */
bool hub_rates_is_due(const struct hub_rates *self, int64_t now_ms, int64_t heard_ms);
/* n_counters values; NAN: there is none. A gap longer than the window starts anew. */
void hub_rates_sample(struct hub_rates *self, int64_t now_ms, const double *values);
/* What is counted from now on comes unseen: the next sample is a first one. Peaks stay. */
void hub_rates_interrupt(struct hub_rates *self);

/* A second, as of the last sample. False: not known, or there is no such counter. */
bool hub_rates_read(const struct hub_rates *self, uint32_t counter, double *out);

/* The highest that it has been over a whole window; 0: never known. */
double hub_rates_peak(const struct hub_rates *self, uint32_t counter);

#endif
