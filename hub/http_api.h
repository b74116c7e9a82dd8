/* What the hub serves over HTTP: /metrics, /healthz, /readyz and an index. */
#ifndef HUB_HTTP_API_H
#define HUB_HTTP_API_H

#include "common/http.h"
#include "hub/own.h"
#include "hub/render.h"

enum { HUB_SCRAPES_MAX = 16 }; /* at once; each may hold sums of rows */

/* Fills in what the rest of the hub knows about itself at this moment. */
typedef void (*hub_api_fill)(void *arg, struct hub_own *own);

struct hub_api {
    struct hub_store *store; /* borrowed */
    int64_t (*clock)(void);  /* monotonic milliseconds */
    hub_api_fill fill;
    void *fill_arg;
    uint64_t scrapes[HUB_VIEWS_MAX];
    size_t scrapes_open;
    struct hub_sum_memory memory;
    double render_s; /* CPU time */
};

extern const struct sb_http_route hub_api_routes[]; /* handlers get the struct hub_api */
extern const size_t hub_api_routes_count;

#endif
