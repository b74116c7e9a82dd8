#include "http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accept.h"
#include "address.h"
#include "clock.h"
#include "gzip.h"
#include "http_private.h"

enum {
    BACKLOG = 128,
    GZIP_LEAST = 1024, /* below that a body is sent as it is: it fits one packet either way */
    TIMER_NONE = -1,
};

/* A connection of a client. Its place in MHD's keeping is its socket context. */
struct client {
    bool is_open;
    int fd;
    int64_t since_ms; /* when it came, or its last answer was complete */
};

struct sb_http {
    zloop_t *loop;
    struct MHD_Daemon *daemon;
    const struct sb_http_route *routes;
    size_t n_routes;
    void *arg;
    zmq_pollitem_t poll; /* the daemon's epoll descriptor */
    int timer;           /* of the next MHD_run, or TIMER_NONE */
    unsigned port;
    unsigned connections;
    struct client clients[SB_HTTP_CONNECTIONS_MAX];
    int64_t answer_ms; /* how long a client may take for a request and its answer */
    struct sb_http_counters counters;
};

/* --- listening --- */

enum sb_rc sb_http_check_address(const char *listen_at, struct sb_err *err)
{
    union sb_address ignored;
    return sb_address_parse(listen_at, &ignored, err);
}

/* A socket that listens, or -1 with *err; *port is the one it got. */
static int listen_on(const char *listen_at, unsigned *port, struct sb_err *err)
{
    union sb_address address;
    if (sb_address_parse(listen_at, &address, err) != SB_OK)
        return -1;

    const bool is_v6 = address.any.sa_family == AF_INET6;
    socklen_t len = sb_address_len(&address);
    const int on = 1;
    const int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && bind(fd, &address.any, len) == 0 &&
        listen(fd, BACKLOG) == 0 && getsockname(fd, &address.any, &len) == 0) {
        *port = ntohs(is_v6 ? address.v6.sin6_port : address.v4.sin_port);
        return fd;
    }
    sb_fail(err, SB_IO, "cannot listen on %s: %s", listen_at, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* --- answering --- */

static enum MHD_Result queue(struct sb_http *self, struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    if (!response)
        return MHD_NO; /* out of memory: the connection is closed */
    if (status >= 400 && status < 500)
        self->counters.refused++;
    const enum MHD_Result queued = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return queued;
}

static void add_headers(struct MHD_Response *response, const char *content_type, bool is_gzip)
{
    if (!response)
        return;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept, Accept-Encoding");
    if (is_gzip)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
}

static const char plain_text[] = "text/plain; charset=utf-8";

/* A refusal of our own: one line that says what is wrong. */
static enum MHD_Result refuse(struct sb_http *self, struct MHD_Connection *connection, unsigned status,
                              const char *text)
{
    struct sb_buf body;
    sb_buf_init(&body, 64 * 1024);
    sb_buf_put_text(&body, text);
    if (status == MHD_HTTP_NOT_FOUND) {
        for (size_t i = 0; i < self->n_routes; i++)
            sb_buf_printf(&body, " %s", self->routes[i].path);
    }
    sb_buf_put_byte(&body, '\n');
    struct MHD_Response *response = MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_MUST_FREE);
    if (!response)
        sb_buf_release(&body);
    add_headers(response, plain_text, false);
    if (response && status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return queue(self, connection, status, response);
}

/* The body as a response that owns its memory, compressed where that pays; body is empty afterwards. */
static struct MHD_Response *body_response(struct sb_buf *body, bool *is_gzip)
{
    if (*is_gzip && body->len >= GZIP_LEAST) {
        struct sb_gzip gzip;
        struct sb_buf packed;
        sb_buf_init(&packed, body->max);
        if (sb_gzip_init(&gzip) != SB_OK)
            return NULL;
        sb_gzip_put(&gzip, body->data, body->len, SB_GZIP_END, &packed);
        sb_gzip_release(&gzip);
        sb_buf_release(body);
        *body = packed;
        if (packed.is_overflow)
            return NULL;
    } else {
        *is_gzip = false;
    }

    struct MHD_Response *response = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    if (response)
        body->data = NULL; /* the response's now */
    return response;
}

/*
 * MHD ends a body in chunks also where a HEAD let it send none, and a client that goes on would read that end as the
 * next answer. So HEAD of a stream is answered as if to a client without chunks, and the connection closes.
 */
static void leave_out_chunks(struct MHD_Response *response)
{
    if (response)
        (void) MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
}

static enum MHD_Result answer(struct sb_http *self, struct MHD_Connection *connection,
                              const struct sb_http_route *route, const struct sb_http_request *request, bool is_head)
{
    SB_OWN(sb_buf_release) struct sb_buf body;
    sb_buf_init(&body, SB_HTTP_BODY_MAX);
    struct sb_http_response response = {.status = MHD_HTTP_OK, .content_type = plain_text, .body = &body};
    route->handler(self->arg, request, &response);

    bool is_gzip =
        sb_accept_gzip(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT_ENCODING));
    struct MHD_Response *made;
    if (response.stream.next) {
        made = sb_http_stream_response(response.stream, is_gzip);
        if (is_head)
            leave_out_chunks(made);
    } else {
        if (body.is_overflow)
            return refuse(self, connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
                          "the answer is larger than this server sends");
        made = body_response(&body, &is_gzip);
    }
    add_headers(made, response.content_type, is_gzip);
    return queue(self, connection, response.status, made);
}

/* --- requests --- */

struct query {
    struct sb_http_query at[SB_HTTP_QUERY_MAX];
    size_t n;
    bool has_nul; /* %00 in a name or a value: as a text it would end there, and mean another one */
};

static bool is_text(const char *bytes, size_t size)
{
    return !bytes || strlen(bytes) == size;
}

static enum MHD_Result take_query(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                  const char *value, size_t value_size)
{
    (void) kind;
    struct query *query = arg;
    query->has_nul = !is_text(name, name_size) || !is_text(value, value_size);
    if (query->n < SB_HTTP_QUERY_MAX)
        query->at[query->n] = (struct sb_http_query){.name = name ? name : "", .value = value ? value : ""};
    query->n++;
    return query->n <= SB_HTTP_QUERY_MAX && !query->has_nul ? MHD_YES : MHD_NO;
}

static const struct sb_http_route *find_route(const struct sb_http *self, const char *path)
{
    for (size_t i = 0; i < self->n_routes; i++) {
        if (strcmp(self->routes[i].path, path) == 0)
            return &self->routes[i];
    }
    return NULL;
}

static bool has_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return (length && strcmp(length, "0") != 0) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/*
 * MHD calls twice a request: after the headers, and when all has been read. An answer at the first call closes the
 * connection afterwards, so that is for refusals which leave a body unread.
 */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **request_state)
{
    (void) version;
    (void) upload;
    static char seen;
    struct sb_http *self = arg;
    if (!*request_state) {
        *request_state = &seen;
        self->counters.requests++;
        if (!has_body(connection))
            return MHD_YES;
        return refuse(self, connection, MHD_HTTP_BAD_REQUEST, "requests with a body are not answered here");
    }
    if (*upload_size > 0)
        return MHD_NO; /* a body that no header announced */

    const struct sb_http_route *route = find_route(self, path);
    if (!route)
        return refuse(self, connection, MHD_HTTP_NOT_FOUND, "there is nothing at this path, only at:");
    const bool is_head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && !is_head)
        return refuse(self, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered here");
    struct query query = {.n = 0};
    MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, take_query, &query);
    if (query.has_nul)
        return refuse(self, connection, MHD_HTTP_BAD_REQUEST, "a query parameter has a zero byte in it");
    if (query.n > SB_HTTP_QUERY_MAX)
        return refuse(self, connection, MHD_HTTP_BAD_REQUEST, "there are more than 64 query parameters");

    const struct sb_http_request request = {
        .path = path,
        .accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT),
        .query = query.at,
        .n_query = query.n,
    };
    return answer(self, connection, route, &request, is_head);
}

static enum MHD_Result on_accept(void *arg, const struct sockaddr *address, socklen_t len)
{
    (void) address;
    (void) len;
    struct sb_http *self = arg;
    if (self->connections < SB_HTTP_CONNECTIONS_MAX)
        return MHD_YES;
    self->counters.turned_away++;
    return MHD_NO;
}

static void open_client(struct sb_http *self, struct MHD_Connection *connection, void **state)
{
    self->connections++;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (size_t i = 0; info && i < SB_HTTP_CONNECTIONS_MAX; i++) {
        struct client *client = &self->clients[i];
        if (client->is_open)
            continue;
        *client = (struct client){.is_open = true, .fd = info->connect_fd, .since_ms = sb_mono_ms()};
        *state = client;
        return;
    }
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct sb_http *self = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        open_client(self, connection, state);
        return;
    }
    self->connections--;
    if (*state)
        ((struct client *) *state)->is_open = false;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **request_state,
                         enum MHD_RequestTerminationCode code)
{
    (void) arg;
    (void) request_state;
    (void) code;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *client = info ? info->socket_context : NULL;
    if (client)
        client->since_ms = sb_mono_ms();
}

/* --- the loop --- */

static int on_timer(zloop_t *loop, int timer, void *arg);

/*
 * MHD closes what is silent. A client that sends or takes a few bytes now and then never is, and would hold its place
 * for good: it is hung up on, and MHD sees a connection that broke. Returns how long the next one still has; -1: none.
 */
static int64_t end_overlong(struct sb_http *self, int64_t now_ms)
{
    int64_t next_ms = -1;
    for (size_t i = 0; i < SB_HTTP_CONNECTIONS_MAX && self->connections > 0; i++) {
        struct client *client = &self->clients[i];
        if (!client->is_open)
            continue;
        int64_t left_ms = client->since_ms + self->answer_ms - now_ms;
        if (left_ms <= 0) {
            shutdown(client->fd, SHUT_RDWR);
            self->counters.hung_up++;
            client->since_ms = now_ms; /* gone in a moment; and if not, told again */
            left_ms = self->answer_ms;
        }
        next_ms = next_ms < 0 || left_ms < next_ms ? left_ms : next_ms;
    }
    return next_ms;
}

/*
 * MHD tells by its timeout when it wants to run again without any socket being ready: at once while a response goes on
 * (0, else streams stall), or when a silent connection is due. One pass of the loop lies between, so others get their
 * turn.
 */
static void run(struct sb_http *self)
{
    MHD_run(self->daemon);
    const int64_t left_ms = end_overlong(self, sb_mono_ms());
    if (self->timer != TIMER_NONE)
        zloop_timer_end(self->loop, self->timer);
    self->timer = TIMER_NONE;
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (MHD_get_timeout(self->daemon, &timeout_ms) != MHD_YES)
        return;
    if (left_ms >= 0 && timeout_ms > (MHD_UNSIGNED_LONG_LONG) left_ms)
        timeout_ms = (MHD_UNSIGNED_LONG_LONG) left_ms;
    self->timer = zloop_timer(self->loop, (size_t) timeout_ms, 1, on_timer, self);
}

static int on_timer(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    struct sb_http *self = arg;
    self->timer = TIMER_NONE; /* one shot: it ends by itself */
    run(self);
    return 0;
}

static int on_readable(zloop_t *loop, zmq_pollitem_t *item, void *arg)
{
    (void) loop;
    (void) item;
    run(arg);
    return 0;
}

static enum sb_rc start(struct sb_http *self, const char *listen_at, struct sb_err *err)
{
    const int fd = listen_on(listen_at, &self->port, err);
    if (fd < 0)
        return SB_IO; /* err says which */

    /* The limit is kept by on_accept, which counts; MHD's own lies one above and is never reached. */
    self->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, on_accept, self, on_request, self, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned) SB_HTTP_CONNECTIONS_MAX + 1, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned) SB_HTTP_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) SB_HTTP_CONNECTION_MEMORY, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, self, MHD_OPTION_NOTIFY_COMPLETED, on_completed, self, MHD_OPTION_END);
    if (!self->daemon) {
        close(fd);
        return sb_fail(err, SB_NOMEM, "cannot start the HTTP server on %s", listen_at);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(self->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    self->poll = (zmq_pollitem_t){.fd = info->epoll_fd, .events = ZMQ_POLLIN};
    if (zloop_poller(self->loop, &self->poll, on_readable, self) != 0)
        return sb_fail(err, SB_NOMEM, "cannot put the HTTP server on %s into the loop", listen_at);
    zloop_poller_set_tolerant(self->loop, &self->poll);
    return SB_OK;
}

struct sb_http *sb_http_new(zloop_t *loop, const char *listen, const struct sb_http_route *routes, size_t n_routes,
                            void *arg, struct sb_err *err)
{
    SB_OWN(sb_http_destroy) struct sb_http *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "the HTTP server on %s", listen);
        return NULL;
    }
    self->loop = loop;
    self->routes = routes;
    self->n_routes = n_routes;
    self->arg = arg;
    self->timer = TIMER_NONE;
    self->answer_ms = (int64_t) SB_HTTP_ANSWER_S * 1000;
    if (start(self, listen, err) != SB_OK)
        return NULL;

    struct sb_http *made = self;
    self = NULL; /* the caller's now */
    return made;
}

void sb_http_destroy(struct sb_http **self_p)
{
    struct sb_http *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    if (self->timer != TIMER_NONE)
        zloop_timer_end(self->loop, self->timer);
    if (self->daemon) {
        zloop_poller_end(self->loop, &self->poll);
        MHD_stop_daemon(self->daemon); /* closes the streams under way, and the listening socket */
    }
    free(self);
}

void sb_http_limit_answers(struct sb_http *self, int64_t ms)
{
    self->answer_ms = ms;
}

unsigned sb_http_port(const struct sb_http *self)
{
    return self->port;
}

struct sb_http_counters sb_http_counters(const struct sb_http *self)
{
    return self->counters;
}

const char *sb_http_query_value(const struct sb_http_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_query; i++) {
        if (strcmp(request->query[i].name, name) == 0)
            return request->query[i].value;
    }
    return NULL;
}
