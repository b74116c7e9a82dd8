/* Totals of cumulative families: what each new one adds, whoever tells of it and whatever got lost. */
#define BUS_MORE_FAMILIES                                                                                              \
    "  cpu_total: {type: counter, cumulative: true, help: h}\n"                                                        \
    "  pause: {type: histogram, cumulative: true, buckets: b, help: h}\n"                                              \
    "  threads_total: {type: counter, cumulative: true, scope: publisher, help: h}\n"

#include "bus.h"

#define I5 "{index: 0, service_name: s, model_name: m, job_name: decoder-0, instance_id: i-5, dp_rank: \"0\"}"
#define I12 "{index: 1, service_name: s, model_name: m, job_name: decoder-0, instance_id: i-12, dp_rank: \"0\"}"
#define SCRAPED                                                                                                        \
    "{index: 0, service_name: s, model_name: m, job_name: decoder-0, instance_id: i-5, dp_rank: \"0\", "               \
    "counted_by: \"engine 17\"}"
#define FOREIGN "FFFFFFFFFFFFFFFF"

/* A record with these observations. */
static void observe(struct bus *bus, char from, uint64_t number, uint32_t source, const char *observations)
{
    char yaml[1024];
    snprintf(yaml, sizeof yaml, "[[obs, %u, 1.5, [%s]]]", (unsigned) source, observations);
    assert_int_equal(bus_say(bus, AGENT_STATS, from, "rec", number, 1, yaml), AGENT_ACCEPTED);
}

static void cpu(struct bus *bus, char from, uint64_t number, uint32_t source, double total)
{
    char text[64];
    snprintf(text, sizeof text, "[cpu_total, null, %.17g]", total);
    observe(bus, from, number, source, text);
}

/* Bounds 1, 2, 5 of BUS_CATALOG. */
static void pause_of(struct bus *bus, char from, uint64_t number, const char *buckets, double sum)
{
    char text[128];
    snprintf(text, sizeof text, "[pause, null, {le: [1, 2, 5], buckets: [%s], sum: %.17g}]", buckets, sum);
    observe(bus, from, number, 0, text);
}

static double counted(struct bus *bus)
{
    return bus_counter(bus, NULL, "cpu_total");
}

/* "bucket bucket ... sum" of one contribution; "" when it has no such series. */
static const char *shown(struct bus *bus, const char *instance, const char *family)
{
    static char text[256];
    const struct agent_contribution *at = bus_contribution(bus, instance);
    const struct agent_series *series = bus_series(bus, family);
    const uint32_t place = at ? bus_place(bus, at, family) : AGENT_NONE;
    text[0] = '\0';
    for (uint32_t i = 0; place != AGENT_NONE && i < series->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%g", i ? " " : "", at->live[place + i]);
    return text;
}

static uint64_t left_out(struct bus *bus)
{
    return agent_ledger_counters(bus->ledger)->totals_left_out;
}

/* kill -9 after a commit, and a new start from its file. */
static void restart(struct bus *bus)
{
    struct sb_err err = {.text = ""};
    struct sb_buf file;
    struct agent_state state = {.generation = 1};
    sb_buf_init(&file, AGENT_STATE_MAX);
    agent_ledger_stage(bus->ledger);
    agent_state_save(&state, bus->ledger, bus->publishers, &bus->counters, &file);
    bus_close_tables(bus);
    bus_open_tables(bus);
    if (agent_state_load(&state, bus->ledger, bus->publishers, &bus->counters, file.data, file.len, bus->now_ms, &err))
        fail_msg("%s", err.text);
    sb_buf_release(&file);
}

static void a_restart_under_another_instance_id_goes_on(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 10000);
    assert_true(counted(bus) == 10000);
    cpu(bus, 'a', 2, 0, 11000);
    assert_true(counted(bus) == 11000);
    bus_hello(bus, 'a', 3, I5 ", " I12);
    cpu(bus, 'a', 3, 1, 50);
    assert_true(counted(bus) == 11050);
    cpu(bus, 'a', 4, 1, 500);
    assert_true(counted(bus) == 11500);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 11000);
    assert_true(bus_counter(bus, "i-12", "cpu_total") == 500);
}

/* PyMotor takes a fall of less than 10 % for noise. */
static void any_fall_starts_again_from_zero(void **state)
{
    static const struct {
        double total;
        double counted;
    } said[] = {{10000, 10000}, {11000, 11000}, {50, 11050},   {500, 11500}, /* 11000 to 50 */
                {0, 11500},     {0, 11500},     {1000, 12500}, {990, 13490}, /* 1 % */
                {1000, 13500},  {900, 14400},   {900, 14400},  {899.5, 15299.5}, {900.5, 15300.5}};
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    for (size_t i = 0; i < SB_COUNT(said); i++) {
        cpu(bus, 'a', i + 1, 0, said[i].total);
        if (counted(bus) != said[i].counted)
            fail_msg("after %g: %g, not %g", said[i].total, counted(bus), said[i].counted);
    }
}

static void histograms_start_again_by_any_bucket_or_sum(void **state)
{
    static const struct {
        const char *buckets; /* up to 1, 2, 5, all */
        double sum;
        const char *counted; /* in 1, 2, 5, above, sum */
    } said[] = {{"1, 3, 3, 4", 12, "1 2 0 1 12"},    {"2, 4, 5, 6", 20, "2 2 1 1 20"},
                {"0, 0, 0, 1", 7, "2 2 1 2 27"},                                         /* another life */
                {"0, 1, 1, 2", 8.5, "2 3 1 2 28.5"}, {"0, 0, 2, 3", 14, "2 3 3 3 42.5"}, /* a bucket fell */
                {"0, 0, 2, 3", 13.5, "2 3 5 4 56"},                                      /* its sum alone fell */
                {"0, 0, 0, 0", 0, "2 3 5 4 56"},     {"1, 1, 1, 1", 0.5, "3 3 5 4 56.5"}};
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    for (size_t i = 0; i < SB_COUNT(said); i++) {
        pause_of(bus, 'a', i + 1, said[i].buckets, said[i].sum);
        assert_string_equal(shown(bus, "i-5", "pause"), said[i].counted);
    }
}

static void an_older_total_is_part_of_a_newer_one(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 10);
    cpu(bus, 'a', 4, 0, 40);
    cpu(bus, 'a', 3, 0, 30); /* asked for and late */
    cpu(bus, 'a', 4, 0, 40); /* twice */
    cpu(bus, 'a', 2, 0, 20);
    assert_true(counted(bus) == 40);
    cpu(bus, 'a', 5, 0, 41);
    assert_true(counted(bus) == 41);
    /* Late ones of the life before count there. */
    bus_hello(bus, 'a', 6, I5 ", " I12);
    cpu(bus, 'a', 7, 1, 5);
    cpu(bus, 'a', 6, 0, 45);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 45);
    assert_true(bus_counter(bus, "i-12", "cpu_total") == 5);
}

static void what_is_lost_is_part_of_what_comes(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1000, I5); /* its ring holds nothing any more */
    bus_wait(bus, 200);
    bus_end(bus, 'a', 1000, 1, 999);
    assert_int_equal(bus->counters.records_lost, 999);
    cpu(bus, 'a', 1000, 0, 7000);
    assert_true(counted(bus) == 7000);
}

static void a_total_that_is_none_counts_nothing(void **state)
{
    static const char *const bad[] = {
        "[cpu_total, null, -1]",
        "[cpu_total, null, .nan]",
        "[cpu_total, null, .inf]",
        "[cpu_total, null, 1.0e16]",
        "[cpu_total, null, [1]]",
        "[cpu_total, null, \"1\"]",
        "[cpu_total, {\"9\": a}, 1]",
        "[pause, null, 3]",
        "[pause, null, [1, 2]]",
        "[pause, null, {}]",
        "[pause, null, {buckets: [1, 1, 1, 1], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [1, 1, 1, 1]}]",
        "[pause, null, {le: [1, 2], buckets: [1, 1, 1], sum: 1}]",
        "[pause, null, {le: [1, 2, 6], buckets: [1, 1, 1, 1], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [1, 1, 1], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [1, 2, 1, 2], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [-1, 0, 0, 0], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [0, 0, 0, .nan], sum: 1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [0, 0, 0, 1], sum: -1}]",
        "[pause, null, {le: [1, 2, 5], buckets: [0, 0, 0, 1], sum: .inf}]",
        "[pause, null, {le: 1, buckets: 2, sum: 1}]",
    };
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    observe(bus, 'a', 1, 0, "[cpu_total, null, null], [pause, null, null]"); /* nothing known, nothing shown */
    assert_string_equal(shown(bus, "i-5", "cpu_total"), "");
    for (size_t i = 0; i < SB_COUNT(bad); i++)
        observe(bus, 'a', 2 + i, 0, bad[i]);
    assert_string_equal(shown(bus, "i-5", "cpu_total"), "");
    assert_string_equal(shown(bus, "i-5", "pause"), "");
    uint64_t refused = 0;
    for (uint32_t i = 0; i < agent_ledger_n_families(bus->ledger); i++)
        refused += agent_ledger_family_at(bus->ledger, i)->refused;
    assert_int_equal(refused, SB_COUNT(bad));
    observe(bus, 'a', 100, 0, "[cpu_total, null, 0]"); /* a measured zero is shown */
    assert_string_equal(shown(bus, "i-5", "cpu_total"), "0");
}

static void publishers_of_one_source_have_totals_of_their_own(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    bus_hello(bus, 'b', 1, I5);
    cpu(bus, 'a', 1, 0, 100);
    cpu(bus, 'b', 1, 0, 3);
    cpu(bus, 'a', 2, 0, 110);
    cpu(bus, 'b', 2, 0, 4);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 114);
    observe(bus, 'a', 3, 0, "[threads_total, null, 8]");
    observe(bus, 'b', 3, 0, "[threads_total, null, 2]");
    observe(bus, 'a', 4, 0, "[threads_total, null, 9]");
    assert_true(bus_counter(bus, NULL, "threads_total") == 11);
}

static void labels_have_totals_of_their_own(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    observe(bus, 'a', 1, 0, "[cpu_total, {mode: user}, 5], [cpu_total, {mode: system}, 2]");
    observe(bus, 'a', 2, 0, "[cpu_total, {mode: user}, 6], [cpu_total, {mode: system}, 1]");
    double sum = 0;
    const struct agent_contribution *at = bus_contribution(bus, "i-5");
    for (uint32_t i = 0; i < at->n_series; i++)
        if (agent_ledger_series_at(bus->ledger, at->series[i].index)->family == bus_series(bus, "cpu_total")->family)
            sum += at->live[at->series[i].place];
    assert_true(sum == 6 + 3);
}

static void a_restarted_agent_goes_on_from_its_file(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 100);
    pause_of(bus, 'a', 2, "1, 1, 1, 2", 9);
    cpu(bus, 'a', 4, 0, 120);
    restart(bus);
    bus_hello(bus, 'a', 5, I5);
    cpu(bus, 'a', 3, 0, 110);
    pause_of(bus, 'a', 5, "1, 1, 1, 3", 16);
    cpu(bus, 'a', 6, 0, 125);
    assert_true(counted(bus) == 125);
    assert_string_equal(shown(bus, "i-5", "pause"), "1 0 0 2 16");
}

/* `latest` says how much the lost state had counted: nothing is twice, nothing is missing. */
static void a_lost_state_goes_on_from_what_the_hello_tells(void **state)
{
    static const uint64_t ranges[] = {1, 10};
    struct bus *bus = *state;
    assert_int_equal(
        bus_hello_marked(bus, 'a', 12, I5 ", " I12,
                         ", latest: [[7, obs, 0, 1.0, [[cpu_total, null, 100]]], "
                         "[6, obs, 0, 1.0, [[cpu_total, null, 90], [running, null, 1]]], "
                         "[10, obs, 0, 1.0, [[pause, null, {le: [1, 2, 5], buckets: [0, 0, 0, 1], sum: 6}]]], "
                         "[11, obs, 1, 1.0, [[cpu_total, null, 33]]]]",
                         FOREIGN, ranges, 2),
        AGENT_ACCEPTED);
    assert_true(counted(bus) == 0);
    cpu(bus, 'a', 12, 0, 130);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 30);
    pause_of(bus, 'a', 13, "0, 1, 1, 2", 8);
    assert_string_equal(shown(bus, "i-5", "pause"), "0 1 0 0 2");
    /* A series that the latest did not have is new since. */
    observe(bus, 'a', 14, 0, "[cpu_total, null, 130], [cpu_total, {mode: system}, 4]");
    restart(bus);
    cpu(bus, 'a', 15, 0, 131);
    bus_hello(bus, 'a', 16, I5 ", " I12);
    cpu(bus, 'a', 15, 0, 131);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 31);
    /* What the mark does not hold tells nothing of what was counted: the first record after it is where counting
     * starts. */
    cpu(bus, 'a', 11, 1, 33);
    assert_true(bus_counter(bus, "i-12", "cpu_total") == 0);
    cpu(bus, 'a', 16, 1, 35);
    assert_true(bus_counter(bus, "i-12", "cpu_total") == 2);
    cpu(bus, 'a', 17, 1, 1);
    assert_true(bus_counter(bus, "i-12", "cpu_total") == 3);
    bus_hello(bus, 'a', 18, I5 ", " I12 ", {index: 2, instance_id: i-13}"); /* a life that began since */
    cpu(bus, 'a', 18, 2, 70);
    assert_true(bus_counter(bus, "i-13", "cpu_total") == 70);
}

static void a_hello_tells_nothing_new_of_what_is_known(void **state)
{
    struct bus *bus = *state;
    static const char latest[] = ", latest: [[2, obs, 0, 1.0, [[cpu_total, null, 20]]]]";
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 10);
    assert_int_equal(bus_hello_marked(bus, 'a', 3, I5, latest, NULL, NULL, 0), AGENT_ACCEPTED);
    assert_true(counted(bus) == 10);
    cpu(bus, 'a', 2, 0, 20);
    assert_int_equal(bus_hello_marked(bus, 'a', 3, I5, latest, NULL, NULL, 0), AGENT_ACCEPTED);
    assert_true(counted(bus) == 20);
    cpu(bus, 'a', 3, 0, 21);
    assert_true(counted(bus) == 21);
}

/* The wire says that an index keeps its meaning. */
static void another_instance_under_the_same_index_is_another_life(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 10);
    bus_hello(bus, 'a', 2, "{index: 0, service_name: s, model_name: m, job_name: decoder-0, instance_id: i-12}");
    cpu(bus, 'a', 2, 0, 12);
    assert_true(counted(bus) == 22);
}

static void a_source_that_is_back_goes_on(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 10);
    bus_beat(bus, 'a', 2, "", "0");
    assert_true(agent_publishers_release(bus->publishers, bus_contribution(bus, "i-5")));
    agent_ledger_forget(bus->ledger, bus_contribution(bus, "i-5")->index);
    restart(bus); /* nobody has the series, but its last total is kept */
    bus_hello(bus, 'a', 2, I5);
    bus_beat(bus, 'a', 2, "0", "");
    cpu(bus, 'a', 2, 0, 14);
    assert_true(counted(bus) == 4); /* the hub keeps the 10 of the contribution that is forgotten */
}

static void a_scraper_that_was_replaced_counts_nothing_twice(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, SCRAPED);
    cpu(bus, 'a', 1, 0, 100);
    bus_hello(bus, 'b', 1, SCRAPED); /* both are there for a while */
    cpu(bus, 'b', 1, 0, 90);
    cpu(bus, 'b', 3, 0, 105);
    cpu(bus, 'a', 2, 0, 110);
    assert_true(counted(bus) == 110);
    bus_beat(bus, 'a', 3, "", "0");
    bus_beat(bus, 'b', 4, "0", "");
    bus->now_ms += 1000;
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    cpu(bus, 'b', 2, 0, 95); /* older than one that was left to a */
    assert_true(counted(bus) == 110);
    cpu(bus, 'b', 4, 0, 112);
    assert_true(counted(bus) == 112);
    cpu(bus, 'a', 3, 0, 111); /* late */
    assert_true(counted(bus) == 112);
    restart(bus);
    bus_hello(bus, 'b', 5, SCRAPED);
    cpu(bus, 'b', 5, 0, 120);
    assert_true(counted(bus) == 120);
    bus->now_ms += 20000; /* b is silent: killed */
    bus_hello(bus, 'c', 1, SCRAPED);
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    cpu(bus, 'c', 1, 0, 121);
    assert_true(counted(bus) == 121);
    cpu(bus, 'c', 2, 0, 21); /* what it scrapes has started again */
    assert_true(counted(bus) == 142);
}

static void runs_that_nobody_tells_of_are_forgotten(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, SCRAPED);
    cpu(bus, 'a', 1, 0, 100);
    for (int i = 0; i < 2; i++) { /* a leaves the table, and with the next sweep nobody holds the run */
        bus->now_ms += 2 * 3600 * 1000;
        agent_publishers_sweep(bus->publishers, true, bus->now_ms);
        agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    }
    bus->now_ms += 4 * 3600 * 1000;
    agent_publishers_sweep(bus->publishers, true, bus->now_ms);
    bus_hello(bus, 'b', 1, SCRAPED);
    cpu(bus, 'b', 1, 0, 3);
    assert_true(counted(bus) == 103);
    assert_int_equal(left_out(bus), 0);
}

static void totals_over_the_limit_are_left_out_and_come_whole_later(void **state)
{
    struct bus *bus = *state;
    bus_hello(bus, 'a', 1, I5);
    cpu(bus, 'a', 1, 0, 5);
    uint64_t number = 2;
    for (int i = 0; i < AGENT_SERIES_OF_SOURCE_MAX; i++) {
        char text[64];
        snprintf(text, sizeof text, "[cpu_total, {k: v%d}, 1]", i);
        observe(bus, 'a', number++, 0, text);
    }
    const uint64_t n = left_out(bus);
    assert_true(n > 0 && n < 10); /* what the source has beside */
    observe(bus, 'a', number, 0, "[cpu_total, {k: v9999}, 2], [cpu_total, null, 7]");
    assert_int_equal(left_out(bus), n + 1);
    assert_true(bus_counter(bus, "i-5", "cpu_total") == 7);
    assert_int_equal(agent_ledger_counters(bus->ledger)->overflows, 0); /* no series mixes several */
}

static void described_families_may_be_cumulative(void **state)
{
    struct bus *bus = *state;
    static const char families[] =
        ", families: [{name: e_total, type: counter, help: h, cumulative: true}, "
        "{name: f, type: histogram, help: h, buckets: [1], cumulative: true}, "
        "{name: z, type: gauge, help: h, cumulative: true}, {name: y_total, type: counter, cumulative: 1}, "
        "{name: cpu_total, type: counter, cumulative: false}, {name: pause, type: histogram, cumulative: true, "
        "buckets: [7]}, {name: threads_total, type: counter}]";
    assert_int_equal(bus_hello_marked(bus, 'a', 1, I5, families, NULL, NULL, 0), AGENT_ACCEPTED);
    assert_int_equal(bus->counters.families_refused, 3); /* z, y_total, cpu_total */
    assert_string_equal(shown(bus, "i-5", "e_total"), "");
    observe(bus, 'a', 1, 0, "[e_total, null, 5], [f, null, {le: [1], buckets: [1, 2], sum: 4}]");
    observe(bus, 'a', 2, 0, "[e_total, null, 6], [f, null, {le: [1], buckets: [1, 3], sum: 9}], [cpu_total, null, 5]");
    observe(bus, 'a', 3, 0, "[cpu_total, null, 6]");
    assert_string_equal(shown(bus, "i-5", "e_total"), "6");
    assert_string_equal(shown(bus, "i-5", "f"), "1 2 9");
    assert_string_equal(shown(bus, "i-5", "cpu_total"), "6"); /* the catalog knows better */
}

/* Of an agent before totals: its publishers have none. */
static void a_state_without_totals_is_read(void **state)
{
    struct bus *bus = *state;
    struct sb_buf file;
    struct sb_err err = {.text = ""};
    sb_buf_init(&file, 1 << 16);
    sb_mp_put_array(&file, 3);
    sb_mp_put_uint(&file, 2);
    sb_mp_put_array(&file, 0);
    sb_mp_put_array(&file, 1);
    sb_mp_put_array(&file, 3);
    sb_mp_put_str(&file, bus_id('a'));
    sb_mp_put_uint(&file, 3);
    sb_mp_put_array(&file, 2);
    sb_mp_put_uint(&file, 1);
    sb_mp_put_uint(&file, 2);
    struct sb_mp at = sb_mp_over(file.data, file.len);
    if (agent_publishers_load(bus->publishers, &at, bus->now_ms, &err) != SB_OK)
        fail_msg("%s", err.text);
    bus_hello(bus, 'a', 3, I5);
    cpu(bus, 'a', 2, 0, 9);
    cpu(bus, 'a', 3, 0, 10);
    assert_true(counted(bus) == 10);
    sb_buf_release(&file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bus_open, bus_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_restart_under_another_instance_id_goes_on),
        TEST(any_fall_starts_again_from_zero),
        TEST(histograms_start_again_by_any_bucket_or_sum),
        TEST(an_older_total_is_part_of_a_newer_one),
        TEST(what_is_lost_is_part_of_what_comes),
        TEST(a_total_that_is_none_counts_nothing),
        TEST(publishers_of_one_source_have_totals_of_their_own),
        TEST(labels_have_totals_of_their_own),
        TEST(a_restarted_agent_goes_on_from_its_file),
        TEST(a_lost_state_goes_on_from_what_the_hello_tells),
        TEST(a_hello_tells_nothing_new_of_what_is_known),
        TEST(another_instance_under_the_same_index_is_another_life),
        TEST(a_source_that_is_back_goes_on),
        TEST(a_scraper_that_was_replaced_counts_nothing_twice),
        TEST(runs_that_nobody_tells_of_are_forgotten),
        TEST(totals_over_the_limit_are_left_out_and_come_whole_later),
        TEST(a_state_without_totals_is_read),
        TEST(described_families_may_be_cumulative),
    };
    return cmocka_run_group_tests_name("totals", tests, NULL, NULL);
}
