/* Where the programs of a plan write for one contribution: targets, found once and kept. */
#include <stdlib.h>
#include <string.h>

#include "agent/plan_private.h"
#include "common/num.h"

enum {
    KEY_TEXT_MAX = SB_LABEL_VALUE_MAX + 4, /* what is beyond never changes the label, since values are cut */
    KEY_MAX = 512, /* a peer can fill this many times DYNAMIC_MAX; longer ones are looked up each time */
    DYNAMIC_MAX = 2 * AGENT_SERIES_OF_SOURCE_MAX, /* remembered label sets; more are looked up each time */
};

/* The bytes that a dynamic target is remembered by. */
struct key {
    uint32_t len; /* 0: too long to remember */
    char bytes[KEY_MAX];
};

static void key_add(struct key *key, const void *bytes, size_t n)
{
    if (key->len == 0 || key->len + n > KEY_MAX) {
        key->len = 0;
        return;
    }
    memcpy(key->bytes + key->len, bytes, n);
    key->len += (uint32_t) n;
}

static void key_start(struct key *key, uint32_t number)
{
    memcpy(key->bytes, &number, sizeof number);
    key->len = sizeof number;
}

static uint32_t remembered(const struct agent_binding *self, const struct key *key)
{
    struct binding_target *found = NULL;
    if (key->len)
        HASH_FIND(hh, self->dynamic, key->bytes, key->len, found);
    return found ? found->target : AGENT_NONE;
}

static void remember(struct agent_binding *self, const struct key *key, uint32_t target)
{
    if (!key->len || target == AGENT_NONE || self->n_dynamic == DYNAMIC_MAX)
        return;
    const size_t size = sizeof(struct binding_target) + key->len;
    if (!agent_ledger_remember(self->ledger, size))
        return;
    struct binding_target *made = malloc(size);
    if (!made) {
        agent_ledger_unremember(self->ledger, size);
        return;
    }
    made->target = target;
    made->len = key->len;
    memcpy(made->key, key->bytes, key->len);
    HASH_ADD_KEYPTR(hh, self->dynamic, made->key, made->len, made);
    self->n_dynamic++;
}

/* The input index of a key (ledger.h), with room for its state. */
static uint32_t input_of(struct agent_binding *self, uint32_t key)
{
    uint32_t input = agent_contribution_input(self->to, key);
    if (input == AGENT_NONE || !sb_grow(&self->inputs, &self->cap_inputs, input + 1, sizeof *self->inputs))
        return AGENT_NONE;
    return input;
}

static uint32_t root_input(struct agent_binding *self, uint32_t root)
{
    if (self->roots[root] == AGENT_NONE)
        self->roots[root] = input_of(self, root);
    return self->roots[root];
}

static uint32_t open_input(struct agent_binding *self, uint32_t input)
{
    if (input == AGENT_NONE)
        return AGENT_NONE;
    struct binding_input *state = &self->inputs[input];
    if (state->record != self->record) {
        state->record = self->record;
        state->is_open = agent_input_begin(self->to, input, self->when);
        self->has_opened = self->has_opened || state->is_open;
    }
    return state->is_open ? input : AGENT_NONE;
}

uint32_t binding_open_root(struct agent_binding *self, uint32_t root)
{
    return open_input(self, root_input(self, root));
}

uint32_t binding_open_observed(struct agent_binding *self, uint32_t family)
{
    return open_input(self, input_of(self, AGENT_INPUTS_MAX + family));
}

/* The target of a series: its first cell, or for a gauge the gauge's index. */
static uint32_t target_in_series(struct agent_binding *self, uint32_t family, enum sb_type type, uint32_t input,
                                 const struct sb_label_draft *labels)
{
    uint32_t index = agent_ledger_series_of(self->ledger, self->to, family, labels);
    if (index == AGENT_NONE)
        return AGENT_NONE;
    const struct agent_series *series = agent_ledger_series_at(self->ledger, index);
    if (type != SB_GAUGE)
        return agent_contribution_place(self->to, index);
    return input == AGENT_NONE ? AGENT_NONE : agent_contribution_gauge(self->to, series, input);
}

static void set_label(struct agent_binding *self, struct sb_label_draft *draft, const char *name, struct sb_slice value)
{
    /* A name that is not valid or one label too many: the sample keeps its other labels. */
    enum sb_rc rc = sb_label_draft_set(draft, name, strlen(name), value.at, value.len,
                                       agent_ledger_text_faults(self->ledger), NULL);
    if (rc != SB_OK)
        agent_ledger_counters(self->ledger)->limit_hits++;
}

static struct sb_slice slice_of(const char *text)
{
    return (struct sb_slice){.at = text, .len = strlen(text)};
}

/* The text of a label now; number is room for one that is a number in the message. */
static struct sb_slice label_text(const struct plan_program *program, const struct plan_label *label,
                                  char number[SB_NUM_MAX])
{
    if (label->value)
        return slice_of(label->value);
    if (label->scope)
        return label->scope->label_now;
    const struct plan_slot *slot = &program->scope->slots[label->slot];
    if (slot->kind == SLOT_TEXT)
        return slot->text;
    if (slot->kind != SLOT_NUMBER)
        return slice_of("");
    return (struct sb_slice){.at = number, .len = sb_num_value(number, slot->number)};
}

static uint32_t resolve(struct agent_binding *self, const struct plan_program *program)
{
    struct sb_label_draft draft;
    char number[SB_NUM_MAX];
    sb_label_draft_clear(&draft);
    for (uint32_t i = 0; i < program->n_labels; i++)
        set_label(self, &draft, program->labels[i].name, label_text(program, &program->labels[i], number));
    uint32_t input = program->type == SB_GAUGE ? root_input(self, program->input) : AGENT_NONE;
    return target_in_series(self, program->family, program->type, input, &draft);
}

uint32_t binding_target_of(struct agent_binding *self, const struct plan_program *program)
{
    uint32_t *fixed = &self->targets[program->number];
    if (!program->is_dynamic) {
        if (*fixed == AGENT_NONE)
            *fixed = resolve(self, program);
        return *fixed;
    }
    struct key key;
    char number[SB_NUM_MAX];
    key_start(&key, program->number);
    for (uint32_t i = 0; i < program->n_labels; i++) {
        if (program->labels[i].value)
            continue;
        struct sb_slice text = label_text(program, &program->labels[i], number);
        uint16_t len = (uint16_t) (text.len < KEY_TEXT_MAX ? text.len : KEY_TEXT_MAX);
        key_add(&key, &len, sizeof len);
        key_add(&key, text.at, len);
    }
    uint32_t target = remembered(self, &key);
    if (target == AGENT_NONE) {
        target = resolve(self, program);
        remember(self, &key, target);
    }
    return target;
}

uint32_t binding_target_of_zero(struct agent_binding *self, const struct plan_zero *zero)
{
    uint32_t *target = &self->targets[zero->number];
    if (*target != AGENT_NONE)
        return *target;
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    set_label(self, &draft, zero->program->labels[0].name, slice_of(zero->value));
    *target = target_in_series(self, zero->program->family, SB_GAUGE, root_input(self, zero->program->input), &draft);
    return *target;
}

static void open_count(struct agent_binding *self, const struct plan_family *family)
{
    struct sb_label_draft none;
    sb_label_draft_clear(&none);
    self->counts[family->catalog->count] = target_in_series(self, family->family, SB_COUNTER, AGENT_NONE, &none);
}

void agent_binding_count(struct agent_binding *self, enum sb_agent_count what, uint64_t n)
{
    if (self->counts[what] != AGENT_NONE)
        self->to->live[self->counts[what]] += (double) n;
}

void binding_refuse(struct agent_binding *self, uint32_t family, uint64_t n)
{
    agent_ledger_family_at(self->ledger, family)->refused += n;
    agent_binding_count(self, SB_AGENT_COUNT_refused_samples, n);
}

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Those of the labels that the catalog states. */
static void keep_stated_labels(const struct sb_family *catalog, struct sb_label_draft *draft)
{
    size_t kept = 0;
    for (size_t i = 0; i < draft->n; i++)
        if (is_among(draft->labels[i].name, catalog->labels, catalog->n_labels))
            draft->labels[kept++] = draft->labels[i];
    draft->n = kept;
}

/* Has an observation the labels that the catalog says? Each of them is its own or its source's, and it has no other. */
static bool has_stated_labels(const struct agent_binding *self, const struct sb_family *catalog,
                              const struct sb_label_draft *draft)
{
    if (!catalog || !catalog->has_labels)
        return true;
    for (size_t i = 0; i < draft->n; i++)
        if (!is_among(draft->labels[i].name, catalog->labels, catalog->n_labels))
            return false;
    for (size_t i = 0; i < catalog->n_labels; i++) {
        const char *name = catalog->labels[i];
        size_t at = 0;
        while (at < draft->n && strcmp(draft->labels[at].name, name) != 0)
            at++;
        if (at == draft->n && !sb_labelset_value(self->to->source, name) &&
            !sb_labelset_value(self->to->identity, name))
            return false;
    }
    return true;
}

uint32_t binding_target_of_observation(struct agent_binding *self, const struct plan_family *family,
                                       struct sb_slice labels, uint32_t input)
{
    struct key key;
    key_start(&key, UINT32_MAX - family->family);
    key_add(&key, labels.at, labels.len);
    uint32_t target = remembered(self, &key);
    if (target != AGENT_NONE)
        return target;
    struct sb_label_draft draft;
    struct sb_mp at = sb_mp_over(labels.at, labels.len);
    sb_label_draft_clear(&draft);
    const bool is_read =
        sb_mp_nil(&at) || sb_label_draft_read(&draft, &at, agent_ledger_text_faults(self->ledger), NULL) == SB_OK;
    if (family->catalog && family->catalog->observes)
        keep_stated_labels(family->catalog, &draft);
    if (!is_read || !has_stated_labels(self, family->catalog, &draft)) {
        binding_refuse(self, family->family, 1);
        return AGENT_NONE;
    }
    if (!family->is_cumulative)
        target = target_in_series(self, family->family, family->type, input, &draft);
    else if ((target = agent_ledger_exact_series(self->ledger, self->to, family->family, &draft)) == AGENT_NONE)
        agent_ledger_counters(self->ledger)->totals_left_out++;
    remember(self, &key, target);
    return target;
}

/* Declaring what exists from the start */

static void declare_one(struct agent_binding *self, const struct plan_family *family,
                        const struct sb_label_draft *draft, double initial, bool with_gauges)
{
    if (family->type != SB_GAUGE) {
        (void) target_in_series(self, family->family, family->type, AGENT_NONE, draft);
        return;
    }
    uint32_t input = root_input(self, family->input);
    if (!with_gauges || input == AGENT_NONE)
        return;
    struct agent_input *state = &self->to->inputs[input];
    if (state->generation > 1) /* 1: only what was declared */
        return;
    uint32_t gauge = target_in_series(self, family->family, SB_GAUGE, input, draft);
    if (gauge == AGENT_NONE)
        return;
    state->generation = 1;
    state->time = -1e300; /* older than any snapshot */
    self->to->gauges[gauge].value = initial;
    self->to->gauges[gauge].generation = 1;
    self->to->is_gauge_changed = true;
}

/* Every combination of the enumerated values, like the digits of a counter. */
static void declare(struct agent_binding *self, const struct plan_family *family, bool with_gauges)
{
    size_t digits[SB_FEED_LABELS_MAX] = {0};
    for (size_t i = 0; i < family->n_values; i++)
        if (family->values[i].n == 0)
            return;
    for (;;) {
        struct sb_label_draft draft;
        double initial = 0;
        sb_label_draft_clear(&draft);
        for (size_t i = 0; i < family->n_values; i++) {
            const struct plan_values *values = &family->values[i];
            set_label(self, &draft, values->label, slice_of(values->values[digits[i]]));
            initial = values->initial ? values->initial[digits[i]] : initial;
        }
        declare_one(self, family, &draft, initial, with_gauges);
        size_t i = 0;
        while (i < family->n_values && ++digits[i] == family->values[i].n)
            digits[i++] = 0;
        if (i == family->n_values)
            return;
    }
}

void binding_declare(struct agent_binding *self, bool with_gauges)
{
    self->is_declared = true;
    for (const struct plan_family *family = self->plan->families; family; family = family->hh.next)
        if (family->is_declared && family->is_front_end == self->to->is_front_end)
            declare(self, family, with_gauges);
}

/* Sets the info samples of one family that the hello has for this source. */
static void set_info(struct agent_binding *self, const struct plan_family *family, const struct agent_hello *hello,
                     uint32_t source_index)
{
    struct sb_mp at = sb_mp_over(hello->info.at, hello->info.len);
    uint32_t n, fields, input = input_of(self, AGENT_INPUTS_MAX + family->family);
    if (!hello->info.len || !sb_mp_array(&at, &n) || input == AGENT_NONE)
        return;
    const uint64_t generation = ++self->to->inputs[input].generation;
    self->to->inputs[input].is_lasting = true;
    self->to->is_gauge_changed = true;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t index = source_index;
        struct sb_slice name;
        struct sb_label_draft draft;
        sb_label_draft_clear(&draft);
        if (!sb_mp_array(&at, &fields) || fields < 3 || !(sb_mp_nil(&at) || sb_mp_uint(&at, &index)) ||
            !sb_mp_str(&at, &name))
            return;
        bool is_ours = index == source_index && sb_slice_is(name, family->catalog->info);
        if (!is_ours ? !sb_mp_skip(&at)
                     : sb_label_draft_read(&draft, &at, agent_ledger_text_faults(self->ledger), NULL) != SB_OK)
            return;
        for (uint32_t extra = 3; extra < fields; extra++)
            if (!sb_mp_skip(&at))
                return;
        uint32_t gauge = is_ours ? target_in_series(self, family->family, SB_GAUGE, input, &draft) : AGENT_NONE;
        if (gauge == AGENT_NONE)
            continue;
        self->to->gauges[gauge].value = 1;
        self->to->gauges[gauge].generation = generation;
    }
}

struct agent_binding *agent_binding_new(struct agent_plan *plan, struct agent_ledger *ledger,
                                        struct agent_contribution *to, const struct agent_hello *hello,
                                        const struct agent_hello_source *source, bool with_gauges)
{
    struct agent_binding *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->plan = plan;
    self->ledger = ledger;
    self->to = to;
    self->side = to->is_front_end ? &plan->front_end : &plan->engine;
    self->targets = malloc((plan->n_targets + 1) * sizeof *self->targets);
    self->groups = calloc(plan->n_groups, sizeof *self->groups);
    if (!self->targets || !self->groups) {
        agent_binding_destroy(&self);
        return NULL;
    }
    memset(self->targets, 0xff, (plan->n_targets + 1) * sizeof *self->targets); /* AGENT_NONE */
    memset(self->roots, 0xff, sizeof self->roots);
    memset(self->counts, 0xff, sizeof self->counts);
    for (const struct plan_family *family = plan->families; family; family = family->hh.next) {
        if (family->is_front_end != to->is_front_end)
            continue;
        if (family->catalog && family->catalog->count != SB_AGENT_COUNT_NONE)
            open_count(self, family);
        if (family->catalog && family->catalog->info)
            set_info(self, family, hello, source->index);
    }
    if (!source->is_observed)
        binding_declare(self, with_gauges);
    return self;
}

void agent_binding_destroy(struct agent_binding **self_p)
{
    struct agent_binding *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    struct binding_target *target, *next;
    HASH_ITER(hh, self->dynamic, target, next)
    {
        HASH_DEL(self->dynamic, target);
        agent_ledger_unremember(self->ledger, sizeof *target + target->len);
        free(target);
    }
    free(self->targets);
    free(self->groups);
    free(self->inputs);
    free(self);
}

void agent_binding_count_run(struct agent_binding *self, struct agent_raws *raws, struct agent_run *run,
                             const char *publisher)
{
    self->raws = raws;
    self->run = run;
    self->publisher = publisher;
}

struct agent_contribution *agent_binding_contribution(const struct agent_binding *self)
{
    return self->to;
}
