/* What the agent counts about itself. The list and its texts are in agent_metrics.def. */
#ifndef AGENT_COUNTERS_H
#define AGENT_COUNTERS_H

#include <stdint.h>

#include "agent/envelope.h"

struct agent_counters {
#define COUNTER(name, help) uint64_t name;
#define GAUGE(name, help)
#include "agent/agent_metrics.def"
#undef COUNTER
#undef GAUGE
    uint64_t refusals[AGENT_REFUSAL_COUNT]; /* messages of engines, by reason */
};

#endif
