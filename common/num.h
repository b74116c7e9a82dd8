/* Numbers as text, for exposition. */
#ifndef SB_NUM_H
#define SB_NUM_H

#include <stddef.h>

enum { SB_NUM_MAX = 32 }; /* bytes that any number needs at most, with a NUL */

/* A sample value: whole numbers below 2^53 without point, others in the shortest form that reads back equal;
 * NaN, +Inf, -Inf. Returns the length; adds a NUL. */
size_t sb_num_value(char out[SB_NUM_MAX], double value);

/* A bucket bound as prometheus_client and Go print it: 1.0, 0.005, 1e+06 for whole powers from 1e6 on, +Inf. */
size_t sb_num_le(char out[SB_NUM_MAX], double value);

#endif
