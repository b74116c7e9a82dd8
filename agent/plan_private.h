/*
 * What a plan looks like inside: shared by plan.c (families), plan_tree.c (the tree), binding.c and apply.c.
 *
 * A scope is what slots live as long as: the whole record, or one element of a list or map. Within a scope, nodes are
 * the keys that are expected. A program (one feed) fires as soon as the lowest node that holds all its fields has been
 * read.
 */
#ifndef AGENT_PLAN_PRIVATE_H
#define AGENT_PLAN_PRIVATE_H

#include <uthash.h>

#include "agent/apply.h"
#include "agent/plan.h"
#include "common/arena.h"
#include "common/grow.h"

enum {
    PLAN_NODE_KEYS_MAX = 256,    /* keys of one node, learnt ones included */
    PLAN_LEARNT_KEYS_MAX = 4096, /* unknown keys that a plan remembers to skip */
    PLAN_VALUES_MAX = 1024,      /* enumerated values of one label */
    PLAN_NO_SLOT = -1,
};

enum plan_slot_kind { SLOT_ABSENT, SLOT_NUMBER, SLOT_TEXT, SLOT_BAD };

struct plan_slot {
    enum plan_slot_kind kind;
    double number;
    struct sb_slice text; /* points into the message */
};

struct plan_scope;
struct plan_program;

struct plan_key {
    const char *text;
    uint32_t len;
    struct plan_node *node; /* NULL: an unknown key, skipped */
};

/* Elements below a node: each runs through a scope of its own. */
struct plan_loop {
    struct plan_loop *next;
    enum sb_step_kind kind; /* SB_STEP_LIST or SB_STEP_MAP */
    const char *label;      /* "" for a list without label */
    struct plan_scope *scope;
    struct plan_zero *zeros; /* gauges to set to 0 before the elements */
};

struct plan_zero {
    struct plan_zero *next;
    const struct plan_program *program;
    const char *value;
    uint32_t number; /* its target */
};

struct plan_node {
    struct plan_node *parent; /* within the scope */
    uint32_t depth;
    int slot;
    int input;             /* root index whose snapshot begins here, or -1 */
    struct plan_key *keys; /* in the sender's order as far as seen */
    uint32_t n_keys, cap_keys;
    struct plan_loop *loops;
    struct plan_program **programs; /* that fire when this node has been read */
    uint32_t n_programs, cap_programs;
};

struct plan_scope {
    struct plan_node root;
    struct plan_slot *slots;
    uint32_t n_slots, cap_slots;
    const char *label;         /* of the loop that opens it; "" for none */
    struct sb_slice label_now; /* the key or index of the element being read */
    char index_text[12];
    /* Set when the elements are bare numbers that one histogram observes: no slots needed. */
    const struct plan_program *observer;
};

struct plan_op {
    enum sb_op_kind kind;
    bool is_optional;
    double number;
    uint32_t n_slots;
    int slots[SB_FEED_PATHS_MAX];
};

struct plan_label {
    const char *name;
    const char *value;              /* constant, or */
    int slot;                       /* a slot of the program's scope, or */
    const struct plan_scope *scope; /* that scope's label_now */
};

struct plan_program {
    uint32_t number; /* its static target in a binding */
    uint32_t family; /* ledger index */
    enum sb_type type;
    const struct sb_bounds *bounds;
    struct plan_scope *scope;
    uint32_t n_ops;
    const struct plan_op *ops;
    int single; /* the one slot that is the value, or PLAN_NO_SLOT */
    uint32_t n_labels;
    const struct plan_label *labels;
    bool is_dynamic; /* some label comes from the message */
    bool is_nonzero;
    bool is_plain; /* a counter or histogram fed by one field, without conditions: its value is that slot */
    unsigned group;
    uint32_t input; /* root index */
};

struct plan_values {
    const char *label;
    const char *const *values;
    const double *initial;
    size_t n;
};

/* A family that is active in this plan. */
struct plan_family {
    UT_hash_handle hh;
    const char *name;                /* the key */
    const struct sb_family *catalog; /* NULL: described by the hello */
    uint32_t family;                 /* ledger index */
    enum sb_type type;
    const struct sb_bounds *bounds;
    bool is_front_end;
    bool is_cumulative; /* observations are totals */
    bool is_declared;   /* all its label values are known: it exists from the start */
    uint32_t input;     /* root index of its feeds */
    const struct plan_values *values;
    size_t n_values;
    struct plan_family *observer; /* the first of those that have this one's observations, too; then their next */
    struct plan_family *next_observer;
};

/* What is fed for engines, and what for the front end. */
struct plan_side {
    struct plan_scope *records[AGENT_RECORD_UNKNOWN]; /* by record type; NULL: nothing to feed */
};

struct agent_plan {
    struct sb_arena arena;
    const struct sb_catalog *catalog; /* borrowed */
    struct agent_ledger *ledger;      /* borrowed */
    struct plan_side engine, front_end;
    struct plan_family *families;      /* uthash, in order of adding */
    bool has_gauges[AGENT_INPUTS_MAX]; /* by root: a snapshot comes with it */
    uint32_t n_targets;                /* static targets of a binding */
    uint32_t n_learnt;
    unsigned n_groups;
    uint64_t shape;
};

/* Adds all feeds of a family to the tree. */
enum sb_rc plan_add_feeds(struct agent_plan *self, const struct plan_family *family, struct sb_err *err) SB_CHECK;

/* Room for one element more in an array of the arena, doubling. False: out of memory. */
bool plan_push(struct agent_plan *self, void *array_p, uint32_t *n, uint32_t *cap, size_t size);

/* Remembers an unknown key at position `at` of the node's order, so that it is skipped quickly next time. */
void plan_learn(struct agent_plan *self, struct plan_node *node, uint32_t at, struct sb_slice key);

/* ---- binding.c */

struct binding_target {
    UT_hash_handle hh;
    uint32_t target;
    uint32_t len;
    char key[];
};

struct binding_input {
    uint64_t record; /* of binding->record in which it was begun */
    bool is_open;    /* not older than what was there: its gauges may be set */
};

struct agent_binding {
    struct agent_plan *plan;
    struct agent_ledger *ledger;
    struct agent_contribution *to;
    const struct plan_side *side;
    uint32_t *targets;              /* by program number: first cell, or gauge index; AGENT_NONE: not yet */
    struct binding_target *dynamic; /* by program and label values */
    uint32_t n_dynamic;
    unsigned *groups;                 /* by group: feed number that won, 0 none yet */
    uint32_t roots[AGENT_INPUTS_MAX]; /* input index by root, AGENT_NONE: not yet */
    struct binding_input *inputs;     /* by input index */
    uint32_t cap_inputs;
    uint32_t counts[SB_AGENT_COUNTS]; /* cells of the agent's own counts; AGENT_NONE: none */
    bool is_declared;                 /* what starts at zero has been made */
    uint64_t record;                  /* rises with each */
    bool has_opened; /* the record being applied brought a snapshot that is not older than what was there */
    const struct agent_moment *when; /* of the record being applied */
    struct agent_raws *raws;         /* for totals; with */
    struct agent_run *run;           /* whose they are; NULL: none */
    const char *publisher;           /* who tells of them */
    uint64_t unheard;                /* the highest record whose totals were left to the run's owner */
};

/* Counts samples of a family that had to be refused: for the family, and for the source. */
void binding_refuse(struct agent_binding *self, uint32_t family, uint64_t n);

/* Makes what starts at zero: counters and histograms, and if asked to, gauges. */
void binding_declare(struct agent_binding *self, bool with_gauges);

/* The cell (or gauge index) that a program writes to now; AGENT_NONE when a limit forbids. */
uint32_t binding_target_of(struct agent_binding *self, const struct plan_program *program);
uint32_t binding_target_of_zero(struct agent_binding *self, const struct plan_zero *zero);
/* The same for an observation: labels is a msgpack map or nil. For a cumulative family the series' index. */
uint32_t binding_target_of_observation(struct agent_binding *self, const struct plan_family *family,
                                       struct sb_slice labels, uint32_t input);

/* May gauges of this input be set by the record being applied? Begins the snapshot on first asking. AGENT_NONE: no. */
uint32_t binding_open_root(struct agent_binding *self, uint32_t root);
uint32_t binding_open_observed(struct agent_binding *self, uint32_t family);

/* ---- totals.c */

/* An observation of a cumulative family: labels and value are msgpack values. */
void binding_observe_total(struct agent_binding *self, const struct plan_family *family, struct sb_slice labels,
                           struct sb_slice value, enum agent_apply_parts parts);

#endif
