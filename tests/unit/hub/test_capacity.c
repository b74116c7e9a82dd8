#include <math.h>

#include "cluster_test.h"

static const char metrics[] =
    "version: 1\n"
    "computed:\n"
    "  demand: {type: capacity_demand, phase: after_aggregation, roles: [decode], sources: [c:done], "
    "backlog: [c:usage, c:running], help: h}\n"
    "  capacity: {type: capacity_estimate, phase: after_aggregation, roles: [decode], sources: [c:done], help: h}\n"
    "  utilisation: {type: capacity_utilisation, phase: after_aggregation, roles: [decode], sources: [c:done], "
    "backlog: [c:usage, c:running], help: h}\n"
    "  replicas: {type: capacity_replicas, phase: after_aggregation, roles: [decode], sources: [c:done], "
    "backlog: [c:usage, c:running], target: 0.8, help: h}\n";

enum { RATE_WINDOW_MS = 10 * 1000 };

static struct cluster cluster;
static struct hub_computed_specs specs;

static int open_cluster(void **state)
{
    (void) state;
    static const struct hub_expectations none;
    const struct sb_catalog_file file = {.name = "c.yaml", .text = metrics, .len = sizeof metrics - 1};
    struct sb_err err = {.text = ""};
    cluster_open(&cluster, NULL);
    specs = (struct hub_computed_specs){.prefix = "x_"};
    sb_arena_init(&specs.arena);
    assert_int_equal(hub_computed_specs_read(&specs, &file, cluster.catalog, &err), SB_OK);
    assert_int_equal(hub_store_compute(&cluster.world.store, &specs, &none, RATE_WINDOW_MS, &err), SB_OK);
    return 0;
}

static int close_cluster(void **state)
{
    (void) state;
    cluster_close(&cluster);
    hub_computed_specs_release(&specs);
    return 0;
}

/* Time goes by, and nothing is heard. */
static void pass_in_silence(int64_t ms)
{
    struct world *world = &cluster.world;
    world->now_ms += ms;
    hub_store_sweep(&world->store, world->now_ms, 60 * 1000, 24 * 3600 * 1000);
    hub_computed_begin_round(&world->store, world->now_ms);
    while (hub_computed_go_on(&world->store)) {
    }
}

static void pass(int64_t ms)
{
    struct world *world = &cluster.world;
    world->now_ms += ms;
    begin(world, 1, "FRAME");
    assert_int_equal(deliver(world, &cluster.session), HUB_OK);
    pass_in_silence(0);
}

static void say(uint32_t id, double done, double waiting, double running)
{
    cluster_send(&cluster, (struct test_frame){.contribution = id,
                                               .n_gauges = 2,
                                               .gauges = {{D_USAGE, waiting}, {D_RUNNING, running}},
                                               .n_cells = 1,
                                               .cells = {{D_DONE, done}}});
}

/* NAN: absent. */
static double value_of(const char *name)
{
    char *text = scrape_as(&cluster.world, "full", SB_EXPO_TEXT);
    char line[64];
    snprintf(line, sizeof line, "\nx_%s{", name);
    const char *at = strstr(text, line);
    const double value = at ? strtod(strchr(at, '}') + 1, NULL) : NAN;
    free(text);
    return value;
}

static void join_cluster(void)
{
    pass(5000);
    cluster_add(&cluster, &cluster.session, 0, 1, "service_name=s,job_name=d0,dp_rank=0", "model_name=m,role=decode");
    cluster_add(&cluster, &cluster.session, 1, 2, "service_name=s,job_name=d1,dp_rank=0", "model_name=m,role=decode");
    cluster_add(&cluster, &cluster.session, 2, 3, "service_name=s,job_name=p0,dp_rank=0", "model_name=m,role=prefill");
}

static void signals_follow_their_formulas(void **state)
{
    (void) state;
    join_cluster();
    say(0, 1000, 1, 2);
    say(1, 500, 0, 2);
    say(2, 90000, 50, 1); /* of another role */
    pass(1000);
    assert_number(value_of("demand"), 150 * 1.25);
    assert_number(value_of("capacity"), 2 * 100);
    assert_number(value_of("utilisation"), 187.5 / 200);
    assert_number(value_of("replicas"), 3); /* 2 * 0.9375 / 0.8 = 2.34 */
}

static void the_peak_stays_when_load_goes(void **state)
{
    (void) state;
    join_cluster();
    say(0, 1000, 0, 2);
    say(1, 1000, 0, 2);
    pass(1000);
    assert_number(value_of("replicas"), 3); /* 2 * 1 / 0.8 */
    for (int second = 0; second < 20; second++)
        pass(1000);
    assert_number(value_of("demand"), 0);
    assert_number(value_of("capacity"), 200);
    assert_number(value_of("utilisation"), 0);
    assert_number(value_of("replicas"), 1);
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", 1), HUB_OK);
    assert_number(value_of("capacity"), 100);
}

static void without_load_or_life_there_is_nothing_to_go_by(void **state)
{
    (void) state;
    join_cluster();
    assert_true(isnan(value_of("demand")));
    say(0, 0, 0, 0);
    pass(1000);
    assert_number(value_of("demand"), 0);
    assert_true(isnan(value_of("capacity")) && isnan(value_of("utilisation")) && isnan(value_of("replicas")));
    say(0, 100, 0, 0);
    pass(1000);
    assert_number(value_of("demand"), 10); /* nothing is said to run: what is served */
    assert_int_equal(cluster_tell(&cluster, &cluster.session, "END", 0), HUB_OK);
    assert_true(isnan(value_of("demand")) && isnan(value_of("replicas")));
}

static void an_agent_that_was_cut_off_makes_neither_burst_nor_peak(void **state)
{
    (void) state;
    static const int cuts[] = {3, 9, 20, 70}; /* within a window; out of it; as long as nobody is taken to live */
    double done = 0;
    join_cluster();
    for (size_t cut = 0; cut < SB_COUNT(cuts); cut++) {
        for (int second = 0; second < 30; second++) {
            say(0, done += 100, 0, 0);
            pass(1000);
            const double rate = value_of("demand");
            assert_true(rate == 100 || (second < 11 && (cut == 0 ? rate < 100 : isnan(rate))));
        }
        assert_number(value_of("demand"), 100);
        assert_number(value_of("capacity"), 100);
        for (int second = 0; second < cuts[cut]; second++) {
            done += 100;
            pass_in_silence(1000);
        }
    }
}

static void the_built_in_ones_are_there_when_they_are_asked_for(void **state)
{
    (void) state;
    struct hub_computed_specs built_in;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_computed_specs_load(&built_in, NULL, "motor_", false, cluster.catalog, &err), SB_OK);
    const size_t n = built_in.n;
    hub_computed_specs_release(&built_in);
    assert_int_equal(hub_computed_specs_load(&built_in, NULL, "motor_", true, cluster.catalog, &err), SB_OK);
    assert_int_equal(built_in.n, n + 8);
    hub_computed_specs_release(&built_in);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        TEST(signals_follow_their_formulas),
        TEST(the_peak_stays_when_load_goes),
        TEST(without_load_or_life_there_is_nothing_to_go_by),
        TEST(an_agent_that_was_cut_off_makes_neither_burst_nor_peak),
        TEST(the_built_in_ones_are_there_when_they_are_asked_for),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
