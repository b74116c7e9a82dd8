/* A hub without sockets for tests: a store over a small catalog, sessions, and messages packed as an agent packs them.
 */
#ifndef HUB_TEST_H
#define HUB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hub/render.h"
#include "hub/session.h"

/* The catalog of these tests: one family of each kind. */
static const struct sb_family test_families[] = {
    {.name = "t:tokens_total", .help = "Tokens", .type = SB_COUNTER, .semantic = SB_SEMANTIC_counter},
    {.name = "t:running", .help = "Running", .type = SB_GAUGE, .semantic = SB_SEMANTIC_state_gauge},
    {.name = "t:usage", .help = "Usage", .type = SB_GAUGE, .semantic = SB_SEMANTIC_cache_metric},
    {.name = "t:hot", .help = "Hottest", .type = SB_GAUGE, .semantic = SB_SEMANTIC_occupancy_metric},
    {.name = "t:info", .help = "Facts", .type = SB_GAUGE, .semantic = SB_SEMANTIC_metadata_gauge},
    {.name = "t:wait_seconds",
     .help = "Waits",
     .unit = "seconds",
     .type = SB_HISTOGRAM,
     .semantic = SB_SEMANTIC_histogram},
};
static const struct sb_catalog test_catalog = {.families = test_families, .n_families = SB_COUNT(test_families)};

enum { TEST_LINGER_MS = 300 * 1000 };

#define assert_number(is, expected) assert_true((double) (is) == (double) (expected))

struct world {
    struct hub_view_specs views;
    struct hub_counters counters;
    struct hub_store store;
    struct sb_buf message;
    struct sb_buf answer;
    int64_t now_ms;
    uint64_t last_serial;
};

static inline void world_open_on(struct world *self, const struct sb_catalog *catalog, const char *views,
                                 struct hub_store_limits limits)
{
    *self = (struct world){.now_ms = 1000000};
    sb_buf_init(&self->message, 64 * 1024 * 1024);
    sb_buf_init(&self->answer, 4096);
    assert_int_equal(hub_view_specs_load(&self->views, NULL, NULL), SB_OK);
    if (views) {
        struct sb_err err = {.text = ""};
        const struct sb_catalog_file file = {.name = "views.yaml", .text = views, .len = strlen(views)};
        assert_int_equal(hub_view_specs_read(&self->views, &file, &err), SB_OK);
    }
    assert_int_equal(hub_store_init(&self->store, catalog, &self->views, &self->counters, limits, NULL), SB_OK);
}

static inline void world_open_with(struct world *self, struct hub_store_limits limits)
{
    world_open_on(self, &test_catalog, NULL, limits);
}

static inline void world_open(struct world *self)
{
    world_open_with(self, (struct hub_store_limits){
                              .contributions = 1000, .row_bytes = 64 * 1024 * 1024, .linger_ms = TEST_LINGER_MS});
}

static inline void world_close(struct world *self)
{
    hub_store_release(&self->store);
    hub_view_specs_release(&self->views);
    sb_buf_release(&self->message);
    sb_buf_release(&self->answer);
}

static const uint8_t test_hub_id[HUB_ID_BYTES] = "the hub's own id";

static inline enum hub_refusal take(struct world *self, struct hub_session *session, const void *bytes, size_t n)
{
    sb_buf_clear(&self->answer);
    return hub_session_take(session, test_hub_id, bytes, n, self->now_ms, &self->answer);
}

/* Delivers the message that was packed into self->message. */
static inline enum hub_refusal deliver(struct world *self, struct hub_session *session)
{
    return take(self, session, self->message.data, self->message.len);
}

static inline struct sb_buf *begin(struct world *self, uint32_t n_elements, const char *type)
{
    sb_buf_clear(&self->message);
    sb_mp_put_array(&self->message, n_elements);
    sb_mp_put_str(&self->message, type);
    return &self->message;
}

static inline void pack_hello(struct world *self, char lineage, uint64_t generation)
{
    uint8_t id[HUB_LINEAGE_BYTES];
    memset(id, lineage, sizeof id);
    struct sb_buf *buf = begin(self, 6, "HELLO");
    sb_mp_put_uint(buf, 1);
    sb_mp_put_str(buf, "node-1");
    sb_mp_put_bin(buf, id, sizeof id);
    sb_mp_put_uint(buf, generation);
    sb_mp_put_str(buf, "0.1.0");
}

static inline void greet(struct world *self, struct hub_session *session, char lineage)
{
    hub_session_init(session, &self->store, ++self->last_serial, self->now_ms);
    pack_hello(self, lineage, 1);
    assert_int_equal(deliver(self, session), HUB_OK);
}

/* Labels as "name=value,name=value". */
static inline void put_labels(struct sb_buf *buf, const char *text)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", text);
    uint32_t n = copy[0] != '\0';
    for (const char *at = copy; *at; at++)
        n += *at == ',';
    sb_mp_put_map(buf, n);
    char *rest = copy;
    for (uint32_t i = 0; i < n; i++) {
        char *pair = strsep(&rest, ",");
        char *name = strsep(&pair, "=");
        sb_mp_put_str(buf, name);
        sb_mp_put_str(buf, pair);
    }
}

static inline void put_family(struct sb_buf *buf, uint32_t id, const char *name, const char *type, const double *bounds,
                              uint32_t n_bounds)
{
    sb_mp_put_array(buf, 8);
    sb_mp_put_uint(buf, id);
    sb_mp_put_str(buf, name);
    sb_mp_put_str(buf, type);
    sb_mp_put_nil(buf);
    if (!bounds)
        sb_mp_put_nil(buf);
    else
        sb_mp_put_array(buf, n_bounds);
    for (uint32_t i = 0; bounds && i < n_bounds; i++)
        sb_mp_put_float(buf, bounds[i]);
    sb_mp_put_nil(buf);
    sb_mp_put_nil(buf);
    sb_mp_put_nil(buf);
}

static inline void put_series(struct sb_buf *buf, uint32_t id, uint32_t family, const char *labels)
{
    sb_mp_put_array(buf, 3);
    sb_mp_put_uint(buf, id);
    sb_mp_put_uint(buf, family);
    put_labels(buf, labels);
}

static inline void put_contribution(struct sb_buf *buf, uint32_t id, uint64_t epoch, const char *kind,
                                    const char *source, const char *identity)
{
    sb_mp_put_array(buf, 5);
    sb_mp_put_uint(buf, id);
    sb_mp_put_uint(buf, epoch);
    sb_mp_put_str(buf, kind);
    put_labels(buf, source);
    put_labels(buf, identity);
}

/* What every session of these tests knows: cells by name. */
enum {
    C_TOKENS = 0,  /* t:tokens_total{} */
    C_ABORTED = 1, /* t:tokens_total{reason="abort"} */
    C_WAIT = 2,    /* t:wait_seconds, bounds 0.5 and 1: cells 2, 3, 4 (+Inf), 5 (sum) */
    C_RUNNING = 6,
    C_USAGE = 7,
    C_HOT = 8,
    C_INFO_A = 9,  /* t:info{what="a"} */
    C_INFO_B = 10, /* t:info{what="b"} */
    C_NEXT = 11,
    F_WAIT = 5,
    F_NEXT = 6,
};

static inline void pack_usual_families(struct sb_buf *buf)
{
    static const double bounds[] = {0.5, 1};
    sb_mp_put_array(buf, 6);
    for (uint32_t i = 0; i < SB_COUNT(test_families); i++) {
        bool is_histogram = test_families[i].type == SB_HISTOGRAM;
        put_family(buf, i, test_families[i].name, sb_type_text(test_families[i].type), is_histogram ? bounds : NULL, 2);
    }
    sb_mp_put_array(buf, 8);
    put_series(buf, C_TOKENS, 0, "");
    put_series(buf, C_ABORTED, 0, "reason=abort");
    put_series(buf, C_WAIT, F_WAIT, "");
    put_series(buf, C_RUNNING, 1, "");
    put_series(buf, C_USAGE, 2, "");
    put_series(buf, C_HOT, 3, "");
    put_series(buf, C_INFO_A, 4, "what=a");
    put_series(buf, C_INFO_B, 4, "what=b");
}

/* A session of a lineage in which contribution ids 0 to n - 1 are ranks 0 to n - 1 of a service, epochs 1 to n. */
static inline void join(struct world *self, struct hub_session *session, char lineage, uint32_t n)
{
    greet(self, session, lineage);
    struct sb_buf *buf = begin(self, 4, "DEFINE");
    pack_usual_families(buf);
    sb_mp_put_array(buf, n);
    for (uint32_t i = 0; i < n; i++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=s,job_name=j,dp_rank=%u", i);
        put_contribution(buf, i, i + 1, "engine", source, "model_name=m,role=both,instance_id=i-1");
    }
    assert_int_equal(deliver(self, session), HUB_OK);
}

static inline void define_family(struct world *self, struct hub_session *session, uint32_t id, const char *name,
                                 const char *type, const double *bounds, uint32_t n_bounds, uint32_t cell,
                                 const char *labels)
{
    struct sb_buf *buf = begin(self, 4, "DEFINE");
    sb_mp_put_array(buf, 1);
    put_family(buf, id, name, type, bounds, n_bounds);
    sb_mp_put_array(buf, 1);
    put_series(buf, cell, id, labels);
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(self, session), HUB_OK);
}

struct sample {
    uint32_t id;
    double value;
};

static inline void put_samples(struct sb_buf *buf, const struct sample *samples, size_t n)
{
    uint8_t ids[4096];
    uint8_t values[8192];
    assert_true(n <= 1024);
    for (size_t i = 0; i < n; i++) {
        memcpy(ids + 4 * i, &samples[i].id, 4);
        memcpy(values + 8 * i, &samples[i].value, 8);
    }
    sb_mp_put_bin(buf, ids, 4 * n);
    sb_mp_put_bin(buf, values, 8 * n);
}

struct test_frame {
    uint64_t number;
    uint64_t generation;
    uint32_t contribution;
    uint64_t age_ms;
    bool has_no_snapshot;
    bool is_dead;
    size_t n_gauges;
    struct sample gauges[8];
    size_t n_cells;
    struct sample cells[16];
};

static inline void pack_frame(struct world *self, const struct test_frame *frame)
{
    struct sb_buf *buf = begin(self, 10, "FRAME");
    sb_mp_put_uint(buf, frame->number);
    sb_mp_put_uint(buf, frame->generation);
    sb_mp_put_uint(buf, frame->contribution);
    if (frame->has_no_snapshot)
        sb_mp_put_nil(buf);
    else
        sb_mp_put_uint(buf, frame->age_ms);
    sb_mp_put_bool(buf, !frame->is_dead);
    put_samples(buf, frame->gauges, frame->n_gauges);
    put_samples(buf, frame->cells, frame->n_cells);
}

static inline enum hub_refusal send_frame(struct world *self, struct hub_session *session, struct test_frame frame)
{
    pack_frame(self, &frame);
    return deliver(self, session);
}

static inline uint64_t acked(struct world *self, struct hub_session *session)
{
    sb_buf_clear(&self->answer);
    hub_session_pack_ack(session, &self->answer);
    struct sb_mp at = sb_mp_over(self->answer.data, self->answer.len);
    uint32_t n;
    struct sb_slice type;
    uint64_t number = UINT64_MAX;
    assert_true(sb_mp_array(&at, &n) && sb_mp_str(&at, &type) && sb_slice_is(type, "ACK") && sb_mp_uint(&at, &number));
    return number;
}

/* The whole text of a view without HELP lines; the caller frees it. */
static inline char *scrape_asked(struct world *self, const char *view, enum sb_expo_format format,
                                 const struct hub_query *query)
{
    struct sb_buf out;
    sb_buf_init(&out, 64 * 1024 * 1024);
    const struct hub_ask ask = {
        .view = hub_store_view(&self->store, view), .format = format, .now_ms = self->now_ms, .query = query};
    struct hub_scrape *scrape = hub_scrape_new(&self->store, &ask);
    assert_non_null(scrape);
    while (hub_scrape_next(scrape, &out)) {
    }
    hub_scrape_destroy(&scrape);
    sb_buf_put_byte(&out, '\0');
    assert_false(out.is_overflow);

    char *text = malloc(out.len);
    char *to = text;
    assert_non_null(text);
    for (const char *line = (const char *) out.data; *line;) {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        size_t len = (size_t) (end - line) + 1;
        if (strncmp(line, "# HELP", 6) != 0) {
            memcpy(to, line, len);
            to += len;
        }
        line += len;
    }
    *to = '\0';
    sb_buf_release(&out);
    return text;
}

static inline char *scrape_as(struct world *self, const char *view, enum sb_expo_format format)
{
    return scrape_asked(self, view, format, NULL);
}

static inline void assert_scrape_as(struct world *self, const char *view, enum sb_expo_format format,
                                    const char *expected)
{
    char *text = scrape_as(self, view, format);
    assert_string_equal(text, expected);
    free(text);
}

static inline void assert_scrape(struct world *self, const char *view, const char *expected)
{
    assert_scrape_as(self, view, SB_EXPO_TEXT, expected);
}

#endif
