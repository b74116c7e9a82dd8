/* Endpoints as they are written in settings, and binding them safely. */
#ifndef SB_ENDPOINT_H
#define SB_ENDPOINT_H

#include <stddef.h>

#include "err.h"

enum { SB_ENDPOINT_MAX = 256 };

/*
 * Can this be an endpoint? "ipc://PATH" or "tcp://HOST:PORT", with a port from 0 to 65535 or "*". Opens nothing:
 * whether the host exists or the path can be written is found out by binding or connecting. SB_FORMAT.
 */
enum sb_rc sb_endpoint_check(const char *endpoint, struct sb_err *err) SB_CHECK;

/*
 * Binds a ZeroMQ socket (void * as libzmq has it). For ipc: makes sure no other process is bound there (an exclusive
 * lock on PATH.lock, since a second bind would silently take the endpoint over), and sets the file's mode to 0660.
 * *lock_fd gets the lock's descriptor (-1 for tcp), the caller closes it after the socket.
 * Errors: SB_FORMAT (as above), SB_FULL (another process holds it), SB_IO with the system's reason.
 */
enum sb_rc sb_endpoint_bind(void *socket, const char *endpoint, int *lock_fd, struct sb_err *err) SB_CHECK;

#endif
