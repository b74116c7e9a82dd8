#include "hub/stat_table.h"

#include <stdlib.h>
#include <string.h>

enum { SOURCES_A_PIECE = 256 };

/* What a contribution had when it was looked at last. */
struct hub_stat_seen {
    int64_t round_ms;
    struct sb_statline line;
};

void hub_stat_table_init(struct hub_stat_table *self, int64_t period_ms,
                         void (*say)(void *arg, const struct sb_labelset *labels, uint32_t n_sources, const char *text),
                         void *arg)
{
    *self = (struct hub_stat_table){
        .period_ms = period_ms, .round_ms = INT64_MIN / 2, .before_ms = INT64_MIN / 2, .say = say, .arg = arg};
}

static void drop_rows(struct hub_stat_table *self, struct hub_store *store)
{
    for (uint32_t i = 0; i < self->n_rows; i++)
        sb_labelsets_drop(store->index.labelsets, &self->rows[i].labels);
    self->n_rows = self->n_left_out = 0;
}

void hub_stat_table_release(struct hub_stat_table *self, struct hub_store *store)
{
    drop_rows(self, store);
}

void hub_stat_table_begin(struct hub_stat_table *self, const struct hub_store *store, int64_t now_ms)
{
    if (self->is_under_way || self->period_ms == 0 || now_ms - self->round_ms < self->period_ms)
        return;
    self->is_under_way = true;
    self->before_ms = self->round_ms;
    self->round_ms = now_ms;
    self->source = 0;
    for (size_t i = 0; i < SB_STATS; i++)
        self->families[i] = hub_index_find(&store->index, sb_stat_family((enum sb_stat) i));
}

static void read_counts(const struct hub_family *family, const struct hub_values *values, enum sb_stat stat,
                        struct sb_statline *out)
{
    for (uint32_t v = 0; v < family->n_variants; v++) {
        for (uint32_t s = 0; s < family->variants[v]->n_series; s++) {
            double value;
            if (hub_values_read(values, family->variants[v]->series[s]->first, 1, &value))
                sb_statline_put(out, stat, value);
        }
    }
}

static void read_gauges(const struct hub_family *family, const struct hub_values *values, enum sb_stat stat,
                        struct sb_statline *out)
{
    uint32_t n;
    const struct hub_gauge *gauges = hub_values_gauges(values, family->id, &n);
    for (uint32_t i = 0; i < n; i++)
        sb_statline_put(out, stat, gauges[i].value);
}

/* Gauges are those of sources that live, one contribution a source. */
static struct sb_statline read_line(const struct hub_stat_table *self, const struct hub_contribution *of)
{
    struct sb_statline line = {0};
    for (size_t i = 0; i < SB_STATS; i++) {
        const struct hub_family *family = self->families[i];
        const bool is_count = sb_stat_is_count((enum sb_stat) i);
        if (!family || (family->type == SB_COUNTER) != is_count || family->type == SB_HISTOGRAM)
            continue;
        if (is_count)
            read_counts(family, &of->values, (enum sb_stat) i, &line);
        else if (of->is_live && of->source->shown == of)
            read_gauges(family, &of->values, (enum sb_stat) i, &line);
    }
    return line;
}

static struct sb_labelset *labels_of(struct hub_store *store, const struct sb_labelset *identity)
{
    static const char *const names[] = {"service_name", "model_name", "stage", "role", "node"};
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const char *value = sb_labelset_value(identity, names[i]);
        if (value && sb_label_draft_set(&draft, names[i], strlen(names[i]), value, strlen(value), NULL, NULL) != SB_OK)
            return NULL;
    }
    return sb_labelsets_get(store->index.labelsets, &draft);
}

/* NULL: there is no room for one more, or no memory. */
static struct hub_stat_row *row_of(struct hub_stat_table *self, struct hub_store *store,
                                   const struct sb_labelset *identity)
{
    struct sb_labelset *labels = labels_of(store, identity);
    uint32_t at = 0;
    while (labels && at < self->n_rows && self->rows[at].labels != labels)
        at++;
    const bool is_new = at == self->n_rows;
    if (labels && (!is_new || at == HUB_STAT_ROWS_MAX))
        sb_labelsets_drop(store->index.labelsets, &labels);
    if (at == HUB_STAT_ROWS_MAX || (is_new && !labels))
        return NULL;
    if (is_new)
        self->rows[self->n_rows++] = (struct hub_stat_row){.labels = labels};
    return &self->rows[at];
}

static void look_at(struct hub_stat_table *self, struct hub_store *store, struct hub_contribution *each)
{
    const struct sb_statline now = read_line(self, each);
    const struct sb_statline nothing = {0};
    const bool was_seen = each->stats && each->stats->round_ms == self->before_ms;
    const struct sb_statline line = sb_statline_since(&now, was_seen ? &each->stats->line : &nothing);
    if (!each->stats)
        each->stats = malloc(sizeof *each->stats); /* without memory it is as new the next time */
    if (each->stats)
        *each->stats = (struct hub_stat_seen){.round_ms = self->round_ms, .line = now};
    if (sb_statline_is_empty(&line))
        return;
    struct hub_stat_row *row = row_of(self, store, each->identity);
    if (!row) {
        self->n_left_out += each->is_live;
        return;
    }
    row->n_sources += each->is_live;
    sb_statline_add(&row->line, &line);
}

static int compare_rows(const void *left, const void *right)
{
    const struct hub_stat_row *a = left;
    const struct hub_stat_row *b = right;
    return strcmp(a->labels->text, b->labels->text);
}

static void say_all(struct hub_stat_table *self)
{
    char text[SB_STATLINE_MAX];
    qsort(self->rows, self->n_rows, sizeof self->rows[0], compare_rows);
    for (uint32_t i = 0; i < self->n_rows; i++) {
        const struct hub_stat_row *row = &self->rows[i];
        if (row->n_sources == 0)
            continue;
        sb_statline_text(&row->line, (double) (self->round_ms - self->before_ms) / 1000, text);
        self->say(self->arg, row->labels, row->n_sources, text);
    }
    if (self->n_left_out > 0)
        self->say(self->arg, NULL, self->n_left_out, "");
}

bool hub_stat_table_go_on(struct hub_stat_table *self, struct hub_store *store)
{
    if (!self->is_under_way)
        return false;
    size_t at = hub_store_source_after(store, self->source);
    for (size_t n = 0; at < store->n_sources; at++, n++) {
        if (n == SOURCES_A_PIECE)
            return true;
        const struct hub_source *source = store->source_list[at];
        for (uint32_t i = 0; i < source->n_contributions; i++)
            look_at(self, store, source->contributions[i]);
        self->source = source->id;
    }
    say_all(self);
    drop_rows(self, store);
    self->is_under_way = false;
    return false;
}
