/* The ledger as one msgpack value, for the state file: [version, next epoch, families, series, contributions]. */
#include <string.h>

#include "agent/ledger_private.h"
#include "common/mp.h"

enum { VERSION = 2 };

static void save_family(const struct agent_family *family, struct sb_buf *out)
{
    uint32_t n = family->bounds ? family->bounds->n : 0;
    sb_mp_put_array(out, 8);
    sb_mp_put_str(out, family->name);
    sb_mp_put_str(out, family->help);
    sb_mp_put_str_or_nil(out, family->unit);
    sb_mp_put_uint(out, family->type);
    sb_mp_put_str(out, sb_semantic_text(family->semantic));
    sb_mp_put_bool(out, family->is_in_catalog);
    sb_mp_put_uint(out, family->refused);
    sb_mp_put_bin(out, n ? family->bounds->upper : NULL, n * sizeof(double));
}

/*
 * Which families and series a save has, and their numbers in it: those that nobody has or holds stay out, or label sets
 * of sources that are long forgotten would fill the limits one day. False: out of memory.
 */
static bool number_used(struct agent_ledger *self, uint32_t *n_families, uint32_t *n_series)
{
    if (!sb_grow(&self->saved_as, &self->cap_saved_as, self->n_series, sizeof *self->saved_as) ||
        !sb_grow(&self->saved_families, &self->cap_saved_families, self->n_families, sizeof *self->saved_families))
        return false;
    for (uint32_t i = 0; i < self->n_series; i++)
        self->saved_as[i] = self->series[i].n_holders ? 0 : AGENT_NONE;
    for (uint32_t i = 0; i < self->n_families; i++)
        self->saved_families[i] = self->families[i].refused ? 0 : AGENT_NONE;
    for (uint32_t i = 0; i < self->n_contributions; i++) {
        const struct agent_contribution *at = self->contributions[i];
        for (uint32_t k = 0; at && k < at->n_staged_series; k++)
            self->saved_as[at->series[k].index] = 0;
    }
    *n_families = *n_series = 0;
    for (uint32_t i = 0; i < self->n_series; i++) {
        if (self->saved_as[i] == AGENT_NONE)
            continue;
        self->saved_as[i] = (*n_series)++;
        self->saved_families[self->series[i].family] = 0;
    }
    for (uint32_t i = 0; i < self->n_families; i++)
        if (self->saved_families[i] != AGENT_NONE)
            self->saved_families[i] = (*n_families)++;
    return true;
}

uint32_t agent_ledger_saved_series(const struct agent_ledger *self, uint32_t index)
{
    return index < self->cap_saved_as ? self->saved_as[index] : AGENT_NONE;
}

uint32_t agent_ledger_saved_family(const struct agent_ledger *self, uint32_t index)
{
    return index < self->cap_saved_families ? self->saved_families[index] : AGENT_NONE;
}

static void save_contribution(const struct agent_ledger *self, const struct agent_contribution *contribution,
                              struct sb_buf *out)
{
    sb_mp_put_array(out, 8);
    sb_mp_put_uint(out, contribution->epoch);
    sb_mp_put_bool(out, contribution->is_front_end);
    sb_labelset_pack(contribution->source, out);
    sb_labelset_pack(contribution->identity, out);
    sb_mp_put_uint(out, contribution->shape);
    sb_mp_put_bool(out, contribution->is_ended);
    sb_mp_put_bin_head(out, contribution->n_staged_series * sizeof(uint32_t));
    for (uint32_t i = 0; i < contribution->n_staged_series; i++)
        sb_buf_put(out, &self->saved_as[contribution->series[i].index], sizeof(uint32_t));
    sb_mp_put_array(out, contribution->n_staged_series);
    for (uint32_t i = 0; i < contribution->n_staged_series; i++) {
        const struct agent_own_series *own = &contribution->series[i];
        sb_mp_put_bin(out, contribution->staged + own->place, self->series[own->index].n * sizeof(double));
    }
}

void agent_ledger_save(struct agent_ledger *self, struct sb_buf *out)
{
    uint32_t n = 0, n_families, n_series;
    for (uint32_t i = 0; i < self->n_contributions; i++)
        n += self->contributions[i] != NULL;
    if (!number_used(self, &n_families, &n_series)) {
        out->is_overflow = true;
        return;
    }
    sb_mp_put_array(out, 5);
    sb_mp_put_uint(out, VERSION);
    sb_mp_put_uint(out, self->next_epoch);
    sb_mp_put_array(out, n_families);
    for (uint32_t i = 0; i < self->n_families; i++)
        if (self->saved_families[i] != AGENT_NONE)
            save_family(&self->families[i], out);
    sb_mp_put_array(out, n_series);
    for (uint32_t i = 0; i < self->n_series; i++) {
        if (self->saved_as[i] == AGENT_NONE)
            continue;
        sb_mp_put_array(out, 2);
        sb_mp_put_uint(out, self->saved_families[self->series[i].family]);
        sb_labelset_pack(self->series[i].labels, out);
    }
    sb_mp_put_array(out, n);
    for (uint32_t i = 0; i < self->n_contributions; i++)
        if (self->contributions[i])
            save_contribution(self, self->contributions[i], out);
}

static bool read_text(struct sb_mp *from, char *out, size_t cap)
{
    struct sb_slice slice;
    if (!sb_mp_str(from, &slice) || slice.len >= cap)
        return false;
    memcpy(out, slice.at, slice.len);
    out[slice.len] = '\0';
    return true;
}

static bool read_bounds(struct sb_mp *from, struct sb_bounds **out)
{
    struct sb_slice bin;
    double upper[SB_BOUNDS_MAX];
    if (!sb_mp_bin(from, &bin) || bin.len > sizeof upper || bin.len % sizeof(double))
        return false;
    *out = NULL;
    if (bin.len == 0)
        return true;
    memcpy(upper, bin.at, bin.len);
    *out = sb_bounds_new(upper, bin.len / sizeof(double), NULL);
    return *out != NULL;
}

static bool load_family(struct agent_ledger *self, struct sb_mp *from)
{
    char name[SB_EXPO_NAME_MAX], help[1024], unit[64] = "", semantic[64];
    uint32_t n;
    uint64_t type, refused;
    bool is_in_catalog;
    struct agent_family_spec spec = {.name = name, .help = help};
    struct sb_bounds *bounds;

    if (!sb_mp_array(from, &n) || n != 8 || !read_text(from, name, sizeof name) || !read_text(from, help, sizeof help))
        return false;
    if (!sb_mp_nil(from)) {
        if (!read_text(from, unit, sizeof unit))
            return false;
        spec.unit = unit;
    }
    if (!sb_mp_uint(from, &type) || type >= SB_TYPE_COUNT || !read_text(from, semantic, sizeof semantic) ||
        !sb_semantic_parse(semantic, strlen(semantic), &spec.semantic) || !sb_mp_bool(from, &is_in_catalog) ||
        !sb_mp_uint(from, &refused) || !read_bounds(from, &bounds))
        return false;
    spec.type = (enum sb_type) type;
    spec.is_in_catalog = is_in_catalog;
    if ((spec.type == SB_HISTOGRAM) != (bounds != NULL)) {
        sb_bounds_destroy(&bounds);
        return false;
    }
    uint32_t index = agent_ledger_add_family(self, &spec, &bounds);
    if (index == AGENT_NONE)
        return false;
    self->families[index].refused = refused;
    return true;
}

static struct sb_labelset *read_labels(struct agent_ledger *self, struct sb_mp *from)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    if (sb_label_draft_read(&draft, from, &self->text_faults, NULL) != SB_OK)
        return NULL;
    return sb_labelsets_get(self->labelsets, &draft);
}

static bool load_series(struct agent_ledger *self, struct sb_mp *from)
{
    uint32_t n, expected = self->n_series;
    uint64_t family;
    if (!sb_mp_array(from, &n) || n != 2 || !sb_mp_uint(from, &family) || family >= self->n_families)
        return false;
    struct sb_labelset *labels = read_labels(self, from);
    return labels && agent_ledger_intern_series(self, (uint32_t) family, &labels, true) == expected;
}

/* The series of a contribution and the cells of each. */
static bool load_row(struct agent_ledger *self, struct agent_contribution *to, struct sb_mp *from)
{
    struct sb_slice series, cells;
    uint32_t n;
    if (!sb_mp_bin(from, &series) || !sb_mp_array(from, &n) || series.len != n * sizeof(uint32_t))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index;
        memcpy(&index, series.at + i * sizeof index, sizeof index);
        if (index >= self->n_series || !sb_mp_bin(from, &cells) ||
            cells.len != self->series[index].n * sizeof(double) || agent_contribution_place(to, index) != AGENT_NONE ||
            !agent_ledger_give_series(self, to, index))
            return false;
        const uint32_t place = to->series[i].place;
        memcpy(to->live + place, cells.at, cells.len);
        memcpy(to->told + place, cells.at, cells.len);
    }
    return true;
}

static bool load_contribution(struct agent_ledger *self, struct sb_mp *from)
{
    uint32_t n;
    uint64_t epoch, shape;
    bool is_front_end, is_ended;
    if (!sb_mp_array(from, &n) || n != 8 || !sb_mp_uint(from, &epoch) || epoch >= self->next_epoch ||
        !sb_mp_bool(from, &is_front_end))
        return false;
    struct sb_labelset *source = read_labels(self, from);
    struct sb_labelset *identity = source ? read_labels(self, from) : NULL;
    struct agent_contribution *to = NULL;
    if (identity && sb_mp_uint(from, &shape) && sb_mp_bool(from, &is_ended))
        to = agent_ledger_add_contribution(self, is_front_end, source, identity, shape, epoch);
    sb_labelsets_drop(self->labelsets, &source);
    sb_labelsets_drop(self->labelsets, &identity);
    if (!to)
        return false;
    to->is_ended = is_ended;
    return load_row(self, to, from);
}

enum sb_rc agent_ledger_load(struct agent_ledger *self, struct sb_mp *from, struct sb_err *err)
{
    static const struct {
        const char *what;
        bool (*load)(struct agent_ledger *, struct sb_mp *);
    } parts[] = {{"family", load_family}, {"series", load_series}, {"contribution", load_contribution}};

    uint32_t n;
    uint64_t version;
    if (!sb_mp_array(from, &n) || n != 5 || !sb_mp_uint(from, &version) || version != VERSION)
        return sb_fail(err, SB_FORMAT, "the ledger is of another version than %d", VERSION);
    if (!sb_mp_uint(from, &self->next_epoch))
        return sb_fail(err, SB_FORMAT, "the ledger has no epoch");
    for (size_t part = 0; part < SB_COUNT(parts); part++) {
        if (!sb_mp_array(from, &n))
            return sb_fail(err, SB_FORMAT, "the ledger has no list of %s entries", parts[part].what);
        for (uint32_t i = 0; i < n; i++)
            if (!parts[part].load(self, from))
                return sb_fail(err, SB_FORMAT, "%s %u of the ledger is damaged", parts[part].what, i);
    }
    agent_ledger_stage(self);
    return SB_OK;
}
