#include "endpoint.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "lockfile.h"
#include "settings.h"

static const char ipc[] = "ipc://";
static const char tcp[] = "tcp://";

static enum sb_rc bind_socket(void *socket, const char *endpoint, struct sb_err *err)
{
    if (zmq_bind(socket, endpoint) == 0)
        return SB_OK;
    if (zmq_errno() == ENODEV) /* libzmq takes what is no address for the name of a network interface */
        return sb_fail(err, SB_IO, "cannot bind %s: the host must be an address of this machine, or *", endpoint);
    return sb_fail(err, SB_IO, "cannot bind %s: %s", endpoint, zmq_strerror(zmq_errno()));
}

/* libzmq removes whatever is at the path before it binds: fine for the socket of a dead process, not for a file. */
static enum sb_rc check_path(const char *path, struct sb_err *err)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        if (errno == ENOENT)
            return SB_OK;
        return sb_fail(err, SB_IO, "cannot look at %s: %s", path, strerror(errno));
    }
    if (!S_ISSOCK(info.st_mode))
        return sb_fail(err, SB_IO, "%s is there and is not a socket", path);
    return SB_OK;
}

static enum sb_rc bind_path(void *socket, const char *endpoint, const char *path, int *lock_fd, struct sb_err *err)
{
    const int fd = sb_lockfile_take(path, err);
    if (fd < 0)
        return err->rc;

    enum sb_rc rc = check_path(path, err);
    if (rc == SB_OK) {
        const mode_t before = umask(0117); /* so the socket file is 0660 from its first moment */
        rc = bind_socket(socket, endpoint, err);
        umask(before);
    }
    if (rc != SB_OK) {
        close(fd);
        return rc;
    }
    *lock_fd = fd;
    return SB_OK;
}

static bool is_ipc_endpoint(const char *endpoint)
{
    return strncmp(endpoint, ipc, sizeof ipc - 1) == 0;
}

/* The rest after the scheme; both are as long. */
static const char *address_of(const char *endpoint)
{
    return endpoint + sizeof ipc - 1;
}

static enum sb_rc check_port(const char *endpoint, struct sb_err *err)
{
    const char *colon = strrchr(address_of(endpoint), ':');
    int64_t port = 0;
    if (!colon || colon == address_of(endpoint))
        return sb_fail(err, SB_FORMAT, "'%s' is not tcp://host:port", endpoint);
    if (strcmp(colon + 1, "*") != 0 && (sb_parse_count(colon + 1, &port, NULL) != SB_OK || port > UINT16_MAX))
        return sb_fail(err, SB_FORMAT, "'%s' has no port from 0 to 65535, nor *", endpoint);
    return SB_OK;
}

enum sb_rc sb_endpoint_check(const char *endpoint, struct sb_err *err)
{
    static const size_t path_max = sizeof((struct sockaddr_un *) NULL)->sun_path - 1;
    if (strlen(endpoint) >= SB_ENDPOINT_MAX)
        return sb_fail(err, SB_FORMAT, "the endpoint '%.60s...' is longer than %d bytes", endpoint,
                       SB_ENDPOINT_MAX - 1);
    if (!is_ipc_endpoint(endpoint) && strncmp(endpoint, tcp, sizeof tcp - 1) != 0)
        return sb_fail(err, SB_FORMAT, "'%s' starts with neither ipc:// nor tcp://", endpoint);
    if (*address_of(endpoint) == '\0')
        return sb_fail(err, SB_FORMAT, "'%s' names no address", endpoint);
    if (!is_ipc_endpoint(endpoint))
        return check_port(endpoint, err);
    if (strlen(address_of(endpoint)) > path_max)
        return sb_fail(err, SB_FORMAT, "the path '%.60s...' is longer than the %zu bytes that the system allows",
                       address_of(endpoint), path_max);
    return SB_OK;
}

enum sb_rc sb_endpoint_bind(void *socket, const char *endpoint, int *lock_fd, struct sb_err *err)
{
    struct sb_err own; /* the reason decides the result, also for callers who don't want it */
    if (!err)
        err = &own;
    if (sb_endpoint_check(endpoint, err) != SB_OK)
        return err->rc;

    const bool is_ipc = is_ipc_endpoint(endpoint);
    const char *rest = address_of(endpoint);
    /* Abstract names ("@x") and "*" have no file; the system refuses a second bind of those by itself. */
    if (is_ipc && *rest != '@' && *rest != '*')
        return bind_path(socket, endpoint, rest, lock_fd, err);
    const enum sb_rc rc = bind_socket(socket, endpoint, err);
    if (rc == SB_OK)
        *lock_fd = -1;
    return rc;
}
