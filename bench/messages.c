#include "messages.h"

#include <stdio.h>

#include "common/mp.h"

enum { HISTOGRAMS = 46, BOUNDS = 21, COUNTERS = 38, GAUGES = 4, ENGINES_A_NODE = 8, ENGINES_A_POD = 2 };
enum { CELLS = HISTOGRAMS * (BOUNDS + 2) + COUNTERS, FAMILIES = HISTOGRAMS + COUNTERS + GAUGES };

static void put_pair(struct sb_buf *out, const char *name, const char *value)
{
    sb_mp_put_str(out, name);
    sb_mp_put_str(out, value);
}

void bench_put_hello(struct sb_buf *out)
{
    static const uint8_t lineage[16] = "bench-lineage-1";
    sb_mp_put_array(out, 6);
    sb_mp_put_str(out, "HELLO");
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "node");
    sb_mp_put_bin(out, lineage, sizeof lineage);
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "bench");
}

static void put_name(struct sb_buf *out, unsigned family)
{
    char name[40];
    snprintf(name, sizeof name,
             family < HISTOGRAMS              ? "bench:h%u_seconds"
             : family < HISTOGRAMS + COUNTERS ? "bench:c%u_total"
                                              : "bench:g%u",
             family);
    sb_mp_put_str(out, name);
}

static void put_bounds(struct sb_buf *out)
{
    sb_mp_put_array(out, BOUNDS);
    for (int bound = 1; bound <= BOUNDS; bound++)
        sb_mp_put_float(out, bound / 8.0);
}

static const char *semantics_of(unsigned family)
{
    if (family < HISTOGRAMS)
        return family % 4 == 0 ? "histogram_latency" : "histogram";
    return family % 2 ? "cache_metric" : "state_gauge";
}

static void put_family(struct sb_buf *out, unsigned family)
{
    sb_mp_put_array(out, 8);
    sb_mp_put_uint(out, family);
    put_name(out, family);
    sb_mp_put_str(out, family < HISTOGRAMS ? "histogram" : family < HISTOGRAMS + COUNTERS ? "counter" : "gauge");
    sb_mp_put_nil(out);
    if (family < HISTOGRAMS)
        put_bounds(out);
    else
        sb_mp_put_nil(out);
    sb_mp_put_str(out, "of the benchmark");
    sb_mp_put_str(out, semantics_of(family));
    if (family % 8 != 0) {
        sb_mp_put_nil(out);
        return;
    }
    sb_mp_put_array(out, 1);
    sb_mp_put_str(out, "decode");
}

static void put_contribution(struct sb_buf *out, unsigned i)
{
    char name[32];
    char node[32];
    char pod[32];
    snprintf(name, sizeof name, "engine-%u", i);
    snprintf(node, sizeof node, "node-%u", i / ENGINES_A_NODE);
    snprintf(pod, sizeof pod, "pod-%u", i / ENGINES_A_POD);
    sb_mp_put_array(out, 5);
    sb_mp_put_uint(out, i);
    sb_mp_put_uint(out, i + 1);
    sb_mp_put_str(out, "engine");
    sb_mp_put_map(out, 3);
    put_pair(out, "service_name", "bench");
    put_pair(out, "job_name", name);
    put_pair(out, "dp_rank", "0");
    sb_mp_put_map(out, 5);
    put_pair(out, "model_name", "m");
    put_pair(out, "instance_id", name);
    put_pair(out, "role", i / ENGINES_A_NODE % 2 ? "prefill" : "decode");
    put_pair(out, "node", node);
    put_pair(out, "pod_ip", pod);
}

void bench_put_define(struct sb_buf *out, unsigned n_contributions)
{
    uint32_t cell = 0;
    sb_mp_put_array(out, 4);
    sb_mp_put_str(out, "DEFINE");
    sb_mp_put_array(out, FAMILIES);
    for (unsigned i = 0; i < FAMILIES; i++)
        put_family(out, i);
    sb_mp_put_array(out, FAMILIES);
    for (unsigned i = 0; i < FAMILIES; i++) {
        sb_mp_put_array(out, 3);
        sb_mp_put_uint(out, cell);
        sb_mp_put_uint(out, i);
        sb_mp_put_map(out, 0);
        cell += i < HISTOGRAMS ? BOUNDS + 2 : 1;
    }
    sb_mp_put_array(out, n_contributions);
    for (unsigned i = 0; i < n_contributions; i++)
        put_contribution(out, i);
}

void bench_put_frame(struct sb_buf *out, uint64_t number, unsigned contribution, unsigned round)
{
    static uint32_t ids[CELLS + GAUGES]; /* little-endian hosts alone, as the daemons */
    static double values[CELLS + GAUGES];
    for (uint32_t i = 0; i < CELLS; i++) {
        ids[i] = i;
        values[i] = 1000 * round + i + contribution;
        if (i < HISTOGRAMS * (BOUNDS + 2) && i % (BOUNDS + 2) == BOUNDS + 1)
            values[i] = values[i] * 0.37 + 0.001 * contribution; /* the sum */
    }
    for (uint32_t i = CELLS; i < CELLS + GAUGES; i++) {
        ids[i] = i;
        values[i] = i % 2 ? 0.3 + 0.0001 * contribution : contribution % 64;
    }
    sb_mp_put_array(out, 10);
    sb_mp_put_str(out, "FRAME");
    sb_mp_put_uint(out, number);
    sb_mp_put_uint(out, 1);
    sb_mp_put_uint(out, contribution);
    sb_mp_put_uint(out, 5);
    sb_mp_put_bool(out, true);
    sb_mp_put_bin(out, &ids[CELLS], GAUGES * sizeof ids[0]);
    sb_mp_put_bin(out, &values[CELLS], GAUGES * sizeof values[0]);
    sb_mp_put_bin(out, ids, CELLS * sizeof ids[0]);
    sb_mp_put_bin(out, values, CELLS * sizeof values[0]);
}
