#include "hub/view.h"

#include <stdlib.h>
#include <string.h>

#include "hub/windows.h"
#include "hub/workers.h"

enum { ROOM_SHARE = 8 }; /* one in so many empty groups goes at a time when memory is short */

static const char *const always[] = {"service_name", "model_name"};

/* What Prometheus and its operator set themselves, and the labels of a histogram's buckets, of quantiles and windows.
 */
static const char *const foreign[] = {"instance", "job",     "pod", "namespace", "container",
                                      "endpoint", "service", "le",  "quantile",  "window"};

static bool is_one_of(const char *label, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(label, names[i]) == 0)
            return true;
    }
    return false;
}

bool hub_label_is_in_every_view(const char *label)
{
    return is_one_of(label, always, SB_COUNT(always));
}

bool hub_label_is_foreign(const char *label)
{
    return is_one_of(label, foreign, SB_COUNT(foreign));
}

bool hub_view_reserves(const struct hub_view *self, const char *label)
{
    return is_one_of(label, self->labels, self->n_labels) || hub_label_is_foreign(label);
}

void hub_view_init(struct hub_view *self, const struct hub_view_spec *spec, unsigned number,
                   struct sb_labelsets *labelsets)
{
    *self = (struct hub_view){.spec = spec, .bit = number < HUB_VIEWS_MAX ? 1u << number : 0, .labelsets = labelsets};
    for (size_t i = 0; i < SB_COUNT(always); i++)
        self->labels[self->n_labels++] = always[i];
    for (size_t i = 0; i < spec->by.n; i++)
        self->labels[self->n_labels++] = spec->by.at[i];
    for (size_t i = 0; i < spec->n_renames; i++)
        self->labels[self->n_labels++] = spec->renames[i].label;
}

static void destroy_group(struct hub_view *self, struct hub_group *group)
{
    for (uint32_t i = 0; i < group->n_retired; i++) {
        sb_labelsets_drop(self->labelsets, &group->retired[i].role);
        hub_values_release(&group->retired[i].high);
        hub_values_release(&group->retired[i].low);
    }
    sb_labelsets_drop(self->labelsets, &group->labels);
    hub_workers_destroy(&group->workers);
    hub_track_destroy(&group->track, self->labelsets);
    free(group->retired);
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

bool hub_view_takes(const struct hub_view *self, const struct sb_labelset *identity)
{
    for (size_t i = 0; i < self->spec->n_where; i++) {
        const struct hub_where *where = &self->spec->where[i];
        const char *value = sb_labelset_value(identity, where->label);
        if (!is_one_of(value ? value : "", where->values.at, where->values.n))
            return false;
    }
    return true;
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

/* The label of the identity that a label of the view shows. */
static const char *source_of(const struct hub_view *self, const char *label)
{
    for (size_t i = 0; i < self->spec->n_renames; i++) {
        if (strcmp(self->spec->renames[i].label, label) == 0)
            return self->spec->renames[i].from;
    }
    return label;
}

struct sb_labelset *hub_view_row_labels(const struct hub_view *self, const struct sb_labelset *identity)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    for (uint32_t i = 0; i < self->n_labels; i++) {
        const char *value = sb_labelset_value(identity, source_of(self, self->labels[i]));
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
    group->idle_since_ms = HUB_NEVER_MS; /* what is dead when it is met has lingered elsewhere, or before */
    *labels = NULL;
    self->groups[self->n_groups++] = group;
    return group;
}

struct hub_group *hub_view_join(struct hub_view *self, struct hub_contribution *contribution,
                                const struct sb_labelset *identity)
{
    struct sb_labelset *labels = hub_view_row_labels(self, identity);
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

struct hub_group *hub_view_after(const struct hub_view *self, uint64_t id, size_t *at)
{
    bool is_there = *at < self->n_groups && self->groups[*at]->id > id && (*at == 0 || self->groups[*at - 1]->id <= id);
    if (!is_there)
        *at = place_after(self, id);
    return *at < self->n_groups ? self->groups[(*at)++] : NULL;
}

static void remove_group(struct hub_view *self, struct hub_group *group)
{
    size_t at = place_after(self, group->id - 1);
    self->n_groups--;
    memmove(&self->groups[at], &self->groups[at + 1], (self->n_groups - at) * sizeof self->groups[0]);
    hub_table_remove(&self->table, group->labels->hash, group);
    destroy_group(self, group);
}

void hub_view_leave(struct hub_view *self, struct hub_group *group, const struct hub_contribution *contribution)
{
    for (uint32_t i = 0; i < group->n_members; i++) {
        if (group->members[i] != contribution)
            continue;
        group->n_members--;
        group->n_moves++;
        memmove(&group->members[i], &group->members[i + 1], (group->n_members - i) * sizeof group->members[0]);
        break;
    }
    if (group->n_members == 0 && group->n_retired == 0)
        remove_group(self, group);
}

void hub_group_note_life(struct hub_group *group, bool is_live, int64_t now_ms)
{
    group->n_live = is_live ? group->n_live + 1 : group->n_live - 1;
    if (group->n_live == 0)
        group->idle_since_ms = now_ms;
}

static struct hub_retired *find_retired(const struct hub_group *group, const struct sb_labelset *role)
{
    for (uint32_t i = 0; i < group->n_retired; i++) {
        if (group->retired[i].role == role)
            return &group->retired[i];
    }
    return NULL;
}

struct hub_retired *hub_group_retired(struct hub_group *group, struct sb_labelset *role, const struct hub_values *like)
{
    struct hub_retired *found = find_retired(group, role);
    if (!found) {
        struct hub_retired *retired = realloc(group->retired, (group->n_retired + 1) * sizeof retired[0]);
        if (!retired)
            return NULL;
        group->retired = retired;
        found = &retired[group->n_retired++];
        *found = (struct hub_retired){.role = sb_labelset_share(role)};
    }
    return hub_values_reserve_like(&found->high, like) && hub_values_reserve_like(&found->low, like) ? found : NULL;
}

size_t hub_group_retired_bytes(const struct hub_group *group, const struct sb_labelset *role,
                               const struct hub_values *like)
{
    const struct hub_retired *found = find_retired(group, role);
    return hub_values_bytes_like(found ? &found->high : NULL, like) +
           hub_values_bytes_like(found ? &found->low : NULL, like);
}

bool hub_view_shows(const struct hub_view *self, const struct hub_group *group, int64_t now_ms, int64_t linger_ms)
{
    return self->spec->is_kept || group->n_live > 0 || now_ms - group->idle_since_ms < linger_ms;
}

static size_t retired_bytes(const struct hub_group *group)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < group->n_retired; i++)
        bytes += hub_values_bytes(&group->retired[i].high) + hub_values_bytes(&group->retired[i].low);
    return bytes;
}

/* Of empty groups, how many have been idle since this moment or longer. */
static size_t count_idle_since(const struct hub_view *self, int64_t since_ms)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n_groups; i++)
        n += self->groups[i]->n_members == 0 && self->groups[i]->idle_since_ms <= since_ms;
    return n;
}

/*
 * The first moment since which at least n (1 or more) empty groups have been idle. Found by halving, so that many rows
 * over the limit cost one sweep no more than few.
 */
static int64_t idle_moment(const struct hub_view *self, size_t n, int64_t now_ms)
{
    int64_t low = HUB_NEVER_MS;
    int64_t high = now_ms;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (count_idle_since(self, middle) >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void drop_group(struct hub_view *self, struct hub_group *group, size_t *bytes)
{
    *bytes += retired_bytes(group);
    hub_table_remove(&self->table, group->labels->hash, group);
    destroy_group(self, group);
}

/* Drops what isn't shown any more. Returns how many empty groups there are left. */
static size_t drop_hidden(struct hub_view *self, int64_t now_ms, int64_t linger_ms, size_t *bytes)
{
    size_t n_empty = 0;
    size_t kept = 0;
    for (size_t i = 0; i < self->n_groups; i++) {
        struct hub_group *group = self->groups[i];
        bool is_empty = group->n_members == 0;
        if (is_empty && !hub_view_shows(self, group, now_ms, linger_ms)) {
            drop_group(self, group, bytes);
            continue;
        }
        n_empty += is_empty;
        self->groups[kept++] = group;
    }
    self->n_groups = kept;
    return n_empty;
}

/* Drops the n empty groups that have been idle longest; of those idle since one moment, the first ones. */
static void drop_idle_longest(struct hub_view *self, size_t n, int64_t now_ms, size_t *bytes)
{
    int64_t moment_ms = idle_moment(self, n, now_ms);
    size_t n_at_moment = n - count_idle_since(self, moment_ms - 1);
    size_t kept = 0;
    for (size_t i = 0; i < self->n_groups; i++) {
        struct hub_group *group = self->groups[i];
        bool is_at_moment = group->idle_since_ms == moment_ms && n_at_moment > 0;
        if (group->n_members > 0 || (group->idle_since_ms >= moment_ms && !is_at_moment)) {
            self->groups[kept++] = group;
            continue;
        }
        n_at_moment -= is_at_moment;
        drop_group(self, group, bytes);
    }
    self->n_groups = kept;
}

size_t hub_view_sweep(struct hub_view *self, int64_t now_ms, int64_t linger_ms, size_t kept_max, size_t *bytes)
{
    *bytes = 0;
    size_t n_empty = drop_hidden(self, now_ms, linger_ms, bytes);
    if (n_empty <= kept_max)
        return 0;
    drop_idle_longest(self, n_empty - kept_max, now_ms, bytes);
    return n_empty - kept_max;
}

size_t hub_view_make_room(struct hub_view *self, int64_t now_ms, size_t *bytes)
{
    *bytes = 0;
    size_t n_empty = count_idle_since(self, INT64_MAX);
    if (n_empty == 0)
        return 0;
    size_t n = n_empty / ROOM_SHARE + 1;
    drop_idle_longest(self, n, now_ms, bytes);
    return n;
}
