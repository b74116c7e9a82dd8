#include "hub/view.h"

#include <stdlib.h>
#include <string.h>

const struct hub_view_spec hub_views[] = {
    {.name = "full", .has_own = true},
    {.name = "dp", .labels = {"dp_rank", "role", "instance_id", "pod_ip"}},
};
const size_t hub_views_count = SB_COUNT(hub_views);
_Static_assert(SB_COUNT(hub_views) <= HUB_VIEWS_MAX, "a view is one bit");

static const char *const always[] = {"service_name", "model_name"};

/* What Prometheus and its operator set themselves, and the label of a histogram's buckets. */
static const char *const foreign[] = {"instance", "job", "pod", "namespace", "container", "endpoint", "service", "le"};

void hub_view_init(struct hub_view *self, const struct hub_view_spec *spec, unsigned number,
                   struct sb_labelsets *labelsets)
{
    *self = (struct hub_view){.spec = spec, .bit = 1u << number, .labelsets = labelsets};
    for (size_t i = 0; i < SB_COUNT(always); i++)
        self->labels[self->n_labels++] = always[i];
    for (size_t i = 0; i < HUB_VIEW_LABELS_MAX && spec->labels[i]; i++)
        self->labels[self->n_labels++] = spec->labels[i];
}

static void destroy_group(struct hub_view *self, struct hub_group *group)
{
    sb_labelsets_drop(self->labelsets, &group->labels);
    free(group->members);
    free(group);
}

void hub_view_release(struct hub_view *self)
{
    for (size_t i = 0; i < self->n_groups; i++)
        destroy_group(self, self->groups[i]);
    free(self->groups);
    hub_table_release(&self->table);
    *self = (struct hub_view){0};
}

bool hub_view_reserves(const struct hub_view *self, const char *label)
{
    for (uint32_t i = 0; i < self->n_labels; i++) {
        if (strcmp(label, self->labels[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < SB_COUNT(foreign); i++) {
        if (strcmp(label, foreign[i]) == 0)
            return true;
    }
    return false;
}

static bool group_is(const void *item, const void *key)
{
    return ((const struct hub_group *) item)->labels == key;
}

static bool reserve_group(struct hub_view *self)
{
    if (self->n_groups < self->cap_groups)
        return true;
    size_t cap = self->cap_groups ? self->cap_groups * 2 : 8;
    struct hub_group **groups = realloc(self->groups, cap * sizeof groups[0]);
    if (!groups)
        return false;
    self->groups = groups;
    self->cap_groups = cap;
    return true;
}

static bool reserve_member(struct hub_group *group)
{
    if (group->n_members < group->cap_members)
        return true;
    uint32_t cap = group->cap_members ? group->cap_members * 2 : 1;
    struct hub_contribution **members = realloc(group->members, cap * sizeof members[0]);
    if (!members)
        return false;
    group->members = members;
    group->cap_members = cap;
    return true;
}

/* The labels of the row that an identity belongs to. */
static struct sb_labelset *row_labels(const struct hub_view *self, const struct sb_labelset *identity)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    for (uint32_t i = 0; i < self->n_labels; i++) {
        const char *value = sb_labelset_value(identity, self->labels[i]);
        if (value && sb_label_draft_set(&draft, self->labels[i], strlen(self->labels[i]), value, strlen(value), NULL,
                                        NULL) != SB_OK)
            return NULL;
    }
    return sb_labelsets_get(self->labelsets, &draft);
}

static struct hub_group *add_group(struct hub_view *self, struct sb_labelset **labels)
{
    struct hub_group *group = calloc(1, sizeof *group);
    if (!group || !reserve_group(self) || !reserve_member(group) ||
        !hub_table_add(&self->table, (*labels)->hash, group)) {
        if (group)
            free(group->members);
        free(group);
        return NULL;
    }
    group->id = ++self->last_id;
    group->labels = *labels;
    *labels = NULL;
    self->groups[self->n_groups++] = group;
    return group;
}

struct hub_group *hub_view_join(struct hub_view *self, struct hub_contribution *contribution,
                                const struct sb_labelset *identity)
{
    struct sb_labelset *labels = row_labels(self, identity);
    if (!labels)
        return NULL;
    struct hub_group *group = hub_table_find(&self->table, labels->hash, group_is, labels);
    if (!group)
        group = add_group(self, &labels);
    if (labels)
        sb_labelsets_drop(self->labelsets, &labels);
    if (!group || !reserve_member(group))
        return NULL;
    group->members[group->n_members++] = contribution;
    return group;
}

/* The place of the first group with an id above this one. */
static size_t place_after(const struct hub_view *self, uint64_t id)
{
    size_t low = 0;
    size_t high = self->n_groups;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->groups[middle]->id <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct hub_group *hub_view_after(const struct hub_view *self, uint64_t id)
{
    size_t at = place_after(self, id);
    return at < self->n_groups ? self->groups[at] : NULL;
}

void hub_view_leave(struct hub_view *self, struct hub_group *group, const struct hub_contribution *contribution)
{
    for (uint32_t i = 0; i < group->n_members; i++) {
        if (group->members[i] != contribution)
            continue;
        group->n_members--;
        memmove(&group->members[i], &group->members[i + 1], (group->n_members - i) * sizeof group->members[0]);
        break;
    }
    if (group->n_members > 0)
        return;
    size_t at = place_after(self, group->id - 1);
    self->n_groups--;
    memmove(&self->groups[at], &self->groups[at + 1], (self->n_groups - at) * sizeof self->groups[0]);
    hub_table_remove(&self->table, group->labels->hash, group);
    destroy_group(self, group);
}
