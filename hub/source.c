/* What is known of a source beside its numbers: its lives, and what agents count about it (store.h). */
#include <string.h>

#include "hub/store.h"

size_t hub_store_source_after(const struct hub_store *self, uint64_t id)
{
    size_t low = 0;
    size_t high = self->n_sources;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->source_list[middle]->id <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool hub_store_count_of(const struct hub_store *self, const struct hub_contribution *contribution,
                        enum sb_agent_count what, double *out)
{
    const struct hub_family *family = self->index.counts[what];
    const struct hub_variant *variant = family && family->n_variants > 0 ? family->variants[0] : NULL;
    return variant && variant->n_series > 0 &&
           hub_values_read(&contribution->values, variant->series[0]->first, 1, out);
}

static const char *instance_of(const struct sb_labelset *identity)
{
    const char *instance = sb_labelset_value(identity, "instance_id");
    return instance ? instance : "";
}

static bool is_same_life(const struct sb_labelset *one, const struct sb_labelset *other)
{
    return strcmp(instance_of(one), instance_of(other)) == 0;
}

/* The key's labels, and the model's name. NULL: out of memory. */
static struct sb_labelset *row_of(struct hub_store *self, const struct hub_contribution *contribution)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    const struct sb_labelset *key = contribution->source->key;
    for (uint32_t i = 0; i < key->n; i++) {
        const struct sb_label *label = &key->labels[i];
        if (sb_label_draft_set(&draft, label->name, strlen(label->name), label->value, strlen(label->value), NULL,
                               NULL) != SB_OK)
            return NULL;
    }
    const char *model = sb_labelset_value(contribution->identity, "model_name");
    if (model &&
        sb_label_draft_set(&draft, "model_name", strlen("model_name"), model, strlen(model), NULL, NULL) != SB_OK)
        return NULL;
    return sb_labelsets_get(self->index.labelsets, &draft);
}

static bool make_current(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_source *source = contribution->source;
    struct sb_labelset *row = row_of(self, contribution);
    if (!row)
        return false;
    if (source->row)
        sb_labelsets_drop(self->index.labelsets, &source->row);
    if (source->identity)
        sb_labelsets_drop(self->index.labelsets, &source->identity);
    source->row = row;
    source->identity = sb_labelset_share(contribution->identity);
    source->current = contribution;
    self->n_lives++;
    return true;
}

/* All that is known of it was over when it was met, as after a restart of the hub. */
static bool has_never_lived(const struct hub_source *source)
{
    return source->n_live == 0 && source->idle_since_ms == HUB_NEVER_MS;
}

bool hub_source_meet(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_source *source = contribution->source;
    bool is_new = !source->row;
    bool is_known = !is_new && is_same_life(source->identity, contribution->identity);
    for (uint32_t i = 0; i < source->n_contributions; i++)
        is_known = is_known || is_same_life(source->contributions[i]->identity, contribution->identity);
    bool is_latest = !source->current || (source->current->is_ended && has_never_lived(source));
    if (is_latest && !make_current(self, contribution))
        return false;
    source->n_incarnations += !is_known;
    if (is_new) {
        source->idle_since_ms = HUB_NEVER_MS; /* one that has ended when it is met has lingered before */
        source->seen_ms = self->now_ms;
    }
    return true;
}

void hub_source_note_life(struct hub_store *self, struct hub_contribution *contribution, bool is_live)
{
    struct hub_source *source = contribution->source;
    source->n_live = is_live ? source->n_live + 1 : source->n_live - 1;
    if (!is_live) {
        if (contribution->lineage->heard_ms > source->seen_ms)
            source->seen_ms = contribution->lineage->heard_ms;
        if (source->n_live == 0)
            source->idle_since_ms = self->now_ms;
        return;
    }
    bool is_conflict = false;
    for (uint32_t i = 0; i < source->n_contributions; i++) {
        const struct hub_contribution *other = source->contributions[i];
        is_conflict = is_conflict || (other->is_live && !is_same_life(other->identity, contribution->identity));
    }
    source->n_conflicts += is_conflict;
    if (source->current != contribution && !make_current(self, contribution))
        return; /* out of memory: its row goes on under the labels that it had */
}

void hub_source_note_end(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_source *source = contribution->source;
    if (source->current != contribution || !has_never_lived(source))
        return;
    for (uint32_t i = source->n_contributions; i-- > 0;) {
        struct hub_contribution *other = source->contributions[i];
        if (other->is_ended)
            continue;
        if (!make_current(self, other))
            source->current = other;
        return;
    }
}

/* Of those that are left: the last that lives, or else the last. */
static struct hub_contribution *successor(const struct hub_source *source)
{
    for (uint32_t i = source->n_contributions; i-- > 0;) {
        if (source->contributions[i]->is_live)
            return source->contributions[i];
    }
    return source->contributions[source->n_contributions - 1];
}

void hub_source_leave(struct hub_store *self, struct hub_contribution *contribution)
{
    struct hub_source *source = contribution->source;
    for (int what = SB_AGENT_COUNT_NONE + 1; what < SB_AGENT_COUNTS; what++) {
        double value;
        if (!hub_store_count_of(self, contribution, (enum sb_agent_count) what, &value))
            continue;
        source->retired[what] += value;
        source->has_retired[what] = true;
    }
    if (source->n_contributions == 0) {
        source->current = NULL;
        if (!contribution->is_ended)
            source->idle_since_ms = self->now_ms; /* it was told of until now */
        return;
    }
    if (source->current != contribution)
        return;
    struct hub_contribution *next = successor(source);
    if (!make_current(self, next))
        source->current = next;
}

bool hub_source_is_shown(const struct hub_store *self, const struct hub_source *source, int64_t now_ms)
{
    bool is_silent = source->current && !source->current->is_ended;
    return source->n_live > 0 || is_silent || now_ms - source->idle_since_ms < self->linger_ms;
}
