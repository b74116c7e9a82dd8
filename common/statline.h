/*
 * The numbers of one line of statistics in the log, of a source or of several together: which families they come from
 * is statline.def. Pure: what was counted comes in, text goes out.
 */
#ifndef SB_STATLINE_H
#define SB_STATLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sb_stat {
#define STAT(name, how, family) SB_STAT_##name,
#include "common/statline.def"
#undef STAT
    SB_STATS
};

enum { SB_STATLINE_MAX = 512 };

/* Each number is there or not: what nobody said is no 0. */
struct sb_statline {
    double sum[SB_STATS];
    uint32_t n[SB_STATS]; /* how many values are in the sum; 0: none */
};

/* The statistic that comes of the family of this name; SB_STATS: none does. */
enum sb_stat sb_stat_of_family(const char *family);
const char *sb_stat_family(enum sb_stat stat);
bool sb_stat_is_count(enum sb_stat stat);

void sb_statline_put(struct sb_statline *self, enum sb_stat stat, double value);
/* Adds another's numbers. */
void sb_statline_add(struct sb_statline *self, const struct sb_statline *more);
/* Of totals now and before: what was counted between, with the gauges of now. A count that wasn't there before, or has
 * fallen, is not known. */
struct sb_statline sb_statline_since(const struct sb_statline *now, const struct sb_statline *before);
bool sb_statline_is_empty(const struct sb_statline *self);

/* "prompt_tokens_per_s=12.5 ... kv_cache_usage=0.031 ..."; "-" stands for what is not known. */
void sb_statline_text(const struct sb_statline *self, double seconds, char out[SB_STATLINE_MAX]);

#endif
