/* Shares: of totals over all series of some families, and of a histogram's observations. */
#include "cluster_test.h"
#include "hub/windows.h"

static const char catalog[] =
    CLUSTER_FAMILIES "derived:\n"
                     "  c:hit_share: {ratio: [[c:hits_total], [c:hits_total, c:looks_total]], help: h}\n"
                     "  c:hits_a_wait: {ratio: [c:hits_total, [c:wait_seconds]], help: h}\n"
                     "  c:waits_within: {within: c:wait_seconds, bound: 1, help: h}\n";

static struct cluster cluster;
static struct hub_window_lengths lengths;

enum { A, B };

static uint32_t n_families, n_cells;
static uint32_t hits_of[2], looks, waits;

static int open_cluster(void **state)
{
    (void) state;
    struct sb_err err = {.text = ""};
    n_families = n_cells = 0;
    cluster_open_on(&cluster, catalog, NULL);
    assert_int_equal(hub_window_lengths_parse(&lengths, "60s", &err), SB_OK);
    assert_int_equal(hub_windows_init(&cluster.world.store, &lengths, 64 << 20, &err), SB_OK);
    cluster_join(&cluster);
    return 0;
}

static int close_cluster(void **state)
{
    (void) state;
    cluster_close(&cluster);
    return 0;
}

/* An agent defines the family, with its next number, and series with these labels; the first cell of each. */
static void define(const char *name, const char *type, const char *const *labels, uint32_t n, uint32_t *cells)
{
    static const double bounds[] = {1, 2};
    const bool is_histogram = strcmp(type, "histogram") == 0;
    struct sb_buf *buf = begin(&cluster.world, 4, "DEFINE");
    sb_mp_put_array(buf, 1);
    put_family(buf, n_families, name, type, is_histogram ? bounds : NULL, 2);
    sb_mp_put_array(buf, n);
    for (uint32_t i = 0; i < n; i++) {
        cells[i] = n_cells;
        put_series(buf, n_cells, n_families, labels[i]);
        n_cells += is_histogram ? 4 : 1;
    }
    sb_mp_put_array(buf, 0);
    n_families++;
    assert_int_equal(deliver(&cluster.world, &cluster.session), HUB_OK);
}

static void define_hits(void)
{
    static const char *const labels[] = {"k=a", "k=b"};
    define("c:hits_total", "counter", labels, 2, hits_of);
}

static void define_looks(void)
{
    define("c:looks_total", "counter", &(const char *){""}, 1, &looks);
}

static void define_waits(void)
{
    define("c:wait_seconds", "histogram", &(const char *){""}, 1, &waits);
}

static void count(uint32_t source, uint32_t cell, double n)
{
    cluster_send(&cluster, (struct test_frame){.contribution = source, .n_cells = 1, .cells = {{cell, n}}});
}

static void wait_of(uint32_t source, double fast, double slow, double slowest)
{
    cluster_send(&cluster, (struct test_frame){
                               .contribution = source,
                               .n_cells = 4,
                               .cells = {{waits, fast}, {waits + 1, slow}, {waits + 2, slowest}, {waits + 3, 9}}});
}

/* All lines of a family in a view, without its name and the labels of every row. */
static void assert_lines(const char *view, const char *family, const char *expected)
{
    static const char row[] = "{model_name=\"m\",";
    struct sb_buf found;
    sb_buf_init(&found, 4096);
    char *text = scrape_as(&cluster.world, view, SB_EXPO_TEXT);
    const size_t len = strlen(family);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, family, len) != 0 || strncmp(line + len, row, sizeof row - 1) != 0)
            continue;
        const char *rest = line + len + sizeof row - 1;
        sb_buf_put(&found, rest, (size_t) (end + 1 - rest));
    }
    sb_buf_put_byte(&found, '\0');
    free(text);
    assert_string_equal((const char *) found.data, expected);
    sb_buf_release(&found);
}

static void a_share_of_totals_adds_up_all_series_of_all_families(void **state)
{
    (void) state;
    define_hits();
    define_looks();
    assert_lines("full", "c:hit_share", "");
    count(0, hits_of[A], 3);
    count(1, hits_of[B], 1);
    count(2, looks, 4);
    assert_lines("full", "c:hit_share", "service_name=\"s\"} 0.5\n");
    count(3, hits_of[A], 2); /* (3 + 1 + 2) / 10 */
    assert_lines("full", "c:hit_share", "service_name=\"s\"} 0.6\n");
    assert_lines("role", "c:hit_share",
                 "role=\"prefill\",service_name=\"s\"} 1\nrole=\"decode\",service_name=\"s\"} 0.3333333333333333\n");
}

static void what_nobody_counts_yet_adds_nothing_to_a_total(void **state)
{
    (void) state;
    define_looks();
    count(0, looks, 0);
    assert_lines("full", "c:hit_share", ""); /* of nothing there is no share */
    count(0, looks, 4);
    assert_lines("full", "c:hit_share", "service_name=\"s\"} 0\n");
    define_hits(); /* a family that comes later */
    count(0, hits_of[B], 4);
    assert_lines("full", "c:hit_share", "service_name=\"s\"} 0.5\n");
}

static void each_series_has_its_share_of_a_total(void **state)
{
    (void) state;
    define_hits();
    count(2, hits_of[A], 2);
    count(3, hits_of[B], 8);
    assert_lines("full", "c:hits_a_wait", "");
    define_waits();
    wait_of(0, 50, 0, 0); /* of prefill, which waits don't count in full */
    assert_lines("full", "c:hits_a_wait", "");
    wait_of(2, 5, 1, 0);
    wait_of(3, 0, 0, 2);
    assert_lines("full", "c:hits_a_wait", "service_name=\"s\",k=\"a\"} 0.25\nservice_name=\"s\",k=\"b\"} 1\n");
}

static void the_share_of_observations_within_a_bound(void **state)
{
    (void) state;
    define_waits();
    wait_of(0, 0, 0, 0);
    assert_lines("role", "c:waits_within", ""); /* nothing was observed */
    wait_of(2, 3, 1, 0);
    wait_of(3, 2, 1, 1);
    wait_of(1, 0, 4, 0);
    assert_lines("full", "c:waits_within", "service_name=\"s\"} 0.625\n");
    assert_lines("role", "c:waits_within",
                 "role=\"prefill\",service_name=\"s\"} 0\nrole=\"decode\",service_name=\"s\"} 0.625\n");
}

/* Time goes by with pulses every half second. */
static void pass(int64_t ms)
{
    struct world *world = &cluster.world;
    for (int64_t left = ms; left > 0; left -= 500) {
        world->now_ms += 500;
        begin(world, 1, "FRAME");
        assert_int_equal(deliver(world, &cluster.session), HUB_OK);
        hub_store_sweep(&world->store, world->now_ms, 15 * 1000, 24 * 3600 * 1000);
        hub_windows_begin_round(&world->store, world->now_ms);
        while (hub_windows_go_on(&world->store)) {
        }
    }
}

static void shares_have_windows(void **state)
{
    (void) state;
    define_hits();
    define_looks();
    define_waits();
    count(0, hits_of[A], 30);
    count(2, looks, 10);
    wait_of(2, 7, 0, 0);
    pass(61500);
    assert_lines("full", "c:hit_share_window", "");
    assert_lines("full", "c:waits_within_window", "");
    count(0, hits_of[A], 31);
    count(2, looks, 13);
    wait_of(2, 8, 3, 0);
    pass(1000);
    assert_lines("full", "c:hit_share_window", "service_name=\"s\",window=\"60s\"} 0.25\n");
    assert_lines("full", "c:hits_a_wait_window", "service_name=\"s\",k=\"a\",window=\"60s\"} 0.25\n");
    assert_lines("full", "c:waits_within_window", "service_name=\"s\",window=\"60s\"} 0.25\n");
    assert_lines("full", "c:hit_share", "service_name=\"s\"} 0.7045454545454546\n");
    pass(62000);
    assert_lines("full", "c:hit_share_window", "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        TEST(a_share_of_totals_adds_up_all_series_of_all_families),
        TEST(what_nobody_counts_yet_adds_nothing_to_a_total),
        TEST(each_series_has_its_share_of_a_total),
        TEST(the_share_of_observations_within_a_bound),
        TEST(shares_have_windows),
    };
#undef TEST
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
