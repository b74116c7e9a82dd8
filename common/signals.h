/* SIGTERM, SIGINT and SIGHUP as events of a zloop, by signalfd. czmq's own handlers are switched off. */
#ifndef SB_SIGNALS_H
#define SB_SIGNALS_H

#include <czmq.h>

#include "err.h"

/* Called in the loop. Return -1 to end the loop (after SIGTERM or SIGINT), 0 to go on. */
typedef int (*sb_signal_handler)(void *arg, int signal_number);

/* Blocks the signals in this thread (call before any socket or thread is made) and ignores SIGPIPE. */
enum sb_rc sb_signals_block(struct sb_err *err) SB_CHECK;

/* Adds the signals to the loop; one loop a process, a second call takes over. Returns the descriptor, which the caller
 * closes after the loop ended, or -1 with *err. */
int sb_signals_watch(zloop_t *loop, sb_signal_handler handler, void *arg, struct sb_err *err) SB_CHECK;

#endif
