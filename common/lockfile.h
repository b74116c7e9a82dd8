/* A lock that one process holds: an exclusive flock on a file made for it. The kernel gives it up when the process
 * ends. */
#ifndef SB_LOCKFILE_H
#define SB_LOCKFILE_H

#include "err.h"

/*
 * Takes the lock of "PATH.lock", which is made if needed and never removed (removing it would let two in).
 * Returns its descriptor, closed on exec; closing it gives the lock up.
 * -1 with *err: SB_FULL (another process holds it), SB_IO with the system's reason, SB_INVAL (path too long).
 */
int sb_lockfile_take(const char *path, struct sb_err *err) SB_CHECK;

#endif
