#include <math.h>

#include "hub/rates.h"
#include "hub_test.h"

enum { WINDOW_MS = 10 * 1000 };

static double rate_after(struct hub_rates *rates, int64_t now_ms, double value)
{
    double rate;
    hub_rates_sample(rates, now_ms, &value);
    return hub_rates_read(rates, 0, &rate) ? rate : NAN;
}

static void the_first_sample_says_where_a_counter_stands(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, false);
    assert_true(isnan(rate_after(rates, 1000, 500)));
    assert_number(rate_after(rates, 2000, 520), 20);
    assert_number(rate_after(rates, 3000, 520), 10);
    hub_rates_destroy(&rates);
}

static void what_counts_from_zero_has_a_rate_over_the_whole_window_at_once(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, true);
    assert_number(rate_after(rates, 1000, 50), 5);
    for (int64_t at_ms = 2000; at_ms < 1000 + WINDOW_MS; at_ms += 1000)
        assert_number(rate_after(rates, at_ms, 50), 5);
    assert_number(rate_after(rates, 1000 + WINDOW_MS, 50), 0);
    assert_number(rate_after(rates, 2000 + WINDOW_MS, 70), 2);
    hub_rates_destroy(&rates);
}

static void the_window_slides(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, false);
    for (int second = 0; second <= 100; second++) {
        const double rate = rate_after(rates, second * 1000, second < 50 ? second * 10 : 500 + (second - 50) * 30);
        if (second > 0 && second <= 50)
            assert_number(rate, 10);
        if (second >= 60)
            assert_number(rate, 30);
    }
    hub_rates_destroy(&rates);
}

static void a_long_window_has_few_samples(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, 15 * 60 * 1000, false);
    int n = 0;
    for (int second = 0; second < 3600; second++) {
        if (!hub_rates_is_due(rates, second * 1000, second * 1000))
            continue;
        const double rate = rate_after(rates, second * 1000, second * 7);
        assert_true(n++ == 0 || rate == 7);
    }
    assert_in_range(n, 3600 / 15, 3600 / 13);
    hub_rates_destroy(&rates);
}

static void after_a_gap_it_starts_anew(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, true);
    assert_number(rate_after(rates, 1000, 100), 10);
    assert_true(isnan(rate_after(rates, 60 * 1000, 5000)));
    assert_number(rate_after(rates, 61 * 1000, 5010), 10);
    hub_rates_destroy(&rates);
}

static void a_counter_that_comes_later_was_zero(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, false);
    assert_true(isnan(rate_after(rates, 1000, NAN)));
    assert_number(rate_after(rates, 3000, 4), 2);
    hub_rates_destroy(&rates);
}

/* Counts go on, and are told at once when the agent is back. */
static void silence_is_no_quiet_and_what_follows_no_burst(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, false);
    for (int second = 1; second <= 60; second++) {
        const int heard = second < 20 || second >= 29 ? second : 19;
        if (hub_rates_is_due(rates, second * 1000, heard * 1000))
            assert_true(second == 1 ? isnan(rate_after(rates, 1000, 7))
                                    : rate_after(rates, second * 1000, heard * 7) == 7);
    }
    assert_number(hub_rates_peak(rates, 0), 7);
    hub_rates_destroy(&rates);
}

static void a_peak_is_that_of_a_whole_window(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, false);
    (void) rate_after(rates, 1000, 0);
    assert_number(rate_after(rates, 2000, 500), 500);
    assert_number(hub_rates_peak(rates, 0), 0);
    assert_number(rate_after(rates, 1000 + WINDOW_MS, 500), 50);
    assert_number(hub_rates_peak(rates, 0), 50);
    hub_rates_destroy(&rates);
}

static void after_an_interruption_it_starts_anew_and_knows_its_peak(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, WINDOW_MS, true);
    double rate;
    assert_number(rate_after(rates, 1000, 50), 5);
    hub_rates_interrupt(rates);
    assert_false(hub_rates_read(rates, 0, &rate));
    assert_true(isnan(rate_after(rates, 3000, 5000)));
    assert_number(rate_after(rates, 4000, 5003), 3);
    assert_number(hub_rates_peak(rates, 0), 5);
    hub_rates_destroy(&rates);
}

static void an_idle_agent_with_a_short_window_has_a_rate(void **state)
{
    (void) state;
    struct hub_rates *rates = hub_rates_new(1, 1000, false);
    (void) rate_after(rates, 1000, 5);
    assert_number(rate_after(rates, 3500, 5), 0);
    hub_rates_destroy(&rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sample_says_where_a_counter_stands),
        cmocka_unit_test(what_counts_from_zero_has_a_rate_over_the_whole_window_at_once),
        cmocka_unit_test(the_window_slides),
        cmocka_unit_test(a_long_window_has_few_samples),
        cmocka_unit_test(after_a_gap_it_starts_anew),
        cmocka_unit_test(a_counter_that_comes_later_was_zero),
        cmocka_unit_test(silence_is_no_quiet_and_what_follows_no_burst),
        cmocka_unit_test(a_peak_is_that_of_a_whole_window),
        cmocka_unit_test(after_an_interruption_it_starts_anew_and_knows_its_peak),
        cmocka_unit_test(an_idle_agent_with_a_short_window_has_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
