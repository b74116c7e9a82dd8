/*
 * The ledger: everything that this node has counted.
 *
 * Families and series are shared by all contributions; each contribution is one row of doubles over the series'
 * cells, counted from zero (see "contribution" in docs/architecture.md). The ledger knows no sockets and no clock.
 */
#ifndef AGENT_LEDGER_H
#define AGENT_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bounds.h"
#include "common/buf.h"
#include "common/catalog.h"
#include "common/err.h"
#include "common/labels.h"

enum {
    AGENT_SERIES_OF_SOURCE_MAX = 10000, /* more are folded into one labelled _overflow */
    /* The same happens to new label sets when all of this agent's together have so many ... */
    AGENT_CELLS_MAX = 1 << 18,        /* cells of all series, each counted once whatever sources have it */
    AGENT_ROW_CELLS_MAX = 1 << 22,    /* cells of all rows: 32 MiB, held three times here and once a hub */
    AGENT_LABEL_BYTES_MAX = 64 << 20, /* bytes of all series' labels */
    /* ... less this, which is kept free for series without labels of their own, and those labelled _overflow. */
    AGENT_OVERFLOW_CELLS = 1 << 15,
    AGENT_OVERFLOW_ROW_CELLS = 1 << 20,
    AGENT_OVERFLOW_LABEL_BYTES = 8 << 20,
    AGENT_REMEMBERED_MAX = 64 << 20, /* bytes by which bindings find label sets again; others are looked up each time */
    AGENT_FAMILIES_MAX = 4096,
    AGENT_CATALOG_FAMILIES = 1024, /* of them, kept free for the catalog's: a hello without those is refused */
    AGENT_CONTRIBUTIONS_MAX = 4096,
    AGENT_INPUTS_MAX = 16,  /* roots of the catalog */
    AGENT_AHEAD_MAX_S = 60, /* by which a snapshot may seem to be of the future: a beat may wait that long in queues */
};

#define AGENT_NONE UINT32_MAX

/* One id a pair of name and bounds. */
struct agent_family {
    char *name;
    char *help;
    char *unit; /* NULL: none */
    enum sb_type type;
    enum sb_semantic semantic;
    bool is_in_catalog;       /* else help, semantic and unit travel to the hub */
    struct sb_bounds *bounds; /* histograms, else NULL */
    uint64_t refused;         /* samples of wrong type or impossible value */
};

struct agent_series {
    uint32_t family; /* index */
    uint32_t first;  /* its first cell; a counter or gauge has one, a histogram bounds->n + 2 (hub-wire.md) */
    uint32_t n;      /* cells */
    struct sb_labelset *labels; /* own labels */
    uint32_t n_holders;         /* see agent_ledger_hold_series */
};

/* A gauge sample; it is present while its generation is that of its input. */
struct agent_gauge {
    double value;
    uint64_t generation;
    uint32_t cell;
    uint32_t input;
};

/* What replaces samples as one: a root of the catalog, or all observations of one gauge family. */
struct agent_input {
    uint64_t generation; /* rises with each snapshot; 0: nothing yet */
    uint32_t key;        /* root index, or AGENT_INPUTS_MAX + family index */
    bool is_lasting;     /* said by hellos: outlives the end of its source */
    double time;         /* of the latest, by its host's monotonic clock, seconds */
    uint32_t host;       /* whose clock (see struct agent_moment) */
    uint32_t publisher;  /* whose record */
    double shift;        /* seconds to add to compare with other hosts' times */
};

/* When a record was made. */
struct agent_moment {
    uint64_t number;    /* its publisher's; of what a hello tells again, 0 unless it says how much was counted */
    double time;        /* its host's monotonic clock, seconds */
    uint32_t host;      /* equal numbers: one clock, compared as they are */
    uint32_t publisher; /* a number of this process's life */
    double shift;       /* added before times of different hosts are compared: the smallest arrival minus send seen */
    int64_t arrival_ms; /* this host's monotonic clock */
};

/* A series as a contribution has it. */
struct agent_own_series {
    uint32_t index; /* in the ledger */
    uint32_t place; /* of its first cell in the rows */
};

struct agent_contribution {
    uint64_t epoch;               /* never reused in a lineage */
    struct sb_labelset *source;   /* service_name, job_name, dp_rank, stage, replica */
    struct sb_labelset *identity; /* model_name, instance_id, role, node, pod_ip, extra labels */
    uint64_t shape;               /* hash of the bucket bounds it is counted under */
    uint32_t index;               /* in the ledger's table; reused after agent_ledger_forget */
    bool is_front_end;

    /* Rows hold the cells of the contribution's own series alone, one behind the other as they came. */
    double *live;   /* n_cells */
    double *staged; /* the same as of the last agent_ledger_stage */
    double *told;   /* the most of it that any hub may have: what was loaded, and what was sent since */
    uint32_t n_cells, cap_cells;
    uint32_t n_series, n_staged_series; /* how many the live and the staged row hold */
    struct agent_own_series *series;    /* those it has, in the order in which they came */
    uint32_t *order;                    /* hash table: 0, or a place in `series` + 1; cap_order is a power of two */
    uint32_t cap_series, cap_order;

    struct agent_gauge *gauges;
    uint32_t n_gauges, cap_gauges;
    struct agent_input *inputs;
    uint32_t n_inputs, cap_inputs;
    bool is_gauge_changed; /* since the last agent_contribution_publish */
    int64_t snapshot_ms;   /* arrival of the latest gauges of a step or observation; -1: none yet */

    /* What is shown to hubs: set by agent_contribution_publish. */
    uint32_t *shown_cells;
    double *shown_values;
    uint32_t n_shown, cap_shown;
    uint64_t shown_version; /* rises with each publish */
    int64_t shown_ms;       /* snapshot_ms of what is shown */

    /* Liveness: kept by publishers.c. */
    bool is_live;
    bool is_ended;
    int64_t alive_ms; /* the last sign of life, this host's monotonic clock */
    int64_t ended_ms;
};

struct agent_ledger;

struct agent_ledger_counters {
    uint64_t overflows;        /* label sets folded into _overflow */
    uint64_t totals_left_out;  /* totals of cumulative families for which there was no room */
    uint64_t limit_hits;       /* families, series or contributions refused for a limit */
    uint64_t clashes;          /* families refused since their names clash with another's */
    uint64_t unknown_families; /* observations malformed, or of families that neither catalog nor hello have */
};

/* labelsets is borrowed for the ledger's life. NULL: out of memory. */
struct agent_ledger *agent_ledger_new(struct sb_labelsets *labelsets) SB_CHECK;
void agent_ledger_destroy(struct agent_ledger **self_p);

struct sb_labelsets *agent_ledger_labelsets(struct agent_ledger *self);
struct sb_text_faults *agent_ledger_text_faults(struct agent_ledger *self);
struct agent_ledger_counters *agent_ledger_counters(struct agent_ledger *self);

/*
 * The index of a family, made on first use. Strings are copied; *bounds_p is taken (and nulled) in every case.
 * AGENT_NONE with *err: SB_INVAL when the name clashes with another family's names (of two, the catalog's wins, else
 * the first), or its type differs from before; SB_FULL; SB_NOMEM.
 */
struct agent_family_spec {
    const char *name;
    const char *help;
    const char *unit;
    enum sb_type type;
    enum sb_semantic semantic;
    bool is_in_catalog;
};
uint32_t agent_ledger_family(struct agent_ledger *self, const struct agent_family_spec *spec,
                             struct sb_bounds **bounds_p, struct sb_err *err) SB_CHECK;

/* Names of the catalog are taken from the start, whether used or not: call once after new. */
enum sb_rc agent_ledger_reserve(struct agent_ledger *self, const struct sb_catalog *catalog, struct sb_err *err)
    SB_CHECK;

/* The contribution with these labels and bounds, made on first use (is_live false, alive_ms 0). Label sets are shared,
 * not taken. NULL with *err: SB_FULL, SB_NOMEM. *is_new may be NULL. */
struct agent_contribution *agent_ledger_contribution(struct agent_ledger *self, bool is_front_end,
                                                     struct sb_labelset *source, struct sb_labelset *identity,
                                                     uint64_t shape, bool *is_new, struct sb_err *err) SB_CHECK;

/* The series of a family with these own labels, made known to the contribution (all its cells 0). Over the limits it is
 * the one whose values are all "_overflow"; AGENT_NONE when not even that fits. */
uint32_t agent_ledger_series_of(struct agent_ledger *self, struct agent_contribution *to, uint32_t family,
                                const struct sb_label_draft *labels) SB_CHECK;

/* Where the cells of a series start in the contribution's rows; AGENT_NONE: it doesn't have it. */
uint32_t agent_contribution_place(const struct agent_contribution *self, uint32_t series);

/* What bindings remember counts against one limit: false over it. */
bool agent_ledger_remember(struct agent_ledger *self, size_t bytes) SB_CHECK;
void agent_ledger_unremember(struct agent_ledger *self, size_t bytes);

/* The series of exactly these labels, not made known to the contribution yet. AGENT_NONE: over the limits. For totals,
 * which can't be folded: what is new in one is told by the last one of the same labels. */
uint32_t agent_ledger_exact_series(struct agent_ledger *self, const struct agent_contribution *to, uint32_t family,
                                   const struct sb_label_draft *labels) SB_CHECK;
/* Its place in the contribution's rows, which get it on first use. AGENT_NONE: over the limits. */
uint32_t agent_ledger_place_of(struct agent_ledger *self, struct agent_contribution *to, uint32_t index) SB_CHECK;

/* A series that is held is saved, also when no contribution has it any more. */
void agent_ledger_hold_series(struct agent_ledger *self, uint32_t index);
void agent_ledger_let_go_of_series(struct agent_ledger *self, uint32_t index);
/* What the last agent_ledger_save called them; AGENT_NONE: it left them out. */
uint32_t agent_ledger_saved_series(const struct agent_ledger *self, uint32_t index);
uint32_t agent_ledger_saved_family(const struct agent_ledger *self, uint32_t index);

/* The gauge of a series (made on first use): index into to->gauges, AGENT_NONE when out of memory. */
uint32_t agent_contribution_gauge(struct agent_contribution *to, const struct agent_series *series, uint32_t input)
    SB_CHECK;

/* The input with this key (made on first use): index into to->inputs, AGENT_NONE when out of memory. */
uint32_t agent_contribution_input(struct agent_contribution *to, uint32_t key) SB_CHECK;

/* True when a snapshot of this moment is not older than what the input holds: then its samples so far are gone, and
 * the caller sets those of the new one. */
bool agent_input_begin(struct agent_contribution *to, uint32_t input, const struct agent_moment *when);
/* The source has ended: should it come back, it starts without the gauges that it had, but for lasting ones. */
void agent_contribution_drop_gauges(struct agent_contribution *self);

/*
 * The publisher's clock shows `time` now. A snapshot of its own that lies far ahead of that can't be: it would outlast
 * all that follow, so it counts as made now. How many there were.
 */
uint32_t agent_contribution_check_times(struct agent_contribution *to, uint32_t publisher, double time);

/* Copies the present gauges to what is shown; none at all when it is not live. False: out of memory, nothing changed.
 */
bool agent_contribution_publish(struct agent_contribution *self) SB_CHECK;

/* Has nothing been counted since the last agent_ledger_stage? */
bool agent_contribution_is_staged(const struct agent_contribution *self);

/* Walking: indexes are stable, contributions[i] may be NULL (forgotten). */
uint32_t agent_ledger_n_families(const struct agent_ledger *self);
struct agent_family *agent_ledger_family_at(const struct agent_ledger *self, uint32_t index);
uint32_t agent_ledger_n_series(const struct agent_ledger *self);
const struct agent_series *agent_ledger_series_at(const struct agent_ledger *self, uint32_t index);
uint32_t agent_ledger_n_contributions(const struct agent_ledger *self);
struct agent_contribution *agent_ledger_contribution_at(const struct agent_ledger *self, uint32_t index);

/* Takes what hubs have been told, or may have been, from what was counted: a new lineage starts with the rest. */
void agent_ledger_keep_untold(struct agent_ledger *self);
/* A new lineage starts from zero. */
void agent_ledger_clear(struct agent_ledger *self);

/* Frees a contribution and its place in the table. Bindings to it must be gone. */
void agent_ledger_forget(struct agent_ledger *self, uint32_t index);

/* Copies every live row to its staged row: what a commit holds. */
void agent_ledger_stage(struct agent_ledger *self);

/* The staged totals, with families, series, identities and the next epoch, as one msgpack value; and back into a new,
 * empty ledger. Load errors: SB_FORMAT with where; the ledger is then to be thrown away. Gauges are not kept. */
void agent_ledger_save(struct agent_ledger *self, struct sb_buf *out);
enum sb_rc agent_ledger_load(struct agent_ledger *self, struct sb_mp *from, struct sb_err *err) SB_CHECK;

#endif
