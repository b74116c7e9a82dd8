#include "hub/computed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/computing.h"
#include "hub/rates.h"
#include "hub/workers.h"

enum { SOURCES_A_SLICE = 512 }; /* sampled in one go: a fraction of a millisecond */

/* Cells of counters, or ids of gauges' families. */
struct hub_computed_places {
    uint32_t n;
    uint32_t cap;
    uint32_t *at;
};

typedef bool (*compute_fn)(const struct hub_computing *at, double *out);

/* --- the types --- */

bool rate_of_counters(const struct hub_computing *at, double *out)
{
    return at->member->is_live && at->member->rates &&
           hub_rates_read(at->member->rates, at->store->computed.rate_of[at->number], out);
}

bool sum_of_gauges(const struct hub_computing *at, double *out)
{
    const struct hub_computed_places *families = &at->store->computed.places[at->number];
    if (at->member->source->shown != at->member)
        return false;
    bool is_any = false;
    *out = 0;
    for (uint32_t i = 0; i < families->n; i++) {
        uint32_t n;
        const struct hub_gauge *gauges = hub_values_gauges(&at->member->values, families->at[i], &n);
        is_any = is_any || n > 0;
        for (uint32_t g = 0; g < n; g++)
            *out += gauges[g].value;
    }
    return is_any;
}

static bool is_role(const char *role, const char *wanted)
{
    return strcmp(role ? role : "", wanted) == 0;
}

static const char *role_of(const struct sb_labelset *role)
{
    return role->n > 0 ? role->labels[0].value : NULL;
}

/* How many there should be; false: nobody said. What is said of the service goes before what is said of all. */
static bool expected_of(const struct hub_computing *at, const char *role, uint32_t *out)
{
    const struct hub_expectations *expected = &at->store->computed.expected;
    const char *service = sb_labelset_value(at->group->labels, "service_name");
    bool is_any = false;
    for (uint32_t i = 0; i < expected->n; i++) {
        const struct hub_expectation *each = &expected->at[i];
        const bool is_of_service = strcmp(each->service, service ? service : "") == 0 && each->service[0] != '\0';
        if (strcmp(each->role, role) != 0 || (!is_of_service && (is_any || each->service[0] != '\0')))
            continue;
        *out = each->n;
        is_any = true;
        if (is_of_service)
            return true;
    }
    return is_any;
}

/* Workers of one role in one state. */
static uint32_t workers_of_role(const struct hub_computing *at, const char *role, enum hub_worker_state state)
{
    uint32_t n;
    const struct hub_worker_count *counts = hub_workers_of(at->store, at->group, &n);
    uint32_t n_active = 0;
    uint32_t n_expected = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (is_role(role_of(counts[i].role), role)) {
            n_active += counts[i].n_active;
            n_expected += counts[i].n_known;
        }
    }
    (void) expected_of(at, role, &n_expected);
    if (state == HUB_WORKERS_ACTIVE)
        return n_active;
    return n_expected > n_active ? n_expected - n_active : 0;
}

static bool is_wanted(const struct hub_computing *at, const char *role)
{
    return hub_query_wants(at->query, HUB_NARROW_role, role[0] != '\0' ? role : NULL);
}

bool count_workers(const struct hub_computing *at, double *out)
{
    uint32_t n;
    bool is_any = false;
    *out = 0;
    for (size_t i = 0; i < at->spec->roles.n; i++) {
        const char *role = at->spec->roles.at[i];
        if (!is_wanted(at, role))
            continue;
        is_any = true;
        *out += workers_of_role(at, role, at->spec->state);
    }
    if (at->spec->roles.n > 0)
        return is_any;
    const struct hub_worker_count *counts = hub_workers_of(at->store, at->group, &n); /* of all roles there are */
    for (uint32_t i = 0; i < n; i++) {
        const char *role = role_of(counts[i].role) ? role_of(counts[i].role) : "";
        if (!is_wanted(at, role))
            continue;
        is_any = true;
        *out += workers_of_role(at, role, at->spec->state);
    }
    return is_any;
}

bool ratio_of_workers(const struct hub_computing *at, double *out)
{
    const char *const *roles = at->spec->roles.at;
    if (!is_wanted(at, roles[0]) || !is_wanted(at, roles[1]))
        return false;
    const uint32_t by = workers_of_role(at, roles[1], HUB_WORKERS_ACTIVE);
    if (by == 0)
        return false;
    *out = (double) workers_of_role(at, roles[0], HUB_WORKERS_ACTIVE) / by;
    return true;
}

static const compute_fn functions[HUB_COMPUTES] = {
#define COMPUTE(name, of, phase, sources, roles_min, roles_max, function) [HUB_COMPUTE_##name] = function,
#include "hub/computed_types.def"
#undef COMPUTE
};

/* --- asking them --- */

static const struct hub_compute_type *type_of(const struct hub_computed *self, uint32_t number)
{
    return &hub_compute_types[self->specs->at[number].type];
}

bool hub_computing_has_role(const struct hub_computed_spec *spec, const struct hub_contribution *member)
{
    for (size_t i = 0; i < spec->roles.n; i++) {
        if (is_role(role_of(member->role), spec->roles.at[i]))
            return true;
    }
    return spec->roles.n == 0;
}

/* The rows of a view are whole services when it leaves nothing out and groups by nothing else. */
bool hub_computed_is_in(const struct hub_computed *self, uint32_t number, const struct hub_view_spec *view)
{
    return type_of(self, number)->phase == HUB_PHASE_BEFORE || (view->by.n == 0 && view->n_where == 0);
}

bool hub_computed_is_added_up(const struct hub_computed *self, uint32_t number)
{
    return type_of(self, number)->of == HUB_OF_MEMBER;
}

bool hub_computed_of_member(const struct hub_store *store, uint32_t number, const struct hub_contribution *member,
                            double *out)
{
    const struct hub_computed_spec *spec = &store->computed.specs->at[number];
    const struct hub_computing at = {.store = store, .spec = spec, .number = number, .member = member};
    return hub_computing_has_role(spec, member) && functions[spec->type](&at, out);
}

void hub_computed_add(const struct hub_store *store, const struct hub_view_spec *view,
                      const struct hub_contribution *member, double *totals)
{
    const struct hub_computed *self = &store->computed;
    for (uint32_t i = 0; member->is_live && i < self->specs->n; i++) {
        double value;
        if (hub_computed_is_added_up(self, i) && hub_computed_is_in(self, i, view) &&
            hub_computed_of_member(store, i, member, &value))
            totals[i] = isnan(totals[i]) ? value : totals[i] + value;
    }
}

bool hub_computed_of_row(const struct hub_store *store, uint32_t number, struct hub_group *group,
                         const struct hub_query *query, double *out)
{
    const struct hub_computed_spec *spec = &store->computed.specs->at[number];
    const struct hub_computing at = {.store = store, .spec = spec, .number = number, .group = group, .query = query};
    return functions[spec->type](&at, out);
}

/* --- where sources are --- */

static bool add_place(struct hub_computed_places *self, uint32_t place)
{
    if (self->n == self->cap) {
        uint32_t cap = self->cap ? self->cap * 2 : 8;
        uint32_t *at = realloc(self->at, cap * sizeof at[0]);
        if (!at)
            return false;
        self->at = at;
        self->cap = cap;
    }
    self->at[self->n++] = place;
    return true;
}

static bool add_family(struct hub_computed_places *self, const struct hub_family *family)
{
    if (family->type == SB_GAUGE)
        return add_place(self, family->id);
    bool is_ok = true;
    for (uint32_t v = 0; v < family->n_variants; v++) {
        for (uint32_t s = 0; is_ok && s < family->variants[v]->n_series; s++)
            is_ok = add_place(self, family->variants[v]->series[s]->first);
    }
    return is_ok;
}

/* The family of this name, with or without _total, if it is of the type. */
static const struct hub_family *find_family(const struct hub_index *index, const char *name, enum sb_type type)
{
    char total[SB_EXPO_NAME_MAX];
    const struct hub_family *family = hub_index_find(index, name);
    if (!family) {
        snprintf(total, sizeof total, "%s_total", name);
        family = hub_index_find(index, total);
    }
    return family && family->type == type ? family : NULL;
}

static bool find_places(struct hub_computed *self, const struct hub_index *index)
{
    for (uint32_t i = 0; i < self->specs->n; i++) {
        const struct hub_texts *sources = &self->specs->at[i].sources;
        const enum sb_type type = type_of(self, i)->sources == HUB_SOURCE_GAUGE ? SB_GAUGE : SB_COUNTER;
        self->places[i].n = 0;
        for (size_t s = 0; s < sources->n; s++) {
            const struct hub_family *family = find_family(index, sources->at[s], type);
            if (family && !add_family(&self->places[i], family))
                return false;
        }
    }
    return true;
}

void hub_computed_look_up(struct hub_store *store)
{
    struct hub_computed *self = &store->computed;
    if (self->specs && self->n_series != store->index.n_series && find_places(self, &store->index))
        self->n_series = store->index.n_series; /* out of memory: some are missing until the next time */
}

bool hub_computing_gauge(const struct hub_store *store, const struct hub_contribution *member, const char *family,
                         double *out)
{
    const struct hub_family *found = find_family(&store->index, family, SB_GAUGE);
    uint32_t n = 0;
    const struct hub_gauge *gauges = NULL;
    if (found && member->source->shown == member)
        gauges = hub_values_gauges(&member->values, found->id, &n);
    *out = 0;
    for (uint32_t i = 0; i < n; i++)
        *out += gauges[i].value;
    return n > 0;
}

/* --- sampling --- */

static bool read_counters(const struct hub_computed_places *places, const struct hub_values *values, double *out)
{
    bool is_any = false;
    *out = 0;
    for (uint32_t i = 0; i < places->n; i++) {
        double value;
        if (!hub_values_read(values, places->at[i], 1, &value))
            continue;
        is_any = true;
        *out += value;
    }
    return is_any;
}

static bool has_rate(const struct hub_computed_spec *spec)
{
    return hub_compute_types[spec->type].sources == HUB_SOURCE_COUNTER;
}

static void sample(const struct hub_computed *self, struct hub_contribution *contribution)
{
    double values[HUB_COMPUTED_MAX];
    if (!contribution->is_live || !contribution->is_watched)
        return;
    if (!contribution->rates)
        contribution->rates = hub_rates_new(self->n_rates, self->rate_window_ms, contribution->is_from_zero);
    if (!contribution->rates ||
        !hub_rates_is_due(contribution->rates, self->sampling_ms, contribution->lineage->heard_ms))
        return; /* out of memory: the next round tries again */
    for (uint32_t i = 0; i < self->specs->n; i++) {
        double value;
        if (has_rate(&self->specs->at[i]))
            values[self->rate_of[i]] = read_counters(&self->places[i], &contribution->values, &value) ? value : NAN;
    }
    hub_rates_sample(contribution->rates, self->sampling_ms, values);
}

void hub_computed_begin_round(struct hub_store *store, int64_t now_ms)
{
    struct hub_computed *self = &store->computed;
    if (self->n_rates == 0 || self->sampling_ms != 0)
        return;
    hub_computed_look_up(store);
    self->sampling_ms = now_ms;
    self->sampled_source = 0;
}

bool hub_computed_go_on(struct hub_store *store)
{
    struct hub_computed *self = &store->computed;
    if (self->sampling_ms == 0)
        return false;
    size_t at = hub_store_source_after(store, self->sampled_source);
    for (size_t n = 0; at < store->n_sources; at++, n++) {
        if (n == SOURCES_A_SLICE)
            return true;
        const struct hub_source *source = store->source_list[at];
        for (uint32_t i = 0; i < source->n_contributions; i++)
            sample(self, source->contributions[i]);
        self->sampled_source = source->id;
    }
    self->sampling_ms = 0;
    return false;
}

/* --- its own life --- */

static bool are_same(const struct hub_texts *a, const struct hub_texts *b)
{
    bool is_same = a->n == b->n;
    for (size_t i = 0; is_same && i < a->n; i++)
        is_same = strcmp(a->at[i], b->at[i]) == 0;
    return is_same;
}

/* Metrics of the same counters share a rate. */
static void number_rate(struct hub_computed *self, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++) {
        if (has_rate(&self->specs->at[i]) && are_same(&self->specs->at[i].sources, &self->specs->at[number].sources)) {
            self->rate_of[number] = self->rate_of[i];
            return;
        }
    }
    self->rate_of[number] = (uint8_t) self->n_rates++;
}

enum sb_rc hub_computed_init(struct hub_computed *self, const struct hub_computed_specs *specs,
                             const struct hub_expectations *expected, int64_t rate_window_ms, struct hub_index *index,
                             struct sb_err *err)
{
    *self = (struct hub_computed){.specs = specs, .expected = *expected, .rate_window_ms = rate_window_ms};
    self->places = calloc(HUB_COMPUTED_MAX, sizeof self->places[0]);
    if (!self->places)
        return sb_fail(err, SB_NOMEM, "no memory for computed metrics");
    for (uint32_t i = 0; i < specs->n; i++) {
        if (has_rate(&specs->at[i]))
            number_rate(self, i);
        enum sb_rc rc = hub_entries_add_computed(index, specs->at[i].name, specs->at[i].help, i, err);
        if (rc == SB_INVAL)
            return sb_fail(err, rc, "%s:%zu: '%s' is the name of a family, or derived from one", specs->at[i].file,
                           specs->at[i].line, specs->at[i].name);
        if (rc != SB_OK)
            return rc;
    }
    return SB_OK;
}

void hub_computed_release(struct hub_computed *self)
{
    for (uint32_t i = 0; self->places && i < HUB_COMPUTED_MAX; i++)
        free(self->places[i].at);
    free(self->places);
    *self = (struct hub_computed){0};
}

/* One item: "[service/]role=number". */
static bool parse_expectation(char *text, struct hub_expectation *out)
{
    *out = (struct hub_expectation){.n = 0};
    char *number = strrchr(text, '=');
    if (!number)
        return false;
    *number++ = '\0';
    char *role = strrchr(text, '/');
    const char *service = role ? text : "";
    if (role)
        *role++ = '\0';
    role = role ? role : text;
    char *end;
    const unsigned long n = strtoul(number, &end, 10);
    if (number[0] < '0' || number[0] > '9' || *end != '\0' || role[0] == '\0' || strlen(role) > SB_LABEL_VALUE_MAX ||
        strlen(service) > SB_LABEL_VALUE_MAX || n > UINT16_MAX)
        return false;
    snprintf(out->service, sizeof out->service, "%s", service);
    snprintf(out->role, sizeof out->role, "%s", role);
    out->n = (uint32_t) n;
    return true;
}

static bool is_said_before(const struct hub_expectations *self, const struct hub_expectation *item)
{
    for (uint32_t i = 0; &self->at[i] < item; i++) {
        if (strcmp(self->at[i].role, item->role) == 0 && strcmp(self->at[i].service, item->service) == 0)
            return true;
    }
    return false;
}

enum sb_rc hub_expectations_parse(struct hub_expectations *self, const char *text, struct sb_err *err)
{
    *self = (struct hub_expectations){.n = 0};
    char *copy = strdup(text);
    if (!copy)
        return sb_fail(err, SB_NOMEM, "expected workers");
    enum sb_rc rc = SB_OK;
    char *rest = copy;
    for (char *item; rc == SB_OK && rest && *rest && (item = strsep(&rest, ",")) != NULL;) {
        if (self->n == HUB_EXPECTATIONS_MAX)
            rc = sb_fail(err, SB_INVAL, "over %d numbers of workers", HUB_EXPECTATIONS_MAX);
        else if (!parse_expectation(item, &self->at[self->n++]))
            rc = sb_fail(err, SB_INVAL, "'%s' is not like prefill=2,chat/decode=8", text);
        else if (is_said_before(self, &self->at[self->n - 1]))
            rc = sb_fail(err, SB_INVAL, "'%s' says the number of one role twice", text);
    }
    free(copy);
    return rc;
}
