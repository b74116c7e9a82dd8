#include "num.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double two_to_53 = 9007199254740992.0;

/* From here to there fractions have a point, else an exponent. */
#define DECIMAL_LEAST 1e-4
#define DECIMAL_BELOW 1e15

static size_t put(char out[SB_NUM_MAX], const char *text)
{
    const size_t len = strlen(text);
    memcpy(out, text, len + 1);
    return len;
}

static const uint64_t whole_powers[] = {1,
                                        10,
                                        100,
                                        1000,
                                        10000,
                                        100000,
                                        1000000,
                                        10000000,
                                        100000000,
                                        1000000000,
                                        10000000000,
                                        100000000000,
                                        1000000000000,
                                        10000000000000,
                                        100000000000000,
                                        1000000000000000,
                                        10000000000000000,
                                        100000000000000000,
                                        1000000000000000000,
                                        10000000000000000000U};

static size_t count_digits(uint64_t number)
{
    number |= 1; /* 0 has a digit as well */
    const unsigned bits = 64 - (unsigned) __builtin_clzll(number);
    const unsigned guess = bits * 1233 >> 12; /* bits * log10(2): right, or one too few */
    return guess + (number >= whole_powers[guess]);
}

/* The decimal digits of a number, two a step; returns how many. */
static inline size_t put_digits(char *out, uint64_t number)
{
    static const char pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";
    const size_t n = count_digits(number);
    char *at = out + n;
    while (number >= 100) {
        at -= 2;
        memcpy(at, pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10)
        memcpy(at - 2, pairs + 2 * number, 2);
    else
        at[-1] = (char) ('0' + number);
    return n;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
enum { DIGITS = 15, LEAST = 4 };

/* How many decimals give a number from DECIMAL_LEAST to below DECIMAL_BELOW 15 digits. */
static size_t decimals_of(double value)
{
    size_t decimals = DIGITS + LEAST - 1;
    if (value >= 1) {
        size_t before = 1;
        while (value >= powers[before])
            before++;
        return DIGITS - before;
    }
    while (value * powers[decimals] >= 1e15)
        decimals--;
    return decimals;
}

/* number / 10^decimals, without zeros at the end. */
static size_t put_scaled(char *out, uint64_t number, size_t decimals)
{
    while (decimals >= 4 && number % 10000 == 0) {
        number /= 10000;
        decimals -= 4;
    }
    while (decimals > 0 && number % 10 == 0) {
        number /= 10;
        decimals--;
    }
    char digits[24];
    const size_t n = put_digits(digits, number);
    if (n > decimals) {
        const size_t before = n - decimals;
        memcpy(out, digits, before);
        out[before] = '.';
        memcpy(out + before + 1, digits + before, decimals);
        return n + 1;
    }
    memcpy(out, "0.00000", 2 + decimals - n);
    memcpy(out + 2 + decimals - n, digits, n);
    return 2 + decimals;
}

/*
 * value as whole / 10^decimals, if that reads back equal: with both exact doubles the division is what a correct reader
 * computes. Tried with 15 digits (enough for every number that people and most engines write), then 16.
 */
static size_t put_decimal(char *out, double value)
{
    if (value < DECIMAL_LEAST || value >= DECIMAL_BELOW)
        return 0;
    size_t decimals = decimals_of(value);
    double whole = nearbyint(value * powers[decimals]);
    if (whole / powers[decimals] != value) {
        decimals++;
        whole = nearbyint(value * powers[decimals]);
        if (whole >= two_to_53 || whole / powers[decimals] != value)
            return 0;
    }
    return put_scaled(out, (uint64_t) whole, decimals);
}

__extension__ typedef unsigned __int128 wide;

/* Rounded to the nearest, from halfway to the even one. */
static wide shift_down(wide number, int shift)
{
    const wide half = (wide) 1 << (shift - 1);
    const wide low = number & ((half << 1) - 1);
    const wide whole = number >> shift;
    return whole + (low > half || (low == half && (whole & 1)));
}

/*
 * The same in whole numbers of 128 bits, for what needs 16 or 17 digits: value is m / 2^shift exactly, so that m *
 * 10^decimals holds all of its digits. 17 of them always read back; 16 do if they are off by no more than half of m's
 * last bit. Returns 0 for powers of two, whose neighbours are not equally far.
 */
static size_t put_long_decimal(char *out, double value)
{
    enum { FRACTION_BITS = 52, EXPONENT_BIAS = 1023 };
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t one = (uint64_t) 1 << FRACTION_BITS;
    const wide m = (bits & (one - 1)) | one; /* the limits of decimals are far from where that is not so */
    if (m == one)
        return 0;
    const int shift = FRACTION_BITS + EXPONENT_BIAS - (int) (bits >> FRACTION_BITS); /* 3 to 66 */
    size_t decimals = decimals_of(value) + 1;
    const wide power = whole_powers[decimals];
    wide number = shift_down(m * power, shift);
    const wide back = number << shift;
    const wide off = back > m * power ? back - m * power : m * power - back;
    const bool is_even = (m & 1) == 0;
    if (2 * off > power || (2 * off == power && !is_even)) {
        decimals++;
        number = shift_down(10 * m * power, shift);
    }
    return put_scaled(out, (uint64_t) number, decimals);
}

/* Does number * 10^exponent read back as value? */
static bool reads_back(uint64_t number, int exponent, double value)
{
    char text[2 * SB_NUM_MAX];
    snprintf(text, sizeof text, "%" PRIu64 "e%d", number, exponent);
    return strtod(text, NULL) == value;
}

/*
 * The fewest digits that read back equal, at least `least` of them, as Python's repr has them; *exponent is that of the
 * first digit.
 */
static size_t shortest(char digits[SB_NUM_MAX], double size, int least, int *exponent)
{
    enum { MOST = 17 }; /* enough for any double */
    int unused;
    const bool is_power_of_two = frexp(size, &unused) == 0.5;
    uint64_t number = 0;
    for (int n = least; n <= MOST; n++) {
        char text[SB_NUM_MAX];
        snprintf(text, sizeof text, "%.*e", n - 1, size);
        number = 0;
        const char *at = text;
        for (; *at != 'e'; at++)
            number = *at == '.' ? number : 10 * number + (uint64_t) (*at - '0');
        *exponent = (int) strtol(at + 1, NULL, 10);

        if (n == MOST || strtod(text, NULL) == size)
            break;
        /* Below a power of two doubles are twice as dense as above: the farther neighbour may be the one that reads
         * back. */
        if (is_power_of_two && reads_back(number + 1, *exponent - n + 1, size)) {
            number++;
            break;
        }
    }
    return put_digits(digits, number);
}

/* d, d.ddd with an exponent of two digits at least. */
static size_t put_exponent(char *out, const char *digits, size_t n, int exponent)
{
    size_t len = 0;
    out[len++] = digits[0];
    if (n > 1) {
        out[len++] = '.';
        memcpy(out + len, digits + 1, n - 1);
        len += n - 1;
    }
    return len + (size_t) snprintf(out + len, SB_NUM_MAX - 1 - len, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

/* Digits with a point and at least one digit on each side. */
static size_t put_point(char *out, const char *digits, size_t n, int exponent)
{
    size_t len = 0;
    if (exponent < 0) {
        out[len++] = '0';
        out[len++] = '.';
        for (int i = -1; i > exponent; i--)
            out[len++] = '0';
        memcpy(out + len, digits, n);
        return len + n;
    }
    const size_t before = (size_t) exponent + 1;
    for (size_t i = 0; i < before; i++)
        out[len++] = i < n ? digits[i] : '0';
    out[len++] = '.';
    if (n <= before) {
        out[len++] = '0';
        return len;
    }
    memcpy(out + len, digits + before, n - before);
    return len + n - before;
}

static size_t put_fraction(char out[SB_NUM_MAX], double value)
{
    const bool is_negative = value < 0;
    const double size = fabs(value);
    if (is_negative)
        *out++ = '-';
    const bool was_tried = size >= DECIMAL_LEAST && size < DECIMAL_BELOW; /* with up to 15 digits */
    size_t len = put_decimal(out, size);
    if (len == 0 && was_tried)
        len = put_long_decimal(out, size);
    if (len == 0) {
        const bool is_subnormal = size < DBL_MIN;
        char digits[SB_NUM_MAX];
        int exponent;
        const size_t n = shortest(digits, size, was_tried ? 16 : is_subnormal ? 1 : 15, &exponent);
        size_t kept = n;
        while (kept > 1 && digits[kept - 1] == '0')
            kept--;
        len = was_tried ? put_point(out, digits, kept, exponent) : put_exponent(out, digits, kept, exponent);
    }
    out[len] = '\0';
    return is_negative + len;
}

static __attribute__((noinline)) size_t put_special(char out[SB_NUM_MAX], double value)
{
    if (isnan(value))
        return put(out, "NaN");
    if (isinf(value))
        return put(out, value > 0 ? "+Inf" : "-Inf");
    return put_fraction(out, value);
}

/* Whole numbers first and apart: nearly all lines of a scrape are buckets. */
size_t sb_num_value(char out[SB_NUM_MAX], double value)
{
    const double size = fabs(value);
    if (!(size < two_to_53) || size != (double) (int64_t) size)
        return put_special(out, value);
    const bool is_negative = value < 0;
    if (is_negative)
        out[0] = '-';
    const size_t len = is_negative + put_digits(out + is_negative, (uint64_t) size);
    out[len] = '\0';
    return len;
}

size_t sb_num_le(char out[SB_NUM_MAX], double value)
{
    if (isnan(value))
        return put(out, "NaN");
    if (isinf(value))
        return put(out, value > 0 ? "+Inf" : "-Inf");

    char digits[SB_NUM_MAX];
    int exponent;
    const size_t n = shortest(digits, fabs(value), 1, &exponent);
    const bool is_negative = signbit(value);
    if (is_negative)
        out[0] = '-';

    /* Python's repr has a point from 1e-4 to below 1e16; prometheus_client takes it away again from 1e6 on, as Go does,
     * but only for positive numbers. */
    const int point_below = is_negative ? 16 : 6;
    size_t len = is_negative;
    if (exponent >= -4 && exponent < point_below)
        len += put_point(out + len, digits, n, exponent);
    else
        len += put_exponent(out + len, digits, n, exponent);
    out[len] = '\0';
    return len;
}
