/*
 * What a commit holds, as bytes: lineage, generation, all totals, what is applied of each publisher, and those of the
 * agent's own counters that must not start again.
 */
#ifndef AGENT_STATE_H
#define AGENT_STATE_H

#include <stdint.h>

#include "agent/counters.h"
#include "agent/ledger.h"
#include "agent/publishers.h"
#include "common/buf.h"
#include "common/err.h"

enum { AGENT_STATE_VERSION = 1, AGENT_STATE_MAX = 1 << 30 };

struct agent_state {
    uint8_t lineage[AGENT_LINEAGE_LEN]; /* the random id of this state, for as long as it lives */
    uint64_t generation;                /* of the last commit, from 1; 0: none yet */
};

/* Appends; overflow is the buffer's to remember. The ledger's staged rows are what is saved. */
void agent_state_save(const struct agent_state *self, struct agent_ledger *ledger,
                      const struct agent_publishers *publishers, const struct agent_counters *counters,
                      struct sb_buf *out);

/*
 * Reads it back; ledger and publishers must be new. On failure they are half filled: throw them away.
 * Errors: SB_FORMAT (with where; another version is one), SB_FULL, SB_NOMEM.
 */
enum sb_rc agent_state_load(struct agent_state *self, struct agent_ledger *ledger, struct agent_publishers *publishers,
                            struct agent_counters *counters, const void *bytes, size_t n, int64_t now_ms,
                            struct sb_err *err) SB_CHECK;

#endif
