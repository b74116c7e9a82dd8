#include "hub_test.h"

static void set(struct hub_values *values, uint32_t cell, double value)
{
    double *page = hub_values_page(values, cell);
    assert_non_null(page);
    page[cell & (HUB_PAGE_CELLS - 1)] = value;
}

static double get(const struct hub_values *values, uint32_t cell)
{
    double value;
    return hub_values_read(values, cell, 1, &value) ? value : -1;
}

static void cells_without_a_value_are_absent_and_read_as_0(void **state)
{
    (void) state;
    struct hub_values values = {0};
    double out[4] = {9, 9, 9, 9};
    assert_false(hub_values_read(&values, 62, 4, out));
    set(&values, 64, 0);
    assert_true(hub_values_read(&values, 62, 4, out)); /* over the edge of a page that isn't there */
    for (size_t i = 0; i < 4; i++)
        assert_true(out[i] == 0 && !signbit(out[i]));
    assert_false(hub_values_read(&values, 62, 2, out));
    assert_false(hub_values_read(&values, 1000, 4, out));
    hub_values_release(&values);
}

static void a_page_costs_memory_only_where_cells_are(void **state)
{
    (void) state;
    struct hub_values values = {0};
    set(&values, 64 * 1000, 1);
    assert_true(hub_values_bytes(&values) < 1001 * sizeof(void *) + 2 * HUB_PAGE_CELLS * sizeof(double));
    hub_values_release(&values);
}

/* Adds parts up, so many in one go. */
static void add_up(struct hub_sum *sum, const struct hub_part *parts, size_t n, const uint8_t *aggregates, size_t a_go)
{
    struct hub_gauge_places places = {0};
    *sum = (struct hub_sum){0};
    for (size_t at = 0; at < n; at += a_go) {
        const bool is_last = n - at <= a_go;
        const struct hub_fold fold = {.aggregates = aggregates, .places = &places, .is_last = is_last};
        assert_true(hub_sums_add(&fold, sum, 1, parts + at, is_last ? n - at : a_go));
    }
    hub_gauge_places_release(&places);
}

/* Sums of fractions in any order are the same number, to the last bit. */
static void the_order_of_parts_does_not_change_a_sum(void **state)
{
    (void) state;
    enum { N = 501 };
    static struct hub_values values[N];
    struct hub_part parts[N];
    uint8_t aggregate = SB_AGGREGATE_SUM;
    for (size_t i = 0; i < N; i++) {
        set(&values[i], 5, 0.1 * (double) (i + 1) + (i % 3 ? 1e9 : 1e-9));
        set(&values[i], 70 + (uint32_t) (i % 5), 1); /* some have it, some don't */
        parts[i] = (struct hub_part){.values = &values[i], .sums = 1};
    }
    double first = 0;
    uint32_t seed = 1;
    for (int round = 0; round < 20; round++) {
        struct hub_sum sum;
        add_up(&sum, parts, N, &aggregate, round % 2 ? N : 1 + (size_t) round * 7);
        if (round == 0)
            first = get(&sum.values, 5);
        assert_number(get(&sum.values, 5), first);
        assert_number(get(&sum.values, 70), 101);
        assert_number(get(&sum.values, 74), 100);
        assert_number(get(&sum.values, 75), -1);
        hub_sum_release(&sum);
        for (size_t i = N - 1; i > 0; i--) {
            seed = seed * 1664525 + 1013904223;
            size_t j = (seed >> 8) % (i + 1);
            struct hub_part part = parts[i];
            parts[i] = parts[j];
            parts[j] = part;
        }
    }
    for (size_t i = 0; i < N; i++)
        hub_values_release(&values[i]);
}

static void small_parts_beside_a_large_one_are_not_lost(void **state)
{
    (void) state;
    enum { N = 1000 };
    static struct hub_values values[N + 1];
    static struct hub_part parts[N + 1];
    uint8_t aggregate = SB_AGGREGATE_SUM;
    for (size_t i = 0; i <= N; i++) {
        set(&values[i], 3, i == 0 ? 9007199254740992.0 : 0.5); /* 2^53: adding a half to it changes nothing */
        parts[i] = (struct hub_part){.values = &values[i], .sums = 1};
    }
    struct hub_sum sum;
    add_up(&sum, parts, N + 1, &aggregate, N + 1);
    assert_number(get(&sum.values, 3), 9007199254740992.0 + 500);
    hub_sum_release(&sum);
    for (size_t i = 0; i <= N; i++)
        hub_values_release(&values[i]);
}

static void a_sum_of_zeros_is_a_value_and_a_sum_of_nothing_is_none(void **state)
{
    (void) state;
    struct hub_values values[2] = {0};
    struct hub_part parts[2] = {{.values = &values[0], .sums = 1}, {.values = &values[1], .sums = 1}};
    uint8_t aggregate = SB_AGGREGATE_SUM;
    set(&values[0], 1, 0);
    set(&values[1], 2, 0);
    struct hub_sum sum;
    add_up(&sum, parts, 2, &aggregate, 1);
    assert_number(get(&sum.values, 1), 0);
    assert_number(get(&sum.values, 2), 0);
    assert_number(get(&sum.values, 3), -1);
    hub_sum_release(&sum);
    hub_values_release(&values[0]);
    hub_values_release(&values[1]);
}

static void gauges_are_folded_by_the_aggregate_of_their_family(void **state)
{
    (void) state;
    static const uint8_t aggregates[] = {SB_AGGREGATE_SUM, SB_AGGREGATE_MEAN, SB_AGGREGATE_MAX, SB_AGGREGATE_INFO};
    static const double inputs[3] = {-4, -1, 2};
    static const double expected[] = {-3, -1, 2, 2};
    struct hub_values values[4] = {0};
    struct hub_part parts[4];
    for (size_t i = 0; i < 4; i++) {
        assert_true(hub_values_reserve_gauges(&values[i], 4));
        for (uint32_t family = 0; family < 4; family++)
            values[i].gauges[values[i].n_gauges++] =
                (struct hub_gauge){.family = family, .id = 10 - family, .value = i < 3 ? inputs[i] : 1000};
        parts[i] = (struct hub_part){.values = &values[i], .sums = 1, .has_gauges = i < 3};
    }
    for (size_t a_go = 1; a_go <= 4; a_go++) {
        struct hub_sum sum;
        add_up(&sum, parts, 4, aggregates, a_go);
        assert_int_equal(sum.values.n_gauges, 4);
        for (uint32_t family = 0; family < 4; family++) {
            uint32_t n;
            const struct hub_gauge *found = hub_values_gauges(&sum.values, family, &n);
            assert_int_equal(n, 1);
            assert_int_equal(found->id, 10 - family);
            assert_number(found->value, expected[family]);
            assert_number(sum.maxima[found - sum.values.gauges], 2);
        }
        hub_sum_release(&sum);
    }
    for (size_t i = 0; i < 4; i++)
        hub_values_release(&values[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_without_a_value_are_absent_and_read_as_0),
        cmocka_unit_test(a_page_costs_memory_only_where_cells_are),
        cmocka_unit_test(the_order_of_parts_does_not_change_a_sum),
        cmocka_unit_test(small_parts_beside_a_large_one_are_not_lost),
        cmocka_unit_test(a_sum_of_zeros_is_a_value_and_a_sum_of_nothing_is_none),
        cmocka_unit_test(gauges_are_folded_by_the_aggregate_of_their_family),
    };
    return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
