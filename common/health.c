#include "common/health.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/address.h"

static const char request[] = "GET /healthz HTTP/1.0\r\n\r\n";
static const char answer_start[] = "HTTP/1.";

enum {
    STATUS_AT = sizeof answer_start - 1 + 2, /* after the minor version and a space */
    STATUS_DIGITS = 3,
    ANSWER_LEN = STATUS_AT + STATUS_DIGITS, /* of the answer that matter */
};

/* Linux holds connect() to the time of sending, and a read that waits for all to the time of receiving as a whole. */
static bool set_timeout(int fd, int64_t timeout_ms)
{
    const struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0;
}

static const char *reason(void)
{
    return errno == EAGAIN || errno == EINPROGRESS ? "it takes too long" : strerror(errno);
}

static enum sb_rc ask(int fd, const char *listen_at, const union sb_address *address, struct sb_err *err)
{
    if (connect(fd, &address->any, sb_address_len(address)) != 0 ||
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return sb_fail(err, SB_IO, "%s does not answer: %s", listen_at, reason());

    char answer[ANSWER_LEN + 1] = {0};
    const ssize_t n = recv(fd, answer, ANSWER_LEN, MSG_WAITALL);
    if (n < 0)
        return sb_fail(err, SB_IO, "%s does not answer: %s", listen_at, reason());
    if (n < ANSWER_LEN || strncmp(answer, answer_start, sizeof answer_start - 1) != 0)
        return sb_fail(err, SB_IO, "%s does not speak HTTP", listen_at);
    if (strcmp(answer + STATUS_AT, "200") != 0)
        return sb_fail(err, SB_IO, "%s answers %s", listen_at, answer + STATUS_AT);
    return SB_OK;
}

enum sb_rc sb_health_check(const char *listen_at, int64_t timeout_ms, struct sb_err *err)
{
    union sb_address address;
    const enum sb_rc parsed = sb_address_parse(listen_at, &address, err);
    if (parsed != SB_OK)
        return parsed;
    const int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sb_fail(err, SB_IO, "no socket: %s", strerror(errno));
    const enum sb_rc rc = set_timeout(fd, timeout_ms) ? ask(fd, listen_at, &address, err)
                                                      : sb_fail(err, SB_IO, "no timeout: %s", strerror(errno));
    close(fd);
    return rc;
}
