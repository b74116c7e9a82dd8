#include "common/text.h"

#include "cmocka_all.h"
#include "common/err.h"

#define R "\xef\xbf\xbd"

static void bytes_that_are_not_utf8_are_replaced_a_piece(void **state)
{
    (void) state;
    static const struct {
        const char *in;
        size_t n;
        const char *out;
        bool is_bad;
    } cases[] = {
        {"", 0, "", false},
        {"plain", 5, "plain", false},
        {"gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f", false},
        {"\xe2\x82\xac", 3, "\xe2\x82\xac", false},
        {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80", false},
        {"\xed\x9f\xbf\xee\x80\x80", 6, "\xed\x9f\xbf\xee\x80\x80", false}, /* the neighbours of surrogates */
        {"\xf4\x8f\xbf\xbf", 4, "\xf4\x8f\xbf\xbf", false},                 /* U+10FFFF */
        {"\xff\xfe", 2, R R, true},
        {"a\0b", 3, "a" R "b", true},
        {"\x80", 1, R, true},
        {"\xc0\xaf", 2, R R, true},             /* overlong */
        {"\xc1\xbf", 2, R R, true},             /* overlong */
        {"\xe0\x80\xaf", 3, R R R, true},       /* overlong */
        {"\xe0\x9f\xbf", 3, R R R, true},       /* overlong */
        {"\xf0\x80\x80\xaf", 4, R R R R, true}, /* overlong */
        {"\xf0\x8f\xbf\xbf", 4, R R R R, true}, /* overlong */
        {"\xed\xa0\x80", 3, R R R, true},       /* a surrogate */
        {"\xed\xbf\xbf", 3, R R R, true},       /* a surrogate */
        {"\xf4\x90\x80\x80", 4, R R R R, true}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 4, R R R R, true}, /* above U+10FFFF */
        {"\xe2\x82", 2, R, true},               /* cut */
        {"\xf0\x9f\x98", 3, R, true},           /* cut */
        {"\xf0\x9f", 2, R, true},               /* cut */
        {"\xc3", 1, R, true},                   /* cut */
        {"\xe2\x82x", 3, R "x", true},          /* cut by a letter */
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", 7, R "\xf0\x9f\x98\x80", true},
        {"a\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", 13, "a" R R R "b" R "c" R R "d",
         true}, /* Unicode's own */
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char out[64];
        struct sb_text_faults faults = {0};
        const size_t len = sb_text_clean(out, sizeof out - 1, cases[i].in, cases[i].n, &faults);
        assert_string_equal(out, cases[i].out);
        assert_int_equal(len, strlen(cases[i].out));
        assert_int_equal(faults.replaced, cases[i].is_bad);
        assert_int_equal(faults.cut, 0);
    }
}

static void long_texts_are_cut_where_a_character_ends(void **state)
{
    (void) state;
    static const struct {
        const char *in;
        size_t max;
        const char *out;
    } cases[] = {
        {"abcdef", 6, "abcdef"},
        {"abcdef", 5, "abcde"},
        {"abc\xe2\x82\xac", 6, "abc\xe2\x82\xac"},
        {"abc\xe2\x82\xac", 5, "abc"},
        {"\xf0\x9f\x98\x80", 3, ""},
        {"ab\xff", 4, "ab"},
        {"ab\xff", 5, "ab" R},
        {"a", 0, ""},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char out[16];
        struct sb_text_faults faults = {0};
        const size_t len = sb_text_clean(out, cases[i].max, cases[i].in, strlen(cases[i].in), &faults);
        assert_string_equal(out, cases[i].out);
        assert_int_equal(len, strlen(out));
        const bool is_whole = strlen(cases[i].out) >= strlen(cases[i].in);
        assert_int_equal(faults.cut, !is_whole);
    }
}

static void a_long_hostile_value_costs_one_count_each(void **state)
{
    (void) state;
    char in[5000];
    memset(in, 0xff, sizeof in);
    char out[SB_LABEL_VALUE_MAX + 1];
    struct sb_text_faults faults = {0};
    assert_int_equal(sb_text_clean(out, SB_LABEL_VALUE_MAX, in, sizeof in, &faults), 255);
    assert_int_equal(faults.cut, 1);
    assert_int_equal(faults.replaced, 1);
    memset(in, 'x', sizeof in);
    assert_int_equal(sb_text_clean(out, SB_LABEL_VALUE_MAX, in, sizeof in, NULL), 256);
}

static void label_names(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        bool is_valid;
    } cases[] = {
        {"a", true},    {"_a", true},  {"_", true},    {"aB_9", true}, {"", false},
        {"__a", false}, {"9a", false}, {"a-b", false}, {"a:b", false}, {"\xc3\xbc", false},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        assert_int_equal(sb_label_name_is_valid(cases[i].name, strlen(cases[i].name)), cases[i].is_valid);

    char name[SB_LABEL_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    assert_true(sb_label_name_is_valid(name, SB_LABEL_NAME_MAX));
    assert_false(sb_label_name_is_valid(name, SB_LABEL_NAME_MAX + 1));
    assert_false(sb_label_name_is_valid("a\0b", 3));
}

static void metric_names(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        bool is_valid;
    } cases[] = {
        {"a", true}, {"vllm:a_b9", true}, {":a", true},   {"__a", true},
        {"", false}, {"9", false},        {"a.b", false}, {"a b", false},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        assert_int_equal(sb_metric_name_is_valid(cases[i].name, strlen(cases[i].name)), cases[i].is_valid);

    char name[201];
    memset(name, 'n', sizeof name);
    assert_true(sb_metric_name_is_valid(name, 200));
    assert_false(sb_metric_name_is_valid(name, 201));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced_a_piece),
        cmocka_unit_test(long_texts_are_cut_where_a_character_ends),
        cmocka_unit_test(a_long_hostile_value_costs_one_count_each),
        cmocka_unit_test(label_names),
        cmocka_unit_test(metric_names),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
