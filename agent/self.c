#include "agent/self.h"

#include <string.h>

#include "common/log.h"

#define PREFIX "statsbus_agent_"

struct agent_gauges {
#define COUNTER(name, help)
#define GAUGE(name, help) double name;
#include "agent/agent_metrics.def"
#undef COUNTER
#undef GAUGE
};

static const struct sb_expo_labels no_labels = {0};

static void count_sources(const struct agent_ledger *ledger, int64_t now_ms, struct agent_gauges *out)
{
    for (uint32_t i = 0; i < agent_ledger_n_contributions(ledger); i++) {
        const struct agent_contribution *contribution = agent_ledger_contribution_at(ledger, i);
        if (!contribution)
            continue;
        const double age = (double) (now_ms - contribution->shown_ms) / 1000;
        const bool has_snapshot = contribution->is_live && contribution->n_shown > 0 && contribution->shown_ms >= 0;
        if (has_snapshot && age > out->oldest_snapshot_seconds)
            out->oldest_snapshot_seconds = age;
        if (contribution->is_front_end)
            continue;
        out->sources_live += contribution->is_live;
        out->sources_ended += contribution->is_ended;
        out->sources_silent += !contribution->is_live && !contribution->is_ended;
    }
}

static struct agent_gauges gauges_of(const struct agent_self *self, int64_t now_ms)
{
    struct agent_gauges out = {.commit_seconds = self->commit_seconds, .hubs = (double) self->n_hubs};
    uint32_t all = 0, live = 0;
    uint64_t missing = 0;
    agent_publishers_count(self->publishers, now_ms, &all, &live, &missing);
    out.publishers = all;
    out.publishers_live = live;
    out.missing_records = (double) missing;
    count_sources(self->ledger, now_ms, &out);
    out.families = agent_ledger_n_families(self->ledger);
    out.series = agent_ledger_n_series(self->ledger);
    out.generation = (double) self->commit->state.generation;
    out.released_generation = (double) self->commit->released;
    out.commit_bytes = (double) self->commit->bytes;
    for (size_t i = 0; i < self->n_hubs; i++)
        out.hubs_connected += agent_hublink_is_open(&self->hubs[i]);
    return out;
}

static void put(const struct sb_expo *expo, const char *name, enum sb_type type, const char *help, double value)
{
    sb_expo_family(expo, name, type, NULL, help);
    sb_expo_value(expo, name, &no_labels, value);
}

/* One sample with one label, whose value is escaped into `scratch`. */
static void put_labelled(const struct sb_expo *expo, struct sb_buf *scratch, const char *name, const char *label,
                         const char *label_value, double value)
{
    sb_buf_clear(scratch);
    sb_buf_put_text(scratch, label);
    sb_buf_put_text(scratch, "=\"");
    sb_expo_escape(scratch, label_value);
    sb_buf_put_text(scratch, "\"");
    const struct sb_expo_labels labels = {.text = {(const char *) scratch->data}, .len = {(uint32_t) scratch->len}};
    if (!scratch->is_overflow)
        sb_expo_value(expo, name, &labels, value);
}

static void put_refusals(const struct agent_self *self, const struct sb_expo *expo, struct sb_buf *scratch)
{
    const char *name = PREFIX "refusals_total";
    sb_expo_family(expo, name, SB_COUNTER, NULL, "Messages of engines refused whole, by reason.");
    for (int reason = AGENT_ACCEPTED + 1; reason < AGENT_REFUSAL_COUNT; reason++)
        put_labelled(expo, scratch, name, "reason", agent_refusal_name((enum agent_refusal) reason),
                     (double) self->counters.refusals[reason]);
}

/* Families of one name and different bounds have one line. */
static bool is_first_of_name(const struct agent_ledger *ledger, uint32_t index, double *refused)
{
    const char *name = agent_ledger_family_at(ledger, index)->name;
    *refused = 0;
    for (uint32_t i = 0; i < agent_ledger_n_families(ledger); i++) {
        const struct agent_family *other = agent_ledger_family_at(ledger, i);
        if (strcmp(other->name, name) != 0)
            continue;
        if (i < index)
            return false;
        *refused += (double) other->refused;
    }
    return true;
}

static void put_samples_refused(const struct agent_self *self, const struct sb_expo *expo, struct sb_buf *scratch)
{
    const char *name = PREFIX "samples_refused_total";
    sb_expo_family(expo, name, SB_COUNTER, NULL,
                   "Samples of a wrong type or an impossible value, by family; the rest of their record counted.");
    for (uint32_t i = 0; i < agent_ledger_n_families(self->ledger); i++) {
        const struct agent_family *family = agent_ledger_family_at(self->ledger, i);
        double refused;
        if (family->refused > 0 && is_first_of_name(self->ledger, i, &refused))
            put_labelled(expo, scratch, name, "family", family->name, refused);
    }
}

static void put_hubs(const struct agent_self *self, const struct sb_expo *expo, struct sb_buf *scratch)
{
    const char *name = PREFIX "hub_up";
    sb_expo_family(expo, name, SB_GAUGE, NULL, "1 while there is a session with this hub.");
    for (size_t i = 0; i < self->n_hubs; i++)
        put_labelled(expo, scratch, name, "hub", self->hubs[i].endpoint, agent_hublink_is_open(&self->hubs[i]));
}

static void put_limits(const struct agent_self *self, const struct sb_expo *expo)
{
    const struct agent_ledger_counters *ledger = agent_ledger_counters(self->ledger);
    const struct sb_text_faults *faults = agent_ledger_text_faults(self->ledger);
    put(expo, PREFIX "observations_unknown_total", SB_COUNTER,
        "Observations that are malformed, or of a family that neither the catalog nor the hello has.",
        (double) ledger->unknown_families);
    put(expo, PREFIX "label_sets_folded_total", SB_COUNTER,
        "Label sets over a limit, counted in the series labelled _overflow.", (double) ledger->overflows);
    put(expo, PREFIX "totals_left_out_total", SB_COUNTER,
        "Totals of cumulative families left out since they or their label sets are over a limit.",
        (double) ledger->totals_left_out);
    put(expo, PREFIX "ledger_limit_hits_total", SB_COUNTER, "Families, series or contributions refused for a limit.",
        (double) ledger->limit_hits);
    put(expo, PREFIX "family_clashes_total", SB_COUNTER, "Families refused since their names clash with another's.",
        (double) ledger->clashes);
    put(expo, PREFIX "texts_replaced_total", SB_COUNTER, "Texts that were not UTF-8: each bad byte was replaced.",
        (double) faults->replaced);
    put(expo, PREFIX "texts_cut_total", SB_COUNTER, "Texts over their limit, cut.", (double) faults->cut);
    put(expo, PREFIX "log_lines_dropped_total", SB_COUNTER, "Log lines that stderr did not take at once.",
        (double) sb_log_dropped());
    if (!self->http)
        return;
    const struct sb_http_counters http = sb_http_counters(self->http);
    put(expo, PREFIX "http_requests_total", SB_COUNTER, "HTTP requests.", (double) http.requests);
    put(expo, PREFIX "http_refused_total", SB_COUNTER, "HTTP requests answered with 4xx.", (double) http.refused);
    put(expo, PREFIX "http_turned_away_total", SB_COUNTER, "HTTP connections over the limit.",
        (double) http.turned_away);
    put(expo, PREFIX "http_hung_up_total", SB_COUNTER, "HTTP connections that took too long for one answer.",
        (double) http.hung_up);
}

void agent_self_render(const struct agent_self *self, const struct sb_expo *expo, int64_t now_ms)
{
    const struct agent_gauges gauges = gauges_of(self, now_ms);
    struct sb_buf scratch;
    sb_buf_init(&scratch, 4096);
#define COUNTER(name, help) put(expo, PREFIX #name "_total", SB_COUNTER, help, (double) self->counters.name);
#define GAUGE(name, help) put(expo, PREFIX #name, SB_GAUGE, help, gauges.name);
#include "agent/agent_metrics.def"
#undef COUNTER
#undef GAUGE
    put_refusals(self, expo, &scratch);
    put_samples_refused(self, expo, &scratch);
    put_hubs(self, expo, &scratch);
    put_limits(self, expo);
    sb_expo_end(expo);
    sb_buf_release(&scratch);
}
