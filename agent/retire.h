/* Contributions that ended long ago leave: first the ledger, then, once that is committed, the hubs (FORGET). */
#ifndef AGENT_RETIRE_H
#define AGENT_RETIRE_H

#include "agent/commit.h"
#include "agent/hublink.h"

struct agent_retire_cfg {
    struct agent_ledger *ledger;
    struct agent_publishers *publishers;
    struct agent_commit *commit;
    struct agent_counters *counters;
    struct agent_hublink *hubs;
    size_t n_hubs;
    int64_t forget_after_ms;
};

/*
 * Forgets what has been ended for forget_after_ms, if every hub has acknowledged its final values: each contribution is
 * judged by itself, since on a busy node there is always one that counts. Does nothing while no commit is released;
 * best called just after the hubs were fed. A hub without session for as long is given up, and counted. The order
 * matters: a contribution that a restart found in the state file after a hub had forgotten it would be counted there
 * twice.
 */
void agent_retire(const struct agent_retire_cfg *cfg, int64_t now_ms);

#endif
