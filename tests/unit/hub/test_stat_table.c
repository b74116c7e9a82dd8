/* The table of statistics in the log: a line for each service, model, stage, role and node. */
#include "cluster_test.h"
#include "hub/stat_table.h"

static struct world world;
static struct hub_session session;
static struct hub_stat_table table;
static uint64_t n_frames;
static char said[8192];
static uint32_t n_said, n_left_out;

enum { PROMPT, GENERATED, RUNNING, USAGE, HITS, LOOKS };

static void say(void *arg, const struct sb_labelset *labels, uint32_t n_sources, const char *text)
{
    (void) arg;
    const size_t len = strlen(said);
    n_said++;
    n_left_out = labels ? 0 : n_sources;
    if (len < sizeof said / 2)
        snprintf(said + len, sizeof said - len, "%s%s%u %s\n", labels ? labels->text : "left out", " ", n_sources,
                 text);
}

static int open_world(void **state)
{
    (void) state;
    static const char *const families[] = {"vllm:prompt_tokens_total",     "vllm:generation_tokens_total",
                                           "vllm:num_requests_running",    "vllm:kv_cache_usage_perc",
                                           "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"};
    world_open_on(
        &world, &test_catalog, NULL,
        (struct hub_store_limits){.contributions = 1000, .row_bytes = 64 * 1024 * 1024, .linger_ms = TEST_LINGER_MS});
    greet(&world, &session, 'a');
    struct sb_buf *buf = begin(&world, 4, "DEFINE");
    sb_mp_put_array(buf, SB_COUNT(families));
    for (uint32_t i = 0; i < SB_COUNT(families); i++)
        put_family(buf, i, families[i], i == RUNNING || i == USAGE ? "gauge" : "counter", NULL, 0);
    sb_mp_put_array(buf, SB_COUNT(families));
    for (uint32_t i = 0; i < SB_COUNT(families); i++)
        put_series(buf, i, i, "");
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(&world, &session), HUB_OK);
    hub_stat_table_init(&table, 10000, say, NULL);
    n_frames = 0;
    return 0;
}

static int close_world(void **state)
{
    (void) state;
    hub_stat_table_release(&table, &world.store);
    hub_session_release(&session);
    world_close(&world);
    return 0;
}

static void add(uint32_t id, const char *place)
{
    char source[64], identity[128];
    snprintf(source, sizeof source, "service_name=s,job_name=j,dp_rank=%u", id);
    snprintf(identity, sizeof identity, "model_name=m,%s", place);
    struct sb_buf *buf = begin(&world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, id, id + 1, "engine", source, identity);
    assert_int_equal(deliver(&world, &session), HUB_OK);
}

static void send(uint32_t id, double prompt, double running, double usage)
{
    const struct test_frame frame = {.number = ++n_frames,
                                     .contribution = id,
                                     .n_gauges = 2,
                                     .gauges = {{RUNNING, running}, {USAGE, usage}},
                                     .n_cells = 1,
                                     .cells = {{PROMPT, prompt}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
}

/* What is said when so much time has gone by. */
static const char *after(int64_t ms)
{
    said[0] = '\0';
    n_said = 0;
    world.now_ms += ms;
    hub_stat_table_begin(&table, &world.store, world.now_ms);
    while (hub_stat_table_go_on(&table, &world.store)) {
    }
    return said;
}

#define ROW(role, node, n) "model_name=\"m\",node=\"" node "\",role=\"" role "\",service_name=\"s\" " n " "
#define REST " prefix_hit_rate=- acceptance_rate=-\n"

static void a_row_adds_up_what_its_sources_did_since_the_table_before(void **state)
{
    (void) state;
    add(0, "role=decode,node=a");
    add(1, "role=decode,node=a");
    add(2, "role=decode,node=b");
    send(0, 1000, 1, 0.25);
    send(1, 2000, 2, 0.75);
    send(2, 4000, 0, 0);
    assert_string_equal(
        after(0),
        ROW("decode", "a", "2") "prompt_tokens_per_s=- generation_tokens_per_s=- running=3 waiting=- "
                                "kv_cache_usage=0.500" REST ROW(
                                    "decode", "b",
                                    "1") "prompt_tokens_per_s=- generation_tokens_per_s=- running=0 waiting=- "
                                         "kv_cache_usage=0.000" REST);
    send(0, 1100, 1, 0.25);
    send(1, 2050, 0, 0.25);
    assert_string_equal(after(9999), "");
    assert_string_equal(
        after(1),
        ROW("decode", "a", "2") "prompt_tokens_per_s=15.0 generation_tokens_per_s=- running=1 waiting=- "
                                "kv_cache_usage=0.250" REST ROW(
                                    "decode", "b",
                                    "1") "prompt_tokens_per_s=0.0 generation_tokens_per_s=- running=0 waiting=- "
                                         "kv_cache_usage=0.000" REST);
}

static void a_share_is_of_what_was_counted_between_two_tables(void **state)
{
    (void) state;
    add(0, "stage=0");
    struct test_frame frame = {
        .number = ++n_frames, .contribution = 0, .n_cells = 2, .cells = {{HITS, 90}, {LOOKS, 100}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    after(0);
    frame.number = ++n_frames;
    frame.cells[0].value = 91;
    frame.cells[1].value = 104;
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    assert_non_null(strstr(after(10000), "stage=\"0\" 1 prompt_tokens_per_s=- generation_tokens_per_s=- running=- "
                                         "waiting=- kv_cache_usage=- prefix_hit_rate=0.250 "));
}

static void a_source_that_came_meanwhile_and_one_that_went_make_no_false_rate(void **state)
{
    (void) state;
    add(0, "node=a");
    send(0, 1000, 1, 0.5);
    after(0);
    add(1, "node=a");
    send(1, 1000000, 1, 0.5); /* who knows when it counted that */
    send(0, 1010, 1, 0.5);
    assert_non_null(strstr(after(10000), "\"s\" 2 prompt_tokens_per_s=1.0 generation_tokens_per_s=- running=2 "));
    struct sb_buf *buf = begin(&world, 2, "END");
    sb_mp_put_array(buf, 1);
    sb_mp_put_uint(buf, 1);
    assert_int_equal(deliver(&world, &session), HUB_OK);
    send(0, 1030, 1, 0.5);
    assert_non_null(strstr(after(10000), "\"s\" 1 prompt_tokens_per_s=2.0 generation_tokens_per_s=- running=1 "));
}

static void rows_over_the_limit_are_counted_and_off_means_off(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < HUB_STAT_ROWS_MAX + 3; i++) {
        char node[32];
        snprintf(node, sizeof node, "node=n%u", i);
        add(i, node);
        send(i, 1, 1, 0);
    }
    after(0);
    assert_int_equal(n_said, HUB_STAT_ROWS_MAX + 1);
    assert_int_equal(n_left_out, 3);
    table.period_ms = 0;
    assert_string_equal(after(3600 * 1000), "");
}

static void many_sources_are_gone_through_in_pieces(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < HUB_STAT_ROWS_MAX + 3; i++) {
        char node[32];
        snprintf(node, sizeof node, "node=n%u", i);
        add(i, node);
        send(i, 1, 1, 0);
    }
    world.now_ms += 1;
    hub_stat_table_begin(&table, &world.store, world.now_ms);
    assert_true(hub_stat_table_go_on(&table, &world.store)); /* 256 sources are a piece */
    assert_false(hub_stat_table_go_on(&table, &world.store));
    assert_false(hub_stat_table_go_on(&table, &world.store));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        TEST(a_row_adds_up_what_its_sources_did_since_the_table_before),
        TEST(a_share_is_of_what_was_counted_between_two_tables),
        TEST(a_source_that_came_meanwhile_and_one_that_went_make_no_false_rate),
        TEST(rows_over_the_limit_are_counted_and_off_means_off),
        TEST(many_sources_are_gone_through_in_pieces),
    };
#undef TEST
    return cmocka_run_group_tests_name("stat_table", tests, NULL, NULL);
}
