#include "hub/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/merge.h"

/* A row of several contributions, added up. */
struct fold {
    uint64_t group;
    struct hub_values values;
};

enum stage { STAGE_FAMILIES, STAGE_OWN, STAGE_DONE };

struct hub_scrape {
    struct hub_store *store; /* borrowed, as the view is */
    const struct hub_view *view;
    enum sb_expo_format format;
    hub_scrape_own own;
    void *own_arg;
    enum stage stage;
    /* The cursor: the family that is being printed (or was last), by name, and the last row of it. */
    bool is_in_family;
    bool has_header;
    uint64_t last_group;
    /* And where in that row to go on: a row may have thousands of series. */
    bool is_in_row;
    uint32_t variant;
    uint32_t series;
    char family[SB_EXPO_NAME_MAX];
    struct hub_table folds; /* by group id */
    struct sb_buf scratch;  /* labels that are printed under other names */
};

/* A row of a family, about to be printed. */
struct row {
    struct hub_scrape *scrape;
    struct sb_expo expo;
    const struct hub_family *family;
    const struct hub_group *group;
    const struct hub_values *values;
    bool has_gauges;
};

struct hub_scrape *hub_scrape_new(struct hub_store *store, const struct hub_view *view, enum sb_expo_format format,
                                  hub_scrape_own own, void *own_arg)
{
    struct hub_scrape *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (struct hub_scrape){.store = store, .view = view, .format = format, .own = own, .own_arg = own_arg};
    sb_buf_init(&self->scratch, SB_LABELS_MAX * (2 * SB_LABEL_VALUE_MAX + 2 * SB_LABEL_NAME_MAX));
    return self;
}

void hub_scrape_destroy(struct hub_scrape **self_p)
{
    struct hub_scrape *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    size_t at = 0;
    for (struct fold *fold; (fold = hub_table_next(&self->folds, &at)) != NULL;) {
        hub_values_release(&fold->values);
        free(fold);
    }
    hub_table_release(&self->folds);
    sb_buf_release(&self->scratch);
    free(self);
}

static bool fold_is(const void *item, const void *key)
{
    return ((const struct fold *) item)->group == *(const uint64_t *) key;
}

static uint64_t group_hash(uint64_t id)
{
    return hub_hash(&id, sizeof id, 0);
}

/* Adds a group up. NULL: out of memory; its row is missing from this scrape. */
static const struct hub_values *add_fold(struct hub_scrape *self, const struct hub_group *group)
{
    struct hub_part *parts = calloc(group->n_members, sizeof parts[0]);
    struct fold *fold = calloc(1, sizeof *fold);
    if (!parts || !fold)
        goto failed;
    for (uint32_t i = 0; i < group->n_members; i++) {
        const struct hub_contribution *member = group->members[i];
        parts[i] = (struct hub_part){.values = &member->values, .has_gauges = member->source->shown == member};
    }
    fold->group = group->id;
    if (!hub_values_fold(&fold->values, parts, group->n_members, self->store->index.aggregates))
        goto failed;
    if (!hub_table_add(&self->folds, group_hash(group->id), fold)) {
        hub_values_release(&fold->values);
        goto failed;
    }
    free(parts);
    return &fold->values;

failed:
    free(parts);
    free(fold);
    return NULL;
}

/* The numbers of a row; a row that was added up once stays so for the whole scrape. */
static const struct hub_values *row_values(struct hub_scrape *self, const struct hub_group *group, bool *has_gauges)
{
    const struct fold *fold = hub_table_find(&self->folds, group_hash(group->id), fold_is, &group->id);
    *has_gauges = true;
    if (fold)
        return &fold->values;
    if (group->n_members > 1)
        return add_fold(self, group);
    const struct hub_contribution *only = group->members[0];
    *has_gauges = only->source->shown == only;
    return &only->values;
}

/* Does the view print any of the series' own labels under another name? Looked up once a series and view. */
static bool is_renamed(struct hub_series *series, const struct hub_view *view)
{
    if (!(series->checked_views & view->bit)) {
        series->checked_views |= view->bit;
        for (uint32_t i = 0; i < series->labels->n; i++) {
            if (hub_view_reserves(view, series->labels->labels[i].name))
                series->renamed_views |= view->bit;
        }
    }
    return series->renamed_views & view->bit;
}

static void put_renamed(struct hub_scrape *self, const struct sb_labelset *labels)
{
    sb_buf_clear(&self->scratch);
    for (uint32_t i = 0; i < labels->n; i++) {
        const struct sb_label *label = &labels->labels[i];
        if (i > 0)
            sb_buf_put_byte(&self->scratch, ',');
        if (hub_view_reserves(self->view, label->name)) {
            sb_buf_put_text(&self->scratch, "exported_");
            /* A label that has the new name already: once more, as Prometheus does it. */
            char twin[sizeof "exported_" + SB_LABEL_NAME_MAX];
            snprintf(twin, sizeof twin, "exported_%s", label->name);
            if (sb_labelset_value(labels, twin))
                sb_buf_put_text(&self->scratch, "exported_");
        }
        sb_buf_put_text(&self->scratch, label->name);
        sb_buf_put_text(&self->scratch, "=\"");
        sb_expo_escape(&self->scratch, label->value);
        sb_buf_put_byte(&self->scratch, '"');
    }
}

/* The labels of a line: the row's, then the series' own. */
static struct sb_expo_labels line_labels(const struct row *row, struct hub_series *series)
{
    const struct sb_labelset *of_row = row->group->labels;
    const struct sb_labelset *own = series->labels;
    struct sb_expo_labels labels = {.text = {of_row->text, own->text, ""}, .len = {of_row->text_len, own->text_len, 0}};
    if (is_renamed(series, row->scrape->view)) {
        put_renamed(row->scrape, own);
        labels.text[1] = (const char *) row->scrape->scratch.data;
        labels.len[1] = (uint32_t) row->scrape->scratch.len;
    }
    return labels;
}

/* HELP and TYPE come once, before the first line of the family. */
static void put_header(const struct row *row)
{
    if (row->scrape->has_header)
        return;
    row->scrape->has_header = true;
    sb_expo_family(&row->expo, row->family->name, row->family->type, row->family->unit, row->family->help);
}

static void put_gauges(const struct row *row)
{
    uint32_t n;
    const struct hub_gauge *gauges = hub_values_gauges(row->values, row->family->id, &n);
    if (!row->has_gauges || n == 0)
        return;
    put_header(row);
    for (uint32_t i = 0; i < n; i++) {
        struct sb_expo_labels labels = line_labels(row, row->scrape->store->index.series_of_gauge[gauges[i].id]);
        sb_expo_value(&row->expo, row->family->name, &labels, gauges[i].value);
    }
}

static bool is_full(const struct row *row)
{
    return row->expo.out->len >= HUB_CHUNK_BYTES;
}

static void put_histogram(const struct row *row, const struct hub_merge *merge, struct hub_series *series)
{
    double cells[SB_BOUNDS_MAX + 2];
    const struct sb_bounds *bounds;
    if (!hub_merge_read(merge, row->scrape->variant, series, &bounds, cells))
        return;
    put_header(row);
    struct sb_expo_labels labels = line_labels(row, series);
    sb_expo_histogram(&row->expo, row->family->name, &labels, bounds, cells, cells[bounds->n + 1]);
}

static void put_counter(const struct row *row, struct hub_series *series)
{
    double value;
    if (!hub_values_read(row->values, series->first, 1, &value))
        return;
    put_header(row);
    struct sb_expo_labels labels = line_labels(row, series);
    sb_expo_value(&row->expo, row->family->name, &labels, value);
}

/* Prints series of a row from where the cursor stands. True: the piece is full, more of the row may follow. */
static bool put_series(const struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    struct hub_merge merge;
    if (!hub_merge_begin(&merge, &scrape->store->index, row->family, row->values))
        return false; /* out of memory: the row is missing from this scrape */
    for (; scrape->variant < row->family->n_variants && !is_full(row); scrape->variant++, scrape->series = 0) {
        const struct hub_variant *variant = row->family->variants[scrape->variant];
        for (; scrape->series < variant->n_series && !is_full(row); scrape->series++) {
            if (variant->bounds)
                put_histogram(row, &merge, variant->series[scrape->series]);
            else
                put_counter(row, variant->series[scrape->series]);
        }
        if (scrape->series < variant->n_series)
            break;
    }
    hub_merge_end(&merge);
    return scrape->variant < row->family->n_variants;
}

static bool put_row(const struct row *row)
{
    if (row->family->type != SB_GAUGE)
        return put_series(row);
    put_gauges(row);
    return false;
}

/* The row that the cursor stands in, or the next one; NULL after the last. */
static const struct hub_group *current_group(struct hub_scrape *self)
{
    const struct hub_group *group =
        hub_view_after(self->view, self->is_in_row ? self->last_group - 1 : self->last_group);
    if (!group || (self->is_in_row && group->id == self->last_group))
        return group;
    self->last_group = group->id; /* of a row that has gone meanwhile, the rest is missing */
    self->variant = self->series = 0;
    return group;
}

/* Prints rows of a family until the piece is full (true) or the family is done (false). */
static bool put_rows(struct hub_scrape *self, const struct hub_family *family, struct sb_buf *out)
{
    struct row row = {.scrape = self, .expo = {.out = out, .format = self->format}, .family = family};
    for (;;) {
        row.group = current_group(self);
        if (!row.group)
            return false;
        row.values = row_values(self, row.group, &row.has_gauges);
        self->is_in_row = row.values && put_row(&row);
        if (is_full(&row))
            return true;
    }
}

/* The family that the cursor stands in, or the next one; NULL after the last. */
static const struct hub_family *current_family(struct hub_scrape *self)
{
    const struct hub_index *index = &self->store->index;
    const struct hub_family *family = self->is_in_family ? hub_index_find(index, self->family) : NULL;
    if (family)
        return family;
    family = hub_index_after(index, self->family[0] ? self->family : NULL);
    if (!family)
        return NULL;
    memcpy(self->family, family->name, strlen(family->name) + 1);
    self->is_in_family = true;
    self->has_header = false;
    self->last_group = 0;
    return family;
}

bool hub_scrape_next(struct hub_scrape *self, struct sb_buf *out)
{
    while (self->stage == STAGE_FAMILIES) {
        const struct hub_family *family = current_family(self);
        if (!family) {
            self->stage = STAGE_OWN;
            break;
        }
        if (put_rows(self, family, out))
            return true;
        self->is_in_family = self->is_in_row = false;
    }
    if (self->stage == STAGE_OWN) {
        struct sb_expo expo = {.out = out, .format = self->format};
        if (self->own)
            self->own(self->own_arg, &expo);
        sb_expo_end(&expo);
        self->stage = STAGE_DONE;
    }
    return false;
}
