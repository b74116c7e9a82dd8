/* Small files, read whole: configuration that people write. */
#ifndef SB_FILE_H
#define SB_FILE_H

#include "buf.h"
#include "err.h"

enum { SB_FILE_MAX = 4 * 1024 * 1024 };

/* Replaces the content of out. SB_IO with the system's reason, SB_FULL: larger than out may be (or out of memory). */
enum sb_rc sb_file_read(const char *path, struct sb_buf *out, struct sb_err *err) SB_CHECK;

#endif
