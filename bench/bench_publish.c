/*
 * An engine that publishes one record again and again, without losing any (it waits where a real one would drop).
 *
 * usage: bench_publish ENDPOINT MESSAGES PER_SECOND RECORD_FILE [SOURCES]
 *
 * PER_SECOND 0: flat out. With SOURCES each message has a record of each of so many schedulers.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "common/clock.h"
#include "common/mp.h"

static char id[33];

static void send_message(void *socket, const char *kind, uint64_t first, uint32_t count, const struct sb_buf *payload)
{
    char topic[64];
    uint8_t header[12];
    int len = snprintf(topic, sizeof topic, "statsbus1.%s.%s", kind, id);
    first = htobe64(first);
    count = htobe32(count);
    memcpy(header, &first, sizeof first);
    memcpy(header + sizeof first, &count, sizeof count);
    if (zmq_send(socket, topic, (size_t) len, ZMQ_SNDMORE) < 0 ||
        zmq_send(socket, header, sizeof header, ZMQ_SNDMORE) < 0 ||
        zmq_send(socket, payload->data, payload->len, 0) < 0) {
        perror("bench_publish");
        exit(1);
    }
}

static void put_pair(struct sb_buf *out, const char *name, const char *value)
{
    sb_mp_put_str(out, name);
    sb_mp_put_str(out, value);
}

static void put_source(struct sb_buf *hello, uint32_t index)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", index);
    sb_mp_put_map(hello, 7);
    sb_mp_put_str(hello, "index");
    sb_mp_put_uint(hello, index);
    put_pair(hello, "service_name", "bench");
    put_pair(hello, "model_name", "m");
    put_pair(hello, "job_name", id);
    put_pair(hello, "instance_id", id);
    put_pair(hello, "role", "both");
    put_pair(hello, "dp_rank", rank);
}

static void send_hello(void *socket, uint32_t n_sources)
{
    struct sb_buf hello;
    sb_buf_init(&hello, 1 << 20);
    sb_mp_put_map(&hello, 6);
    put_pair(&hello, "publisher", id);
    put_pair(&hello, "host", "bench");
    sb_mp_put_str(&hello, "pid");
    sb_mp_put_uint(&hello, (uint64_t) getpid());
    sb_mp_put_str(&hello, "time");
    sb_mp_put_float(&hello, sb_mono_s());
    sb_mp_put_str(&hello, "engine");
    sb_mp_put_map(&hello, 2);
    put_pair(&hello, "name", "vllm");
    put_pair(&hello, "version", "0.32.0");
    sb_mp_put_str(&hello, "sources");
    sb_mp_put_array(&hello, n_sources);
    for (uint32_t i = 0; i < n_sources; i++)
        put_source(&hello, i);
    send_message(socket, "hello", 1, 0, &hello);
    sb_buf_release(&hello);
}

static void pause_until(double due_s)
{
    double left = due_s - sb_mono_s();
    if (left <= 0)
        return;
    struct timespec wait = {.tv_sec = (time_t) left, .tv_nsec = (long) ((left - (double) (time_t) left) * 1e9)};
    nanosleep(&wait, NULL);
}

static size_t read_file(const char *path, uint8_t *out, size_t cap)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t n = fread(out, 1, cap, file);
    fclose(file);
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t record[1 << 20];
    if (argc != 5 && argc != 6)
        return 2;
    const uint32_t n_sources = argc == 6 ? (uint32_t) strtoul(argv[5], NULL, 10) : 1;
    uint64_t n = strtoull(argv[2], NULL, 10);
    double per_second = strtod(argv[3], NULL);
    size_t len = read_file(argv[4], record, sizeof record);
    snprintf(id, sizeof id, "%032x", (unsigned) getpid());

    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, ZMQ_XPUB);
    int yes = 1, queue = 64, forever = -1;
    zmq_setsockopt(socket, ZMQ_XPUB_NODROP, &yes, sizeof yes);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &queue, sizeof queue);
    zmq_setsockopt(socket, ZMQ_LINGER, &forever, sizeof forever);
    char subscription[64];
    if (zmq_connect(socket, argv[1]) != 0 || zmq_recv(socket, subscription, sizeof subscription, 0) < 0) {
        perror(argv[1]);
        return 1;
    }
    send_hello(socket, n_sources);

    struct sb_buf payload;
    sb_buf_init(&payload, 1 << 21);
    double start_s = sb_mono_s();
    for (uint64_t i = 1; i <= n; i++) {
        sb_buf_clear(&payload);
        sb_mp_put_array(&payload, n_sources);
        for (uint32_t source = 0; source < n_sources; source++) {
            sb_mp_put_array(&payload, 4);
            sb_mp_put_str(&payload, "step");
            sb_mp_put_uint(&payload, source);
            sb_mp_put_float(&payload, sb_mono_s());
            sb_buf_put(&payload, record, len);
        }
        send_message(socket, "rec", (i - 1) * n_sources + 1, n_sources, &payload);
        if (per_second > 0)
            pause_until(start_s + (double) i / per_second);
    }
    sb_buf_release(&payload);
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
