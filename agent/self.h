/* What the agent says about itself: statsbus_agent_* families at GET /metrics. The list is agent_metrics.def. */
#ifndef AGENT_SELF_H
#define AGENT_SELF_H

#include "agent/commit.h"
#include "agent/counters.h"
#include "agent/hublink.h"
#include "common/expo.h"
#include "common/http.h"

struct agent_self {
    struct agent_counters counters;
    double commit_seconds;
    /* Borrowed; NULL or 0 while they are not there yet. */
    struct agent_ledger *ledger;
    struct agent_publishers *publishers;
    const struct agent_commit *commit;
    const struct agent_hublink *hubs;
    size_t n_hubs;
    const struct sb_http *http;
};

/* Appends all families in the writer's format, the end mark too. */
void agent_self_render(const struct agent_self *self, const struct sb_expo *expo, int64_t now_ms);

#endif
