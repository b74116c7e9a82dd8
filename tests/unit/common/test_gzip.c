#include "common/gzip.h"

#include "cmocka_all.h"

static void assert_unpacks(const struct sb_buf *packed, const void *bytes, size_t n)
{
    static uint8_t out[1 << 20];
    z_stream stream = {
        .next_in = packed->data, .avail_in = (uInt) packed->len, .next_out = out, .avail_out = sizeof out};
    assert_int_equal(inflateInit2(&stream, 15 + 16), Z_OK);
    const int rc = inflate(&stream, Z_SYNC_FLUSH);
    assert_int_equal(rc, Z_STREAM_END);
    assert_int_equal(sizeof out - stream.avail_out, n);
    assert_memory_equal(out, bytes, n);
    inflateEnd(&stream);
}

static void pieces_make_one_stream(void **state)
{
    (void) state;
    static uint8_t bytes[300000];
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t) (i < 150000 ? i / 100 : seed >> 56); /* what packs well, and what does not */
    }
    SB_OWN(sb_buf_release) struct sb_buf packed;
    sb_buf_init(&packed, 1 << 20);
    struct sb_gzip gzip;
    assert_int_equal(sb_gzip_init(&gzip), SB_OK);
    for (size_t at = 0; at < sizeof bytes; at += 30000) {
        sb_gzip_put(&gzip, bytes + at, 30000, SB_GZIP_MORE, &packed);
    }
    sb_gzip_put(&gzip, NULL, 0, SB_GZIP_END, &packed);
    assert_false(packed.is_overflow);
    assert_unpacks(&packed, bytes, sizeof bytes);
    sb_gzip_release(&gzip);
    sb_gzip_release(&gzip);
}

static void nothing_is_a_stream_too(void **state)
{
    (void) state;
    SB_OWN(sb_buf_release) struct sb_buf packed;
    sb_buf_init(&packed, 1 << 20);
    struct sb_gzip gzip;
    assert_int_equal(sb_gzip_init(&gzip), SB_OK);
    sb_gzip_put(&gzip, NULL, 0, SB_GZIP_END, &packed);
    assert_unpacks(&packed, "", 0);
    sb_gzip_release(&gzip);
}

static void a_full_buffer_is_told_by_the_buffer(void **state)
{
    (void) state;
    static const uint8_t bytes[1000];
    SB_OWN(sb_buf_release) struct sb_buf packed;
    sb_buf_init(&packed, 100);
    struct sb_gzip gzip;
    assert_int_equal(sb_gzip_init(&gzip), SB_OK);
    sb_gzip_put(&gzip, bytes, sizeof bytes, SB_GZIP_END, &packed);
    assert_true(packed.is_overflow);
    sb_gzip_release(&gzip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_one_stream),
        cmocka_unit_test(nothing_is_a_stream_too),
        cmocka_unit_test(a_full_buffer_is_told_by_the_buffer),
    };
    return cmocka_run_group_tests_name("gzip", tests, NULL, NULL);
}
