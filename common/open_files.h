/* How many descriptors this process may have open. */
#ifndef SB_OPEN_FILES_H
#define SB_OPEN_FILES_H

#include <stdint.h>

/*
 * Raises the soft limit to `most`, or to the hard limit where that is lower; never lowers it. Returns the limit as it
 * is then. libzmq ends the process when it can't accept a connection for want of a descriptor, and the soft limit is
 * 1,024 in most places, for the sake of programs that use select().
 */
uint64_t sb_open_files_raise(uint64_t most);

#endif
