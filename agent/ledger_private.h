/* The ledger's own layout, for the files ledger*.c. */
#ifndef AGENT_LEDGER_PRIVATE_H
#define AGENT_LEDGER_PRIVATE_H

#include <uthash.h>

#include "agent/ledger.h"
#include "common/grow.h"

/* Who has a name: families of one name share their claims, whatever their bounds. */
struct claim {
    UT_hash_handle hh;
    enum sb_type type; /* of the owner */
    char *owner;       /* the family's name; owned */
    char name[];       /* what is claimed: the key */
};

struct series_key {
    uint64_t family;
    const struct sb_labelset *labels;
};

struct series_entry {
    UT_hash_handle hh;
    struct series_key key;
    uint32_t index;
};

struct agent_ledger {
    struct sb_labelsets *labelsets;
    struct sb_text_faults text_faults;
    struct agent_ledger_counters counters;
    uint64_t next_epoch;
    struct claim *claims;
    struct agent_family *families;
    uint32_t n_families, cap_families;
    struct agent_series *series;
    uint32_t n_series, cap_series;
    struct series_entry *series_index;
    uint32_t n_cells;
    size_t n_label_bytes, n_row_cells, n_remembered; /* see the limits in ledger.h */
    uint32_t *saved_as;                              /* scratch of a save: the series' numbers in it */
    uint32_t *saved_families;                        /* and those of families */
    uint32_t cap_saved_as, cap_saved_families;
    struct agent_contribution **contributions;
    uint32_t n_contributions, cap_contributions;
};

/* Adds a family without asking whether its name is free. Takes *bounds_p. AGENT_NONE: out of memory or limit. */
uint32_t agent_ledger_add_family(struct agent_ledger *self, const struct agent_family_spec *spec,
                                 struct sb_bounds **bounds_p);

/*
 * The series of exactly these (family, labels), made on first use; takes *labels_p. With may_overflow also from what is
 * kept free for that. AGENT_NONE: limit or memory.
 */
uint32_t agent_ledger_intern_series(struct agent_ledger *self, uint32_t family, struct sb_labelset **labels_p,
                                    bool may_overflow);

/* Gives the contribution this series, which it doesn't have yet, all its cells 0. False: out of memory. */
bool agent_ledger_give_series(struct agent_ledger *self, struct agent_contribution *to, uint32_t index);
bool agent_contribution_add_series(struct agent_contribution *to, const struct agent_series *series, uint32_t index);

struct agent_contribution *agent_ledger_add_contribution(struct agent_ledger *self, bool is_front_end,
                                                         struct sb_labelset *source, struct sb_labelset *identity,
                                                         uint64_t shape, uint64_t epoch);

#endif
