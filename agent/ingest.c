#include "agent/ingest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/log.h"

enum {
    PARTS_MAX = 4, /* routing id, topic, header, payload */
    LOG_EVERY_MS = 60 * 1000,
    LINGER_MS = 200,
    HEARTBEAT_MS = 5000, /* of ZeroMQ itself: a connection whose peer is gone without a word is closed */
    HEARTBEAT_TIMEOUT_MS = 30000,
    POSTPONED_MAX = 8, /* passes in a row */
    /* ZeroMQ cuts a peer off that sends more: sizes are judged after receipt, but a queue full must not cost much. */
    WIRE_MAX = 4 << 20,
};

struct agent_ingest {
    struct agent_counters *counters;
    struct agent_publishers *publishers;
    zsock_t *stats;
    zsock_t *replay;
    int stats_lock, replay_lock;
    zmq_msg_t parts[PARTS_MAX]; /* used again for each message */
    zmq_msg_t surplus;
    uint32_t n_parts;
    uint32_t n_postponed; /* passes since the replay socket had its turn */
    bool is_closed;       /* but for marks */
    int64_t logged_ms[AGENT_REFUSAL_COUNT];
    struct agent_envelope envelope;
};

static zsock_t *bind_socket(int type, const char *flag, const char *endpoint, int *lock_fd, struct sb_err *err)
{
    zsock_t *made = zsock_new(type);
    if (!made) {
        sb_fail(err, SB_IO, "no socket for %s", endpoint);
        return NULL;
    }
    zsock_set_rcvhwm(made, AGENT_QUEUE);
    zsock_set_sndhwm(made, AGENT_QUEUE);
    zsock_set_linger(made, LINGER_MS);
    zsock_set_maxmsgsize(made, WIRE_MAX);
    zsock_set_heartbeat_ivl(made, HEARTBEAT_MS);
    zsock_set_heartbeat_timeout(made, HEARTBEAT_TIMEOUT_MS);
    if (type == ZMQ_SUB)
        zsock_set_subscribe(made, "statsbus1.");
    if (type == ZMQ_ROUTER)
        zsock_set_router_handover(made, 1);
    if (sb_endpoint_bind(zsock_resolve(made), endpoint, lock_fd, err) == SB_OK)
        return made;
    (void) sb_fail_at(err, SB_IO, "%s", flag);
    zsock_destroy(&made);
    return NULL;
}

struct agent_ingest *agent_ingest_new(const char *engines, const char *replay, struct agent_counters *counters,
                                      struct sb_err *err)
{
    struct agent_ingest *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "the sockets' buffers");
        return NULL;
    }
    self->counters = counters;
    self->stats_lock = self->replay_lock = -1;
    for (int i = 0; i < PARTS_MAX; i++)
        zmq_msg_init(&self->parts[i]);
    zmq_msg_init(&self->surplus);
    for (int i = 0; i < AGENT_REFUSAL_COUNT; i++)
        self->logged_ms[i] = INT64_MIN;
    self->stats = bind_socket(ZMQ_SUB, "--engines", engines, &self->stats_lock, err);
    if (self->stats)
        self->replay = bind_socket(ZMQ_ROUTER, "--replay", replay, &self->replay_lock, err);
    if (!self->replay)
        agent_ingest_destroy(&self);
    return self;
}

void agent_ingest_destroy(struct agent_ingest **self_p)
{
    struct agent_ingest *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    for (int i = 0; i < PARTS_MAX; i++)
        zmq_msg_close(&self->parts[i]);
    zmq_msg_close(&self->surplus);
    zsock_destroy(&self->stats);
    zsock_destroy(&self->replay);
    if (self->stats_lock >= 0)
        close(self->stats_lock);
    if (self->replay_lock >= 0)
        close(self->replay_lock);
    free(self);
}

void agent_ingest_close(struct agent_ingest *self)
{
    self->is_closed = true;
}

void agent_ingest_feed(struct agent_ingest *self, struct agent_publishers *publishers)
{
    self->publishers = publishers;
}

zsock_t *agent_ingest_stats(struct agent_ingest *self)
{
    return self->stats;
}

zsock_t *agent_ingest_replay(struct agent_ingest *self)
{
    return self->replay;
}

void agent_ingest_send(struct agent_ingest *self, const char *publisher_id, const void *bytes, size_t n)
{
    void *socket = zsock_resolve(self->replay);
    if (zmq_send(socket, publisher_id, AGENT_PUBLISHER_ID_LEN, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        (void) zmq_send(socket, bytes, n, ZMQ_DONTWAIT); /* what is lost here is said again */
}

/* Receives all parts of one message; those over PARTS_MAX are counted and thrown away. False: none is there. */
static bool receive(struct agent_ingest *self, void *socket)
{
    bool has_more = true;
    for (self->n_parts = 0; has_more; self->n_parts++) {
        zmq_msg_t *part = self->n_parts < PARTS_MAX ? &self->parts[self->n_parts] : &self->surplus;
        if (zmq_msg_recv(part, socket, ZMQ_DONTWAIT) < 0)
            return false;
        has_more = zmq_msg_more(part);
    }
    return true;
}

static struct sb_slice part_of(struct agent_ingest *self, uint32_t index)
{
    zmq_msg_t *part = &self->parts[index];
    return (struct sb_slice){zmq_msg_data(part), zmq_msg_size(part)};
}

static enum agent_refusal read_message(struct agent_ingest *self, enum agent_socket socket)
{
    const uint32_t first = socket == AGENT_REPLAY ? 1 : 0; /* behind the routing id */
    self->envelope.publisher[0] = '\0';
    if (self->n_parts != first + 3)
        return AGENT_REFUSED_bad_frames;
    const struct agent_frames frames = {
        .topic = part_of(self, first), .header = part_of(self, first + 1), .payload = part_of(self, first + 2)};
    self->counters->bytes += frames.payload.len;
    const enum agent_refusal refusal = agent_envelope_read(&self->envelope, &frames, socket);
    if (refusal == AGENT_ACCEPTED && socket == AGENT_REPLAY && !sb_slice_is(part_of(self, 0), self->envelope.publisher))
        return AGENT_REFUSED_wrong_peer;
    return refusal;
}

static void log_refusal(struct agent_ingest *self, enum agent_refusal refusal, int64_t now_ms)
{
    int64_t *logged_ms = &self->logged_ms[refusal];
    if (*logged_ms != INT64_MIN && now_ms - *logged_ms < LOG_EVERY_MS)
        return;
    *logged_ms = now_ms;
    const bool is_hello = refusal == AGENT_REFUSED_bad_hello;
    sb_log(SB_LOG_WARN, "message refused", "reason=%s publisher=%s detail=\"%s\"", agent_refusal_name(refusal),
           self->envelope.publisher[0] ? self->envelope.publisher : "unknown",
           is_hello ? agent_publishers_last_error(self->publishers) : agent_refusal_text(refusal));
}

/* A refused message on the replay socket may have been part of an answer: its numbers must not be asked for for ever.
 */
static void note_refused_answer(struct agent_ingest *self)
{
    const struct sb_slice peer = part_of(self, 0);
    char id[AGENT_PUBLISHER_ID_LEN + 1] = "";
    if (peer.len != AGENT_PUBLISHER_ID_LEN)
        return;
    memcpy(id, peer.at, AGENT_PUBLISHER_ID_LEN);
    agent_publishers_refused(self->publishers, id);
}

/* Lines about a hello: one a publisher's life, and one a plan that is not whole. */
static void log_hello(struct agent_ingest *self)
{
    struct agent_introduction met;
    if (agent_publishers_take_introduction(self->publishers, &met))
        sb_log(SB_LOG_INFO, "publisher met", "publisher=%s pid=%llu engine=\"%s\" version=\"%s\" sources=%zu",
               met.publisher, (unsigned long long) met.pid, met.engine, met.version, met.n_sources);
    const char *warning = agent_publishers_take_warning(self->publishers);
    if (warning)
        sb_log(SB_LOG_WARN, "part of a hello refused", "publisher=%s detail=\"%s\"", self->envelope.publisher, warning);
}

static void take(struct agent_ingest *self, enum agent_socket socket, int64_t now_ms)
{
    self->counters->messages++;
    enum agent_refusal refusal = read_message(self, socket);
    const bool is_whole = refusal == AGENT_ACCEPTED;
    if (self->is_closed && (!is_whole || self->envelope.kind != AGENT_KIND_MARK))
        return;
    if (is_whole)
        refusal = agent_publishers_take(self->publishers, &self->envelope, socket, now_ms);
    if (refusal == AGENT_ACCEPTED && self->envelope.kind == AGENT_KIND_HELLO)
        log_hello(self);
    if (refusal == AGENT_ACCEPTED)
        return;
    self->counters->refusals[refusal]++;
    log_refusal(self, refusal, now_ms);
    const bool has_kind = self->envelope.publisher[0] != '\0';
    if (!is_whole && socket == AGENT_REPLAY && (!has_kind || self->envelope.kind == AGENT_KIND_REC))
        note_refused_answer(self);
}

static bool drain(struct agent_ingest *self, zsock_t *from, enum agent_socket socket, uint32_t *n)
{
    void *handle = zsock_resolve(from);
    const int64_t start_ms = sb_mono_ms();
    int64_t now_ms = start_ms;
    for (uint32_t i = 0; i < AGENT_PASS_MESSAGES; i++) {
        if (!receive(self, handle))
            return true;
        take(self, socket, now_ms);
        ++*n;
        now_ms = sb_mono_ms();
        if (now_ms - start_ms > AGENT_PASS_MS)
            break;
    }
    self->counters->passes_limited++;
    return false;
}

bool agent_ingest_drain(struct agent_ingest *self, uint32_t *n)
{
    *n = 0;
    const bool is_stats_empty = drain(self, self->stats, AGENT_STATS, n);
    /*
     * What a publisher published before it says that its ring has moved on may still wait on the stats socket: it must
     * not be taken for lost. So answers wait for that, though not for ever.
     */
    const bool is_replay_due = is_stats_empty || ++self->n_postponed >= POSTPONED_MAX;
    if (is_replay_due)
        self->n_postponed = 0;
    const bool is_replay_empty = is_replay_due && drain(self, self->replay, AGENT_REPLAY, n);
    const struct agent_skipped *skipped = &self->envelope.skipped;
    self->counters->skipped_kinds += skipped->kinds;
    self->counters->skipped_records += skipped->records;
    self->counters->skipped_elements += skipped->elements;
    self->envelope.skipped = (struct agent_skipped){0};
    return is_stats_empty && is_replay_empty;
}
