/*
 * Label sets: sorted by name, clean, interned so that equal sets are one pointer.
 *
 * A set carries its exposition text, so that printing a line copies bytes and escapes nothing.
 */
#ifndef SB_LABELS_H
#define SB_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "mp.h"
#include "text.h"

struct sb_label {
    const char *name;  /* NUL-terminated, inside the set */
    const char *value; /* never empty: an empty value is an absent label */
};

struct sb_labelset {
    uint32_t refs;
    uint32_t hash;
    uint32_t n;
    uint32_t text_len;
    const char *text;              /* a="1",b="x\"y": escaped, without braces; "" for the empty set */
    const struct sb_label *labels; /* n of them, rising by name */
};

struct sb_labelsets; /* the table that interns them */

struct sb_labelsets *sb_labelsets_new(void) SB_CHECK; /* NULL: out of memory */
/* Every set must have been dropped, or dies with the table. */
void sb_labelsets_destroy(struct sb_labelsets **self_p);
size_t sb_labelsets_count(const struct sb_labelsets *self);

/* A set under construction; at most SB_LABELS_MAX labels. Lives on the stack; nothing to release. */
struct sb_label_draft {
    size_t n;
    struct {
        char name[SB_LABEL_NAME_MAX + 1];
        char value[SB_LABEL_VALUE_MAX + 1];
    } labels[SB_LABELS_MAX];
};

void sb_label_draft_clear(struct sb_label_draft *draft); /* the start of every draft */

/*
 * Sets a label; a later one of the same name wins. The value is cleaned (text.h); an empty one takes the label away.
 * Errors: SB_FORMAT for a name that is not valid, SB_FULL for too many labels; the draft is unchanged then.
 */
enum sb_rc sb_label_draft_set(struct sb_label_draft *draft, const char *name, size_t name_len, const char *value,
                              size_t value_len, struct sb_text_faults *faults, struct sb_err *err) SB_CHECK;

/* The interned set of the draft's labels, its reference count raised: the caller drops it. NULL: out of memory. */
struct sb_labelset *sb_labelsets_get(struct sb_labelsets *self, const struct sb_label_draft *draft) SB_CHECK;
struct sb_labelset *sb_labelset_share(struct sb_labelset *set); /* one reference more */
void sb_labelsets_drop(struct sb_labelsets *self, struct sb_labelset **set_p);

/* The value of a label, or NULL when the set has no such label. */
const char *sb_labelset_value(const struct sb_labelset *set, const char *name);

/*
 * As a msgpack map str to str, and back (values that are nil are skipped; others than str are SB_FORMAT). Reading adds
 * to the draft; after an error the cursor is where it was, and the draft may hold some of the map's labels.
 */
void sb_labelset_pack(const struct sb_labelset *set, struct sb_buf *buf);
enum sb_rc sb_label_draft_read(struct sb_label_draft *draft, struct sb_mp *from, struct sb_text_faults *faults,
                               struct sb_err *err) SB_CHECK;

#endif
