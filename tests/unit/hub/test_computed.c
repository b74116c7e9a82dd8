#include "cluster_test.h"

static const char metrics[] =
    "version: 1\n"
    "computed:\n"
    "  done_per_second: {type: counter_rate, phase: before_aggregation, sources: [c:done], help: h}\n"
    "  decode_rate: {type: counter_rate, phase: before_aggregation, sources: [c:done, c:looks], roles: [decode], help: "
    "h}\n"
    "  decode_running: {type: gauge_sum_by_role, phase: after_aggregation, sources: [c:running], roles: [decode], "
    "help: h}\n"
    "  prefill_workers: {type: worker_count, phase: after_aggregation, roles: [prefill], help: h}\n"
    "  decode_workers: {type: worker_count, phase: after_aggregation, roles: [decode], help: h}\n"
    "  decode_gone: {type: worker_count, phase: after_aggregation, roles: [decode], state: inactive, help: h}\n"
    "  pd_ratio: {type: pd_ratio, phase: after_aggregation, roles: [prefill, decode], help: h}\n";

enum { RATE_WINDOW_MS = 10 * 1000 };

struct computing {
    struct cluster cluster;
    struct hub_computed_specs specs;
};

static struct computing computing;

static enum sb_rc read_metrics(struct hub_computed_specs *specs, const char *text, const struct sb_catalog *catalog,
                               struct sb_err *err)
{
    const struct sb_catalog_file file = {.name = "c.yaml", .text = text, .len = strlen(text)};
    return hub_computed_specs_read(specs, &file, catalog, err);
}

static void open_with(const char *expected)
{
    struct hub_expectations expectations;
    struct sb_err err = {.text = ""};
    cluster_open(&computing.cluster, NULL);
    computing.specs = (struct hub_computed_specs){.prefix = "x_"};
    sb_arena_init(&computing.specs.arena);
    assert_int_equal(read_metrics(&computing.specs, metrics, computing.cluster.catalog, &err), SB_OK);
    assert_int_equal(hub_expectations_parse(&expectations, expected, &err), SB_OK);
    assert_int_equal(
        hub_store_compute(&computing.cluster.world.store, &computing.specs, &expectations, RATE_WINDOW_MS, &err),
        SB_OK);
}

static int open_computing(void **state)
{
    open_with("");
    *state = &computing.cluster;
    return 0;
}

static int close_computing(void **state)
{
    (void) state;
    cluster_close(&computing.cluster);
    hub_computed_specs_release(&computing.specs);
    return 0;
}

/* The hub's tick. */
static void tick(struct cluster *cluster)
{
    struct world *world = &cluster->world;
    hub_store_sweep(&world->store, world->now_ms, 15 * 1000, 24 * 3600 * 1000);
    hub_computed_begin_round(&world->store, world->now_ms);
    while (hub_computed_go_on(&world->store)) {
    }
}

/* The session beats, and a tick follows. */
static void pass(struct cluster *cluster, int64_t ms)
{
    cluster->world.now_ms += ms;
    begin(&cluster->world, 1, "FRAME");
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    tick(cluster);
}

/* What the lines of a view are that begin so; "" for none. The caller frees it. */
static char *lines_of(struct cluster *cluster, const char *view, const char *name, const struct hub_query *query)
{
    char *text = scrape_asked(&cluster->world, view, SB_EXPO_TEXT, query);
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        const size_t len = (size_t) (next - line);
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        memmove(to, line, len);
        to += len;
    }
    *to = '\0';
    return text;
}

static void assert_lines(struct cluster *cluster, const char *view, const char *name, const char *expected)
{
    char *text = lines_of(cluster, view, name, NULL);
    assert_string_equal(text, expected);
    free(text);
}

#define FULL "{model_name=\"m\",service_name=\"s\"} "

/* Joins once the session has named what it had before. */
static void settle(struct cluster *cluster)
{
    pass(cluster, 5000);
}

/* The document of PyMotor tells this case: a decoder at 10,000 tokens, 11,000, then restarted at 50 and 500. */
static void a_restart_neither_drops_the_counter_nor_the_rate(void **state)
{
    struct cluster *cluster = *state;
    const char *source = "service_name=s,job_name=decoder-0,dp_rank=0";
    cluster_add(cluster, &cluster->session, 0, 1, source, "model_name=m,role=decode,instance_id=5");
    cluster_done(cluster, 0, 10000, 1);
    pass(cluster, 0); /* T0 */
    assert_lines(cluster, "full", "c:done_total", "c:done_total" FULL "10000\n");
    assert_lines(cluster, "full", "x_done_per_second", ""); /* no history: not known, which is not 0 */

    cluster_done(cluster, 0, 11000, 1);
    pass(cluster, RATE_WINDOW_MS); /* T1 */
    assert_lines(cluster, "full", "c:done_total", "c:done_total" FULL "11000\n");
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "100\n");

    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    cluster_add(cluster, &cluster->session, 1, 2, source, "model_name=m,role=decode,instance_id=12");
    cluster_done(cluster, 1, 50, 1);
    pass(cluster, RATE_WINDOW_MS); /* T2 */
    assert_lines(cluster, "full", "c:done_total", "c:done_total" FULL "11050\n");
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "5\n");

    cluster_done(cluster, 1, 500, 1);
    pass(cluster, RATE_WINDOW_MS); /* T3 */
    assert_lines(cluster, "full", "c:done_total", "c:done_total" FULL "11500\n");
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "45\n");
    assert_lines(cluster, "dp", "x_done_per_second",
                 "x_done_per_second{dp_rank=\"0\",instance_id=\"12\",model_name=\"m\",role=\"decode\",service_name="
                 "\"s\"} 45\n");
}

static void rates_add_up_in_rows_and_count_the_roles_that_are_named(void **state)
{
    struct cluster *cluster = *state;
    settle(cluster);
    cluster_join(cluster);
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10 * (i + 1), 1);
    pass(cluster, 1000);
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "10\n");
    assert_lines(cluster, "full", "x_decode_rate", "x_decode_rate" FULL "7\n");
    assert_lines(cluster, "role", "x_decode_rate",
                 "x_decode_rate{model_name=\"m\",role=\"decode\",service_name=\"s\"} 7\n");
    assert_lines(cluster, "role", "x_done_per_second{model_name=\"m\",role=\"prefill\"",
                 "x_done_per_second{model_name=\"m\",role=\"prefill\",service_name=\"s\"} 3\n");

    struct hub_query query = {.view = hub_store_view(&cluster->world.store, "full")->spec};
    assert_true(hub_query_narrow(&query, HUB_NARROW_role, "prefill"));
    char *text = lines_of(cluster, "full", "x_", &query);
    assert_string_equal(text, "x_done_per_second" FULL "3\nx_prefill_workers" FULL "1\n");
    free(text);
}

static void what_does_not_live_has_no_rate(void **state)
{
    struct cluster *cluster = *state;
    settle(cluster);
    cluster_join(cluster);
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10, 1);
    pass(cluster, 1000);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "3\n");
}

static void what_came_unseen_makes_no_rate(void **state)
{
    struct cluster *cluster = *state;
    cluster_join(cluster); /* in the first moments of the session: it may have counted for days */
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 1000000, 1);
    pass(cluster, 1000);
    assert_lines(cluster, "full", "x_done_per_second", "");
    pass(cluster, 1000);
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "0\n");

    cluster->world.now_ms += 20 * 1000; /* the agent is cut off */
    tick(cluster);
    assert_lines(cluster, "full", "x_done_per_second", "");
    cluster_done(cluster, 0, 2000000, 1);
    pass(cluster, 1000);
    assert_lines(cluster, "full", "x_done_per_second", "");
    cluster_done(cluster, 0, 2000030, 1);
    pass(cluster, 1000);
    assert_lines(cluster, "full", "x_done_per_second", "x_done_per_second" FULL "30\n");
}

static void gauges_are_summed_over_roles_in_whole_services(void **state)
{
    struct cluster *cluster = *state;
    cluster_join(cluster);
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 1, 10 + i);
    assert_lines(cluster, "full", "x_decode_running", "x_decode_running" FULL "25\n");
    assert_lines(cluster, "role", "x_decode_running", "");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 2), HUB_OK);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 3), HUB_OK);
    assert_lines(cluster, "full", "x_decode_running", "");
}

static void a_worker_is_an_engine_with_all_of_its_ranks(void **state)
{
    struct cluster *cluster = *state;
    const char *identity = "model_name=m,role=decode";
    cluster_add(cluster, &cluster->session, 0, 1, "service_name=s,job_name=d0,dp_rank=0", identity);
    cluster_add(cluster, &cluster->session, 1, 2, "service_name=s,job_name=d0,dp_rank=1", identity);
    cluster_add(cluster, &cluster->session, 2, 3, "service_name=s,job_name=d1,dp_rank=0", identity);
    cluster_add(cluster, &cluster->session, 3, 4, "service_name=s,job_name=p0,dp_rank=0", "model_name=m,role=prefill");
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 1, 1);
    assert_lines(cluster, "full", "x_decode_workers", "x_decode_workers" FULL "2\n");
    assert_lines(cluster, "full", "x_pd_ratio", "x_pd_ratio" FULL "0.5\n");
    assert_lines(cluster, "role", "x_decode_workers", "");

    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK); /* the other rank lives */
    assert_lines(cluster, "full", "x_decode_workers", "x_decode_workers" FULL "2\n");
    assert_lines(cluster, "full", "x_decode_gone", "x_decode_gone" FULL "0\n");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 1), HUB_OK);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 2), HUB_OK);
    assert_lines(cluster, "full", "x_decode_workers", "x_decode_workers" FULL "0\n");
    assert_lines(cluster, "full", "x_decode_gone", "x_decode_gone" FULL "2\n");
    assert_lines(cluster, "full", "x_pd_ratio", "");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 2), HUB_OK);
    assert_lines(cluster, "full", "x_decode_gone", "x_decode_gone" FULL "1\n");
}

static void an_engine_that_restarts_is_one_worker(void **state)
{
    struct cluster *cluster = *state;
    const char *source = "service_name=s,job_name=d0,dp_rank=0";
    cluster_add(cluster, &cluster->session, 0, 1, source, "model_name=m,role=decode,instance_id=1");
    cluster_done(cluster, 0, 1, 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    cluster_add(cluster, &cluster->session, 1, 2, source, "model_name=m,role=decode,instance_id=2");
    cluster_done(cluster, 1, 1, 1);
    assert_lines(cluster, "full", "x_decode_workers", "x_decode_workers" FULL "1\n");
    assert_lines(cluster, "full", "x_decode_gone", "x_decode_gone" FULL "0\n");
}

static void expected_workers_can_be_said(void **state)
{
    (void) state;
    open_with("decode=5,other/decode=9,s/decode=3");
    cluster_join(&computing.cluster);
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(&computing.cluster, i, 1, 1);
    assert_lines(&computing.cluster, "full", "x_decode_workers", "x_decode_workers" FULL "1\n"); /* j1, of two ranks */
    assert_lines(&computing.cluster, "full", "x_decode_gone", "x_decode_gone" FULL "2\n");
    close_computing(NULL);
    static const char *const bad[] = {"decode",
                                      "=2",
                                      "decode=",
                                      "decode=-1",
                                      "decode=x",
                                      "s/=1",
                                      "decode=99999",
                                      "decode=1,decode=2",
                                      "s/decode=1,a=1,s/decode=1"};
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        struct hub_expectations expectations;
        struct sb_err err = {.text = ""};
        assert_int_equal(hub_expectations_parse(&expectations, bad[i], &err), SB_INVAL);
        assert_non_null(strstr(err.text, bad[i]));
    }
}

static void mistakes_are_told_with_their_line(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"version: 2\ncomputed: {}\n", "c.yaml:1: version must be 1"},
        {"version: 1\ncomputed:\n  a: {phase: before_aggregation, help: h}\n", "c.yaml:3: 'x_a' needs a type"},
        {"version: 1\ncomputed:\n  a: {type: counter_rate, phase: after_aggregation, sources: [b], help: h}\n",
         "c.yaml:3: 'x_a' needs the phase of counter_rate: before_aggregation"},
        {"version: 1\ncomputed:\n  a: {type: counter_rate, phase: before_aggregation, help: h}\n",
         "c.yaml:3: 'x_a': counter_rate has families as sources"},
        {"version: 1\ncomputed:\n  a: {type: counter_rate, phase: before_aggregation, sources: [c:running], help: h}\n",
         "c.yaml:3: 'x_a': c:running is a gauge, and counter_rate takes a counter"},
        {"version: 1\ncomputed:\n  a: {type: worker_count, phase: after_aggregation, sources: [b], help: h}\n",
         "c.yaml:3: 'x_a': worker_count has no sources"},
        {"version: 1\ncomputed:\n  a: {type: pd_ratio, phase: after_aggregation, roles: [b], help: h}\n",
         "c.yaml:3: 'x_a': pd_ratio takes 2 to 2 roles"},
        {"version: 1\ncomputed:\n  a: {type: worker_count, phase: after_aggregation, roles: [b, c, b], help: h}\n",
         "c.yaml:3: roles has 'b' twice"},
        {"version: 1\ncomputed:\n  a: {type: counter_rate, phase: before_aggregation, sources: [c:done, "
         "c:done_total], help: h}\n",
         "c.yaml:3: sources has 'c:done_total' twice"},
        {"version: 1\ncomputed:\n  a: {type: capacity_demand, phase: after_aggregation, roles: [b], sources: [c:done], "
         "backlog: [c:running, c:hits], help: h}\n",
         "c.yaml:3: 'x_a': c:hits_total is a counter, and capacity_demand takes a gauge"},
        {"version: 1\ncomputed:\n  a: {type: worker_count, phase: after_aggregation, state: asleep, help: h}\n",
         "c.yaml:3: state is active or inactive"},
        {"version: 1\ncomputed:\n  a b: {type: worker_count, phase: after_aggregation, help: h}\n",
         "c.yaml:3: 'x_a b' is not a metric name"},
        {"version: 1\ncomputed:\n  a: {type: worker_count, phase: after_aggregation}\n", "c.yaml:3:"},
        {"version: 1\ncomputed:\n  a: {type: worker_count, phase: after_aggregation, halp: h}\n", "c.yaml:3:"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_computed_specs specs = {.prefix = "x_"};
        struct sb_err err = {.text = ""};
        sb_arena_init(&specs.arena);
        assert_int_equal(read_metrics(&specs, cases[i].text, computing.cluster.catalog, &err), SB_FORMAT);
        assert_memory_equal(err.text, cases[i].reason, strlen(cases[i].reason));
        hub_computed_specs_release(&specs);
    }
}

static void a_name_that_is_taken_ends_the_start(void **state)
{
    struct cluster *cluster = *state;
    static const char *const names[] = {"done_total", "hit_rate", "wait_seconds_p50", "running"};
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "version: 1\ncomputed:\n  %s: {type: worker_count, phase: after_aggregation, help: h}\n", names[i]);
        struct hub_computed_specs specs = {.prefix = "c:"};
        struct hub_computed computed = {.n_series = 0};
        const struct hub_expectations none = {.n = 0};
        struct sb_err err = {.text = ""};
        sb_arena_init(&specs.arena);
        assert_int_equal(read_metrics(&specs, text, cluster->catalog, &err), SB_OK);
        assert_int_equal(hub_computed_init(&computed, &specs, &none, RATE_WINDOW_MS, &cluster->world.store.index, &err),
                         SB_INVAL);
        assert_memory_equal(err.text, "c.yaml:3: ", strlen("c.yaml:3: "));
        hub_computed_release(&computed);
        hub_computed_specs_release(&specs);
    }
}

static void the_built_in_metrics_are_those_of_pymotor(void **state)
{
    struct cluster *cluster = *state;
    static const char *const names[] = {"motor:prompt_tokens_per_second",
                                        "motor:generation_tokens_per_second",
                                        "motor:request_rate",
                                        "motor:active_prefill_workers",
                                        "motor:active_decode_workers",
                                        "motor:inactive_prefill_workers",
                                        "motor:inactive_decode_workers",
                                        "motor:pd_ratio_current"};
    struct hub_computed_specs specs;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_computed_specs_load(&specs, "", "motor:", false, cluster->catalog, &err), SB_OK);
    assert_int_equal(specs.n, SB_COUNT(names));
    for (size_t i = 0; i < SB_COUNT(names); i++)
        assert_string_equal(specs.at[i].name, names[i]);
    hub_computed_specs_release(&specs);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_computing, close_computing)
    const struct CMUnitTest tests[] = {
        TEST(a_restart_neither_drops_the_counter_nor_the_rate),
        TEST(rates_add_up_in_rows_and_count_the_roles_that_are_named),
        TEST(what_does_not_live_has_no_rate),
        TEST(what_came_unseen_makes_no_rate),
        TEST(gauges_are_summed_over_roles_in_whole_services),
        TEST(a_worker_is_an_engine_with_all_of_its_ranks),
        TEST(an_engine_that_restarts_is_one_worker),
        cmocka_unit_test(expected_workers_can_be_said),
        TEST(mistakes_are_told_with_their_line),
        TEST(a_name_that_is_taken_ends_the_start),
        TEST(the_built_in_metrics_are_those_of_pymotor),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
