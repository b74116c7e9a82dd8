/* What a scrape prints, by name: families, and what is derived from them (index.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/index.h"

enum { QUANTILE_MAX = 16 }; /* bytes that a quantile adds to a name */

/* Is the entry above this name and window? */
static bool is_after(const struct hub_entry *entry, const char *name, uint32_t window)
{
    const int order = strcmp(entry->name, name);
    return order > 0 || (order == 0 && entry->window > window);
}

uint32_t hub_index_place_after(const struct hub_index *self, const char *name, uint32_t window)
{
    uint32_t low = 0;
    uint32_t high = self->n_entries;
    while (name && low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (!is_after(self->entries[middle], name, window))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reserve(struct hub_index *self)
{
    if (self->n_entries < self->cap_entries)
        return true;
    uint32_t cap = self->cap_entries ? self->cap_entries * 2 : 64;
    struct hub_entry **entries = realloc(self->entries, cap * sizeof entries[0]);
    if (!entries)
        return false;
    self->entries = entries;
    self->cap_entries = cap;
    return true;
}

static void destroy(struct hub_entry *entry)
{
    free(entry->name);
    free(entry->help);
    free(entry);
}

/* Takes over what the draft says; name and help are copied. */
static bool add(struct hub_index *self, struct hub_entry draft, const char *name, const char *help)
{
    struct hub_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return false;
    *entry = draft;
    entry->name = strdup(name);
    entry->help = strdup(help);
    if (!entry->name || !entry->help || !reserve(self)) {
        destroy(entry);
        return false;
    }
    uint32_t place = hub_index_place_after(self, name, draft.window);
    memmove(&self->entries[place + 1], &self->entries[place], (self->n_entries - place) * sizeof self->entries[0]);
    self->entries[place] = entry;
    self->n_entries++;
    return true;
}

/* Of a family that an agent described, a derived name may clash with another's: then that one is left out. */
static bool may_have(struct hub_index *self, const struct hub_family *family, const char *name)
{
    if (family->catalog)
        return true;
    if (!sb_metric_name_is_valid(name, strlen(name)))
        return false;
    char owner[SB_EXPO_NAME_MAX];
    snprintf(owner, sizeof owner, "/%s", family->name);
    if (!hub_index_is_clash(self, name, SB_GAUGE, owner))
        return hub_index_claim(self, name, SB_GAUGE, owner);
    hub_index_count_clash(self, name, NULL);
    return false;
}

/* Where windows are: the part of a name, and of a text. */
static const char *infix(uint32_t window)
{
    return window > 0 ? "_window" : "";
}

static void set_label(const struct hub_index *self, struct hub_entry *entry, const char *quantile)
{
    char of_window[sizeof entry->label / 2] = "";
    if (entry->window > 0)
        snprintf(of_window, sizeof of_window, "window=\"%s\"", self->windows->at[entry->window - 1].text);
    if (quantile)
        snprintf(entry->label, sizeof entry->label, "quantile=\"%s\"%s%s", quantile, of_window[0] ? "," : "",
                 of_window);
    else
        snprintf(entry->label, sizeof entry->label, "%s", of_window);
}

/* The name with the windows' part behind it. False: that is too long for a name. */
static bool window_name(char *out, const char *name, uint32_t window)
{
    return snprintf(out, SB_EXPO_NAME_MAX, "%s%s", name, infix(window)) < SB_EXPO_NAME_MAX - QUANTILE_MAX;
}

static bool add_quantile(struct hub_index *self, const struct hub_family *family, const char *base, double quantile,
                         uint32_t window)
{
    char name[SB_EXPO_NAME_MAX];
    char help[HUB_HELP_MAX + 64];
    char number[SB_NUM_MAX];
    struct hub_entry entry = {
        .how = HUB_QUANTILE, .type = SB_GAUGE, .of = family, .quantile = quantile, .window = window};
    sb_num_value(number, quantile);
    set_label(self, &entry, number);
    sb_quantile_name(name, base, quantile);
    snprintf(help, sizeof help, "%s (quantile %s, from the buckets%s)", family->help, number,
             window ? ", over a sliding window" : "");
    return !may_have(self, family, name) || add(self, entry, name, help);
}

static bool add_mean(struct hub_index *self, const struct hub_family *family, const char *base, uint32_t window)
{
    char name[SB_EXPO_NAME_MAX];
    char help[HUB_HELP_MAX + 64];
    struct hub_entry mean = {.how = HUB_MEAN, .type = SB_GAUGE, .of = family, .window = window};
    set_label(self, &mean, NULL);
    sb_mean_name(name, base);
    snprintf(help, sizeof help, "%s (mean%s)", family->help, window ? ", over a sliding window" : "");
    return !may_have(self, family, name) || add(self, mean, name, help);
}

static uint32_t n_windows(const struct hub_index *self)
{
    return self->windows ? self->windows->n : 0;
}

static void add_quantiles(struct hub_index *self, const struct hub_family *family)
{
    char base[SB_EXPO_NAME_MAX];
    for (uint32_t window = 0; family->n_quantiles > 0 && window <= n_windows(self); window++) {
        if (!window_name(base, family->name, window) && window > 0)
            continue;
        for (size_t i = 0; i < family->n_quantiles; i++) {
            if (!add_quantile(self, family, base, family->quantiles[i], window))
                return;
        }
        if (!add_mean(self, family, base, window))
            return;
    }
}

static bool add_windows_of(struct hub_index *self, struct hub_entry entry, const struct sb_derived *derived)
{
    char name[SB_EXPO_NAME_MAX];
    char help[HUB_HELP_MAX + 64];
    for (uint32_t window = 1; entry.how != HUB_MAX && window <= n_windows(self); window++) {
        entry.window = window;
        set_label(self, &entry, NULL);
        snprintf(help, sizeof help, "%s (over a sliding window)", derived->help);
        if (window_name(name, derived->name, window) && !add(self, entry, name, help))
            return false;
    }
    return true;
}

/* A family by name: the new one, or one that is there already, or NULL. */
static const struct hub_family *family_of(const struct hub_index *self, const struct hub_family *family,
                                          const char *name)
{
    if (!name)
        return NULL;
    return strcmp(name, family->name) == 0 ? family : hub_index_find(self, name);
}

static bool is_in_total(const struct sb_total *total, const char *name)
{
    for (size_t i = 0; i < total->n; i++) {
        if (strcmp(total->names[i], name) == 0)
            return true;
    }
    return false;
}

static bool is_derived_from(const struct sb_derived *derived, const char *name)
{
    return (derived->of && strcmp(derived->of, name) == 0) || (derived->by && strcmp(derived->by, name) == 0) ||
           is_in_total(&derived->totals[SB_SHARE_OF], name) || is_in_total(&derived->totals[SB_SHARE_BY], name);
}

/* The families of its totals as far as they are known. True: any is that it is a share of. */
static bool look_up_totals(const struct hub_index *self, const struct hub_family *family,
                           const struct sb_derived *derived, struct hub_entry *entry)
{
    bool is_any = derived->totals[SB_SHARE_BY].n == 0;
    for (size_t side = 0; side < SB_COUNT(derived->totals); side++) {
        const struct sb_total *total = &derived->totals[side];
        for (size_t i = 0; i < total->n; i++) {
            entry->totals[side][i] = family_of(self, family, total->names[i]);
            is_any = is_any || (side == SB_SHARE_BY && entry->totals[side][i]);
        }
    }
    return is_any;
}

/* A share that is there gets one more family of its totals. False: it is not there. */
static bool complete(struct hub_index *self, const struct hub_family *family, const struct sb_derived *derived)
{
    bool is_there = false;
    for (uint32_t i = 0; i < self->n_entries; i++) {
        if (self->entries[i]->derived == derived) {
            (void) look_up_totals(self, family, derived, self->entries[i]);
            is_there = true;
        }
    }
    return is_there;
}

/* What the catalog derives from this family, and from others that are there already. */
static void add_derived(struct hub_index *self, const struct hub_family *family)
{
    static const enum hub_derivation hows[] = {[SB_DERIVED_MAX] = HUB_MAX,
                                               [SB_DERIVED_RATIO] = HUB_RATIO,
                                               [SB_DERIVED_SHARE] = HUB_SHARE,
                                               [SB_DERIVED_WITHIN] = HUB_WITHIN};
    for (size_t i = 0; family->catalog && i < self->catalog->n_derived; i++) {
        const struct sb_derived *derived = &self->catalog->derived[i];
        if (!is_derived_from(derived, family->name) || complete(self, family, derived))
            continue;
        struct hub_entry entry = {.how = hows[derived->kind],
                                  .type = SB_GAUGE,
                                  .of = family_of(self, family, derived->of),
                                  .by = family_of(self, family, derived->by),
                                  .derived = derived};
        const bool has_totals = look_up_totals(self, family, derived, &entry);
        const bool is_whole = !derived->of == !entry.of && !derived->by == !entry.by && has_totals;
        if (is_whole && (!add(self, entry, derived->name, derived->help) || !add_windows_of(self, entry, derived)))
            return;
    }
}

bool hub_entries_may_be_in_windows(const struct hub_index *self, const struct hub_family *family)
{
    bool is_any = family->n_quantiles > 0;
    for (size_t i = 0; family->catalog && !is_any && i < self->catalog->n_derived; i++) {
        const struct sb_derived *derived = &self->catalog->derived[i];
        is_any = derived->kind != SB_DERIVED_MAX && is_derived_from(derived, family->name);
    }
    return is_any;
}

bool hub_entries_add(struct hub_index *self, const struct hub_family *family)
{
    const struct hub_entry itself = {.how = HUB_FAMILY_ITSELF, .type = family->type, .of = family};
    if (!add(self, itself, family->name, family->help))
        return false;
    add_quantiles(self, family);
    add_derived(self, family);
    return true;
}

enum sb_rc hub_entries_add_computed(struct hub_index *self, const char *name, const char *help, uint32_t number,
                                    struct sb_err *err)
{
    static const char owner[] = "//"; /* nothing else is called so */
    if (hub_index_is_clash(self, name, SB_GAUGE, owner))
        return sb_fail(err, SB_INVAL, "'%s' is taken", name);
    const struct hub_entry entry = {.how = HUB_COMPUTED, .type = SB_GAUGE, .computed = number};
    if (!hub_index_claim(self, name, SB_GAUGE, owner) || !add(self, entry, name, help))
        return sb_fail(err, SB_NOMEM, "no memory for '%s'", name);
    return SB_OK;
}

void hub_entries_release(struct hub_index *self)
{
    for (uint32_t i = 0; i < self->n_entries; i++)
        destroy(self->entries[i]);
    free(self->entries);
}

/* The names of what is derived from the catalog's families, over all time or (1) over windows. */
static bool claim_derived(struct hub_index *self, uint32_t window)
{
    const struct sb_catalog *catalog = self->catalog;
    char base[SB_EXPO_NAME_MAX];
    char name[SB_EXPO_NAME_MAX];
    for (size_t i = 0; i < catalog->n_families; i++) {
        const struct sb_family *family = &catalog->families[i];
        if (!window_name(base, family->name, window) && window > 0)
            continue;
        for (size_t q = 0; q < family->n_quantiles; q++) {
            sb_quantile_name(name, base, family->quantiles[q]);
            if (!hub_index_claim(self, name, SB_GAUGE, "/"))
                return false;
        }
        sb_mean_name(name, base);
        if (family->n_quantiles > 0 && !hub_index_claim(self, name, SB_GAUGE, "/"))
            return false;
    }
    for (size_t i = 0; i < catalog->n_derived; i++) {
        const bool has_one = window == 0 || catalog->derived[i].kind != SB_DERIVED_MAX;
        (void) window_name(name, catalog->derived[i].name, window);
        if (has_one && !hub_index_claim(self, name, SB_GAUGE, "/"))
            return false;
    }
    return true;
}

bool hub_entries_claim_catalog(struct hub_index *self)
{
    return claim_derived(self, 0);
}

bool hub_entries_claim_windows(struct hub_index *self)
{
    return claim_derived(self, 1);
}
