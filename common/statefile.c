#include "statefile.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "lockfile.h"

struct sb_statefile {
    char *path;
    char *next; /* "PATH.tmp", which becomes PATH */
    int lock_fd;
};

static const char magic[8] = {'S', 'B', 'S', 'T', 'A', 'T', 'E', '1'}; /* the last one is the version */

/* What stands before the payload: magic, its length and its CRC-32, both little-endian. */
enum { LENGTH_AT = sizeof magic, CRC_AT = LENGTH_AT + 8, HEAD_SIZE = CRC_AT + 4 };

static uint32_t crc_of(const void *bytes, size_t n)
{
    return (uint32_t) crc32_z(0, bytes, n);
}

static void make_head(uint8_t head[HEAD_SIZE], const void *bytes, size_t n)
{
    const uint64_t length = htole64(n);
    const uint32_t crc = htole32(crc_of(bytes, n));
    memcpy(head, magic, sizeof magic);
    memcpy(head + LENGTH_AT, &length, sizeof length);
    memcpy(head + CRC_AT, &crc, sizeof crc);
}

/* A folder, a pipe or a device is no state that got damaged, but a mistake of whoever named it. */
static enum sb_rc not_a_file(const char *path, mode_t mode, struct sb_err *err)
{
    return sb_fail(err, SB_IO, "%s is %s, not a file", path,
                   S_ISDIR(mode)    ? "a folder"
                   : S_ISFIFO(mode) ? "a pipe"
                                    : "a device or socket");
}

static enum sb_rc check_kind(const char *path, struct sb_err *err)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) ? not_a_file(path, info.st_mode, err) : SB_OK;
}

struct sb_statefile *sb_statefile_open(const char *path, struct sb_err *err)
{
    SB_OWN(sb_statefile_close) struct sb_statefile *self = calloc(1, sizeof *self);
    if (!self) {
        sb_fail(err, SB_NOMEM, "state file %s", path);
        return NULL;
    }
    self->lock_fd = -1;
    self->path = strdup(path);
    if (!self->path || asprintf(&self->next, "%s.tmp", path) < 0) {
        self->next = NULL; /* asprintf leaves anything there */
        sb_fail(err, SB_NOMEM, "state file %s", path);
        return NULL;
    }
    if (check_kind(path, err) != SB_OK)
        return NULL; /* before a lock is made beside, or in, what isn't ours */
    self->lock_fd = sb_lockfile_take(path, err);
    if (self->lock_fd < 0)
        return NULL;

    struct sb_statefile *made = self;
    self = NULL; /* the caller's now */
    return made;
}

void sb_statefile_close(struct sb_statefile **self_p)
{
    struct sb_statefile *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    if (self->lock_fd >= 0)
        close(self->lock_fd);
    free(self->next);
    free(self->path);
    free(self);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Reads exactly n bytes; false at the end of the file (errno 0) or on an error. */
static bool read_all(int fd, void *to, size_t n)
{
    uint8_t *at = to;
    while (n > 0) {
        const ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return false;
        }
        at += got;
        n -= (size_t) got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    const uint8_t *at = from;
    while (n > 0) {
        const ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        at += put;
        n -= (size_t) put;
    }
    return true;
}

static enum sb_rc read_failed(const struct sb_statefile *self, struct sb_err *err)
{
    if (errno == 0)
        return sb_fail(err, SB_FORMAT, "%s is cut", self->path);
    return sb_fail(err, SB_IO, "cannot read %s: %s", self->path, strerror(errno));
}

enum sb_rc sb_statefile_read(struct sb_statefile *self, struct sb_buf *out, struct sb_err *err)
{
    SB_OWN(close_fd) int fd = open(self->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* or a pipe holds us up */
    if (fd < 0 && errno == ENOENT)
        return sb_fail(err, SB_ABSENT, "there is no %s", self->path);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0)
        return sb_fail(err, SB_IO, "cannot open %s: %s", self->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return not_a_file(self->path, info.st_mode, err);

    uint8_t head[HEAD_SIZE];
    if (!read_all(fd, head, sizeof head))
        return read_failed(self, err);
    if (memcmp(head, magic, sizeof magic - 1) != 0)
        return sb_fail(err, SB_FORMAT, "%s is not a state file", self->path);
    if (head[sizeof magic - 1] != magic[sizeof magic - 1])
        return sb_fail(err, SB_FORMAT, "%s is a state file of another version", self->path);

    uint64_t length;
    memcpy(&length, head + LENGTH_AT, sizeof length);
    length = le64toh(length);
    if (length != (uint64_t) info.st_size - HEAD_SIZE)
        return sb_fail(err, SB_FORMAT, "%s is cut or has bytes left over", self->path);

    sb_buf_clear(out);
    uint8_t *payload = sb_buf_reserve(out, length);
    if (!payload)
        return sb_fail(err, SB_FULL, "%s holds %llu bytes, more than %zu or than memory has", self->path,
                       (unsigned long long) length, out->max);
    if (!read_all(fd, payload, length))
        return read_failed(self, err);
    uint8_t want[HEAD_SIZE];
    make_head(want, payload, length);
    if (memcmp(head, want, sizeof head) != 0)
        return sb_fail(err, SB_FORMAT, "%s is damaged: its checksum does not match", self->path);
    out->len = length;
    return SB_OK;
}

/* Writes "PATH.tmp" whole; it is closed either way. */
static bool write_next(const struct sb_statefile *self, const void *bytes, size_t n)
{
    const int fd = open(self->next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return false;
    uint8_t head[HEAD_SIZE];
    make_head(head, bytes, n);
    const bool is_written = write_all(fd, head, sizeof head) && write_all(fd, bytes, n);
    const int reason = errno;
    const bool is_closed = close(fd) == 0; /* some file systems report a full disk only here */
    if (!is_written)
        errno = reason;
    return is_written && is_closed;
}

enum sb_rc sb_statefile_write(struct sb_statefile *self, const void *bytes, size_t n, struct sb_err *err)
{
    if (write_next(self, bytes, n) && rename(self->next, self->path) == 0)
        return SB_OK;
    const int reason = errno;
    unlink(self->next); /* a full disk gets its room back */
    return sb_fail(err, SB_IO, "cannot write %s: %s", self->path, strerror(reason));
}
