#include "hub/windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"

enum { LENGTH_MIN_MS = 1000, LENGTH_MAX_MS = 15 * 60 * 1000 };
/* One at either end of a window, and some for rounds that come a little early. */
enum { COPIES_MAX = HUB_WINDOW_COPIES + HUB_WINDOW_COPIES / 8 + 2 };

/* Copies of a track's cells, each for a moment: a ring, the oldest first. */
struct copies {
    struct hub_values at[COPIES_MAX];
    int64_t at_ms[COPIES_MAX];
    uint32_t first;
    uint32_t n;
};

struct hub_track {
    struct hub_values unseen_high; /* what came all at once, in double-double */
    struct hub_values unseen_low;
    struct hub_values now; /* without that, as of now_ms */
    int64_t now_ms;        /* 0: not yet */
    bool is_off;           /* memory ran out: it has no windows any more */
    size_t bytes;
    size_t *all_bytes; /* of all tracks: borrowed from the windows, which live longer */
    uint32_t n_copies;
    struct sb_labelset *rows[HUB_VIEWS_MAX]; /* of each view with windows: the row that it is part of; owned */
    struct copies *copies;                   /* by window; NULL: none so far; owned */
};

enum sb_rc hub_window_lengths_parse(struct hub_window_lengths *out, const char *text, struct sb_err *err)
{
    *out = (struct hub_window_lengths){.n = 0};
    char rest[sizeof out->at[0].text * HUB_WINDOWS_MAX + 1];
    if (strlen(text) >= sizeof rest)
        return sb_fail(err, SB_INVAL, "'%.100s' is too long for %d windows", text, HUB_WINDOWS_MAX);
    memcpy(rest, text, strlen(text) + 1);
    char *at = rest;
    for (char *item; at && *at && (item = strsep(&at, ",")) != NULL;) {
        if (out->n == HUB_WINDOWS_MAX)
            return sb_fail(err, SB_INVAL, "'%s' are over %d windows", text, HUB_WINDOWS_MAX);
        struct hub_window_length *made = &out->at[out->n++];
        if (strlen(item) >= sizeof made->text || sb_parse_duration_ms(item, &made->ms, NULL) != SB_OK ||
            made->ms < LENGTH_MIN_MS || made->ms > LENGTH_MAX_MS)
            return sb_fail(err, SB_INVAL, "'%s' is not the length of a window, 1s to 15m", item);
        memcpy(made->text, item, strlen(item) + 1);
        for (uint32_t i = 0; i + 1 < out->n; i++) {
            if (out->at[i].ms == made->ms)
                return sb_fail(err, SB_INVAL, "the window '%s' is there twice", item);
        }
    }
    return SB_OK;
}

/* --- the view of tracks --- */

static bool add_label(struct hub_windows *self, const char *label)
{
    for (size_t i = 0; i < self->spec.by.n; i++) {
        if (strcmp(self->by[i], label) == 0)
            return true;
    }
    if (hub_label_is_in_every_view(label))
        return true;
    if (self->spec.by.n == HUB_VIEW_LABELS_MAX)
        return false;
    self->by[self->spec.by.n++] = label;
    return true;
}

/* All labels that views with windows group by, or look at. */
static bool join_labels(struct hub_windows *self, const struct hub_store *store)
{
    bool is_ok = add_label(self, "role");
    for (size_t v = 0; v < store->n_views; v++) {
        const struct hub_view_spec *spec = store->views[v].spec;
        for (size_t i = 0; spec->has_windows && i < spec->by.n; i++)
            is_ok = is_ok && add_label(self, spec->by.at[i]);
        for (size_t i = 0; spec->has_windows && i < spec->n_where; i++)
            is_ok = is_ok && add_label(self, spec->where[i].label);
    }
    return is_ok;
}

enum sb_rc hub_windows_init(struct hub_store *store, const struct hub_window_lengths *lengths, size_t bytes_max,
                            struct sb_err *err)
{
    if (lengths->n == 0)
        return SB_OK;
    struct hub_windows *self = malloc(sizeof *self);
    if (!self)
        return sb_fail(err, SB_NOMEM, "no memory for windows");
    *self = (struct hub_windows){.lengths = lengths, .bytes_max = bytes_max};
    store->windows = self;
    self->spec = (struct hub_view_spec){.name = "", .by = {.at = self->by}, .is_kept = true};
    self->query = (struct hub_query){.view = &self->spec};
    if (!join_labels(self, store))
        return sb_fail(err, SB_INVAL, "views with windows group by over %d labels together", HUB_VIEW_LABELS_MAX);
    self->view = store->n_views++;
    hub_view_init(&store->views[self->view], &self->spec, (unsigned) self->view, store->index.labelsets);
    store->index.windows = lengths;
    if (!hub_entries_claim_windows(&store->index))
        return sb_fail(err, SB_NOMEM, "no memory for the names of windows");
    return SB_OK;
}

void hub_windows_destroy(struct hub_windows **self_p)
{
    struct hub_windows *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    hub_adding_release(&self->adding);
    free(self->is_needed);
    free(self);
}

/* --- tracks --- */

static void release_numbers(struct hub_track *self)
{
    hub_values_release(&self->unseen_high);
    hub_values_release(&self->unseen_low);
    hub_values_release(&self->now);
    for (uint32_t w = 0; self->copies && w < self->n_copies; w++) {
        for (size_t i = 0; i < COPIES_MAX; i++)
            hub_values_release(&self->copies[w].at[i]);
    }
    free(self->copies);
    self->copies = NULL;
}

void hub_track_destroy(struct hub_track **self_p, struct sb_labelsets *labelsets)
{
    struct hub_track *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    for (size_t v = 0; v < HUB_VIEWS_MAX; v++) {
        if (self->rows[v])
            sb_labelsets_drop(labelsets, &self->rows[v]);
    }
    *self->all_bytes -= self->bytes;
    release_numbers(self);
    free(self);
}

/* The track of a row of the hidden view, made if need be. NULL: out of memory. */
static struct hub_track *track_of(struct hub_store *store, struct hub_group *group)
{
    if (group->track)
        return group->track;
    struct hub_track *made = calloc(1, sizeof *made);
    bool is_ok = made != NULL;
    if (made)
        made->all_bytes = &store->windows->bytes;
    for (size_t v = 0; is_ok && v < store->n_shown_views; v++) {
        const struct hub_view *view = &store->views[v];
        if (!view->spec->has_windows || !hub_view_takes(view, group->labels))
            continue;
        made->rows[v] = hub_view_row_labels(view, group->labels);
        is_ok = made->rows[v] != NULL;
    }
    if (made)
        made->n_copies = store->windows->lengths->n;
    if (!is_ok)
        hub_track_destroy(&made, store->index.labelsets);
    group->track = made;
    return made;
}

static size_t bytes_of(const struct hub_track *self)
{
    size_t bytes = sizeof *self + hub_values_bytes(&self->unseen_high) + hub_values_bytes(&self->unseen_low) +
                   hub_values_bytes(&self->now);
    bytes += self->copies ? self->n_copies * sizeof self->copies[0] : 0;
    for (uint32_t w = 0; self->copies && w < self->n_copies; w++) {
        for (size_t i = 0; i < COPIES_MAX; i++)
            bytes += hub_values_bytes(&self->copies[w].at[i]);
    }
    return bytes;
}

/* Without memory a track has no windows: half of its numbers would be wrong ones. What is left of it counts as part of
 * its row, not as memory of windows: else many that are off would take all others along. */
static void switch_off(struct hub_store *store, struct hub_track *track)
{
    track->is_off = true;
    release_numbers(track);
    store->windows->bytes -= track->bytes;
    track->bytes = 0;
    store->counters->limits[HUB_LIMIT_window_memory]++;
}

static bool add_signed(struct hub_track *track, const struct hub_values *more, double sign)
{
    if (!hub_values_reserve_like(&track->unseen_high, more) || !hub_values_reserve_like(&track->unseen_low, more))
        return false;
    for (uint32_t p = 0; p < more->n_pages; p++) {
        for (size_t i = 0; more->pages[p] && i < HUB_PAGE_CELLS; i++) {
            double *high = &track->unseen_high.pages[p][i];
            const double value = sign * fabs(more->pages[p][i]);
            const double sum = *high + value;
            const double part = sum - *high;
            track->unseen_low.pages[p][i] += (*high - (sum - part)) + (value - part);
            *high = sum;
        }
    }
    return true;
}

void hub_windows_pass_over(struct hub_store *store, struct hub_contribution *contribution, bool is_before)
{
    struct hub_windows *self = store->windows;
    if (!self || !contribution->groups[self->view])
        return;
    struct hub_group *group = contribution->groups[self->view];
    struct hub_track *track = track_of(store, group);
    group->n_moves++; /* a sum that is under way has another past */
    if (track && !track->is_off && !add_signed(track, &contribution->values, is_before ? -1 : 1))
        switch_off(store, track);
}

/* --- rounds --- */

static void need(struct hub_windows *self, const struct hub_family *family)
{
    for (uint32_t v = 0; v < family->n_variants; v++) {
        const struct hub_variant *variant = family->variants[v];
        for (uint32_t s = 0; s < variant->n_series; s++) {
            const uint32_t first = variant->series[s]->first;
            for (uint32_t p = first >> HUB_PAGE_BITS; p <= (first + variant->n_cells - 1) >> HUB_PAGE_BITS; p++)
                self->is_needed[p] = true;
        }
    }
}

/* Which pages hold cells of families that windows are derived from. Those of half a ratio, too: when the other half
 * comes, what the first had counted before must be known. */
static void look_up(struct hub_windows *self, const struct hub_index *index)
{
    if (self->n_series == index->n_series && self->is_needed)
        return;
    const uint32_t n_pages = (index->n_cells >> HUB_PAGE_BITS) + 1;
    bool *is_needed = realloc(self->is_needed, n_pages);
    if (!is_needed)
        return; /* the next round tries again */
    memset(is_needed, 0, n_pages);
    self->is_needed = is_needed;
    self->n_pages = n_pages;
    for (uint32_t i = 0; i < index->n_families; i++) {
        if (hub_entries_may_be_in_windows(index, index->families[i]))
            need(self, index->families[i]);
    }
    self->n_series = index->n_series;
}

static const double *page_of(const struct hub_values *values, uint32_t p)
{
    return p < values->n_pages ? values->pages[p] : NULL;
}

/* Makes now what the sum has of the needed pages, less what came unseen. */
static bool take_now(const struct hub_windows *self, struct hub_track *track, const struct hub_values *sum)
{
    for (uint32_t p = 0; p < sum->n_pages && p < self->n_pages; p++) {
        if (!sum->pages[p] || !self->is_needed[p])
            continue;
        double *page = hub_values_page(&track->now, p << HUB_PAGE_BITS);
        const double *high = page_of(&track->unseen_high, p);
        const double *low = page_of(&track->unseen_low, p);
        if (!page)
            return false;
        for (size_t i = 0; i < HUB_PAGE_CELLS; i++) {
            const bool is_there = !signbit(sum->pages[p][i]);
            const double seen = is_there && high ? (sum->pages[p][i] - high[i]) - low[i] : sum->pages[p][i];
            page[i] = !is_there ? -0.0 : seen > 0 ? seen : 0.0;
        }
    }
    return true;
}

static bool copy(struct hub_values *to, const struct hub_values *from)
{
    if (!hub_values_reserve_like(to, from))
        return false;
    for (uint32_t p = 0; p < from->n_pages; p++) {
        if (from->pages[p])
            memcpy(to->pages[p], from->pages[p], HUB_PAGE_CELLS * sizeof from->pages[p][0]);
    }
    return true;
}

static uint32_t place(const struct copies *self, uint32_t i)
{
    return (self->first + i) % COPIES_MAX;
}

/* Keeps a copy of now. Of those that are a window old or older, the last one stays. */
static bool keep(struct copies *self, const struct hub_track *track, int64_t length_ms)
{
    while (self->n > 1 && (self->n == COPIES_MAX || track->now_ms - self->at_ms[place(self, 1)] >= length_ms)) {
        self->first = place(self, 1); /* its pages are used again */
        self->n--;
    }
    const uint32_t at = place(self, self->n++);
    self->at_ms[at] = track->now_ms;
    return copy(&self->at[at], &track->now);
}

static void take(struct hub_store *store, struct hub_group *group, const struct hub_row_sums *sums)
{
    struct hub_windows *self = store->windows;
    struct hub_track *track = track_of(store, group);
    if (!track || track->is_off || sums->n == 0)
        return;
    if (!track->copies)
        track->copies = calloc(track->n_copies, sizeof track->copies[0]);
    bool is_ok = track->copies && take_now(self, track, &sums->at[0].values);
    track->now_ms = self->round_ms;
    for (uint32_t w = 0; is_ok && w < track->n_copies; w++)
        is_ok = self->copied_ms[w] != self->round_ms || keep(&track->copies[w], track, self->lengths->at[w].ms);
    self->bytes -= track->bytes;
    track->bytes = bytes_of(track);
    self->bytes += track->bytes;
    if (!is_ok || self->bytes > self->bytes_max)
        switch_off(store, track);
}

void hub_windows_begin_round(struct hub_store *store, int64_t now_ms)
{
    struct hub_windows *self = store->windows;
    if (!self || self->round_ms != 0)
        return;
    look_up(self, &store->index);
    self->round_ms = now_ms;
    self->track = 0;
    for (uint32_t w = 0; w < self->lengths->n; w++) {
        const int64_t step_ms = self->lengths->at[w].ms / HUB_WINDOW_COPIES;
        if (self->copied_ms[w] == 0 || now_ms - self->copied_ms[w] >= step_ms - step_ms / 10)
            self->copied_ms[w] = now_ms;
    }
}

bool hub_windows_go_on(struct hub_store *store)
{
    struct hub_windows *self = store->windows;
    if (!self || self->round_ms == 0)
        return false;
    const struct hub_adding_ask ask = {
        .store = store, .query = &self->query, .view = &self->spec, .is_without_gauges = true};
    size_t looks = HUB_WINDOW_LOOKS;
    struct hub_group *group;
    while ((group = hub_view_after(&store->views[self->view], self->track, &self->track_at)) != NULL) {
        struct hub_row_sums *sums;
        const enum hub_adding_step step = hub_adding_go(&self->adding, &ask, group, &looks, &sums);
        if (step == HUB_ADDING_LATER)
            return true;
        if (step == HUB_ADDING_DONE) {
            take(store, group, sums);
            hub_row_sums_destroy(&sums);
        }
        self->track = group->id; /* without memory for it, the next round tries again */
        if (looks == 0)
            return true;
    }
    self->round_ms = 0;
    return false;
}

/* --- reading --- */

/* The last copy that is as old as the window, or older. NULL: the track had nothing then. */
static const struct hub_values *then_of(const struct hub_track *track, uint32_t w, int64_t length_ms)
{
    const struct copies *copies = &track->copies[w];
    const struct hub_values *then = NULL;
    for (uint32_t i = 0; i < copies->n && track->now_ms - copies->at_ms[place(copies, i)] >= length_ms; i++)
        then = &copies->at[place(copies, i)];
    return then;
}

static bool add_series(const struct hub_track *track, const struct hub_values *then, const struct hub_series *series,
                       struct hub_values *out)
{
    double now[SB_BOUNDS_MAX + 2];
    double before[SB_BOUNDS_MAX + 2] = {0};
    if (!hub_values_read(&track->now, series->first, series->n_cells, now))
        return true;
    if (then)
        (void) hub_values_read(then, series->first, series->n_cells, before);
    for (uint32_t i = 0; i < series->n_cells; i++) {
        const uint32_t cell = series->first + i;
        double *page = hub_values_page(out, cell);
        if (!page)
            return false;
        double *to = &page[cell & (HUB_PAGE_CELLS - 1)];
        *to = fabs(*to) + (now[i] > before[i] ? now[i] - before[i] : 0);
    }
    return true;
}

static bool is_part(const struct hub_store *store, const struct hub_window_ask *ask, const struct hub_group *group,
                    uint32_t scope)
{
    const struct hub_track *track = group->track;
    if (!track || track->now_ms == 0 || track->rows[ask->view - store->views] != ask->row->labels)
        return false;
    const char *role = sb_labelset_value(group->labels, "role");
    return hub_query_wants(ask->query, HUB_NARROW_role, role) &&
           (scope == 0 || !ask->view->spec->is_role_scoped || hub_index_has_role(&store->index, scope, role));
}

size_t hub_windows_looks(const struct hub_store *store)
{
    enum { TRACKS_A_LOOK = 8, LOOKS_MAX = HUB_WINDOW_LOOKS / 8 }; /* a row must fit into a turn */
    const size_t looks = store->views[store->windows->view].n_groups / TRACKS_A_LOOK;
    return looks < LOOKS_MAX ? looks : LOOKS_MAX;
}

bool hub_windows_read(const struct hub_store *store, const struct hub_window_ask *ask, const struct hub_family *family,
                      struct hub_values *out)
{
    const struct hub_windows *self = store->windows;
    const struct hub_view *tracks = &store->views[self->view];
    const int64_t length_ms = self->lengths->at[ask->window - 1].ms;
    bool is_any = false;
    for (size_t i = 0; i < tracks->n_groups; i++) {
        const struct hub_group *group = tracks->groups[i];
        if (!is_part(store, ask, group, family->scope))
            continue;
        if (group->track->is_off)
            return false; /* a part of the row would be missing */
        const struct hub_values *then = then_of(group->track, ask->window - 1, length_ms);
        for (uint32_t v = 0; v < family->n_variants; v++) {
            for (uint32_t s = 0; s < family->variants[v]->n_series; s++) {
                if (!add_series(group->track, then, family->variants[v]->series[s], out))
                    return false;
            }
        }
        is_any = true;
    }
    return is_any;
}
