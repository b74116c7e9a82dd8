#include "cluster_test.h"
#include "hub/windows.h"

/* The cluster's catalog has one histogram with a median, c:wait_seconds (bounds 1 and 2, role scope decode), and one
 * ratio, c:hit_rate. */

static struct cluster cluster;
static struct hub_window_lengths lengths;

/* Nothing is defined yet. */
static void open_bare(const char *windows, const char *views, size_t bytes_max)
{
    struct sb_err err = {.text = ""};
    cluster_open(&cluster, views);
    hub_session_release(&cluster.session);
    world_close(&cluster.world);
    world_open_on(
        &cluster.world, cluster.catalog, views,
        (struct hub_store_limits){.contributions = 5000, .row_bytes = 64 * 1024 * 1024, .linger_ms = TEST_LINGER_MS});
    assert_int_equal(hub_window_lengths_parse(&lengths, windows, &err), SB_OK);
    assert_int_equal(hub_windows_init(&cluster.world.store, &lengths, bytes_max, &err), SB_OK);
    greet(&cluster.world, &cluster.session, 'a');
    cluster.number = 0;
}

static void open_with(const char *windows, const char *views, size_t bytes_max)
{
    open_bare(windows, views, bytes_max);
    cluster_define(&cluster.world, &cluster.session);
}

static int open_cluster(void **state)
{
    (void) state;
    open_with("60s", NULL, 64 << 20);
    return 0;
}

static int close_cluster(void **state)
{
    (void) state;
    cluster_close(&cluster);
    return 0;
}

static void pulse(void)
{
    struct world *world = &cluster.world;
    hub_store_sweep(&world->store, world->now_ms, 15 * 1000, 24 * 3600 * 1000);
    hub_windows_begin_round(&world->store, world->now_ms);
    while (hub_windows_go_on(&world->store)) {
    }
}

/* Time goes by with pulses every half second, and the session beats. */
static void pass(int64_t ms)
{
    for (int64_t left = ms; left > 0; left -= 500) {
        cluster.world.now_ms += 500;
        begin(&cluster.world, 1, "FRAME");
        assert_int_equal(deliver(&cluster.world, &cluster.session), HUB_OK);
        pulse();
    }
}

/* The waits of a contribution so far: up to 1 s, up to 2 s, longer; and their sum. */
static void waits(uint32_t id, double fast, double slow, double slowest, double sum)
{
    cluster_send(
        &cluster,
        (struct test_frame){.contribution = id,
                            .n_cells = 4,
                            .cells = {{D_WAIT, fast}, {D_WAIT + 1, slow}, {D_WAIT + 2, slowest}, {D_WAIT + 3, sum}}});
}

static void looks(uint32_t id, double hits, double of)
{
    cluster_send(&cluster,
                 (struct test_frame){.contribution = id, .n_cells = 2, .cells = {{D_HITS, hits}, {D_LOOKS, of}}});
}

#define FULL "{model_name=\"m\",service_name=\"s\","
#define MEDIAN "c:wait_seconds_window_p50" FULL "quantile=\"0.5\",window=\"60s\"} "
#define MEAN "c:wait_seconds_window_mean" FULL "window=\"60s\"} "
#define RATIO "c:hit_rate_window" FULL "window=\"60s\"} "

static void assert_windows(const char *view, const char *expected)
{
    char *text = scrape_as(&cluster.world, view, SB_EXPO_TEXT);
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        const size_t len = (size_t) (next - line);
        if (*line == '#' || !strstr(line, "_window") || strstr(line, "_window") > next)
            continue;
        memmove(to, line, len);
        to += len;
    }
    *to = '\0';
    assert_string_equal(text, expected);
    free(text);
}

/* Four sources that began while the hub watched. */
static void join_late(void)
{
    pass(5000);
    cluster_join(&cluster);
    pass(1000);
}

static void a_burst_shows_and_is_gone_after_the_window(void **state)
{
    (void) state;
    join_late();
    waits(2, 1000, 0, 0, 500);
    pass(1000);
    assert_windows("full", MEAN "0.5\n" MEDIAN "0.5\n");
    pass(70 * 1000);
    assert_windows("full", "");
    waits(2, 1000, 10, 0, 515);
    pass(500);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    pass(59 * 1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    pass(3 * 1000);
    assert_windows("full", "");
}

static void what_is_of_the_past_is_in_no_window(void **state)
{
    (void) state;
    cluster_join(&cluster); /* in the first moments of the session */
    waits(2, 5000, 5000, 5000, 30000);
    pass(5000);
    assert_windows("full", "");
    waits(2, 5000, 5002, 5000, 30003);
    pass(500);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");

    cluster.world.now_ms += 20 * 1000; /* the agent is cut off, and counts on */
    pulse();
    waits(2, 5000, 5002, 9000, 50003);
    pass(500);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
}

static void restarts_leaves_and_forgetting_do_not_show(void **state)
{
    (void) state;
    join_late();
    waits(2, 100, 0, 0, 50);
    waits(3, 100, 0, 0, 50);
    pass(61 * 1000);
    waits(2, 100, 4, 0, 56);
    pass(1000);
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", 2), HUB_OK);
    waits(2, 100, 5, 0, 57.5); /* the last of it comes behind the end */
    pass(1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "FORGET", 2), HUB_OK);
    pass(1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    cluster_add(&cluster, &cluster.session, 2, 99, "service_name=s,job_name=j1,dp_rank=0",
                "model_name=m,role=decode,instance_id=new");
    waits(2, 0, 5, 0, 7.5);
    pass(1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    pass(62 * 1000);
    assert_windows("full", "");
}

/* Its agent was cut off for longer than the window, and forgets it as soon as it has told the last of it. */
static void the_last_of_an_ended_source_stays_in_the_window(void **state)
{
    (void) state;
    join_late();
    waits(2, 0, 1, 0, 1.5);
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", 2), HUB_OK);
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", 3), HUB_OK);
    pass(300 * 1000);
    assert_windows("full", "");
    cluster_send(&cluster,
                 (struct test_frame){.contribution = 2,
                                     .is_dead = true,
                                     .n_cells = 4,
                                     .cells = {{D_WAIT, 0}, {D_WAIT + 1, 5}, {D_WAIT + 2, 0}, {D_WAIT + 3, 7.5}}});
    for (uint32_t id = 2; id < 4; id++)
        assert_int_equal(cluster_tell(&cluster, &cluster.session, "FORGET", id), HUB_OK);
    pass(1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
}

static void roles_count_as_in_the_view(void **state)
{
    (void) state;
    join_late();
    waits(0, 10, 0, 0, 5); /* prefill: not in the scope of full */
    waits(2, 0, 10, 0, 15);
    looks(0, 1, 4);
    looks(2, 2, 4);
    pass(1000);
    assert_windows("full", RATIO "0.375\n" MEAN "1.5\n" MEDIAN "1.5\n");
#define ROLE(role) "{model_name=\"m\",role=\"" role "\",service_name=\"s\","
    assert_windows(
        "role",
        "c:hit_rate_window" ROLE(
            "prefill") "window=\"60s\"} 0.25\n"
                       "c:hit_rate_window" ROLE(
                           "decode") "window=\"60s\"} 0.5\n"
                                     "c:wait_seconds_window_mean" ROLE(
                                         "prefill") "window=\"60s\"} 0.5\n"
                                                    "c:wait_seconds_window_mean" ROLE(
                                                        "decode") "window=\"60s\"} 1.5\n"
                                                                  "c:wait_seconds_window_p50" ROLE(
                                                                      "prefill") "quantile=\"0.5\",window=\"60s\"} "
                                                                                 "0.5\n"
                                                                                 "c:wait_seconds_window_p50" ROLE(
                                                                                     "decode") "quantile=\"0.5\","
                                                                                               "window=\"60s\"} 1.5\n");
    assert_windows("node", ""); /* a view without windows */

    struct hub_query query = {.view = hub_store_view(&cluster.world.store, "full")->spec};
    assert_true(hub_query_narrow(&query, HUB_NARROW_role, "prefill"));
    char *text = scrape_asked(&cluster.world, "full", SB_EXPO_TEXT, &query);
    assert_non_null(strstr(text, RATIO "0.25\n"));
    assert_null(strstr(text, "c:wait_seconds_window"));
    free(text);
}

static void a_ratio_without_hits_is_zero_and_without_looks_absent(void **state)
{
    (void) state;
    join_late();
    looks(2, 3, 4);
    pass(61 * 1000);
    looks(2, 3, 8);
    pass(1000);
    assert_windows("full", RATIO "0\n");
    pass(62 * 1000);
    assert_windows("full", "");
}

static void several_windows_share_a_name(void **state)
{
    (void) state;
    open_with("60s,5m", NULL, 64 << 20);
    join_late();
    waits(2, 100, 0, 0, 50);
    pass(100 * 1000);
    waits(2, 100, 100, 0, 200);
    pass(5 * 1000);
    assert_windows("full", MEAN "1.5\nc:wait_seconds_window_mean" FULL "window=\"5m\"} 1\n" MEDIAN
                                "1.5\nc:wait_seconds_window_p50" FULL "quantile=\"0.5\",window=\"5m\"} 1\n");
    char *text = scrape_as(&cluster.world, "full", SB_EXPO_TEXT);
    const char *type = strstr(text, "# TYPE c:wait_seconds_window_mean");
    assert_non_null(type);
    assert_null(strstr(type + 1, "# TYPE c:wait_seconds_window_mean"));
    free(text);
    pass(310 * 1000);
    assert_windows("full", "");
    close_cluster(NULL);
}

static void a_view_of_an_operator_may_have_windows(void **state)
{
    (void) state;
    open_with("60s", "version: 1\nviews:\n  n2: {by: [node], where: {pod_ip: [10.0.0.3]}, windows: true}\n", 64 << 20);
    join_late();
    waits(2, 10, 0, 0, 5);
    waits(3, 0, 10, 0, 15);
    pass(1000);
    assert_windows("n2", "c:wait_seconds_window_mean{model_name=\"m\",node=\"n2\",service_name=\"s\",window=\"60s\"} "
                         "1.5\nc:wait_seconds_window_p50{model_name=\"m\",node=\"n2\",service_name=\"s\",quantile="
                         "\"0.5\",window=\"60s\"} 1.5\n");
    close_cluster(NULL);
}

static void without_memory_a_row_has_no_windows(void **state)
{
    (void) state;
    open_with("60s", NULL, 1000);
    join_late();
    waits(2, 10, 0, 0, 5);
    pass(1000);
    assert_windows("full", "");
    assert_true(cluster.world.counters.limits[HUB_LIMIT_window_memory] > 0);
    close_cluster(NULL);
}

static void rows_over_the_memory_take_no_others_along(void **state)
{
    (void) state;
    enum { N = 500, ROW_BYTES = 32 * 1024 };
    struct hub_windows *windows;
    open_with("60s,5m", "version: 1\nviews:\n  each: {by: [instance_id], windows: true}\n", 10 * ROW_BYTES);
    windows = cluster.world.store.windows;
    pass(5000);
    for (uint32_t id = 0; id < N; id++) {
        char identity[64];
        snprintf(identity, sizeof identity, "model_name=m,role=decode,instance_id=i%u", id);
        cluster_add(&cluster, &cluster.session, id, id + 1, "service_name=s,job_name=j,dp_rank=0", identity);
        waits(id, 10, 0, 0, 5);
    }
    for (int second = 0; second < 3; second++) {
        pass(1000);
        assert_true(windows->bytes <= windows->bytes_max);
    }
    assert_true(windows->bytes > windows->bytes_max / 2);
    char *text = scrape_as(&cluster.world, "each", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "c:wait_seconds_window_mean{instance_id=\"i0\",model_name=\"m\""));
    assert_null(strstr(text, "c:wait_seconds_window_mean{instance_id=\"i499\",model_name=\"m\""));
    free(text);
    assert_true(cluster.world.counters.limits[HUB_LIMIT_window_memory] < N);
    close_cluster(NULL);
}

static void define_counter(uint32_t id, const char *name)
{
    struct sb_buf *buf = begin(&cluster.world, 4, "DEFINE");
    sb_mp_put_array(buf, 1);
    put_family(buf, id, name, "counter", NULL, 0);
    sb_mp_put_array(buf, 1);
    put_series(buf, id, id, "");
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(&cluster.world, &cluster.session), HUB_OK);
}

static void a_ratio_whose_first_hit_comes_late_has_the_looks_of_the_window(void **state)
{
    (void) state;
    open_bare("60s", NULL, 64 << 20);
    define_counter(D_LOOKS, "c:looks_total");
    join_late();
    cluster_send(&cluster, (struct test_frame){.contribution = 2, .n_cells = 1, .cells = {{D_LOOKS, 1000}}});
    pass(70 * 1000);
    define_counter(D_HITS, "c:hits_total");
    looks(2, 1, 1004);
    pass(1000);
    assert_windows("full", RATIO "0.25\n");
    close_cluster(NULL);
}

static void a_row_that_is_dropped_gives_its_memory_back(void **state)
{
    (void) state;
    struct hub_store *store = &cluster.world.store;
    size_t freed;
    join_late();
    waits(2, 0, 100, 0, 150);
    waits(0, 0, 100, 0, 150);
    pass(1000);
    assert_true(store->windows->bytes > 0);
    for (uint32_t id = 0; id < 4; id++) {
        assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", id), HUB_OK);
        assert_int_equal(cluster_tell(&cluster, &cluster.session, "FORGET", id), HUB_OK);
    }
    pass(1000);
    assert_windows("full", MEAN "1.5\n" MEDIAN "1.5\n");
    while (hub_view_make_room(&store->views[store->windows->view], cluster.world.now_ms, &freed) > 0) {
    }
    assert_int_equal(store->windows->bytes, 0);
}

static void what_comes_unseen_while_its_row_is_added_up_is_in_no_window(void **state)
{
    (void) state;
    enum { N = HUB_WINDOW_LOOKS + 100 }; /* more than a piece of a round */
    struct world *world = &cluster.world;
    for (uint32_t id = 0; id < N; id++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=s,job_name=j%u,dp_rank=0", id);
        cluster_add(&cluster, &cluster.session, id, id + 1, source, "model_name=m,role=decode");
        waits(id, 1, 0, 0, 0.5);
    }
    pass(1000);
    waits(1, 101, 0, 0, 50.5);
    pass(70 * 1000);
    assert_windows("full", "");

    world->now_ms += 20 * 1000; /* the agent is cut off, and counts on */
    hub_store_sweep(&world->store, world->now_ms, 15 * 1000, 24 * 3600 * 1000);
    hub_windows_begin_round(&world->store, world->now_ms);
    assert_true(hub_windows_go_on(&world->store));
    waits(0, 11, 0, 0, 5.5);
    while (hub_windows_go_on(&world->store)) {
    }
    for (int second = 0; second < 65; second++) { /* a wrong copy would show when it is as old as the window */
        pass(1000);
        assert_windows("full", "");
    }
}

static void lengths_are_checked(void **state)
{
    (void) state;
    static const char *const bad[] = {"60", "x", "1ms", "16m", "1s,1s", "60s,1m", "1s,2s,3s,4s,5s", "60s,,5m", "-1s"};
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        struct sb_err err = {.text = ""};
        assert_int_equal(hub_window_lengths_parse(&lengths, bad[i], &err), SB_INVAL);
        assert_true(err.text[0] != '\0');
    }
    assert_int_equal(hub_window_lengths_parse(&lengths, "", NULL), SB_OK);
    assert_int_equal(lengths.n, 0);
    assert_int_equal(hub_window_lengths_parse(&lengths, "1s,15m", NULL), SB_OK);
    assert_int_equal(lengths.at[1].ms, 900000);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        TEST(a_burst_shows_and_is_gone_after_the_window),
        TEST(what_is_of_the_past_is_in_no_window),
        TEST(restarts_leaves_and_forgetting_do_not_show),
        TEST(the_last_of_an_ended_source_stays_in_the_window),
        TEST(roles_count_as_in_the_view),
        TEST(a_ratio_without_hits_is_zero_and_without_looks_absent),
        cmocka_unit_test(several_windows_share_a_name),
        cmocka_unit_test(a_view_of_an_operator_may_have_windows),
        cmocka_unit_test(without_memory_a_row_has_no_windows),
        cmocka_unit_test(rows_over_the_memory_take_no_others_along),
        cmocka_unit_test(a_ratio_whose_first_hit_comes_late_has_the_looks_of_the_window),
        TEST(a_row_that_is_dropped_gives_its_memory_back),
        TEST(what_comes_unseen_while_its_row_is_added_up_is_in_no_window),
        cmocka_unit_test(lengths_are_checked),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
