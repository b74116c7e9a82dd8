#include "agent/hublink.h"

#include <czmq.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

enum { RECEIVE_MAX = 256 /* messages a tick */, LOG_EVERY_MS = 60 * 1000 };

/* zmq_socket_monitor's names must differ from socket to socket. */
static void monitor_name(char *out, size_t n, const struct agent_hublink *self)
{
    snprintf(out, n, "inproc://statsbus-hublink-%p-%llu", (const void *) self, (unsigned long long) self->random);
}

static uint64_t draw(struct agent_hublink *self)
{
    self->random ^= self->random << 13; /* xorshift64 */
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return self->random;
}

static bool send_now(void *arg, const void *bytes, size_t n)
{
    struct agent_hublink *self = arg;
    return self->socket && zmq_send(self->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

enum sb_rc agent_hublink_init(struct agent_hublink *self, const struct agent_uplink_cfg *cfg, const char *endpoint,
                              uint64_t seed, int64_t now_ms, struct sb_err *err)
{
    *self = (struct agent_hublink){
        .endpoint = strdup(endpoint),
        .wait_ms = AGENT_HUB_WAIT_MIN_MS,
        .next_try_ms = now_ms,
        .down_ms = now_ms,
        .logged_ms = INT64_MIN,
        .random = seed | 1,
    };
    struct agent_uplink_cfg own = *cfg;
    own.send = send_now;
    own.arg = self;
    if (self->endpoint && agent_uplink_init(&self->uplink, &own) == SB_OK)
        return SB_OK;
    free(self->endpoint);
    return sb_fail(err, SB_NOMEM, "the link to a hub");
}

static void close_socket(void **socket_p)
{
    if (*socket_p)
        zmq_close(*socket_p);
    *socket_p = NULL;
}

void agent_hublink_destroy(struct agent_hublink *self)
{
    close_socket(&self->monitor);
    close_socket(&self->socket);
    agent_uplink_destroy(&self->uplink);
    free(self->endpoint);
    *self = (struct agent_hublink){0};
}

bool agent_hublink_is_open(const struct agent_hublink *self)
{
    return self->uplink.phase == AGENT_UPLINK_OPEN;
}

static void log_loss(struct agent_hublink *self, const char *why, int64_t now_ms)
{
    if (self->logged_ms != INT64_MIN && now_ms - self->logged_ms < LOG_EVERY_MS)
        return;
    self->logged_ms = now_ms;
    sb_log(SB_LOG_WARN, "no session with a hub", "hub=%s reason=\"%s\"", self->endpoint, why);
}

static void end_session(struct agent_hublink *self, const char *why, int64_t now_ms)
{
    if (agent_hublink_is_open(self)) {
        self->down_ms = now_ms;
        self->uplink.cfg.counters->hub_sessions_lost++;
    }
    log_loss(self, why, now_ms);
    agent_uplink_stop(&self->uplink);
    close_socket(&self->monitor);
    close_socket(&self->socket);
    self->next_try_ms = now_ms + self->wait_ms / 2 + (int64_t) (draw(self) % (uint64_t) self->wait_ms);
    self->wait_ms = self->wait_ms * 2 < AGENT_HUB_WAIT_MAX_MS ? self->wait_ms * 2 : AGENT_HUB_WAIT_MAX_MS;
}

static bool set_option(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool watch(struct agent_hublink *self)
{
    char name[64];
    monitor_name(name, sizeof name, self);
    const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
                       ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    if (zmq_socket_monitor(self->socket, name, events) != 0)
        return false;
    self->monitor = zmq_socket(zsys_init(), ZMQ_PAIR);
    return self->monitor && set_option(self->monitor, ZMQ_LINGER, 0) && zmq_connect(self->monitor, name) == 0;
}

static void connect_hub(struct agent_hublink *self, int64_t now_ms)
{
    (void) draw(self); /* another name for the monitor */
    self->is_connected = false;
    self->socket = zmq_socket(zsys_init(), ZMQ_DEALER);
    const bool is_up = self->socket && set_option(self->socket, ZMQ_LINGER, 0) &&
                       set_option(self->socket, ZMQ_RECONNECT_IVL, -1) &&
                       set_option(self->socket, ZMQ_SNDHWM, AGENT_HUB_QUEUE) &&
                       set_option(self->socket, ZMQ_RCVHWM, AGENT_HUB_QUEUE) && watch(self) &&
                       zmq_connect(self->socket, self->endpoint) == 0;
    if (is_up)
        agent_uplink_start(&self->uplink, now_ms);
    else
        end_session(self, zmq_strerror(zmq_errno()), now_ms);
}

/* Has the connection ended, or been refused? An event is two parts, the first of which starts with its number. */
static bool is_gone(struct agent_hublink *self)
{
    bool is_over = false;
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (!is_over && zmq_msg_recv(&part, self->monitor, ZMQ_DONTWAIT) >= 0) {
        uint16_t event = 0;
        if (!zmq_msg_more(&part) || zmq_msg_size(&part) < sizeof event)
            continue; /* the second part, an address */
        memcpy(&event, zmq_msg_data(&part), sizeof event);
        if (event == ZMQ_EVENT_CONNECTED)
            self->is_connected = true;
        else
            is_over = true;
    }
    zmq_msg_close(&part);
    return is_over;
}

static enum agent_uplink_event receive(struct agent_hublink *self, int64_t now_ms)
{
    zmq_msg_t message;
    enum agent_uplink_event event = AGENT_UPLINK_FINE;
    zmq_msg_init(&message);
    for (int i = 0; i < RECEIVE_MAX && event == AGENT_UPLINK_FINE; i++) {
        if (zmq_msg_recv(&message, self->socket, ZMQ_DONTWAIT) < 0)
            break;
        event = agent_uplink_receive(&self->uplink, zmq_msg_data(&message), zmq_msg_size(&message), now_ms);
    }
    zmq_msg_close(&message);
    return event;
}

static void log_welcome(struct agent_hublink *self)
{
    self->wait_ms = AGENT_HUB_WAIT_MIN_MS;
    self->logged_ms = INT64_MIN;
    sb_log(SB_LOG_INFO, "session with a hub", "hub=%s", self->endpoint);
}

enum agent_uplink_event agent_hublink_tick(struct agent_hublink *self, const struct agent_uplink_release *release,
                                           int64_t now_ms)
{
    if (!self->socket && now_ms < self->next_try_ms)
        return AGENT_UPLINK_FINE;
    if (!self->socket)
        connect_hub(self, now_ms);
    if (!self->socket)
        return AGENT_UPLINK_FINE;
    const bool was_open = agent_hublink_is_open(self);
    const uint64_t before = self->uplink.number;
    const bool is_over = is_gone(self); /* what had arrived by then is still to be read */
    enum agent_uplink_event event = receive(self, now_ms);
    if (!was_open && agent_hublink_is_open(self))
        log_welcome(self);
    if (event == AGENT_UPLINK_FINE)
        event = agent_uplink_pump(&self->uplink, release, now_ms);
    self->has_more = self->uplink.is_blocked && self->uplink.number != before;
    if (event == AGENT_UPLINK_FINE && is_over) {
        end_session(self, "disconnected", now_ms);
        return AGENT_UPLINK_FINE;
    }
    if (event == AGENT_UPLINK_OVER) {
        /* ZeroMQ says nothing of a name that it can't look up: that is found out by waiting. */
        end_session(
            self, self->is_connected ? self->uplink.err.text : "no connection: its name is unknown, or nobody answers",
            now_ms);
        return AGENT_UPLINK_FINE;
    }
    if (event == AGENT_UPLINK_ROLLED_BACK || event == AGENT_UPLINK_CLOSED)
        agent_hublink_restart(self, now_ms);
    return event;
}

void agent_hublink_restart(struct agent_hublink *self, int64_t now_ms)
{
    if (self->socket)
        end_session(self, "a new lineage starts", now_ms);
    self->next_try_ms = now_ms;
}
