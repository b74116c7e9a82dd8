/*
 * A file that is always whole: written beside and renamed, checked by length and CRC when read, and held by one
 * process through a lock on FILE.lock.
 */
#ifndef SB_STATEFILE_H
#define SB_STATEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct sb_statefile;

/*
 * Takes the lock. NULL with *err: SB_FULL when another process holds it, SB_NOMEM, SB_IO (among others: path is a
 * folder, a pipe or a device). path is copied.
 */
struct sb_statefile *sb_statefile_open(const char *path, struct sb_err *err) SB_CHECK;
void sb_statefile_close(struct sb_statefile **self_p); /* gives the lock up */

/*
 * Reads the whole payload into out, whose content it replaces. SB_ABSENT: no file; SB_FORMAT: not ours, another
 * version, cut or damaged; SB_FULL: larger than out may be; SB_IO. After an error out is empty or as it was.
 */
enum sb_rc sb_statefile_read(struct sb_statefile *self, struct sb_buf *out, struct sb_err *err) SB_CHECK;

/* Replaces the payload in one step: readers see the old or the new one. SB_IO (a full disk among others): the old one
 * stays. Survives kill -9 at any point; not synced, so a power cut may bring an older one back. */
enum sb_rc sb_statefile_write(struct sb_statefile *self, const void *bytes, size_t n, struct sb_err *err) SB_CHECK;

#endif
