#include "lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int fail_to_open(const char *lock, int reason, struct sb_err *err)
{
    const char *slash = strrchr(lock, '/');
    if (reason == ENOENT && slash && slash != lock)
        sb_fail(err, SB_IO, "there is no folder %.*s", (int) (slash - lock), lock);
    else
        sb_fail(err, SB_IO, "cannot open %s: %s", lock, strerror(reason));
    return -1;
}

int sb_lockfile_take(const char *path, struct sb_err *err)
{
    char lock[PATH_MAX];
    const int n = snprintf(lock, sizeof lock, "%s.lock", path);
    if (n < 0 || (size_t) n >= sizeof lock) {
        sb_fail(err, SB_INVAL, "the path '%.60s...' is too long", path);
        return -1;
    }

    const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0660);
    if (fd < 0)
        return fail_to_open(lock, errno, err);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;

    if (errno == EWOULDBLOCK)
        sb_fail(err, SB_FULL, "another process holds %s", lock);
    else
        sb_fail(err, SB_IO, "cannot lock %s: %s", lock, strerror(errno));
    close(fd);
    return -1;
}
