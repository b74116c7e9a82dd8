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
};

/* The content of bodies and streams: lines that compress as metrics do. */
static char byte_at(size_t i)
{
    const size_t line = i / 64;
    if (i % 64 == 63)
        return '\n';
    return i % 64 < 50 ? (char) ('a' + i % 26) : (char) ('0' + (line >> (i % 64 - 50) * 2) % 10);
}

static void on_hello(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    struct fixture *self = arg;
    const char *type = sb_http_query_value(request, "type");
    snprintf(self->seen, sizeof self->seen, "path=%s accept=%s n=%zu type=%s", request->path,
             request->accept ? request->accept : "-", request->n_query, type ? type : "-");
    sb_buf_put_text(response->body, "hello\n");
}

static void on_teapot(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    response->status = 418;
    response->content_type = "text/x-tea";
    sb_buf_put_text(response->body, "short and stout\n");
}

static void on_body(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) request;
    struct fixture *self = arg;
    for (size_t i = 0; i < self->bytes; i++)
        sb_buf_put_byte(response->body, (uint8_t) byte_at(i));
}

static void on_overflow(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
{
    (void) arg;
    (void) request;
    assert_null(sb_buf_reserve(response->body, SB_HTTP_BODY_MAX + 1));
}

struct stream {
    struct fixture *fixture;
    size_t given;
};

static bool stream_next(void *state, struct sb_buf *out)
{
    struct stream *stream = state;
    struct fixture *self = stream->fixture;
    assert_int_equal(out->len, 0);
    self->asked++;
    if (self->is_too_large)
        assert_null(sb_buf_reserve(out, SIZE_MAX / 2));
    if (self->asked % 5 == 3)
        return true; /* an empty piece is no end */
    for (size_t i = 0; i < self->piece && stream->given < self->bytes; i++, self->given++)
        sb_buf_put_byte(out, (uint8_t) byte_at(stream->given++));
    return stream->given < self->bytes;
}

static void stream_close(void *state)
{
    struct stream *stream = state;
    stream->fixture->closed++;
    free(stream);
}

static void on_stream(void *arg, const struct sb_http_request *request, struct sb_http_response *response)
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

static int make(void **state)
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

static void hang_up(struct client *client)
{
    if (client->fd < 0)
        return;
    zmq_pollitem_t item = {.fd = client->fd};
    zloop_poller_end(client->loop, &item);
    close(client->fd);
    client->fd = -1;
    client->is_done = true;
}

static int drop(void **state)
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

static int on_client(zloop_t *loop, zmq_pollitem_t *item, void *arg)
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

static struct client *connect_client(struct fixture *self, const char *request, bool is_reading)
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

static int on_tick(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    struct fixture *self = arg;
    return self->is_over(self) ? -1 : 0;
}

static int on_late(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    (void) arg;
    fail_msg("it is not over after 20 seconds");
    return -1;
}

static bool all_are_done(struct fixture *self)
{
    for (size_t i = 0; i < self->n_clients; i++) {
        if (self->clients[i].is_reading && !self->clients[i].is_done)
            return false;
    }
    return true;
}

static void run_until(struct fixture *self, bool (*is_over)(struct fixture *))
{
    self->is_over = is_over;
    const int tick = zloop_timer(self->loop, 1, 0, on_tick, self);
    const int late = zloop_timer(self->loop, 20000, 1, on_late, NULL);
    zloop_start(self->loop);
    zloop_timer_end(self->loop, tick);
    zloop_timer_end(self->loop, late);
}

/* The whole answer to one request; its memory is the fixture's. */
static const char *ask(struct fixture *self, const char *request)
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
static void body_of(const struct client *client, const char *wanted, struct sb_buf *body)
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

static void unzip(struct sb_buf *body)
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

static void assert_content(const struct sb_buf *body, size_t n)
{
    assert_int_equal(body->len, n);
    for (size_t i = 0; i < n; i++) {
        if (body->data[i] != (uint8_t) byte_at(i))
            fail_msg("byte %zu differs", i);
    }
}

static void a_small_body_has_its_length(void **state)
{
    struct fixture *self = *state;
    const char *answer = ask(self, GET("/hello", "Accept: text/plain\r\nAccept-Encoding: gzip\r\n"));
    assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(answer, "\r\nContent-Length: 6\r\n"));
    assert_non_null(strstr(answer, "\r\nContent-Type: text/plain; charset=utf-8\r\n"));
    assert_null(strstr(answer, "gzip"));
    assert_non_null(strstr(answer, "\r\n\r\nhello\n"));
    assert_string_equal(self->seen, "path=/hello accept=text/plain n=0 type=-");
}

static void queries_are_decoded(void **state)
{
    struct fixture *self = *state;
    ask(self, GET("/hello?a=1&type=d%20p&type=second&flag", ""));
    assert_string_equal(self->seen, "path=/hello accept=- n=4 type=d p");
    ask(self, GET("/hello?type", ""));
    assert_string_equal(self->seen, "path=/hello accept=- n=1 type=");

    char request[1000] = "GET /hello?";
    for (int i = 0; i < 65; i++)
        snprintf(request + strlen(request), sizeof request - strlen(request), "a%d=1&", i);
    snprintf(request + strlen(request) - 1, 100, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_memory_equal(ask(self, request), "HTTP/1.1 400 ", 13);
}

static void refusals_say_what_is_wrong_and_are_counted(void **state)
{
    struct fixture *self = *state;
    static const struct {
        const char *request;
        const char *parts[3];
    } cases[] = {
        {GET("/nothing", ""), {"HTTP/1.1 404 ", "there is nothing at this path, only at: /hello /teapot", NULL}},
        {GET("/hello/", ""), {"HTTP/1.1 404 ", NULL, NULL}},
        {"DELETE /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
         {"HTTP/1.1 405 ", "\r\nAllow: GET, HEAD\r\n", "only GET and HEAD are answered here"}},
        {"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
         {"HTTP/1.1 400 ", "requests with a body are not answered here", "Connection: close"}},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
         {"HTTP/1.1 400 ", "requests with a body are not answered here", NULL}},
        {GET("/teapot", ""), {"HTTP/1.1 418 ", "Content-Type: text/x-tea\r\n", "short and stout"}},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *answer = ask(self, cases[i].request);
        for (size_t k = 0; k < SB_COUNT(cases[i].parts) && cases[i].parts[k]; k++) {
            if (!strstr(answer, cases[i].parts[k]))
                fail_msg("'%s' is not in:\n%s", cases[i].parts[k], answer);
        }
    }
    assert_int_equal(sb_http_counters(self->http).requests, SB_COUNT(cases));
    assert_int_equal(sb_http_counters(self->http).refused, SB_COUNT(cases));

    assert_memory_equal(ask(self, GET("/overflow", "")), "HTTP/1.1 500 ", 13);
    assert_int_equal(sb_http_counters(self->http).refused, SB_COUNT(cases));
    /* What is no HTTP at all is MHD's to refuse; the server goes on. */
    ask(self, "\x16\x03\x01 nonsense\r\n\r\n");
    assert_memory_equal(ask(self, GET("/hello", "")), "HTTP/1.1 200 ", 13);
}

static void head_is_get_without_the_body(void **state)
{
    struct fixture *self = *state;
    const char *answer = ask(self, "HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "Content-Length: 6\r\n"));
    assert_null(strstr(answer, "hello\n"));
    self->bytes = 1000;
    self->piece = 100;
    answer = ask(self, "HEAD /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
    assert_int_equal(self->asked, 0);
    assert_int_equal(self->closed, 1);
}

static void bodies_of_all_sizes_arrive_plain_and_compressed(void **state)
{
    struct fixture *self = *state;
    static const size_t sizes[] = {0, 1, 1023, 1024, 100000, 3000000};
    for (size_t i = 0; i < SB_COUNT(sizes); i++) {
        SB_OWN(sb_buf_release) struct sb_buf body;
        sb_buf_init(&body, 64 << 20);
        self->bytes = sizes[i];
        ask(self, GET("/body", ""));
        body_of(&self->clients[self->n_clients - 1], "Content-Length: ", &body);
        assert_content(&body, sizes[i]);

        sb_buf_clear(&body);
        ask(self, GET("/body", "Accept-Encoding: gzip, deflate\r\n"));
        const bool is_packed = sizes[i] >= 1024;
        const struct client *client = &self->clients[self->n_clients - 1];
        body_of(client, is_packed ? "Content-Encoding: gzip\r\n" : "Content-Length: ", &body);
        if (is_packed) {
            assert_true(body.len < sizes[i] / 2);
            unzip(&body);
        }
        assert_content(&body, sizes[i]);
    }
}

static void streams_arrive_whole_plain_and_compressed(void **state)
{
    struct fixture *self = *state;
    static const struct {
        size_t bytes;
        size_t piece;
    } cases[] = {{0, 10},
                 {1, 1},
                 {1000, 7},
                 {80 * 1024, 80 * 1024},
                 {500000, 1 << 20},
                 {STREAM_BYTES, 3000},
                 {STREAM_BYTES, 300000}};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        self->bytes = cases[i].bytes;
        self->piece = cases[i].piece;
        SB_OWN(sb_buf_release) struct sb_buf body;
        sb_buf_init(&body, 64 << 20);
        ask(self, GET("/stream", ""));
        body_of(&self->clients[self->n_clients - 1], "Transfer-Encoding: chunked\r\n", &body);
        assert_content(&body, cases[i].bytes);

        sb_buf_clear(&body);
        ask(self, GET("/stream", "Accept-Encoding: gzip\r\n"));
        body_of(&self->clients[self->n_clients - 1], "Content-Encoding: gzip\r\n", &body);
        unzip(&body);
        assert_content(&body, cases[i].bytes);
        assert_int_equal(self->opened, self->closed);
    }
}

static void clients_that_do_not_speak_1_1_get_a_stream_to_its_end(void **state)
{
    struct fixture *self = *state;
    self->bytes = 200000;
    self->piece = 1000;
    ask(self, "GET /stream HTTP/1.0\r\n\r\n");
    SB_OWN(sb_buf_release) struct sb_buf body;
    sb_buf_init(&body, 64 << 20);
    body_of(&self->clients[self->n_clients - 1], "200 OK", &body);
    assert_content(&body, self->bytes);
}

static void who_does_not_want_gzip_gets_none(void **state)
{
    struct fixture *self = *state;
    self->bytes = 5000;
    static const struct {
        const char *request;
        bool is_gzip;
    } cases[] = {
        {GET("/body", ""), false},
        {GET("/body", "Accept-Encoding: gzip\r\n"), true},
        {GET("/body", "Accept-Encoding: GZIP;q=0.5\r\n"), true},
        {GET("/body", "Accept-Encoding: br, gzip;q=0\r\n"), false},
        {GET("/body", "Accept-Encoding: identity\r\n"), false},
        {GET("/body", "Accept-Encoding: *\r\n"), true},
        {GET("/body", "Accept-Encoding: *;q=0\r\n"), false},
        {GET("/body", "Accept-Encoding: gzip;q=0, *\r\n"), false},
        {GET("/body", "Accept-Encoding: gzip;q=0.2, identity;q=0.8\r\n"), false},
        {GET("/body", "Accept-Encoding: notgzip\r\n"), false},
        {GET("/body", "Accept-Encoding: gzip;q=x\r\n"), false},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *answer = ask(self, cases[i].request);
        assert_int_equal(strstr(answer, "Content-Encoding: gzip") != NULL, cases[i].is_gzip);
        assert_non_null(strstr(answer, "Vary: Accept, Accept-Encoding\r\n"));
    }
}

static void a_piece_over_the_limit_cuts_the_answer_visibly(void **state)
{
    struct fixture *self = *state;
    self->bytes = 1000;
    self->piece = 100;
    self->is_too_large = true;
    const char *answer = ask(self, GET("/stream", ""));
    assert_null(strstr(answer, "\r\n0\r\n\r\n"));
    answer = ask(self, GET("/stream", "Accept-Encoding: gzip\r\n"));
    assert_null(strstr(answer, "\r\n0\r\n\r\n"));
    assert_int_equal(self->closed, 2);
}

static void a_connection_is_kept_and_may_be_pipelined(void **state)
{
    struct fixture *self = *state;
    self->bytes = 300000;
    self->piece = 4000;
    const char *answer = ask(self, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" GET("/teapot", ""));
    assert_int_equal(sb_http_counters(self->http).requests, 4);
    const char *at = answer;
    static const char *const starts[] = {"HTTP/1.1 200 ", "HTTP/1.1 200 ", "HTTP/1.1 404 ", "HTTP/1.1 418 "};
    for (size_t i = 0; i < SB_COUNT(starts); i++) {
        at = strstr(at, starts[i]);
        assert_non_null(at);
        at += 1;
    }
}

static bool some_was_given(struct fixture *self)
{
    return self->asked > 0;
}

static bool all_are_closed(struct fixture *self)
{
    return self->opened > 0 && self->opened == self->closed;
}

static void a_client_that_leaves_early_ends_its_stream(void **state)
{
    struct fixture *self = *state;
    self->bytes = STREAM_BYTES;
    self->piece = 10000;
    struct client *client = connect_client(self, GET("/stream", ""), false);
    run_until(self, some_was_given);
    assert_int_equal(self->closed, 0);
    hang_up(client);
    run_until(self, all_are_closed);
    assert_true(self->given < STREAM_BYTES);
}

static void slow_clients_stop_nobody(void **state)
{
    struct fixture *self = *state;
    self->bytes = STREAM_BYTES;
    self->piece = 10000;
    for (int i = 0; i < 10; i++)
        connect_client(self, GET("/stream", ""), false);
    run_until(self, some_was_given);
    for (int i = 0; i < 20; i++)
        assert_non_null(strstr(ask(self, GET("/hello", "")), "hello\n"));
    assert_int_equal(self->closed, 0);
    /* The streams still open are closed with the server: see drop. */
}

static void connections_over_the_limit_are_turned_away_and_counted(void **state)
{
    struct fixture *self = *state;
    for (int i = 0; i < SB_HTTP_CONNECTIONS_MAX; i++)
        connect_client(self, "", false);
    struct client *over = connect_client(self, GET("/hello", ""), true);
    run_until(self, all_are_done);
    assert_int_equal(over->got.len, 0);
    assert_int_equal(sb_http_counters(self->http).turned_away, 1);

    hang_up(&self->clients[0]);
    /* The place is free once the server has seen it go, which may be after it sees the next one come. */
    const char *answer = ask(self, GET("/hello", ""));
    if (answer[0] == '\0')
        answer = ask(self, GET("/hello", ""));
    assert_non_null(strstr(answer, "hello\n"));
}

static void addresses(void **state)
{
    struct fixture *self = *state;
    static const struct {
        const char *listen;
        enum sb_rc rc;
    } cases[] = {
        {"127.0.0.1:0", SB_OK},
        {"0.0.0.0:0", SB_OK},
        {"[::1]:0", SB_OK},
        {"", SB_FORMAT},
        {"127.0.0.1", SB_FORMAT},
        {":80", SB_FORMAT},
        {"127.0.0.1:", SB_FORMAT},
        {"127.0.0.1:x", SB_FORMAT},
        {"127.0.0.1:65536", SB_FORMAT},
        {"127.0.0.1:-1", SB_FORMAT},
        {"127.0.0.1:8080x", SB_FORMAT},
        {"localhost:0", SB_FORMAT},
        {"::1:80", SB_FORMAT},
        {"[::1:80", SB_FORMAT},
        {"[127.0.0.1]:80", SB_FORMAT},
        {"[]:80", SB_FORMAT},
        {"127.0.0.1:99999999999999999999", SB_FORMAT},
        {"203.0.113.1:0", SB_IO}, /* nobody's address (RFC 5737) */
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:80", SB_FORMAT},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {0};
        SB_OWN(sb_http_destroy)
        struct sb_http *http = sb_http_new(self->loop, cases[i].listen, routes, SB_COUNT(routes), self, &err);
        if (err.rc != cases[i].rc && !(cases[i].listen[0] == '[' && err.rc == SB_IO)) /* a host without IPv6 */
            fail_msg("'%s': %s", cases[i].listen, err.text);
        assert_int_equal(http != NULL, err.rc == SB_OK);
    }
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", sb_http_port(self->http));
    struct sb_err err = {0};
    assert_null(sb_http_new(self->loop, taken, routes, SB_COUNT(routes), self, &err));
    assert_int_equal(err.rc, SB_IO);
    assert_non_null(strstr(err.text, "Address already in use"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
    const struct CMUnitTest tests[] = {
        TEST(a_small_body_has_its_length),
        TEST(queries_are_decoded),
        TEST(refusals_say_what_is_wrong_and_are_counted),
        TEST(head_is_get_without_the_body),
        TEST(bodies_of_all_sizes_arrive_plain_and_compressed),
        TEST(streams_arrive_whole_plain_and_compressed),
        TEST(clients_that_do_not_speak_1_1_get_a_stream_to_its_end),
        TEST(who_does_not_want_gzip_gets_none),
        TEST(a_piece_over_the_limit_cuts_the_answer_visibly),
        TEST(a_connection_is_kept_and_may_be_pipelined),
        TEST(a_client_that_leaves_early_ends_its_stream),
        TEST(slow_clients_stop_nobody),
        TEST(connections_over_the_limit_are_turned_away_and_counted),
        TEST(addresses),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
