#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Signals belong to the process, and so does their one watcher. */
static struct {
    sb_signal_handler handler;
    void *arg;
} watcher;

static sigset_t watched(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

enum sb_rc sb_signals_block(struct sb_err *err)
{
    /* Before czmq's first socket, which would take SIGINT and SIGTERM for itself. */
    zsys_handler_set(NULL);

    const sigset_t set = watched();
    const int reason = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (reason != 0)
        return sb_fail(err, SB_IO, "cannot block signals: %s", strerror(reason));
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return sb_fail(err, SB_IO, "cannot ignore SIGPIPE: %s", strerror(errno));
    return SB_OK;
}

static int on_readable(zloop_t *loop, zmq_pollitem_t *item, void *arg)
{
    (void) loop;
    (void) arg;
    struct signalfd_siginfo info;
    if (read(item->fd, &info, sizeof info) != (ssize_t) sizeof info)
        return 0; /* nothing there after all */
    return watcher.handler(watcher.arg, (int) info.ssi_signo);
}

int sb_signals_watch(zloop_t *loop, sb_signal_handler handler, void *arg, struct sb_err *err)
{
    const sigset_t set = watched();
    const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        sb_fail(err, SB_IO, "cannot make a signalfd: %s", strerror(errno));
        return -1;
    }
    watcher.handler = handler;
    watcher.arg = arg;
    zmq_pollitem_t item = {.fd = fd, .events = ZMQ_POLLIN};
    if (zloop_poller(loop, &item, on_readable, NULL) != 0) {
        close(fd);
        sb_fail(err, SB_NOMEM, "signals in the loop");
        return -1;
    }
    zloop_poller_set_tolerant(loop, &item);
    return fd;
}
