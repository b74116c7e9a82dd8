/*
 * A feed: which field of a record feeds a family, parsed from the catalog's text.
 *
 *   it.num_generation_tokens                      one number
 *   s.num_waiting_reqs + s.num_skipped_waiting_reqs?    sums; `?`: absent counts as 0
 *   s.kv_cache_usage | s.gpu_cache_usage          the first that is present
 *   it.finished_requests[].e2e_latency            each element of a list
 *   s.hits_by_source{source}                      each entry of a map, its key as the label `source`
 *   s.accepted_per_pos[position]                  each element of a list, its index as a label
 *   max(num_cached_tokens?, 0)                    not below 0
 */
#ifndef SB_FEED_H
#define SB_FEED_H

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "err.h"

/* One step of a path. */
enum sb_step_kind {
    SB_STEP_KEY,  /* .name: the value of that key of a map */
    SB_STEP_LIST, /* [] or [label]: each element */
    SB_STEP_MAP,  /* {label}: the value of each entry */
};

struct sb_step {
    enum sb_step_kind kind;
    const char *name; /* the key, or the label that takes the index or key ("" for a list without label) */
};

struct sb_path {
    size_t n;
    const struct sb_step *steps;
};

/* Operations of an expression in postfix order, on a stack of at most SB_FEED_STACK_MAX numbers. */
enum sb_op_kind {
    SB_OP_FIELD,    /* push the first present of n paths; absent: 0 if is_optional, else no sample */
    SB_OP_CONSTANT, /* push number */
    SB_OP_ADD,
    SB_OP_SUBTRACT,
    SB_OP_CLAMP,  /* max(top, 0) */
    SB_OP_EQUALS, /* push 1 if the field equals number, else 0; absent: no sample */
    SB_OP_AND,    /* both not 0 */
};

enum { SB_FEED_STACK_MAX = 8, SB_FEED_PATHS_MAX = 4 };

struct sb_op {
    enum sb_op_kind kind;
    bool is_optional;
    double number;
    size_t n_paths;
    struct sb_path paths[SB_FEED_PATHS_MAX]; /* relative to the feed's element */
};

struct sb_feed_label {
    const char *name;
    const char *value;   /* constant text, or NULL: */
    struct sb_path path; /* the field whose text it takes, relative to the element */
};

struct sb_feed {
    struct sb_path element; /* what the feed is evaluated for, from the root's name on; empty: once a record, and the
                               other paths start at a root */
    const struct sb_op *ops;
    size_t n_ops;
    const struct sb_feed_label *labels;
    size_t n_labels;
    bool is_nonzero; /* a value of 0 makes no sample */
    /* Alternative lists (a[] | b[]): of feeds with the same group, only the first that ever had elements counts. 0:
     * none. */
    unsigned group;
};

enum { SB_FEED_OPS_MAX = 16, SB_FEED_LABELS_MAX = 16, SB_PATH_STEPS_MAX = 16 };

/* A feed as the catalog has it: all texts NUL-terminated, borrowed. */
struct sb_feed_text {
    const char *each;  /* path of the elements, or NULL */
    const char *value; /* expression, or NULL when `is` is given */
    const struct sb_feed_pair {
        const char *name;
        const char *value;
    } * labels, *is; /* `is`: fields and the numbers that all of them must equal (the sample is then 1, else 0) */
    size_t n_labels, n_is;
    bool is_nonzero;
};

/*
 * Compiles one feed. A value with iterators and no `each` is split at its last one. Errors: SB_FORMAT with the piece
 * that is not understood, SB_FULL, SB_NOMEM. Memory is the arena's.
 */
enum sb_rc sb_feed_parse(struct sb_arena *arena, const struct sb_feed_text *text, struct sb_feed *out,
                         struct sb_err *err) SB_CHECK;

/* Reads a path ("a.b[].c{label}"; "@" is the empty one) of len bytes. */
enum sb_rc sb_path_parse(struct sb_arena *arena, const char *text, size_t len, struct sb_path *out, struct sb_err *err)
    SB_CHECK;

#endif
