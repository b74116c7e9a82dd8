/*
 * The table of publishers: what each has said and what of it has been counted.
 *
 * Every record is counted exactly once: numbers that are applied are kept as ranges, duplicates are judged one by one,
 * holes are asked for, and what nobody can supply any more is counted as lost (docs/architecture.md, "Exactly once").
 * Pure: time comes in as a parameter, messages to publishers leave through a callback.
 */
#ifndef AGENT_PUBLISHERS_H
#define AGENT_PUBLISHERS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/counters.h"
#include "agent/envelope.h"
#include "agent/ledger.h"
#include "common/buf.h"
#include "common/catalog.h"
#include "common/err.h"

enum {
    AGENT_PUBLISHERS_MAX = 1024,
    AGENT_FOREIGN_LINEAGES_MAX = 64, /* that are remembered, so that each counts as one loss of state */
    AGENT_HELLO_RETRY_MS = 1000,
    AGENT_ENDED_LINGER_MS = 60 * 1000, /* a publisher that ended is kept that long for late records */
    AGENT_SWEEPS_POSTPONED_MAX = 10,
    /* Bytes of records without source, times sources: what one message may cost. About 0.1 s of the loop. */
    AGENT_FAN_OUT_MAX = 16 << 20,
    AGENT_EVICT_SILENT_MS = 60 * 1000, /* in a full table, one silent for longer makes room */
};

struct agent_publishers_cfg {
    const struct sb_catalog *catalog;
    struct agent_ledger *ledger;
    struct agent_counters *counters;
    const char *node;       /* label of sources that name none */
    const uint8_t *lineage; /* AGENT_LINEAGE_LEN bytes; the owner may change them (agent_publishers_new_lineage) */
    int64_t source_timeout_ms;
    int64_t forget_after_ms; /* silence after which a source counts as ended, and a publisher is dropped */
    void (*send)(void *arg, const char *publisher_id, const void *bytes, size_t n); /* drops what can't be sent */
    void (*rolled_back)(void *arg); /* a publisher knows of a commit of this lineage that the state doesn't hold */
    void *arg;
};

struct agent_publishers;

/* Everything in cfg is borrowed. NULL: out of memory. */
struct agent_publishers *agent_publishers_new(const struct agent_publishers_cfg *cfg) SB_CHECK;
void agent_publishers_destroy(struct agent_publishers **self_p);
/* Other timeouts than cfg had, from now on. */
void agent_publishers_set_timeouts(struct agent_publishers *self, int64_t source_timeout_ms, int64_t forget_after_ms);

/* Takes one message. What is refused here (bad_hello, bad_beat, ...) the caller counts, as it does for the envelope. */
enum agent_refusal agent_publishers_take(struct agent_publishers *self, const struct agent_envelope *message,
                                         enum agent_socket socket, int64_t now_ms) SB_CHECK;
/* Why the last hello was refused. */
const char *agent_publishers_last_error(const struct agent_publishers *self);
/* The last hello that was a publisher's first one here, told once; false: there is none. For a log line. */
struct agent_introduction {
    char publisher[AGENT_PUBLISHER_ID_LEN + 1];
    uint64_t pid;
    char engine[AGENT_ENGINE_TEXT_MAX]; /* its name */
    char version[AGENT_ENGINE_TEXT_MAX];
    size_t n_sources;
};
bool agent_publishers_take_introduction(struct agent_publishers *self, struct agent_introduction *out);
/* What the last hello's plan had to leave out, told once; NULL: nothing. For a log line. */
const char *agent_publishers_take_warning(struct agent_publishers *self);

/* A message from this publisher on the replay socket was refused: it may have been part of an answer. */
void agent_publishers_refused(struct agent_publishers *self, const char *publisher_id);

/* Asks for what is missing. Call some times a second. */
void agent_publishers_tick(struct agent_publishers *self, int64_t now_ms);

/*
 * Judges liveness: sources silent for their timeout lose their gauges, those that will not come back end, publishers
 * that are gone leave the table. Call about once a second. What is still in a socket may be a sign of life: unless both
 * are drained nobody is judged, but for AGENT_SWEEPS_POSTPONED_MAX times in a row at most. Time in which this process
 * itself stood still (no call for seconds) is not held against anybody.
 */
void agent_publishers_sweep(struct agent_publishers *self, bool is_drained, int64_t now_ms);

/* Rises whenever something happened that a commit should hold. */
uint64_t agent_publishers_changes(const struct agent_publishers *self);

/* After a commit was written: tells each publisher what is in it. */
void agent_publishers_send_applied(struct agent_publishers *self, int64_t now_ms);
/* Have all publishers that live echoed that? */
bool agent_publishers_all_marked(const struct agent_publishers *self);
/* Stops waiting for those that have not; they are not waited for again until they answer. */
void agent_publishers_give_up_marks(struct agent_publishers *self);

/* The lineage changed: everything is to be marked anew. `old` was ours until now: its marks are no new loss. */
void agent_publishers_new_lineage(struct agent_publishers *self, const uint8_t old[AGENT_LINEAGE_LEN]);

/* Lets go of a contribution that has ended. False: a source that has not ended still counts there. */
bool agent_publishers_release(struct agent_publishers *self, const struct agent_contribution *contribution) SB_CHECK;

/* Numbers for the agent's own metrics. */
void agent_publishers_count(const struct agent_publishers *self, int64_t now_ms, uint32_t *all, uint32_t *live,
                            uint64_t *missing);

/* One msgpack value for the state file, and back into a new table. Load errors: SB_FORMAT, SB_FULL, SB_NOMEM. */
void agent_publishers_save(const struct agent_publishers *self, struct sb_buf *out);
enum sb_rc agent_publishers_load(struct agent_publishers *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err)
    SB_CHECK;

#endif
