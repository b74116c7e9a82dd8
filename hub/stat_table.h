/*
 * A table in the log, every so often: a line for each service, model, stage, role and node with sources that live, what
 * they did since the table before, and how they are now.
 *
 * Work is done in pieces, begun and gone on with as that of windows is. Pure: time comes in, lines leave through a
 * callback.
 */
#ifndef HUB_STAT_TABLE_H
#define HUB_STAT_TABLE_H

#include "common/statline.h"
#include "hub/store.h"

enum { HUB_STAT_ROWS_MAX = 256 }; /* lines of one table; sources of further ones are counted as left out */

struct hub_stat_row {
    struct sb_labelset *labels; /* owned while a table is made */
    uint32_t n_sources;         /* that live */
    struct sb_statline line;
};

struct hub_stat_table {
    int64_t period_ms; /* 0: off */
    int64_t round_ms;  /* when the table under way was begun, or the last one */
    int64_t before_ms; /* and the one before; INT64_MIN: there was none */
    bool is_under_way;
    uint64_t source; /* the last that is done */
    const struct hub_family *families[SB_STATS];
    uint32_t n_rows;
    uint32_t n_left_out;
    struct hub_stat_row rows[HUB_STAT_ROWS_MAX];
    /* labels NULL: so many sources are in no line. */
    void (*say)(void *arg, const struct sb_labelset *labels, uint32_t n_sources, const char *text);
    void *arg;
};

void hub_stat_table_init(struct hub_stat_table *self, int64_t period_ms,
                         void (*say)(void *arg, const struct sb_labelset *labels, uint32_t n_sources, const char *text),
                         void *arg);
void hub_stat_table_release(struct hub_stat_table *self, struct hub_store *store);

/* Begins a table if it is time. */
void hub_stat_table_begin(struct hub_stat_table *self, const struct hub_store *store, int64_t now_ms);
bool hub_stat_table_go_on(struct hub_stat_table *self, struct hub_store *store); /* false: there is nothing to do */

#endif
