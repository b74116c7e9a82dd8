#include "hub/hub.h"

#include <czmq.h>
#include <signal.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/log.h"
#include "common/signals.h"
#include "hub/http_api.h"
#include "hub/peers.h"
#include "hub/stat_table.h"
#include "hub/windows.h"

enum {
    QUEUE_MAX = 8,       /* messages, each way, of each agent */
    HEARTBEAT_MS = 5000, /* of ZeroMQ itself: a connection whose agent is gone without a word is closed */
    HEARTBEAT_TIMEOUT_MS = 30000,
    TICK_MS = 1000,
    PULSE_MS = 500,      /* of what follows the numbers: windows, rates */
    SLICE_PAUSE_MS = 2,  /* between pieces of a pulse's work: what arrived meanwhile comes first */
    LATE_TICK_MS = 3000, /* a tick as late as this means that the process was stopped */
    GRACE_MS = 3000,     /* after which silences are judged again */
    STOP_CHECK_MS = 20,
    STOP_MS = 2000,
};

struct hub {
    struct sb_settings *loaded; /* where the settings come from; SIGHUP reads them anew */
    const struct hub_settings *settings;
    struct sb_catalog *catalog;
    struct hub_view_specs views;
    struct hub_computed_specs computed;
    struct hub_window_lengths windows;
    struct hub_counters counters;
    struct hub_store store;
    struct hub_peers peers;
    struct hub_stat_table stat_table;
    struct hub_api api;
    zloop_t *loop;
    zsock_t *router;
    int lock_fd;
    int signal_fd;
    struct sb_http *http;
    int64_t started_ms;
    int64_t ticked_ms;
    int64_t judge_from_ms;
    int64_t stopping_since_ms; /* 0: not stopping */
};

static int on_agents(zloop_t *loop, zsock_t *router, void *arg)
{
    (void) loop;
    (void) router;
    struct hub *self = arg;
    /* What a burst leaves is found again by the loop's next poll, which asks the socket and not its descriptor. */
    hub_peers_take(&self->peers, sb_mono_ms());
    return 0;
}

/* Goes on with a pulse's work, piece by piece. */
static int on_slice(zloop_t *loop, int timer, void *arg)
{
    (void) timer;
    struct hub *self = arg;
    if (hub_computed_go_on(&self->store) || hub_windows_go_on(&self->store) ||
        hub_stat_table_go_on(&self->stat_table, &self->store))
        (void) zloop_timer(loop, SLICE_PAUSE_MS, 1, on_slice, self); /* else the next pulse does */
    return 0;
}

static int on_pulse(zloop_t *loop, int timer, void *arg)
{
    struct hub *self = arg;
    const int64_t now_ms = sb_mono_ms();
    hub_peers_take(&self->peers, now_ms);
    hub_computed_begin_round(&self->store, now_ms);
    hub_windows_begin_round(&self->store, now_ms);
    hub_stat_table_begin(&self->stat_table, &self->store, now_ms);
    return on_slice(loop, timer, self);
}

static int on_tick(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    struct hub *self = arg;
    int64_t now_ms = sb_mono_ms();
    if (now_ms - self->ticked_ms < TICK_MS / 2)
        return 0; /* zloop makes up for ticks that it missed: once is enough */
    if (now_ms - self->ticked_ms >= LATE_TICK_MS)
        self->judge_from_ms = now_ms + GRACE_MS; /* what agents sent meanwhile is still on its way to us */
    self->ticked_ms = now_ms;

    hub_peers_take(&self->peers, now_ms);
    int64_t timeout_ms = now_ms < self->judge_from_ms ? INT64_MAX : self->settings->agent_timeout;
    int64_t closed_after_ms = now_ms < self->judge_from_ms ? INT64_MAX : self->settings->closed_after;
    hub_store_sweep(&self->store, self->peers.drained_ms, timeout_ms, closed_after_ms);
    hub_peers_beat(&self->peers, timeout_ms);
    return 0;
}

static const char *label_or_nothing(const struct sb_labelset *labels, const char *name)
{
    const char *value = sb_labelset_value(labels, name);
    return value ? value : "";
}

static void log_stats(void *arg, const struct sb_labelset *labels, uint32_t n_sources, const char *text)
{
    (void) arg;
    if (!labels) {
        sb_log(SB_LOG_INFO, "statistics are cut", "rows=%d sources_left_out=%u", HUB_STAT_ROWS_MAX, n_sources);
        return;
    }
    sb_log(SB_LOG_INFO, "statistics", "service=\"%s\" model=\"%s\" stage=\"%s\" role=\"%s\" node=\"%s\" sources=%u %s",
           label_or_nothing(labels, "service_name"), label_or_nothing(labels, "model_name"),
           label_or_nothing(labels, "stage"), label_or_nothing(labels, "role"), label_or_nothing(labels, "node"),
           n_sources, text);
}

/* Ends the loop once no scrape is under way, or time is up. */
static int on_stop_check(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    const struct hub *self = arg;
    bool is_late = sb_mono_ms() - self->stopping_since_ms >= STOP_MS;
    return self->api.scrapes_open == 0 || is_late ? -1 : 0;
}

static int on_signal(void *arg, int signal_number)
{
    struct hub *self = arg;
    if (self->stopping_since_ms != 0)
        return 0;
    if (signal_number == SIGHUP) {
        (void) hub_settings_reload(self->loaded);
        self->stat_table.period_ms = self->settings->log_stats;
        self->peers.max = (size_t) self->settings->agents_max; /* the timeout is looked up when it is used */
        self->api.memory.max = (size_t) self->settings->scrape_memory_max;
        return 0;
    }
    sb_log(SB_LOG_INFO, "stopping", "signal=%d open_scrapes=%zu", signal_number, self->api.scrapes_open);
    self->stopping_since_ms = sb_mono_ms();
    hub_peers_take(&self->peers, self->stopping_since_ms);
    if (self->api.scrapes_open == 0)
        return -1;
    return zloop_timer(self->loop, STOP_CHECK_MS, 0, on_stop_check, self) < 0 ? -1 : 0;
}

static void fill_own(void *arg, struct hub_own *own)
{
    const struct hub *self = arg;
    const struct sb_http_counters http = sb_http_counters(self->http);
    own->now_ms = sb_mono_ms();
    own->started_ms = self->started_ms;
    own->n_agents = self->peers.table.n;
    own->agents_max = self->peers.max;
    own->silence_ms = hub_peers_silence_ms(&self->peers, own->now_ms);
    own->http_requests = http.requests;
    own->http_refused = http.refused;
    own->http_turned_away = http.turned_away;
    own->http_hung_up = http.hung_up;
}

static enum sb_rc open_store(struct hub *self, struct sb_err *err)
{
    self->catalog = hub_settings_read_catalog(self->settings, err);
    if (!self->catalog)
        return err->rc;
    if (hub_settings_read_views(self->settings, &self->views, err) != SB_OK)
        return err->rc;
    const struct hub_store_limits limits = {.contributions = (size_t) self->settings->contributions_max,
                                            .row_bytes = (size_t) self->settings->row_memory_max,
                                            .linger_ms = self->settings->linger};
    if (hub_store_init(&self->store, self->catalog, &self->views, &self->counters, limits, err) != SB_OK)
        return err->rc;
    if (hub_window_lengths_parse(&self->windows, self->settings->windows, err) != SB_OK ||
        hub_windows_init(&self->store, &self->windows, (size_t) self->settings->window_memory_max, err) != SB_OK)
        return err->rc;
    struct hub_expectations expected;
    if (hub_settings_read_computed(self->settings, self->catalog, &self->computed, err) != SB_OK ||
        hub_expectations_parse(&expected, self->settings->expected_workers, err) != SB_OK)
        return err->rc;
    return hub_store_compute(&self->store, &self->computed, &expected, self->settings->rate_window, err);
}

static enum sb_rc open_router(struct hub *self, struct sb_err *err)
{
    self->router = zsock_new(ZMQ_ROUTER);
    if (!self->router)
        return sb_fail(err, SB_IO, "no ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    zsock_set_rcvhwm(self->router, QUEUE_MAX);
    zsock_set_sndhwm(self->router, QUEUE_MAX);
    zsock_set_router_handover(self->router, 1);
    zsock_set_linger(self->router, 0);
    /* Over HUB_MESSAGE_MAX we count and refuse; far over it ZeroMQ cuts the connection before it has read it all. */
    zsock_set_maxmsgsize(self->router, 2 * HUB_MESSAGE_MAX);
    zsock_set_heartbeat_ivl(self->router, HEARTBEAT_MS);
    zsock_set_heartbeat_timeout(self->router, HEARTBEAT_TIMEOUT_MS);
    void *socket = zsock_resolve(self->router);
    enum sb_rc rc = sb_endpoint_bind(socket, self->settings->agents, &self->lock_fd, err);
    if (rc != SB_OK)
        return sb_fail_at(err, rc, "--agents");
    return hub_peers_init(&self->peers, socket, &self->store, (size_t) self->settings->agents_max, self->started_ms,
                          err);
}

static enum sb_rc open_loop(struct hub *self, struct sb_err *err)
{
    self->loop = zloop_new();
    if (!self->loop)
        return sb_fail(err, SB_NOMEM, "no memory for the loop");
    self->signal_fd = sb_signals_watch(self->loop, on_signal, self, err);
    if (self->signal_fd < 0)
        return err->rc;
    if (zloop_reader(self->loop, self->router, on_agents, self) != 0 ||
        zloop_timer(self->loop, TICK_MS, 0, on_tick, self) < 0 ||
        zloop_timer(self->loop, PULSE_MS, 0, on_pulse, self) < 0)
        return sb_fail(err, SB_NOMEM, "no memory for the loop's readers");
    zloop_reader_set_tolerant(self->loop, self->router);
    self->api = (struct hub_api){.store = &self->store,
                                 .clock = sb_mono_ms,
                                 .fill = fill_own,
                                 .fill_arg = self,
                                 .memory = {.max = (size_t) self->settings->scrape_memory_max}};
    self->http = sb_http_new(self->loop, self->settings->http, hub_api_routes, hub_api_routes_count, &self->api, err);
    return self->http ? SB_OK : sb_fail_at(err, err->rc, "--http");
}

struct hub *hub_new(struct sb_settings *settings, struct sb_err *err)
{
    struct hub *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "no memory for the hub");
        return NULL;
    }
    self->loaded = settings;
    self->settings = settings->values;
    self->lock_fd = -1;
    self->signal_fd = -1;
    self->started_ms = sb_mono_ms();
    self->ticked_ms = self->started_ms;
    hub_stat_table_init(&self->stat_table, self->settings->log_stats, log_stats, self);
    if (open_store(self, err) == SB_OK && open_router(self, err) == SB_OK && open_loop(self, err) == SB_OK)
        return self;
    hub_destroy(&self);
    return NULL;
}

void hub_destroy(struct hub **self_p)
{
    struct hub *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    if (self->http)
        sb_http_destroy(&self->http);
    zloop_destroy(&self->loop);
    if (self->signal_fd >= 0)
        close(self->signal_fd);
    if (self->peers.router)
        hub_peers_release(&self->peers);
    zsock_destroy(&self->router);
    if (self->lock_fd >= 0)
        close(self->lock_fd);
    if (self->store.counters) {
        hub_stat_table_release(&self->stat_table, &self->store);
        hub_store_release(&self->store);
    }
    hub_view_specs_release(&self->views);
    hub_computed_specs_release(&self->computed);
    sb_catalog_destroy(&self->catalog);
    free(self);
}

void hub_run(struct hub *self)
{
    char endpoint[SB_ENDPOINT_MAX] = "";
    size_t size = sizeof endpoint;
    zmq_getsockopt(zsock_resolve(self->router), ZMQ_LAST_ENDPOINT, endpoint, &size); /* with the port that :* became */
    sb_log(SB_LOG_INFO, "ready", "agents=%s http_port=%u", endpoint, sb_http_port(self->http));
    zloop_start(self->loop);
    sb_log(SB_LOG_INFO, "stopped", "frames=%llu", (unsigned long long) self->counters.frames);
}
