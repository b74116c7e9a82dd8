/* The throttle with hundreds of schedulers on one agent: none waits for another, and what is held back loses nothing.
 */
#include "bus.h"

enum {
    SCHEDULERS = 256,
    STEP_MS = 20, /* 50 a second */
    PERIOD_MS = 1000,
    PASS_MS = 50, /* between two passes of the throttle */
};

static struct agent_contribution *schedulers[SCHEDULERS];

/* One publisher with all of them: replicas of stages, as an orchestrator has them. */
static void say_hello(struct bus *bus)
{
    struct sb_buf hello;
    char text[256];
    sb_buf_init(&hello, 1 << 20);
    snprintf(text, sizeof text, "{publisher: \"%s\", host: h, time: %.3f}", bus_id('a'), (double) bus->now_ms / 1000);
    pack_yaml(&hello, text);
    hello.data[0]++; /* one pair more */
    sb_mp_put_str(&hello, "sources");
    sb_mp_put_array(&hello, SCHEDULERS);
    for (int i = 0; i < SCHEDULERS; i++) {
        snprintf(text, sizeof text, "{index: %d, service_name: s, instance_id: i-%d, stage: \"%d\", replica: \"%d\"}",
                 i, i, i / 64, i % 64);
        pack_yaml(&hello, text);
    }
    assert_int_equal(bus_put(bus, AGENT_STATS, 'a', "hello", 1, 0, hello.data, hello.len), AGENT_ACCEPTED);
    sb_buf_release(&hello);
    for (int i = 0; i < SCHEDULERS; i++) {
        snprintf(text, sizeof text, "i-%d", i);
        schedulers[i] = bus_contribution(bus, text);
        assert_non_null(schedulers[i]);
    }
}

static void put_step(struct sb_buf *out, int scheduler, double now_s, double running)
{
    sb_mp_put_array(out, 4);
    sb_mp_put_str(out, "step");
    sb_mp_put_uint(out, (uint64_t) scheduler);
    sb_mp_put_float(out, now_s);
    sb_mp_put_map(out, 2);
    sb_mp_put_str(out, "scheduler_stats");
    sb_mp_put_map(out, 1);
    sb_mp_put_str(out, "running");
    sb_mp_put_float(out, running);
    sb_mp_put_str(out, "iteration_stats");
    sb_mp_put_map(out, 1);
    sb_mp_put_str(out, "n");
    sb_mp_put_uint(out, 1);
}

/* A step of each scheduler whose turn it is; what runs is the time of the step, so that its age can be seen. */
static void step(struct bus *bus, uint64_t *next, int first, int stride)
{
    struct sb_buf records;
    const uint32_t n = (uint32_t) ((SCHEDULERS - first + stride - 1) / stride);
    sb_buf_init(&records, 1 << 20);
    sb_mp_put_array(&records, n);
    for (int i = first; i < SCHEDULERS; i += stride)
        put_step(&records, i, (double) bus->now_ms / 1000, (double) bus->now_ms);
    assert_int_equal(bus_put(bus, AGENT_STATS, 'a', "rec", *next, n, records.data, records.len), AGENT_ACCEPTED);
    sb_buf_release(&records);
    *next += n;
}

static double shown(struct bus *bus, const struct agent_contribution *of)
{
    const struct agent_series *running = bus_series(bus, "running");
    for (uint32_t i = 0; i < of->n_shown; i++)
        if (of->shown_cells[i] == running->first)
            return of->shown_values[i];
    return -1;
}

static void pass(struct bus *bus)
{
    agent_throttle_pass(&bus->throttle, bus->ledger, bus->now_ms);
}

/* Fault 1 of a throttle with one timestamp for all: whoever comes behind another is never let through. */
static void none_of_hundreds_of_schedulers_starves_another(void **state)
{
    struct bus *bus = *state;
    uint64_t next = 1;
    uint64_t before[SCHEDULERS];
    say_hello(bus);
    const int64_t start_ms = bus->now_ms;
    while (bus->now_ms < start_ms + 5 * PERIOD_MS) {
        bus->now_ms += STEP_MS;
        step(bus, &next, 0, 1);
        if ((bus->now_ms - start_ms) % (PASS_MS * 2) == 0) /* every fifth step, which is later than in the agent */
            pass(bus);
        if (bus->now_ms == start_ms + PERIOD_MS)
            for (int i = 0; i < SCHEDULERS; i++)
                before[i] = schedulers[i]->shown_version;
        for (int i = 0; bus->now_ms >= start_ms + 2 * PASS_MS && i < SCHEDULERS; i++)
            assert_true((double) bus->now_ms - shown(bus, schedulers[i]) <= PERIOD_MS + 2 * PASS_MS);
    }
    for (int i = 0; i < SCHEDULERS; i++)
        assert_int_equal(schedulers[i]->shown_version - before[i], 4); /* one a period, no more either */
}

/* The same when their steps fall into one another's periods. */
static void schedulers_out_of_step_get_through_as_they_come(void **state)
{
    enum { TURNS = 8 };
    struct bus *bus = *state;
    uint64_t next = 1;
    say_hello(bus);
    pass(bus);
    bus->now_ms += PERIOD_MS;
    for (int turn = 0; turn < 3 * TURNS; turn++) {
        bus->now_ms += PERIOD_MS / TURNS;
        step(bus, &next, turn % TURNS, TURNS);
        pass(bus);
        for (int i = turn % TURNS; i < SCHEDULERS; i += TURNS)
            assert_true(shown(bus, schedulers[i]) == (double) bus->now_ms); /* at once: its own period is over */
    }
}

/* Fault 2: deltas lost with the snapshots that they came with. */
static void deltas_that_come_with_snapshots_held_back_are_counted(void **state)
{
    enum { STEPS = 60 };
    struct bus *bus = *state;
    uint64_t next = 1;
    say_hello(bus);
    const uint64_t version = schedulers[7]->shown_version;
    for (int i = 0; i < STEPS; i++) {
        bus->now_ms += STEP_MS / 2;
        step(bus, &next, 0, 1);
        pass(bus);
    }
    assert_int_equal(schedulers[7]->shown_version - version, 1); /* 59 of 60 were held back, or replaced */
    for (int i = 0; i < SCHEDULERS; i++)
        assert_true(schedulers[i]->live[bus_place(bus, schedulers[i], "n_total")] == STEPS);
}

/* Fault 3: the last values before silence never leave, so a gauge stays as it was under load. */
static void the_last_snapshots_before_silence_all_leave_without_another_message(void **state)
{
    struct bus *bus = *state;
    uint64_t next = 1;
    say_hello(bus);
    pass(bus);
    bus->now_ms += PERIOD_MS;
    step(bus, &next, 0, 1);
    pass(bus);
    bus->now_ms += STEP_MS;
    step(bus, &next, 0, 1);
    const double last = (double) bus->now_ms;
    for (int ms = 0; ms < PERIOD_MS - STEP_MS - PASS_MS; ms += PASS_MS) {
        pass(bus);
        bus->now_ms += PASS_MS;
    }
    for (int i = 0; i < SCHEDULERS; i++)
        assert_true(shown(bus, schedulers[i]) == last - STEP_MS);
    bus->now_ms += 2 * PASS_MS;
    pass(bus);
    for (int i = 0; i < SCHEDULERS; i++)
        assert_true(shown(bus, schedulers[i]) == last);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, bus_open, bus_close)
    const struct CMUnitTest tests[] = {
        TEST(none_of_hundreds_of_schedulers_starves_another),
        TEST(schedulers_out_of_step_get_through_as_they_come),
        TEST(deltas_that_come_with_snapshots_held_back_are_counted),
        TEST(the_last_snapshots_before_silence_all_leave_without_another_message),
    };
#undef TEST
    return cmocka_run_group_tests_name("throttle", tests, NULL, NULL);
}
