/* The two clocks. Only daemons call these; everything below them takes the time as a parameter. */
#ifndef SB_CLOCK_H
#define SB_CLOCK_H

#include <stdint.h>

int64_t sb_mono_ms(void); /* since some fixed moment of this host; for order, ages, liveness */
double sb_mono_s(void);   /* the same clock, seconds: what publishers call `time` */

#endif
