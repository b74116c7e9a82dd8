#include "clock.h"

#include <time.h>

static struct timespec now_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now); /* cannot fail for these clocks and a valid address */
    return now;
}

int64_t sb_mono_ms(void)
{
    const struct timespec now = now_of(CLOCK_MONOTONIC);
    return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

double sb_mono_s(void)
{
    const struct timespec now = now_of(CLOCK_MONOTONIC);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}
