#include "common/bounds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cmocka_all.h"

/* Python's bisect_left, which is what prometheus_client's observe() amounts to. */
static uint32_t bisect_left(const double *upper, size_t n, double value)
{
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (upper[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t) low;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11;
}

static double unit(uint64_t *seed)
{
    return (double) next_random(seed) * 0x1p-53;
}

/* Values on, just below and just above every bound, and those that break careless code. */
static void check_all(const double *upper, size_t n)
{
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, n, NULL);
    assert_non_null(bounds);
    assert_int_equal(bounds->n, n);
    assert_true(bounds->n_keys <= 4096);
    for (size_t i = 0; i < n; i++) {
        const double values[] = {
            upper[i],       nextafter(upper[i], -INFINITY), nextafter(upper[i], INFINITY), -upper[i], upper[i] / 2,
            upper[i] * 1.01};
        for (size_t k = 0; k < SB_COUNT(values); k++)
            assert_int_equal(sb_bounds_bucket(bounds, values[k]), bisect_left(upper, n, values[k]));
    }
    const double odd[] = {0,         -0.0, DBL_TRUE_MIN, -DBL_TRUE_MIN, DBL_MIN, DBL_MAX, -DBL_MAX, INFINITY,
                          -INFINITY, 1,    -1,           1e18};
    for (size_t k = 0; k < SB_COUNT(odd); k++)
        assert_int_equal(sb_bounds_bucket(bounds, odd[k]), bisect_left(upper, n, odd[k]));
}

static void every_value_finds_its_bucket(void **state)
{
    (void) state;
    static const struct {
        size_t n;
        double upper[24];
    } cases[] = {
        {1, {0}},
        {1, {1}},
        {1, {-1}},
        {1, {DBL_TRUE_MIN}},
        {1, {DBL_MAX}},
        {2, {-DBL_MAX, DBL_MAX}},
        {2, {DBL_TRUE_MIN, DBL_MAX}},
        {3, {-2, -1, 0}},
        {5, {-2, -1, 0, 1, 2}},
        {4, {-0.0, DBL_TRUE_MIN, 2 * DBL_TRUE_MIN, DBL_MIN}},
        {22, {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
              1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0}},
        {4, {1, 1 + DBL_EPSILON, 1 + 2 * DBL_EPSILON, 1e300}},
        {3, {1e15, 1e15 + 0.125, 1e15 + 0.25}},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        check_all(cases[i].upper, cases[i].n);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return (x > y) - (x < y);
}

static void random_bounds_agree_with_bisection(void **state)
{
    (void) state;
    uint64_t seed = 4;
    for (int round = 0; round < 400; round++) {
        double upper[SB_BOUNDS_MAX];
        size_t n = 1 + next_random(&seed) % (round % 2 ? SB_BOUNDS_MAX : 20);
        for (size_t i = 0; i < n; i++) {
            switch (round % 4) {
            case 0:
                upper[i] = exp2(40 * unit(&seed) - 20);
                break;
            case 1:
                upper[i] = (double) (next_random(&seed) % 100000);
                break;
            case 2:
                upper[i] = 10 * unit(&seed) - 5;
                break;
            default:
                upper[i] = ldexp(1 + unit(&seed), (int) (next_random(&seed) % 2000) - 1000);
            }
        }
        qsort(upper, n, sizeof upper[0], by_value);
        size_t kept = 1;
        for (size_t i = 1; i < n; i++) {
            if (upper[i] > upper[kept - 1])
                upper[kept++] = upper[i];
        }
        check_all(upper, kept);

        SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, kept, NULL);
        assert_non_null(bounds);
        for (int i = 0; i < 2000; i++) {
            const double value = i % 2 ? exp2(50 * unit(&seed) - 25) : (upper[kept - 1] + 1) * unit(&seed);
            assert_int_equal(sb_bounds_bucket(bounds, value), bisect_left(upper, kept, value));
        }
    }
}

static void bad_bounds_name_the_first_bad_one(void **state)
{
    (void) state;
    static const struct {
        size_t n;
        double upper[7];
        enum sb_rc rc;
        const char *text;
    } cases[] = {
        {0, {0}, SB_INVAL, "there are no bounds"},
        {7, {1000, 125, 16, 250, 32, 4, 500}, SB_INVAL, "bound 1 (125) is not above the one before (1000)"},
        {3, {1, 2, 2}, SB_INVAL, "bound 2 (2) is not above the one before (2)"},
        {2, {-0.0, 0}, SB_INVAL, "bound 1 (0) is not above the one before (0)"},
        {2, {1, INFINITY}, SB_INVAL, "bound 1 (+Inf) is not finite"},
        {2, {-INFINITY, 1}, SB_INVAL, "bound 0 (-Inf) is not finite"},
        {3, {0.5, NAN, 1}, SB_INVAL, "bound 1 (NaN) is not finite"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {0};
        assert_null(sb_bounds_new(cases[i].upper, cases[i].n, &err));
        assert_int_equal(err.rc, cases[i].rc);
        assert_string_equal(err.text, cases[i].text);
    }
    double many[SB_BOUNDS_MAX + 1];
    for (size_t i = 0; i < SB_COUNT(many); i++)
        many[i] = (double) i;
    struct sb_err err = {0};
    assert_null(sb_bounds_new(many, SB_COUNT(many), &err));
    assert_int_equal(err.rc, SB_FULL);
    check_all(many, SB_BOUNDS_MAX);
}

static void texts_are_those_of_the_engine(void **state)
{
    (void) state;
    static const double upper[] = {-0.0, 0.005, 1, 1e6};
    static const char *const texts[] = {"0.0", "0.005", "1.0", "1e+06", "+Inf"};
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, SB_COUNT(upper), NULL);
    assert_non_null(bounds);
    for (size_t i = 0; i < SB_COUNT(texts); i++) {
        assert_string_equal(bounds->le[i].text, texts[i]);
        assert_int_equal(bounds->le[i].len, strlen(texts[i]));
    }
}

static void equal_bounds_are_equal_and_hash_alike(void **state)
{
    (void) state;
    static const double a[] = {0, 1, 2};
    static const double b[] = {-0.0, 1, 2};
    static const double c[] = {0, 1, 2.5};
    SB_OWN(sb_bounds_destroy) struct sb_bounds *first = sb_bounds_new(a, 3, NULL);
    SB_OWN(sb_bounds_destroy) struct sb_bounds *same = sb_bounds_new(b, 3, NULL);
    SB_OWN(sb_bounds_destroy) struct sb_bounds *other = sb_bounds_new(c, 3, NULL);
    SB_OWN(sb_bounds_destroy) struct sb_bounds *shorter = sb_bounds_new(a, 2, NULL);
    assert_true(first && same && other && shorter);
    assert_true(sb_bounds_equal(first, same));
    assert_int_equal(first->hash, same->hash);
    assert_false(sb_bounds_equal(first, other));
    assert_false(sb_bounds_equal(first, shorter));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_finds_its_bucket),          cmocka_unit_test(random_bounds_agree_with_bisection),
        cmocka_unit_test(bad_bounds_name_the_first_bad_one),     cmocka_unit_test(texts_are_those_of_the_engine),
        cmocka_unit_test(equal_bounds_are_equal_and_hash_alike),
    };
    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
