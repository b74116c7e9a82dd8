/*
 * What windows and computed metrics add to a scrape of `full`, and to memory: the hub's store twice, without and with
 * them, fed with the same frames for over a minute of a clock of its own. 1,000 contributions of 1,100 samples.
 *
 * usage: bench_windows [CONTRIBUTIONS]     prints milliseconds of a scrape without and with; kilobytes of a store
 * without and what is more with; and of a pulse (both rounds) milliseconds in all, and of its longest piece.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "hub/memory.h"
#include "hub/render.h"
#include "hub/session.h"
#include "hub/windows.h"
#include "messages.h"

enum { ROUNDS = 25, SECONDS = 70 };

static const char metrics[] =
    "version: 1\n"
    "computed:\n"
    "  a: {type: counter_rate, phase: before_aggregation, sources: [bench:c50_total], help: h}\n"
    "  b: {type: counter_rate, phase: before_aggregation, sources: [bench:c51_total], help: h}\n"
    "  c: {type: counter_rate, phase: before_aggregation, sources: [bench:c52_total], help: h}\n"
    "  d: {type: worker_count, phase: after_aggregation, roles: [prefill], help: h}\n"
    "  e: {type: worker_count, phase: after_aggregation, roles: [decode], help: h}\n"
    "  f: {type: worker_count, phase: after_aggregation, roles: [prefill], state: inactive, help: h}\n"
    "  g: {type: worker_count, phase: after_aggregation, roles: [decode], state: inactive, help: h}\n"
    "  h: {type: pd_ratio, phase: after_aggregation, roles: [prefill, decode], help: h}\n";

/* A store with one session. */
struct side {
    struct hub_counters counters;
    struct hub_store store;
    struct hub_session session;
    uint64_t number;
    size_t bytes;
    double scrape_ns;
    double pulse_ns;
    double longest_ns;
    uint64_t lines;
};

static struct hub_view_specs specs;
static struct hub_computed_specs computed;
static struct hub_window_lengths lengths;
static const struct hub_expectations none;
static int64_t now_ms = 1000;

static void die(const char *what)
{
    fprintf(stderr, "bench_windows: %s\n", what);
    exit(1);
}

static void take(struct side *side, struct sb_buf *message)
{
    static const uint8_t hub_id[HUB_ID_BYTES] = "bench";
    struct sb_buf answer;
    sb_buf_init(&answer, 4096);
    if (message->is_overflow ||
        hub_session_take(&side->session, hub_id, message->data, message->len, now_ms, &answer) != HUB_OK)
        die("a message was refused");
    sb_buf_clear(message);
    sb_buf_release(&answer);
}

static void open_side(struct side *side, const struct sb_catalog *catalog, unsigned n, bool has_all)
{
    struct sb_err err = {.text = ""};
    struct sb_buf message;
    const struct hub_store_limits limits = {.contributions = n, .row_bytes = SIZE_MAX, .linger_ms = 1000};
    if (hub_store_init(&side->store, catalog, &specs, &side->counters, limits, &err) != SB_OK ||
        (has_all && (hub_windows_init(&side->store, &lengths, SIZE_MAX, &err) != SB_OK ||
                     hub_store_compute(&side->store, &computed, &none, 10000, &err) != SB_OK)))
        die(err.text);
    hub_session_init(&side->session, &side->store, 1, now_ms);
    sb_buf_init(&message, HUB_MESSAGE_MAX);
    bench_put_hello(&message);
    take(side, &message);
    bench_put_define(&message, n);
    take(side, &message);
    sb_buf_release(&message);
}

static void feed(struct side *side, unsigned n, unsigned round)
{
    struct sb_buf message;
    sb_buf_init(&message, HUB_MESSAGE_MAX);
    for (unsigned i = 0; i < n; i++) {
        bench_put_frame(&message, ++side->number, i, round);
        take(side, &message);
    }
    sb_buf_release(&message);
}

static void pulse(struct side *side)
{
    double whole_ns = 0;
    hub_computed_begin_round(&side->store, now_ms);
    hub_windows_begin_round(&side->store, now_ms);
    for (bool has_more = true; has_more;) {
        const double from = bench_cpu_ns();
        has_more = hub_computed_go_on(&side->store) || hub_windows_go_on(&side->store);
        const double piece_ns = bench_cpu_ns() - from;
        whole_ns += piece_ns;
        side->longest_ns = piece_ns > side->longest_ns ? piece_ns : side->longest_ns;
    }
    side->pulse_ns = side->pulse_ns == 0 || whole_ns < side->pulse_ns ? whole_ns : side->pulse_ns;
}

static void scrape(struct side *side)
{
    struct sb_buf out;
    sb_buf_init(&out, 16 * HUB_CHUNK_BYTES);
    const double from = bench_cpu_ns();
    const struct hub_ask ask = {.view = hub_store_view(&side->store, "full"), .now_ms = now_ms};
    struct hub_scrape *scrape = hub_scrape_new(&side->store, &ask);
    if (!scrape)
        die("no memory");
    side->lines = 0;
    for (bool has_more = true; has_more;) {
        has_more = hub_scrape_next(scrape, &out);
        for (const uint8_t *at = out.data; (at = memchr(at, '\n', (size_t) (out.data + out.len - at))) != NULL; at++)
            side->lines++;
        sb_buf_clear(&out);
    }
    hub_scrape_destroy(&scrape);
    const double ns = bench_cpu_ns() - from;
    side->scrape_ns = side->scrape_ns == 0 || ns < side->scrape_ns ? ns : side->scrape_ns;
    sb_buf_release(&out);
}

int main(int argc, char **argv)
{
    const unsigned n = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 1000;
    static struct side sides[2];
    struct sb_err err;
    const struct sb_catalog_file file = {.name = "bench", .text = metrics, .len = sizeof metrics - 1};
    struct sb_catalog *catalog = sb_catalog_load(NULL, NULL, &err);
    hub_memory_keep();
    sb_arena_init(&computed.arena);
    computed.prefix = "motor_";
    if (!catalog || hub_view_specs_load(&specs, NULL, &err) != SB_OK ||
        hub_computed_specs_read(&computed, &file, catalog, &err) != SB_OK ||
        hub_window_lengths_parse(&lengths, "60s", &err) != SB_OK)
        die(err.text);
    for (int s = 0; s < 2; s++) {
        const size_t before = mallinfo2().uordblks;
        now_ms = 1000;
        open_side(&sides[s], catalog, n, s == 1);
        for (unsigned second = 0; second < SECONDS; second++, now_ms += 1000) {
            feed(&sides[s], n, second + 1);
            if (s == 1)
                pulse(&sides[s]);
        }
        sides[s].bytes = mallinfo2().uordblks - before;
    }
    for (int round = 0; round < ROUNDS; round++) {
        scrape(&sides[0]);
        scrape(&sides[1]);
    }
    if (sides[1].lines < sides[0].lines + 12 * 6)
        die("windows and computed metrics are not all there");
    printf("%.4f %.4f %.0f %.0f %.4f %.4f\n", sides[0].scrape_ns / 1e6, sides[1].scrape_ns / 1e6,
           (double) sides[0].bytes / 1024, (double) (sides[1].bytes - sides[0].bytes) / 1024, sides[1].pulse_ns / 1e6,
           sides[1].longest_ns / 1e6);
    for (int s = 0; s < 2; s++) {
        hub_session_release(&sides[s].session);
        hub_store_release(&sides[s].store);
    }
    hub_computed_specs_release(&computed);
    hub_view_specs_release(&specs);
    sb_catalog_destroy(&catalog);
    return 0;
}
