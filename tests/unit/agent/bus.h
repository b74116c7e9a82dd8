/* A table of publishers under a clock that the test moves: messages go in as YAML, what it sends is kept as text. */
#ifndef BUS_H
#define BUS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/commit.h"
#include "agent/publishers.h"
#include "agent/throttle.h"
#include "yaml_pack.h"

/* A test that needs further families states them before it includes this. */
#ifndef BUS_MORE_FAMILIES
#define BUS_MORE_FAMILIES
#endif

#define BUS_CATALOG                                                                                                    \
    "version: 1\n"                                                                                                     \
    "roots: {s: step.scheduler_stats, it: step.iteration_stats, sleep: event.sleep, admission: event.admission}\n"     \
    "bucket_sets: {b: [1, 2, 5]}\n"                                                                                    \
    "families:\n"                                                                                                      \
    "  n_total: {type: counter, help: h, from: it.n}\n"                                                                \
    "  running: {type: gauge, semantic: state_gauge, help: h, from: s.running}\n"                                      \
    "  waiting: {type: gauge, semantic: queue_gauge, help: h, from: s.waiting}\n"                                      \
    "  latency: {type: histogram, buckets: b, help: h, from: \"it.l[]\"}\n"                                            \
    "  refused_total: {type: counter, help: h, scope: publisher, values: {reason: [full]}, "                           \
    "from: {each: admission, value: 1, labels: {reason: $reason}}}\n" BUS_MORE_FAMILIES

#define BUS_SOURCE "{index: 0, service_name: s, model_name: m, job_name: j, instance_id: i-1, dp_rank: \"0\"}"

struct bus {
    struct sb_catalog *catalog;
    struct sb_labelsets *labelsets;
    struct agent_ledger *ledger;
    struct agent_counters counters;
    struct agent_publishers *publishers;
    struct agent_throttle throttle;
    uint8_t lineage[AGENT_LINEAGE_LEN];
    uint32_t n_rolled_back;
    int64_t now_ms;
    char sent[4096]; /* "a ask 1 5; b hello; ..." with the last character of the id */
};

static struct agent_envelope bus_envelope; /* too large for a stack */

/* Ids by one letter, "a" to "f". */
static inline const char *bus_id(char letter)
{
    static char id[AGENT_PUBLISHER_ID_LEN + 1];
    memset(id, '0', AGENT_PUBLISHER_ID_LEN);
    id[AGENT_PUBLISHER_ID_LEN - 1] = letter;
    return id;
}

static inline void bus_note(void *arg, const char *id, const void *bytes, size_t n)
{
    struct bus *bus = arg;
    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t elements;
    struct sb_slice type, lineage;
    assert_int_equal(sb_mp_validate(bytes, n, 4, NULL), SB_OK);
    assert_true(sb_mp_array(&at, &elements) && sb_mp_str(&at, &type));
    size_t len = strlen(bus->sent);
    len += (size_t) snprintf(bus->sent + len, sizeof bus->sent - len, "%s%c %.*s", len ? "; " : "",
                             id[AGENT_PUBLISHER_ID_LEN - 1], (int) type.len, type.at);
    if (sb_slice_is(type, "applied")) {
        assert_true(sb_mp_bin(&at, &lineage) && lineage.len == AGENT_LINEAGE_LEN);
        assert_memory_equal(lineage.at, bus->lineage, AGENT_LINEAGE_LEN);
        assert_true(sb_mp_array(&at, &elements));
    }
    for (uint64_t number; sb_mp_uint(&at, &number);)
        len += (size_t) snprintf(bus->sent + len, sizeof bus->sent - len, " %llu", (unsigned long long) number);
}

/* What was sent since the last call. */
static inline const char *bus_sent(struct bus *bus)
{
    static char taken[sizeof bus->sent];
    memcpy(taken, bus->sent, sizeof taken);
    bus->sent[0] = '\0';
    return taken;
}

static inline void bus_rolled_back(void *arg)
{
    struct bus *bus = arg;
    bus->n_rolled_back++;
}

static inline void bus_open_tables(struct bus *bus)
{
    struct sb_err err = {.text = ""};
    bus->ledger = agent_ledger_new(bus->labelsets);
    assert_int_equal(agent_ledger_reserve(bus->ledger, bus->catalog, &err), SB_OK);
    const struct agent_publishers_cfg cfg = {.catalog = bus->catalog,
                                             .ledger = bus->ledger,
                                             .counters = &bus->counters,
                                             .node = "n",
                                             .lineage = bus->lineage,
                                             .source_timeout_ms = 15000,
                                             .forget_after_ms = 3600 * 1000,
                                             .send = bus_note,
                                             .rolled_back = bus_rolled_back,
                                             .arg = bus};
    bus->publishers = agent_publishers_new(&cfg);
    assert_non_null(bus->publishers);
}

static inline void bus_init(struct bus *bus)
{
    struct sb_err err = {.text = ""};
    struct sb_catalog_file file = {.name = "bus.yaml", .text = BUS_CATALOG, .len = sizeof BUS_CATALOG - 1};
    *bus = (struct bus){.now_ms = 1000000};
    memset(bus->lineage, 'L', sizeof bus->lineage);
    bus->catalog = sb_catalog_new(&file, 1, &err);
    if (!bus->catalog)
        fail_msg("catalog: %s", err.text);
    bus->labelsets = sb_labelsets_new();
    agent_throttle_init(&bus->throttle, 1000);
    bus_open_tables(bus);
}

static inline void bus_close_tables(struct bus *bus)
{
    agent_publishers_destroy(&bus->publishers);
    agent_ledger_destroy(&bus->ledger);
    assert_int_equal(sb_labelsets_count(bus->labelsets), 0);
}

static inline void bus_release(struct bus *bus)
{
    bus_close_tables(bus);
    agent_throttle_release(&bus->throttle);
    sb_labelsets_destroy(&bus->labelsets);
    sb_catalog_destroy(&bus->catalog);
}

/* Sends bytes as a message of this publisher. */
static inline enum agent_refusal bus_put(struct bus *bus, enum agent_socket socket, char from, const char *kind,
                                         uint64_t first, uint32_t count, const void *payload, size_t n)
{
    char topic[64];
    uint8_t header[AGENT_HEADER_LEN];
    snprintf(topic, sizeof topic, "statsbus1.%s.%s", kind, bus_id(from));
    for (int i = 0; i < 8; i++)
        header[i] = (uint8_t) (first >> (56 - 8 * i));
    for (int i = 0; i < 4; i++)
        header[8 + i] = (uint8_t) (count >> (24 - 8 * i));
    /* A copy of just the right size, so that a sanitizer sees any read past its end. */
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, payload, n);
    const struct agent_frames frames = {.topic = {topic, strlen(topic)},
                                        .header = {(const char *) header, sizeof header},
                                        .payload = {(const char *) copy, n}};
    enum agent_refusal refusal = agent_envelope_read(&bus_envelope, &frames, socket);
    if (refusal == AGENT_ACCEPTED)
        refusal = agent_publishers_take(bus->publishers, &bus_envelope, socket, bus->now_ms);
    else if (socket == AGENT_REPLAY)
        agent_publishers_refused(bus->publishers, bus_id(from));
    free(copy);
    return refusal;
}

static inline enum agent_refusal bus_say(struct bus *bus, enum agent_socket socket, char from, const char *kind,
                                         uint64_t first, uint32_t count, const char *yaml)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    pack_yaml(&buf, yaml);
    const enum agent_refusal refusal = bus_put(bus, socket, from, kind, first, count, buf.data, buf.len);
    sb_buf_release(&buf);
    return refusal;
}

/* Where a mark goes into a packed hello: its map gets one more pair. */
static inline enum agent_refusal bus_hello_marked(struct bus *bus, char from, uint64_t next, const char *sources,
                                                  const char *more, const char *lineage, const uint64_t *ranges,
                                                  uint32_t n_ranges)
{
    char yaml[4096];
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    snprintf(yaml, sizeof yaml,
             "{publisher: \"%s\", pid: 1, host: \"h\", time: %.3f, engine: {name: v, version: \"1\"}, sources: [%s]%s}",
             bus_id(from), (double) bus->now_ms / 1000, sources, more);
    pack_yaml(&buf, yaml);
    if (lineage) {
        buf.data[0]++; /* a fixmap */
        sb_mp_put_str(&buf, "mark");
        sb_mp_put_array(&buf, 2);
        sb_mp_put_bin(&buf, lineage, AGENT_LINEAGE_LEN);
        sb_mp_put_array(&buf, n_ranges);
        for (uint32_t i = 0; i < n_ranges; i++)
            sb_mp_put_uint(&buf, ranges[i]);
    }
    const enum agent_refusal refusal = bus_put(bus, AGENT_STATS, from, "hello", next, 0, buf.data, buf.len);
    sb_buf_release(&buf);
    return refusal;
}

static inline void bus_hello(struct bus *bus, char from, uint64_t next, const char *sources)
{
    assert_int_equal(bus_hello_marked(bus, from, next, sources, "", NULL, NULL, 0), AGENT_ACCEPTED);
}

/* Records number first to last, each a step of source 0 with n: 1. */
static inline void bus_steps(struct bus *bus, enum agent_socket socket, char from, uint64_t first, uint64_t last)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    sb_mp_put_array(&buf, (uint32_t) (last - first + 1));
    for (uint64_t i = first; i <= last; i++)
        pack_yaml(&buf, "[step, 0, 1.5, {iteration_stats: {n: 1}}]");
    assert_int_equal(bus_put(bus, socket, from, "rec", first, (uint32_t) (last - first + 1), buf.data, buf.len),
                     AGENT_ACCEPTED);
    sb_buf_release(&buf);
}

static inline void bus_beat(struct bus *bus, char from, uint64_t next, const char *live, const char *ended)
{
    char yaml[256];
    snprintf(yaml, sizeof yaml, "{time: %.3f, live: [%s], ended: [%s]}", (double) bus->now_ms / 1000, live, ended);
    assert_int_equal(bus_say(bus, AGENT_STATS, from, "beat", next, 0, yaml), AGENT_ACCEPTED);
}

static inline void bus_end(struct bus *bus, char from, uint64_t first_held, uint64_t asked_from, uint64_t asked_to)
{
    char yaml[64];
    snprintf(yaml, sizeof yaml, "[%llu, %llu]", (unsigned long long) asked_from, (unsigned long long) asked_to);
    assert_int_equal(bus_say(bus, AGENT_REPLAY, from, "end", first_held, 0, yaml), AGENT_ACCEPTED);
}

static inline void bus_mark(struct bus *bus, char from, uint64_t next, const char *lineage, uint64_t to)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 12);
    sb_mp_put_array(&buf, 2);
    sb_mp_put_bin(&buf, lineage, AGENT_LINEAGE_LEN);
    sb_mp_put_array(&buf, 2);
    sb_mp_put_uint(&buf, 1);
    sb_mp_put_uint(&buf, to);
    assert_int_equal(bus_put(bus, AGENT_REPLAY, from, "mark", next, 0, buf.data, buf.len), AGENT_ACCEPTED);
    sb_buf_release(&buf);
}

/* Time passes; the tick comes every 50 ms of it. */
static inline void bus_wait(struct bus *bus, int64_t ms)
{
    for (int64_t end = bus->now_ms + ms; bus->now_ms < end;) {
        bus->now_ms += 50;
        agent_publishers_tick(bus->publishers, bus->now_ms);
        agent_throttle_pass(&bus->throttle, bus->ledger, bus->now_ms);
    }
}

static inline struct agent_contribution *bus_contribution(struct bus *bus, const char *instance)
{
    for (uint32_t i = 0; i < agent_ledger_n_contributions(bus->ledger); i++) {
        struct agent_contribution *at = agent_ledger_contribution_at(bus->ledger, i);
        if (at && !at->is_front_end && strcmp(sb_labelset_value(at->identity, "instance_id"), instance) == 0)
            return at;
    }
    return NULL;
}

/* The index of the first series of a family. */
static inline uint32_t bus_series_index(struct bus *bus, const char *family)
{
    for (uint32_t i = 0; i < agent_ledger_n_series(bus->ledger); i++) {
        const struct agent_series *series = agent_ledger_series_at(bus->ledger, i);
        if (strcmp(agent_ledger_family_at(bus->ledger, series->family)->name, family) == 0)
            return i;
    }
    return AGENT_NONE;
}

static inline const struct agent_series *bus_series(struct bus *bus, const char *family)
{
    const uint32_t index = bus_series_index(bus, family);
    return index == AGENT_NONE ? NULL : agent_ledger_series_at(bus->ledger, index);
}

/* Where the first series of a family starts in the contribution's rows. */
static inline uint32_t bus_place(struct bus *bus, const struct agent_contribution *of, const char *family)
{
    return agent_contribution_place(of, bus_series_index(bus, family));
}

/* A counter of one contribution, or of all of them (instance NULL), front ends too. */
static inline double bus_counter(struct bus *bus, const char *instance, const char *family)
{
    double sum = 0;
    for (uint32_t i = 0; i < agent_ledger_n_contributions(bus->ledger); i++) {
        struct agent_contribution *at = agent_ledger_contribution_at(bus->ledger, i);
        const uint32_t place = at ? bus_place(bus, at, family) : AGENT_NONE;
        if (place == AGENT_NONE)
            continue;
        if (!instance || strcmp(sb_labelset_value(at->identity, "instance_id"), instance) == 0)
            sum += at->live[place];
    }
    return sum;
}

/* What is shown of a gauge, or -1. */
static inline double bus_shown(struct bus *bus, const char *instance, const char *family)
{
    const struct agent_series *series = bus_series(bus, family);
    const struct agent_contribution *at = bus_contribution(bus, instance);
    for (uint32_t i = 0; at && series && i < at->n_shown; i++)
        if (at->shown_cells[i] == series->first)
            return at->shown_values[i];
    return -1;
}

/* Set-up and tear-down of a test that has a bus alone for its state. */
static inline int bus_open(void **state)
{
    struct bus *bus = malloc(sizeof *bus);
    assert_non_null(bus);
    bus_init(bus);
    *state = bus;
    return 0;
}

static inline int bus_close(void **state)
{
    bus_release(*state);
    free(*state);
    return 0;
}

#endif
