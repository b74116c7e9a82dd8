/*
 * The two sockets that engines connect to, and the way of a message from there into the table of publishers.
 *
 * Messages are received into frames that are used again; nothing is allocated for one. Bounded: a pass stops at a
 * limit, so that timers and HTTP still run.
 */
#ifndef AGENT_INGEST_H
#define AGENT_INGEST_H

#include <czmq.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/counters.h"
#include "agent/publishers.h"
#include "common/err.h"

enum {
    AGENT_QUEUE = 64,          /* messages in a socket's queue */
    AGENT_PASS_MESSAGES = 512, /* of one pass over one socket */
    AGENT_PASS_MS = 20,
};

struct agent_ingest;

/* Binds both. NULL with *err naming the endpoint. */
struct agent_ingest *agent_ingest_new(const char *engines, const char *replay, struct agent_counters *counters,
                                      struct sb_err *err) SB_CHECK;
void agent_ingest_destroy(struct agent_ingest **self_p);

/* Where messages go from now on; borrowed. */
void agent_ingest_feed(struct agent_ingest *self, struct agent_publishers *publishers);

/* One pass over both sockets, stats first. True: both are empty now. *n: messages taken. */
bool agent_ingest_drain(struct agent_ingest *self, uint32_t *n);

/* From now on only marks are taken: whatever else comes stays a gap, which the next agent asks for. */
void agent_ingest_close(struct agent_ingest *self);

/* Sends one message to a publisher, if it is connected and its queue has room. */
void agent_ingest_send(struct agent_ingest *self, const char *publisher_id, const void *bytes, size_t n);

zsock_t *agent_ingest_stats(struct agent_ingest *self);
zsock_t *agent_ingest_replay(struct agent_ingest *self);

#endif
