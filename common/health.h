/* --health: asks a running daemon's /healthz, for health checks in images that hold nothing else that could. */
#ifndef SB_HEALTH_H
#define SB_HEALTH_H

#include <stdint.h>

#include "err.h"

enum { SB_HEALTH_TIMEOUT_MS = 5000 };

/*
 * `listen_at` is where the daemon listens, as in its setting `http`: any address stands for this host. Blocks for at
 * most some timeout_ms. SB_OK: it answered 200. SB_IO: it answered something else or nothing, which the text tells.
 * SB_FORMAT: the address.
 */
enum sb_rc sb_health_check(const char *listen_at, int64_t timeout_ms, struct sb_err *err) SB_CHECK;

#endif
