/*
 * An agent with many contributions, all of whose cells change every round.
 *
 * usage: bench_frames hub|floor ENDPOINT CONTRIBUTIONS ROUNDS     hub: a real session, waits for the last ACK;
 * floor: the same frames to a socket that only receives.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/clock.h"
#include "common/mp.h"

enum { HISTOGRAMS = 46, BOUNDS = 21, COUNTERS = 42, CELLS = HISTOGRAMS * (BOUNDS + 2) + COUNTERS }; /* 1,100 */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void send_buf(void *socket, struct sb_buf *buf)
{
    if (zmq_send(socket, buf->data, buf->len, 0) < 0)
        die("bench_frames: send");
    sb_buf_clear(buf);
}

static void put_pair(struct sb_buf *out, const char *name, const char *value)
{
    sb_mp_put_str(out, name);
    sb_mp_put_str(out, value);
}

static void put_families(struct sb_buf *out)
{
    sb_mp_put_array(out, HISTOGRAMS + COUNTERS);
    for (unsigned i = 0; i < HISTOGRAMS + COUNTERS; i++) {
        int is_histogram = i < HISTOGRAMS;
        char name[32];
        snprintf(name, sizeof name, is_histogram ? "bench:h%u_seconds" : "bench:c%u_total", i);
        sb_mp_put_array(out, 8);
        sb_mp_put_uint(out, i);
        sb_mp_put_str(out, name);
        sb_mp_put_str(out, is_histogram ? "histogram" : "counter");
        sb_mp_put_nil(out);
        if (is_histogram) {
            sb_mp_put_array(out, BOUNDS);
            for (int bound = 1; bound <= BOUNDS; bound++)
                sb_mp_put_float(out, bound);
        } else {
            sb_mp_put_nil(out);
        }
        sb_mp_put_str(out, "of the benchmark");
        sb_mp_put_nil(out);
        sb_mp_put_nil(out);
    }
}

static void put_series(struct sb_buf *out)
{
    uint32_t cell = 0;
    sb_mp_put_array(out, HISTOGRAMS + COUNTERS);
    for (unsigned i = 0; i < HISTOGRAMS + COUNTERS; i++) {
        sb_mp_put_array(out, 3);
        sb_mp_put_uint(out, cell);
        sb_mp_put_uint(out, i);
        sb_mp_put_map(out, 0);
        cell += i < HISTOGRAMS ? BOUNDS + 2 : 1;
    }
}

static void put_contributions(struct sb_buf *out, unsigned n)
{
    sb_mp_put_array(out, n);
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "engine-%u", i);
        sb_mp_put_array(out, 5);
        sb_mp_put_uint(out, i);
        sb_mp_put_uint(out, i + 1);
        sb_mp_put_str(out, "engine");
        sb_mp_put_map(out, 3);
        put_pair(out, "service_name", "bench");
        put_pair(out, "job_name", name);
        put_pair(out, "dp_rank", "0");
        sb_mp_put_map(out, 3);
        put_pair(out, "model_name", "m");
        put_pair(out, "instance_id", name);
        put_pair(out, "role", i % 2 ? "prefill" : "decode");
    }
}

static void put_frame(struct sb_buf *out, uint64_t number, unsigned contribution, unsigned round)
{
    static uint32_t ids[CELLS];
    static double values[CELLS];
    for (uint32_t i = 0; i < CELLS; i++) {
        ids[i] = htole32(i);
        values[i] = (double) round * 10 + i; /* little-endian hosts alone, as the daemons */
    }
    sb_mp_put_array(out, 10);
    sb_mp_put_str(out, "FRAME");
    sb_mp_put_uint(out, number);
    sb_mp_put_uint(out, 1);
    sb_mp_put_uint(out, contribution);
    sb_mp_put_uint(out, 5);
    sb_mp_put_bool(out, true);
    sb_mp_put_bin(out, NULL, 0);
    sb_mp_put_bin(out, NULL, 0);
    sb_mp_put_bin(out, ids, sizeof ids);
    sb_mp_put_bin(out, values, sizeof values);
}

/* Takes what the hub says until its ACK has reached `number`. */
static void wait_for_ack(void *socket, uint64_t number)
{
    char bytes[4096];
    for (uint64_t acked = 0; acked < number;) {
        int n = zmq_recv(socket, bytes, sizeof bytes, 0);
        struct sb_mp at = sb_mp_over(bytes, n > 0 ? (size_t) n : 0);
        struct sb_slice type;
        uint32_t fields;
        if (n < 0 || !sb_mp_array(&at, &fields) || !sb_mp_str(&at, &type) || sb_slice_is(type, "REFUSED")) {
            fprintf(stderr, "bench_frames: refused: %.*s\n", n > 0 ? n : 0, bytes);
            exit(1);
        }
        if (sb_slice_is(type, "ACK") && !sb_mp_uint(&at, &acked))
            exit(1);
    }
}

static void take_acks(void *socket)
{
    char bytes[4096];
    while (zmq_recv(socket, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0)
        ;
}

static void open_session(void *socket, struct sb_buf *out, unsigned n)
{
    static const uint8_t lineage[16] = "bench-lineage-1";
    char welcome[256];
    sb_mp_put_array(out, 6);
    sb_mp_put_str(out, "HELLO");
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "node");
    sb_mp_put_bin(out, lineage, sizeof lineage);
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "bench");
    send_buf(socket, out);
    if (zmq_recv(socket, welcome, sizeof welcome, 0) < 0)
        die("bench_frames: welcome");
    sb_mp_put_array(out, 4);
    sb_mp_put_str(out, "DEFINE");
    put_families(out);
    put_series(out);
    put_contributions(out, n);
    send_buf(socket, out);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int is_hub = strcmp(argv[1], "hub") == 0;
    unsigned n = (unsigned) strtoul(argv[3], NULL, 10), rounds = (unsigned) strtoul(argv[4], NULL, 10);
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, ZMQ_DEALER);
    int queue = 8;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &queue, sizeof queue);
    if (zmq_connect(socket, argv[2]) != 0)
        die(argv[2]);
    struct sb_buf out;
    sb_buf_init(&out, 16 << 20);
    if (is_hub)
        open_session(socket, &out, n);
    uint64_t number = 0;
    for (unsigned round = 1; round <= rounds; round++) {
        for (unsigned i = 0; i < n; i++) {
            put_frame(&out, ++number, i, round);
            send_buf(socket, &out);
            take_acks(socket);
        }
    }
    if (is_hub) {
        sb_mp_put_array(&out, 1); /* a heartbeat: its answer may repeat the last ACK */
        sb_mp_put_str(&out, "FRAME");
        send_buf(socket, &out);
        wait_for_ack(socket, number);
        puts("done"); /* and stay, so that the contributions are live while the hub is scraped */
        fflush(stdout);
        for (;;) {
            sb_mp_put_array(&out, 1);
            sb_mp_put_str(&out, "FRAME");
            send_buf(socket, &out);
            zmq_poll(NULL, 0, 1000);
            take_acks(socket);
        }
    }
    sb_buf_release(&out);
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
