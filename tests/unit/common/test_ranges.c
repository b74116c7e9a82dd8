#include "common/ranges.h"

#include "cmocka_all.h"

static void expect(const struct sb_ranges *ranges, size_t n, const struct sb_range *want)
{
    assert_int_equal(ranges->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(ranges->at[i].from == want[i].from);
        assert_true(ranges->at[i].to == want[i].to);
    }
}

#define EXPECT(ranges, ...)                                                                                            \
    do {                                                                                                               \
        static const struct sb_range want[] = {__VA_ARGS__};                                                           \
        expect((ranges), SB_COUNT(want), want);                                                                        \
    } while (0)

static void what_touches_or_overlaps_becomes_one(void **state)
{
    (void) state;
    SB_OWN(sb_ranges_release) struct sb_ranges ranges;
    sb_ranges_init(&ranges);
    assert_true(sb_ranges_add(&ranges, 5, 7));
    assert_true(sb_ranges_add(&ranges, 8, 8));
    EXPECT(&ranges, {5, 8});
    assert_true(sb_ranges_add(&ranges, 10, 12));
    assert_true(sb_ranges_add(&ranges, 1, 2));
    EXPECT(&ranges, {1, 2}, {5, 8}, {10, 12});
    assert_true(sb_ranges_add(&ranges, 6, 7));
    EXPECT(&ranges, {1, 2}, {5, 8}, {10, 12});
    assert_true(sb_ranges_add(&ranges, 9, 9));
    EXPECT(&ranges, {1, 2}, {5, 12});
    assert_true(sb_ranges_add(&ranges, 4, 20));
    EXPECT(&ranges, {1, 2}, {4, 20});
    assert_true(sb_ranges_add(&ranges, 3, 3));
    EXPECT(&ranges, {1, 20});
    assert_true(sb_ranges_add(&ranges, 30, 30));
    assert_true(sb_ranges_add(&ranges, 40, 40));
    assert_true(sb_ranges_add(&ranges, 15, 50));
    EXPECT(&ranges, {1, 50});
    assert_int_equal(sb_ranges_total(&ranges), 50);
}

static void the_ends_of_the_numbers_are_numbers(void **state)
{
    (void) state;
    SB_OWN(sb_ranges_release) struct sb_ranges ranges;
    sb_ranges_init(&ranges);
    assert_true(sb_ranges_add(&ranges, UINT64_MAX, UINT64_MAX));
    assert_true(sb_ranges_add(&ranges, 0, 0));
    EXPECT(&ranges, {0, 0}, {UINT64_MAX, UINT64_MAX});
    assert_true(sb_ranges_has(&ranges, 0));
    assert_true(sb_ranges_has(&ranges, UINT64_MAX));
    assert_false(sb_ranges_has(&ranges, 1));
    assert_true(sb_ranges_add(&ranges, 1, UINT64_MAX - 1));
    EXPECT(&ranges, {0, UINT64_MAX});
}

/* Against a bitmap, with random ranges of all shapes. */
static void it_equals_a_bitmap(void **state)
{
    (void) state;
    enum { N = 300 };
    uint64_t seed = 7;
    for (int round = 0; round < 300; round++) {
        SB_OWN(sb_ranges_release) struct sb_ranges ranges;
        sb_ranges_init(&ranges);
        bool has[N + 2] = {0};
        for (int step = 0; step < 60; step++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const uint64_t from = 1 + (seed >> 33) % N;
            uint64_t to = from + (seed >> 20) % (step % 10 == 0 ? 40 : 3);
            to = to > N ? N : to;
            assert_true(sb_ranges_add(&ranges, from, to));
            uint64_t total = 0;
            for (uint64_t i = 1; i <= N; i++) {
                has[i] |= i >= from && i <= to;
                total += has[i];
                assert_int_equal(sb_ranges_has(&ranges, i), has[i]);
            }
            assert_int_equal(sb_ranges_total(&ranges), total);
            for (size_t i = 1; i < ranges.n; i++)
                assert_true(ranges.at[i - 1].to + 1 < ranges.at[i].from);

            const uint64_t last = 1 + (seed >> 40) % N, first = 1 + (seed >> 45) % N;
            uint64_t hole_from = first;
            while (hole_from <= last && has[hole_from])
                hole_from++;
            uint64_t hole_to = hole_from;
            while (hole_to < last && !has[hole_to + 1])
                hole_to++;
            struct sb_range hole;
            assert_int_equal(sb_ranges_first_hole(&ranges, first, last, &hole), hole_from <= last);
            if (hole_from <= last) {
                assert_int_equal(hole.from, hole_from);
                assert_int_equal(hole.to, hole_to);
            }
        }
    }
}

static void an_empty_set_is_one_hole(void **state)
{
    (void) state;
    const struct sb_ranges ranges = {0};
    struct sb_range hole;
    assert_false(sb_ranges_first_hole(&ranges, 1, 0, &hole));
    assert_true(sb_ranges_first_hole(&ranges, 1, 9, &hole));
    assert_int_equal(hole.from, 1);
    assert_int_equal(hole.to, 9);
    assert_int_equal(sb_ranges_total(&ranges), 0);
    assert_false(sb_ranges_has(&ranges, 1));
}

static void over_the_limit_only_what_joins_is_taken(void **state)
{
    (void) state;
    SB_OWN(sb_ranges_release) struct sb_ranges ranges;
    sb_ranges_init(&ranges);
    for (uint64_t i = 0; i < SB_RANGES_MAX; i++)
        assert_true(sb_ranges_add(&ranges, 10 + 3 * i, 10 + 3 * i));
    const uint64_t last = 10 + 3 * (SB_RANGES_MAX - 1);
    static const struct {
        uint64_t number; /* counted from last + 0 */
        bool joins;
    } cases[] = {{2, false}, {100, false}, {1, true}, {0, true}, {(uint64_t) -1, true}};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const uint64_t number = last + cases[i].number;
        if (!cases[i].joins) {
            assert_false(sb_ranges_add(&ranges, number, number));
            assert_int_equal(ranges.n, SB_RANGES_MAX);
        }
    }
    assert_false(sb_ranges_add(&ranges, 1, 8));
    assert_true(sb_ranges_add(&ranges, 1, 9));
    assert_true(sb_ranges_add(&ranges, 1, last));
    EXPECT(&ranges, {1, 10 + 3 * (SB_RANGES_MAX - 1)});
}

static void ranges_travel_as_a_flat_array(void **state)
{
    (void) state;
    SB_OWN(sb_ranges_release) struct sb_ranges ranges = {0};
    SB_OWN(sb_ranges_release) struct sb_ranges got = {0};
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    for (uint64_t i = 0; i <= SB_RANGES_MAX; i++) {
        sb_buf_clear(&buf);
        sb_ranges_pack(&ranges, &buf);
        struct sb_mp mp = sb_mp_over(buf.data, buf.len);
        assert_int_equal(sb_ranges_read(&got, &mp, NULL), SB_OK);
        assert_ptr_equal(mp.at, mp.end);
        assert_int_equal(got.n, ranges.n);
        if (i > 0)
            assert_memory_equal(got.at, ranges.at, ranges.n * sizeof ranges.at[0]);
        if (i < SB_RANGES_MAX)
            assert_true(sb_ranges_add(&ranges, 1 + 1000 * i, 7 + 1000 * i));
    }
}

static void ranges_that_are_none_are_refused_and_change_nothing(void **state)
{
    (void) state;
    static const struct {
        uint64_t numbers[6];
        uint32_t n;
        const char *text;
    } cases[] = {
        {{1}, 1, "ranges are not an array of pairs"},
        {{0, 1}, 2, "a range starts at 0 or ends before it starts"},
        {{5, 4}, 2, "a range starts at 0 or ends before it starts"},
        {{1, 3, 4, 5}, 4, "ranges do not rise, or touch"},
        {{1, 3, 2, 5}, 4, "ranges do not rise, or touch"},
        {{8, 9, 2, 5}, 4, "ranges do not rise, or touch"},
        {{8, UINT64_MAX, 2, 5}, 4, "ranges do not rise, or touch"},
    };
    SB_OWN(sb_ranges_release) struct sb_ranges ranges = {0};
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    assert_true(sb_ranges_add(&ranges, 3, 4));
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_buf_clear(&buf);
        sb_mp_put_array(&buf, cases[i].n);
        for (uint32_t k = 0; k < cases[i].n; k++)
            sb_mp_put_uint(&buf, cases[i].numbers[k]);
        struct sb_mp mp = sb_mp_over(buf.data, buf.len);
        struct sb_err err = {0};
        assert_int_equal(sb_ranges_read(&ranges, &mp, &err), SB_FORMAT);
        assert_string_equal(err.text, cases[i].text);
        assert_ptr_equal(mp.at, buf.data);
        EXPECT(&ranges, {3, 4});
    }

    sb_buf_clear(&buf);
    sb_mp_put_array(&buf, 2 * (SB_RANGES_MAX + 1));
    struct sb_mp mp = sb_mp_over(buf.data, buf.len);
    assert_int_equal(sb_ranges_read(&ranges, &mp, NULL), SB_FULL);
    sb_buf_clear(&buf);
    sb_mp_put_array(&buf, 2);
    sb_mp_put_uint(&buf, 1);
    sb_mp_put_str(&buf, "9");
    mp = sb_mp_over(buf.data, buf.len);
    assert_int_equal(sb_ranges_read(&ranges, &mp, NULL), SB_FORMAT);
    EXPECT(&ranges, {3, 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_touches_or_overlaps_becomes_one),
        cmocka_unit_test(the_ends_of_the_numbers_are_numbers),
        cmocka_unit_test(it_equals_a_bitmap),
        cmocka_unit_test(an_empty_set_is_one_hole),
        cmocka_unit_test(over_the_limit_only_what_joins_is_taken),
        cmocka_unit_test(ranges_travel_as_a_flat_array),
        cmocka_unit_test(ranges_that_are_none_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
