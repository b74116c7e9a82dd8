/*
 * One scrape of one view as text, in pieces: family by family, and in each family row by row.
 *
 * Contributions, rows and families may come and go between two pieces. A row of one contribution is read where its
 * numbers are; a row of several is added up once, when the scrape meets it first.
 */
#ifndef HUB_RENDER_H
#define HUB_RENDER_H

#include "common/expo.h"
#include "hub/store.h"

enum { HUB_CHUNK_BYTES = 64 * 1024 }; /* a piece ends after the series that reaches this */

struct hub_scrape;

/* Appends what the view has beside the families of the engines. */
typedef void (*hub_scrape_own)(void *arg, const struct sb_expo *expo);

/* own may be NULL. NULL: out of memory. */
struct hub_scrape *hub_scrape_new(struct hub_store *store, const struct hub_view *view, enum sb_expo_format format,
                                  hub_scrape_own own, void *own_arg) SB_CHECK;
void hub_scrape_destroy(struct hub_scrape **self_p);

/* Appends the next piece; false when it was the last. */
bool hub_scrape_next(struct hub_scrape *self, struct sb_buf *out);

#endif
