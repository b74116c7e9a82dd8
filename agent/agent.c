#include "agent/agent.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_private.h"
#include "agent/retire.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/signals.h"

enum {
    TICK_MS = 20, /* waking up is most of the cost at real rates */
    MORE_MS =
        1, /* while a hub takes one queue of frames after another; a hub that takes none has to wait for the tick */
    ASK_MS = 50,
    SWEEP_MS = 1000,
    RETIRE_MS = 5000,
    BUSY_MESSAGES = 64, /* a tick: with more the sockets wake the loop themselves, or queues would overflow */
    STOP_MS = 4000,     /* for the last commit, the marks and the hubs */
    LOG_EVERY_MS = 60 * 1000,
};

static struct agent_uplink_release release_of(const struct agent *self)
{
    return (struct agent_uplink_release){.is_released = self->commit.is_released, .generation = self->commit.released};
}

/* Sockets */

/* True: nothing is left in them. */
static bool drain(struct agent *self)
{
    uint32_t n;
    const bool is_empty = agent_ingest_drain(self->ingest, &n);
    self->n_since_tick += n;
    return is_empty;
}

static int on_readable(zloop_t *loop, zsock_t *socket, void *arg)
{
    (void) loop;
    (void) socket;
    (void) drain(arg); /* what is left is found again by the loop's next poll */
    return 0;
}

/* At high rates the sockets wake the loop; at others only the tick does. */
static void choose_pace(struct agent *self)
{
    const bool is_busy = self->n_since_tick >= BUSY_MESSAGES;
    self->n_since_tick = 0;
    if (is_busy == self->is_busy)
        return;
    zsock_t *sockets[] = {agent_ingest_stats(self->ingest), agent_ingest_replay(self->ingest)};
    for (size_t i = 0; i < SB_COUNT(sockets); i++) {
        if (!is_busy)
            zloop_reader_end(self->loop, sockets[i]);
        else if (zloop_reader(self->loop, sockets[i], on_readable, self) == 0)
            zloop_reader_set_tolerant(self->loop, sockets[i]);
    }
    self->is_busy = is_busy;
}

/* Duties of a tick; each asks the clock whether it is its turn */

static bool is_due(int64_t *last_ms, int64_t period_ms, int64_t now_ms)
{
    if (now_ms - *last_ms < period_ms)
        return false;
    *last_ms = now_ms;
    return true;
}

static void commit(struct agent *self, int64_t now_ms)
{
    const double start = sb_mono_s();
    if (!agent_commit_tick(&self->commit, now_ms))
        return;
    self->self.commit_seconds = sb_mono_s() - start;
    if (self->commit.err.rc != SB_OK && is_due(&self->failure_logged_ms, LOG_EVERY_MS, now_ms))
        sb_log(SB_LOG_ERROR, "the state can't be written: counters wait", "file=%s reason=\"%s\"",
               self->settings->state, self->commit.err.text);
}

static void feed_hubs(struct agent *self, int64_t now_ms)
{
    const struct agent_uplink_release release = release_of(self);
    for (size_t i = 0; i < self->n_hubs && !self->is_lineage_new; i++) {
        const enum agent_uplink_event event = agent_hublink_tick(&self->hubs[i], &release, now_ms);
        if (event == AGENT_UPLINK_ROLLED_BACK || event == AGENT_UPLINK_CLOSED)
            agent_start_lineage(self, event == AGENT_UPLINK_CLOSED);
    }
    for (size_t i = 0; i < self->n_hubs && self->is_lineage_new; i++)
        agent_hublink_restart(&self->hubs[i], now_ms);
    self->is_lineage_new = false;
}

/* Frames of hundreds of sources are many queues long: with one a tick the last would be half a second late. */
static int feed_more(zloop_t *loop, int timer, void *arg)
{
    struct agent *self = arg;
    bool has_more = false;
    if (timer == self->more_timer)
        self->more_timer = 0;
    feed_hubs(self, sb_mono_ms());
    for (size_t i = 0; i < self->n_hubs; i++)
        has_more = has_more || self->hubs[i].has_more;
    if (has_more && self->more_timer == 0) {
        const int made = zloop_timer(loop, MORE_MS, 1, feed_more, self);
        self->more_timer = made > 0 ? made : 0; /* without it the next tick goes on */
    }
    return 0;
}

static void retire(struct agent *self, int64_t now_ms)
{
    const struct agent_retire_cfg cfg = {
        .ledger = self->ledger,
        .publishers = self->publishers,
        .commit = &self->commit,
        .counters = &self->self.counters,
        .hubs = self->hubs,
        .n_hubs = self->n_hubs,
        .forget_after_ms = self->settings->forget_after,
    };
    agent_retire(&cfg, now_ms);
}

/* All that was counted is committed and with every hub that has a session. */
static bool is_delivered(const struct agent *self)
{
    const struct agent_uplink_release release = release_of(self);
    if (!agent_commit_is_settled(&self->commit))
        return false;
    for (size_t i = 0; i < self->n_hubs; i++)
        if (agent_hublink_is_open(&self->hubs[i]) && !agent_uplink_is_settled(&self->hubs[i].uplink, &release))
            return false;
    return true;
}

static int on_tick(zloop_t *loop, int timer, void *arg)
{
    struct agent *self = arg;
    int64_t now_ms = sb_mono_ms();
    if (now_ms - self->ticked_ms < TICK_MS / 2)
        return 0; /* zloop makes up for ticks that it missed: once is enough */
    self->ticked_ms = now_ms;

    const bool is_empty = drain(self);
    choose_pace(self);
    now_ms = sb_mono_ms();
    agent_throttle_pass(&self->throttle, self->ledger, now_ms);
    if (is_due(&self->asked_ms, ASK_MS, now_ms))
        agent_publishers_tick(self->publishers, now_ms);
    if (self->stopping_ms == 0 && is_due(&self->swept_ms, SWEEP_MS, now_ms))
        agent_publishers_sweep(self->publishers, is_empty, now_ms);
    commit(self, now_ms);
    (void) feed_more(loop, timer, self);
    agent_stat_lines_tick(&self->stat_lines, self->ledger, now_ms);
    if (self->commit.is_released && is_due(&self->retired_ms, RETIRE_MS, now_ms))
        retire(self, now_ms);
    if (self->stopping_ms == 0)
        return 0;
    return is_delivered(self) || now_ms - self->stopping_ms > STOP_MS ? -1 : 0;
}

/* forget_after is looked up where it is used as well; what keeps a copy gets the new one. */
static void reload(struct agent *self)
{
    if (!agent_settings_reload(self->loaded))
        return;
    self->throttle.period_ms = self->settings->snapshot_period;
    self->stat_lines.period_ms = self->settings->log_stats;
    agent_commit_set_period(&self->commit, self->settings->commit_period, sb_mono_ms());
    agent_publishers_set_timeouts(self->publishers, self->settings->source_timeout, self->settings->forget_after);
    for (size_t i = 0; i < self->n_hubs; i++)
        self->hubs[i].uplink.cfg.hub_timeout_ms = self->settings->hub_timeout;
}

static int on_signal(void *arg, int signal_number)
{
    struct agent *self = arg;
    if (self->stopping_ms != 0)
        return 0;
    if (signal_number == SIGHUP) {
        reload(self);
        return 0;
    }
    sb_log(SB_LOG_INFO, "stopping", "signal=%d", signal_number);
    (void) drain(self); /* one pass: what comes later waits for the next agent */
    agent_ingest_close(self->ingest);
    self->stopping_ms = sb_mono_ms();
    agent_commit_hurry(&self->commit);
    return 0;
}

static const char *label_or_nothing(const struct agent_contribution *source, const char *name)
{
    const char *value = sb_labelset_value(source->source, name);
    value = value ? value : sb_labelset_value(source->identity, name);
    return value ? value : "";
}

static void log_stats(void *arg, const struct agent_contribution *source, const char *text)
{
    (void) arg;
    sb_log(SB_LOG_INFO, "statistics",
           "service=\"%s\" model=\"%s\" job=\"%s\" instance=\"%s\" role=\"%s\" dp_rank=\"%s\" stage=\"%s\" "
           "replica=\"%s\" %s",
           label_or_nothing(source, "service_name"), label_or_nothing(source, "model_name"),
           label_or_nothing(source, "job_name"), label_or_nothing(source, "instance_id"),
           label_or_nothing(source, "role"), label_or_nothing(source, "dp_rank"), label_or_nothing(source, "stage"),
           label_or_nothing(source, "replica"), text);
}

/* Opening and closing */

static void name_node(struct agent *self)
{
    if (self->settings->node[0])
        snprintf(self->node, sizeof self->node, "%s", self->settings->node);
    else if (gethostname(self->node, sizeof self->node - 1) != 0)
        self->node[0] = '\0';
}

static enum sb_rc open_sockets(struct agent *self, struct sb_err *err)
{
    self->ingest = agent_ingest_new(self->settings->engines, self->settings->replay, &self->self.counters, err);
    if (!self->ingest)
        return err->rc;
    agent_ingest_feed(self->ingest, self->publishers);
    return SB_OK;
}

static enum sb_rc open_loop(struct agent *self, struct sb_err *err)
{
    self->loop = zloop_new();
    if (!self->loop)
        return sb_fail(err, SB_NOMEM, "the loop");
    self->signal_fd = sb_signals_watch(self->loop, on_signal, self, err);
    if (self->signal_fd < 0)
        return err->rc;
    if (zloop_timer(self->loop, TICK_MS, 0, on_tick, self) < 0)
        return sb_fail(err, SB_NOMEM, "the loop's timer");
    self->http = sb_http_new(self->loop, self->settings->http, agent_routes, AGENT_ROUTES, self, err);
    return self->http ? SB_OK : sb_fail_at(err, err->rc, "--http");
}

struct agent *agent_new(struct sb_settings *settings, struct sb_err *err)
{
    struct agent *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "the agent");
        return NULL;
    }
    self->loaded = settings;
    self->settings = settings->values;
    self->signal_fd = -1;
    self->failure_logged_ms = -LOG_EVERY_MS;
    name_node(self);
    agent_throttle_init(&self->throttle, self->settings->snapshot_period);
    agent_stat_lines_init(&self->stat_lines, self->settings->log_stats, log_stats, self);
    if (agent_open_state(self, err) != SB_OK || open_sockets(self, err) != SB_OK ||
        agent_open_hubs(self, err) != SB_OK || open_loop(self, err) != SB_OK) {
        agent_destroy(&self);
        return NULL;
    }
    self->self.ledger = self->ledger;
    self->self.publishers = self->publishers;
    self->self.commit = &self->commit;
    self->self.hubs = self->hubs;
    self->self.n_hubs = self->n_hubs;
    self->self.http = self->http;
    return self;
}

void agent_destroy(struct agent **self_p)
{
    struct agent *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    if (self->http)
        sb_http_destroy(&self->http);
    zloop_destroy(&self->loop);
    if (self->signal_fd >= 0)
        close(self->signal_fd);
    for (size_t i = 0; i < self->n_hubs; i++)
        agent_hublink_destroy(&self->hubs[i]);
    agent_ingest_destroy(&self->ingest);
    agent_commit_release(&self->commit);
    agent_throttle_release(&self->throttle);
    agent_stat_lines_release(&self->stat_lines);
    agent_publishers_destroy(&self->publishers);
    agent_ledger_destroy(&self->ledger);
    if (self->statefile)
        sb_statefile_close(&self->statefile);
    sb_labelsets_destroy(&self->labelsets);
    sb_catalog_destroy(&self->catalog);
    free(self);
}

void agent_run(struct agent *self)
{
    sb_log(SB_LOG_INFO, "ready", "engines=%s replay=%s hubs=%zu http_port=%u", self->settings->engines,
           self->settings->replay, self->n_hubs, sb_http_port(self->http));
    zloop_start(self->loop);
    sb_log(SB_LOG_INFO, "stopped", "delivered=%s generation=%llu", is_delivered(self) ? "yes" : "no",
           (unsigned long long) self->commit.state.generation);
}
