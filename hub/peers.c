#include "hub/peers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/log.h"

enum { ANSWER_MAX = 4096, LOG_EVERY_MS = 60 * 1000 };

struct routing_id {
    size_t len;
    uint8_t bytes[HUB_ROUTING_ID_MAX];
};

struct hub_peer {
    struct routing_id id;
    struct hub_session session;
};

static bool peer_is(const void *item, const void *key)
{
    const struct routing_id *id = &((const struct hub_peer *) item)->id;
    const struct routing_id *wanted = key;
    return id->len == wanted->len && memcmp(id->bytes, wanted->bytes, id->len) == 0;
}

static uint64_t id_hash(const struct routing_id *id)
{
    return hub_hash(id->bytes, id->len, 0);
}

enum sb_rc hub_peers_init(struct hub_peers *self, void *router, struct hub_store *store, size_t max, int64_t now_ms,
                          struct sb_err *err)
{
    *self = (struct hub_peers){.router = router, .store = store, .max = max, .drained_ms = now_ms};
    for (size_t i = 0; i < SB_COUNT(self->logged_ms); i++)
        self->logged_ms[i] = now_ms - LOG_EVERY_MS;
    sb_buf_init(&self->answer, ANSWER_MAX);
    zmq_msg_init(&self->part);
    if (getrandom(self->hub_id, sizeof self->hub_id, 0) != (ssize_t) sizeof self->hub_id)
        return sb_fail(err, SB_IO, "no random bytes for the hub's id");
    return SB_OK;
}

static void destroy_peer(struct hub_peer *peer)
{
    hub_session_release(&peer->session);
    free(peer);
}

void hub_peers_release(struct hub_peers *self)
{
    size_t at = 0;
    for (struct hub_peer *peer; (peer = hub_table_next(&self->table, &at)) != NULL;)
        destroy_peer(peer);
    hub_table_release(&self->table);
    sb_buf_release(&self->answer);
    zmq_msg_close(&self->part);
}

/* Sends self->answer and empties it. A peer that is gone or doesn't read loses it: never a wait. */
static void send_answer(struct hub_peers *self, const struct routing_id *to)
{
    if (zmq_send(self->router, to->bytes, to->len, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(self->router, self->answer.data, self->answer.len, ZMQ_DONTWAIT);
    sb_buf_clear(&self->answer);
}

static void send_ack(struct hub_peers *self, struct hub_peer *peer)
{
    sb_buf_clear(&self->answer);
    hub_session_pack_ack(&peer->session, &self->answer);
    send_answer(self, &peer->id);
}

static void forget_peer(struct hub_peers *self, struct hub_peer *peer)
{
    for (size_t i = 0; i < self->n_due; i++) {
        if (self->due[i] == peer)
            self->due[i] = NULL;
    }
    hub_table_remove(&self->table, id_hash(&peer->id), peer);
    destroy_peer(peer);
}

/* Counts and tells a refusal; what session there was is over. */
static void refuse(struct hub_peers *self, const struct routing_id *id, struct hub_peer *peer, enum hub_refusal refusal,
                   int64_t now_ms)
{
    self->store->counters->refused[refusal]++;
    if (now_ms - self->logged_ms[refusal] >= LOG_EVERY_MS) {
        self->logged_ms[refusal] = now_ms;
        const struct hub_lineage *lineage = peer ? peer->session.lineage : NULL;
        sb_log(SB_LOG_WARN, "session refused", "node=\"%s\" reason=%s text=\"%s\"", lineage ? lineage->node : "",
               hub_refusal_name(refusal), hub_refusal_text(refusal));
    }
    sb_buf_clear(&self->answer);
    hub_pack_refused(&self->answer, refusal);
    send_answer(self, id);
    if (peer)
        forget_peer(self, peer);
}

static struct hub_peer *add_peer(struct hub_peers *self, const struct routing_id *id, int64_t now_ms)
{
    if (self->table.n >= self->max) {
        self->store->counters->limits[HUB_LIMIT_agents]++;
        return NULL;
    }
    struct hub_peer *peer = calloc(1, sizeof *peer);
    if (!peer || !hub_table_add(&self->table, id_hash(id), peer)) {
        free(peer);
        return NULL;
    }
    peer->id = *id;
    hub_session_init(&peer->session, self->store, ++self->last_serial, now_ms);
    return peer;
}

/* One message that has arrived whole in self->part. */
static void take_message(struct hub_peers *self, const struct routing_id *id, int64_t now_ms)
{
    struct hub_peer *peer = hub_table_find(&self->table, id_hash(id), peer_is, id);
    if (!peer)
        peer = add_peer(self, id, now_ms);
    if (!peer) {
        refuse(self, id, NULL, HUB_REFUSAL_limit, now_ms);
        return;
    }
    struct hub_session *session = &peer->session;
    bool was_due = session->is_ack_due;
    sb_buf_clear(&self->answer);
    enum hub_refusal refusal = hub_session_take(session, self->hub_id, zmq_msg_data(&self->part),
                                                zmq_msg_size(&self->part), now_ms, &self->answer);
    if (refusal != HUB_OK) {
        refuse(self, id, peer, refusal, now_ms);
        return;
    }
    if (self->answer.len > 0) {
        sb_log(SB_LOG_INFO, "session begun", "node=\"%s\" agents=%zu", session->lineage->node, self->table.n);
        send_answer(self, id);
    }
    if (session->is_ack_due && !was_due)
        self->due[self->n_due++] = peer;
}

/* Throws away what is left of a message. False: there was nothing more. */
static bool drop_rest(struct hub_peers *self)
{
    bool is_any = false;
    while (zmq_msg_more(&self->part)) {
        is_any = true;
        if (zmq_msg_recv(&self->part, self->router, ZMQ_DONTWAIT) < 0)
            break;
    }
    return is_any;
}

/* Reads one message; false when there is none. */
static bool take_one(struct hub_peers *self, int64_t now_ms)
{
    struct routing_id id;
    int len = zmq_recv(self->router, id.bytes, sizeof id.bytes, ZMQ_DONTWAIT);
    if (len < 0)
        return false;
    id.len = (size_t) len < sizeof id.bytes ? (size_t) len : sizeof id.bytes;

    struct hub_counters *counters = self->store->counters;
    counters->messages++;
    int more = 0;
    size_t more_size = sizeof more;
    zmq_getsockopt(self->router, ZMQ_RCVMORE, &more, &more_size);
    bool is_one = more && zmq_msg_recv(&self->part, self->router, ZMQ_DONTWAIT) >= 0;
    if (is_one)
        counters->bytes += zmq_msg_size(&self->part);
    if (is_one && !drop_rest(self)) {
        take_message(self, &id, now_ms);
        return true;
    }
    struct hub_peer *peer = hub_table_find(&self->table, id_hash(&id), peer_is, &id);
    refuse(self, &id, peer, HUB_REFUSAL_not_one_frame, now_ms);
    return true;
}

bool hub_peers_take(struct hub_peers *self, int64_t now_ms)
{
    const uint64_t enough = self->store->counters->bytes + HUB_BURST_BYTES;
    bool is_drained = false;
    for (int i = 0; i < HUB_BURST_MAX && !is_drained && self->store->counters->bytes < enough; i++)
        is_drained = !take_one(self, now_ms);
    if (is_drained)
        self->drained_ms = now_ms;
    for (size_t i = 0; i < self->n_due; i++) {
        if (self->due[i])
            send_ack(self, self->due[i]);
    }
    self->n_due = 0;
    return is_drained;
}

/* A session that was silent for the timeout, or NULL. */
static struct hub_peer *find_silent(const struct hub_peers *self, int64_t timeout_ms)
{
    size_t at = 0;
    for (struct hub_peer *peer; (peer = hub_table_next(&self->table, &at)) != NULL;) {
        if (self->drained_ms - peer->session.heard_ms >= timeout_ms)
            return peer;
    }
    return NULL;
}

void hub_peers_beat(struct hub_peers *self, int64_t timeout_ms)
{
    for (struct hub_peer *peer; (peer = find_silent(self, timeout_ms)) != NULL;)
        refuse(self, &peer->id, peer, HUB_REFUSAL_silent, self->drained_ms);
    size_t at = 0;
    for (struct hub_peer *peer; (peer = hub_table_next(&self->table, &at)) != NULL;) {
        if (peer->session.lineage)
            send_ack(self, peer);
    }
}

int64_t hub_peers_silence_ms(const struct hub_peers *self, int64_t now_ms)
{
    int64_t silence_ms = 0;
    size_t at = 0;
    for (const struct hub_peer *peer; (peer = hub_table_next(&self->table, &at)) != NULL;) {
        if (now_ms - peer->session.heard_ms > silence_ms)
            silence_ms = now_ms - peer->session.heard_ms;
    }
    return silence_ms;
}
