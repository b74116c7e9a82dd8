#include "hub_test.h"

enum { TIMEOUT_MS = 15000 };

#define ROW "model_name=\"m\",service_name=\"s\""
#define TOKENS(n) "# TYPE t:tokens_total counter\nt:tokens_total{" ROW "} " #n "\n"
#define RUNNING(n) "# TYPE t:running gauge\nt:running{" ROW "} " #n "\n"

static int open_world(void **state)
{
    static struct world world;
    world_open(&world);
    *state = &world;
    return 0;
}

static int close_world(void **state)
{
    world_close(*state);
    return 0;
}

static void send_both(struct world *world, struct hub_session *session, uint64_t number, uint64_t age_ms,
                      double running, double tokens)
{
    assert_int_equal(send_frame(world, session,
                                (struct test_frame){.number = number,
                                                    .age_ms = age_ms,
                                                    .n_gauges = 1,
                                                    .gauges = {{C_RUNNING, running}},
                                                    .n_cells = 1,
                                                    .cells = {{C_TOKENS, tokens}}}),
                     HUB_OK);
}

static void heartbeat(struct world *world, struct hub_session *session)
{
    begin(world, 1, "FRAME");
    assert_int_equal(deliver(world, session), HUB_OK);
}

static void of_two_lineages_the_youngest_gauges_are_shown_and_counters_add_up(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    struct hub_session b;
    join(world, &a, 'a', 1);
    join(world, &b, 'b', 1);
    send_both(world, &a, 1, 0, 3, 10);
    send_both(world, &b, 1, 500, 7, 5); /* arrives later and is older */
    assert_scrape(world, "full", RUNNING(3) TOKENS(15));

    world->now_ms += 600;
    send_both(world, &b, 2, 0, 8, 5);
    assert_scrape(world, "full", RUNNING(8) TOKENS(15));

    /* The youngest dies: the other one's are shown again. */
    assert_int_equal(send_frame(world, &b, (struct test_frame){.number = 3, .is_dead = true}), HUB_OK);
    assert_scrape(world, "full", RUNNING(3) TOKENS(15));
    hub_session_release(&a);
    hub_session_release(&b);
}

/* An API server that never has the scheduler's snapshot, but what exists from the start: zeros. */
static void gauges_without_a_snapshot_give_way_to_any_snapshot(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    struct hub_session b;
    join(world, &a, 'a', 1);
    join(world, &b, 'b', 1);
    struct test_frame from_the_start = {
        .number = 1, .has_no_snapshot = true, .n_gauges = 1, .gauges = {{C_RUNNING, 0}}};
    assert_int_equal(send_frame(world, &b, from_the_start), HUB_OK);
    assert_scrape(world, "full", RUNNING(0));
    send_both(world, &a, 1, 900, 42, 10);
    from_the_start.number = 2;
    assert_int_equal(send_frame(world, &b, from_the_start), HUB_OK);
    assert_scrape(world, "full", RUNNING(42) TOKENS(10));
    hub_session_release(&a);
    hub_session_release(&b);
}

static void a_mean_counts_each_source_once(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    struct hub_session b;
    join(world, &a, 'a', 2);
    join(world, &b, 'b', 1);
    static const double usage[] = {0.5, 0.25};
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            send_frame(world, &a,
                       (struct test_frame){
                           .number = i + 1, .contribution = i, .n_gauges = 1, .gauges = {{C_USAGE, usage[i]}}}),
            HUB_OK);
    world->now_ms += 1;
    assert_int_equal(send_frame(world, &b, (struct test_frame){.number = 1, .n_gauges = 1, .gauges = {{C_USAGE, 1}}}),
                     HUB_OK);
    assert_scrape(world, "full", "# TYPE t:usage gauge\nt:usage{" ROW "} 0.625\n");
    hub_session_release(&a);
    hub_session_release(&b);
}

static void a_live_frame_without_gauges_shows_none_of_its_own(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 1);
    send_both(world, &a, 1, 0, 3, 10);
    assert_int_equal(send_frame(world, &a, (struct test_frame){.number = 2}), HUB_OK);
    assert_scrape(world, "full", TOKENS(10));
    hub_session_release(&a);
}

static void a_silent_agent_loses_all_gauges_and_no_counter(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    struct hub_session b;
    join(world, &a, 'a', 1);
    join(world, &b, 'b', 2);
    send_both(world, &a, 1, 0, 3, 10);
    assert_int_equal(send_frame(world, &b,
                                (struct test_frame){.number = 1,
                                                    .contribution = 1,
                                                    .n_gauges = 2,
                                                    .gauges = {{C_RUNNING, 4}, {C_INFO_A, 1}},
                                                    .n_cells = 1,
                                                    .cells = {{C_TOKENS, 1}}}),
                     HUB_OK);
    world->now_ms += TIMEOUT_MS - 1;
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", "# TYPE t:info gauge\nt:info{" ROW ",what=\"a\"} 1\n" RUNNING(7) TOKENS(11));
    heartbeat(world, &a);
    world->now_ms += 1;
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", RUNNING(3) TOKENS(11));
    hub_session_release(&a);
    hub_session_release(&b);
}

static void a_new_session_of_a_lineage_changes_nothing_until_it_sends(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 1);
    send_both(world, &a, 1, 0, 3, 10);
    hub_session_release(&a);
    assert_scrape(world, "full", RUNNING(3) TOKENS(10));
    world->now_ms += 5000;
    join(world, &a, 'a', 1);
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", RUNNING(3) TOKENS(10));
    send_both(world, &a, 1, 0, 4, 11);
    assert_scrape(world, "full", RUNNING(4) TOKENS(11));
    hub_session_release(&a);
}

static void what_a_new_session_leaves_out_is_buried_after_the_timeout(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 1);
    send_both(world, &a, 1, 0, 3, 10);
    hub_session_release(&a);
    join(world, &a, 'a', 0);
    world->now_ms += TIMEOUT_MS - 1;
    heartbeat(world, &a);
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", RUNNING(3) TOKENS(10));
    world->now_ms += 1;
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", TOKENS(10));
    hub_session_release(&a);
}

static void a_lineage_that_ended_its_session_goes_stale_by_time_alone(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 1);
    send_both(world, &a, 1, 0, 3, 10);
    hub_session_release(&a);
    world->now_ms += TIMEOUT_MS;
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_scrape(world, "full", TOKENS(10));
    assert_int_equal(world->store.lineages.n, 1);
}

/* Case 7, second half: the row of the new instance is its own in dp, totals of full go on. */
static void a_restarted_engine_goes_on_from_the_old_totals(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 1);
    send_both(world, &a, 1, 0, 3, 10);
    struct sb_buf *buf = begin(world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, 1, 2, "engine", "service_name=s,job_name=j,dp_rank=0",
                     "model_name=m,role=both,instance_id=i-2");
    assert_int_equal(deliver(world, &a), HUB_OK);
    world->now_ms += 100;
    assert_int_equal(send_frame(world, &a,
                                (struct test_frame){.number = 2,
                                                    .contribution = 1,
                                                    .n_gauges = 1,
                                                    .gauges = {{C_RUNNING, 1}},
                                                    .n_cells = 1,
                                                    .cells = {{C_TOKENS, 2}}}),
                     HUB_OK);
    assert_scrape(world, "full", RUNNING(1) TOKENS(12));
    assert_int_equal(world->store.sources.n, 1);
    hub_session_release(&a);
}

static void what_is_removed_leaves_every_view_and_its_memory(void **state)
{
    struct world *world = *state;
    struct hub_session a;
    join(world, &a, 'a', 2);
    send_both(world, &a, 1, 0, 3, 10);
    struct hub_lineage *lineage = a.lineage;
    hub_session_release(&a);
    hub_store_remove(&world->store, hub_store_find(&world->store, lineage, 1));
    assert_scrape(world, "full", "");
    hub_store_remove(&world->store, hub_store_find(&world->store, lineage, 2));
    world->now_ms += TEST_LINGER_MS; /* which sources are told of for */
    hub_store_sweep(&world->store, world->now_ms, TIMEOUT_MS, INT64_MAX);
    assert_int_equal(world->store.sources.n, 0);
    assert_int_equal(world->store.lineages.n, 0);
    assert_int_equal(world->store.row_bytes, 0);
    assert_int_equal(world->store.views[0].n_groups, 0);
    assert_int_equal(world->store.views[1].n_groups, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        CASE(of_two_lineages_the_youngest_gauges_are_shown_and_counters_add_up),
        CASE(gauges_without_a_snapshot_give_way_to_any_snapshot),
        CASE(a_mean_counts_each_source_once),
        CASE(a_live_frame_without_gauges_shows_none_of_its_own),
        CASE(a_silent_agent_loses_all_gauges_and_no_counter),
        CASE(a_new_session_of_a_lineage_changes_nothing_until_it_sends),
        CASE(what_a_new_session_leaves_out_is_buried_after_the_timeout),
        CASE(a_lineage_that_ended_its_session_goes_stale_by_time_alone),
        CASE(a_restarted_engine_goes_on_from_the_old_totals),
        CASE(what_is_removed_leaves_every_view_and_its_memory),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
