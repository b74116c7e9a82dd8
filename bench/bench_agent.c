/*
 * What a record costs the agent beside a msgpack-c loop over the same bytes.
 *
 * usage: bench_agent RECORD...   each file: msgpack of one step's content. Prints "name ours_ns peer_ns" lines.
 */
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/apply.h"
#include "bench/bench.h"

static struct sb_labelsets *labelsets;
static struct agent_ledger *ledger;
static struct agent_binding *binding;

/* A hello as an engine without special features sends it. */
static void put_hello(struct sb_buf *out)
{
    static const char *const texts[][2] = {{"publisher", "00000000000000000000000000000007"}, {"host", "h"}};
    static const char *const labels[][2] = {{"service_name", "s"}, {"model_name", "m"}, {"job_name", "j"},
                                            {"instance_id", "i"},  {"role", "both"},    {"dp_rank", "0"}};
    sb_mp_put_map(out, 6);
    for (size_t i = 0; i < SB_COUNT(texts); i++) {
        sb_mp_put_str(out, texts[i][0]);
        sb_mp_put_str(out, texts[i][1]);
    }
    sb_mp_put_str(out, "pid");
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "time");
    sb_mp_put_float(out, 1);
    sb_mp_put_str(out, "engine");
    sb_mp_put_map(out, 0);
    sb_mp_put_str(out, "sources");
    sb_mp_put_array(out, 1);
    sb_mp_put_map(out, 1 + SB_COUNT(labels));
    sb_mp_put_str(out, "index");
    sb_mp_put_uint(out, 0);
    for (size_t i = 0; i < SB_COUNT(labels); i++) {
        sb_mp_put_str(out, labels[i][0]);
        sb_mp_put_str(out, labels[i][1]);
    }
}

static void set_up(void)
{
    struct sb_err err = {.text = ""};
    struct sb_buf buf;
    struct agent_hello hello;
    struct agent_plan_counters counters = {0};
    struct sb_catalog *catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    labelsets = sb_labelsets_new();
    ledger = agent_ledger_new(labelsets);
    sb_buf_init(&buf, 4096);
    put_hello(&buf);
    struct agent_plan *plan = NULL;
    if (catalog && agent_hello_read(&hello, buf.data, buf.len, "", labelsets, NULL, &err) == SB_OK)
        plan = agent_plan_new(catalog, ledger, &hello, &counters, &err);
    if (!plan) {
        fprintf(stderr, "bench_agent: %s\n", err.text);
        exit(1);
    }
    struct agent_contribution *to = agent_ledger_contribution(
        ledger, false, hello.sources[0].source, hello.sources[0].identity, agent_plan_shape(plan), NULL, &err);
    binding = agent_binding_new(plan, ledger, to, &hello, &hello.sources[0], true);
}

struct bytes {
    char *at;
    size_t n;
    msgpack_zone *zone;
    const double *bounds;
    size_t n_bounds;
    double sum;
    double counts[64];
    struct agent_moment now;
};

static void ours(void *arg)
{
    struct bytes *record = arg;
    struct sb_mp content = sb_mp_over(record->at, record->n);
    if (sb_mp_validate(record->at, record->n, SB_MP_DEPTH_MAX, NULL) != SB_OK)
        abort();
    record->now.time += 0.001;
    agent_apply(binding, AGENT_RECORD_STEP, &content, &record->now, AGENT_APPLY_ALL);
}

static size_t bisect(const double *bounds, size_t n, double value)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (bounds[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Every number of the record once: floats of lists into buckets, others summed. */
static void walk(struct bytes *record, const msgpack_object *object)
{
    switch (object->type) {
    case MSGPACK_OBJECT_ARRAY:
        for (uint32_t i = 0; i < object->via.array.size; i++) {
            const msgpack_object *item = &object->via.array.ptr[i];
            if (item->type == MSGPACK_OBJECT_FLOAT64) {
                record->counts[bisect(record->bounds, record->n_bounds, item->via.f64)] += 1;
                record->sum += item->via.f64;
            } else {
                walk(record, item);
            }
        }
        break;
    case MSGPACK_OBJECT_MAP:
        for (uint32_t i = 0; i < object->via.map.size; i++)
            walk(record, &object->via.map.ptr[i].val);
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        record->sum += (double) object->via.u64;
        break;
    case MSGPACK_OBJECT_FLOAT64:
        record->sum += object->via.f64;
        break;
    default:
        break;
    }
}

static void peer(void *arg)
{
    struct bytes *record = arg;
    msgpack_object object;
    size_t at = 0;
    msgpack_zone_clear(record->zone);
    if (msgpack_unpack(record->at, record->n, &at, record->zone, &object) != MSGPACK_UNPACK_SUCCESS)
        abort();
    walk(record, &object);
}

static void measure(const char *path, struct bytes *record)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    record->at = bytes;
    record->n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    double mine = bench_call_ns(ours, record, 20000);
    double theirs = bench_call_ns(peer, record, 20000);
    const char *slash = strrchr(path, '/');
    printf("%s %.1f %.1f\n", slash ? slash + 1 : path, mine, theirs);
}

int main(int argc, char **argv)
{
    static const double bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                    0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
    struct bytes record = {.bounds = bounds, .n_bounds = SB_COUNT(bounds), .zone = msgpack_zone_new(8192)};
    record.now = (struct agent_moment){.host = 1};
    set_up();
    for (int i = 1; i < argc; i++)
        measure(argv[i], &record);
    return 0;
}
