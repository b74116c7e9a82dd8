#include "common/mp.h"

#include <math.h>
#include <stdlib.h>

#include "cmocka_all.h"

#define BYTES(text) (text), sizeof(text) - 1

static void well_formed_values_are_accepted(void **state)
{
    (void) state;
    static const struct {
        const char *bytes;
        size_t n;
        enum sb_mp_type type;
    } cases[] = {
        {BYTES("\x00"), SB_MP_UINT},
        {BYTES("\x7f"), SB_MP_UINT},
        {BYTES("\xff"), SB_MP_INT},
        {BYTES("\xe0"), SB_MP_INT},
        {BYTES("\xc0"), SB_MP_NIL},
        {BYTES("\xc2"), SB_MP_BOOL},
        {BYTES("\xc3"), SB_MP_BOOL},
        {BYTES("\xc4\x02"
               "ab"),
         SB_MP_BIN},
        {BYTES("\xc5\x00\x01"
               "a"),
         SB_MP_BIN},
        {BYTES("\xc6\x00\x00\x00\x01"
               "a"),
         SB_MP_BIN},
        {BYTES("\xc7\x02\x05"
               "ab"),
         SB_MP_EXT},
        {BYTES("\xc7\x00\x05"), SB_MP_EXT},
        {BYTES("\xc8\x00\x01\x05"
               "a"),
         SB_MP_EXT},
        {BYTES("\xc9\x00\x00\x00\x01\x05"
               "a"),
         SB_MP_EXT},
        {BYTES("\xca\x3f\x80\x00\x00"), SB_MP_FLOAT},
        {BYTES("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), SB_MP_FLOAT},
        {BYTES("\xcc\xff"), SB_MP_UINT},
        {BYTES("\xcd\xff\xff"), SB_MP_UINT},
        {BYTES("\xce\xff\xff\xff\xff"), SB_MP_UINT},
        {BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), SB_MP_UINT},
        {BYTES("\xd0\x05"), SB_MP_UINT},
        {BYTES("\xd0\x85"), SB_MP_INT},
        {BYTES("\xd1\x85\x00"), SB_MP_INT},
        {BYTES("\xd2\x85\x00\x00\x00"), SB_MP_INT},
        {BYTES("\xd3\x85\x00\x00\x00\x00\x00\x00\x00"), SB_MP_INT},
        {BYTES("\xd4\x01"
               "a"),
         SB_MP_EXT},
        {BYTES("\xd5\x01"
               "ab"),
         SB_MP_EXT},
        {BYTES("\xd6\x01"
               "abcd"),
         SB_MP_EXT},
        {BYTES("\xd7\x01"
               "abcdefgh"),
         SB_MP_EXT},
        {BYTES("\xd8\x01"
               "abcdefghijklmnop"),
         SB_MP_EXT},
        {BYTES("\xa0"), SB_MP_STR},
        {BYTES("\xa2"
               "ab"),
         SB_MP_STR},
        {BYTES("\xd9\x01"
               "a"),
         SB_MP_STR},
        {BYTES("\xda\x00\x01"
               "a"),
         SB_MP_STR},
        {BYTES("\xdb\x00\x00\x00\x01"
               "a"),
         SB_MP_STR},
        {BYTES("\x90"), SB_MP_ARRAY},
        {BYTES("\x93\x01\x90\x80"), SB_MP_ARRAY},
        {BYTES("\xdc\x00\x01\x01"), SB_MP_ARRAY},
        {BYTES("\xdd\x00\x00\x00\x01\x01"), SB_MP_ARRAY},
        {BYTES("\x80"), SB_MP_MAP},
        {BYTES("\x82\xa1"
               "a\x91\x01\xa1"
               "b\x80"),
         SB_MP_MAP},
        {BYTES("\x85\x01\x01\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x01\xc0\x01\xc3\x01\xc4\x01x\x01"), SB_MP_MAP},
        {BYTES("\x82\x92\x01\x02\x01\x80\x01"), SB_MP_MAP}, /* keys that are an array and a map */
        {BYTES("\xde\x00\x01\x01\x01"), SB_MP_MAP},
        {BYTES("\xdf\x00\x00\x00\x01\x01\x01"), SB_MP_MAP},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {0};
        struct sb_mp mp = sb_mp_over(cases[i].bytes, cases[i].n);
        assert_int_equal(sb_mp_validate(cases[i].bytes, cases[i].n, SB_MP_DEPTH_MAX, &err), SB_OK);
        assert_int_equal(sb_mp_peek(&mp), cases[i].type);
        assert_true(sb_mp_skip(&mp));
        assert_ptr_equal(mp.at, mp.end);
        assert_int_equal(sb_mp_peek(&mp), SB_MP_END);
        assert_false(sb_mp_skip(&mp));
    }
}

/* Each on the heap at its exact size, so that the address sanitizer sees a read beyond it. */
static void every_cut_of_a_value_is_refused_by_every_reader(void **state)
{
    (void) state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {BYTES("\xc4\x02"
               "ab")},
        {BYTES("\xc5\x00\x01"
               "a")},
        {BYTES("\xc6\x00\x00\x00\x01"
               "a")},
        {BYTES("\xc7\x02\x05"
               "ab")},
        {BYTES("\xc8\x00\x01\x05"
               "a")},
        {BYTES("\xc9\x00\x00\x00\x01\x05"
               "a")},
        {BYTES("\xca\x3f\x80\x00\x00")},
        {BYTES("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00")},
        {BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff")},
        {BYTES("\xd3\xff\xff\xff\xff\xff\xff\xff\xff")},
        {BYTES("\xd8\x01"
               "abcdefghijklmnop")},
        {BYTES("\xa2"
               "ab")},
        {BYTES("\xd9\x01"
               "a")},
        {BYTES("\xda\x00\x01"
               "a")},
        {BYTES("\xdb\x00\x00\x00\x01"
               "a")},
        {BYTES("\x95\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xcb\x3f\xf0\x00\x00\x00"
               "\x00\x00\x00\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x01")},
        {BYTES("\xdc\x00\x02\x01\x01")},
        {BYTES("\xdd\x00\x00\x00\x02\x01\x01")},
        {BYTES("\xde\x00\x01\x01\x01")},
        {BYTES("\xdf\x00\x00\x00\x01\x01\x01")},
        {BYTES("\x82\xa1"
               "a\x91\x01\xa1"
               "b\x80")},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        for (size_t n = 0; n < cases[i].n; n++) {
            uint8_t *cut = malloc(n ? n : 1);
            assert_non_null(cut);
            memcpy(cut, cases[i].bytes, n);
            struct sb_err err;
            assert_int_equal(sb_mp_validate(cut, n, SB_MP_DEPTH_MAX, &err), SB_FORMAT);

            const struct sb_mp start = sb_mp_over(cut, n);
            struct sb_mp mp = start;
            uint64_t uint;
            double number;
            bool flag;
            struct sb_slice slice;
            (void) sb_mp_peek(&mp);
            assert_false(sb_mp_skip(&mp));
            assert_false(sb_mp_uint(&mp, &uint));
            assert_false(sb_mp_number(&mp, &number));
            assert_false(sb_mp_str(&mp, &slice));
            assert_false(sb_mp_bin(&mp, &slice));
            assert_false(sb_mp_bool(&mp, &flag));
            assert_false(sb_mp_nil(&mp));
            assert_ptr_equal(mp.at, start.at);
            free(cut);
        }
    }
}

static void malformed_values_are_refused_with_the_byte(void **state)
{
    (void) state;
    static const struct {
        const char *bytes;
        size_t n;
        enum sb_rc rc;
        const char *text;
    } cases[] = {
        {BYTES(""), SB_FORMAT, "the message is empty"},
        {BYTES("\xc1"), SB_FORMAT, "byte 0 is 0xc1, which msgpack never uses"},
        {BYTES("\x92\x01\xc1"), SB_FORMAT, "byte 2 is 0xc1, which msgpack never uses"},
        {BYTES("\x01\x01"), SB_FORMAT, "the value ends at byte 1, but there are 2"},
        {BYTES("\xdd\xff\x00\x00\x00"), SB_FORMAT, "the value at byte 0 does not fit into the 5 bytes"},
        {BYTES("\xdf\xff\xff\xff\xff"), SB_FORMAT, "the value at byte 0 does not fit into the 5 bytes"},
        {BYTES("\xdf\x80\x00\x00\x00\x01\x01"), SB_FORMAT, "the value at byte 0 does not fit into the 7 bytes"},
        {BYTES("\xdb\xff\xff\xff\xff"
               "a"),
         SB_FORMAT, "the value at byte 0 does not fit into the 6 bytes"},
        {BYTES("\xc9\xff\xff\xff\xff\x01"
               "a"),
         SB_FORMAT, "the value at byte 0 does not fit into the 7 bytes"},
        {BYTES("\x81\x92\x01\x02"), SB_FORMAT, "the value at byte 4 does not fit into the 4 bytes"},
        {BYTES("\x91\x91\x91\x91\x01"), SB_FULL, "the value at byte 3 is nested deeper than 3"},
        {BYTES("\x91\x81\x01\x91\x80"), SB_FULL, "the value at byte 4 is nested deeper than 3"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {0};
        assert_int_equal(sb_mp_validate(cases[i].bytes, cases[i].n, 3, &err), cases[i].rc);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void depth_is_counted_exactly(void **state)
{
    (void) state;
    uint8_t bytes[64];
    for (unsigned depth = 0; depth <= 40; depth++) {
        for (int is_map = 0; is_map < 2; is_map++) {
            size_t n = 0;
            for (unsigned i = 0; i < depth; i++) {
                bytes[n++] = is_map && i % 2 ? 0x81 : 0x91;
                if (is_map && i % 2)
                    bytes[n++] = 0x05;
            }
            bytes[n++] = 0x01;
            struct sb_mp mp = sb_mp_over(bytes, n);
            assert_int_equal(sb_mp_validate(bytes, n, SB_MP_DEPTH_MAX, NULL), depth <= 16 ? SB_OK : SB_FULL);
            assert_int_equal(sb_mp_validate(bytes, n, 1000, NULL), depth <= 16 ? SB_OK : SB_FULL);
            assert_int_equal(sb_mp_validate(bytes, n, depth, NULL), depth <= 16 ? SB_OK : SB_FULL);
            assert_int_equal(sb_mp_skip(&mp), depth <= 16);
            if (depth > 0)
                assert_int_equal(sb_mp_validate(bytes, n, depth - 1, NULL), SB_FULL);
        }
    }
}

static void lists_of_doubles_of_every_length_end_where_they_end(void **state)
{
    (void) state;
    for (uint32_t n = 0; n <= 40; n++) {
        for (uint32_t odd = 0; odd <= n; odd++) { /* one element that is no double, at each place; odd == n: none */
            struct sb_buf buf;
            sb_buf_init(&buf, 1000);
            sb_mp_put_array(&buf, 2);
            sb_mp_put_array(&buf, n);
            for (uint32_t i = 0; i < n; i++) {
                if (i == odd)
                    sb_mp_put_uint(&buf, 300);
                else
                    sb_mp_put_float(&buf, 0.25 * i);
            }
            sb_mp_put_str(&buf, "end");
            assert_int_equal(sb_mp_validate(buf.data, buf.len, 2, NULL), SB_OK);
            assert_int_equal(sb_mp_validate(buf.data, buf.len - 1, 2, NULL), SB_FORMAT);

            struct sb_mp mp = sb_mp_over(buf.data, buf.len);
            uint32_t count;
            struct sb_slice end;
            assert_true(sb_mp_array(&mp, &count));
            assert_true(sb_mp_skip(&mp));
            assert_true(sb_mp_str(&mp, &end));
            assert_true(sb_slice_is(end, "end"));
            sb_buf_release(&buf);
        }
    }
}

static void integers_of_every_width_read_back(void **state)
{
    (void) state;
    static const uint64_t numbers[] = {0,      1,       0x7f,       0x80,        0xff,       0x100,
                                       0xffff, 0x10000, 0xffffffff, 0x100000000, 1ull << 53, UINT64_MAX};
    for (size_t i = 0; i < SB_COUNT(numbers); i++) {
        struct sb_buf buf;
        sb_buf_init(&buf, 16);
        sb_mp_put_uint(&buf, numbers[i]);
        struct sb_mp mp = sb_mp_over(buf.data, buf.len);
        uint64_t got = 1234;
        double number;
        assert_int_equal(sb_mp_validate(buf.data, buf.len, 0, NULL), SB_OK);
        assert_int_equal(sb_mp_peek(&mp), SB_MP_UINT);
        assert_true(sb_mp_number(&mp, &number));
        assert_true(number == (double) numbers[i]);
        mp = sb_mp_over(buf.data, buf.len);
        assert_true(sb_mp_uint(&mp, &got));
        assert_true(got == numbers[i]);
        assert_ptr_equal(mp.at, mp.end);
        sb_buf_release(&buf);
    }
}

static void signed_integers_are_numbers_and_unsigned_when_not_negative(void **state)
{
    (void) state;
    static const struct {
        const char *bytes;
        size_t n;
        double number;
    } cases[] = {
        {BYTES("\xff"), -1},
        {BYTES("\xe0"), -32},
        {BYTES("\xd0\x80"), -128},
        {BYTES("\xd0\x7f"), 127},
        {BYTES("\xd1\xff\xfe"), -2},
        {BYTES("\xd1\x7f\xff"), 32767},
        {BYTES("\xd2\xff\xff\xff\xfd"), -3},
        {BYTES("\xd2\x00\x00\x00\x03"), 3},
        {BYTES("\xd3\xff\xff\xff\xff\xff\xff\xff\xfc"), -4},
        {BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), -9223372036854775808.0},
        {BYTES("\xd3\x00\x00\x00\x00\x00\x00\x00\x04"), 4},
        {BYTES("\xc2"), 0},
        {BYTES("\xc3"), 1},
        {BYTES("\xca\x3f\x00\x00\x00"), 0.5},
        {BYTES("\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00"), -0.5},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_mp mp = sb_mp_over(cases[i].bytes, cases[i].n);
        double number = 99;
        assert_true(sb_mp_number(&mp, &number));
        assert_true(number == cases[i].number);
        assert_ptr_equal(mp.at, mp.end);

        mp = sb_mp_over(cases[i].bytes, cases[i].n);
        const bool is_uint = sb_mp_peek(&mp) == SB_MP_UINT;
        uint64_t uint = 99;
        assert_int_equal(sb_mp_uint(&mp, &uint), is_uint);
        if (is_uint)
            assert_true((double) uint == cases[i].number);
        else
            assert_int_equal(uint, 99);
    }
}

static void floats_read_back_bit_by_bit(void **state)
{
    (void) state;
    static const double numbers[] = {0, -0.0, 0.1, -1e300, 5e-324, INFINITY, -INFINITY, 1e-3};
    for (size_t i = 0; i < SB_COUNT(numbers); i++) {
        struct sb_buf buf;
        sb_buf_init(&buf, 16);
        sb_mp_put_float(&buf, numbers[i]);
        struct sb_mp mp = sb_mp_over(buf.data, buf.len);
        double got;
        assert_true(sb_mp_number(&mp, &got));
        assert_memory_equal(&got, &numbers[i], sizeof got);
        sb_buf_release(&buf);
    }
}

static void texts_bins_and_containers_of_every_width_read_back(void **state)
{
    (void) state;
    static const uint32_t lengths[] = {0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000};
    char *text = calloc(1, 70001);
    assert_non_null(text);
    memset(text, 't', 70000);
    for (size_t i = 0; i < SB_COUNT(lengths); i++) {
        struct sb_buf buf;
        sb_buf_init(&buf, 1 << 20);
        text[lengths[i]] = '\0';
        sb_mp_put_str(&buf, text);
        sb_mp_put_bin(&buf, text, lengths[i]);
        sb_mp_put_array(&buf, lengths[i]);
        sb_mp_put_map(&buf, lengths[i]);
        sb_mp_put_nil(&buf);
        sb_mp_put_bool(&buf, true);
        text[lengths[i]] = 't';

        struct sb_mp mp = sb_mp_over(buf.data, buf.len);
        struct sb_slice slice;
        uint32_t n;
        bool flag = false;
        assert_false(sb_mp_bin(&mp, &slice));
        assert_true(sb_mp_str(&mp, &slice));
        assert_int_equal(slice.len, lengths[i]);
        assert_memory_equal(slice.at, text, lengths[i]);
        assert_false(sb_mp_str(&mp, &slice));
        assert_true(sb_mp_bin(&mp, &slice));
        assert_int_equal(slice.len, lengths[i]);
        assert_false(sb_mp_map(&mp, &n));
        assert_true(sb_mp_array(&mp, &n));
        assert_int_equal(n, lengths[i]);
        assert_false(sb_mp_array(&mp, &n));
        assert_true(sb_mp_map(&mp, &n));
        assert_int_equal(n, lengths[i]);
        assert_false(sb_mp_bool(&mp, &flag));
        assert_true(sb_mp_nil(&mp));
        assert_false(sb_mp_nil(&mp));
        assert_true(sb_mp_bool(&mp, &flag));
        assert_true(flag);
        assert_ptr_equal(mp.at, mp.end);
        sb_buf_release(&buf);
    }
    free(text);
}

/* Whatever validate accepts, skip steps over to the last byte; and neither ever reads beyond the end. */
static void random_bytes_never_harm(void **state)
{
    (void) state;
    uint64_t seed = 12345;
    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[24];
        const size_t n = 1 + (size_t) (seed >> 33) % sizeof bytes;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t) (seed >> 56);
            if (seed & (1u << 20))
                bytes[i] = (uint8_t) (0x80 | (bytes[i] & 0x13)); /* more containers than chance gives */
        }
        uint8_t *exact = malloc(n);
        assert_non_null(exact);
        memcpy(exact, bytes, n);
        struct sb_mp mp = sb_mp_over(exact, n);
        const bool is_whole = sb_mp_skip(&mp) && mp.at == mp.end;
        assert_int_equal(sb_mp_validate(exact, n, SB_MP_DEPTH_MAX, NULL) == SB_OK, is_whole);
        free(exact);
    }
}

static void slices_compare_with_whole_texts(void **state)
{
    (void) state;
    const struct sb_slice slice = {.at = "stepping", .len = 4};
    assert_true(sb_slice_is(slice, "step"));
    assert_false(sb_slice_is(slice, "ste"));
    assert_false(sb_slice_is(slice, "stepp"));
    assert_false(sb_slice_is(slice, "stop"));
    assert_true(sb_slice_is((struct sb_slice){.at = "", .len = 0}, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_values_are_accepted),
        cmocka_unit_test(every_cut_of_a_value_is_refused_by_every_reader),
        cmocka_unit_test(malformed_values_are_refused_with_the_byte),
        cmocka_unit_test(depth_is_counted_exactly),
        cmocka_unit_test(lists_of_doubles_of_every_length_end_where_they_end),
        cmocka_unit_test(integers_of_every_width_read_back),
        cmocka_unit_test(signed_integers_are_numbers_and_unsigned_when_not_negative),
        cmocka_unit_test(floats_read_back_bit_by_bit),
        cmocka_unit_test(texts_bins_and_containers_of_every_width_read_back),
        cmocka_unit_test(random_bytes_never_harm),
        cmocka_unit_test(slices_compare_with_whole_texts),
    };
    return cmocka_run_group_tests_name("mp", tests, NULL, NULL);
}
