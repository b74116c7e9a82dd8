#include "common/num.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cmocka_all.h"
#include "common/err.h"

static void bounds_print_as_prometheus_client_prints_them(void **state)
{
    (void) state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {0.005, "0.005"},
        {0.1, "0.1"},
        {1, "1.0"},
        {2.5, "2.5"},
        {16, "16.0"},
        {1000, "1000.0"},
        {7680, "7680.0"},
        {131072, "131072.0"},
        {999999, "999999.0"},
        {999999.5, "999999.5"},
        {1e6, "1e+06"},
        {1000000.5, "1.0000005e+06"},
        {1048576, "1.048576e+06"},
        {2097152, "2.097152e+06"},
        {8589934592, "8.589934592e+09"},
        {1e10, "1e+10"},
        {1e15, "1e+15"},
        {9007199254740992, "9.007199254740992e+15"},
        {1e16, "1e+16"},
        {1.5e16, "1.5e+16"},
        {1e100, "1e+100"},
        {1e-3, "0.001"},
        {1e-4, "0.0001"},
        {9.999e-5, "9.999e-05"},
        {1e-5, "1e-05"},
        {0.30000000000000004, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {5.684341886080802e-14, "5.684341886080802e-14"}, /* a power of two */
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {-0.5, "-0.5"},
        {-0.0, "-0.0"},
        {-1e6, "-1000000.0"},
        {-1e16, "-1e+16"},
        {INFINITY, "+Inf"},
        {-INFINITY, "-Inf"},
        {NAN, "NaN"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char out[SB_NUM_MAX];
        const size_t len = sb_num_le(out, cases[i].value);
        assert_string_equal(out, cases[i].text);
        assert_int_equal(len, strlen(out));
    }
}

static void values_print_short(void **state)
{
    (void) state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "0"},
        {1, "1"},
        {-1, "-1"},
        {9, "9"},
        {10, "10"},
        {99, "99"},
        {100, "100"},
        {12345, "12345"},
        {9007199254740991, "9007199254740991"},
        {-9007199254740991, "-9007199254740991"},
        {9007199254740992, "9.007199254740992e+15"},
        {1e22, "1e+22"},
        {0.5, "0.5"},
        {-0.5, "-0.5"},
        {0.904, "0.904"},
        {0.001, "0.001"},
        {0.0001, "0.0001"},
        {0.00012345, "0.00012345"},
        {0.00001, "1e-05"},
        {123456.75, "123456.75"},
        {0.30000000000000004, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {1234567890.1234567, "1234567890.1234567"},
        {4503599627370495.5, "4.5035996273704955e+15"},
        {999999999999999.9, "999999999999999.9"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {NAN, "NaN"},
        {INFINITY, "+Inf"},
        {-INFINITY, "-Inf"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char out[SB_NUM_MAX];
        const size_t len = sb_num_value(out, cases[i].value);
        assert_string_equal(out, cases[i].text);
        assert_int_equal(len, strlen(out));
    }
}

/* Around every power of ten and of two the number of digits could be one off. */
static void whole_numbers_have_all_their_digits(void **state)
{
    (void) state;
    char expected[SB_NUM_MAX], out[SB_NUM_MAX];
    for (int base = 2; base <= 10; base += 8) {
        for (double power = 1; power < 0x1p53; power *= base) {
            for (double value = power - 1; value <= power + 1 && value < 0x1p53; value++) {
                snprintf(expected, sizeof expected, "%.0f", value);
                assert_int_equal(sb_num_value(out, value), strlen(expected));
                assert_string_equal(out, expected);
            }
        }
    }
}

/* Numbers of 16 and 17 digits: as short as %.*g says that they can be. */
static void long_fractions_are_as_short_as_can_be(void **state)
{
    (void) state;
    uint64_t seed = 5;
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const double value = ldexp(1 + (double) (seed >> 11) * 0x1p-53, (int) (seed % 60) - 13);
        if (value == floor(value) || value >= 1e15 || value < 1e-4)
            continue;
        char expected[2 * SB_NUM_MAX], out[SB_NUM_MAX];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(expected, sizeof expected, "%.*g", digits, value);
            if (strtod(expected, NULL) == value)
                break;
        }
        sb_num_value(out, value);
        assert_string_equal(out, expected);
    }
}

static void any_double_reads_back_equal(void **state)
{
    (void) state;
    uint64_t seed = 99;
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double value;
        uint64_t bits = seed ^ (seed >> 31);
        memcpy(&value, &bits, sizeof value);
        if (i % 4 == 1)
            value = (double) (bits >> 40) / 1000.0;
        if (i % 4 == 2)
            value = (double) (bits >> 11) * 0x1p-40;
        if (i % 4 == 3)
            value = ldexp(1, (int) (bits >> 54) - 512);
        if (isnan(value))
            continue;
        char out[SB_NUM_MAX];
        assert_in_range(sb_num_value(out, value), 1, SB_NUM_MAX - 1);
        assert_true(strtod(out, NULL) == value);
        assert_in_range(sb_num_le(out, value), 1, SB_NUM_MAX - 1);
        assert_true(strtod(out, NULL) == value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_print_as_prometheus_client_prints_them),
        cmocka_unit_test(values_print_short),
        cmocka_unit_test(whole_numbers_have_all_their_digits),
        cmocka_unit_test(long_fractions_are_as_short_as_can_be),
        cmocka_unit_test(any_double_reads_back_equal),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
