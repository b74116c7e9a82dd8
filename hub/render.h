/*
 * One scrape of one view as text, in pieces: family by family, and in each family row by row.
 *
 * A piece is a bounded amount of work, whatever comes of it. Contributions, rows and families may come and go between
 * two pieces. What is derived is computed from the same
 * numbers that the row prints.
 */
#ifndef HUB_RENDER_H
#define HUB_RENDER_H

#include "common/expo.h"
#include "hub/rows.h"

enum { HUB_CHUNK_BYTES = 64 * 1024 }; /* a piece ends after the series that reaches this, or with a turn (rows.h) */

struct hub_scrape;

/* Appends what the view has beside the families of the engines. */
typedef void (*hub_scrape_own)(void *arg, const struct sb_expo *expo, const struct hub_query *query);

struct hub_ask {
    const struct hub_view *view;
    enum sb_expo_format format;
    int64_t now_ms;                /* by which rows linger */
    const struct hub_query *query; /* copied; its view is the one above. NULL: everything */
    struct hub_sum_memory *memory; /* of all scrapes; NULL: no limit */
    hub_scrape_own own;            /* NULL: neither that nor what is about sources */
    void *own_arg;
};

/* NULL: out of memory. */
struct hub_scrape *hub_scrape_new(struct hub_store *store, const struct hub_ask *ask) SB_CHECK;
void hub_scrape_destroy(struct hub_scrape **self_p);

/* Appends the next piece, which may be empty; false when it was the last, or the scrape is cut. */
bool hub_scrape_next(struct hub_scrape *self, struct sb_buf *out);
/* Memory for sums ran out: the text so far is not to be taken for a whole one. */
bool hub_scrape_is_cut(const struct hub_scrape *self);

#endif
