#include "common/accept.h"

#include "cmocka_all.h"

static void preferences_come_in_order_with_their_parameters(void **state)
{
    (void) state;
    static const struct {
        const char *header;
        size_t n;
        struct {
            const char *value;
            const char *version; /* NULL: none */
            double q;
        } want[4];
    } cases[] = {
        {"", 0, {{0}}},
        {"gzip", 1, {{"gzip", NULL, 1}}},
        {" a ; q=0.25 ,b;version=1;q=0", 2, {{"a", NULL, 0.25}, {"b", "1", 0}}},
        {"a;version=\"x,y;z\";q=1.0,b", 2, {{"a", "x,y;z", 1}, {"b", NULL, 1}}},
        {"a;q=nan,b;q=2,c;q=-1,d;q=", 4, {{"a", NULL, 0}, {"b", NULL, 0}, {"c", NULL, 0}, {"d", NULL, 0}}},
        {"a;q=0.12345678,b;q=0x1,c;q=1e9,d;;=;q", 4, {{"a", NULL, 0}, {"b", NULL, 0}, {"c", NULL, 0}, {"d", NULL, 1}}},
        {",,a", 3, {{"", NULL, 1}, {"", NULL, 1}, {"a", NULL, 1}}},
        {"\"never closed, a", 1, {{"\"never closed, a", NULL, 1}}},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *header = cases[i].header;
        struct sb_preference got;
        for (size_t k = 0; k < cases[i].n; k++) {
            assert_true(sb_accept_next(&header, &got));
            assert_true(sb_slice_is(got.value, cases[i].want[k].value));
            assert_true(got.q == cases[i].want[k].q);
            assert_int_equal(got.version.at != NULL, cases[i].want[k].version != NULL);
            if (got.version.at)
                assert_true(sb_slice_is(got.version, cases[i].want[k].version));
        }
        assert_false(sb_accept_next(&header, &got));
    }
}

static void gzip_is_used_where_it_is_liked_as_much(void **state)
{
    (void) state;
    static const struct {
        const char *header;
        bool is_gzip;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"gzip", true},
        {"x-gzip", true},
        {"deflate, GZip", true},
        {"gzip;q=0", false},
        {"gzip;q=0.001", true},
        {"gzip, identity", true},
        {"gzip;q=0.5, identity", false},
        {"identity;q=0", false},
        {"*", true},
        {"*;q=0, gzip", true},
        {"gzip;q=0, *;q=1", false},
        {"br", false},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        assert_int_equal(sb_accept_gzip(cases[i].header), cases[i].is_gzip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preferences_come_in_order_with_their_parameters),
        cmocka_unit_test(gzip_is_used_where_it_is_liked_as_much),
    };
    return cmocka_run_group_tests_name("accept", tests, NULL, NULL);
}
