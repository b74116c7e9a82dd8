/*
 * One session of an agent: what its messages mean (schemas/hub-wire.md), without any socket.
 *
 * A message is checked whole before any of it is applied; one that is refused changes nothing, and ends the session.
 */
#ifndef HUB_SESSION_H
#define HUB_SESSION_H

#include "common/buf.h"
#include "common/ranges.h"
#include "hub/store.h"

enum {
    HUB_WIRE_VERSION = 1,
    HUB_ID_BYTES = 16,
    HUB_MESSAGE_MAX = 16 * 1024 * 1024,
    HUB_SESSION_FAMILIES_MAX = 65536,
    HUB_SESSION_CONTRIBUTIONS_MAX = 65536,
    HUB_SESSION_CELLS_MAX = 1048576,
};

struct hub_session {
    uint64_t serial;             /* never 0, never used again */
    struct hub_store *store;     /* borrowed */
    struct hub_lineage *lineage; /* NULL before HELLO; the store's */
    int64_t heard_ms;            /* last message */
    bool is_ack_due;             /* frames were applied since the last ACK was packed */
    struct sb_ranges applied;    /* numbers of frames */
    /* What the session's ids mean. A cell's entry: 0 undefined; a cell of the index; or HUB_GAUGE_MARK and a gauge. */
    uint32_t *cells;
    size_t n_cells;
    struct hub_family_slot *families;
    size_t n_families;
    struct hub_contribution_slot *contributions;
    size_t n_contributions;
};

#define HUB_GAUGE_MARK 0x80000000u

void hub_session_init(struct hub_session *self, struct hub_store *store, uint64_t serial, int64_t now_ms);
void hub_session_release(struct hub_session *self);

/*
 * Takes one message. Anything but HUB_OK: it was refused, changed nothing, and the session must end (the caller counts
 * the reason and tells the agent). An answer, if there is one (WELCOME), is appended to `answer`.
 */
enum hub_refusal hub_session_take(struct hub_session *self, const uint8_t hub_id[HUB_ID_BYTES], const void *bytes,
                                  size_t n, int64_t now_ms, struct sb_buf *answer) SB_CHECK;

/* Appends an ACK of everything applied so far, which is the heartbeat as well. */
void hub_session_pack_ack(struct hub_session *self, struct sb_buf *out);
void hub_pack_refused(struct sb_buf *out, enum hub_refusal refusal);

#endif
