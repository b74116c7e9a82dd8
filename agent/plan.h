/*
 * A plan: the catalog and one hello, compiled into a tree of expected keys, slots and programs, so that a record is
 * read once, front to back. Knows nothing about any engine.
 */
#ifndef AGENT_PLAN_H
#define AGENT_PLAN_H

#include "agent/hello.h"
#include "agent/ledger.h"
#include "common/catalog.h"
#include "common/err.h"

struct agent_plan;

/* What in a hello was refused without refusing the hello. */
struct agent_plan_counters {
    uint64_t bounds_refused;   /* bucket sets with bad bounds: the catalog's hold instead */
    uint64_t families_refused; /* described families that clash, break a limit or are malformed */
    struct sb_err last;        /* the last such refusal, for a log line; rc SB_OK: none */
};

/*
 * Compiles. catalog, ledger are borrowed for the plan's life. NULL with *err: SB_FULL, SB_NOMEM, SB_FORMAT (the hello's
 * families or info are no arrays and the like).
 */
struct agent_plan *agent_plan_new(const struct sb_catalog *catalog, struct agent_ledger *ledger,
                                  const struct agent_hello *hello, struct agent_plan_counters *counters,
                                  struct sb_err *err) SB_CHECK;
void agent_plan_destroy(struct agent_plan **self_p);

/* Hash of the bounds in force: the `shape` of contributions counted under this plan. */
uint64_t agent_plan_shape(const struct agent_plan *self);

#endif
