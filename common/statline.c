#include "common/statline.h"

#include <stdio.h>
#include <string.h>

enum how { HOW_count, HOW_sum, HOW_mean };

static const struct {
    enum how how;
    const char *family;
} stats[] = {
#define STAT(name, how, family) [SB_STAT_##name] = {HOW_##how, family},
#include "common/statline.def"
#undef STAT
};

enum sb_stat sb_stat_of_family(const char *family)
{
    size_t stat = 0;
    while (stat < SB_STATS && strcmp(stats[stat].family, family) != 0)
        stat++;
    return (enum sb_stat) stat;
}

const char *sb_stat_family(enum sb_stat stat)
{
    return stats[stat].family;
}

bool sb_stat_is_count(enum sb_stat stat)
{
    return stats[stat].how == HOW_count;
}

void sb_statline_put(struct sb_statline *self, enum sb_stat stat, double value)
{
    self->sum[stat] += value;
    self->n[stat]++;
}

void sb_statline_add(struct sb_statline *self, const struct sb_statline *more)
{
    for (size_t i = 0; i < SB_STATS; i++) {
        self->sum[i] += more->sum[i];
        self->n[i] += more->n[i];
    }
}

struct sb_statline sb_statline_since(const struct sb_statline *now, const struct sb_statline *before)
{
    struct sb_statline out = *now;
    for (size_t i = 0; i < SB_STATS; i++) {
        if (stats[i].how != HOW_count)
            continue;
        out.sum[i] -= before->sum[i];
        if (now->n[i] == 0 || before->n[i] == 0 || out.sum[i] < 0) {
            out.sum[i] = 0;
            out.n[i] = 0;
        }
    }
    return out;
}

bool sb_statline_is_empty(const struct sb_statline *self)
{
    for (size_t i = 0; i < SB_STATS; i++) {
        if (self->n[i] > 0)
            return false;
    }
    return true;
}

struct text {
    char *out;
    size_t len;
};

static void put(struct text *self, const char *name, bool is_known, double value, int decimals)
{
    const char *blank = self->len > 0 ? " " : "";
    const size_t room = SB_STATLINE_MAX - self->len;
    const int n = is_known ? snprintf(self->out + self->len, room, "%s%s=%.*f", blank, name, decimals, value)
                           : snprintf(self->out + self->len, room, "%s%s=-", blank, name);
    self->len += n > 0 && (size_t) n < room ? (size_t) n : 0;
}

static void put_rate(struct text *self, const struct sb_statline *of, const char *name, enum sb_stat stat,
                     double seconds)
{
    put(self, name, of->n[stat] > 0 && seconds > 0, of->sum[stat] / seconds, 1);
}

static void put_share(struct text *self, const struct sb_statline *of, const char *name, enum sb_stat part,
                      enum sb_stat whole)
{
    const bool is_known = of->n[part] > 0 && of->n[whole] > 0 && of->sum[whole] > 0;
    const double share = is_known ? of->sum[part] / of->sum[whole] : 0;
    put(self, name, is_known, share > 1 ? 1 : share, 3);
}

void sb_statline_text(const struct sb_statline *self, double seconds, char out[SB_STATLINE_MAX])
{
    struct text text = {.out = out};
    const uint32_t n_usages = self->n[SB_STAT_kv_cache_usage];
    put_rate(&text, self, "prompt_tokens_per_s", SB_STAT_prompt_tokens, seconds);
    put_rate(&text, self, "generation_tokens_per_s", SB_STAT_generation_tokens, seconds);
    put(&text, "running", self->n[SB_STAT_running] > 0, self->sum[SB_STAT_running], 0);
    put(&text, "waiting", self->n[SB_STAT_waiting] > 0, self->sum[SB_STAT_waiting], 0);
    put(&text, "kv_cache_usage", n_usages > 0, self->sum[SB_STAT_kv_cache_usage] / n_usages, 3);
    put_share(&text, self, "prefix_hit_rate", SB_STAT_prefix_hits, SB_STAT_prefix_lookups);
    put_share(&text, self, "acceptance_rate", SB_STAT_accepted_tokens, SB_STAT_draft_tokens);
}
