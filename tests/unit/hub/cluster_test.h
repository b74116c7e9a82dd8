/* A small cluster for tests of views: sources by role, node and rank of one agent, over a catalog of its own. */
#ifndef CLUSTER_TEST_H
#define CLUSTER_TEST_H

#include "hub_test.h"

#define CLUSTER_FAMILIES                                                                                               \
    "version: 1\n"                                                                                                     \
    "bucket_sets: {b: [1, 2]}\n"                                                                                       \
    "families:\n"                                                                                                      \
    "  c:done_total: {type: counter, help: h}\n"                                                                       \
    "  c:hits_total: {type: counter, semantic: ratio_numerator, help: h}\n"                                            \
    "  c:looks_total: {type: counter, semantic: ratio_denominator, help: h}\n"                                         \
    "  c:running: {type: gauge, semantic: state_gauge, help: h}\n"                                                     \
    "  c:usage: {type: gauge, semantic: cache_metric, help: h}\n"                                                      \
    "  c:wait_seconds: {type: histogram, semantic: sla_metric, role_scope: [decode], buckets: b, quantiles: [0.5], "   \
    "help: h}\n"

static const char cluster_catalog[] = CLUSTER_FAMILIES "derived:\n"
                                                       "  c:hit_rate: {ratio: [c:hits_total, c:looks_total], help: h}\n"
                                                       "  c:running_max: {max: c:running, help: h}\n"
                                                       "  c:usage_max: {max: c:usage, help: h}\n";

/* Ids of cells in every session. */
enum { D_DONE, D_HITS, D_LOOKS, D_RUNNING, D_USAGE, D_WAIT /* 4 cells */, D_NEXT = D_WAIT + 4 };

struct cluster {
    struct world world;
    struct sb_catalog *catalog;
    struct hub_session session;
    uint64_t number;
};

static inline void cluster_define(struct world *world, struct hub_session *session)
{
    static const double bounds[] = {1, 2};
    static const char *const names[] = {"c:done_total", "c:hits_total", "c:looks_total",
                                        "c:running",    "c:usage",      "c:wait_seconds"};
    static const char *const types[] = {"counter", "counter", "counter", "gauge", "gauge", "histogram"};
    struct sb_buf *buf = begin(world, 4, "DEFINE");
    sb_mp_put_array(buf, SB_COUNT(names));
    for (uint32_t i = 0; i < SB_COUNT(names); i++)
        put_family(buf, i, names[i], types[i], i == D_WAIT ? bounds : NULL, 2);
    sb_mp_put_array(buf, SB_COUNT(names));
    for (uint32_t i = 0; i < SB_COUNT(names); i++)
        put_series(buf, i, i, "");
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(world, session), HUB_OK);
}

/* A cluster that knows the catalog, but nothing yet that an agent defined. */
static inline void cluster_open_on(struct cluster *self, const char *catalog, const char *views)
{
    *self = (struct cluster){.number = 0};
    const struct sb_catalog_file file = {.name = "c.yaml", .text = catalog, .len = strlen(catalog)};
    struct sb_err err = {.text = ""};
    self->catalog = sb_catalog_new(&file, 1, &err);
    assert_string_equal(err.text, "");
    world_open_on(
        &self->world, self->catalog, views,
        (struct hub_store_limits){.contributions = 1000, .row_bytes = 64 * 1024 * 1024, .linger_ms = TEST_LINGER_MS});
    greet(&self->world, &self->session, 'a');
}

static inline void cluster_open(struct cluster *self, const char *views)
{
    cluster_open_on(self, cluster_catalog, views);
    cluster_define(&self->world, &self->session);
}

static inline void cluster_close(struct cluster *self)
{
    hub_session_release(&self->session);
    world_close(&self->world);
    sb_catalog_destroy(&self->catalog);
}

static inline void cluster_add(struct cluster *self, struct hub_session *session, uint32_t id, uint64_t epoch,
                               const char *source, const char *identity)
{
    struct sb_buf *buf = begin(&self->world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, id, epoch, "engine", source, identity);
    assert_int_equal(deliver(&self->world, session), HUB_OK);
}

/* One of four sources: prefill on n1 and n2, decode on n1 and n2, each an instance and a rank of its own. */
static inline void cluster_add_usual(struct cluster *self, uint32_t i)
{
    static const char *const roles[] = {"prefill", "prefill", "decode", "decode"};
    char source[64];
    char identity[128];
    snprintf(source, sizeof source, "service_name=s,job_name=j%u,dp_rank=%u", i / 2, i % 2);
    snprintf(identity, sizeof identity, "model_name=m,role=%s,node=n%u,pod_ip=10.0.0.%u,instance_id=i%u", roles[i],
             i % 2 + 1, i, i);
    cluster_add(self, &self->session, i, i + 1, source, identity);
}

static inline void cluster_join(struct cluster *self)
{
    for (uint32_t i = 0; i < 4; i++)
        cluster_add_usual(self, i);
}

/* A frame of the cluster's own session: `done` and `running` of a contribution. */
static inline void cluster_send(struct cluster *self, struct test_frame frame)
{
    frame.number = ++self->number;
    assert_int_equal(send_frame(&self->world, &self->session, frame), HUB_OK);
}

static inline void cluster_done(struct cluster *self, uint32_t id, double done, double running)
{
    cluster_send(self, (struct test_frame){.contribution = id,
                                           .n_gauges = 1,
                                           .gauges = {{D_RUNNING, running}},
                                           .n_cells = 1,
                                           .cells = {{D_DONE, done}}});
}

/* END or FORGET of one contribution. */
static inline enum hub_refusal cluster_tell(struct cluster *self, struct hub_session *session, const char *what,
                                            uint32_t id)
{
    struct sb_buf *buf = begin(&self->world, 2, what);
    sb_mp_put_array(buf, 1);
    sb_mp_put_uint(buf, id);
    return deliver(&self->world, session);
}

#endif
