/*
 * Sliding windows: what views derive from the last seconds or minutes, beside what they derive from all time.
 *
 * Views with windows share a view that is not shown. Its rows, the tracks, are as fine as any of theirs, and split by
 * role. Now and then each is added up, and a copy of the cells that windows need is kept for a window's length: a
 * window is the difference of two of them, exact as the sums are. Of a track counts what the hub saw come: totals of
 * the past, which a session brings when it begins, are kept apart, and taken off. A contribution that is forgotten
 * stays in its track, so joins, restarts and leaves don't show.
 *
 * Time comes in. Work is done in rounds, and each in pieces (rows.h).
 */
#ifndef HUB_WINDOWS_H
#define HUB_WINDOWS_H

#include "hub/adding.h"

enum {
    HUB_WINDOW_COPIES = 60,  /* that a window's length is divided by: how finely it slides */
    HUB_WINDOW_LOOKS = 2048, /* of one piece of a round (adding.h): a fraction of a millisecond */
};

struct hub_windows {
    const struct hub_window_lengths *lengths; /* borrowed */
    struct hub_view_spec spec;                /* of the view of tracks */
    const char *by[HUB_VIEW_LABELS_MAX];
    size_t view;  /* its number */
    size_t bytes; /* memory of all tracks */
    size_t bytes_max;
    /* A page of cells that windows need: true. Looked up anew when there are more series. */
    bool *is_needed; /* owned */
    uint32_t n_pages;
    uint32_t n_series;
    /* The round under way. */
    struct hub_query query;
    struct hub_adding adding;
    uint64_t track; /* the last that is done */
    size_t track_at;
    int64_t round_ms;                   /* 0: none */
    int64_t copied_ms[HUB_WINDOWS_MAX]; /* the last round that keeps copies: the same for all tracks of a row */
};

/* "60s,5m": up to HUB_WINDOWS_MAX lengths; "": none. SB_INVAL: what is wrong. */
enum sb_rc hub_window_lengths_parse(struct hub_window_lengths *out, const char *text, struct sb_err *err) SB_CHECK;

/* The store has windows from now on; before anything is known. lengths is borrowed; none of them: nothing is done.
 * Errors: SB_INVAL, the views group by too many labels together; SB_NOMEM. */
enum sb_rc hub_windows_init(struct hub_store *store, const struct hub_window_lengths *lengths, size_t bytes_max,
                            struct sb_err *err) SB_CHECK;
void hub_windows_destroy(struct hub_windows **self_p);
void hub_track_destroy(struct hub_track **self_p, struct sb_labelsets *labelsets);

void hub_windows_begin_round(struct hub_store *store, int64_t now_ms);
bool hub_windows_go_on(struct hub_store *store); /* false: the round is over */

/* A frame is about to bring what was counted unseen (is_before), or has. */
void hub_windows_pass_over(struct hub_store *store, struct hub_contribution *contribution, bool is_before);

/* What a read costs, in looks (rows.h): it goes through all tracks. */
size_t hub_windows_looks(const struct hub_store *store);

/* Adds to *out what a row counted of a family within the window (from 1). False: nothing, or no memory. */
struct hub_window_ask {
    const struct hub_view *view;
    const struct hub_query *query;
    const struct hub_group *row;
    uint32_t window;
};
bool hub_windows_read(const struct hub_store *store, const struct hub_window_ask *ask, const struct hub_family *family,
                      struct hub_values *out) SB_CHECK;

#endif
