#include "common/clock.h"

#include "cmocka_all.h"

static void the_monotonic_clocks_agree_and_never_fall(void **state)
{
    (void) state;
    int64_t before = sb_mono_ms();
    for (int i = 0; i < 10000; i++) {
        const double s = sb_mono_s();
        const int64_t after = sb_mono_ms();
        assert_true(after >= before);
        assert_true(s >= (double) before / 1e3 && s < (double) (after + 1) / 1e3);
        before = after;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_monotonic_clocks_agree_and_never_fall),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
