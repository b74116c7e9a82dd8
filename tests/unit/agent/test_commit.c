/* Commits: what is written, when it is released, what comes back from the file. */
#include "bus.h"

struct office {
    struct bus bus;
    struct agent_commit commit;
    struct sb_buf file;
    bool is_disk_full;
    uint32_t n_writes;
};

static enum sb_rc write_file(void *arg, const void *bytes, size_t n, struct sb_err *err)
{
    struct office *office = arg;
    if (office->is_disk_full)
        return sb_fail(err, SB_IO, "no space left");
    sb_buf_clear(&office->file);
    sb_buf_put(&office->file, bytes, n);
    office->n_writes++;
    return SB_OK;
}

static void open_commit(struct office *office, const struct agent_state *state)
{
    const struct agent_commit_cfg cfg = {.ledger = office->bus.ledger,
                                         .publishers = office->bus.publishers,
                                         .counters = &office->bus.counters,
                                         .period_ms = 1000,
                                         .write = write_file,
                                         .arg = office};
    agent_commit_init(&office->commit, &cfg, state);
}

static int open_office(void **state)
{
    struct office *office = calloc(1, sizeof *office);
    struct agent_state fresh = {.generation = 0};
    bus_init(&office->bus);
    sb_buf_init(&office->file, AGENT_STATE_MAX);
    memcpy(fresh.lineage, office->bus.lineage, AGENT_LINEAGE_LEN);
    open_commit(office, &fresh);
    *state = office;
    return 0;
}

static int close_office(void **state)
{
    struct office *office = *state;
    agent_commit_release(&office->commit);
    bus_release(&office->bus);
    sb_buf_release(&office->file);
    free(office);
    return 0;
}

/* kill -9 and a new start from the file. */
static void restart(struct office *office)
{
    struct agent_state state;
    struct sb_err err = {.text = ""};
    agent_commit_release(&office->commit);
    bus_close_tables(&office->bus);
    office->bus.counters = (struct agent_counters){0};
    bus_open_tables(&office->bus);
    if (agent_state_load(&state, office->bus.ledger, office->bus.publishers, &office->bus.counters, office->file.data,
                         office->file.len, office->bus.now_ms, &err) != SB_OK)
        fail_msg("%s", err.text);
    open_commit(office, &state);
}

static bool tick(struct office *office, int64_t ms)
{
    office->bus.now_ms += ms;
    return agent_commit_tick(&office->commit, office->bus.now_ms);
}

static const char ours[] = "LLLLLLLLLLLLLLLL";

static void counters_are_released_once_the_mark_is_echoed(void **state)
{
    struct office *office = *state;
    bus_hello(&office->bus, 'a', 1, BUS_SOURCE);
    bus_steps(&office->bus, AGENT_STATS, 'a', 1, 3);
    assert_true(tick(office, 0));
    assert_string_equal(bus_sent(&office->bus), "a applied 1 3");
    assert_false(office->commit.is_released);
    assert_false(tick(office, 500));
    assert_false(office->commit.is_released);
    bus_mark(&office->bus, 'a', 4, ours, 3);
    assert_false(tick(office, 20));
    assert_true(office->commit.is_released);
    assert_int_equal(office->commit.released, 1);
    assert_true(agent_commit_is_settled(&office->commit));
}

static void another_period_holds_from_now_on(void **state)
{
    struct office *office = *state;
    bus_hello(&office->bus, 'a', 1, BUS_SOURCE);
    bus_steps(&office->bus, AGENT_STATS, 'a', 1, 3);
    agent_commit_set_period(&office->commit, 60000, office->bus.now_ms);
    assert_true(tick(office, 0)); /* what is due stays due */
    bus_mark(&office->bus, 'a', 4, ours, 3);
    bus_steps(&office->bus, AGENT_STATS, 'a', 4, 5);
    assert_false(tick(office, 2000));
    agent_commit_set_period(&office->commit, 500, office->bus.now_ms);
    assert_false(tick(office, 499));
    assert_true(tick(office, 1));
}

static void no_commit_starts_while_a_release_is_pending_and_a_second_is_the_longest_wait(void **state)
{
    struct office *office = *state;
    bus_hello(&office->bus, 'a', 1, BUS_SOURCE);
    bus_steps(&office->bus, AGENT_STATS, 'a', 1, 3);
    assert_true(tick(office, 0));
    bus_steps(&office->bus, AGENT_STATS, 'a', 4, 5);
    assert_false(tick(office, 999));
    assert_int_equal(office->n_writes, 1);
    assert_false(tick(office, 1)); /* given up */
    assert_true(office->commit.is_released);
    assert_true(tick(office, AGENT_RELEASED_MIN_MS));
    assert_int_equal(office->n_writes, 2);
    assert_int_equal(office->bus.counters.marks_missed, 1);
    assert_int_equal(office->commit.released, 2); /* the silent one isn't waited for again */
}

static void what_is_released_may_leave_for_a_while_however_long_the_marks_took(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    for (uint64_t i = 1; i <= 5; i++) {
        bus_steps(bus, AGENT_STATS, 'a', i, i);
        assert_true(tick(office, AGENT_RELEASED_MIN_MS));
        bus->now_ms += 990; /* of a period of 1000 */
        bus_mark(bus, 'a', i + 1, ours, i);
        bus_steps(bus, AGENT_STATS, 'a', i + 1, i + 1);
        assert_false(tick(office, 20));
        assert_true(office->commit.is_released);
        assert_int_equal(office->commit.released, i);
        assert_false(tick(office, AGENT_RELEASED_MIN_MS - 1));
        assert_true(office->commit.is_released);
    }
}

static void nothing_is_written_when_nothing_has_changed(void **state)
{
    struct office *office = *state;
    bus_hello(&office->bus, 'a', 1, BUS_SOURCE);
    assert_true(tick(office, 0));
    for (int i = 0; i < 10; i++)
        assert_false(tick(office, 1000));
    assert_int_equal(office->n_writes, 1);
    bus_steps(&office->bus, AGENT_STATS, 'a', 1, 1);
    assert_true(tick(office, 1000));
}

static void a_failed_write_is_tried_again_and_releases_nothing(void **state)
{
    struct office *office = *state;
    bus_hello(&office->bus, 'a', 1, BUS_SOURCE);
    assert_true(tick(office, 0));
    assert_true(office->commit.is_released);
    office->is_disk_full = true;
    bus_steps(&office->bus, AGENT_STATS, 'a', 1, 3);
    for (int i = 1; i <= 3; i++) {
        assert_true(tick(office, 1000));
        assert_false(office->commit.is_released);
        assert_int_equal(office->commit.state.generation, 1);
        assert_int_equal(office->bus.counters.commit_failures, i);
    }
    assert_string_equal(office->commit.err.text, "no space left");
    assert_string_equal(bus_sent(&office->bus), ""); /* no publisher hears of it either */
    office->is_disk_full = false;
    assert_true(tick(office, 1000));
    assert_int_equal(office->commit.state.generation, 2);
    assert_string_equal(bus_sent(&office->bus), "a applied 1 3");
}

static void a_killed_agent_carries_on_from_the_commit(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    bus_steps(bus, AGENT_STATS, 'a', 8, 9);
    bus->counters.records_lost = 77;
    bus->counters.state_losses = 3;
    assert_true(tick(office, 0));
    bus_steps(bus, AGENT_STATS, 'a', 10, 20); /* after the commit */
    restart(office);
    (void) bus_sent(bus);
    assert_int_equal(office->commit.state.generation, 1);
    assert_false(office->commit.is_released); /* its marks may not have been echoed */
    assert_int_equal(bus->counters.records_lost, 77);
    assert_int_equal(bus->counters.state_losses, 3);
    assert_true(bus_counter(bus, "i-1", "n_total") == 7);
    bus_steps(bus, AGENT_STATS, 'a', 21, 21);
    assert_string_equal(bus_sent(bus), "a hello");
    const uint64_t mark[] = {1, 5, 8, 9};
    assert_int_equal(bus_hello_marked(bus, 'a', 22, BUS_SOURCE, "", ours, mark, 4), AGENT_ACCEPTED);
    assert_int_equal(bus->n_rolled_back, 0);
    bus_wait(bus, 150);
    assert_string_equal(bus_sent(bus), "a ask 6 7");
    bus_steps(bus, AGENT_REPLAY, 'a', 6, 7);
    bus_end(bus, 'a', 1, 6, 7);
    assert_string_equal(bus_sent(bus), "a ask 10 21");
    bus_steps(bus, AGENT_REPLAY, 'a', 10, 21);
    assert_true(bus_counter(bus, "i-1", "n_total") == 21);
    assert_int_equal(bus->counters.records_duplicate, 0);
}

static void what_a_dead_publisher_owed_is_still_owed_after_a_restart(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 31, BUS_SOURCE);
    assert_true(tick(office, 0));
    restart(office);
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    for (int i = 0; i < 3602; i++)
        agent_publishers_sweep(bus->publishers, true, bus->now_ms += 1000);
    assert_int_equal(bus->counters.records_lost, 30);
}

static void a_damaged_state_is_refused_with_where(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 2, 5);
    assert_true(tick(office, 0));
    for (size_t n = 0; n < office->file.len; n++) {
        struct agent_state read;
        struct sb_err err = {.text = ""};
        struct sb_labelsets *labelsets = bus->labelsets;
        struct bus other = *bus;
        other.labelsets = labelsets;
        bus_open_tables(&other);
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, office->file.data, n);
        assert_int_not_equal(agent_state_load(&read, other.ledger, other.publishers, &other.counters, cut, n, 0, &err),
                             SB_OK);
        assert_string_not_equal(err.text, "");
        free(cut);
        agent_publishers_destroy(&other.publishers);
        agent_ledger_destroy(&other.ledger);
    }
}

static void a_state_of_another_version_is_refused(void **state)
{
    struct office *office = *state;
    struct agent_state read;
    struct sb_err err;
    assert_true(tick(office, 0));
    office->file.data[1] = AGENT_STATE_VERSION + 1; /* behind the array's head */
    assert_int_equal(agent_state_load(&read, office->bus.ledger, office->bus.publishers, &office->bus.counters,
                                      office->file.data, office->file.len, 0, &err),
                     SB_FORMAT);
    assert_string_equal(err.text, "it is of version 2, this agent reads 1");
}

static void a_new_lineage_starts_from_zero_with_the_ranges_as_they_are(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    assert_true(tick(office, 0));
    bus_mark(bus, 'a', 6, ours, 5);
    assert_false(tick(office, 20));
    assert_true(office->commit.is_released);
    (void) bus_sent(bus);

    memset(bus->lineage, 'N', sizeof bus->lineage);
    agent_commit_new_lineage(&office->commit, bus->lineage, false);
    assert_false(office->commit.is_released);
    assert_true(bus_counter(bus, "i-1", "n_total") == 0);
    bus_steps(bus, AGENT_STATS, 'a', 1, 7);
    assert_true(bus_counter(bus, "i-1", "n_total") == 2);
    assert_true(tick(office, 1000));
    assert_string_equal(bus_sent(bus), "a applied 1 7");
    assert_int_equal(bus->counters.state_losses, 1);
    const uint64_t mark[] = {1, 5, 9, 9}; /* of the lineage that was ours: no second loss */
    assert_int_equal(bus_hello_marked(bus, 'a', 10, BUS_SOURCE, "", ours, mark, 4), AGENT_ACCEPTED);
    assert_int_equal(bus->counters.state_losses, 1);
}

/* As a hub would have it: 3 of 5 were sent to one that has closed the lineage. */
static void after_closing_a_new_lineage_starts_with_what_no_hub_has(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    bus_steps(bus, AGENT_STATS, 'a', 1, 5);
    assert_true(tick(office, 0));
    const struct agent_contribution *contribution = bus_contribution(bus, "i-1");
    contribution->told[bus_place(bus, contribution, "n_total")] = 3;
    bus_steps(bus, AGENT_STATS, 'a', 6, 6);

    memset(bus->lineage, 'N', sizeof bus->lineage);
    agent_commit_new_lineage(&office->commit, bus->lineage, true);
    assert_false(office->commit.is_released);
    assert_true(bus_counter(bus, "i-1", "n_total") == 3);
    assert_true(contribution->staged[bus_place(bus, contribution, "n_total")] == 2);
    bus_steps(bus, AGENT_STATS, 'a', 1, 7); /* the ranges are as they were */
    assert_true(bus_counter(bus, "i-1", "n_total") == 4);
    assert_int_equal(bus->counters.state_losses, 0);
    assert_int_equal(bus->counters.lineages_closed, 1);
    agent_commit_new_lineage(&office->commit, bus->lineage, true); /* nothing was told since */
    assert_true(bus_counter(bus, "i-1", "n_total") == 4);
}

/* The throttle, alone */

static void missed_ticks_that_fire_in_a_burst_publish_once(void **state)
{
    struct office *office = *state;
    struct bus *bus = &office->bus;
    bus_hello(bus, 'a', 1, BUS_SOURCE);
    struct agent_contribution *contribution = bus_contribution(bus, "i-1");
    bus_wait(bus, 2000);
    const uint64_t version = contribution->shown_version;
    for (int i = 0; i < 20; i++) {
        contribution->is_gauge_changed = true;
        agent_throttle_pass(&bus->throttle, bus->ledger, bus->now_ms);
    }
    assert_int_equal(contribution->shown_version, version + 1);
    agent_throttle_pass(&bus->throttle, bus->ledger, bus->now_ms + 999);
    assert_int_equal(contribution->shown_version, version + 1);
    agent_throttle_pass(&bus->throttle, bus->ledger, bus->now_ms + 1000);
    assert_int_equal(contribution->shown_version, version + 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_office, close_office)
    const struct CMUnitTest tests[] = {
        TEST(counters_are_released_once_the_mark_is_echoed),
        TEST(another_period_holds_from_now_on),
        TEST(no_commit_starts_while_a_release_is_pending_and_a_second_is_the_longest_wait),
        TEST(what_is_released_may_leave_for_a_while_however_long_the_marks_took),
        TEST(nothing_is_written_when_nothing_has_changed),
        TEST(a_failed_write_is_tried_again_and_releases_nothing),
        TEST(a_killed_agent_carries_on_from_the_commit),
        TEST(what_a_dead_publisher_owed_is_still_owed_after_a_restart),
        TEST(a_damaged_state_is_refused_with_where),
        TEST(a_state_of_another_version_is_refused),
        TEST(a_new_lineage_starts_from_zero_with_the_ranges_as_they_are),
        TEST(after_closing_a_new_lineage_starts_with_what_no_hub_has),
        TEST(missed_ticks_that_fire_in_a_burst_publish_once),
    };
    return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
