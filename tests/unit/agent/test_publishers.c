/* Every record counted once: gaps, duplicates, answers, marks, lives. Messages and time are scripted. */
#include "bus.h"

static const char ours[] = "LLLLLLLLLLLLLLLL", foreign[] = "ffffffffffffffff", other[] = "oooooooooooooooo";

static void records_count_once_however_often_they_come(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    bus_steps(bus, AGENT_STATS, 'a', 3, 8);
    bus_steps(bus, AGENT_REPLAY, 'a', 1, 2);
    assert_true(bus_counter(bus, "i-1", "n_total") == 8);
    assert_int_equal(bus->counters.records_applied, 8);
    assert_int_equal(bus->counters.records_duplicate, 5);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
}

static void a_gap_is_asked_for_after_some_patience(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 2);
    bus_steps(bus, AGENT_STATS, 'a', 6, 9);
    bus_wait(bus, 50);
    assert_string_equal(bus_sent(bus), "");
    bus_wait(bus, 100);
    assert_string_equal(bus_sent(bus), "a ask 3 5");
    bus_wait(bus, 500);
    assert_string_equal(bus_sent(bus), ""); /* one is out */
    bus_steps(bus, AGENT_REPLAY, 'a', 3, 5);
    bus_end(bus, 'a', 1, 3, 5);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
    assert_true(bus_counter(bus, "i-1", "n_total") == 9);
    assert_int_equal(bus->counters.records_lost, 0);
}

static void a_loss_at_the_end_of_a_burst_is_seen_by_the_beat(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 2);
    bus_beat(bus, 'a', 8, "0", "");
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 3 7");
}

static void an_ask_without_answer_is_repeated_after_a_second(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 5, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 4");
    bus_wait(bus, 900);
    assert_string_equal(bus_sent(bus), "");
    bus_wait(bus, 100);
    assert_string_equal(bus_sent(bus), "a ask 1 4");
}

static void questions_are_bounded_and_follow_each_other(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 10001, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 4096");
    bus_steps(bus, AGENT_REPLAY, 'a', 1, 4096);
    bus_end(bus, 'a', 1, 1, 4096);
    assert_string_equal(bus_sent(bus), "a ask 4097 8192");
    bus_steps(bus, AGENT_REPLAY, 'a', 4097, 8192);
    bus_end(bus, 'a', 1, 4097, 8192);
    assert_string_equal(bus_sent(bus), "a ask 8193 10000");
    bus_steps(bus, AGENT_REPLAY, 'a', 8193, 10000);
    bus_end(bus, 'a', 1, 8193, 10000);
    assert_string_equal(bus_sent(bus), "");
    assert_true(bus_counter(bus, "i-1", "n_total") == 10000);
}

/* Case 12, first half. */
static void the_first_agent_counts_what_the_ring_holds_and_reports_the_rest_as_lost(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 101, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 100");
    bus_steps(bus, AGENT_REPLAY, 'a', 61, 100);
    bus_end(bus, 'a', 61, 1, 100);
    bus_steps(bus, AGENT_STATS, 'a', 101, 110);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
    assert_true(bus_counter(bus, "i-1", "n_total") == 50);
    assert_int_equal(bus->counters.records_lost, 60);
}

/* Case 12, second half. */
static void an_agent_whose_state_is_gone_starts_after_the_mark(void **state)
{
    struct bus *bus = *state;
    const uint64_t mark[] = {1, 90, 95, 96};
    assert_int_equal(bus_hello_marked(bus, 'a', 101, BUS_SOURCE, "", foreign, mark, 4), AGENT_ACCEPTED);
    assert_int_equal(bus_hello_marked(bus, 'b', 101, BUS_SOURCE, "", foreign, mark, 4), AGENT_ACCEPTED);
    assert_int_equal(bus->counters.state_losses, 1); /* the same state, lost once */
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 91 94; b ask 91 94");
    bus_steps(bus, AGENT_REPLAY, 'a', 91, 94);
    bus_end(bus, 'a', 50, 91, 94);
    assert_string_equal(bus_sent(bus), "a ask 97 100");
    bus_steps(bus, AGENT_STATS, 'a', 80, 96);
    assert_true(bus_counter(bus, "i-1", "n_total") == 4);
    assert_int_equal(bus->counters.records_lost, 0);
    const uint64_t later[] = {1, 70};
    assert_int_equal(bus_hello_marked(bus, 'c', 71, BUS_SOURCE, "", other, later, 2), AGENT_ACCEPTED);
    assert_int_equal(bus->counters.state_losses, 2);
}

static void a_mark_of_ours_that_holds_more_than_the_state_is_a_rollback(void **state)
{
    struct bus *bus = *state;
    const uint64_t known[] = {1, 10}, more[] = {1, 20};
    bus_hello(bus, 'a', 11, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 10);
    assert_int_equal(bus_hello_marked(bus, 'a', 11, BUS_SOURCE, "", ours, known, 2), AGENT_ACCEPTED);
    assert_int_equal(bus->n_rolled_back, 0);
    assert_int_equal(bus_hello_marked(bus, 'a', 21, BUS_SOURCE, "", ours, more, 2), AGENT_ACCEPTED);
    assert_int_equal(bus->n_rolled_back, 1);
    bus_steps(bus, AGENT_STATS, 'a', 11, 22);
    assert_true(bus_counter(bus, "i-1", "n_total") == 12); /* 11 to 20 were counted in the commit that is gone */
}

static void a_mark_of_ours_from_one_that_the_state_never_met_is_a_rollback(void **state)
{
    struct bus *bus = *state;
    const uint64_t mark[] = {1, 20};
    assert_int_equal(bus_hello_marked(bus, 'a', 21, BUS_SOURCE, "", ours, mark, 2), AGENT_ACCEPTED);
    assert_int_equal(bus->n_rolled_back, 1);
}

static void records_of_strangers_stay_a_gap_and_their_hello_is_asked_once_a_second(void **state)
{
    struct bus *bus = *state;
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    bus_steps(bus, AGENT_STATS, 'a', 4, 6);
    bus_beat(bus, 'a', 7, "0", "");
    assert_string_equal(bus_sent(bus), "a hello");
    bus->now_ms += 1000;
    bus_steps(bus, AGENT_STATS, 'a', 7, 7);
    assert_string_equal(bus_sent(bus), "a hello");
    assert_int_equal(bus->counters.records_unknown_publisher, 7);
    bus_hello(bus, 'a', 8, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 7");
    bus_steps(bus, AGENT_REPLAY, 'a', 1, 7);
    assert_true(bus_counter(bus, "i-1", "n_total") == 7);
}

static void records_of_unknown_sources_wait_for_a_hello_that_names_them(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    const char *two = "[[step, 0, 1.0, {iteration_stats: {n: 1}}], [step, 4, 1.0, {iteration_stats: {n: 10}}]]";
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "rec", 1, 2, two), AGENT_ACCEPTED);
    assert_true(bus_counter(bus, NULL, "n_total") == 1);
    assert_int_equal(bus->counters.records_unknown_source, 1);
    assert_string_equal(bus_sent(bus), "a hello");
    bus_hello(bus, 'a', 3, BUS_SOURCE ", {index: 4, service_name: s, instance_id: i-4, dp_rank: \"4\"}");
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 2 2");
    assert_int_equal(bus_say(bus, AGENT_REPLAY, 'a', "rec", 1, 2, two), AGENT_ACCEPTED);
    assert_true(bus_counter(bus, "i-4", "n_total") == 10);
    assert_true(bus_counter(bus, "i-1", "n_total") == 1);
}

static void a_hole_that_cant_be_healed_is_asked_slowly_and_keeps_no_other_waiting(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 2, 3);
    bus_steps(bus, AGENT_STATS, 'a', 6, 6);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 1");
    assert_int_equal(bus_say(bus, AGENT_REPLAY, 'a', "rec", 1, 1, "[[step, 9, 1.0, {}]]"), AGENT_ACCEPTED);
    bus_end(bus, 'a', 1, 1, 1);
    assert_string_equal(bus_sent(bus), "a hello; a ask 4 5");
    bus_steps(bus, AGENT_REPLAY, 'a', 4, 5);
    bus_end(bus, 'a', 1, 4, 5);
    assert_string_equal(bus_sent(bus), "a ask 1 1");
    bus_end(bus, 'a', 1, 1, 1);
    bus_wait(bus, 900);
    assert_string_equal(bus_sent(bus), "");
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 1");
    bus_end(bus, 'a', 2, 1, 1); /* the ring has passed over it */
    assert_int_equal(bus->counters.records_lost, 1);
    bus_wait(bus, 5000);
    assert_string_equal(bus_sent(bus), "");
}

static void numbers_that_were_never_given_are_asked_for_slowly(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_beat(bus, 'a', 1ULL << 60, "0", "");
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 4096");
    bus_end(bus, 'a', 1, 1, 4096);
    bus_wait(bus, 900);
    assert_string_equal(bus_sent(bus), "");
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 4097 8192");
}

static void one_impossible_number_hides_no_hole_for_longer_than_to_the_next_beat(void **state)
{
    struct bus *bus = *state;
    uint32_t all, live;
    uint64_t missing;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    bus_steps(bus, AGENT_STATS, 'a', 1ULL << 40, 1ULL << 40);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 6 4101");
    bus_end(bus, 'a', 1, 6, 4101);
    bus_steps(bus, AGENT_STATS, 'a', 9, 10);
    bus_beat(bus, 'a', 11, "0", "");
    agent_publishers_count(bus->publishers, bus->now_ms, &all, &live, &missing);
    assert_int_equal(missing, 3);
    bus_wait(bus, 1100);
    assert_string_equal(bus_sent(bus), "a ask 6 8");
    bus_steps(bus, AGENT_REPLAY, 'a', 6, 8);
    bus_end(bus, 'a', 1, 6, 8);
    bus_wait(bus, 5000);
    assert_string_equal(bus_sent(bus), "");
    assert_true(bus_counter(bus, "i-1", "n_total") == 11);
    agent_publishers_count(bus->publishers, bus->now_ms, &all, &live, &missing);
    assert_int_equal(missing, 0);
    bus->now_ms += 3600 * 1000 + 1;
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    assert_int_equal(bus->counters.publishers_dropped, 1);
    assert_int_equal(bus->counters.records_lost, 0);
}

static void holes_before_an_endless_one_are_asked_for_in_between(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    bus_beat(bus, 'a', 1ULL << 40, "0", ""); /* and every beat says so */
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 6 4101");
    bus_end(bus, 'a', 1, 6, 4101);
    bus_steps(bus, AGENT_STATS, 'a', 8, 10); /* 6 and 7 were lost */
    bool is_asked = false;
    for (int i = 0; i < 4 && !is_asked; i++) {
        bus_wait(bus, 1100);
        unsigned long long from, to;
        assert_int_equal(sscanf(bus_sent(bus), "a ask %llu %llu", &from, &to), 2);
        is_asked = from == 6 && to == 7;
        if (is_asked)
            bus_steps(bus, AGENT_REPLAY, 'a', 6, 7);
        bus_end(bus, 'a', 1, from, to);
    }
    assert_true(is_asked);
    assert_true(bus_counter(bus, "i-1", "n_total") == 10);
}

/* A message of the answer is refused, all of it. */
static void refuse_one(struct bus *bus, uint64_t first, uint32_t count)
{
    assert_int_equal(bus_say(bus, AGENT_REPLAY, 'a', "rec", first, count, "[7]"),
                     count == 1 ? AGENT_REFUSED_bad_record : AGENT_REFUSED_bad_records);
}

static void answer_badly(struct bus *bus, uint64_t first, uint32_t count)
{
    refuse_one(bus, first, count);
    bus_end(bus, 'a', 1, first, first + count - 1);
}

static void a_poison_answer_counts_as_lost_and_is_not_asked_for_ever(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 7, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 6");
    bus_steps(bus, AGENT_REPLAY, 'a', 1, 2);
    assert_int_equal(bus_say(bus, AGENT_REPLAY, 'a', "rec", 3, 2, "[[step, 0, 1.0, {}], [7]]"),
                     AGENT_REFUSED_bad_record);
    bus_steps(bus, AGENT_REPLAY, 'a', 5, 6);
    bus_end(bus, 'a', 1, 1, 6);
    assert_int_equal(bus->counters.records_lost, 0);
    assert_string_equal(bus_sent(bus), "a ask 3 4"); /* at once, in pieces of half the size */
    answer_badly(bus, 3, 2);
    assert_string_equal(bus_sent(bus), "a ask 3 3");
    bus_steps(bus, AGENT_REPLAY, 'a', 3, 3); /* its neighbour was the bad one */
    bus_end(bus, 'a', 1, 3, 3);
    assert_string_equal(bus_sent(bus), "a ask 4 4");
    answer_badly(bus, 4, 1);
    assert_int_equal(bus->counters.records_lost, 1);
    assert_true(bus_counter(bus, "i-1", "n_total") == 5);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
}

/* One bad record among as many as a question asks for costs a few questions and one number. */
static void a_poison_record_is_found_by_halves(void **state)
{
    enum { N = 4096, BAD = 1000 };
    struct bus *bus = *state;
    bus_hello(bus, 'a', N + 1, BUS_SOURCE);
    bus_wait(bus, 150);
    int n_questions = 0;
    unsigned long long from, to;
    while (sscanf(bus_sent(bus), "a ask %llu %llu", &from, &to) == 2) {
        n_questions++;
        if (from <= BAD && to >= BAD) {
            answer_badly(bus, from, (uint32_t) (to - from + 1));
            continue;
        }
        bus_steps(bus, AGENT_REPLAY, 'a', from, to);
        bus_end(bus, 'a', 1, from, to);
    }
    assert_int_equal(bus->counters.records_lost, 1);
    assert_true(bus_counter(bus, "i-1", "n_total") == N - 1);
    assert_in_range(n_questions, 13, 60);
}

static void a_poison_answer_without_its_end_is_asked_for_in_halves_too(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 5, BUS_SOURCE);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 4");
    refuse_one(bus, 1, 4);
    bus_wait(bus, 1000);
    assert_string_equal(bus_sent(bus), "a ask 1 2");
    refuse_one(bus, 1, 2);
    bus_wait(bus, 1000);
    assert_string_equal(bus_sent(bus), "a ask 1 1");
    refuse_one(bus, 1, 1);
    bus_wait(bus, 1000);
    assert_int_equal(bus->counters.records_lost, 1);
    assert_string_equal(bus_sent(bus), "a ask 2 2");
    bus_steps(bus, AGENT_REPLAY, 'a', 2, 2);
    bus_end(bus, 'a', 1, 2, 2);
    assert_string_equal(bus_sent(bus), "a ask 3 4"); /* what is good widens the questions again */
}

static void a_record_that_could_not_travel_is_lost_and_leaves_no_gap(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "rec", 1, 2,
                             "[[lost, null, 0.0, null], [step, 0, 1.0, {iteration_stats: {n: 1}}]]"),
                     AGENT_ACCEPTED);
    bus_steps(bus, AGENT_REPLAY, 'a', 1, 1); /* again */
    assert_int_equal(bus->counters.records_lost, 1);
    assert_int_equal(bus->counters.records_applied, 1);
    assert_int_equal(bus->counters.records_duplicate, 1);
    assert_true(bus_counter(bus, "i-1", "n_total") == 1);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
}

static void a_poison_message_on_the_stats_socket_stays_a_gap(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "rec", 1, 2, "[[step, 0, 1.0, {}], [7]]"),
                     AGENT_REFUSED_bad_record);
    bus_steps(bus, AGENT_STATS, 'a', 3, 3);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 1 2");
    assert_int_equal(bus->counters.records_lost, 0);
}

static void more_gaps_than_ranges_stay_gaps_until_one_closes(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    for (uint64_t i = 0; i < SB_RANGES_MAX + 5; i++)
        bus_steps(bus, AGENT_STATS, 'a', 2 + 2 * i, 2 + 2 * i);
    assert_int_equal(bus->counters.records_over_ranges, 5);
    assert_true(bus_counter(bus, "i-1", "n_total") == SB_RANGES_MAX);
    for (uint64_t i = 1; i <= 2 * SB_RANGES_MAX + 10; i++)
        bus_steps(bus, AGENT_REPLAY, 'a', i, i);
    assert_true(bus_counter(bus, "i-1", "n_total") == 2 * SB_RANGES_MAX + 10);
}

static void a_repeated_hello_compiles_nothing(void **state)
{
    struct bus *bus = *state;
    struct agent_introduction met;
    assert_false(agent_publishers_take_introduction(bus->publishers, &met));
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    assert_true(agent_publishers_take_introduction(bus->publishers, &met));
    assert_string_equal(met.publisher, bus_id('a'));
    assert_string_equal(met.engine, "v");
    for (int i = 1; i < 100; i++)
        bus_hello(bus, 'a', 1, BUS_SOURCE);
    assert_false(agent_publishers_take_introduction(bus->publishers, &met)); /* once */
    assert_int_equal(bus->counters.plans, 1);
    assert_int_equal(bus->counters.hellos, 100);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    bus_hello(bus, 'a', 4, BUS_SOURCE ", {index: 1, instance_id: i-2}");
    assert_int_equal(bus->counters.plans, 2);
    assert_true(bus_counter(bus, "i-1", "n_total") == 3); /* nothing starts again */
}

static void a_hello_must_name_the_publisher_of_its_topic(void **state)
{
    struct bus *bus = *state;
    char yaml[256];
    snprintf(yaml, sizeof yaml, "{publisher: \"%s\", time: 1.0, sources: [" BUS_SOURCE "]}", bus_id('b'));
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "hello", 1, 0, yaml), AGENT_REFUSED_bad_hello);
    assert_string_equal(agent_publishers_last_error(bus->publishers), "'publisher' is not the one of the topic");
}

static void a_record_without_source_counts_for_all_sources_and_the_front_end(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE ", {index: 1, instance_id: i-1, dp_rank: \"1\"}");
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "rec", 1, 2,
                             "[[event, null, 1.0, {admission: {reason: full}}], "
                             "[step, null, 1.0, {iteration_stats: {n: 2}}]]"),
                     AGENT_ACCEPTED);
    assert_true(bus_counter(bus, NULL, "refused_total") == 1);
    assert_true(bus_counter(bus, NULL, "n_total") == 4);
}

static void records_of_unknown_type_count_as_applied(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    assert_int_equal(bus_say(bus, AGENT_STATS, 'a', "rec", 1, 2, "[[trace, 77, 1.0, 5], [trace, null, 1.0, [], 9]]"),
                     AGENT_ACCEPTED);
    assert_int_equal(bus_envelope.skipped.records, 2);
    bus_wait(bus, 3000);
    assert_string_equal(bus_sent(bus), "");
    bus_envelope.skipped = (struct agent_skipped){0};
}

/* Marks */

static void applied_is_sent_when_there_is_something_new_and_awaited_until_it_is_echoed(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    agent_publishers_send_applied(bus->publishers, bus->now_ms);
    assert_string_equal(bus_sent(bus), "a applied 1 3");
    assert_false(agent_publishers_all_marked(bus->publishers));
    bus_mark(bus, 'a', 4, other, 3);
    assert_false(agent_publishers_all_marked(bus->publishers));
    bus_mark(bus, 'a', 4, ours, 2);
    assert_false(agent_publishers_all_marked(bus->publishers));
    bus_mark(bus, 'a', 4, ours, 3);
    assert_true(agent_publishers_all_marked(bus->publishers));
    agent_publishers_send_applied(bus->publishers, bus->now_ms);
    assert_string_equal(bus_sent(bus), "");
}

static void a_publisher_that_did_not_echo_in_time_is_not_waited_for_again(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    agent_publishers_send_applied(bus->publishers, bus->now_ms);
    agent_publishers_give_up_marks(bus->publishers);
    assert_int_equal(bus->counters.marks_missed, 1);
    bus_steps(bus, AGENT_STATS, 'a', 4, 4);
    (void) bus_sent(bus);
    agent_publishers_send_applied(bus->publishers, bus->now_ms);
    assert_string_equal(bus_sent(bus), "a applied 1 4"); /* told again nevertheless */
    assert_true(agent_publishers_all_marked(bus->publishers));
    bus_mark(bus, 'a', 5, ours, 4);
    bus_steps(bus, AGENT_STATS, 'a', 5, 5);
    agent_publishers_send_applied(bus->publishers, bus->now_ms);
    assert_false(agent_publishers_all_marked(bus->publishers)); /* it answers again: it is waited for again */
}

/* The table */

static void a_publisher_that_is_gone_leaves_and_what_it_owed_is_lost(void **state)
{
    struct bus *bus = *state;
    uint32_t all, live;
    uint64_t missing;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3);
    bus_beat(bus, 'a', 9, "", "0");
    agent_publishers_count(bus->publishers, bus->now_ms, &all, &live, &missing);
    assert_int_equal(missing, 5);
    bus->now_ms += AGENT_ENDED_LINGER_MS + 1;
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    agent_publishers_count(bus->publishers, bus->now_ms, &all, &live, &missing);
    assert_int_equal(all, 0);
    assert_int_equal(bus->counters.records_lost, 5);
    const uint64_t mark[] = {1, 3};
    assert_int_equal(bus_hello_marked(bus, 'a', 9, BUS_SOURCE, "", ours, mark, 2), AGENT_ACCEPTED);
    bus_steps(bus, AGENT_STATS, 'a', 1, 3); /* should it come back after all, its mark says what was counted */
    assert_int_equal(bus->n_rolled_back, 0);
    assert_true(bus_counter(bus, "i-1", "n_total") == 3);
    assert_int_equal(bus->n_rolled_back, 0);
}

static enum agent_refusal hello_of_number(struct bus *bus, unsigned number)
{
    char topic[64], yaml[512];
    struct sb_buf buf;
    static const uint8_t header[AGENT_HEADER_LEN] = {[7] = 1};
    snprintf(topic, sizeof topic, "statsbus1.hello.%032x", number);
    snprintf(yaml, sizeof yaml, "{publisher: \"%032x\", host: h, time: 1.0, sources: [" BUS_SOURCE "]}", number);
    sb_buf_init(&buf, 1 << 12);
    pack_yaml(&buf, yaml);
    const struct agent_frames frames = {.topic = {topic, strlen(topic)},
                                        .header = {(const char *) header, sizeof header},
                                        .payload = {(const char *) buf.data, buf.len}};
    assert_int_equal(agent_envelope_read(&bus_envelope, &frames, AGENT_STATS), AGENT_ACCEPTED);
    const enum agent_refusal refusal = agent_publishers_take(bus->publishers, &bus_envelope, AGENT_STATS, bus->now_ms);
    sb_buf_release(&buf);
    return refusal;
}

static void a_full_table_refuses_until_one_is_silent_for_a_minute(void **state)
{
    struct bus *bus = *state;
    for (unsigned i = 1; i <= AGENT_PUBLISHERS_MAX; i++)
        assert_int_equal(hello_of_number(bus, i), AGENT_ACCEPTED);
    assert_int_equal(hello_of_number(bus, 5000), AGENT_REFUSED_too_many_publishers);
    bus->now_ms += AGENT_EVICT_SILENT_MS;
    assert_int_equal(hello_of_number(bus, 5000), AGENT_ACCEPTED);
    assert_int_equal(bus->counters.publishers_dropped, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, bus_open, bus_close)
    const struct CMUnitTest tests[] = {
        TEST(records_count_once_however_often_they_come),
        TEST(a_gap_is_asked_for_after_some_patience),
        TEST(a_loss_at_the_end_of_a_burst_is_seen_by_the_beat),
        TEST(an_ask_without_answer_is_repeated_after_a_second),
        TEST(questions_are_bounded_and_follow_each_other),
        TEST(the_first_agent_counts_what_the_ring_holds_and_reports_the_rest_as_lost),
        TEST(an_agent_whose_state_is_gone_starts_after_the_mark),
        TEST(a_mark_of_ours_that_holds_more_than_the_state_is_a_rollback),
        TEST(a_mark_of_ours_from_one_that_the_state_never_met_is_a_rollback),
        TEST(records_of_strangers_stay_a_gap_and_their_hello_is_asked_once_a_second),
        TEST(records_of_unknown_sources_wait_for_a_hello_that_names_them),
        TEST(a_hole_that_cant_be_healed_is_asked_slowly_and_keeps_no_other_waiting),
        TEST(numbers_that_were_never_given_are_asked_for_slowly),
        TEST(one_impossible_number_hides_no_hole_for_longer_than_to_the_next_beat),
        TEST(holes_before_an_endless_one_are_asked_for_in_between),
        TEST(a_poison_answer_counts_as_lost_and_is_not_asked_for_ever),
        TEST(a_poison_record_is_found_by_halves),
        TEST(a_record_that_could_not_travel_is_lost_and_leaves_no_gap),
        TEST(a_poison_answer_without_its_end_is_asked_for_in_halves_too),
        TEST(a_poison_message_on_the_stats_socket_stays_a_gap),
        TEST(more_gaps_than_ranges_stay_gaps_until_one_closes),
        TEST(a_repeated_hello_compiles_nothing),
        TEST(a_hello_must_name_the_publisher_of_its_topic),
        TEST(a_record_without_source_counts_for_all_sources_and_the_front_end),
        TEST(records_of_unknown_type_count_as_applied),
        TEST(applied_is_sent_when_there_is_something_new_and_awaited_until_it_is_echoed),
        TEST(a_publisher_that_did_not_echo_in_time_is_not_waited_for_again),
        TEST(a_publisher_that_is_gone_leaves_and_what_it_owed_is_lost),
        TEST(a_full_table_refuses_until_one_is_silent_for_a_minute),
    };
    return cmocka_run_group_tests_name("publishers", tests, NULL, NULL);
}
