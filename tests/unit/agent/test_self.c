/* What the agent says about itself. */
#include "bus.h"

#include "agent/self.h"

struct page {
    struct bus bus;
    struct agent_commit commit;
    struct agent_self self;
    struct sb_buf text;
};

static int open_page(void **state)
{
    struct page *page = calloc(1, sizeof *page);
    bus_init(&page->bus);
    sb_buf_init(&page->text, 1 << 20);
    page->self.ledger = page->bus.ledger;
    page->self.publishers = page->bus.publishers;
    page->self.commit = &page->commit;
    *state = page;
    return 0;
}

static int close_page(void **state)
{
    struct page *page = *state;
    sb_buf_release(&page->text);
    bus_release(&page->bus);
    free(page);
    return 0;
}

static double value_of(struct page *page, const char *name)
{
    char line[128];
    const struct sb_expo expo = {.out = &page->text, .format = SB_EXPO_TEXT};
    sb_buf_clear(&page->text);
    agent_self_render(&page->self, &expo, page->bus.now_ms);
    sb_buf_put(&page->text, "", 1);
    snprintf(line, sizeof line, "\nstatsbus_agent_%s ", name);
    const char *found = strstr((const char *) page->text.data, line);
    if (!found)
        fail_msg("%s is not there", name);
    return strtod(found + strlen(line), NULL);
}

static void sources_are_engines_and_no_front_ends(void **state)
{
    struct page *page = *state;
    bus_hello(&page->bus, 'a', 1, BUS_SOURCE);
    assert_true(value_of(page, "sources_live") == 1);
    bus_beat(&page->bus, 'a', 1, "", "0");
    assert_true(value_of(page, "sources_live") == 0);
    assert_true(value_of(page, "sources_ended") == 1);
    assert_true(value_of(page, "sources_silent") == 0);
}

static void gauges_that_were_only_declared_are_of_no_age(void **state)
{
    struct page *page = *state;
    bus_hello(&page->bus, 'a', 1, BUS_SOURCE);
    assert_int_equal(
        bus_say(&page->bus, AGENT_STATS, 'a', "rec", 1, 1, "[[step, 0, 2.0, {scheduler_stats: {running: 4}}]]"),
        AGENT_ACCEPTED);
    bus_wait(&page->bus, 1100);
    struct agent_contribution *contribution = bus_contribution(&page->bus, "i-1");
    assert_true(contribution->n_shown > 0);
    assert_true(value_of(page, "oldest_snapshot_seconds") == 1.1);
    contribution->shown_ms = -1; /* as agent_binding_new leaves what it declares */
    assert_true(value_of(page, "oldest_snapshot_seconds") == 0);
}

static void unknown_observations_are_told(void **state)
{
    struct page *page = *state;
    bus_hello(&page->bus, 'a', 1, BUS_SOURCE);
    assert_int_equal(bus_say(&page->bus, AGENT_STATS, 'a', "rec", 1, 1, "[[obs, 0, 2.0, [[nobody, null, 1], 7]]]"),
                     AGENT_ACCEPTED);
    assert_true(value_of(page, "observations_unknown_total") == 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_page, close_page)
    const struct CMUnitTest tests[] = {
        TEST(sources_are_engines_and_no_front_ends),
        TEST(gauges_that_were_only_declared_are_of_no_age),
        TEST(unknown_observations_are_told),
    };
    return cmocka_run_group_tests_name("self", tests, NULL, NULL);
}
