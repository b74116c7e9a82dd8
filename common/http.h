/*
 * A small HTTP server inside a zloop: libmicrohttpd with its epoll descriptor in our loop, no threads.
 *
 * Routes are a table. A handler either fills a whole body or hands over a stream, which is asked for chunks as the
 * client takes them. Compression (gzip) by Accept-Encoding happens here, for both.
 */
#ifndef SB_HTTP_H
#define SB_HTTP_H

#include <czmq.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct sb_http;

struct sb_http_query {
    const char *name;
    const char *value; /* "" when none was given */
};

struct sb_http_request {
    const char *path;
    const char *accept; /* NULL when absent */
    const struct sb_http_query *query;
    size_t n_query; /* at most SB_HTTP_QUERY_MAX; more are a 400 before the handler is asked, as is a zero byte */
};

enum sb_http_more {
    SB_HTTP_LAST,
    SB_HTTP_MORE, /* more may follow */
    SB_HTTP_CUT,  /* the body can't go on; the client sees that it was cut */
};

/*
 * A body in pieces. next appends the next piece to out, which it finds empty and may leave so: one that works for long
 * without any text gives empty pieces, and others get their turn.
 */
struct sb_http_stream {
    enum sb_http_more (*next)(void *state, struct sb_buf *out);
    void (*close)(void *state); /* once, also when the client goes away early */
    void *state;
};

struct sb_http_response {
    unsigned status;              /* 200 unless set */
    const char *content_type;     /* static text; "text/plain; charset=utf-8" unless set */
    struct sb_buf *body;          /* the server's, empty: fill it, or set stream */
    struct sb_http_stream stream; /* next != NULL: streamed */
};

typedef void (*sb_http_handler)(void *arg, const struct sb_http_request *request, struct sb_http_response *response);

struct sb_http_route {
    const char *path;
    sb_http_handler handler;
};

enum {
    SB_HTTP_QUERY_MAX = 64,
    SB_HTTP_CONNECTIONS_MAX = 64,
    SB_HTTP_TIMEOUT_S = 15,              /* of silence */
    SB_HTTP_ANSWER_S = 120,              /* for a request and its answer in all */
    SB_HTTP_BODY_MAX = 64 * 1024 * 1024, /* of a body that is built whole */
};

/*
 * Listens at "address:port" (IPv4, or [IPv6]:port) and serves within the loop. Other paths get 404, other methods than
 * GET and HEAD 405. routes is borrowed for the server's life. Destroyed before the loop. NULL with *err: SB_FORMAT (the
 * address), SB_IO (the bind, with the system's reason), SB_NOMEM.
 */
struct sb_http *sb_http_new(zloop_t *loop, const char *listen, const struct sb_http_route *routes, size_t n_routes,
                            void *arg, struct sb_err *err) SB_CHECK;
/* Can sb_http_new listen at this, as far as its form tells? SB_FORMAT. */
enum sb_rc sb_http_check_address(const char *listen, struct sb_err *err) SB_CHECK;
void sb_http_destroy(struct sb_http **self_p);

/* The port that is listened on (of use after ":0"). */
unsigned sb_http_port(const struct sb_http *self);

struct sb_http_counters {
    uint64_t requests;
    uint64_t refused;     /* answered with 4xx */
    uint64_t turned_away; /* connections over the limit */
    uint64_t hung_up;     /* connections that took too long for one answer */
};
struct sb_http_counters sb_http_counters(const struct sb_http *self);

/* The value of a query parameter, or NULL. */
const char *sb_http_query_value(const struct sb_http_request *request, const char *name);

#endif
