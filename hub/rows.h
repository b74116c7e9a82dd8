/*
 * The rows of a view that one scrape prints, and their numbers: walked in the order of their ids, once for each family.
 *
 * A row of one contribution is read where its numbers are. Any other is added up once, when the scrape meets it first.
 * What a row was then, part of the scrape or not, it stays.
 *
 * Work is done in turns. When one is over, walking and reading say HUB_LATER; the same call in the next turn goes on.
 */
#ifndef HUB_ROWS_H
#define HUB_ROWS_H

#include "hub/adding.h"

enum {
    HUB_TURN = 4096,         /* rows, series and names that are looked at in one turn */
    HUB_SCRAPES_A_LIMIT = 2, /* no scrape begins while 1 / this of the memory for sums is taken */
};

/* Memory for sums, of all scrapes under way. */
struct hub_sum_memory {
    size_t bytes;
    size_t max;
};

bool hub_sum_memory_is_short(const struct hub_sum_memory *self); /* for one more scrape */

enum hub_step {
    HUB_NONE,  /* there are no more rows; the row has no such numbers */
    HUB_FOUND, /* *out is set */
    HUB_LATER, /* the turn is over */
    HUB_CUT,   /* memory for sums ran out, or reached its limit (counted): what was begun can't be ended */
};

struct hub_rows {
    const struct hub_store *store; /* borrowed, as view, query and memory are */
    const struct hub_view *view;
    const struct hub_query *query;
    struct hub_sum_memory *memory;
    int64_t now_ms;
    size_t looks;               /* left of this turn */
    uint64_t met;               /* the highest id that was looked at */
    struct hub_row_slot *slots; /* of rows that are part of the scrape, rising by id; owned */
    size_t n;
    size_t cap;
    size_t at;       /* the slot that was found last */
    size_t group_at; /* and its place in the view */
    struct hub_adding adding;
    size_t adding_bytes;
    size_t bytes; /* what this scrape has of memory->bytes */
};

/* Borrowed until the next change of the store. */
struct hub_row {
    const struct hub_values *values;
    const double *maxima; /* beside each gauge of values the largest of the sources; NULL: the gauge itself */
    bool has_gauges;
};

/* memory: NULL for no limit. */
void hub_rows_init(struct hub_rows *self, const struct hub_store *store, const struct hub_view *view,
                   const struct hub_query *query, struct hub_sum_memory *memory, int64_t now_ms);
void hub_rows_release(struct hub_rows *self);

static inline void hub_rows_begin_turn(struct hub_rows *self)
{
    self->looks = HUB_TURN;
}

static inline bool hub_rows_is_turn_over(const struct hub_rows *self)
{
    return self->looks == 0;
}

/* Counts n looks. */
static inline void hub_rows_spend(struct hub_rows *self, size_t n)
{
    self->looks -= n < self->looks ? n : self->looks;
}

/* Counts one look at something. */
static inline void hub_rows_look(struct hub_rows *self)
{
    self->looks -= self->looks > 0;
}

/* The first row of the scrape with this id or a higher one. */
enum hub_step hub_rows_find(struct hub_rows *self, uint64_t from, const struct hub_group **out) SB_CHECK;

/* The numbers of the row that was found last, for families of a scope (0: that count all roles). */
enum hub_step hub_rows_read(struct hub_rows *self, const struct hub_group *group, uint32_t scope, struct hub_row *out)
    SB_CHECK;

/* A computed metric (computed.h) of that row. */
enum hub_step hub_rows_compute(struct hub_rows *self, const struct hub_group *group, uint32_t number, double *out)
    SB_CHECK;

#endif
