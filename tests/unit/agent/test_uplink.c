/* What a hub is told, against a hub that the test plays. */
#include "bus.h"

#include "agent/uplink.h"

struct session {
    struct bus bus;
    struct agent_uplink uplink;
    struct agent_uplink_release release;
    bool is_stuck;      /* the socket takes nothing */
    char said[1 << 16]; /* "HELLO 0; DEFINE 5 4 1; FRAME 1 g0 c0 live gauges 0 cells 6; ..." */
    double total_seen;  /* the last value of n_total's cell */
};

static void note(struct session *self, const char *fmt, ...) SB_PRINTF(2, 3);
static void note(struct session *self, const char *fmt, ...)
{
    const size_t len = strlen(self->said);
    va_list args;
    va_start(args, fmt);
    vsnprintf(self->said + len, sizeof self->said - len, fmt, args);
    va_end(args);
}

static uint64_t take_uint(struct sb_mp *at)
{
    uint64_t value;
    assert_true(sb_mp_uint(at, &value));
    return value;
}

static void note_frame(struct session *self, struct sb_mp *at)
{
    bool is_live;
    struct sb_slice bins[4];
    const uint64_t number = take_uint(at), generation = take_uint(at), contribution = take_uint(at);
    const bool has_age = !sb_mp_nil(at);
    if (has_age)
        (void) take_uint(at);
    assert_true(sb_mp_bool(at, &is_live));
    for (int i = 0; i < 4; i++)
        assert_true(sb_mp_bin(at, &bins[i]));
    assert_int_equal(bins[0].len / 4, bins[1].len / 8);
    assert_int_equal(bins[2].len / 4, bins[3].len / 8);
    const struct agent_contribution *told = agent_ledger_contribution_at(self->bus.ledger, (uint32_t) contribution);
    assert_true(!told || has_age == (told->shown_ms >= 0)); /* ids are indexes in these tests */
    note(self, " %llu g%llu c%llu %s gauges %zu cells %zu", (unsigned long long) number,
         (unsigned long long) generation, (unsigned long long) contribution, is_live ? "live" : "dead", bins[0].len / 4,
         bins[2].len / 4);
    const struct agent_series *series = bus_series(&self->bus, "n_total");
    for (size_t i = 0; series && i < bins[2].len / 4; i++) {
        uint32_t cell;
        memcpy(&cell, bins[2].at + 4 * i, sizeof cell);
        if (cell == series->first)
            memcpy(&self->total_seen, bins[3].at + 8 * i, sizeof self->total_seen);
    }
}

static bool hub_gets(void *arg, const void *bytes, size_t n)
{
    struct session *self = arg;
    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t elements, count;
    struct sb_slice type;
    if (self->is_stuck)
        return false;
    assert_int_equal(sb_mp_validate(bytes, n, SB_MP_DEPTH_MAX, NULL), SB_OK);
    assert_true(sb_mp_array(&at, &elements) && sb_mp_str(&at, &type));
    note(self, "%s%.*s", self->said[0] ? "; " : "", (int) type.len, type.at);
    if (sb_slice_is(type, "HELLO")) {
        struct sb_slice text;
        assert_int_equal(take_uint(&at), 1);
        assert_true(sb_mp_str(&at, &text) && sb_mp_bin(&at, &text));
        note(self, " %llu", (unsigned long long) take_uint(&at));
    } else if (sb_slice_is(type, "DEFINE")) {
        for (int i = 0; i < 3; i++) {
            assert_true(sb_mp_array(&at, &count));
            note(self, " %u", (unsigned) count);
            for (; count > 0; count--)
                assert_true(sb_mp_skip(&at));
        }
    } else if (sb_slice_is(type, "FRAME") && elements > 1) {
        note_frame(self, &at);
    } else if (sb_slice_is(type, "END") || sb_slice_is(type, "FORGET")) {
        assert_true(sb_mp_array(&at, &count));
        for (; count > 0; count--)
            note(self, " %llu", (unsigned long long) take_uint(&at));
    }
    return true;
}

static const char *said(struct session *self)
{
    static char taken[sizeof self->said];
    memcpy(taken, self->said, sizeof taken);
    self->said[0] = '\0';
    return taken;
}

static int open_session(void **state)
{
    struct session *self = calloc(1, sizeof *self);
    bus_init(&self->bus);
    const struct agent_uplink_cfg cfg = {.ledger = self->bus.ledger,
                                         .counters = &self->bus.counters,
                                         .node = "n",
                                         .lineage = self->bus.lineage,
                                         .loaded_generation = 10,
                                         .hub_timeout_ms = 15000,
                                         .send = hub_gets,
                                         .arg = self};
    assert_int_equal(agent_uplink_init(&self->uplink, &cfg), SB_OK);
    self->release.generation = 10;
    *state = self;
    return 0;
}

static int close_session(void **state)
{
    struct session *self = *state;
    agent_uplink_destroy(&self->uplink);
    bus_release(&self->bus);
    free(self);
    return 0;
}

static enum agent_uplink_event hub_says(struct session *self, const char *yaml)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    pack_yaml(&buf, yaml);
    const enum agent_uplink_event event = agent_uplink_receive(&self->uplink, buf.data, buf.len, self->bus.now_ms);
    sb_buf_release(&buf);
    return event;
}

static enum agent_uplink_event hub_welcomes(struct session *self, uint64_t highest)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 12);
    sb_mp_put_array(&buf, 4);
    sb_mp_put_str(&buf, "WELCOME");
    sb_mp_put_uint(&buf, 1);
    sb_mp_put_bin(&buf, "hhhhhhhhhhhhhhhh", 16);
    sb_mp_put_uint(&buf, highest);
    const enum agent_uplink_event event = agent_uplink_receive(&self->uplink, buf.data, buf.len, self->bus.now_ms);
    sb_buf_release(&buf);
    return event;
}

static enum agent_uplink_event hub_acks(struct session *self, uint64_t number)
{
    char yaml[64];
    snprintf(yaml, sizeof yaml, "[ACK, %llu]", (unsigned long long) number);
    return hub_says(self, yaml);
}

static enum agent_uplink_event pump(struct session *self, int64_t ms)
{
    self->bus.now_ms += ms;
    return agent_uplink_pump(&self->uplink, &self->release, self->bus.now_ms);
}

/* A commit that is released at once. */
static void commit(struct session *self)
{
    agent_ledger_stage(self->bus.ledger);
    self->release.is_released = true;
    self->release.generation++;
}

static void greet(struct session *self)
{
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_int_equal(hub_welcomes(self, 10), AGENT_UPLINK_FINE);
}

/* One source with one count of each kind, committed. */
static void fill(struct session *self)
{
    bus_hello(&self->bus, 'a', 1, BUS_SOURCE);
    bus_steps(&self->bus, AGENT_STATS, 'a', 1, 3);
    assert_int_equal(
        bus_say(&self->bus, AGENT_STATS, 'a', "rec", 4, 1, "[[step, 0, 2.0, {scheduler_stats: {running: 4}}]]"),
        AGENT_ACCEPTED);
    bus_wait(&self->bus, 50);
    commit(self);
}

static void a_session_starts_with_hello_and_sends_everything_after_welcome(void **state)
{
    struct session *self = *state;
    fill(self);
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_string_equal(said(self), "HELLO 10");
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "");
    assert_int_equal(hub_welcomes(self, 10), AGENT_UPLINK_FINE);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "DEFINE 5 0 0; DEFINE 0 5 0; DEFINE 0 0 2; "
                                    "FRAME 1 g11 c0 live gauges 1 cells 6; FRAME 2 g11 c1 live gauges 0 cells 1");
    assert_true(self->total_seen == 3);
}

static void one_frame_a_contribution_is_under_way_and_the_next_has_what_changed_since(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    (void) said(self);
    bus_steps(&self->bus, AGENT_STATS, 'a', 5, 6);
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    bus_steps(&self->bus, AGENT_STATS, 'a', 7, 8);
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), ""); /* the windows are closed */
    assert_int_equal(hub_acks(self, 1), AGENT_UPLINK_FINE);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME 3 g13 c0 live gauges 1 cells 1");
    assert_true(self->total_seen == 7);
    assert_int_equal(hub_acks(self, 3), AGENT_UPLINK_FINE);
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), ""); /* nothing has changed */
}

static void gauges_leave_without_a_release_and_counters_do_not(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_int_equal(hub_acks(self, 2), AGENT_UPLINK_FINE);
    (void) said(self);
    bus_steps(&self->bus, AGENT_STATS, 'a', 5, 6);
    assert_int_equal(bus_say(&self->bus, AGENT_STATS, 'a', "rec", 7, 1,
                             "[[step, 0, 3.0, {scheduler_stats: {running: 5, waiting: 1}}]]"),
                     AGENT_ACCEPTED);
    bus_wait(&self->bus, 1100);
    agent_ledger_stage(self->bus.ledger); /* written, marks not yet echoed */
    self->release.is_released = false;
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME 3 g11 c0 live gauges 2 cells 0");
    assert_int_equal(hub_acks(self, 3), AGENT_UPLINK_FINE);
    self->release = (struct agent_uplink_release){.is_released = true, .generation = 12};
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME 4 g12 c0 live gauges 2 cells 1");
}

static void new_series_are_defined_before_their_cells_come_zero_included(void **state)
{
    struct session *self = *state;
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "HELLO 10");
    bus_hello(&self->bus, 'a', 1, BUS_SOURCE);
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_non_null(strstr(said(self), "FRAME 1 g11 c0 live gauges 0 cells 6"));
    bus_hello(&self->bus, 'b', 1, "{index: 0, instance_id: i-2}");
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "DEFINE 0 0 2; FRAME 3 g12 c2 live gauges 0 cells 6; "
                                    "FRAME 4 g12 c3 live gauges 0 cells 1");
}

static void a_lost_ack_ends_the_session_and_the_next_has_everything_again(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    (void) said(self);
    for (int i = 0; i < 7; i++)
        assert_int_equal(pump(self, 2000), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME; FRAME; FRAME; FRAME; FRAME; FRAME; FRAME"); /* heartbeats */
    assert_int_equal(pump(self, 2000), AGENT_UPLINK_OVER);
    assert_string_equal(self->uplink.err.text, "the hub is silent");
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "HELLO 11; DEFINE 5 0 0; DEFINE 0 5 0; DEFINE 0 0 2; "
                                    "FRAME 1 g11 c0 live gauges 1 cells 6; FRAME 2 g11 c1 live gauges 0 cells 1");
}

static void a_hub_that_takes_nothing_costs_one_message_of_memory(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    (void) said(self);
    self->is_stuck = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_true(self->uplink.is_blocked);
    assert_in_range(self->uplink.out.cap, 1, 1 << 16);
    self->is_stuck = false;
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "DEFINE 5 0 0; DEFINE 0 5 0; DEFINE 0 0 2; "
                                    "FRAME 1 g11 c0 live gauges 1 cells 6; FRAME 2 g11 c1 live gauges 0 cells 1");
}

static void refusals_silence_and_nonsense_end_a_session(void **state)
{
    struct session *self = *state;
    static const struct {
        const char *message;
        enum agent_uplink_event wanted;
    } cases[] = {
        {"[REFUSED, \"no room\"]", AGENT_UPLINK_OVER},
        {"[REFUSED]", AGENT_UPLINK_OVER},
        {"[ACK, 5]", AGENT_UPLINK_OVER},
        {"[ACK]", AGENT_UPLINK_OVER},
        {"[ACK, a]", AGENT_UPLINK_OVER},
        {"[]", AGENT_UPLINK_OVER},
        {"7", AGENT_UPLINK_OVER},
        {"[WELCOME, 1]", AGENT_UPLINK_OVER},
        {"[NEWS, 1, 2]", AGENT_UPLINK_FINE},
        {"[ACK, 0, more]", AGENT_UPLINK_FINE},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        greet(self);
        if (hub_says(self, cases[i].message) != cases[i].wanted)
            fail_msg("%s", cases[i].message);
    }
    greet(self);
    assert_int_equal(hub_says(self, "[REFUSED, \"no room\"]"), AGENT_UPLINK_OVER);
    assert_string_equal(self->uplink.err.text, "the hub refused the session: no room");
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_int_equal(pump(self, AGENT_WELCOME_WAIT_MS), AGENT_UPLINK_FINE);
    assert_int_equal(pump(self, 1), AGENT_UPLINK_OVER);
}

static void a_hub_that_knows_later_commits_says_that_the_state_was_rolled_back(void **state)
{
    struct session *self = *state;
    fill(self);
    for (int i = 0; i < 10; i++)
        commit(self); /* this process went on for a while without that hub */
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_string_equal(said(self), "HELLO 10");
    assert_int_equal(hub_welcomes(self, 15), AGENT_UPLINK_ROLLED_BACK);
}

static void a_hub_says_that_it_has_closed_the_lineage_and_what_was_sent_is_known(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    const struct agent_contribution *contribution = bus_contribution(&self->bus, "i-1");
    const uint32_t cell = bus_place(&self->bus, contribution, "n_total");
    assert_true(contribution->live[cell] == 3 && contribution->told[cell] == 0);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_true(contribution->told[cell] == 3);
    bus_steps(&self->bus, AGENT_STATS, 'a', 5, 6);
    commit(self);
    assert_true(contribution->live[cell] == 5 && contribution->told[cell] == 3); /* the first frame is under way */
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_int_equal(hub_says(self, "[WELCOME, 1, hhhhhhhhhhhhhhhh, 12, true]"), AGENT_UPLINK_OVER); /* a text as id */
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 12);
    sb_mp_put_array(&buf, 5);
    sb_mp_put_str(&buf, "WELCOME");
    sb_mp_put_uint(&buf, 1);
    sb_mp_put_bin(&buf, "hhhhhhhhhhhhhhhh", 16);
    sb_mp_put_uint(&buf, 12);
    sb_mp_put_bool(&buf, true);
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_int_equal(agent_uplink_receive(&self->uplink, buf.data, buf.len, self->bus.now_ms), AGENT_UPLINK_CLOSED);
    sb_buf_release(&buf);
    assert_true(contribution->told[cell] == 3);
}

static void a_hub_may_know_what_this_process_has_sent(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    agent_uplink_start(&self->uplink, self->bus.now_ms);
    assert_int_equal(hub_welcomes(self, 11), AGENT_UPLINK_FINE);
}

static void an_end_follows_the_frame_that_says_so_and_a_forget_the_commit_without_it(void **state)
{
    struct session *self = *state;
    fill(self);
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    (void) said(self);
    bus_beat(&self->bus, 'a', 5, "", "0");
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "");
    assert_int_equal(hub_acks(self, 2), AGENT_UPLINK_FINE);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME 3 g11 c0 dead gauges 0 cells 0; FRAME 4 g11 c1 dead gauges 0 cells 0; "
                                    "END 0 1");
    const struct agent_contribution *contribution = bus_contribution(&self->bus, "i-1");
    assert_false(agent_uplink_has(&self->uplink, contribution, &self->release));
    assert_int_equal(hub_acks(self, 4), AGENT_UPLINK_FINE);
    assert_true(agent_uplink_has(&self->uplink, contribution, &self->release));
    assert_true(agent_uplink_is_settled(&self->uplink, &self->release));
    assert_true(agent_publishers_release(self->bus.publishers, contribution));
    agent_uplink_forget(&self->uplink, contribution, self->release.generation + 1);
    agent_ledger_forget(self->bus.ledger, contribution->index);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "");
    commit(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FORGET 0");
}

static void a_source_that_comes_back_lives_again(void **state)
{
    struct session *self = *state;
    fill(self);
    bus_beat(&self->bus, 'a', 5, "", "0");
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_int_equal(hub_acks(self, 2), AGENT_UPLINK_FINE);
    assert_non_null(strstr(said(self), "END 0 1"));
    bus_hello(&self->bus, 'b', 1, BUS_SOURCE);
    bus_beat(&self->bus, 'b', 1, "0", "");
    bus_wait(&self->bus, 1100);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    assert_string_equal(said(self), "FRAME 3 g11 c0 live gauges 0 cells 0; FRAME 4 g11 c1 live gauges 0 cells 0");
}

static void many_definitions_go_in_pieces(void **state)
{
    struct session *self = *state;
    struct sb_err err;
    struct sb_labelsets *labelsets = self->bus.labelsets;
    fill(self);
    static struct sb_label_draft draft;
    char long_text[257];
    memset(long_text, 'x', sizeof long_text);
    for (int i = 0; i < 2000; i++) { /* 2,000 contributions with some 1.6 KB of labels each */
        sb_label_draft_clear(&draft);
        for (char name = 'a'; name < 'g'; name++)
            assert_int_equal(sb_label_draft_set(&draft, &name, 1, long_text, 256, NULL, &err), SB_OK);
        char number[16];
        const int len = snprintf(number, sizeof number, "%d", i);
        assert_int_equal(sb_label_draft_set(&draft, "instance_id", 11, number, (size_t) len, NULL, &err), SB_OK);
        struct sb_labelset *identity = sb_labelsets_get(labelsets, &draft);
        sb_label_draft_clear(&draft);
        struct sb_labelset *source = sb_labelsets_get(labelsets, &draft);
        assert_non_null(agent_ledger_contribution(self->bus.ledger, false, source, identity, 1, NULL, &err));
        sb_labelsets_drop(labelsets, &identity);
        sb_labelsets_drop(labelsets, &source);
    }
    greet(self);
    assert_int_equal(pump(self, 20), AGENT_UPLINK_FINE);
    unsigned pieces = 0, defined = 0, a, b, c;
    for (const char *at = said(self); (at = strstr(at, "DEFINE")); at++) {
        assert_int_equal(sscanf(at, "DEFINE %u %u %u", &a, &b, &c), 3);
        pieces += c > 0;
        defined += c;
    }
    assert_int_equal(defined, 2002);
    assert_in_range(pieces, 3, 5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_session, close_session)
    const struct CMUnitTest tests[] = {
        TEST(a_session_starts_with_hello_and_sends_everything_after_welcome),
        TEST(one_frame_a_contribution_is_under_way_and_the_next_has_what_changed_since),
        TEST(gauges_leave_without_a_release_and_counters_do_not),
        TEST(new_series_are_defined_before_their_cells_come_zero_included),
        TEST(a_lost_ack_ends_the_session_and_the_next_has_everything_again),
        TEST(a_hub_that_takes_nothing_costs_one_message_of_memory),
        TEST(refusals_silence_and_nonsense_end_a_session),
        TEST(a_hub_that_knows_later_commits_says_that_the_state_was_rolled_back),
        TEST(a_hub_says_that_it_has_closed_the_lineage_and_what_was_sent_is_known),
        TEST(a_hub_may_know_what_this_process_has_sent),
        TEST(an_end_follows_the_frame_that_says_so_and_a_forget_the_commit_without_it),
        TEST(a_source_that_comes_back_lives_again),
        TEST(many_definitions_go_in_pieces),
    };
    return cmocka_run_group_tests_name("uplink", tests, NULL, NULL);
}
