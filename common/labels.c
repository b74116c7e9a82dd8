#include "labels.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "expo.h"

/* Out of memory shows as an element that is not in the table: uthash takes it out again. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((void) (element))
#include <uthash.h>

enum {
    /* name="value" with every byte escaped, and a comma */
    LABEL_TEXT_MAX = SB_LABEL_NAME_MAX + 2 * SB_LABEL_VALUE_MAX + 4,
};

/* A set as the table keeps it, in one piece of memory: this, labels, text, names and values. */
struct node {
    struct sb_labelset set; /* first: a set's address is its node's */
    UT_hash_handle hh;
    struct sb_label labels[];
};
_Static_assert(offsetof(struct node, set) == 0, "a set's address is its node's");

struct sb_labelsets {
    struct node *by_text;
    struct sb_buf text; /* of the set that is asked for; kept, so that asking does not allocate */
};

struct sb_labelsets *sb_labelsets_new(void)
{
    struct sb_labelsets *self = calloc(1, sizeof *self);
    if (self)
        sb_buf_init(&self->text, (size_t) SB_LABELS_MAX * LABEL_TEXT_MAX);
    return self;
}

void sb_labelsets_destroy(struct sb_labelsets **self_p)
{
    struct sb_labelsets *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    struct node *node;
    struct node *next;
    HASH_ITER(hh, self->by_text, node, next)
    {
        HASH_DEL(self->by_text, node);
        free(node);
    }
    sb_buf_release(&self->text);
    free(self);
}

size_t sb_labelsets_count(const struct sb_labelsets *self)
{
    return HASH_COUNT(self->by_text);
}

void sb_label_draft_clear(struct sb_label_draft *draft)
{
    draft->n = 0;
}

enum sb_rc sb_label_draft_set(struct sb_label_draft *draft, const char *name, size_t name_len, const char *value,
                              size_t value_len, struct sb_text_faults *faults, struct sb_err *err)
{
    if (!sb_label_name_is_valid(name, name_len))
        return sb_fail(err, SB_FORMAT, "'%.*s' is not a label name", (int) (name_len < 80 ? name_len : 80), name);

    size_t i = 0;
    while (i < draft->n && (strncmp(draft->labels[i].name, name, name_len) != 0 || draft->labels[i].name[name_len]))
        i++;

    if (value_len == 0) {
        if (i < draft->n)
            draft->labels[i] = draft->labels[--draft->n];
        return SB_OK;
    }
    if (i == SB_LABELS_MAX)
        return sb_fail(err, SB_FULL, "there are more than %d labels", SB_LABELS_MAX);

    memcpy(draft->labels[i].name, name, name_len);
    draft->labels[i].name[name_len] = '\0';
    sb_text_clean(draft->labels[i].value, SB_LABEL_VALUE_MAX, value, value_len, faults);
    if (i == draft->n)
        draft->n++;
    return SB_OK;
}

/* The places of the draft's labels, in the order of their names. */
static void sort(const struct sb_label_draft *draft, uint8_t order[SB_LABELS_MAX])
{
    for (size_t i = 0; i < draft->n; i++) {
        size_t k = i;
        for (; k > 0 && strcmp(draft->labels[order[k - 1]].name, draft->labels[i].name) > 0; k--)
            order[k] = order[k - 1];
        order[k] = (uint8_t) i;
    }
}

static void put_set_text(struct sb_buf *out, const struct sb_label_draft *draft, const uint8_t *order)
{
    sb_buf_clear(out);
    for (size_t i = 0; i < draft->n; i++) {
        if (i > 0)
            sb_buf_put_byte(out, ',');
        sb_buf_put_text(out, draft->labels[order[i]].name);
        sb_buf_put(out, "=\"", 2);
        sb_expo_escape(out, draft->labels[order[i]].value);
        sb_buf_put_byte(out, '"');
    }
}

/* Copies the text with its NUL to *at and moves on. */
static const char *keep(char **at, const char *text)
{
    char *kept = *at;
    const size_t size = strlen(text) + 1;
    memcpy(kept, text, size);
    *at += size;
    return kept;
}

static struct node *node_new(const struct sb_label_draft *draft, const uint8_t *order, const struct sb_buf *text,
                             unsigned hash)
{
    size_t size = sizeof(struct node) + draft->n * sizeof(struct sb_label) + text->len + 1;
    for (size_t i = 0; i < draft->n; i++)
        size += strlen(draft->labels[i].name) + strlen(draft->labels[i].value) + 2;
    struct node *self = calloc(1, size);
    if (!self)
        return NULL;

    char *at = (char *) (self->labels + draft->n);
    if (text->len)
        memcpy(at, text->data, text->len); /* the NUL behind it is calloc's */
    self->set = (struct sb_labelset){
        .hash = hash,
        .n = (uint32_t) draft->n,
        .text_len = (uint32_t) text->len,
        .text = at,
        .labels = self->labels,
    };
    at += text->len + 1;
    for (size_t i = 0; i < draft->n; i++) {
        self->labels[i].name = keep(&at, draft->labels[order[i]].name);
        self->labels[i].value = keep(&at, draft->labels[order[i]].value);
    }
    return self;
}

struct sb_labelset *sb_labelsets_get(struct sb_labelsets *self, const struct sb_label_draft *draft)
{
    uint8_t order[SB_LABELS_MAX];
    sort(draft, order);
    put_set_text(&self->text, draft, order);
    if (self->text.is_overflow)
        return NULL; /* its limit holds every draft: memory ran out */

    /* The text is the key: it is whole, ordered and escaped, so equal texts are equal sets. */
    const char *key = self->text.len ? (const char *) self->text.data : "";
    unsigned hash;
    HASH_VALUE(key, self->text.len, hash);
    struct node *node;
    HASH_FIND_BYHASHVALUE(hh, self->by_text, key, self->text.len, hash, node);
    if (node)
        return sb_labelset_share(&node->set);

    node = node_new(draft, order, &self->text, hash);
    if (!node)
        return NULL;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, self->by_text, node->set.text, node->set.text_len, hash, node);
    if (!node->hh.tbl) {
        free(node);
        return NULL;
    }
    return sb_labelset_share(&node->set);
}

struct sb_labelset *sb_labelset_share(struct sb_labelset *set)
{
    set->refs++;
    return set;
}

void sb_labelsets_drop(struct sb_labelsets *self, struct sb_labelset **set_p)
{
    struct sb_labelset *set = *set_p;
    *set_p = NULL;
    if (!set)
        return;
    assert(set->refs > 0);
    if (--set->refs > 0)
        return;
    struct node *node = (struct node *) set;
    HASH_DEL(self->by_text, node);
    free(node);
}

const char *sb_labelset_value(const struct sb_labelset *set, const char *name)
{
    for (uint32_t i = 0; i < set->n; i++) {
        if (strcmp(set->labels[i].name, name) == 0)
            return set->labels[i].value;
    }
    return NULL;
}

void sb_labelset_pack(const struct sb_labelset *set, struct sb_buf *buf)
{
    sb_mp_put_map(buf, set->n);
    for (uint32_t i = 0; i < set->n; i++) {
        sb_mp_put_str(buf, set->labels[i].name);
        sb_mp_put_str(buf, set->labels[i].value);
    }
}

enum sb_rc sb_label_draft_read(struct sb_label_draft *draft, struct sb_mp *from, struct sb_text_faults *faults,
                               struct sb_err *err)
{
    struct sb_mp mp = *from;
    uint32_t n;
    if (!sb_mp_map(&mp, &n))
        return sb_fail(err, SB_FORMAT, "labels are not a map");
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice name;
        struct sb_slice value;
        if (!sb_mp_str(&mp, &name))
            return sb_fail(err, SB_FORMAT, "the name of a label is not a text");
        if (sb_mp_nil(&mp))
            continue;
        if (!sb_mp_str(&mp, &value))
            return sb_fail(err, SB_FORMAT, "the value of label '%.*s' is not a text",
                           (int) (name.len < 80 ? name.len : 80), name.at);
        const enum sb_rc rc = sb_label_draft_set(draft, name.at, name.len, value.at, value.len, faults, err);
        if (rc != SB_OK)
            return rc;
    }
    *from = mp;
    return SB_OK;
}
