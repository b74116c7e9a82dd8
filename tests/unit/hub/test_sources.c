#include "cluster_test.h"

#include "hub/sources.h"

enum { TIMEOUT_MS = 15000 };

static const struct sb_family counted[] = {
    {.name = "statsbus_source_refused_samples_total",
     .help = "h",
     .type = SB_COUNTER,
     .count = SB_AGENT_COUNT_refused_samples},
    {.name = "statsbus_source_lost_records_total",
     .help = "h",
     .type = SB_COUNTER,
     .count = SB_AGENT_COUNT_lost_records},
};
static const struct sb_catalog counted_catalog = {.families = counted, .n_families = SB_COUNT(counted)};

/* A cluster without sources yet, over the families above; their cells are 0 and 1. */
static int open_cluster(void **state)
{
    static struct cluster cluster;
    cluster = (struct cluster){.number = 0};
    world_open_on(&cluster.world, &counted_catalog, NULL,
                  (struct hub_store_limits){.contributions = 10, .row_bytes = 1 << 20, .linger_ms = TEST_LINGER_MS});
    greet(&cluster.world, &cluster.session, 'a');
    define_family(&cluster.world, &cluster.session, 0, counted[0].name, "counter", NULL, 0, 0, "");
    define_family(&cluster.world, &cluster.session, 1, counted[1].name, "counter", NULL, 0, 1, "");
    define_family(&cluster.world, &cluster.session, 2, "x:running", "gauge", NULL, 0, 2, "");
    *state = &cluster;
    return 0;
}

static int close_cluster(void **state)
{
    struct cluster *cluster = *state;
    hub_session_release(&cluster->session);
    world_close(&cluster->world);
    return 0;
}

static void send(struct cluster *cluster, uint32_t id, uint32_t cell, double value)
{
    cluster_send(cluster,
                 (struct test_frame){
                     .contribution = id, .n_gauges = 1, .gauges = {{2, 1}}, .n_cells = 1, .cells = {{cell, value}}});
}

/* All lines but comments, of one family unless it is NULL, in small pieces. */
static void assert_lines(struct cluster *cluster, const struct hub_query *narrow, const char *family,
                         const char *expected)
{
    struct sb_buf out;
    sb_buf_init(&out, 1 << 20);
    struct hub_query query = narrow ? *narrow : (struct hub_query){0};
    query.view = hub_store_view(&cluster->world.store, "full")->spec;
    if (family)
        assert_true(hub_query_add_family(&query, family));
    struct hub_sources_cursor cursor = {0};
    const struct sb_expo expo = {.out = &out};
    struct hub_sources_ask ask = {.store = &cluster->world.store,
                                  .query = &query,
                                  .is_narrowed = narrow,
                                  .now_ms = cluster->world.now_ms,
                                  .until = 1,
                                  .looks = 3};
    while (hub_sources_put(&ask, &cursor, &expo))
        ask.until = out.len + 1; /* one source a piece */
    sb_buf_put_byte(&out, '\0');
    char text[4096] = "";
    size_t n = 0;
    for (const char *line = (const char *) out.data; *line; line = strchr(line, '\n') + 1) {
        if (*line != '#')
            n += (size_t) snprintf(text + n, sizeof text - n, "%.*s", (int) (strchr(line, '\n') - line + 1), line);
    }
    assert_string_equal(text, expected);
    sb_buf_release(&out);
}

#define KEY(rank, model) "{dp_rank=\"" rank "\",job_name=\"j\",model_name=\"" model "\",service_name=\"s\"} "

static void every_source_has_a_row(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0",
                "model_name=m,role=decode,instance_id=a");
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=j,dp_rank=1",
                "model_name=m,role=prefill,instance_id=a");
    struct sb_buf *buf = begin(&cluster->world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, 2, 3, "front-end", "service_name=s,job_name=j", "model_name=m");
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    send(cluster, 0, 0, 3);
    send(cluster, 2, 1, 7);
    cluster->world.now_ms += 1500;
    static const char all[] = "statsbus_source_up" KEY(
        "0",
        "m") "1\n"
             "statsbus_source_up" KEY(
                 "1",
                 "m") "0\n"
                      "statsbus_source_last_seen_seconds" KEY(
                          "0",
                          "m") "1.5\n"
                               "statsbus_source_last_seen_seconds" KEY(
                                   "1",
                                   "m") "1.5\n"
                                        "statsbus_source_incarnations_total" KEY(
                                            "0",
                                            "m") "1\n"
                                                 "statsbus_source_incarnations_total" KEY(
                                                     "1",
                                                     "m") "1\n"
                                                          "statsbus_source_conflicts_total" KEY(
                                                              "0",
                                                              "m") "0\n"
                                                                   "statsbus_source_conflicts_total" KEY(
                                                                       "1",
                                                                       "m") "0\n"
                                                                            "statsbus_source_refused_samples_total" KEY(
                                                                                "0",
                                                                                "m") "3\n"
                                                                                     "statsbus_source_lost_records_"
                                                                                     "total{job_name=\"j\",model_name="
                                                                                     "\"m\",service_name=\"s\"} 7\n";
    assert_lines(cluster, NULL, NULL, all);
    struct hub_query prefill = {0};
    assert_true(hub_query_narrow(&prefill, HUB_NARROW_role, "prefill"));
    assert_lines(cluster, &prefill, "statsbus_source_up", "statsbus_source_up" KEY("1", "m") "0\n");
    char *text = scrape_as(&cluster->world, "dp", SB_EXPO_TEXT);
    assert_null(strstr(text, "statsbus_source")); /* in no row of a view */
    free(text);
}

static void a_restart_is_another_life_under_its_own_model(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=a");
    send(cluster, 0, 0, 3);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("0", "m") "0\n");
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=j,dp_rank=0", "model_name=n,instance_id=b");
    send(cluster, 1, 0, 4);
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("0", "n") "1\n");
    assert_lines(cluster, NULL, "statsbus_source_incarnations",
                 "statsbus_source_incarnations_total" KEY("0", "n") "2\n");
    assert_lines(cluster, NULL, "statsbus_source_conflicts", "statsbus_source_conflicts_total" KEY("0", "n") "0\n");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    assert_lines(cluster, NULL, "statsbus_source_refused_samples",
                 "statsbus_source_refused_samples_total" KEY("0", "n") "7\n");
    /* Other bounds, same life. */
    cluster_add(cluster, &cluster->session, 2, 3, "service_name=s,job_name=j,dp_rank=0", "model_name=n,instance_id=b");
    send(cluster, 2, 0, 1);
    assert_lines(cluster, NULL, "statsbus_source_incarnations",
                 "statsbus_source_incarnations_total" KEY("0", "n") "2\n");
    assert_lines(cluster, NULL, "statsbus_source_conflicts", "statsbus_source_conflicts_total" KEY("0", "n") "0\n");
}

static void two_lives_at_once_are_a_conflict(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=a");
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=b");
    send(cluster, 0, 0, 1);
    send(cluster, 1, 0, 1);
    send(cluster, 0, 0, 2);
    assert_lines(cluster, NULL, "statsbus_source_conflicts", "statsbus_source_conflicts_total" KEY("0", "m") "1\n");
}

static void one_that_ended_goes_after_the_linger_and_a_silent_one_stays(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=a");
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=j,dp_rank=1", "model_name=m,instance_id=a");
    send(cluster, 0, 0, 1);
    send(cluster, 1, 0, 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    cluster->world.now_ms += TEST_LINGER_MS - 1;
    hub_store_sweep(&cluster->world.store, cluster->world.now_ms, TIMEOUT_MS, INT64_MAX);
    assert_lines(cluster, NULL, "statsbus_source_up",
                 "statsbus_source_up" KEY("0", "m") "0\nstatsbus_source_up" KEY("1", "m") "0\n");
    cluster->world.now_ms += 1;
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("1", "m") "0\n");
    assert_lines(cluster, NULL, "statsbus_source_last_seen_seconds",
                 "statsbus_source_last_seen_seconds" KEY("1", "m") "300\n");
}

static void wait_ms(struct cluster *cluster, int64_t ms)
{
    cluster->world.now_ms += ms;
    hub_store_sweep(&cluster->world.store, cluster->world.now_ms, INT64_MAX, INT64_MAX);
}

/* FORGET of all that a source has: its counts go on while its row is shown. */
static void a_row_keeps_its_counts_when_nothing_is_left_of_the_source(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0",
                "model_name=m,role=decode,instance_id=a");
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=j,dp_rank=0",
                "model_name=m,role=decode,instance_id=b");
    send(cluster, 0, 0, 3);
    send(cluster, 1, 0, 4);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(cluster_tell(cluster, &cluster->session, "END", i), HUB_OK);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", i), HUB_OK);
    }
    wait_ms(cluster, TEST_LINGER_MS - 1);
    struct hub_query decode = {0};
    assert_true(hub_query_narrow(&decode, HUB_NARROW_role, "decode"));
    assert_lines(cluster, &decode, "statsbus_source_refused_samples",
                 "statsbus_source_refused_samples_total" KEY("0", "m") "7\n");
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("0", "m") "0\n");

    /* The last life, under another agent's epoch; then a new one. */
    cluster_add(cluster, &cluster->session, 0, 3, "service_name=s,job_name=j,dp_rank=0",
                "model_name=m,role=decode,instance_id=b");
    assert_lines(cluster, NULL, "statsbus_source_incarnations",
                 "statsbus_source_incarnations_total" KEY("0", "m") "2\n");
    cluster_add(cluster, &cluster->session, 1, 4, "service_name=s,job_name=j,dp_rank=0",
                "model_name=m,role=decode,instance_id=c");
    send(cluster, 1, 0, 1);
    assert_lines(cluster, NULL, "statsbus_source_incarnations",
                 "statsbus_source_incarnations_total" KEY("0", "m") "3\n");
    assert_lines(cluster, NULL, "statsbus_source_conflicts", "statsbus_source_conflicts_total" KEY("0", "m") "1\n");
    assert_lines(cluster, NULL, "statsbus_source_refused_samples",
                 "statsbus_source_refused_samples_total" KEY("0", "m") "8\n");
}

static void a_source_of_which_nothing_is_left_goes_after_the_linger(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=a");
    send(cluster, 0, 0, 3);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    wait_ms(cluster, TEST_LINGER_MS - 1);
    assert_int_equal(cluster->world.store.sources.n, 1);
    wait_ms(cluster, 1);
    assert_int_equal(cluster->world.store.sources.n, 0);
    assert_int_equal(cluster->world.store.n_sources, 0);
    assert_lines(cluster, NULL, NULL, "");
}

static void sources_of_which_nothing_is_left_have_a_limit(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < HUB_IDLE_SOURCES_MAX + 2; i++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=s,job_name=j,dp_rank=%u", i);
        cluster_add(cluster, &cluster->session, 0, i + 1, source, "model_name=m,instance_id=a");
        send(cluster, 0, 0, 3);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    }
    wait_ms(cluster, 1);
    assert_int_equal(cluster->world.store.sources.n, HUB_IDLE_SOURCES_MAX);
    assert_int_equal(cluster->world.counters.limits[HUB_LIMIT_idle_sources], 2);
    assert_int_equal(cluster->world.store.source_list[0]->id, 3); /* the first ones went */
}

static void a_row_is_under_the_labels_of_what_lives(void **state)
{
    struct cluster *cluster = *state;
    static const char *const identities[] = {"model_name=m,instance_id=a", "model_name=n,instance_id=b",
                                             "model_name=o,instance_id=c"};
    for (uint32_t i = 0; i < SB_COUNT(identities); i++)
        cluster_add(cluster, &cluster->session, i, i + 1, "service_name=s,job_name=j,dp_rank=0", identities[i]);
    send(cluster, 0, 0, 1);
    send(cluster, 2, 0, 1);
    send(cluster, 1, 0, 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 2), HUB_OK);
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("0", "n") "1\n");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 1), HUB_OK);
    assert_lines(cluster, NULL, "statsbus_source_up", "statsbus_source_up" KEY("0", "m") "1\n");
}

/* As after a restart of the hub. */
static void a_source_that_has_ended_when_it_is_met_is_not_told_of(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=j,dp_rank=0", "model_name=m,instance_id=a");
    cluster_send(cluster, (struct test_frame){.contribution = 0, .is_dead = true, .n_cells = 1, .cells = {{0, 3}}});
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    assert_lines(cluster, NULL, NULL, "");
}

/* As after a restart of the hub, in either order; both ends come before or after the last life is known. */
static void one_that_is_silent_when_it_is_met_is_told_of_whatever_ended_before(void **state)
{
    struct cluster *cluster = *state;
    static const char *const identities[] = {"model_name=m,instance_id=a", "model_name=n,instance_id=b",
                                             "model_name=o,instance_id=c"};
    static const struct {
        uint32_t lives[3]; /* in the order of their definition; 2 is the silent one */
        size_t n_before_ends;
    } orders[] = {{{0, 1, 2}, 3}, {{0, 1, 2}, 2}, {{2, 1, 0}, 3}};
    for (uint32_t o = 0; o < SB_COUNT(orders); o++) {
        char key[64];
        snprintf(key, sizeof key, "service_name=s,job_name=j,dp_rank=%u", o);
        for (size_t i = 0; i < SB_COUNT(identities); i++) {
            const uint32_t life = orders[o].lives[i];
            const uint32_t id = 3 * o + life;
            cluster_add(cluster, &cluster->session, id, id + 1, key, identities[life]);
            cluster_send(cluster, (struct test_frame){.contribution = id, .is_dead = true});
            for (uint32_t ended = 0; i + 1 == orders[o].n_before_ends && ended < 2; ended++)
                assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 3 * o + ended), HUB_OK);
        }
    }
    wait_ms(cluster, TEST_LINGER_MS);
    assert_lines(cluster, NULL, "statsbus_source_up",
                 "statsbus_source_up" KEY("0", "o") "0\nstatsbus_source_up" KEY("1", "o") "0\nstatsbus_source_up" KEY(
                     "2", "o") "0\n");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        CASE(every_source_has_a_row),
        CASE(a_restart_is_another_life_under_its_own_model),
        CASE(two_lives_at_once_are_a_conflict),
        CASE(one_that_ended_goes_after_the_linger_and_a_silent_one_stays),
        CASE(a_row_keeps_its_counts_when_nothing_is_left_of_the_source),
        CASE(a_source_of_which_nothing_is_left_goes_after_the_linger),
        CASE(sources_of_which_nothing_is_left_have_a_limit),
        CASE(a_row_is_under_the_labels_of_what_lives),
        CASE(a_source_that_has_ended_when_it_is_met_is_not_told_of),
        CASE(one_that_is_silent_when_it_is_met_is_told_of_whatever_ended_before),
    };
    return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
