/* GET /metrics, /healthz, /readyz (agent.h). */
#include "agent/agent_private.h"
#include "common/clock.h"

static void metrics(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    const struct agent *self = arg;
    if (request->n_query > 0) { /* most likely meant for a hub: an answer of another kind would not be noticed */
        response->status = 400;
        sb_buf_printf(response->body, "parameter '%.100s' is not known: an agent has no views, a hub has\n",
                      request->query[0].name);
        return;
    }
    const struct sb_expo expo = {.out = response->body, .format = sb_expo_negotiate(request->accept)};
    response->content_type = sb_expo_content_type(expo.format);
    agent_self_render(&self->self, &expo, sb_mono_ms());
}

static void healthz(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    sb_buf_put_text(response->body, "alive\n");
}

/* The server starts when the sockets are bound and the state is loaded, so only the end is to be told. */
static void readyz(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) request;
    const struct agent *self = arg;
    if (self->stopping_ms != 0)
        response->status = 503;
    sb_buf_put_text(response->body, self->stopping_ms == 0 ? "ready\n" : "stopping\n");
}

static void page_list(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    sb_buf_put_text(response->body, "statsbus-agent " STATSBUS_VERSION "\n\n"
                                    "/metrics  the agent about itself; the engines' numbers are at the hub\n"
                                    "/healthz  the process lives\n/readyz  it takes what engines publish\n");
}

const struct sb_http_route agent_routes[AGENT_ROUTES] = {
    {"/", page_list},
    {"/metrics", metrics},
    {"/healthz", healthz},
    {"/readyz", readyz},
};
