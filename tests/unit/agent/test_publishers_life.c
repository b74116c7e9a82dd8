/* Gauges, and who lives: snapshots under the throttle, several publishers of a source, timeouts, final beats. */
#include "bus.h"

static const char ours[] = "LLLLLLLLLLLLLLLL";

static void step(struct bus *bus, char from, uint64_t number, double time, int running)
{
    char yaml[128];
    snprintf(yaml, sizeof yaml, "[[step, 0, %.3f, {scheduler_stats: {running: %d}}]]", time, running);
    assert_int_equal(bus_say(bus, AGENT_STATS, from, "rec", number, 1, yaml), AGENT_ACCEPTED);
}

/* Case 5. */
static void the_last_snapshot_gets_through_within_a_period_without_another_message(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_hello(bus, 'b', 1, "{index: 0, service_name: s, instance_id: i-2, dp_rank: \"1\"}");
    bus_wait(bus, 2000);
    step(bus, 'a', 1, 1.0, 106);
    bus_wait(bus, 50);
    assert_true(bus_shown(bus, "i-1", "running") == 106); /* at once */
    bus_wait(bus, 50);
    step(bus, 'a', 2, 1.1, 0);
    step(bus, 'b', 1, 1.1, 7);
    bus_wait(bus, 50);
    assert_true(bus_shown(bus, "i-1", "running") == 106);
    assert_true(bus_shown(bus, "i-2", "running") == 7); /* no source waits for another */
    bus_wait(bus, 950);
    assert_true(bus_shown(bus, "i-1", "running") == 0);
}

static void the_clock_of_one_host_orders_snapshots_and_replayed_ones_disturb_nothing(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    step(bus, 'a', 5, 9.0, 5);
    step(bus, 'a', 2, 6.0, 2);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 5);
}

static void a_snapshot_of_the_far_future_is_replaced_once_a_beat_shows_its_publishers_clock(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_hello(bus, 'b', 1, BUS_SOURCE);
    step(bus, 'a', 1, (double) bus->now_ms / 1000 + 59, 1); /* within what a beat may wait in queues */
    bus_beat(bus, 'a', 2, "0", "");
    step(bus, 'a', 2, (double) bus->now_ms / 1000, 2);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 1);
    step(bus, 'a', 3, 1e9, 3);
    bus_beat(bus, 'b', 1, "0", ""); /* another's clock says nothing about it */
    step(bus, 'a', 4, (double) bus->now_ms / 1000, 4);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 3);
    bus_beat(bus, 'a', 5, "0", "");
    assert_int_equal(bus->counters.times_ahead, 1);
    step(bus, 'a', 5, (double) bus->now_ms / 1000, 5);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 5);
}

static const char families[] = ", families: [{name: load, type: gauge}, {name: front, type: gauge, scope: publisher}]";

static double shown_by_front_end(struct bus *bus, const char *family)
{
    const struct agent_series *series = bus_series(bus, family);
    for (uint32_t i = 0; series && i < agent_ledger_n_contributions(bus->ledger); i++) {
        const struct agent_contribution *at = agent_ledger_contribution_at(bus->ledger, i);
        for (uint32_t k = 0; at && at->is_front_end && k < at->n_shown; k++)
            if (at->shown_cells[k] == series->first)
                return at->shown_values[k];
    }
    return -1;
}

static void gauges_of_the_front_end_come_back_with_the_hello_as_others_do(void **state)
{
    struct bus *bus = *state;
    char more[256];
    snprintf(more, sizeof more, "%s, latest: [[1, obs, null, 1.0, [[load, null, 5], [front, null, 6]]]]", families);
    assert_int_equal(bus_hello_marked(bus, 'a', 2, BUS_SOURCE, more, NULL, NULL, 0), AGENT_ACCEPTED);
    bus_wait(bus, 50);
    assert_true(bus_shown(bus, "i-1", "load") == 5);
    assert_true(shown_by_front_end(bus, "front") == 6);
}

static void what_no_source_is_named_for_is_told_once_though_all_get_it(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE ", {index: 1, service_name: s, instance_id: i-2, dp_rank: \"1\"}");
    assert_int_equal(
        bus_say(bus, AGENT_STATS, 'a', "rec", 1, 1, "[[obs, null, 1.0, [[nobody, null, 1], [n_total, null, 2]]]]"),
        AGENT_ACCEPTED);
    assert_int_equal(agent_ledger_counters(bus->ledger)->unknown_families, 1);
    assert_true(bus_counter(bus, "i-1", "n_total") == 2);
    assert_true(bus_counter(bus, "i-2", "n_total") == 2);
}

/* 100 sources, and records for all of them which one message of 1 MiB has too many of. */
static void a_message_that_is_for_very_many_sources_is_taken_in_pieces(void **state)
{
    enum { SOURCES = 100, RECORDS = 8, OBSERVATIONS = 2500 };
    struct bus *bus = *state;
    struct sb_buf hello, records;
    sb_buf_init(&hello, 1 << 20);
    sb_buf_init(&records, 1 << 20);
    char text[256];
    snprintf(text, sizeof text, "{publisher: \"%s\", host: h, time: 1.0}", bus_id('a'));
    pack_yaml(&hello, text);
    hello.data[0]++;
    sb_mp_put_str(&hello, "sources");
    sb_mp_put_array(&hello, SOURCES);
    for (int i = 0; i < SOURCES; i++) {
        snprintf(text, sizeof text, "{index: %d, service_name: s, instance_id: i-%d, dp_rank: \"%d\"}", i, i, i);
        pack_yaml(&hello, text);
    }
    assert_int_equal(bus_put(bus, AGENT_STATS, 'a', "hello", 1, 0, hello.data, hello.len), AGENT_ACCEPTED);
    sb_mp_put_array(&records, RECORDS);
    for (int i = 0; i < RECORDS; i++) {
        pack_yaml(&records, "[obs, null, 1.0]");
        records.data[records.len - 1 - 8 - 1 - 4 - 1]++;
        sb_mp_put_array(&records, OBSERVATIONS);
        for (int k = 0; k < OBSERVATIONS; k++)
            pack_yaml(&records, "[n_total, null, 1]");
    }
    assert_int_equal(bus_put(bus, AGENT_STATS, 'a', "rec", 1, RECORDS, records.data, records.len),
                     AGENT_REFUSED_too_wide);
    assert_int_equal(bus->counters.records_applied, 0);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 8");
    assert_int_equal(bus_put(bus, AGENT_REPLAY, 'a', "rec", 1, RECORDS, records.data, records.len),
                     AGENT_REFUSED_too_wide);
    bus_end(bus, 'a', 1, 1, 8);
    assert_string_equal(bus_sent(bus), "a ask 1 4");
    records.data[0] = 0x94;
    assert_int_equal(bus_put(bus, AGENT_REPLAY, 'a', "rec", 1, 4, records.data, 1 + (records.len - 1) / 2),
                     AGENT_ACCEPTED);
    assert_true(bus_counter(bus, "i-99", "n_total") == 4 * OBSERVATIONS);
    assert_int_equal(bus->counters.records_lost, 0);
    sb_buf_release(&hello);
    sb_buf_release(&records);
}

/* Case 10. */
static void two_servers_of_one_engine_add_their_counts_and_share_their_gauges(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_hello(bus, 'b', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    bus_steps(bus, AGENT_STATS, 'b', 1, 4);
    assert_true(bus_counter(bus, "i-1", "n_total") == 7);
    step(bus, 'a', 4, 20.0, 10);
    step(bus, 'b', 5, 20.5, 11);
    step(bus, 'a', 5, 20.2, 12);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 11);
    for (int i = 0; i < 30; i++) { /* a has died, b lives */
        bus_wait(bus, 1000);
        bus_beat(bus, 'b', 6, "0", "");
        agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    }
    assert_true(bus_contribution(bus, "i-1")->is_live);
    assert_true(bus_shown(bus, "i-1", "running") == 11);
}

static void a_silent_source_loses_its_gauges_and_keeps_its_counters(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    step(bus, 'a', 4, 2.0, 10);
    for (int i = 0; i < 15; i++) {
        bus_wait(bus, 1000);
        agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    }
    assert_true(bus_shown(bus, "i-1", "running") == 10);
    bus_wait(bus, 1000);
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    assert_true(bus_shown(bus, "i-1", "running") == -1);
    assert_false(bus_contribution(bus, "i-1")->is_live);
    assert_false(bus_contribution(bus, "i-1")->is_ended);
    assert_true(bus_counter(bus, "i-1", "n_total") == 3);
    bus_beat(bus, 'a', 5, "0", "");
    bus_wait(bus, 50);
    assert_true(bus_shown(bus, "i-1", "running") == 10); /* it was only slow: its last snapshot is still its last */
}

static void time_in_which_the_agent_stood_still_is_held_against_nobody(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    bus->now_ms += 600 * 1000;
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    assert_true(bus_contribution(bus, "i-1")->is_live);
}

static void undrained_sockets_postpone_a_judgement_and_dont_prevent_it(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    for (int i = 0; i <= 16; i++)
        agent_publishers_sweep(bus->publishers, i < 10, bus->now_ms += 1000);
    assert_true(bus_contribution(bus, "i-1")->is_live);
    for (int i = 0; i < AGENT_SWEEPS_POSTPONED_MAX; i++)
        agent_publishers_sweep(bus->publishers, false, bus->now_ms += 1000);
    assert_false(bus_contribution(bus, "i-1")->is_live);
}

/* The state knows that it has ended; a hello names it all the same. */
static void a_hello_wakes_no_source_that_has_ended(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    step(bus, 'a', 1, 2.0, 10);
    bus_beat(bus, 'a', 2, "", "0");
    bus_hello(bus, 'b', 1, BUS_SOURCE ", {index: 1, instance_id: i-2}"); /* as one that is met anew */
    bus_wait(bus, 1100);
    assert_false(bus_contribution(bus, "i-1")->is_live);
    assert_true(bus_contribution(bus, "i-2")->is_live);
    bus_beat(bus, 'b', 1, "0, 1", "");
    assert_true(bus_contribution(bus, "i-1")->is_live);
}

static void what_was_released_is_bound_again_when_it_comes_back(void **state)
{
    struct bus *bus = *state;
    const char *two = BUS_SOURCE ", {index: 1, service_name: s, instance_id: i-2, dp_rank: \"1\"}";
    bus_hello(bus, 'a', 1, two);
    bus_steps(bus, AGENT_STATS, 'a', 1, 2);
    bus_beat(bus, 'a', 3, "1", "0");
    const struct agent_contribution *ended = bus_contribution(bus, "i-1");
    assert_true(agent_publishers_release(bus->publishers, ended));
    agent_ledger_forget(bus->ledger, ended->index);
    bus_hello(bus, 'a', 3, two);
    assert_null(bus_contribution(bus, "i-1")); /* nothing asks for it */
    (void) bus_sent(bus);
    bus_steps(bus, AGENT_STATS, 'a', 3, 4);
    assert_string_equal(bus_sent(bus), "a hello");
    bus_hello(bus, 'a', 5, two);
    bus_steps(bus, AGENT_REPLAY, 'a', 3, 4);
    assert_true(bus_counter(bus, "i-1", "n_total") == 2);
    assert_false(bus_contribution(bus, "i-1")->is_live); /* late records wake nobody */
    bus_beat(bus, 'a', 5, "0, 1", "");
    assert_true(bus_contribution(bus, "i-1")->is_live);
}

static void a_final_beat_ends_a_source_at_once(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    step(bus, 'a', 1, 2.0, 10);
    bus_wait(bus, 1100);
    bus_beat(bus, 'a', 2, "", "0");
    assert_true(bus_shown(bus, "i-1", "running") == -1);
    assert_true(bus_contribution(bus, "i-1")->is_ended);
}

static void a_source_that_ended_and_is_back_starts_without_the_gauges_of_before(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    step(bus, 'a', 1, 2.0, 10);
    bus_wait(bus, 1100);
    bus_beat(bus, 'a', 2, "", "0");
    bus_beat(bus, 'a', 2, "0", "");
    bus_wait(bus, 1100);
    assert_true(bus_contribution(bus, "i-1")->is_live);
    assert_true(bus_shown(bus, "i-1", "running") == -1);
    step(bus, 'a', 2, 3.0, 4);
    bus_wait(bus, 1100);
    assert_true(bus_shown(bus, "i-1", "running") == 4);
}

/* Case 7. */
static void a_late_record_is_counted_and_wakes_nobody_and_a_new_life_goes_on(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    bus_beat(bus, 'a', 6, "", "0");
    bus_steps(bus, AGENT_STATS, 'a', 4, 5);
    bus_wait(bus, 1100);
    assert_false(bus_contribution(bus, "i-1")->is_live);
    assert_true(bus_counter(bus, "i-1", "n_total") == 5);
    bus_hello(bus, 'b', 1, "{index: 0, service_name: s, model_name: m, job_name: j, instance_id: i-2, dp_rank: \"0\"}");
    step(bus, 'b', 1, 100.0, 4);
    bus_steps(bus, AGENT_STATS, 'b', 2, 3);
    bus_wait(bus, 1100);
    assert_true(bus_counter(bus, NULL, "n_total") == 7);
    assert_true(bus_shown(bus, "i-1", "running") == -1);
    assert_true(bus_shown(bus, "i-2", "running") == 4);
    assert_ptr_equal(bus_contribution(bus, "i-1")->source, bus_contribution(bus, "i-2")->source);
}

static void a_final_beat_ends_nothing_that_another_server_still_serves(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_hello(bus, 'b', 1, BUS_SOURCE);
    step(bus, 'a', 1, 2.0, 10);
    bus_wait(bus, 1100);
    bus_beat(bus, 'a', 2, "", "0");
    assert_true(bus_contribution(bus, "i-1")->is_live);
    assert_true(bus_shown(bus, "i-1", "running") == 10);
    bus_beat(bus, 'b', 1, "", "0");
    assert_true(bus_contribution(bus, "i-1")->is_ended);
}

static void an_engine_that_was_killed_ends_when_its_successor_lives(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    for (int i = 0; i < 17; i++) {
        bus_hello(bus, 'b', 1,
                  "{index: 0, service_name: s, model_name: m, job_name: j, instance_id: i-2, dp_rank: \"0\"}");
        bus_beat(bus, 'b', 1, "0", "");
        bus_wait(bus, 1000);
        agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    }
    assert_true(bus_contribution(bus, "i-1")->is_ended);
    assert_true(bus_contribution(bus, "i-2")->is_live);
}

static void the_latest_of_a_hello_sets_gauges_alone(void **state)
{
    struct bus *bus = *state;
    const uint64_t mark[] = {1, 5};
    assert_int_equal(bus_hello_marked(bus, 'a', 6, BUS_SOURCE,
                                      ", latest: [[5, step, 0, 990.0, {scheduler_stats: {running: 3}, "
                                      "iteration_stats: {n: 100}}]]",
                                      ours, mark, 2),
                     AGENT_ACCEPTED);
    bus_wait(bus, 50);
    assert_true(bus_shown(bus, "i-1", "running") == 3);
    assert_true(bus_counter(bus, "i-1", "n_total") == 0);
    assert_int_equal(bus_contribution(bus, "i-1")->shown_ms, 990 * 1000); /* as old as it is */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, bus_open, bus_close)
    const struct CMUnitTest tests[] = {
        TEST(the_last_snapshot_gets_through_within_a_period_without_another_message),
        TEST(the_clock_of_one_host_orders_snapshots_and_replayed_ones_disturb_nothing),
        TEST(gauges_of_the_front_end_come_back_with_the_hello_as_others_do),
        TEST(what_no_source_is_named_for_is_told_once_though_all_get_it),
        TEST(a_message_that_is_for_very_many_sources_is_taken_in_pieces),
        TEST(a_snapshot_of_the_far_future_is_replaced_once_a_beat_shows_its_publishers_clock),
        TEST(two_servers_of_one_engine_add_their_counts_and_share_their_gauges),
        TEST(a_silent_source_loses_its_gauges_and_keeps_its_counters),
        TEST(time_in_which_the_agent_stood_still_is_held_against_nobody),
        TEST(undrained_sockets_postpone_a_judgement_and_dont_prevent_it),
        TEST(a_hello_wakes_no_source_that_has_ended),
        TEST(what_was_released_is_bound_again_when_it_comes_back),
        TEST(a_final_beat_ends_a_source_at_once),
        TEST(a_source_that_ended_and_is_back_starts_without_the_gauges_of_before),
        TEST(a_late_record_is_counted_and_wakes_nobody_and_a_new_life_goes_on),
        TEST(a_final_beat_ends_nothing_that_another_server_still_serves),
        TEST(an_engine_that_was_killed_ends_when_its_successor_lives),
        TEST(the_latest_of_a_hello_sets_gauges_alone),
    };
    return cmocka_run_group_tests_name("lives", tests, NULL, NULL);
}
