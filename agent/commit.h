/*
 * The commit cycle: stage, write, tell publishers, wait for their marks, release.
 *
 *   idle --(due, something changed)--> written --(all marks echoed, or 1 s)--> released = idle
 *
 * Counters may leave for the hubs only while the staged rows are released: then they are in the state file, and the
 * publishers know that they are counted. A failed write is counted and tried again when the next commit is due; what is
 * staged is not released meanwhile. Pure but for the callback that writes.
 */
#ifndef AGENT_COMMIT_H
#define AGENT_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/state.h"

enum {
    AGENT_MARK_WAIT_MS = 1000,
    AGENT_RELEASED_MIN_MS = 100, /* the hubs have at least that long, or one period, to be sent what was released */
};

struct agent_commit_cfg {
    struct agent_ledger *ledger;
    struct agent_publishers *publishers;
    struct agent_counters *counters;
    int64_t period_ms;
    enum sb_rc (*write)(void *arg, const void *bytes, size_t n, struct sb_err *err);
    void *arg;
};

struct agent_commit {
    struct agent_commit_cfg cfg;
    struct agent_state state;
    struct sb_buf buf;
    uint64_t released; /* the last generation that was; 0: none yet */
    bool is_released;  /* the staged rows are those of `released` */
    bool is_waiting;   /* written, marks not all echoed */
    bool is_wanted;    /* something changed that the publishers don't know of */
    uint64_t changes;  /* of the publishers, in the last commit */
    int64_t written_ms;
    int64_t due_ms;
    size_t bytes;      /* of the last one */
    struct sb_err err; /* why the last one failed; SB_OK: it didn't */
};

/* state: as loaded, or a new lineage with generation 0. Borrows everything in cfg. */
void agent_commit_init(struct agent_commit *self, const struct agent_commit_cfg *cfg, const struct agent_state *state);
void agent_commit_release(struct agent_commit *self);

/* Does what is due. True: a commit was tried (written, or self->err says why not). */
bool agent_commit_tick(struct agent_commit *self, int64_t now_ms);

/* Another time between two commits, from now on. */
void agent_commit_set_period(struct agent_commit *self, int64_t period_ms, int64_t now_ms);

/* The next commit is due now, and is made even if nothing changed. */
void agent_commit_hurry(struct agent_commit *self);

/* Is all that was counted so far committed and released? */
bool agent_commit_is_settled(const struct agent_commit *self);

/*
 * A new lineage starts; the ranges stay as they are. Since the state turned out to be older than what publishers or
 * hubs know: what was counted is in the hubs under the old one, so all rows start from zero. Or since a hub has closed
 * the old one: rows start with what no hub can have yet.
 */
void agent_commit_new_lineage(struct agent_commit *self, const uint8_t fresh[AGENT_LINEAGE_LEN], bool is_closed);

#endif
