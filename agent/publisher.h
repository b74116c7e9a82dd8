/* One publisher, for the files publishers*.c. */
#ifndef AGENT_PUBLISHER_H
#define AGENT_PUBLISHER_H

#include <uthash.h>

#include "agent/apply.h"
#include "agent/asking.h"
#include "agent/hosts.h"
#include "agent/publishers.h"

/* Where the records of one source go. */
struct slot {
    uint32_t index;                /* the publisher's name for it */
    bool is_ended;                 /* by a final beat; late records are still counted */
    struct agent_binding *binding; /* NULL: the ledger had no room */
    struct agent_contribution *contribution;
    struct agent_run *run; /* whose totals its cumulative families are; NULL: no room */
};

struct publisher {
    UT_hash_handle hh;
    char id[AGENT_PUBLISHER_ID_LEN + 1];
    uint32_t number; /* of this process's life, from 1 */
    struct sb_ranges applied;
    uint64_t next; /* the next number to be given, as heard */
    struct agent_asking asking;

    struct agent_plan *plan; /* NULL until the first hello of this process's life */
    uint64_t shape;          /* of the hello that it was made from */
    bool is_stale;           /* a source lacks its binding: the next hello is bound anew, equal or not */
    bool feeds_front_end[AGENT_RECORD_UNKNOWN + 1];
    uint32_t n_slots;
    struct slot *slots; /* rising by index */
    struct slot front_end;

    bool has_host;
    uint32_t host;
    double shift;

    bool is_ended; /* all of its sources are */
    int64_t seen_ms;
    int64_t hello_asked_ms;

    uint64_t told_total;   /* how many numbers the last `applied` held */
    uint64_t marked_total; /* and the last echo in this lineage */
    bool is_awaited;
    bool is_slow; /* did not echo in time: not waited for until it does */
};

enum { STRANGERS = 2048, DROPPED_MAX = 1024 };

struct agent_publishers {
    struct agent_publishers_cfg cfg;
    struct publisher *table;
    struct publisher *last; /* the one looked up last: messages come in runs */
    uint32_t last_number;
    struct agent_hosts *hosts;
    struct agent_raws *raws;
    uint64_t changes;
    int64_t swept_ms;
    bool is_swept;
    uint32_t n_postponed;                              /* sweeps in a row */
    uint32_t n_dropped;                                /* since the start */
    char dropped[DROPPED_MAX][AGENT_PUBLISHER_ID_LEN]; /* the last that left the table: a ring */
    uint32_t n_foreign;
    uint8_t foreign[AGENT_FOREIGN_LINEAGES_MAX][AGENT_LINEAGE_LEN];
    int64_t strangers_ms[STRANGERS]; /* by hash of the id: when a hello was asked of one that isn't in the table */
    struct agent_beat beat;          /* scratch */
    struct sb_ranges ranges;         /* scratch */
    struct sb_buf out;               /* scratch */
    struct sb_err err;
    bool has_introduction;
    struct agent_introduction introduction;
    struct sb_err plan_warning; /* what the last plan left out; rc SB_OK: nothing */
};

/* publishers.c */
struct publisher *agent_publisher_find(struct agent_publishers *self, const char *id);
struct publisher *agent_publisher_add(struct agent_publishers *self, const char *id, int64_t now_ms);
/*
 * Hellos and beats state the next number, whatever was heard before: one impossible header must not leave a hole for
 * ever. Other messages may only raise it: they come on two sockets, an old one late.
 */
void agent_publisher_note_next(struct publisher *self, enum agent_kind kind, uint64_t next);
/* How many numbers below the next are not applied. */
uint64_t agent_publisher_missing(const struct publisher *self);
void agent_publisher_drop(struct agent_publishers *self, struct publisher *publisher);
struct slot *agent_publisher_slot(const struct publisher *self, uint32_t index);
/* Of a record of this publisher; time and arrival are the caller's to add. */
static inline struct agent_moment agent_publisher_moment(const struct publisher *self)
{
    return (struct agent_moment){.host = self->host, .publisher = self->number, .shift = self->shift};
}

/* publishers_hello.c */
enum agent_refusal agent_publisher_hello(struct agent_publishers *self, const struct agent_envelope *message,
                                         int64_t now_ms) SB_CHECK;
void agent_publisher_note_time(struct publisher *self, double time, int64_t now_ms);
void agent_publisher_unbind(struct publisher *self);
bool agent_publishers_note_foreign(struct agent_publishers *self, const uint8_t lineage[AGENT_LINEAGE_LEN]);

/* publishers_runs.c */
/* Where the totals of a slot that has just been bound are compared: with those of its run. */
void agent_slot_count_run(struct agent_publishers *self, const struct publisher *publisher, struct slot *slot,
                          const struct agent_hello_source *source, int64_t now_ms);
/* What was counted of this publisher up to its mark is not in this state. */
void agent_publisher_resume_runs(struct agent_publishers *self, struct publisher *publisher);
/* Runs whose owner is silent get another one that tells of them; those that nobody tells of any more are dropped. */
void agent_publishers_sweep_runs(struct agent_publishers *self, int64_t now_ms);

/* publishers_life.c */
/* Within the source timeout. */
bool agent_publisher_is_heard(const struct agent_publishers *self, const struct publisher *publisher, int64_t now_ms);
void agent_slot_touch(struct slot *slot, int64_t now_ms);
void agent_publisher_beat(struct agent_publishers *self, struct publisher *publisher, const struct agent_beat *beat,
                          int64_t now_ms);
/* Has it been in the table, and left, in this process's life? */
bool agent_publishers_has_dropped(const struct agent_publishers *self, const char *id);
bool agent_publishers_make_room(struct agent_publishers *self, int64_t now_ms);

#endif
