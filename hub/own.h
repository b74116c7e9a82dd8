/* The hub's metrics about itself: statsbus_hub_*, from own_families.def. */
#ifndef HUB_OWN_H
#define HUB_OWN_H

#include "common/expo.h"
#include "hub/query.h"
#include "hub/store.h"

/* Everything that they tell of, at one moment. */
struct hub_own {
    const struct hub_store *store;
    int64_t now_ms;
    int64_t started_ms;
    size_t n_agents;
    size_t agents_max;
    int64_t silence_ms;              /* of the agent silent longest; 0 without agents */
    uint64_t scrapes[HUB_VIEWS_MAX]; /* by view of the store */
    size_t scrapes_open;
    size_t scrape_bytes; /* of sums */
    size_t scrape_bytes_max;
    double render_s;
    uint64_t http_requests;
    uint64_t http_refused;
    uint64_t http_turned_away;
    uint64_t http_hung_up;
};

/* Those that the query wants: none when it narrows by labels that they don't have. */
void hub_own_render(const struct hub_own *self, const struct sb_expo *expo, const struct hub_query *query);

#endif
