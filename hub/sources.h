/* The families about sources, statsbus_source_*: one row for each source, in pieces as the rest of a scrape. */
#ifndef HUB_SOURCES_H
#define HUB_SOURCES_H

#include "common/expo.h"
#include "hub/query.h"
#include "hub/store.h"

/* Where the next piece goes on; zero at the start. */
struct hub_sources_cursor {
    size_t family;
    uint64_t last_source;
    bool has_header;
};

struct hub_sources_ask {
    const struct hub_store *store;
    const struct hub_query *query;
    bool is_narrowed; /* the query asks for some labels only */
    int64_t now_ms;
    size_t until; /* a piece ends once the output is this long */
    size_t looks; /* or so many sources were looked at */
};

/* Appends the next piece; false when it was the last. */
bool hub_sources_put(const struct hub_sources_ask *ask, struct hub_sources_cursor *cursor, const struct sb_expo *expo);

bool hub_is_source_family(const char *name);

#endif
