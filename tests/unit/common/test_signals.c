#include "common/signals.h"

#include <signal.h>
#include <unistd.h>

#include "cmocka_all.h"

struct seen {
    int signals[8];
    size_t n;
};

static int on_signal(void *arg, int signal_number)
{
    struct seen *seen = arg;
    assert_true(seen->n < 8);
    seen->signals[seen->n++] = signal_number;
    return signal_number == SIGTERM ? -1 : 0;
}

static int on_late(zloop_t *loop, int timer, void *arg)
{
    (void) loop;
    (void) timer;
    (void) arg;
    fail_msg("the loop did not end by the signal");
    return -1;
}

static void signals_are_events_of_the_loop(void **state)
{
    (void) state;
    assert_int_equal(sb_signals_block(NULL), SB_OK);
    zsock_t *socket = zsock_new(ZMQ_PULL); /* would take the signals, had it not been told */
    assert_non_null(socket);
    zloop_t *loop = zloop_new();
    assert_non_null(loop);
    struct seen seen = {0};
    const int fd = sb_signals_watch(loop, on_signal, &seen, NULL);
    assert_true(fd >= 0);
    zloop_timer(loop, 30000, 1, on_late, NULL);

    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(raise(SIGPIPE), 0);
    assert_int_equal(raise(SIGTERM), 0);
    zloop_start(loop);

    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.signals[0], SIGHUP);
    assert_int_equal(seen.signals[1], SIGINT);
    assert_int_equal(seen.signals[2], SIGTERM);
    zloop_destroy(&loop);
    close(fd);
    zsock_destroy(&socket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_events_of_the_loop),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
