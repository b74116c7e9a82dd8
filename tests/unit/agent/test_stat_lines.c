/* Lines of statistics: one for each source that lives, with what it did since the line before. */
#include "agent/stat_lines.h"
#include "rig.h"

static char said[4096];

static void say(void *arg, const struct agent_contribution *source, const char *text)
{
    (void) arg;
    const size_t len = strlen(said);
    snprintf(said + len, sizeof said - len, "%s: %s\n", sb_labelset_value(source->identity, "instance_id"), text);
}

struct desk {
    struct rig rig;
    struct agent_stat_lines lines;
    int64_t now_ms;
};

static int open_desk(void **state)
{
    struct desk *desk = malloc(sizeof *desk);
    rig_init(&desk->rig, NULL, "");
    desk->now_ms = 100000;
    agent_stat_lines_init(&desk->lines, 10000, say, NULL);
    agent_ledger_contribution_at(desk->rig.ledger, 0)->is_live = true;
    *state = desk;
    return 0;
}

static int close_desk(void **state)
{
    struct desk *desk = *state;
    agent_stat_lines_release(&desk->lines);
    rig_release(&desk->rig);
    free(desk);
    return 0;
}

/* What is said when so much time has gone by. */
static const char *after(struct desk *desk, int64_t ms)
{
    said[0] = '\0';
    desk->now_ms += ms;
    agent_stat_lines_tick(&desk->lines, desk->rig.ledger, desk->now_ms);
    return said;
}

static void step(struct desk *desk, const char *scheduler, int prompt, int generated)
{
    char text[512];
    snprintf(text, sizeof text,
             "{scheduler_stats: %s, iteration_stats: {num_prompt_tokens: %d, num_generation_tokens: %d}}", scheduler,
             prompt, generated);
    rig_step(&desk->rig, text);
}

static void a_line_says_what_was_done_since_the_one_before(void **state)
{
    struct desk *desk = *state;
    step(desk, "{num_running_reqs: 3, num_waiting_reqs: 0, kv_cache_usage: 0.25}", 1000, 1000);
    assert_string_equal(after(desk, 0), "i: prompt_tokens_per_s=- generation_tokens_per_s=- running=3 waiting=0 "
                                        "kv_cache_usage=0.250 prefix_hit_rate=- acceptance_rate=-\n");
    step(desk,
         "{num_running_reqs: 2, num_waiting_reqs: 7, kv_cache_usage: 0.5, prefix_cache_stats: {queries: 8, hits: 2}}",
         55, 200);
    assert_string_equal(after(desk, 9999), ""); /* not yet */
    assert_string_equal(after(desk, 1), "i: prompt_tokens_per_s=5.5 generation_tokens_per_s=20.0 running=2 waiting=7 "
                                        "kv_cache_usage=0.500 prefix_hit_rate=0.250 acceptance_rate=-\n");
    assert_string_equal(after(desk, 20000),
                        "i: prompt_tokens_per_s=0.0 generation_tokens_per_s=0.0 running=2 waiting=7 "
                        "kv_cache_usage=0.500 prefix_hit_rate=- acceptance_rate=-\n");
}

static void what_was_not_said_is_no_zero(void **state)
{
    struct desk *desk = *state;
    step(desk, "{num_running_reqs: 1}", 0, 0);
    after(desk, 0);
    assert_non_null(strstr(after(desk, 10000), "running=1 waiting=- kv_cache_usage=- "));
}

static void a_source_that_does_not_live_has_no_line(void **state)
{
    struct desk *desk = *state;
    step(desk, "{num_running_reqs: 1}", 10, 0);
    after(desk, 0);
    struct agent_contribution *source = agent_ledger_contribution_at(desk->rig.ledger, 0);
    source->is_live = false;
    step(desk, "{num_running_reqs: 1}", 100, 0);
    assert_string_equal(after(desk, 10000), "");
    source->is_live = true;
    step(desk, "{num_running_reqs: 1}", 20, 0);
    assert_non_null(strstr(after(desk, 10000), "i: prompt_tokens_per_s=2.0 ")); /* not the 100 of meanwhile */
}

static void without_a_period_nothing_is_said(void **state)
{
    struct desk *desk = *state;
    desk->lines.period_ms = 0;
    step(desk, "{num_running_reqs: 1}", 10, 0);
    assert_string_equal(after(desk, 3600 * 1000), "");
}

static void many_sources_are_gone_through_in_pieces_of_one_round(void **state)
{
    enum { MORE = 2 * AGENT_STAT_LINES_MAX };
    struct desk *desk = *state;
    struct sb_err err;
    const struct agent_contribution *first = agent_ledger_contribution_at(desk->rig.ledger, 0);
    step(desk, "{num_running_reqs: 1}", 10, 0);
    for (uint64_t i = 0; i < MORE; i++) /* sources with nothing to say */
        assert_non_null(
            agent_ledger_contribution(desk->rig.ledger, false, first->source, first->identity, 1000 + i, NULL, &err));
    assert_int_equal(after(desk, 0)[0], 'i');
    assert_int_equal(desk->lines.next, AGENT_STAT_LINES_MAX + 1); /* one is of the front end */
    after(desk, 20);
    assert_string_equal(after(desk, 20), "");
    assert_int_equal(desk->lines.next, AGENT_NONE);
    assert_string_equal(after(desk, 9959), "");
    assert_int_equal(after(desk, 1)[0], 'i');
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_desk, close_desk)
    const struct CMUnitTest tests[] = {
        TEST(a_line_says_what_was_done_since_the_one_before),
        TEST(what_was_not_said_is_no_zero),
        TEST(a_source_that_does_not_live_has_no_line),
        TEST(without_a_period_nothing_is_said),
        TEST(many_sources_are_gone_through_in_pieces_of_one_round),
    };
#undef TEST
    return cmocka_run_group_tests_name("stat_lines", tests, NULL, NULL);
}
