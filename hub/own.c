#include "hub/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/windows.h"

/* Where the samples of one family go. */
struct lines {
    const struct hub_own *own;
    const struct sb_expo *expo;
    const char *name;
};

typedef void (*put_fn)(const struct lines *lines);

static void put(const struct lines *lines, double value)
{
    const struct sb_expo_labels none = {.text = {"", "", ""}};
    sb_expo_value(lines->expo, lines->name, &none, value);
}

static void put_by(const struct lines *lines, const char *label, const char *text, double value)
{
    struct sb_buf out;
    sb_buf_init(&out, 4 * SB_EXPO_NAME_MAX);
    sb_buf_put_text(&out, label);
    sb_buf_put_text(&out, "=\"");
    sb_expo_escape(&out, text);
    sb_buf_put_byte(&out, '"');
    if (!out.is_overflow) {
        const struct sb_expo_labels labels = {.text = {(const char *) out.data, "", ""}, .len = {(uint32_t) out.len}};
        sb_expo_value(lines->expo, lines->name, &labels, value);
    }
    sb_buf_release(&out);
}

static double seconds(int64_t ms)
{
    return (double) ms / 1000;
}

static void put_build_info(const struct lines *lines)
{
    put_by(lines, "version", STATSBUS_VERSION, 1);
}

static void put_uptime(const struct lines *lines)
{
    put(lines, seconds(lines->own->now_ms - lines->own->started_ms));
}

static void put_agents(const struct lines *lines)
{
    put(lines, (double) lines->own->n_agents);
}

static void put_agents_max(const struct lines *lines)
{
    put(lines, (double) lines->own->agents_max);
}

static void put_sessions(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->sessions);
}

static void put_lineages(const struct lines *lines)
{
    put(lines, (double) lines->own->store->lineages.n);
}

enum state { LIVE, ENDED, SILENT, STATES };

static enum state source_state(const struct hub_source *source)
{
    enum state state = ENDED;
    for (uint32_t i = 0; i < source->n_contributions; i++) {
        if (source->contributions[i]->is_live)
            return LIVE;
        if (!source->contributions[i]->is_ended)
            state = SILENT;
    }
    return state;
}

static void put_sources(const struct lines *lines)
{
    static const char *const names[STATES] = {[LIVE] = "live", [ENDED] = "ended", [SILENT] = "silent"};
    uint64_t counts[STATES] = {0};
    size_t at = 0;
    for (const struct hub_source *source; (source = hub_table_next(&lines->own->store->sources, &at)) != NULL;) {
        if (source->kind == HUB_ENGINE)
            counts[source_state(source)]++;
    }
    for (int state = 0; state < STATES; state++)
        put_by(lines, "state", names[state], (double) counts[state]);
}

static void put_contributions(const struct lines *lines)
{
    put(lines, (double) lines->own->store->contributions.n);
}

static void put_contributions_max(const struct lines *lines)
{
    put(lines, (double) lines->own->store->contributions_max);
}

static void put_families(const struct lines *lines)
{
    put(lines, lines->own->store->index.n_families);
}

static void put_series(const struct lines *lines)
{
    put(lines, lines->own->store->index.n_series);
}

static void put_row_bytes(const struct lines *lines)
{
    put(lines, (double) lines->own->store->row_bytes);
}

static void put_window_bytes(const struct lines *lines)
{
    if (lines->own->store->windows)
        put(lines, (double) lines->own->store->windows->bytes);
}

static void put_window_bytes_max(const struct lines *lines)
{
    if (lines->own->store->windows)
        put(lines, (double) lines->own->store->windows->bytes_max);
}

static void put_row_bytes_max(const struct lines *lines)
{
    put(lines, (double) lines->own->store->row_bytes_max);
}

static void put_messages(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->messages);
}

static void put_bytes(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->bytes);
}

static void put_frames(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->frames);
}

static void put_late_frames(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->late_frames);
}

static void put_dropped_frames(const struct lines *lines)
{
    put(lines, (double) lines->own->store->counters->dropped_frames);
}

static void put_refused(const struct lines *lines)
{
    for (int refusal = HUB_OK + 1; refusal < HUB_REFUSAL_COUNT; refusal++)
        put_by(lines, "reason", hub_refusal_name((enum hub_refusal) refusal),
               (double) lines->own->store->counters->refused[refusal]);
}

static void put_skipped(const struct lines *lines)
{
    put_by(lines, "what", "message", (double) lines->own->store->counters->skipped_messages);
    put_by(lines, "what", "element", (double) lines->own->store->counters->skipped_elements);
}

static void put_limits(const struct lines *lines)
{
    for (int limit = 0; limit < HUB_LIMIT_COUNT; limit++)
        put_by(lines, "limit", hub_limit_name((enum hub_limit) limit),
               (double) lines->own->store->counters->limits[limit]);
}

static void put_clashes(const struct lines *lines)
{
    size_t at = 0;
    for (const struct hub_clash *clash; (clash = hub_table_next(&lines->own->store->index.clashes, &at)) != NULL;)
        put_by(lines, "family", clash->name, (double) clash->count);
}

static void put_conflicts(const struct lines *lines)
{
    const struct hub_index *index = &lines->own->store->index;
    for (uint32_t i = 0; i < index->n_families; i++) {
        if (index->families[i]->n_variants > 1)
            put_by(lines, "family", index->families[i]->name, index->families[i]->n_variants - 1);
    }
}

static void put_label_faults(const struct lines *lines)
{
    put_by(lines, "fault", "replaced", (double) lines->own->store->counters->label_faults.replaced);
    put_by(lines, "fault", "cut", (double) lines->own->store->counters->label_faults.cut);
}

static void put_silence(const struct lines *lines)
{
    if (lines->own->n_agents > 0)
        put(lines, seconds(lines->own->silence_ms));
}

static void put_snapshot_age(const struct lines *lines)
{
    const struct hub_own *own = lines->own;
    bool is_any = false;
    int64_t oldest_ms = own->now_ms;
    size_t at = 0;
    for (const struct hub_source *source; (source = hub_table_next(&own->store->sources, &at)) != NULL;) {
        if (!source->shown || source->shown->snapshot_ms == HUB_NO_SNAPSHOT)
            continue;
        is_any = true;
        if (source->shown->snapshot_ms < oldest_ms)
            oldest_ms = source->shown->snapshot_ms;
    }
    if (is_any)
        put(lines, seconds(own->now_ms - oldest_ms));
}

static void put_scrapes(const struct lines *lines)
{
    for (size_t i = 0; i < lines->own->store->n_shown_views; i++)
        put_by(lines, "type", lines->own->store->views[i].spec->name, (double) lines->own->scrapes[i]);
}

static void put_scrapes_open(const struct lines *lines)
{
    put(lines, (double) lines->own->scrapes_open);
}

static void put_scrape_bytes(const struct lines *lines)
{
    put(lines, (double) lines->own->scrape_bytes);
}

static void put_scrape_bytes_max(const struct lines *lines)
{
    put(lines, (double) lines->own->scrape_bytes_max);
}

static void put_render(const struct lines *lines)
{
    put(lines, lines->own->render_s);
}

static void put_http_requests(const struct lines *lines)
{
    put(lines, (double) lines->own->http_requests);
}

static void put_http_refused(const struct lines *lines)
{
    put(lines, (double) lines->own->http_refused);
}

static void put_http_turned_away(const struct lines *lines)
{
    put(lines, (double) lines->own->http_turned_away);
}

static void put_http_hung_up(const struct lines *lines)
{
    put(lines, (double) lines->own->http_hung_up);
}

static const struct own_family {
    const char *name;
    enum sb_type type;
    const char *unit;
    const char *help;
    put_fn put;
} families[] = {
#define OWN(name, type, unit, help, put) {"statsbus_hub_" #name, SB_##type, unit, help, put},
#include "hub/own_families.def"
#undef OWN
};

void hub_own_render(const struct hub_own *self, const struct sb_expo *expo, const struct hub_query *query)
{
    for (size_t i = 0; i < SB_COUNT(families); i++) {
        if (hub_query_is_narrowed(query) || !hub_query_wants_family(query, families[i].name))
            continue;
        const struct lines lines = {.own = self, .expo = expo, .name = families[i].name};
        sb_expo_family(expo, families[i].name, families[i].type, families[i].unit, families[i].help);
        families[i].put(&lines);
    }
}
