#include "common/address.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

#include "common/settings.h"

/* The host of "host:port", in brackets or not, into *out. */
static bool parse_host(char *host, uint16_t port, union sb_address *out)
{
    const size_t len = strlen(host);
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        return inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
}

enum sb_rc sb_address_parse(const char *text, union sb_address *out, struct sb_err *err)
{
    *out = (union sb_address){.storage = {0}};
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    const size_t host_len = colon ? (size_t) (colon - text) : 0;
    int64_t port = 0;
    if (host_len == 0 || host_len >= sizeof host || sb_parse_count(colon + 1, &port, NULL) != SB_OK ||
        port > UINT16_MAX)
        return sb_fail(err, SB_FORMAT, "'%s' is not address:port or [address]:port", text);
    memcpy(host, text, host_len);
    host[host_len] = '\0';
    if (!parse_host(host, (uint16_t) port, out))
        return sb_fail(err, SB_FORMAT, "'%s' names no IPv4 address, nor an IPv6 address in brackets", text);
    return SB_OK;
}

socklen_t sb_address_len(const union sb_address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}
