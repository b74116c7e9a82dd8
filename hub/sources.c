#include "hub/sources.h"

#include <string.h>

static const char prefix[] = "statsbus_source_";

/* What a value is told from. False: the source has none. */
typedef bool (*tell_fn)(const struct hub_sources_ask *ask, const struct hub_source *source, double *out);

static bool tell_up(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    (void) ask;
    *out = source->n_live > 0;
    return true;
}

static bool tell_last_seen(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    int64_t seen_ms = source->seen_ms;
    for (uint32_t i = 0; i < source->n_contributions; i++) {
        const struct hub_contribution *each = source->contributions[i];
        if (each->is_live && each->lineage->heard_ms > seen_ms)
            seen_ms = each->lineage->heard_ms; /* its agent would have said so, had it ended */
    }
    *out = ask->now_ms > seen_ms ? (double) (ask->now_ms - seen_ms) / 1000 : 0;
    return true;
}

static bool tell_incarnations(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    (void) ask;
    *out = (double) source->n_incarnations;
    return true;
}

static bool tell_conflicts(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    (void) ask;
    *out = (double) source->n_conflicts;
    return true;
}

static bool tell_count(const struct hub_sources_ask *ask, const struct hub_source *source, enum sb_agent_count what,
                       double *out)
{
    bool is_any = source->has_retired[what];
    double sum = source->retired[what];
    for (uint32_t i = 0; i < source->n_contributions; i++) {
        double value;
        if (!hub_store_count_of(ask->store, source->contributions[i], what, &value))
            continue;
        is_any = true;
        sum += value;
    }
    *out = sum;
    return is_any;
}

static bool tell_refused(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    return tell_count(ask, source, SB_AGENT_COUNT_refused_samples, out);
}

static bool tell_lost(const struct hub_sources_ask *ask, const struct hub_source *source, double *out)
{
    return tell_count(ask, source, SB_AGENT_COUNT_lost_records, out);
}

static const struct source_family {
    const char *name;
    enum hub_kind kind;
    enum sb_type type;
    const char *unit;
    const char *help;
    tell_fn tell;
} families[] = {
#define SOURCE(name, kind, type, unit, help, tell) {"statsbus_source_" #name, HUB_##kind, SB_##type, unit, help, tell},
#include "hub/source_families.def"
#undef SOURCE
};

bool hub_is_source_family(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0;
}

static bool is_wanted(const struct hub_sources_ask *ask, const struct hub_source *source)
{
    if (!hub_source_is_shown(ask->store, source, ask->now_ms))
        return false;
    for (int what = 0; ask->is_narrowed && what < HUB_NARROW_COUNT; what++) {
        const char *value = sb_labelset_value(source->identity, hub_narrow_labels[what]);
        if (!hub_query_wants(ask->query, (enum hub_narrow) what, value))
            return false;
    }
    return true;
}

/* Rows of one family; true: the piece is full. *looks: how many are left. */
static bool put_family(const struct hub_sources_ask *ask, struct hub_sources_cursor *cursor, size_t *looks,
                       const struct sb_expo *expo)
{
    const struct source_family *family = &families[cursor->family];
    size_t at = hub_store_source_after(ask->store, cursor->last_source);
    for (; at < ask->store->n_sources; at++) {
        const struct hub_source *source = ask->store->source_list[at];
        double value;
        if (expo->out->len >= ask->until || *looks == 0)
            return true;
        --*looks;
        cursor->last_source = source->id;
        if (source->kind != family->kind || !is_wanted(ask, source) || !family->tell(ask, source, &value))
            continue;
        if (!cursor->has_header)
            sb_expo_family(expo, family->name, family->type, family->unit, family->help);
        cursor->has_header = true;
        const struct sb_expo_labels labels = {.text = {source->row->text, "", ""}, .len = {source->row->text_len}};
        sb_expo_value(expo, family->name, &labels, value);
    }
    return false;
}

bool hub_sources_put(const struct hub_sources_ask *ask, struct hub_sources_cursor *cursor, const struct sb_expo *expo)
{
    size_t looks = ask->looks;
    for (; cursor->family < SB_COUNT(families); *cursor = (struct hub_sources_cursor){.family = cursor->family + 1}) {
        if (hub_query_wants_family(ask->query, families[cursor->family].name) && put_family(ask, cursor, &looks, expo))
            return true;
    }
    return false;
}
