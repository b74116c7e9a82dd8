#include "hub_test.h"

#include "hub/derive.h"

/* Expected values are those of histogram_quantile on the same cumulative buckets. */
static void quantiles_are_those_of_prometheus(void **state)
{
    (void) state;
    static const double bounds_of[][3] = {{0.5, 1, 2}, {-1, 0, 1}, {-2, -1, 4}};
    static const struct {
        size_t bounds;
        double buckets[4];
        double q;
        double expected;
    } cases[] = {
        {0, {2, 2, 0, 0}, 0.5, 0.5},  /* rank 2 is the end of the first bucket, which starts at 0 */
        {0, {4, 0, 0, 0}, 0.5, 0.25}, /* half of the first bucket */
        {0, {1, 2, 1, 0}, 0.5, 0.75}, /* rank 2: half of the second */
        {0, {1, 2, 1, 0}, 1, 2},      /* the end of the last that has any */
        {0, {1, 1, 1, 7}, 0.99, 2},   /* in +Inf: the highest finite bound */
        {0, {0, 0, 0, 1}, 0.5, 2},     {0, {0, 0, 1, 0}, 0.5, 1.5},
        {1, {4, 4, 0, 0}, 0.25, -1}, /* in a first bucket that ends at or below 0: its end */
        {1, {4, 4, 0, 0}, 0.75, -0.5}, {2, {0, 1, 5, 0}, 0.999, 3.994},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_bounds *bounds = sb_bounds_new(bounds_of[cases[i].bounds], 3, NULL);
        double value = -99;
        assert_true(hub_quantile(bounds, cases[i].buckets, cases[i].q, &value));
        assert_true(fabs(value - cases[i].expected) < 1e-12);
        sb_bounds_destroy(&bounds);
    }
}

static void nothing_observed_has_no_quantile_and_no_mean(void **state)
{
    (void) state;
    static const double upper[] = {1, 2};
    static const double none[] = {0, 0, 0}, one[] = {0, 1, 1};
    double value;
    struct sb_bounds *bounds = sb_bounds_new(upper, 2, NULL);
    const struct sb_bounds no_finite = {.n = 0};
    assert_false(hub_quantile(bounds, none, 0.5, &value));
    assert_false(hub_mean(bounds, none, 0, &value));
    assert_false(hub_quantile(&no_finite, one, 0.5, &value));
    assert_true(hub_mean(bounds, one, 5, &value));
    assert_number(value, 2.5);
    sb_bounds_destroy(&bounds);
}

static void what_is_within_a_bound_is_a_share_of_all(void **state)
{
    (void) state;
    static const double upper[] = {0.5, 1, 2};
    static const double buckets[] = {1, 2, 1, 4}, none[] = {0, 0, 0, 0};
    struct sb_bounds *bounds = sb_bounds_new(upper, 3, NULL);
    double value;
    assert_true(hub_within(bounds, buckets, 0.5, &value));
    assert_number(value, 0.125);
    assert_true(hub_within(bounds, buckets, 2, &value));
    assert_number(value, 0.5);
    assert_false(hub_within(bounds, buckets, 1.5, &value)); /* no bucket ends there */
    assert_false(hub_within(bounds, buckets, 0.1, &value));
    assert_false(hub_within(bounds, none, 1, &value));
    sb_bounds_destroy(&bounds);
}

static void ratios_stay_within_0_and_1(void **state)
{
    (void) state;
    double value;
    assert_true(hub_ratio(1, 4, &value));
    assert_number(value, 0.25);
    assert_true(hub_ratio(5, 4, &value)); /* two counters of one moment, read a step apart */
    assert_number(value, 1);
    assert_true(hub_ratio(0, 4, &value));
    assert_number(value, 0);
    assert_false(hub_ratio(3, 0, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_prometheus),
        cmocka_unit_test(nothing_observed_has_no_quantile_and_no_mean),
        cmocka_unit_test(what_is_within_a_bound_is_a_share_of_all),
        cmocka_unit_test(ratios_stay_within_0_and_1),
    };
    return cmocka_run_group_tests_name("derive", tests, NULL, NULL);
}
