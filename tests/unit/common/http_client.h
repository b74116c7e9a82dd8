/* A server with routes and clients in one loop: what tests of HTTP share. */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include "common/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "cmocka_all.h"

/* A client in the same loop: sends its text, and reads to the end of the connection. */
struct client {
    zloop_t *loop;
    int fd;
    const char *request;
    size_t sent;
    struct sb_buf got;
    bool is_reading; /* else it lets everything wait */
    bool is_done;    /* the server closed */
};

enum { CLIENTS_MAX = SB_HTTP_CONNECTIONS_MAX + 8, STREAM_BYTES = 20 * 1024 * 1024 };

struct fixture {
    zloop_t *loop;
    struct sb_http *http;
    struct client clients[CLIENTS_MAX];
    size_t n_clients;
    const struct client *awaited;
    bool (*is_over)(struct fixture *self);
    /* what handlers saw and give */
    char seen[256];
    size_t bytes;      /* of a body or stream */
    size_t piece;      /* of a stream */
    unsigned opened;   /* streams */
    unsigned closed;   /* streams */
    unsigned asked;    /* pieces */
    size_t given;      /* bytes by all streams */
    bool is_too_large; /* the stream gives a piece over its limit */
    bool is_dry;       /* the stream gives empty pieces */
    bool is_cut;       /* the stream gives up half-way */
};

/* The content of bodies and streams: lines that compress as metrics do. */
static inline char byte_at(size_t i)
{
    const size_t line = i / 64;
    if (i % 64 == 63)
        return '\n';
    return i % 64 < 50 ? (char) ('a' + i % 26) : (char) ('0' + (line >> (i % 64 - 50) * 2) % 10);
}

static inline void on_hello(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    struct fixture *self = arg;
    const char *type = sb_http_query_value(request, "type");
    snprintf(self->seen, sizeof self->seen, "path=%s accept=%s n=%zu type=%s", request->path,
             request->accept ? request->accept : "-", request->n_query, type ? type : "-");
    sb_buf_put_text(response->body, "hello\n");
}

static inline void on_teapot(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    response->status = 418;
    response->content_type = "text/x-tea";
    sb_buf_put_text(response->body, "short and stout\n");
}

static inline void on_body(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) request;
    struct fixture *self = arg;
    for (size_t i = 0; i < self->bytes; i++)
        sb_buf_put_byte(response->body, (uint8_t) byte_at(i));
}

static inline void on_overflow(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    assert_null(sb_buf_reserve(response->body, SB_HTTP_BODY_MAX + 1));
}

struct stream {
    struct fixture *fixture;
    size_t given;
};

static inline enum sb_http_more stream_next(void *state, struct sb_buf *out)
{
    struct stream *stream = state;
    struct fixture *self = stream->fixture;
    assert_int_equal(out->len, 0);
    self->asked++;
    if (self->is_too_large)
        assert_null(sb_buf_reserve(out, SIZE_MAX / 2));
    if (self->is_dry || self->asked % 5 == 3)
        return SB_HTTP_MORE; /* an empty piece is no end */
    if (self->is_cut && stream->given >= self->bytes / 2)
        return SB_HTTP_CUT;
    for (size_t i = 0; i < self->piece && stream->given < self->bytes; i++, self->given++)
        sb_buf_put_byte(out, (uint8_t) byte_at(stream->given++));
    return stream->given < self->bytes ? SB_HTTP_MORE : SB_HTTP_LAST;
}

static inline void stream_close(void *state)
{
    struct stream *stream = state;
    stream->fixture->closed++;
    free(stream);
}

static inline void on_stream(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) request;
    struct fixture *self = arg;
    struct stream *stream = calloc(1, sizeof *stream);
    assert_non_null(stream);
    stream->fixture = self;
    self->opened++;
    response->stream = (struct sb_http_stream){.next = stream_next, .close = stream_close, .state = stream};
}

static const struct sb_http_route routes[] = {
    {"/hello", on_hello},   {"/teapot", on_teapot},     {"/body", on_body},
    {"/stream", on_stream}, {"/overflow", on_overflow},
};

static inline int make(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    zsys_handler_set(NULL);
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->loop = zloop_new();
    assert_non_null(self->loop);
    struct sb_err err = {0};
    self->http = sb_http_new(self->loop, "127.0.0.1:0", routes, SB_COUNT(routes), self, &err);
    if (!self->http)
        fail_msg("%s", err.text);
    assert_true(sb_http_port(self->http) > 0);
    *state = self;
    return 0;
}

static inline void hang_up(struct client *client)
{
    if (client->fd < 0)
        return;
    zmq_pollitem_t item = {.fd = client->fd};
    zloop_poller_end(client->loop, &item);
    close(client->fd);
    client->fd = -1;
    client->is_done = true;
}

static inline int drop(void **state)
{
    struct fixture *self = *state;
    for (size_t i = 0; i < self->n_clients; i++) {
        hang_up(&self->clients[i]);
        sb_buf_release(&self->clients[i].got);
    }
    sb_http_destroy(&self->http);
    sb_http_destroy(&self->http);
    assert_int_equal(self->opened, self->closed);
    zloop_destroy(&self->loop);
    free(self);
    return 0;
}

static inline int on_client(zloop_t *loop, zmq_pollitem_t *item, void *arg)
{
    (void) loop;
    struct client *client = arg;
    if (client->sent < strlen(client->request)) {
        const ssize_t n = write(client->fd, client->request + client->sent, strlen(client->request) - client->sent);
        client->sent += n > 0 ? (size_t) n : 0;
    }
    if (!(item->revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
        return 0;
    uint8_t *room = sb_buf_reserve(&client->got, 64 * 1024);
    assert_non_null(room);
    const ssize_t n = read(client->fd, room, 64 * 1024);
    if (n > 0)
        client->got.len += (size_t) n;
    else if (n == 0 || errno != EAGAIN)
        hang_up(client);
    return 0;
}

static inline struct client *connect_client(struct fixture *self, const char *request, bool is_reading)
{
    assert_true(self->n_clients < CLIENTS_MAX);
    struct client *client = &self->clients[self->n_clients++];
    *client = (struct client){.loop = self->loop, .request = request, .is_reading = is_reading};
    sb_buf_init(&client->got, 64 << 20);
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client->fd >= 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t) sb_http_port(self->http)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    assert_int_equal(connect(client->fd, (const struct sockaddr *) &address, sizeof address), 0);
    assert_int_equal(fcntl(client->fd, F_SETFL, O_NONBLOCK), 0);
    if (!is_reading) {
        assert_int_equal(write(client->fd, request, strlen(request)), strlen(request));
        return client;
    }
    /* Sending is tried on each event; a socket is writable at first, so that one comes. */
    client->sent = (size_t) write(client->fd, request, strlen(request));
    zmq_pollitem_t item = {.fd = client->fd, .events = ZMQ_POLLIN};
    assert_int_equal(zloop_poller(self->loop, &item, on_client, client), 0);
    zloop_poller_set_tolerant(self->loop, &item);
    return client;
}

static inline int on_tick(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    struct fixture *self = arg;
    return self->is_over(self) ? -1 : 0;
}

static inline int on_late(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    (void) arg;
    fail_msg("it is not over after 20 seconds");
    return -1;
}

static inline bool all_are_done(struct fixture *self)
{
    for (size_t i = 0; i < self->n_clients; i++) {
        if (self->clients[i].is_reading && !self->clients[i].is_done)
            return false;
    }
    return true;
}

static inline void run_until(struct fixture *self, bool (*is_over)(struct fixture *))
{
    self->is_over = is_over;
    const int tick = zloop_timer(self->loop, 1, 0, on_tick, self);
    const int late = zloop_timer(self->loop, 20000, 1, on_late, NULL);
    zloop_start(self->loop);
    zloop_timer_end(self->loop, tick);
    zloop_timer_end(self->loop, late);
}

/* The whole answer to one request; its memory is the fixture's. */
static inline const char *ask(struct fixture *self, const char *request)
{
    struct client *client = connect_client(self, request, true);
    run_until(self, all_are_done);
    sb_buf_put_byte(&client->got, 0);
    client->got.len--;
    assert_non_null(client->got.data);
    return (const char *) client->got.data;
}

#define GET(path, headers) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" headers "\r\n"

/* The body behind the headers, with chunks joined; checks the headers for `wanted`. */
static inline void body_of(const struct client *client, const char *wanted, struct sb_buf *body)
{
    const char *text = (const char *) client->got.data;
    assert_non_null(text);
    const char *at = strstr(text, "\r\n\r\n");
    assert_non_null(at);
    at += 4;
    const char *found = strstr(text, wanted);
    if (!found || found > at)
        fail_msg("'%s' is not in:\n%.*s", wanted, (int) (at - text), text);
    const char *chunked = strstr(text, "Transfer-Encoding: chunked");
    if (!chunked || chunked > at) {
        sb_buf_put(body, at, client->got.len - (size_t) (at - text));
        return;
    }
    for (;;) {
        char *end;
        const size_t n = strtoul(at, &end, 16);
        assert_memory_equal(end, "\r\n", 2);
        at = end + 2;
        if (n == 0)
            break;
        assert_true(n <= client->got.len - (size_t) (at - text));
        sb_buf_put(body, at, n);
        at += n;
        assert_memory_equal(at, "\r\n", 2);
        at += 2;
    }
    assert_memory_equal(at, "\r\n", 2);
    assert_int_equal(at + 2 - text, client->got.len);
}

static inline void unzip(struct sb_buf *body)
{
    struct sb_buf plain;
    sb_buf_init(&plain, 64 << 20);
    z_stream stream = {.next_in = body->data, .avail_in = (uInt) body->len};
    assert_int_equal(inflateInit2(&stream, 15 + 16), Z_OK);
    int rc = Z_OK;
    while (rc == Z_OK) {
        stream.next_out = sb_buf_reserve(&plain, 1 << 20);
        assert_non_null(stream.next_out);
        stream.avail_out = 1 << 20;
        rc = inflate(&stream, Z_NO_FLUSH);
        plain.len += (1 << 20) - stream.avail_out;
    }
    assert_int_equal(rc, Z_STREAM_END);
    assert_int_equal(stream.avail_in, 0);
    inflateEnd(&stream);
    sb_buf_release(body);
    *body = plain;
}

static inline void assert_content(const struct sb_buf *body, size_t n)
{
    assert_int_equal(body->len, n);
    for (size_t i = 0; i < n; i++) {
        if (body->data[i] != (uint8_t) byte_at(i))
            fail_msg("byte %zu differs", i);
    }
}

#endif
