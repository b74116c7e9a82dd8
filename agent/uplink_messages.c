/* The messages to a hub, rendered (hub-wire.md; uplink.h). */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hello.h"
#include "agent/uplink.h"
#include "common/grow.h"
#include "common/mp.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "ids and values are packed as they lie in memory");

static void start(struct agent_uplink *self, uint32_t elements, const char *type)
{
    sb_buf_clear(&self->out);
    sb_mp_put_array(&self->out, elements);
    sb_mp_put_str(&self->out, type);
}

bool agent_uplink_render_hello(struct agent_uplink *self)
{
    start(self, 6, "HELLO");
    sb_mp_put_uint(&self->out, AGENT_HUB_PROTOCOL);
    sb_mp_put_str(&self->out, self->cfg.node);
    sb_mp_put_bin(&self->out, self->cfg.lineage, AGENT_LINEAGE_LEN);
    sb_mp_put_uint(&self->out, self->top_generation);
    sb_mp_put_str(&self->out, "statsbus-agent " STATSBUS_VERSION);
    return !self->out.is_overflow;
}

/* Definitions */

static void put_family(struct sb_buf *out, uint32_t id, const struct agent_family *family)
{
    sb_mp_put_array(out, 8);
    sb_mp_put_uint(out, id);
    sb_mp_put_str(out, family->name);
    sb_mp_put_str(out, sb_type_text(family->type));
    sb_mp_put_str_or_nil(out, family->unit);
    if (family->bounds) {
        sb_mp_put_array(out, family->bounds->n);
        for (uint32_t i = 0; i < family->bounds->n; i++)
            sb_mp_put_float(out, family->bounds->upper[i]);
    } else {
        sb_mp_put_nil(out);
    }
    if (family->is_in_catalog) {
        for (int i = 0; i < 3; i++)
            sb_mp_put_nil(out);
        return;
    }
    sb_mp_put_str(out, family->help);
    sb_mp_put_str(out, sb_semantic_text(family->semantic));
    sb_mp_put_array(out, 0);
}

static void put_series(struct sb_buf *out, const struct agent_series *series)
{
    sb_mp_put_array(out, 3);
    sb_mp_put_uint(out, series->first);
    sb_mp_put_uint(out, series->family);
    sb_labelset_pack(series->labels, out);
}

static void put_contribution(struct sb_buf *out, uint32_t id, const struct agent_contribution *contribution)
{
    sb_mp_put_array(out, 5);
    sb_mp_put_uint(out, id);
    sb_mp_put_uint(out, contribution->epoch);
    sb_mp_put_str(out, contribution->is_front_end ? "front-end" : "engine");
    sb_labelset_pack(contribution->source, out);
    sb_labelset_pack(contribution->identity, out);
}

enum part { FAMILIES, SERIES, CONTRIBUTIONS, PARTS };

/* Puts undefined things of one part into the body until the piece is long enough; returns how many. */
static uint32_t fill_families(struct agent_uplink *self)
{
    const uint32_t first = self->n_families;
    for (; self->n_families < agent_ledger_n_families(self->cfg.ledger) && self->body.len < AGENT_DEFINE_PIECE;
         self->n_families++)
        put_family(&self->body, self->n_families, agent_ledger_family_at(self->cfg.ledger, self->n_families));
    return self->n_families - first;
}

static uint32_t fill_series(struct agent_uplink *self)
{
    const uint32_t first = self->n_series;
    for (; self->n_series < agent_ledger_n_series(self->cfg.ledger) && self->body.len < AGENT_DEFINE_PIECE;
         self->n_series++)
        put_series(&self->body, agent_ledger_series_at(self->cfg.ledger, self->n_series));
    return self->n_series - first;
}

/* Gives the contribution a new id, under which nothing has been sent. */
static void reset_row(struct agent_uplink *self, struct agent_uplink_row *row, uint64_t epoch)
{
    *row = (struct agent_uplink_row){.epoch = epoch, .id = self->next_id++, .sent = row->sent, .cap = row->cap};
}

static uint32_t fill_contributions(struct agent_uplink *self)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < self->n_rows && self->body.len < AGENT_DEFINE_PIECE; i++) {
        const struct agent_contribution *contribution = agent_ledger_contribution_at(self->cfg.ledger, i);
        if (!contribution || self->rows[i].epoch == contribution->epoch)
            continue;
        reset_row(self, &self->rows[i], contribution->epoch);
        put_contribution(&self->body, self->rows[i].id, contribution);
        n++;
    }
    return n;
}

static bool grow_rows(struct agent_uplink *self)
{
    const uint32_t n = agent_ledger_n_contributions(self->cfg.ledger);
    if (!sb_grow(&self->rows, &self->cap_rows, n, sizeof *self->rows))
        return false;
    if (n > self->n_rows)
        self->n_rows = n;
    return true;
}

bool agent_uplink_render_define(struct agent_uplink *self, bool *has_piece)
{
    static uint32_t (*const fill[PARTS])(struct agent_uplink *) = {
        [FAMILIES] = fill_families, [SERIES] = fill_series, [CONTRIBUTIONS] = fill_contributions};
    *has_piece = false;
    if (!grow_rows(self))
        return false;
    sb_buf_clear(&self->body);
    for (int part = 0; part < PARTS; part++) {
        const uint32_t n = fill[part](self);
        if (n == 0)
            continue;
        start(self, 4, "DEFINE");
        for (int i = 0; i < PARTS; i++) {
            sb_mp_put_array(&self->out, i == part ? n : 0);
            if (i == part)
                sb_buf_put(&self->out, self->body.data, self->body.len);
        }
        *has_piece = true;
        return !self->out.is_overflow && !self->body.is_overflow;
    }
    return true;
}

/* Frames */

static bool grow_cells(struct agent_uplink *self, struct agent_uplink_row *row, uint32_t n)
{
    uint32_t cap = self->cap_cells;
    return sb_grow(&row->sent, &row->cap, n, sizeof *row->sent) &&
           sb_grow(&self->cell_ids, &cap, n, sizeof *self->cell_ids) &&
           sb_grow(&self->cell_values, &self->cap_cells, n, sizeof *self->cell_values);
}

/* The staged cells that differ from what was sent, and all of new series: zero is a value. */
static bool collect_cells(struct agent_uplink *self, struct agent_uplink_row *row,
                          struct agent_contribution *contribution)
{
    if (!grow_cells(self, row, contribution->n_cells))
        return false;
    for (uint32_t i = 0; i < contribution->n_staged_series; i++) {
        const struct agent_own_series *own = &contribution->series[i];
        const struct agent_series *series = agent_ledger_series_at(self->cfg.ledger, own->index);
        if (agent_ledger_family_at(self->cfg.ledger, series->family)->type == SB_GAUGE)
            continue;
        const bool is_new = i >= row->n_series;
        for (uint32_t k = 0; k < series->n; k++) {
            const uint32_t place = own->place + k;
            const double value = contribution->staged[place];
            if (!is_new && value == row->sent[place])
                continue;
            row->sent[place] = value;
            contribution->told[place] = value;
            self->cell_ids[self->n_cells] = series->first + k;
            self->cell_values[self->n_cells++] = value;
        }
    }
    row->n_series = contribution->n_staged_series;
    return true;
}

static bool are_gauges_due(const struct agent_uplink_row *row, const struct agent_contribution *contribution)
{
    return !row->is_sent || row->shown_version != contribution->shown_version || row->is_live != contribution->is_live;
}

/* nil: only what exists from the start, and events. Any snapshot of the same source is younger than that. */
static void put_age(struct sb_buf *out, int64_t shown_ms, int64_t now_ms)
{
    if (shown_ms < 0)
        sb_mp_put_nil(out);
    else
        sb_mp_put_uint(out, now_ms > shown_ms ? (uint64_t) (now_ms - shown_ms) : 0);
}

bool agent_uplink_render_frame(struct agent_uplink *self, struct agent_uplink_row *row,
                               struct agent_contribution *contribution, const struct agent_uplink_release *release,
                               int64_t now_ms, bool *is_needed)
{
    self->n_cells = 0;
    *is_needed = are_gauges_due(row, contribution);
    if (release->is_released && row->generation != release->generation) {
        if (!collect_cells(self, row, contribution))
            return false;
        row->generation = release->generation;
        *is_needed = *is_needed || self->n_cells > 0;
    }
    if (!*is_needed)
        return true;
    const uint32_t n_shown = contribution->is_live ? contribution->n_shown : 0;
    start(self, 10, "FRAME");
    sb_mp_put_uint(&self->out, self->number + 1);
    sb_mp_put_uint(&self->out, release->generation);
    sb_mp_put_uint(&self->out, row->id);
    put_age(&self->out, contribution->shown_ms, now_ms);
    sb_mp_put_bool(&self->out, contribution->is_live);
    sb_mp_put_bin(&self->out, contribution->shown_cells, n_shown * sizeof(uint32_t));
    sb_mp_put_bin(&self->out, contribution->shown_values, n_shown * sizeof(double));
    sb_mp_put_bin(&self->out, self->cell_ids, self->n_cells * sizeof(uint32_t));
    sb_mp_put_bin(&self->out, self->cell_values, self->n_cells * sizeof(double));
    row->shown_version = contribution->shown_version;
    row->is_live = contribution->is_live;
    row->is_sent = true;
    return !self->out.is_overflow;
}

bool agent_uplink_render_ids(struct agent_uplink *self, const char *type, const uint32_t *ids, uint32_t n)
{
    start(self, 2, type);
    sb_mp_put_array(&self->out, n);
    for (uint32_t i = 0; i < n; i++)
        sb_mp_put_uint(&self->out, ids[i]);
    return !self->out.is_overflow;
}
