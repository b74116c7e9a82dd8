#include "common/http_private.h"
#include "http_client.h"

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
        {GET("/hello?type=a&role=%00", ""), {"HTTP/1.1 400 ", "a query parameter has a zero byte in it", NULL}},
        {GET("/hello?type=full%00x&role=a", ""), {"HTTP/1.1 400 ", NULL, NULL}},
        {GET("/hello?type%00x=a", ""), {"HTTP/1.1 400 ", NULL, NULL}},
        {GET("/hello?%00", ""), {"HTTP/1.1 400 ", NULL, NULL}},
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
    assert_null(strstr(answer, "chunked"));
    assert_int_equal(strcmp(strstr(answer, "\r\n\r\n"), "\r\n\r\n"), 0);
    assert_int_equal(self->asked, 0);
    assert_int_equal(self->closed, 1);
    /* The client would go on: the server says that it doesn't, and sends nothing that could be taken for an answer. */
    answer = ask(self, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    assert_int_equal(strcmp(strstr(answer, "\r\n\r\n"), "\r\n\r\n"), 0);
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

static void a_stream_that_gives_up_cuts_the_answer_visibly(void **state)
{
    struct fixture *self = *state;
    self->bytes = 100000;
    self->piece = 1000;
    self->is_cut = true;
    const char *answer = ask(self, GET("/stream", ""));
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    assert_null(strstr(answer, "\r\n0\r\n\r\n"));
    assert_null(strstr(ask(self, GET("/stream", "Accept-Encoding: gzip\r\n")), "\r\n0\r\n\r\n"));
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

static bool awaited_is_done(struct fixture *self)
{
    return self->awaited->is_done && self->asked > 100;
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

static bool two_are_hung_up(struct fixture *self)
{
    return sb_http_counters(self->http).hung_up >= 2;
}

/* One takes nothing of its answer, one never completes its request: both would hold their places for good. */
static void who_takes_too_long_is_hung_up_on(void **state)
{
    struct fixture *self = *state;
    self->bytes = STREAM_BYTES;
    self->piece = 10000;
    sb_http_limit_answers(self->http, 200);
    connect_client(self, GET("/stream", ""), false);
    connect_client(self, "GET /hello HT", false);
    run_until(self, some_was_given);
    run_until(self, two_are_hung_up);
    run_until(self, all_are_closed);
    assert_true(self->given < STREAM_BYTES);
    assert_non_null(strstr(ask(self, GET("/hello", "")), "hello\n"));
    assert_int_equal(sb_http_counters(self->http).hung_up, 2);
}

/* Two of them work on and on without any text, as a scrape does that looks for what isn't there. */
static void streams_of_empty_pieces_stop_nobody(void **state)
{
    struct fixture *self = *state;
    self->bytes = 100000;
    self->piece = 1000;
    self->is_dry = true;
    const struct client *plain = connect_client(self, GET("/stream", ""), true);
    const struct client *packed = connect_client(self, GET("/stream", "Accept-Encoding: gzip\r\n"), true);
    struct client *between = connect_client(self, GET("/hello", ""), true);
    self->awaited = between;
    run_until(self, awaited_is_done);
    assert_true(self->asked > 0);
    assert_false(plain->is_done || packed->is_done);

    self->is_dry = false;
    run_until(self, all_are_done);
    SB_OWN(sb_buf_release) struct sb_buf body;
    sb_buf_init(&body, 64 << 20);
    body_of(plain, "Transfer-Encoding: chunked\r\n", &body);
    assert_content(&body, self->bytes);
    sb_buf_clear(&body);
    body_of(packed, "Content-Encoding: gzip\r\n", &body);
    unzip(&body);
    assert_content(&body, self->bytes);
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
        TEST(a_stream_that_gives_up_cuts_the_answer_visibly),
        TEST(a_connection_is_kept_and_may_be_pipelined),
        TEST(a_client_that_leaves_early_ends_its_stream),
        TEST(slow_clients_stop_nobody),
        TEST(who_takes_too_long_is_hung_up_on),
        TEST(streams_of_empty_pieces_stop_nobody),
        TEST(connections_over_the_limit_are_turned_away_and_counted),
        TEST(addresses),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
