/* What the hub counts about itself. */
#ifndef HUB_COUNTERS_H
#define HUB_COUNTERS_H

#include <stdint.h>

#include "common/text.h"

enum hub_refusal {
    HUB_OK,
#define REFUSAL(name, text) HUB_REFUSAL_##name,
#include "hub/refusals.def"
#undef REFUSAL
    HUB_REFUSAL_COUNT
};

const char *hub_refusal_name(enum hub_refusal refusal); /* "unknown_id" */
const char *hub_refusal_text(enum hub_refusal refusal); /* for people */

enum hub_limit {
#define LIMIT(name, text) HUB_LIMIT_##name,
#include "hub/limits.def"
#undef LIMIT
    HUB_LIMIT_COUNT
};

const char *hub_limit_name(enum hub_limit limit);

struct hub_counters {
    uint64_t messages; /* from agents, refused ones too */
    uint64_t bytes;
    uint64_t frames;           /* applied, heartbeats not among them */
    uint64_t late_frames;      /* came again or behind a later one: their gauges were not taken */
    uint64_t dropped_frames;   /* of contributions over the limit */
    uint64_t sessions;         /* begun */
    uint64_t skipped_messages; /* of a type this release doesn't know */
    uint64_t skipped_elements; /* trailing ones */
    uint64_t refused[HUB_REFUSAL_COUNT];
    uint64_t limits[HUB_LIMIT_COUNT];
    struct sb_text_faults label_faults;
};

#endif
