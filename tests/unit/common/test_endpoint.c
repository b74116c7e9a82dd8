#include "common/endpoint.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "temp_dir.h"

struct fixture {
    void *dir; /* as temp_dir makes it */
    void *context;
    void *socket;
    void *other;
    char endpoint[256];
    char path[256];
};

static int make(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    temp_dir_make(&self->dir);
    self->context = zmq_ctx_new();
    self->socket = zmq_socket(self->context, ZMQ_PULL);
    self->other = zmq_socket(self->context, ZMQ_PULL);
    assert_true(self->socket && self->other);
    temp_path(&self->dir, self->path, "engines");
    snprintf(self->endpoint, sizeof self->endpoint, "ipc://%s/engines", (const char *) self->dir);
    *state = self;
    return 0;
}

static int drop(void **state)
{
    struct fixture *self = *state;
    zmq_close(self->socket);
    zmq_close(self->other);
    zmq_ctx_term(self->context);
    temp_dir_drop(&self->dir);
    free(self);
    return 0;
}

static void an_ipc_path_is_held_by_one(void **state)
{
    struct fixture *self = *state;
    int lock = -2;
    int second = -2;
    struct sb_err err = {0};
    assert_int_equal(sb_endpoint_bind(self->socket, self->endpoint, &lock, &err), SB_OK);
    assert_true(lock >= 0);
    assert_int_equal(sb_endpoint_bind(self->other, self->endpoint, &second, &err), SB_FULL);
    assert_non_null(strstr(err.text, "another process holds"));
    assert_int_equal(second, -2);

    struct stat info;
    assert_int_equal(stat(self->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    close(lock);
}

static void the_socket_of_a_dead_process_is_replaced(void **state)
{
    struct fixture *self = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t len = strlen(self->path);
    assert_true(len < sizeof address.sun_path);
    memcpy(address.sun_path, self->path, len + 1);
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(dead >= 0);
    assert_int_equal(bind(dead, (const struct sockaddr *) &address, sizeof address), 0);
    close(dead); /* the file stays */
    int lock = -1;
    assert_int_equal(sb_endpoint_bind(self->socket, self->endpoint, &lock, NULL), SB_OK);
    close(lock);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    struct fixture *self = *state;
    const int fd = open(self->path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    struct sb_err err = {0};
    int lock = -2;
    assert_int_equal(sb_endpoint_bind(self->socket, self->endpoint, &lock, &err), SB_IO);
    assert_non_null(strstr(err.text, "is not a socket"));
    assert_int_equal(lock, -2);
    assert_int_equal(access(self->path, F_OK), 0);

    /* The lock was given up again. */
    assert_int_equal(unlink(self->path), 0);
    assert_int_equal(sb_endpoint_bind(self->socket, self->endpoint, &lock, &err), SB_OK);
    close(lock);
}

static void tcp_takes_a_free_port_and_refuses_a_taken_one(void **state)
{
    struct fixture *self = *state;
    int lock = -2;
    assert_int_equal(sb_endpoint_bind(self->socket, "tcp://127.0.0.1:*", &lock, NULL), SB_OK);
    assert_int_equal(lock, -1);
    char endpoint[256];
    size_t len = sizeof endpoint;
    assert_int_equal(zmq_getsockopt(self->socket, ZMQ_LAST_ENDPOINT, endpoint, &len), 0);
    struct sb_err err = {0};
    assert_int_equal(sb_endpoint_bind(self->other, endpoint, &lock, &err), SB_IO);
    assert_non_null(strstr(err.text, "Address already in use"));
    assert_int_equal(sb_endpoint_bind(self->other, "tcp://no-address:5577", &lock, &err), SB_IO);
    assert_string_equal(err.text,
                        "cannot bind tcp://no-address:5577: the host must be an address of this machine, or *");
}

static void endpoints_that_are_none_are_refused(void **state)
{
    struct fixture *self = *state;
    char longest[400];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "ipc:///", 7);
    longest[sizeof longest - 1] = '\0';
    const struct {
        const char *endpoint;
        enum sb_rc rc;
    } cases[] = {
        {"", SB_FORMAT},
        {"udp://1.2.3.4:5", SB_FORMAT},
        {"127.0.0.1:5", SB_FORMAT},
        {"ipc://", SB_FORMAT},
        {"tcp://", SB_FORMAT},
        {longest, SB_FORMAT},
        {"tcp://127.0.0.1:port", SB_FORMAT},
        {"tcp://127.0.0.1", SB_FORMAT},
        {"tcp://no.such.interface:5", SB_IO},
        {"ipc:///no/such/dir/x", SB_IO},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {0};
        int lock = -2;
        assert_int_equal(sb_endpoint_bind(self->socket, cases[i].endpoint, &lock, &err), cases[i].rc);
        assert_true(strlen(err.text) > 0);
        assert_int_equal(lock, -2);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
    const struct CMUnitTest tests[] = {
        TEST(an_ipc_path_is_held_by_one),
        TEST(the_socket_of_a_dead_process_is_replaced),
        TEST(a_file_that_is_no_socket_is_left_alone),
        TEST(tcp_takes_a_free_port_and_refuses_a_taken_one),
        TEST(endpoints_that_are_none_are_refused),
    };
    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
