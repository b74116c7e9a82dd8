/*
 * The floor: a loop that only receives.
 *
 * usage: bench_receive sub|router ENDPOINT MESSAGES    binds, receives that many messages into reused frames,
 * prints the CPU microseconds of this process (its I/O thread included) from the first message on, and their number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "bench/bench.h"

static void receive(void *socket)
{
    static zmq_msg_t frame;
    static int is_ready;
    int more = 1;
    if (!is_ready)
        is_ready = zmq_msg_init(&frame) == 0;
    while (more) {
        if (zmq_msg_recv(&frame, socket, 0) < 0) {
            perror("bench_receive");
            exit(1);
        }
        more = zmq_msg_more(&frame);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int is_sub = strcmp(argv[1], "sub") == 0;
    long n = strtol(argv[3], NULL, 10);
    int queue = is_sub ? 64 : 8;
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, is_sub ? ZMQ_SUB : ZMQ_ROUTER);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &queue, sizeof queue);
    if (is_sub)
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
    if (zmq_bind(socket, argv[2]) != 0) {
        perror(argv[2]);
        return 1;
    }
    receive(socket);
    double from = bench_cpu_ns();
    for (long i = 1; i < n; i++)
        receive(socket);
    printf("%.1f %ld\n", (bench_cpu_ns() - from) / 1000, n - 1);
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
