/*
 * An agent with many contributions, all of whose cells change every round.
 *
 * usage: bench_frames hub|floor ENDPOINT CONTRIBUTIONS ROUNDS     floor: to a socket that only receives; hub: a real
 * session, which says "done" at the last ACK and stays. Every line that it reads then starts a watch, in which frames
 * go one at a time, or ends it with what the longest took to be acknowledged, in milliseconds.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "common/mp.h"
#include "messages.h"

struct agent {
    void *socket;
    struct sb_buf out;
    unsigned n;
    uint64_t number; /* of the last frame */
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void send_out(struct agent *self)
{
    if (self->out.is_overflow || zmq_send(self->socket, self->out.data, self->out.len, 0) < 0)
        die("bench_frames: send");
    sb_buf_clear(&self->out);
}

static void send_frame(struct agent *self, unsigned contribution, unsigned round)
{
    bench_put_frame(&self->out, ++self->number, contribution, round);
    send_out(self);
}

/* Its answer may repeat the last ACK. */
static void send_heartbeat(struct agent *self)
{
    sb_mp_put_array(&self->out, 1);
    sb_mp_put_str(&self->out, "FRAME");
    send_out(self);
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

static void open_session(struct agent *self)
{
    char welcome[256];
    bench_put_hello(&self->out);
    send_out(self);
    if (zmq_recv(self->socket, welcome, sizeof welcome, 0) < 0)
        die("bench_frames: welcome");
    bench_put_define(&self->out, self->n);
    send_out(self);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

/* A byte to read, and taken; waits for it this long. */
static bool is_told(int wait_ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (poll(&in, 1, wait_ms) <= 0)
        return false;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        exit(0);
    return true;
}

static void watch(struct agent *self, unsigned round)
{
    double longest_ms = 0;
    for (unsigned i = 0; !is_told(1); i = (i + 1) % self->n) {
        const double from = now_ms();
        send_frame(self, i, round);
        wait_for_ack(self->socket, self->number);
        const double took = now_ms() - from;
        longest_ms = took > longest_ms ? took : longest_ms;
    }
    printf("%.3f\n", longest_ms);
    fflush(stdout);
}

/* Contributions stay live while the hub is scraped. */
static void stay(struct agent *self, unsigned round)
{
    send_heartbeat(self);
    wait_for_ack(self->socket, self->number);
    puts("done");
    fflush(stdout);
    for (;;) {
        send_heartbeat(self);
        take_acks(self->socket);
        if (is_told(1000))
            watch(self, ++round);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    const bool is_hub = strcmp(argv[1], "hub") == 0;
    const unsigned rounds = (unsigned) strtoul(argv[4], NULL, 10);
    void *context = zmq_ctx_new();
    struct agent agent = {.socket = zmq_socket(context, ZMQ_DEALER), .n = (unsigned) strtoul(argv[3], NULL, 10)};
    int queue = 8;
    zmq_setsockopt(agent.socket, ZMQ_SNDHWM, &queue, sizeof queue);
    if (zmq_connect(agent.socket, argv[2]) != 0)
        die(argv[2]);
    sb_buf_init(&agent.out, 16 << 20);
    if (is_hub)
        open_session(&agent);
    for (unsigned round = 1; round <= rounds; round++) {
        for (unsigned i = 0; i < agent.n; i++) {
            send_frame(&agent, i, round);
            take_acks(agent.socket);
        }
    }
    if (is_hub)
        stay(&agent, rounds);
    sb_buf_release(&agent.out);
    zmq_close(agent.socket);
    zmq_ctx_term(context);
    return 0;
}
