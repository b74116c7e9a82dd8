#include "hub/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/derive.h"
#include "hub/merge.h"
#include "hub/rows.h"
#include "hub/sources.h"
#include "hub/windows.h"

enum stage { STAGE_FAMILIES, STAGE_SOURCES, STAGE_OWN, STAGE_DONE };

struct hub_scrape {
    struct hub_store *store; /* borrowed, as the view is */
    const struct hub_view *view;
    enum sb_expo_format format;
    hub_scrape_own own;
    void *own_arg;
    enum stage stage;
    struct sb_arena arena; /* of the query's texts */
    struct hub_query query;
    struct hub_rows rows;
    struct hub_sources_cursor sources;
    /* The cursor: the entry that is being printed (or was last), by name and, while entries are as many as they were,
     * by the place after it; and where in its rows. */
    char name[SB_EXPO_NAME_MAX];
    uint32_t window;
    uint32_t next;
    uint32_t n_entries;
    bool is_in_entry;
    bool has_header;
    uint64_t from; /* the row to go on with, or the next one after it */
    /* And where in that row to go on: a row may have thousands of series. */
    uint64_t in_row; /* 0: at the start of a row */
    uint32_t variant;
    uint32_t series;            /* of that variant; of a gauge its id */
    bool is_cut;                /* what is left can't be had */
    size_t piece_from;          /* where this piece starts in what it is appended to */
    struct sb_buf scratch;      /* labels that are printed under other names */
    struct hub_values windowed; /* what the row has of the entry's families within its window */
};

/* A row of an entry, about to be printed. */
struct row {
    struct hub_scrape *scrape;
    struct sb_expo expo;
    const struct hub_entry *entry;
    const struct hub_family *family; /* whose series are walked: the entry's, or its denominator */
    const struct hub_group *group;
    struct hub_row numbers;    /* of that family */
    struct hub_row numerators; /* of a ratio */
    double total;              /* of a share */
};

struct hub_scrape *hub_scrape_new(struct hub_store *store, const struct hub_ask *ask)
{
    const struct hub_query everything = {.view = ask->view->spec};
    struct hub_scrape *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (struct hub_scrape){
        .store = store, .view = ask->view, .format = ask->format, .own = ask->own, .own_arg = ask->own_arg};
    sb_arena_init(&self->arena);
    sb_buf_init(&self->scratch, SB_LABELS_MAX * (2 * SB_LABEL_VALUE_MAX + 2 * SB_LABEL_NAME_MAX));
    hub_computed_look_up(store);
    hub_rows_init(&self->rows, store, ask->view, &self->query, ask->memory, ask->now_ms);
    if (!hub_query_copy(&self->query, ask->query ? ask->query : &everything, &self->arena))
        hub_scrape_destroy(&self);
    return self;
}

void hub_scrape_destroy(struct hub_scrape **self_p)
{
    struct hub_scrape *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    hub_rows_release(&self->rows);
    sb_buf_release(&self->scratch);
    hub_values_release(&self->windowed);
    sb_arena_release(&self->arena);
    free(self);
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
    struct sb_expo_labels labels = {.text = {of_row->text, own->text, row->entry->label},
                                    .len = {of_row->text_len, own->text_len, (uint32_t) strlen(row->entry->label)}};
    if (is_renamed(series, row->scrape->view)) {
        put_renamed(row->scrape, own);
        labels.text[1] = (const char *) row->scrape->scratch.data;
        labels.len[1] = (uint32_t) row->scrape->scratch.len;
    }
    return labels;
}

/* HELP and TYPE come once, before the first line of the entry. */
static void put_header(const struct row *row)
{
    if (row->scrape->has_header)
        return;
    row->scrape->has_header = true;
    const char *unit = row->entry->how == HUB_FAMILY_ITSELF ? row->family->unit : NULL;
    sb_expo_family(&row->expo, row->entry->name, row->entry->type, unit, row->entry->help);
}

static void put_value(const struct row *row, struct hub_series *series, double value)
{
    put_header(row);
    struct sb_expo_labels labels = line_labels(row, series);
    sb_expo_value(&row->expo, row->entry->name, &labels, value);
}

/* A line without labels of its own but the entry's. */
static void put_line_of_row(const struct row *row, double value)
{
    put_header(row);
    const char *label = row->entry->label;
    const struct sb_expo_labels labels = {.text = {row->group->labels->text, "", label},
                                          .len = {row->group->labels->text_len, 0, (uint32_t) strlen(label)}};
    sb_expo_value(&row->expo, row->entry->name, &labels, value);
}

/* By what was printed, or looked at. */
static bool is_full(const struct row *row)
{
    return row->expo.out->len - row->scrape->piece_from >= HUB_CHUNK_BYTES || hub_rows_is_turn_over(&row->scrape->rows);
}

/* A gauge, or its largest value over the row's sources; from where the cursor stands. True: the piece is full, more of
 * the row may follow. */
static bool put_gauges(const struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    uint32_t n;
    const struct hub_values *values = row->numbers.values;
    const struct hub_gauge *gauges = hub_values_gauges(values, row->family->id, &n);
    const double *maxima = row->entry->how == HUB_MAX ? row->numbers.maxima : NULL;
    for (uint32_t i = 0; row->numbers.has_gauges && i < n; i++) {
        if (gauges[i].id < scrape->series)
            continue;
        if (is_full(row))
            return true;
        hub_rows_look(&scrape->rows);
        double value = maxima ? maxima[&gauges[i] - values->gauges] : gauges[i].value;
        put_value(row, scrape->store->index.series_of_gauge[gauges[i].id], value);
        scrape->series = gauges[i].id + 1;
    }
    return false;
}

static void put_whole_histogram(const struct row *row, struct hub_series *series, const struct sb_bounds *bounds,
                                const double *cells)
{
    put_header(row);
    struct sb_expo_labels labels = line_labels(row, series);
    double sum = cells[bounds->n + 1];
    if (row->scrape->view->spec->has_buckets) {
        sb_expo_histogram(&row->expo, row->entry->name, &labels, bounds, cells, sum);
        return;
    }
    sb_expo_histogram_totals(&row->expo, row->entry->name, &labels, hub_count(bounds, cells), sum);
}

static bool derive(const struct hub_entry *entry, const struct sb_bounds *bounds, const double *cells, double *out)
{
    if (entry->how == HUB_QUANTILE)
        return hub_quantile(bounds, cells, entry->quantile, out);
    if (entry->how == HUB_WITHIN)
        return hub_within(bounds, cells, entry->derived->bound, out);
    return hub_mean(bounds, cells, cells[bounds->n + 1], out);
}

static void put_histogram(const struct row *row, const struct hub_merge *merge, struct hub_series *series)
{
    double cells[SB_BOUNDS_MAX + 2];
    const struct sb_bounds *bounds;
    double value;
    if (!hub_merge_read(merge, row->scrape->variant, series, &bounds, cells))
        return;
    if (row->entry->how == HUB_FAMILY_ITSELF)
        put_whole_histogram(row, series, bounds, cells);
    else if (derive(row->entry, bounds, cells, &value))
        put_value(row, series, value);
}

static void put_ratio(const struct row *row, struct hub_series *series, double denominator)
{
    const struct hub_family *of = row->entry->of;
    if (of->n_variants == 0)
        return; /* nobody counts it: out of memory when it was defined */
    const struct hub_series *twin = hub_index_find_series(&row->scrape->store->index, of->variants[0], series->labels);
    double numerator;
    double ratio;
    if (twin && hub_values_read(row->numerators.values, twin->first, 1, &numerator) &&
        hub_ratio(numerator, denominator, &ratio))
        put_value(row, series, ratio);
}

static void put_counter(const struct row *row, struct hub_series *series)
{
    double value;
    double share;
    if (!hub_values_read(row->numbers.values, series->first, 1, &value))
        return;
    if (row->entry->how == HUB_RATIO)
        put_ratio(row, series, value);
    else if (row->entry->how == HUB_SHARE && hub_ratio(value, row->total, &share))
        put_value(row, series, share);
    else if (row->entry->how != HUB_SHARE)
        put_value(row, series, value);
}

/* Prints series of a row from where the cursor stands. True: the piece is full, more of the row may follow. */
static bool put_series(const struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    struct hub_merge merge;
    if (!hub_merge_begin(&merge, &scrape->store->index, row->family, row->numbers.values))
        return false; /* out of memory: the row is missing from this scrape */
    for (; scrape->variant < row->family->n_variants && !is_full(row); scrape->variant++, scrape->series = 0) {
        const struct hub_variant *variant = row->family->variants[scrape->variant];
        for (; scrape->series < variant->n_series && !is_full(row); scrape->series++) {
            hub_rows_look(&scrape->rows);
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

/* What the row counted of a family within the entry's window, beside what was read before. */
static bool add_window(struct row *row, const struct hub_family *family)
{
    struct hub_scrape *scrape = row->scrape;
    const struct hub_window_ask ask = {
        .view = scrape->view, .query = &scrape->query, .row = row->group, .window = row->entry->window};
    return hub_windows_read(scrape->store, &ask, family, &scrape->windowed);
}

static enum hub_step read_window(struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    const struct hub_entry *entry = row->entry;
    hub_rows_spend(&scrape->rows, hub_windows_looks(scrape->store));
    hub_values_release(&scrape->windowed);
    if (!add_window(row, row->family) || (entry->by && !add_window(row, entry->of)))
        return HUB_NONE;
    row->numbers = row->numerators = (struct hub_row){.values = &scrape->windowed};
    return HUB_FOUND;
}

static enum hub_step read_row(struct row *row)
{
    const struct hub_entry *entry = row->entry;
    if (entry->window > 0)
        return read_window(row);
    struct hub_rows *rows = &row->scrape->rows;
    enum hub_step step = hub_rows_read(rows, row->group, row->family->scope, &row->numbers);
    if (step == HUB_FOUND && entry->by)
        step = hub_rows_read(rows, row->group, entry->of->scope, &row->numerators);
    return step;
}

/* All series of the family together. */
static double add_up(const struct hub_family *family, const struct hub_values *values, struct hub_rows *rows)
{
    double cells[SB_BOUNDS_MAX + 2];
    double total = 0;
    for (uint32_t v = 0; v < family->n_variants; v++) {
        const struct hub_variant *variant = family->variants[v];
        for (uint32_t s = 0; s < variant->n_series; s++) {
            hub_rows_look(rows);
            if (hub_values_read(values, variant->series[s]->first, variant->n_cells, cells))
                total += variant->bounds ? hub_count(variant->bounds, cells) : cells[0];
        }
    }
    return total;
}

/* A side of a share. What nobody counts adds nothing. */
static enum hub_step read_total(struct row *row, size_t side, double *out)
{
    struct hub_scrape *scrape = row->scrape;
    *out = 0;
    for (size_t i = 0; i < row->entry->derived->totals[side].n; i++) {
        row->family = row->entry->totals[side][i];
        const enum hub_step step = row->family ? read_row(row) : HUB_NONE;
        if (step == HUB_LATER || step == HUB_CUT)
            return step;
        if (step == HUB_FOUND)
            *out += add_up(row->family, row->numbers.values, &scrape->rows);
    }
    return HUB_FOUND;
}

/* The share that one total has of another is one line a row, and has no labels of its own. */
static enum hub_step put_share_of_total(struct row *row)
{
    double value;
    const enum hub_step step = read_total(row, SB_SHARE_OF, &value);
    if (step != HUB_FOUND || !hub_ratio(value, row->total, &value))
        return step;
    put_line_of_row(row, value);
    return HUB_FOUND;
}

/* A computed metric is one line a row, and has no labels of its own. */
static enum hub_step put_computed(struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    double value;
    hub_rows_look(&scrape->rows);
    scrape->from = row->group->id;
    const enum hub_step step = hub_rows_compute(&scrape->rows, row->group, row->entry->computed, &value);
    if (step != HUB_FOUND)
        return step;
    put_line_of_row(row, value);
    return HUB_FOUND;
}

/* Prints a row, or goes on with it. HUB_LATER: more of it may follow. */
static enum hub_step put_row(struct row *row)
{
    struct hub_scrape *scrape = row->scrape;
    hub_rows_look(&scrape->rows);
    if (scrape->in_row != row->group->id) /* of one that has gone meanwhile, the rest is missing */
        scrape->variant = scrape->series = 0;
    scrape->from = scrape->in_row = row->group->id;
    enum hub_step step = HUB_FOUND;
    if (row->entry->how == HUB_SHARE)
        step = read_total(row, SB_SHARE_BY, &row->total);
    if (step == HUB_FOUND && !row->entry->of)
        return put_share_of_total(row);
    row->family = row->entry->by ? row->entry->by : row->entry->of;
    if (step == HUB_FOUND)
        step = read_row(row);
    if (step != HUB_FOUND)
        return step;
    const bool has_more = row->family->type == SB_GAUGE ? put_gauges(row) : put_series(row);
    return has_more ? HUB_LATER : HUB_FOUND;
}

/* Prints rows of an entry until it is done (HUB_NONE), the piece is full (HUB_LATER), or the scrape is cut. */
static enum hub_step put_rows(struct hub_scrape *self, const struct hub_entry *entry, struct sb_buf *out)
{
    struct row row = {.scrape = self, .expo = {.out = out, .format = self->format}, .entry = entry};
    while (!is_full(&row)) {
        enum hub_step step = hub_rows_find(&self->rows, self->from, &row.group);
        if (step == HUB_FOUND)
            step = entry->how == HUB_COMPUTED ? put_computed(&row) : put_row(&row);
        else if (step == HUB_NONE)
            return HUB_NONE;
        if (step == HUB_LATER || step == HUB_CUT)
            return step;
        self->from = row.group->id + 1;
        self->in_row = 0;
    }
    return HUB_LATER;
}

static bool is_wanted(const struct hub_scrape *self, const struct hub_entry *entry)
{
    if (entry->window > 0 && !self->view->spec->has_windows)
        return false;
    if (entry->how == HUB_COMPUTED && !hub_computed_is_in(&self->store->computed, entry->computed, self->view->spec))
        return false;
    return (entry->how == HUB_FAMILY_ITSELF || self->view->spec->has_derived) && !hub_is_source_family(entry->name) &&
           hub_query_wants_family(&self->query, entry->name);
}

/* The entry that the cursor stands in, or the next one that is wanted; HUB_NONE after the last. */
static enum hub_step find_entry(struct hub_scrape *self, const struct hub_entry **out)
{
    const struct hub_index *index = &self->store->index;
    if (self->n_entries != index->n_entries) { /* new ones may have moved the others */
        self->n_entries = index->n_entries;
        self->next = hub_index_place_after(index, self->name[0] ? self->name : NULL, self->window);
    }
    if (self->is_in_entry) {
        *out = index->entries[self->next - 1];
        return HUB_FOUND;
    }
    while (self->next < index->n_entries) {
        if (hub_rows_is_turn_over(&self->rows))
            return HUB_LATER;
        hub_rows_look(&self->rows);
        const struct hub_entry *entry = index->entries[self->next++];
        self->has_header = self->has_header && strcmp(self->name, entry->name) == 0; /* of another window */
        self->window = entry->window;
        memcpy(self->name, entry->name, strlen(entry->name) + 1);
        if (!is_wanted(self, entry))
            continue;
        self->is_in_entry = true;
        self->from = 1;
        self->in_row = 0;
        *out = entry;
        return HUB_FOUND;
    }
    return HUB_NONE;
}

/* Prints families until all are done (HUB_NONE), the piece is full, or the scrape is cut. */
static enum hub_step put_families(struct hub_scrape *self, struct sb_buf *out)
{
    for (;;) {
        const struct hub_entry *entry;
        enum hub_step step = find_entry(self, &entry);
        if (step == HUB_FOUND)
            step = put_rows(self, entry, out);
        else
            return step;
        if (step != HUB_NONE)
            return step;
        self->is_in_entry = false;
    }
}

static bool put_sources(struct hub_scrape *self, const struct sb_expo *expo)
{
    const struct hub_sources_ask ask = {.store = self->store,
                                        .query = &self->query,
                                        .is_narrowed = hub_query_is_narrowed(&self->query),
                                        .now_ms = self->rows.now_ms,
                                        .until = self->piece_from + HUB_CHUNK_BYTES,
                                        .looks = HUB_TURN};
    return hub_sources_put(&ask, &self->sources, expo);
}

bool hub_scrape_next(struct hub_scrape *self, struct sb_buf *out)
{
    const struct sb_expo expo = {.out = out, .format = self->format};
    self->piece_from = out->len;
    hub_rows_begin_turn(&self->rows);
    if (self->stage == STAGE_FAMILIES) {
        const enum hub_step step = put_families(self, out);
        self->is_cut = step == HUB_CUT;
        if (step != HUB_NONE)
            return step == HUB_LATER;
        self->stage = self->own ? STAGE_SOURCES : STAGE_OWN;
    }
    if (self->stage == STAGE_SOURCES) {
        if (put_sources(self, &expo))
            return true;
        self->stage = STAGE_OWN;
    }
    if (self->stage == STAGE_OWN) {
        if (self->own)
            self->own(self->own_arg, &expo, &self->query);
        sb_expo_end(&expo);
        self->stage = STAGE_DONE;
    }
    return false;
}

bool hub_scrape_is_cut(const struct hub_scrape *self)
{
    return self->is_cut;
}
