/* The agents that talk to this hub: one session by routing id, and what they send and get over the ROUTER. */
#ifndef HUB_PEERS_H
#define HUB_PEERS_H

#include <zmq.h>

#include "hub/session.h"

enum {
    HUB_BURST_MAX = 256,               /* messages taken in one pass of the loop, */
    HUB_BURST_BYTES = 4 * 1024 * 1024, /* or this many bytes: definitions of a whole node take their time */
    HUB_ROUTING_ID_MAX = 255,
};

struct hub_peers {
    void *router;            /* ZeroMQ socket, borrowed */
    struct hub_store *store; /* borrowed */
    uint8_t hub_id[HUB_ID_BYTES];
    size_t max; /* sessions at once */
    uint64_t last_serial;
    struct hub_table table; /* by routing id */
    struct sb_buf answer;
    zmq_msg_t part; /* reused */
    size_t n_due;
    struct hub_peer *due[HUB_BURST_MAX];  /* that get an ACK at the end of the burst */
    int64_t drained_ms;                   /* when the socket was last found empty: silence is judged as of then */
    int64_t logged_ms[HUB_REFUSAL_COUNT]; /* each reason is logged once a minute */
};

enum sb_rc hub_peers_init(struct hub_peers *self, void *router, struct hub_store *store, size_t max, int64_t now_ms,
                          struct sb_err *err) SB_CHECK;
void hub_peers_release(struct hub_peers *self);

/* Takes what has arrived, at most one burst, and acknowledges it. False: there may be more. */
bool hub_peers_take(struct hub_peers *self, int64_t now_ms);

/* Heartbeats to all; ends the sessions that were silent for the timeout. Every second. */
void hub_peers_beat(struct hub_peers *self, int64_t timeout_ms);

/* How long the longest silence is, 0 without agents. */
int64_t hub_peers_silence_ms(const struct hub_peers *self, int64_t now_ms);

#endif
