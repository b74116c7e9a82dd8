/*
 * One hub, as this agent feeds it: what it has been told in this session and what is to be told next (hub-wire.md).
 *
 * Pure: knows the ledger and the bytes of messages; sockets and clocks are hublink.c's. A session starts with HELLO;
 * after WELCOME everything is defined and sent anew. One frame a contribution is under way at a time, and a frame is
 * rendered only when it can go, so a slow hub costs no memory: what is kept is one row a contribution, the values last
 * sent.
 */
#ifndef AGENT_UPLINK_H
#define AGENT_UPLINK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/counters.h"
#include "agent/ledger.h"
#include "common/buf.h"
#include "common/err.h"

enum {
    AGENT_HUB_PROTOCOL = 1,
    AGENT_HUB_MESSAGE_MAX = 16 << 20,
    AGENT_DEFINE_PIECE = 1 << 20, /* a DEFINE goes when it is longer */
    AGENT_WELCOME_WAIT_MS = 5000,
    AGENT_HUB_BEAT_MS = 2000, /* a session that says nothing says so that often */
};

struct agent_uplink_cfg {
    const struct agent_ledger *ledger;
    struct agent_counters *counters;
    const char *node;
    const uint8_t *lineage;     /* AGENT_LINEAGE_LEN bytes, the owner's */
    uint64_t loaded_generation; /* what the state held when this process started */
    int64_t hub_timeout_ms;
    /* Hands one message to the socket without waiting. False: it would have to wait; it is offered again. */
    bool (*send)(void *arg, const void *bytes, size_t n);
    void *arg;
};

enum agent_uplink_phase { AGENT_UPLINK_IDLE, AGENT_UPLINK_GREETING, AGENT_UPLINK_OPEN };

/* What the commit cycle allows to leave. */
struct agent_uplink_release {
    bool is_released;    /* the staged rows may leave */
    uint64_t generation; /* the last that was released */
};

/* What the hub knows of one contribution. */
struct agent_uplink_row {
    uint64_t epoch; /* whose row this is; 0: nobody's */
    uint32_t id;
    bool is_live; /* as last sent */
    bool is_end_sent;
    bool is_sent;        /* a frame of it was */
    uint64_t under_way;  /* number of the frame that waits for its ACK, or 0 */
    uint64_t generation; /* whose cells were last looked through */
    uint64_t shown_version;
    uint32_t n_series; /* of the contribution's, those whose cells were sent */
    uint32_t cap;
    double *sent; /* as the contribution's rows */
};

struct agent_uplink {
    struct agent_uplink_cfg cfg;
    enum agent_uplink_phase phase;
    uint64_t top_generation; /* the highest that this hub can have from us */
    int64_t started_ms, heard_ms, sent_ms;

    uint32_t n_families, n_series; /* defined */
    uint32_t next_id;
    uint32_t n_rows, cap_rows;
    struct agent_uplink_row *rows; /* by contribution index */
    uint32_t cursor;               /* the contribution whose turn it is */

    uint64_t number; /* of the last frame sent */
    uint32_t first_frame, n_frames;
    struct agent_uplink_frame {
        uint64_t number;
        uint32_t row;
    } * frames; /* under way, in order: a ring of AGENT_CONTRIBUTIONS_MAX */

    uint32_t n_forgets, cap_forgets;
    struct agent_uplink_forget {
        uint32_t id;
        uint64_t after; /* may be forgotten once this generation is released */
    } * forgets;

    bool is_blocked; /* `out` waits to be sent */
    struct sb_buf out;
    struct sb_buf body; /* of a DEFINE in the making */
    uint32_t cap_cells, n_cells;
    uint32_t *cell_ids; /* of a frame in the making */
    double *cell_values;
    struct sb_err err; /* why the session is over */
};

/* SB_NOMEM leaves nothing to release. */
enum sb_rc agent_uplink_init(struct agent_uplink *self, const struct agent_uplink_cfg *cfg) SB_CHECK;
void agent_uplink_destroy(struct agent_uplink *self);

/*
 * Starts a session: all that was said before is forgotten, HELLO goes out. It offers the highest generation that this
 * hub can have from us, not simply the last commit's: else a hub that was away while this process went on from a state
 * that had been rolled back could no longer tell.
 */
void agent_uplink_start(struct agent_uplink *self, int64_t now_ms);
/* The session is over. */
void agent_uplink_stop(struct agent_uplink *self);

enum agent_uplink_event {
    AGENT_UPLINK_FINE,
    AGENT_UPLINK_OVER,        /* err says why: start anew after a while */
    AGENT_UPLINK_ROLLED_BACK, /* the hub knows of later commits: a new lineage is due, then a new session */
    AGENT_UPLINK_CLOSED,      /* the hub made final what it has of this lineage: the same, with what no hub has */
};

/* Takes one message of the hub. */
enum agent_uplink_event agent_uplink_receive(struct agent_uplink *self, const void *bytes, size_t n, int64_t now_ms);

/* Sends what is due and can go; judges the hub's silence. */
enum agent_uplink_event agent_uplink_pump(struct agent_uplink *self, const struct agent_uplink_release *release,
                                          int64_t now_ms);

/* Has the hub acknowledged the final values of this contribution (of all of them)? */
bool agent_uplink_has(const struct agent_uplink *self, const struct agent_contribution *contribution,
                      const struct agent_uplink_release *release);
bool agent_uplink_is_settled(const struct agent_uplink *self, const struct agent_uplink_release *release);

/* The contribution is about to leave the ledger: FORGET goes out once a commit without it, `after`, is released. */
void agent_uplink_forget(struct agent_uplink *self, const struct agent_contribution *contribution, uint64_t after);

/* uplink_messages.c: rendering. Each fills self->out; false: it doesn't fit or memory ran out. */
bool agent_uplink_render_hello(struct agent_uplink *self);
/* The next piece of what is not defined yet; *has_piece false: there is none. */
bool agent_uplink_render_define(struct agent_uplink *self, bool *has_piece);
/* *is_needed false: nothing of it has changed. Notes in the contribution what is told. */
bool agent_uplink_render_frame(struct agent_uplink *self, struct agent_uplink_row *row,
                               struct agent_contribution *contribution, const struct agent_uplink_release *release,
                               int64_t now_ms, bool *is_needed);
bool agent_uplink_render_ids(struct agent_uplink *self, const char *type, const uint32_t *ids, uint32_t n);

#endif
