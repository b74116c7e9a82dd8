/*
 * Totals of cumulative families, as their processes last said them: what a new one adds is worked out from these.
 *
 * A run is one life of the counters of one process. Within a run a total that fell, by however little, started again
 * from zero, so all of it is new; else the difference is. A total with a lower record number than the last one is
 * contained in that and adds nothing. Pure; part of what a commit holds, since it must agree with the ledger's totals.
 */
#ifndef AGENT_RAWS_H
#define AGENT_RAWS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/hello.h"
#include "agent/ledger.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/mp.h"

enum { AGENT_RAWS_BYTES_MAX = 32 << 20 }; /* that all runs of an agent may take, with their totals */

struct agent_raws;
struct agent_run;

/* The ledger, whose indexes these are, is borrowed for its life. */
struct agent_raws *agent_raws_new(struct agent_ledger *ledger) SB_CHECK;
void agent_raws_destroy(struct agent_raws **self_p);

/* Whose counters. All texts are copied. */
struct agent_run_name {
    const char *publisher;      /* its id */
    uint32_t source;            /* its name for the source; AGENT_NONE: its front end */
    struct sb_slice counted_by; /* empty: the publisher's process counts; else what does, whichever publisher tells */
    const char *place;          /* with counted_by: the labels that name the source, as one text */
    const char *instance;       /* instance_id: another one is another life */
};

/* The run of this name, made on first use, its owner this publisher. With another instance than before its totals are
 * forgotten. NULL: over the limit, or out of memory. */
struct agent_run *agent_raws_run(struct agent_raws *self, const struct agent_run_name *name) SB_CHECK;

/*
 * The publisher goes on after records that were counted, but not here or not in this state: the run's totals are
 * forgotten, and of each family the first record that is seen now counts nothing, since it is not known how much of it
 * was counted. A run with another owner stays.
 */
void agent_run_resume(struct agent_raws *self, struct agent_run *run, const char *publisher);

/* One total of one series, in the form of the ledger's cells: a counter's one, or a histogram's buckets and sum. */
struct agent_raw {
    uint32_t family, series; /* ledger indexes */
    uint64_t number;         /* of the record */
    const double *values;
    uint32_t n;
};

/* Adds to cells what is new in it. False: no room, nothing has changed; a later one adds all that this one would. */
bool agent_run_add(struct agent_raws *self, struct agent_run *run, const struct agent_raw *raw, double *cells) SB_CHECK;
/* After agent_run_resume, before anything is added: this much was counted. Of several the highest record says it. */
bool agent_run_needs_base(const struct agent_run *run);
void agent_run_base(struct agent_raws *self, struct agent_run *run, const struct agent_raw *raw);
/* Would there be room for it? */
bool agent_run_has_room(const struct agent_raws *self, const struct agent_run *run, const struct agent_raw *raw);

/*
 * A run that several publishers tell of has one owner, to whose totals it listens: they all say the same, but at
 * different times, and an older one would look like a fall.
 */
bool agent_run_is_shared(const struct agent_run *run);
const char *agent_run_owner(const struct agent_run *run);
void agent_run_hand_over(struct agent_run *run, const char *publisher);
/* A publisher has the run now. Shared ones that nobody had for longer than unused_ms are dropped. */
void agent_run_touch(struct agent_run *run, int64_t now_ms);
void agent_raws_sweep(struct agent_raws *self, int64_t unused_ms, int64_t now_ms);

/* The publisher is gone, and its own runs with it. Nobody may use them any more. */
void agent_raws_drop(struct agent_raws *self, const char *publisher);

size_t agent_raws_bytes(const struct agent_raws *self);

/* One msgpack value for the state file, and back into a new table: the ledger was saved, or loaded, just before it.
 * Load errors: SB_FORMAT, SB_NOMEM. */
void agent_raws_save(const struct agent_raws *self, struct sb_buf *out);
enum sb_rc agent_raws_load(struct agent_raws *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err) SB_CHECK;

#endif
