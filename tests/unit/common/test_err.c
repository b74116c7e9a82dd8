#include "common/err.h"

#include "cmocka_all.h"

static void every_result_has_a_text_of_its_own(void **state)
{
    (void) state;
    for (int a = 0; a < SB_RC_COUNT; a++) {
        assert_non_null(sb_rc_text((enum sb_rc) a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(sb_rc_text((enum sb_rc) a), sb_rc_text((enum sb_rc) b));
    }
    assert_string_equal(sb_rc_text(SB_OK), "ok");
    assert_string_equal(sb_rc_text((enum sb_rc) 99), "unknown result");
    assert_string_equal(sb_rc_text((enum sb_rc) - 1), "unknown result");
}

static void fail_records_and_returns(void **state)
{
    (void) state;
    struct sb_err err = {0};
    assert_int_equal(sb_fail(&err, SB_RANGE, "%d is over %d", 7, 5), SB_RANGE);
    assert_int_equal(err.rc, SB_RANGE);
    assert_string_equal(err.text, "7 is over 5");
    assert_int_equal(sb_fail(NULL, SB_IO, "nobody reads this"), SB_IO);
}

static void where_goes_before_the_text(void **state)
{
    (void) state;
    struct sb_err err = {0};
    sb_fail(&err, SB_FORMAT, "no colon");
    assert_int_equal(sb_fail_at(&err, SB_IO, "%s:%d", "a.yaml", 7), SB_FORMAT);
    assert_string_equal(err.text, "a.yaml:7: no colon");
    assert_int_equal(sb_fail_at(NULL, SB_IO, "x"), SB_IO);
}

static void long_texts_are_cut_and_control_characters_replaced(void **state)
{
    (void) state;
    struct sb_err err = {0};
    char text[600];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    sb_fail(&err, SB_INVAL, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    sb_fail_at(&err, SB_INVAL, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    sb_fail(&err, SB_INVAL, "a\nb\x7f\x01");
    assert_string_equal(err.text, "a?b??");
}

static void arguments_may_point_into_the_error_itself(void **state)
{
    (void) state;
    struct sb_err err = {0};
    sb_fail(&err, SB_INVAL, "inner");
    sb_fail(&err, SB_FORMAT, "outer (%s)", err.text);
    assert_string_equal(err.text, "outer (inner)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_result_has_a_text_of_its_own),
        cmocka_unit_test(fail_records_and_returns),
        cmocka_unit_test(where_goes_before_the_text),
        cmocka_unit_test(long_texts_are_cut_and_control_characters_replaced),
        cmocka_unit_test(arguments_may_point_into_the_error_itself),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
