#include "common/buf.h"

#include "cmocka_all.h"

static void appends_grow_and_keep_order(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    assert_null(buf.data);
    for (int i = 0; i < 10000; i++) {
        sb_buf_put_byte(&buf, (uint8_t) i);
        sb_buf_put_text(&buf, "ab");
        sb_buf_put(&buf, "\0c", 2);
    }
    assert_int_equal(buf.len, 50000);
    for (size_t i = 0; i < 10000; i++) {
        assert_int_equal(buf.data[5 * i], (uint8_t) i);
        assert_memory_equal(buf.data + 5 * i + 1, "ab\0c", 4);
    }
    assert_false(buf.is_overflow);
    sb_buf_release(&buf);
    assert_null(buf.data);
    sb_buf_release(&buf);
}

static void the_limit_is_exact_and_a_refusal_is_remembered(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 10);
    sb_buf_put(&buf, "0123456789", 10);
    assert_int_equal(buf.len, 10);
    assert_false(buf.is_overflow);
    sb_buf_put(&buf, NULL, 0);
    assert_false(buf.is_overflow);
    sb_buf_put_byte(&buf, 'x');
    assert_true(buf.is_overflow);
    assert_int_equal(buf.len, 10);
    assert_null(sb_buf_reserve(&buf, SIZE_MAX));
    sb_buf_clear(&buf);
    assert_false(buf.is_overflow);
    assert_int_equal(buf.len, 0);
    sb_buf_put(&buf, "01234567890", 11);
    assert_true(buf.is_overflow);
    assert_int_equal(buf.len, 0);
    sb_buf_release(&buf);
}

static void a_buffer_of_nothing_holds_nothing(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 0);
    sb_buf_put(&buf, "", 0);
    assert_false(buf.is_overflow);
    assert_non_null(sb_buf_reserve(&buf, 0));
    sb_buf_put_byte(&buf, 1);
    assert_true(buf.is_overflow);
    sb_buf_release(&buf);
}

static void reserved_room_is_the_callers_to_fill(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    sb_buf_put_text(&buf, "head ");
    uint8_t *room = sb_buf_reserve(&buf, 995);
    assert_non_null(room);
    memset(room, 'z', 995);
    buf.len += 3;
    assert_memory_equal(buf.data, "head zzz", 8);
    assert_null(sb_buf_reserve(&buf, 993));
    assert_true(buf.is_overflow);
    sb_buf_release(&buf);
}

static void printf_appends_all_or_nothing(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 12);
    sb_buf_printf(&buf, "%s=%d", "a", 5);
    sb_buf_printf(&buf, "%s", "");
    assert_memory_equal(buf.data, "a=5", 3);
    assert_int_equal(buf.len, 3);
    sb_buf_printf(&buf, "%09d", 1);
    assert_int_equal(buf.len, 12);
    assert_false(buf.is_overflow);
    sb_buf_printf(&buf, "!");
    assert_int_equal(buf.len, 12);
    assert_true(buf.is_overflow);
    sb_buf_release(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_keep_order),
        cmocka_unit_test(the_limit_is_exact_and_a_refusal_is_remembered),
        cmocka_unit_test(a_buffer_of_nothing_holds_nothing),
        cmocka_unit_test(reserved_room_is_the_callers_to_fill),
        cmocka_unit_test(printf_appends_all_or_nothing),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
