#include "common/open_files.h"

#include <sys/resource.h>

#include "cmocka_all.h"

static void set_limits(rlim_t soft, rlim_t hard)
{
    const struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static rlim_t soft_limit(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
}

/* Hard limits only fall, so the steps go down. */
static void the_soft_limit_rises_to_what_is_wanted_or_allowed_and_never_falls(void **state)
{
    (void) state;
    set_limits(64, 512);
    assert_int_equal(sb_open_files_raise(256), 256);
    assert_int_equal(soft_limit(), 256);
    assert_int_equal(sb_open_files_raise(100), 256);
    assert_int_equal(soft_limit(), 256);
    assert_int_equal(sb_open_files_raise(100000), 512);
    assert_int_equal(soft_limit(), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_soft_limit_rises_to_what_is_wanted_or_allowed_and_never_falls),
    };
    return cmocka_run_group_tests_name("open_files", tests, NULL, NULL);
}
