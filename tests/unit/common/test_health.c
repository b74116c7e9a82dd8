#include "common/health.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "common/address.h"

enum { PATIENCE_MS = 60000, SHORT_MS = 50 };

struct server {
    int listener;
    char listen_at[32];
    const char *answer; /* NULL: it hangs up */
    char asked[64];
};

static void listen_anywhere(struct server *self)
{
    union sb_address address;
    socklen_t len = sizeof address;
    assert_int_equal(sb_address_parse("127.0.0.1:0", &address, NULL), SB_OK);
    self->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(self->listener >= 0);
    assert_int_equal(bind(self->listener, &address.any, sb_address_len(&address)), 0);
    assert_int_equal(listen(self->listener, 1), 0);
    assert_int_equal(getsockname(self->listener, &address.any, &len), 0);
    snprintf(self->listen_at, sizeof self->listen_at, "0.0.0.0:%u", ntohs(address.v4.sin_port));
}

static void *serve_one(void *arg)
{
    struct server *self = arg;
    const int fd = accept(self->listener, NULL, NULL);
    if (recv(fd, self->asked, sizeof self->asked - 1, 0) > 0 && self->answer)
        send(fd, self->answer, strlen(self->answer), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void what_the_daemon_answers_decides(void **state)
{
    (void) state;
    static const struct {
        const char *answer;
        enum sb_rc rc;
        const char *text; /* the end of the reason */
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\nalive\n", SB_OK, ""},
        {"HTTP/1.0 200 OK\r\n", SB_OK, ""},
        {"HTTP/1.1 503 Service Unavailable\r\n\r\n", SB_IO, " answers 503"},
        {"HTTP/1.1 404 Not Found\r\n\r\n", SB_IO, " answers 404"},
        {"SSH-2.0-OpenSSH_9.2 200", SB_IO, " does not speak HTTP"},
        {"HTTP/1.1 20", SB_IO, " does not speak HTTP"},
        {NULL, SB_IO, " does not speak HTTP"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct server server = {.answer = cases[i].answer};
        listen_anywhere(&server);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, serve_one, &server), 0);
        struct sb_err err = {0};
        assert_int_equal(sb_health_check(server.listen_at, PATIENCE_MS, &err), cases[i].rc);
        assert_int_equal(pthread_join(thread, NULL), 0);
        close(server.listener);
        assert_string_equal(server.asked, "GET /healthz HTTP/1.0\r\n\r\n");
        if (cases[i].rc != SB_OK) {
            assert_int_equal(strncmp(err.text, server.listen_at, strlen(server.listen_at)), 0);
            assert_string_equal(err.text + strlen(server.listen_at), cases[i].text);
        }
    }
}

static void one_that_hangs_is_not_well(void **state)
{
    (void) state;
    struct server server = {0};
    listen_anywhere(&server); /* the system connects for it, and it never reads */
    struct sb_err err = {0};
    assert_int_equal(sb_health_check(server.listen_at, SHORT_MS, &err), SB_IO);
    assert_non_null(strstr(err.text, "does not answer: it takes too long"));
    close(server.listener);
    assert_int_equal(sb_health_check(server.listen_at, PATIENCE_MS, &err), SB_IO);
    assert_non_null(strstr(err.text, "does not answer: Connection refused"));
}

static void an_address_that_is_none_is_said(void **state)
{
    (void) state;
    assert_int_equal(sb_health_check("localhost", PATIENCE_MS, NULL), SB_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_daemon_answers_decides),
        cmocka_unit_test(one_that_hangs_is_not_well),
        cmocka_unit_test(an_address_that_is_none_is_said),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
