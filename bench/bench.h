/* Measuring CPU time of a loop, best of several runs. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <time.h>

static inline double bench_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

/* CPU nanoseconds of one call of fn, best of 7 runs of n calls each: the least disturbed run. */
static inline double bench_call_ns(void (*fn)(void *arg), void *arg, uint32_t n)
{
    double best = 1e300;
    for (int run = 0; run < 7; run++) {
        double from = bench_cpu_ns();
        for (uint32_t i = 0; i < n; i++)
            fn(arg);
        double took = (bench_cpu_ns() - from) / n;
        best = took < best ? took : best;
    }
    return best;
}

#endif
