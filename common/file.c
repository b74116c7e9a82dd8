#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 16 * 1024 };

static enum sb_rc read_all(int fd, const char *path, struct sb_buf *out, struct sb_err *err)
{
    for (;;) {
        uint8_t *to = sb_buf_reserve(out, PIECE);
        if (!to)
            return sb_fail(err, SB_FULL, "%s: the file is too large", path);
        ssize_t n = read(fd, to, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sb_fail(err, SB_IO, "%s: %s", path, strerror(errno));
        if (n == 0)
            return SB_OK;
        out->len += (size_t) n;
    }
}

enum sb_rc sb_file_read(const char *path, struct sb_buf *out, struct sb_err *err)
{
    sb_buf_clear(out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes must not hang a start */
    if (fd < 0)
        return sb_fail(err, SB_IO, "%s: %s", path, strerror(errno));
    enum sb_rc rc = read_all(fd, path, out, err);
    close(fd);
    return rc;
}
