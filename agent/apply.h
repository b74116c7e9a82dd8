/*
 * Applying records: from the bytes of a record's content to the cells of contributions.
 *
 * No allocation once a source's series are known. The content must have passed sb_mp_validate.
 */
#ifndef AGENT_APPLY_H
#define AGENT_APPLY_H

#include "agent/ledger.h"
#include "agent/plan.h"
#include "agent/raws.h"
#include "common/mp.h"

/* The most that one field or observation may add: up to 2^53 a double tells every whole number from its neighbours. A
 * few larger ones would make a total infinite, which no hub takes. */
#define AGENT_AMOUNT_MAX 9007199254740992.0

/* What a counter may be increased by and a histogram may observe. NaN fails both comparisons. */
static inline bool agent_amount_is_possible(double value)
{
    return value >= 0 && value <= AGENT_AMOUNT_MAX;
}

/* Where the programs of one plan write for one contribution. */
struct agent_binding;

/* plan, ledger and to are borrowed for its life. Declares what exists from the start (counters, histograms; gauges only
 * with with_gauges: set it for contributions that are new and whose hello has no mark), unless the source says that it
 * is observed: then its first step does (of a front end, its first event). And info samples. NULL: out of memory. */
struct agent_binding *agent_binding_new(struct agent_plan *plan, struct agent_ledger *ledger,
                                        struct agent_contribution *to, const struct agent_hello *hello,
                                        const struct agent_hello_source *source, bool with_gauges) SB_CHECK;
void agent_binding_destroy(struct agent_binding **self_p);
/* Adds to what the agent counts about the source, if the catalog has a family for that. */
void agent_binding_count(struct agent_binding *self, enum sb_agent_count what, uint64_t n);
struct agent_contribution *agent_binding_contribution(const struct agent_binding *self);
/* Whose totals the observations of cumulative families are, told of by this publisher (its id); without it, or with run
 * NULL, they are left out. All borrowed. */
void agent_binding_count_run(struct agent_binding *self, struct agent_raws *raws, struct agent_run *run,
                             const char *publisher);

/* Those before UNKNOWN are applied. LOST: its publisher had one that could not travel. */
enum agent_record_type {
    AGENT_RECORD_STEP,
    AGENT_RECORD_EVENT,
    AGENT_RECORD_OBS,
    AGENT_RECORD_UNKNOWN,
    AGENT_RECORD_LOST
};

enum agent_apply_parts {
    AGENT_APPLY_ALL,
    AGENT_APPLY_AGAIN,  /* all, for one more source of a record: what is unknown has been counted */
    AGENT_APPLY_GAUGES, /* a hello's `latest`: deltas were counted before, totals say how much */
};

/*
 * Applies one record's content to one binding. Families of the engine and families of the front end (scope: publisher)
 * are told apart: a binding of a front-end contribution takes only the latter, others only the former. For a record
 * without source the caller applies it to every source's binding and to the front end's; with a source, to that
 * source's and (its families with scope: publisher) to the front end's.
 * Bad fields are counted at their family (agent_family.refused). Moves *content past the value.
 */
void agent_apply(struct agent_binding *self, enum agent_record_type type, struct sb_mp *content,
                 const struct agent_moment *when, enum agent_apply_parts parts);

/* True when the plan has families with scope: publisher fed by this record type (else the front end need not be asked).
 */
bool agent_plan_feeds_front_end(const struct agent_plan *plan, enum agent_record_type type);

#endif
