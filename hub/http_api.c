#include "hub/http_api.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A scrape that a client is taking. */
struct stream {
    struct hub_api *api;
    struct hub_scrape *scrape;
};

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static void put_own(void *arg, const struct sb_expo *expo, const struct hub_query *query)
{
    struct hub_api *api = arg;
    struct hub_own own = {.store = api->store,
                          .scrapes_open = api->scrapes_open,
                          .scrape_bytes = api->memory.bytes,
                          .scrape_bytes_max = api->memory.max,
                          .render_s = api->render_s};
    memcpy(own.scrapes, api->scrapes, sizeof own.scrapes);
    api->fill(api->fill_arg, &own);
    hub_own_render(&own, expo, query);
}

static enum sb_http_more next_piece(void *state, struct sb_buf *out)
{
    struct stream *stream = state;
    double before = cpu_s();
    bool has_more = hub_scrape_next(stream->scrape, out);
    stream->api->render_s += cpu_s() - before;
    if (hub_scrape_is_cut(stream->scrape))
        return SB_HTTP_CUT;
    return has_more ? SB_HTTP_MORE : SB_HTTP_LAST;
}

static void close_stream(void *state)
{
    struct stream *stream = state;
    stream->api->scrapes_open--;
    hub_scrape_destroy(&stream->scrape);
    free(stream);
}

static void refuse(struct sb_http_response *response, unsigned status, const char *text)
{
    response->status = status;
    sb_buf_put_text(response->body, text);
    sb_buf_put_byte(response->body, '\n');
}

static void refuse_view(const struct hub_api *api, struct sb_http_response *response, const char *name)
{
    response->status = 400;
    sb_buf_printf(response->body, "no view is called '%.100s'; type is one of:", name);
    for (size_t i = 0; i < api->store->n_shown_views; i++)
        sb_buf_printf(response->body, "%s %s", i ? "," : "", api->store->views[i].spec->name);
    sb_buf_put_byte(response->body, '\n');
}

/* The parameters of a scrape; each may come several times but `type`. */
static const struct parameter {
    const char *name;
    enum hub_narrow narrow; /* HUB_NARROW_COUNT: families */
} parameters[] = {
    {"role", HUB_NARROW_role},
    {"model_name", HUB_NARROW_model_name},
    {"service_name", HUB_NARROW_service_name},
    {"name[]", HUB_NARROW_COUNT},
};

static const struct parameter *find_parameter(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(parameters); i++) {
        if (strcmp(parameters[i].name, name) == 0)
            return &parameters[i];
    }
    return NULL;
}

static void refuse_parameter(struct sb_http_response *response, const char *name, const char *reason)
{
    response->status = 400;
    sb_buf_printf(response->body, "parameter '%.100s' is %s; there are: type", name, reason);
    for (size_t i = 0; i < SB_COUNT(parameters); i++)
        sb_buf_printf(response->body, ", %s", parameters[i].name);
    sb_buf_put_byte(response->body, '\n');
}

/* Reads the parameters beside `type`. False: the answer is written. */
static bool read_narrowing(struct hub_api *api, const struct sb_http_request *request, struct hub_query *query,
                           struct sb_http_response *response)
{
    bool has_type = false;
    for (size_t i = 0; i < request->n_query; i++) {
        const struct sb_http_query *asked = &request->query[i];
        bool is_type = strcmp(asked->name, "type") == 0;
        const struct parameter *parameter = find_parameter(asked->name);
        if (is_type ? has_type : !parameter) {
            refuse_parameter(response, asked->name, is_type ? "there twice" : "not known");
            return false;
        }
        has_type = has_type || is_type;
        if (is_type)
            continue;
        bool is_family = parameter->narrow == HUB_NARROW_COUNT;
        if (is_family ? !hub_query_add_family(query, asked->value)
                      : !hub_query_narrow(query, parameter->narrow, asked->value)) {
            api->store->counters->limits[HUB_LIMIT_query]++;
            refuse_parameter(response, asked->name, "there too often");
            return false;
        }
    }
    return true;
}

/* The view that the query names; NULL, and the answer is written. */
static const struct hub_view *asked_view(const struct hub_api *api, const struct sb_http_request *request,
                                         struct sb_http_response *response)
{
    const char *name = sb_http_query_value(request, "type");
    const struct hub_view *view = hub_store_view(api->store, name ? name : "full");
    if (!view)
        refuse_view(api, response, name ? name : "full");
    return view;
}

static void begin_scrape(struct hub_api *api, const struct hub_ask *ask, struct sb_http_response *response)
{
    struct stream *stream = calloc(1, sizeof *stream);
    struct hub_scrape *scrape = hub_scrape_new(api->store, ask);
    if (!stream || !scrape) {
        free(stream);
        hub_scrape_destroy(&scrape);
        refuse(response, 503, "out of memory");
        return;
    }
    *stream = (struct stream){.api = api, .scrape = scrape};
    api->scrapes_open++;
    api->scrapes[ask->view - api->store->views]++;
    response->content_type = sb_expo_content_type(ask->format);
    response->stream = (struct sb_http_stream){.next = next_piece, .close = close_stream, .state = stream};
}

/* For one more scrape. False: the answer is written. */
static bool has_room(const struct hub_api *api, struct sb_http_response *response)
{
    uint64_t *limits = api->store->counters->limits;
    if (api->scrapes_open >= HUB_SCRAPES_MAX) {
        limits[HUB_LIMIT_scrapes]++;
        refuse(response, 503, "too many scrapes at once");
        return false;
    }
    if (hub_sum_memory_is_short(&api->memory)) {
        limits[HUB_LIMIT_scrape_memory]++;
        refuse(response, 503, "scrapes under way take too much of scrape_memory_max");
        return false;
    }
    return true;
}

static void on_metrics(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    struct hub_api *api = arg;
    struct hub_query query = {0};
    if (!read_narrowing(api, request, &query, response))
        return;
    const struct hub_view *view = asked_view(api, request, response);
    if (!view)
        return;
    if (!has_room(api, response))
        return;
    query.view = view->spec;
    const struct hub_ask ask = {.view = view,
                                .format = sb_expo_negotiate(request->accept),
                                .now_ms = api->clock(),
                                .query = &query,
                                .memory = &api->memory,
                                .own = view->spec->has_own ? put_own : NULL,
                                .own_arg = api};
    begin_scrape(api, &ask, response);
}

static void on_healthz(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    sb_buf_put_text(response->body, "alive\n");
}

static void on_readyz(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    sb_buf_put_text(response->body, "ready\n");
}

static void on_index(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) request;
    const struct hub_api *api = arg;
    sb_buf_put_text(response->body, "statsbus-hub " STATSBUS_VERSION "\n\n");
    for (size_t i = 0; i < api->store->n_shown_views; i++) {
        const struct hub_view *view = &api->store->views[i];
        sb_buf_printf(response->body, "/metrics?type=%s  one row for each", view->spec->name);
        for (uint32_t label = 0; label < view->n_labels; label++)
            sb_buf_printf(response->body, "%s %s", label ? "," : "", view->labels[label]);
        sb_buf_put_byte(response->body, '\n');
    }
    sb_buf_put_text(response->body, "/metrics  the same as type=full\n/healthz  the process lives\n"
                                    "/readyz  its numbers can be shown\n");
}

const struct sb_http_route hub_api_routes[] = {
    {.path = "/", .handler = on_index},
    {.path = "/metrics", .handler = on_metrics},
    {.path = "/healthz", .handler = on_healthz},
    {.path = "/readyz", .handler = on_readyz},
};
const size_t hub_api_routes_count = SB_COUNT(hub_api_routes);
