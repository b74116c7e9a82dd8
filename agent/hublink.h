/*
 * The socket of one uplink: one DEALER a session, no routing id, no reconnecting by itself, linger 0.
 *
 * A session that ends for any reason is followed by another one on a new socket, after a wait that doubles from 0.2 s
 * to 5 s. Never blocks; everything happens in agent_hublink_tick.
 */
#ifndef AGENT_HUBLINK_H
#define AGENT_HUBLINK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/uplink.h"

enum {
    AGENT_HUBS_MAX = 8,
    AGENT_HUB_QUEUE = 8, /* messages */
    AGENT_HUB_WAIT_MIN_MS = 200,
    AGENT_HUB_WAIT_MAX_MS = 5000,
};

struct agent_hublink {
    struct agent_uplink uplink;
    char *endpoint; /* owned */
    void *socket;   /* libzmq's; NULL: between sessions */
    void *monitor;  /* tells of the connection's beginning and end */
    bool is_connected;
    bool has_more; /* frames wait since the socket's queue is full, and it took some in the last tick */
    int64_t wait_ms;
    int64_t next_try_ms;
    int64_t down_ms; /* since when there is no open session */
    int64_t logged_ms;
    uint64_t random; /* for the jitter */
};

/* cfg->send and cfg->arg are set here. endpoint is copied. self must not move afterwards. Errors: SB_NOMEM. */
enum sb_rc agent_hublink_init(struct agent_hublink *self, const struct agent_uplink_cfg *cfg, const char *endpoint,
                              uint64_t seed, int64_t now_ms, struct sb_err *err) SB_CHECK;
void agent_hublink_destroy(struct agent_hublink *self);

/* Connects, receives, sends. With has_more it is worth while to come back soon: a queue's length of frames goes each
 * time. AGENT_UPLINK_ROLLED_BACK, AGENT_UPLINK_CLOSED: a new lineage is due; the
 * session is over then. */
enum agent_uplink_event agent_hublink_tick(struct agent_hublink *self, const struct agent_uplink_release *release,
                                           int64_t now_ms);

/* Ends the session, if there is one; the next starts at once. For a change of lineage. */
void agent_hublink_restart(struct agent_hublink *self, int64_t now_ms);

bool agent_hublink_is_open(const struct agent_hublink *self);

#endif
