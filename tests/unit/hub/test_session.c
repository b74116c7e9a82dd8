#include "session_test.h"

static void hello_is_answered_with_the_highest_generation(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_int_equal(send_frame(world, &session, (struct test_frame){.number = 1, .generation = 41}), HUB_OK);
    assert_int_equal(send_frame(world, &session, (struct test_frame){.number = 2, .generation = 17}), HUB_OK);

    struct hub_session next;
    hub_session_init(&next, &world->store, ++world->last_serial, world->now_ms);
    pack_hello(world, 'a', 3);
    assert_int_equal(deliver(world, &next), HUB_OK);
    struct sb_mp at = sb_mp_over(world->answer.data, world->answer.len);
    uint32_t n;
    struct sb_slice type;
    struct sb_slice id;
    uint64_t version;
    uint64_t generation;
    bool is_closed;
    assert_true(sb_mp_array(&at, &n) && n == 5);
    assert_true(sb_mp_str(&at, &type) && sb_slice_is(type, "WELCOME"));
    assert_true(sb_mp_uint(&at, &version) && version == 1);
    assert_true(sb_mp_bin(&at, &id) && id.len == HUB_ID_BYTES && memcmp(id.at, test_hub_id, id.len) == 0);
    assert_true(sb_mp_uint(&at, &generation) && generation == 41);
    assert_true(sb_mp_bool(&at, &is_closed) && !is_closed);
    hub_session_release(&session);
    hub_session_release(&next);
}

static void a_session_starts_with_one_hello_of_this_version(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    hub_session_init(&session, &world->store, ++world->last_serial, world->now_ms);
    begin(world, 1, "FRAME");
    assert_int_equal(deliver(world, &session), HUB_REFUSAL_no_session);
    struct sb_buf *buf = begin(world, 2, "HELLO");
    sb_mp_put_uint(buf, 2);
    assert_int_equal(deliver(world, &session), HUB_REFUSAL_version);
    pack_hello(world, 'a', 0);
    assert_int_equal(deliver(world, &session), HUB_OK);
    assert_int_equal(deliver(world, &session), HUB_REFUSAL_again);
    hub_session_release(&session);
    assert_int_equal(world->store.lineages.n, 0); /* it sent nothing: nothing is kept of it */
}

static void an_older_session_of_a_lineage_is_over_when_a_new_one_begins(void **state)
{
    struct world *world = *state;
    struct hub_session old;
    struct hub_session new;
    join(world, &old, 'a', 1);
    join(world, &new, 'a', 1);
    assert_int_equal(send_frame(world, &old, (struct test_frame){.number = 1}), HUB_REFUSAL_replaced);
    hub_session_release(&old);
    assert_int_equal(send_frame(world, &new, (struct test_frame){.number = 1}), HUB_OK);
    hub_session_release(&new);
}

static void unknown_types_and_trailing_elements_are_skipped_and_counted(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    begin(world, 1, "SING");
    assert_int_equal(deliver(world, &session), HUB_OK);
    assert_int_equal(world->counters.skipped_messages, 1);

    struct sb_buf *buf = begin(world, 6, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    sb_mp_put_array(buf, 4);
    sb_mp_put_uint(buf, C_NEXT);
    sb_mp_put_uint(buf, 0);
    put_labels(buf, "a=b");
    sb_mp_put_str(buf, "new");
    sb_mp_put_array(buf, 0);
    sb_mp_put_nil(buf);
    sb_mp_put_nil(buf);
    assert_int_equal(deliver(world, &session), HUB_OK);
    assert_int_equal(world->counters.skipped_elements, 3);
    hub_session_release(&session);
}

static void cells_keep_the_maximum_whatever_order_frames_come_in(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    static const struct {
        uint64_t number;
        double tokens;
        double running;
        double shown_tokens;
        double shown_running;
        uint64_t acked;
    } steps[] = {
        {1, 10, 1, 10, 1, 1}, /* in order */
        {1, 10, 9, 10, 1, 1}, /* again: its gauges are not taken */
        {3, 30, 3, 30, 3, 1}, /* early */
        {2, 20, 2, 30, 3, 3}, /* late: closes the gap, changes nothing else */
        {4, 25, 4, 30, 4, 4}, /* a lower count never wins */
    };
    for (size_t i = 0; i < SB_COUNT(steps); i++) {
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = steps[i].number,
                                                        .n_gauges = 1,
                                                        .gauges = {{C_RUNNING, steps[i].running}},
                                                        .n_cells = 1,
                                                        .cells = {{C_TOKENS, steps[i].tokens}}}),
                         HUB_OK);
        const struct hub_contribution *only = hub_store_find(&world->store, session.lineage, 1);
        assert_number(cell_of(world, &session, 1, "t:tokens_total", 0), steps[i].shown_tokens);
        assert_number(gauge_of(only, world, "t:running"), steps[i].shown_running);
        assert_int_equal(acked(world, &session), steps[i].acked);
    }
    assert_int_equal(world->counters.late_frames, 2);
    hub_session_release(&session);
}

static void an_ack_before_any_frame_says_0(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_int_equal(acked(world, &session), 0);
    begin(world, 1, "FRAME");
    assert_int_equal(deliver(world, &session), HUB_OK);
    assert_int_equal(acked(world, &session), 0);
    hub_session_release(&session);
}

static void zero_is_a_value_and_minus_zero_is_zero(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_number(cell_of(world, &session, 1, "t:tokens_total", 0), -1);
    assert_int_equal(
        send_frame(world, &session, (struct test_frame){.number = 1, .n_cells = 1, .cells = {{C_TOKENS, -0.0}}}),
        HUB_OK);
    assert_number(cell_of(world, &session, 1, "t:tokens_total", 0), 0);
    hub_session_release(&session);
}

static void gauges_of_a_frame_replace_all_before(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_int_equal(send_frame(world, &session,
                                (struct test_frame){
                                    .number = 1,
                                    .n_gauges = 3,
                                    .gauges = {{C_RUNNING, 1}, {C_USAGE, 2}, {C_HOT, 3}},
                                }),
                     HUB_OK);
    /* The same series in another order, twice, and fewer. */
    assert_int_equal(send_frame(world, &session,
                                (struct test_frame){
                                    .number = 2,
                                    .n_gauges = 3,
                                    .gauges = {{C_HOT, 5}, {C_RUNNING, 4}, {C_HOT, 5}},
                                }),
                     HUB_OK);
    const struct hub_contribution *only = hub_store_find(&world->store, session.lineage, 1);
    assert_int_equal(only->values.n_gauges, 2);
    assert_number(gauge_of(only, world, "t:running"), 4);
    assert_number(gauge_of(only, world, "t:hot"), 5);
    assert_number(gauge_of(only, world, "t:usage"), -1);
    hub_session_release(&session);
}

static void end_and_frames_that_are_not_live_take_gauges_away(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = i + 1,
                                                        .contribution = i,
                                                        .n_gauges = 1,
                                                        .gauges = {{C_RUNNING, 1}},
                                                        .n_cells = 1,
                                                        .cells = {{C_TOKENS, 5}}}),
                         HUB_OK);
    struct sb_buf *buf = begin(world, 2, "END");
    sb_mp_put_array(buf, 1);
    sb_mp_put_uint(buf, 0);
    assert_int_equal(deliver(world, &session), HUB_OK);
    assert_int_equal(send_frame(world, &session, (struct test_frame){.number = 3, .contribution = 1, .is_dead = true}),
                     HUB_OK);
    assert_scrape(world, "full",
                  "# TYPE t:tokens_total counter\nt:tokens_total{model_name=\"m\",service_name=\"s\"} 10\n");
    assert_true(hub_store_find(&world->store, session.lineage, 1)->is_ended);
    assert_false(hub_store_find(&world->store, session.lineage, 2)->is_ended);
    hub_session_release(&session);
}

/* Case 9. */
static void of_names_that_clash_the_catalogs_wins_else_the_first(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    static const double bounds[] = {1};
    join(world, &session, 'a', 1);
    static const struct {
        const char *name;
        const char *type;
        bool is_kept;
    } steps[] = {
        {"t:wait_seconds_count", "gauge", false},      /* a line of the catalog's histogram */
        {"t:wait_seconds_count", "counter", false},    /* the same, in OpenMetrics */
        {"t:tokens", "gauge", false},                  /* the catalog's counter, in OpenMetrics */
        {"t:running", "counter", false},               /* exposed as t:running_total, in OpenMetrics t:running */
        {"x", "histogram", true},                      /* the first */
        {"x_count", "gauge", false},                   /* the second */
        {"x", "gauge", false},                         /* another type */
        {"iteration_tokens_total", "histogram", true}, /* not a counter, whatever its name */
        {"statsbus_hub_agents", "gauge", false},       /* ours */
    };
    uint64_t refused = 0;
    for (uint32_t i = 0; i < SB_COUNT(steps); i++) {
        bool is_histogram = strcmp(steps[i].type, "histogram") == 0;
        define_family(world, &session, F_NEXT + i, steps[i].name, steps[i].type, is_histogram ? bounds : NULL, 1,
                      C_NEXT + 3 * i, "");
        uint64_t now = 0;
        size_t at = 0;
        for (const struct hub_clash *clash; (clash = hub_table_next(&world->store.index.clashes, &at)) != NULL;)
            now += clash->count;
        if ((now == refused) != steps[i].is_kept)
            fail_msg("%s %s", steps[i].type, steps[i].name);
        refused = now;
    }
    /* Values of refused ones are dropped; the rest of the message lives. */
    assert_int_equal(send_frame(world, &session,
                                (struct test_frame){.number = 1,
                                                    .n_gauges = 2,
                                                    .gauges = {{C_NEXT, 7}, {C_RUNNING, 1}},
                                                    .n_cells = 3,
                                                    .cells = {{C_NEXT + 3, 9}, {C_NEXT + 12, 5}, {C_TOKENS, 5}}}),
                     HUB_OK);
    assert_scrape(world, "full",
                  "# TYPE t:running gauge\n"
                  "t:running{model_name=\"m\",service_name=\"s\"} 1\n"
                  "# TYPE t:tokens_total counter\n"
                  "t:tokens_total{model_name=\"m\",service_name=\"s\"} 5\n"
                  "# TYPE x histogram\n"
                  "x_bucket{model_name=\"m\",service_name=\"s\",le=\"1.0\"} 5\n"
                  "x_bucket{model_name=\"m\",service_name=\"s\",le=\"+Inf\"} 5\n"
                  "x_sum{model_name=\"m\",service_name=\"s\"} 0\n"
                  "x_count{model_name=\"m\",service_name=\"s\"} 5\n");
    hub_session_release(&session);
}

static void contributions_over_the_limit_are_dropped_and_the_rest_lives(void **state)
{
    (void) state;
    struct world world;
    struct hub_session session;
    world_open_with(&world, (struct hub_store_limits){.contributions = 2, .row_bytes = 1 << 20});
    join(&world, &session, 'a', 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(
            send_frame(&world, &session,
                       (struct test_frame){.number = i + 1, .contribution = i, .n_cells = 1, .cells = {{C_TOKENS, 1}}}),
            HUB_OK);
    assert_int_equal(world.counters.limits[HUB_LIMIT_contributions], 1);
    assert_int_equal(world.counters.dropped_frames, 1);
    assert_int_equal(acked(&world, &session), 3);
    assert_scrape(&world, "full",
                  "# TYPE t:tokens_total counter\nt:tokens_total{model_name=\"m\",service_name=\"s\"} 2\n");
    hub_session_release(&session);
    world_close(&world);
}

static void a_frame_over_the_memory_limit_loses_what_is_new_and_the_session_lives(void **state)
{
    (void) state;
    struct world world;
    struct hub_session session;
    world_open_with(&world, (struct hub_store_limits){.contributions = 10, .row_bytes = 600});
    join(&world, &session, 'a', 3);
    struct test_frame frame = {.number = 1, .n_cells = 1, .cells = {{C_TOKENS, 1}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    frame = (struct test_frame){.number = 2, .contribution = 1, .n_cells = 1, .cells = {{C_TOKENS, 1}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    frame = (struct test_frame){.number = 3, .contribution = 2, .n_cells = 1, .cells = {{C_TOKENS, 1}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    assert_int_equal(world.counters.limits[HUB_LIMIT_memory], 1);
    assert_true(cell_of(&world, &session, 3, "t:tokens_total", 0) == -1); /* no value */

    /* Contributions that have their place go on, with all that has one. */
    frame = (struct test_frame){.number = 4, .n_cells = 1, .cells = {{C_TOKENS, 5}}};
    assert_int_equal(send_frame(&world, &session, frame), HUB_OK);
    assert_true(cell_of(&world, &session, 1, "t:tokens_total", 0) == 5);
    assert_int_equal(acked(&world, &session), 4);
    hub_session_release(&session);
    world_close(&world);
}

static void lineages_go_with_the_last_session_that_holds_them(void **state)
{
    struct world *world = *state;
    struct hub_session old, young;
    greet(world, &old, 'a');
    greet(world, &young, 'a');
    hub_session_release(&young); /* the one that spoke for it: the other still holds it */
    assert_int_equal(world->store.lineages.n, 1);
    assert_int_equal(send_frame(world, &old, (struct test_frame){.number = 1}), HUB_REFUSAL_replaced);
    hub_session_release(&old);
    assert_int_equal(world->store.lineages.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(hello_is_answered_with_the_highest_generation),
        CASE(a_session_starts_with_one_hello_of_this_version),
        CASE(an_older_session_of_a_lineage_is_over_when_a_new_one_begins),
        CASE(unknown_types_and_trailing_elements_are_skipped_and_counted),
        CASE(cells_keep_the_maximum_whatever_order_frames_come_in),
        CASE(an_ack_before_any_frame_says_0),
        CASE(zero_is_a_value_and_minus_zero_is_zero),
        CASE(gauges_of_a_frame_replace_all_before),
        CASE(end_and_frames_that_are_not_live_take_gauges_away),
        CASE(of_names_that_clash_the_catalogs_wins_else_the_first),
        cmocka_unit_test(contributions_over_the_limit_are_dropped_and_the_rest_lives),
        cmocka_unit_test(a_frame_over_the_memory_limit_loses_what_is_new_and_the_session_lives),
        CASE(lineages_go_with_the_last_session_that_holds_them),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
