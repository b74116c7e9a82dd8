/* Addresses of HTTP pages as they are written in settings: "127.0.0.1:9464", "[::1]:9464". */
#ifndef SB_ADDRESS_H
#define SB_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "err.h"

union sb_address {
    struct sockaddr_storage storage;
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* SB_FORMAT: it has another form, or a host that is no address; *out is then of no use. */
enum sb_rc sb_address_parse(const char *text, union sb_address *out, struct sb_err *err) SB_CHECK;

/* What the system's calls want to know beside it. */
socklen_t sb_address_len(const union sb_address *address);

#endif
