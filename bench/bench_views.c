/*
 * What a scrape of each view costs, in the process of the hub and before any socket: 1,000 contributions of 1,100
 * samples on 125 nodes of one role each, two in a pod, with everything that is derived.
 *
 * usage: bench_views [CONTRIBUTIONS [VIEW [MODEL]]]     prints a line a view: name, milliseconds, lines, nanoseconds a
 * line, kilobytes, and the longest piece in milliseconds. MODEL: only rows of this model_name; all have "m".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "hub/memory.h"
#include "hub/own.h"
#include "hub/render.h"
#include "hub/session.h"
#include "messages.h"

enum { ROUNDS = 15 };

static struct hub_store store;
static struct hub_counters counters;

static void die(const char *what)
{
    fprintf(stderr, "bench_views: %s\n", what);
    exit(1);
}

static void take(struct hub_session *session, struct sb_buf *message, struct sb_buf *answer)
{
    static const uint8_t hub_id[HUB_ID_BYTES] = "bench";
    if (message->is_overflow || hub_session_take(session, hub_id, message->data, message->len, 1000, answer) != HUB_OK)
        die("a message was refused");
    sb_buf_clear(message);
}

static void fill(struct hub_session *session, unsigned n)
{
    struct sb_buf message;
    struct sb_buf answer;
    sb_buf_init(&message, HUB_MESSAGE_MAX);
    sb_buf_init(&answer, 4096);
    hub_session_init(session, &store, 1, 1000);
    bench_put_hello(&message);
    take(session, &message, &answer);
    bench_put_define(&message, n);
    take(session, &message, &answer);
    for (unsigned i = 0; i < n; i++) {
        bench_put_frame(&message, i + 1, i, 1);
        take(session, &message, &answer);
    }
    sb_buf_release(&message);
    sb_buf_release(&answer);
}

struct cost {
    double ns;
    double longest_ns;
    uint64_t bytes;
    uint64_t lines;
};

static void put_nothing(void *arg, const struct sb_expo *expo, const struct hub_query *query)
{
    (void) arg;
    (void) expo;
    (void) query;
}

/* A closer look costs as well, so each number has a round of its own. */
enum look { LOOK_AT_WHOLE, LOOK_AT_PIECES, LOOK_AT_LINES };

static void look_at_piece(struct cost *cost, enum look look, double piece_ns, const struct sb_buf *piece)
{
    cost->longest_ns = piece_ns > cost->longest_ns ? piece_ns : cost->longest_ns;
    cost->bytes += piece->len;
    for (size_t i = 0; look == LOOK_AT_LINES && i < piece->len; i++)
        cost->lines += piece->data[i] == '\n';
}

static struct cost scrape(const struct hub_view *view, const char *model, enum look look)
{
    struct cost cost = {0};
    struct sb_buf out;
    sb_buf_init(&out, 16 * HUB_CHUNK_BYTES);
    double from = bench_cpu_ns();
    struct hub_query query = {.view = view->spec};
    if (model && !hub_query_narrow(&query, HUB_NARROW_model_name, model))
        die("no room in the query");
    const struct hub_ask ask = {
        .view = view, .now_ms = 1000, .query = &query, .own = view->spec->has_own ? put_nothing : NULL};
    struct hub_scrape *scrape = hub_scrape_new(&store, &ask);
    if (!scrape)
        die("no memory");
    for (bool has_more = true; has_more;) {
        double piece = look != LOOK_AT_WHOLE ? bench_cpu_ns() : 0;
        has_more = hub_scrape_next(scrape, &out);
        if (look != LOOK_AT_WHOLE)
            look_at_piece(&cost, look, bench_cpu_ns() - piece, &out);
        sb_buf_clear(&out);
    }
    hub_scrape_destroy(&scrape);
    cost.ns = bench_cpu_ns() - from;
    sb_buf_release(&out);
    return cost;
}

int main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 1000;
    const char *model = argc > 3 ? argv[3] : NULL;
    static struct hub_view_specs specs;
    struct sb_err err;
    struct hub_session session;
    struct sb_catalog *catalog = sb_catalog_load(NULL, NULL, &err);
    const struct hub_store_limits limits = {.contributions = n, .row_bytes = SIZE_MAX, .linger_ms = 1000};
    hub_memory_keep();
    if (!catalog || hub_view_specs_load(&specs, NULL, &err) != SB_OK ||
        hub_store_init(&store, catalog, &specs, &counters, limits, &err) != SB_OK)
        die(err.text);
    fill(&session, n);
    for (size_t i = 0; i < store.n_shown_views; i++) {
        if (argc > 2 && strcmp(argv[2], store.views[i].spec->name) != 0)
            continue;
        struct cost best = scrape(&store.views[i], model, LOOK_AT_LINES);
        for (int round = 0; round < ROUNDS; round++) {
            struct cost pieces = scrape(&store.views[i], model, LOOK_AT_PIECES);
            struct cost cost = scrape(&store.views[i], model, LOOK_AT_WHOLE);
            best.ns = cost.ns < best.ns ? cost.ns : best.ns;
            best.longest_ns = pieces.longest_ns < best.longest_ns ? pieces.longest_ns : best.longest_ns;
        }
        printf("%-10s %8.3f %8llu %7.1f %8.0f %7.3f\n", store.views[i].spec->name, best.ns / 1e6,
               (unsigned long long) best.lines, best.ns / (double) (best.lines ? best.lines : 1),
               (double) best.bytes / 1024, best.longest_ns / 1e6);
    }
    hub_session_release(&session);
    hub_store_release(&store);
    hub_view_specs_release(&specs);
    sb_catalog_destroy(&catalog);
    return 0;
}
