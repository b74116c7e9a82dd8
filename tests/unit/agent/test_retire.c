/* Forgetting sources that ended long ago, with a hub that the test plays and a neighbour that never stops counting. */
#include "bus.h"

#include "agent/retire.h"

enum { FORGET_AFTER_MS = 3600 * 1000 };

struct home {
    struct bus bus;
    struct agent_commit commit;
    struct agent_hublink hub; /* no socket: its uplink sends to hub_gets */
    uint64_t number;          /* of the neighbour's next record */
    uint64_t ended_number;    /* of the last record of the one that ends */
    uint32_t n_forgets;
};

static enum sb_rc write_nothing(void *arg, const void *bytes, size_t n, struct sb_err *err)
{
    (void) arg;
    (void) bytes;
    (void) n;
    (void) err;
    return SB_OK;
}

static bool hub_gets(void *arg, const void *bytes, size_t n)
{
    struct home *home = arg;
    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t elements;
    struct sb_slice type = {"", 0};
    assert_true(sb_mp_array(&at, &elements) && sb_mp_str(&at, &type));
    home->n_forgets += sb_slice_is(type, "FORGET");
    return true;
}

static void hub_says(struct home *home, const char *type, uint64_t number)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 12);
    const bool is_welcome = strcmp(type, "WELCOME") == 0;
    sb_mp_put_array(&buf, is_welcome ? 4 : 2);
    sb_mp_put_str(&buf, type);
    if (is_welcome) {
        sb_mp_put_uint(&buf, 1);
        sb_mp_put_bin(&buf, "hhhhhhhhhhhhhhhh", 16);
    }
    sb_mp_put_uint(&buf, number);
    assert_int_equal(agent_uplink_receive(&home->hub.uplink, buf.data, buf.len, home->bus.now_ms), AGENT_UPLINK_FINE);
    sb_buf_release(&buf);
}

static int open_home(void **state)
{
    struct home *home = calloc(1, sizeof *home);
    bus_init(&home->bus);
    struct agent_state fresh = {.generation = 0};
    memcpy(fresh.lineage, home->bus.lineage, AGENT_LINEAGE_LEN);
    const struct agent_commit_cfg commit = {.ledger = home->bus.ledger,
                                            .publishers = home->bus.publishers,
                                            .counters = &home->bus.counters,
                                            .period_ms = 1000,
                                            .write = write_nothing,
                                            .arg = home};
    agent_commit_init(&home->commit, &commit, &fresh);
    const struct agent_uplink_cfg uplink = {.ledger = home->bus.ledger,
                                            .counters = &home->bus.counters,
                                            .node = "n",
                                            .lineage = home->bus.lineage,
                                            .hub_timeout_ms = 15000,
                                            .send = hub_gets,
                                            .arg = home};
    assert_int_equal(agent_uplink_init(&home->hub.uplink, &uplink), SB_OK);
    agent_uplink_start(&home->hub.uplink, home->bus.now_ms);
    hub_says(home, "WELCOME", 0);
    home->number = 1;
    home->ended_number = 2;
    *state = home;
    return 0;
}

static int close_home(void **state)
{
    struct home *home = *state;
    agent_uplink_destroy(&home->hub.uplink);
    agent_commit_release(&home->commit);
    bus_release(&home->bus);
    free(home);
    return 0;
}

static void retire(struct home *home)
{
    const struct agent_retire_cfg cfg = {.ledger = home->bus.ledger,
                                         .publishers = home->bus.publishers,
                                         .commit = &home->commit,
                                         .counters = &home->bus.counters,
                                         .hubs = &home->hub,
                                         .n_hubs = 1,
                                         .forget_after_ms = FORGET_AFTER_MS};
    agent_retire(&cfg, home->bus.now_ms);
}

static void neighbour_counts(struct home *home)
{
    bus_steps(&home->bus, AGENT_STATS, 'b', home->number, home->number);
    home->number++;
}

/* A commit, its marks, and the hub takes and acknowledges what is released; the neighbour counts all the while. */
static void cycle(struct home *home)
{
    home->bus.now_ms += 1000;
    neighbour_counts(home);
    assert_true(agent_commit_tick(&home->commit, home->bus.now_ms));
    bus_mark(&home->bus, 'a', home->ended_number + 1, "LLLLLLLLLLLLLLLL", home->ended_number);
    bus_mark(&home->bus, 'b', home->number, "LLLLLLLLLLLLLLLL", home->number - 1);
    neighbour_counts(home);
    (void) agent_commit_tick(&home->commit, home->bus.now_ms + 20);
    assert_true(home->commit.is_released);
    const struct agent_uplink_release release = {.is_released = true, .generation = home->commit.released};
    home->hub.uplink.heard_ms = home->bus.now_ms;
    assert_int_equal(agent_uplink_pump(&home->hub.uplink, &release, home->bus.now_ms), AGENT_UPLINK_FINE);
    hub_says(home, "ACK", home->hub.uplink.number);
    neighbour_counts(home);
}

/* Engine a has counted and ended, long ago. */
static void end_one(struct home *home)
{
    bus_hello(&home->bus, 'a', 1, BUS_SOURCE);
    bus_hello(&home->bus, 'b', 1, "{index: 0, service_name: s, model_name: m, job_name: j, instance_id: i-2}");
    bus_steps(&home->bus, AGENT_STATS, 'a', 1, 2);
    cycle(home);
    bus_beat(&home->bus, 'a', 3, "", "0");
    cycle(home);
    home->bus.now_ms += FORGET_AFTER_MS;
}

static void what_ended_is_forgotten_while_others_go_on_counting(void **state)
{
    struct home *home = *state;
    end_one(home);
    assert_non_null(bus_contribution(&home->bus, "i-1"));
    cycle(home);
    assert_false(agent_commit_is_settled(&home->commit));
    retire(home);
    assert_null(bus_contribution(&home->bus, "i-1"));
    assert_non_null(bus_contribution(&home->bus, "i-2"));
    assert_int_equal(home->n_forgets, 0);
    cycle(home);
    assert_int_equal(home->n_forgets, 1); /* behind the commit without it */
    assert_int_equal(home->bus.counters.contributions_given_up, 0);
}

static void what_was_counted_since_the_commit_leaves_first(void **state)
{
    struct home *home = *state;
    end_one(home);
    cycle(home);
    bus_steps(&home->bus, AGENT_STATS, 'a', 3, 3); /* late */
    home->ended_number = 3;
    retire(home);
    assert_non_null(bus_contribution(&home->bus, "i-1"));
    cycle(home);
    retire(home);
    assert_null(bus_contribution(&home->bus, "i-1"));
}

static void a_hub_that_lacks_the_last_values_is_waited_for_while_it_is_there(void **state)
{
    struct home *home = *state;
    end_one(home);
    cycle(home);
    agent_uplink_start(&home->hub.uplink, home->bus.now_ms);
    hub_says(home, "WELCOME", 0);
    home->hub.down_ms = home->bus.now_ms;
    retire(home);
    assert_non_null(bus_contribution(&home->bus, "i-1"));
    agent_uplink_stop(&home->hub.uplink);
    home->bus.now_ms += FORGET_AFTER_MS;
    retire(home);
    assert_null(bus_contribution(&home->bus, "i-1"));
    assert_true(home->bus.counters.contributions_given_up > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_home, close_home)
    const struct CMUnitTest tests[] = {
        TEST(what_ended_is_forgotten_while_others_go_on_counting),
        TEST(what_was_counted_since_the_commit_leaves_first),
        TEST(a_hub_that_lacks_the_last_values_is_waited_for_while_it_is_there),
    };
    return cmocka_run_group_tests_name("retire", tests, NULL, NULL);
}
