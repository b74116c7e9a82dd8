/*
 * Reading a record once, front to back, and firing programs on the way. The hot path of the agent: no allocation here
 * once the series are known, and no checks of what sb_mp_validate has checked.
 */
#include "agent/apply.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/plan_private.h"
#include "common/mp_format.h"

struct reader {
    struct agent_binding *binding;
    const uint8_t *end;
    enum agent_apply_parts parts;
};

/* Validated values */

static const uint8_t *skip_value(const struct reader *self, const uint8_t *at)
{
    uint8_t first = *at;
    if (first < MP_FIXMAP || first >= MP_NEGATIVE_FIXINT || (first >= MP_NIL && first <= MP_TRUE) ||
        first == MP_FIXMAP || first == MP_FIXARRAY)
        return at + 1;
    if (first >= MP_FIXSTR && first < MP_NIL)
        return at + 1 + (first & 0x1f);
    if (first == MP_FLOAT64)
        return at + 9;
    struct sb_mp cursor = {.at = at, .end = self->end};
    return sb_mp_skip(&cursor) ? cursor.at : self->end;
}

static bool is_map(uint8_t first)
{
    return (first & 0xf0) == MP_FIXMAP || first == MP_MAP16 || first == MP_MAP32;
}

static bool is_array(uint8_t first)
{
    return (first & 0xf0) == MP_FIXARRAY || first == MP_ARRAY16 || first == MP_ARRAY32;
}

/* The count of a map or array; moves past its head. */
static uint32_t read_count(const uint8_t **at)
{
    const uint8_t *from = *at;
    if (from[0] < MP_FIXSTR) {
        *at += 1;
        return from[0] & 0x0f;
    }
    if (from[0] == MP_ARRAY16 || from[0] == MP_MAP16) {
        *at += 3;
        return (uint32_t) from[1] << 8 | from[2];
    }
    *at += 5;
    return (uint32_t) from[1] << 24 | (uint32_t) from[2] << 16 | (uint32_t) from[3] << 8 | from[4];
}

/* A scalar into a slot; past anything else, which makes the slot bad. */
static const uint8_t *read_scalar(const struct reader *self, const uint8_t *at, struct plan_slot *slot)
{
    uint8_t first = *at;
    slot->kind = SLOT_NUMBER;
    if (first < MP_FIXMAP) {
        slot->number = first;
        return at + 1;
    }
    if (first == MP_FLOAT64) {
        slot->number = sb_mp_double_at(at + 1);
        return at + 9;
    }
    struct sb_mp cursor = {.at = at, .end = self->end};
    if (sb_mp_number(&cursor, &slot->number))
        return cursor.at;
    slot->kind = SLOT_TEXT;
    if (sb_mp_str(&cursor, &slot->text))
        return cursor.at;
    slot->kind = first == MP_NIL ? SLOT_ABSENT : SLOT_BAD;
    return skip_value(self, at);
}

/* Programs */

static void count_refused(const struct reader *self, uint32_t family)
{
    binding_refuse(self->binding, family, 1);
}

enum outcome { HAS_VALUE, NO_SAMPLE, BAD_VALUE };

static enum outcome evaluate_field(const struct plan_op *op, const struct plan_slot *slots, double *out)
{
    for (uint32_t i = 0; i < op->n_slots; i++) {
        const struct plan_slot *slot = &slots[op->slots[i]];
        if (slot->kind == SLOT_ABSENT)
            continue;
        *out = slot->number;
        return slot->kind == SLOT_NUMBER ? HAS_VALUE : BAD_VALUE;
    }
    *out = 0;
    return op->is_optional ? HAS_VALUE : NO_SAMPLE;
}

static enum outcome evaluate(const struct plan_program *program, double *out)
{
    double stack[SB_FEED_STACK_MAX];
    size_t top = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct plan_op *op = &program->ops[i];
        enum outcome outcome;
        switch (op->kind) {
        case SB_OP_FIELD:
        case SB_OP_EQUALS:
            outcome = evaluate_field(op, program->scope->slots, &stack[top]);
            if (outcome != HAS_VALUE)
                return outcome;
            if (op->kind == SB_OP_EQUALS)
                stack[top] = stack[top] == op->number;
            top++;
            break;
        case SB_OP_CONSTANT:
            stack[top++] = op->number;
            break;
        case SB_OP_ADD:
            top--;
            stack[top - 1] += stack[top];
            break;
        case SB_OP_SUBTRACT:
            top--;
            stack[top - 1] -= stack[top];
            break;
        case SB_OP_AND:
            top--;
            stack[top - 1] = stack[top - 1] != 0 && stack[top] != 0;
            break;
        case SB_OP_CLAMP:
            if (stack[top - 1] < 0)
                stack[top - 1] = 0;
            break;
        }
    }
    *out = stack[0];
    return HAS_VALUE;
}

static enum outcome value_of(const struct plan_program *program, double *out)
{
    if (program->single == PLAN_NO_SLOT)
        return evaluate(program, out);
    const struct plan_slot *slot = &program->scope->slots[program->single];
    *out = slot->number;
    return slot->kind == SLOT_NUMBER ? HAS_VALUE : slot->kind == SLOT_ABSENT ? NO_SAMPLE : BAD_VALUE;
}

static bool wins_group(struct agent_binding *binding, const struct plan_program *program)
{
    if (!program->group)
        return true;
    unsigned *winner = &binding->groups[program->group];
    if (!*winner)
        *winner = program->number + 1;
    return *winner == program->number + 1;
}

/* Adds to the cells at `cell`: a counter's one, or a histogram's buckets and sum. */
static inline void add_delta(struct agent_contribution *to, uint32_t cell, const struct sb_bounds *bounds, double value)
{
    double *cells = to->live + cell;
    if (!bounds) {
        cells[0] += value;
        return;
    }
    cells[sb_bounds_bucket(bounds, value)] += 1;
    cells[bounds->n + 1] += value;
}

static void set_gauge(struct agent_binding *binding, uint32_t gauge, uint32_t input, double value)
{
    if (gauge == AGENT_NONE || input == AGENT_NONE)
        return;
    binding->to->gauges[gauge].value = value;
    binding->to->gauges[gauge].generation = binding->to->inputs[input].generation;
}

static void fire_gauge(const struct reader *self, const struct plan_program *program, double value)
{
    uint32_t input = binding_open_root(self->binding, program->input);
    if (!isfinite(value))
        count_refused(self, program->family);
    else if (input != AGENT_NONE)
        set_gauge(self->binding, binding_target_of(self->binding, program), input, value);
}

static void fire(const struct reader *self, const struct plan_program *program)
{
    double value;
    if (program->is_plain && self->parts != AGENT_APPLY_GAUGES) { /* most of a step: one field, one known place */
        const struct plan_slot *slot = &program->scope->slots[program->single];
        uint32_t cell = self->binding->targets[program->number];
        if (cell != AGENT_NONE && slot->kind == SLOT_NUMBER && agent_amount_is_possible(slot->number)) {
            add_delta(self->binding->to, cell, program->bounds, slot->number);
            return;
        }
    }
    if (self->parts == AGENT_APPLY_GAUGES && program->type != SB_GAUGE)
        return;
    enum outcome outcome = value_of(program, &value);
    if (outcome == BAD_VALUE)
        count_refused(self, program->family);
    if (outcome != HAS_VALUE || (program->is_nonzero && value == 0) || !wins_group(self->binding, program))
        return;
    if (program->type == SB_GAUGE) {
        fire_gauge(self, program, value);
        return;
    }
    if (!agent_amount_is_possible(value)) {
        count_refused(self, program->family);
        return;
    }
    uint32_t cell = binding_target_of(self->binding, program);
    if (cell != AGENT_NONE)
        add_delta(self->binding->to, cell, program->bounds, value);
}

/* Everything below a node is of a type that nobody expects. */
static void refuse_below(const struct reader *self, const struct plan_node *node)
{
    if (self->parts == AGENT_APPLY_GAUGES)
        return;
    for (uint32_t i = 0; i < node->n_programs; i++)
        count_refused(self, node->programs[i]->family);
    for (uint32_t i = 0; i < node->n_keys; i++)
        if (node->keys[i].node)
            refuse_below(self, node->keys[i].node);
    for (const struct plan_loop *loop = node->loops; loop; loop = loop->next)
        refuse_below(self, &loop->scope->root);
}

/* The tree */

static const uint8_t *read_node(const struct reader *self, struct plan_scope *scope, struct plan_node *node,
                                const uint8_t *at);

static void clear_slots(struct plan_scope *scope)
{
    for (uint32_t i = 0; i < scope->n_slots; i++)
        scope->slots[i].kind = SLOT_ABSENT;
}

/*
 * A list of numbers that one histogram observes. Sums are added one by one, in order: that is what the engine's own
 * histogram does, so the last bit agrees.
 */
static const uint8_t *observe_list(const struct reader *self, const struct plan_program *program, const uint8_t *at,
                                   uint32_t n)
{
    bool is_wanted = self->parts != AGENT_APPLY_GAUGES && n && wins_group(self->binding, program);
    uint32_t cell = is_wanted ? binding_target_of(self->binding, program) : AGENT_NONE;
    if (cell == AGENT_NONE) {
        while (n--)
            at = skip_value(self, at);
        return at;
    }
    const struct sb_bounds *bounds = program->bounds;
    double *cells = self->binding->to->live + cell;
    double sum = cells[bounds->n + 1];
    uint64_t refused = 0;
    for (; n; n--) {
        struct plan_slot slot;
        double value;
        if (*at == MP_FLOAT64) {
            value = sb_mp_double_at(at + 1);
            at += 9;
        } else {
            at = read_scalar(self, at, &slot);
            if (slot.kind == SLOT_ABSENT)
                continue;
            value = slot.kind == SLOT_NUMBER ? slot.number : NAN;
        }
        if (!agent_amount_is_possible(value)) {
            refused++;
            continue;
        }
        cells[sb_bounds_bucket(bounds, value)] += 1;
        sum += value;
    }
    cells[bounds->n + 1] = sum;
    if (refused)
        binding_refuse(self->binding, program->family, refused);
    return at;
}

static const uint8_t *read_element(const struct reader *self, struct plan_scope *scope, const uint8_t *at)
{
    clear_slots(scope);
    return read_node(self, scope, &scope->root, at);
}

static const uint8_t *read_list(const struct reader *self, struct plan_scope *scope, const uint8_t *at)
{
    uint32_t n = read_count(&at);
    if (scope->observer)
        return observe_list(self, scope->observer, at, n);
    for (uint32_t i = 0; i < n; i++) {
        if (scope->label[0]) {
            int len = snprintf(scope->index_text, sizeof scope->index_text, "%u", i);
            scope->label_now = (struct sb_slice){.at = scope->index_text, .len = (size_t) len};
        }
        at = read_element(self, scope, at);
    }
    return at;
}

static void set_zeros(const struct reader *self, const struct plan_loop *loop)
{
    for (const struct plan_zero *zero = loop->zeros; zero; zero = zero->next) {
        uint32_t input = binding_open_root(self->binding, zero->program->input);
        if (input != AGENT_NONE)
            set_gauge(self->binding, binding_target_of_zero(self->binding, zero), input, 0);
    }
}

static const uint8_t *read_entries(const struct reader *self, struct plan_loop *loop, const uint8_t *at)
{
    struct plan_scope *scope = loop->scope;
    uint32_t n = read_count(&at);
    set_zeros(self, loop);
    for (uint32_t i = 0; i < n; i++) {
        struct plan_slot key;
        at = read_scalar(self, at, &key);
        scope->label_now = key.text;
        if (key.kind == SLOT_NUMBER) {
            int len = snprintf(scope->index_text, sizeof scope->index_text, "%.0f", key.number);
            scope->label_now = (struct sb_slice){
                .at = scope->index_text,
                .len = len < (int) sizeof scope->index_text ? (size_t) len : sizeof scope->index_text - 1};
        } else if (key.kind != SLOT_TEXT) {
            refuse_below(self, &scope->root);
            at = skip_value(self, at);
            continue;
        }
        at = read_element(self, scope, at);
    }
    return at;
}

/* Equal bytes, without a call for the usual short key. */
static inline bool is_same(const char *a, const char *b, size_t n)
{
    uint64_t x, y;
    if (n < sizeof x) {
        for (size_t i = 0; i < n; i++)
            if (a[i] != b[i])
                return false;
        return true;
    }
    for (size_t i = 0; i + sizeof x <= n; i += sizeof x) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        if (x != y)
            return false;
    }
    memcpy(&x, a + n - sizeof x, sizeof x); /* the rest, overlapping what was compared */
    memcpy(&y, b + n - sizeof y, sizeof y);
    return x == y;
}

/*
 * The entry of a key that is not where it was expected, moved there: the node's order becomes the sender's, which never
 * changes within a release. NULL: unknown, and learnt.
 */
static const struct plan_key *search_key(const struct reader *self, struct plan_node *node, uint32_t expected,
                                         struct sb_slice name)
{
    for (uint32_t i = 0; i < node->n_keys; i++) {
        if (node->keys[i].len != name.len || !is_same(node->keys[i].text, name.at, name.len))
            continue;
        struct plan_key found = node->keys[i];
        if (i < expected) /* twice in one map, or out of order: leave it */
            return &node->keys[i];
        memmove(&node->keys[expected + 1], &node->keys[expected], (i - expected) * sizeof found);
        node->keys[expected] = found;
        return &node->keys[expected];
    }
    plan_learn(self->binding->plan, node, expected, name);
    return NULL;
}

static inline const struct plan_key *find_key(const struct reader *self, struct plan_node *node, uint32_t expected,
                                              struct sb_slice name)
{
    if (expected >= node->n_keys)
        expected = node->n_keys - 1;
    const struct plan_key *key = &node->keys[expected];
    if (key->len == name.len && is_same(key->text, name.at, name.len))
        return key;
    return search_key(self, node, expected, name);
}

static const uint8_t *read_fields(const struct reader *self, struct plan_scope *scope, struct plan_node *node,
                                  const uint8_t *at)
{
    uint32_t n = read_count(&at);
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice name = {.at = (const char *) at + 1, .len = *at & 0x1f};
        if ((*at & 0xe0) == MP_FIXSTR) {
            at += 1 + name.len;
        } else {
            struct sb_mp cursor = {.at = at, .end = self->end};
            name.at = NULL;
            at = sb_mp_str(&cursor, &name) ? cursor.at : skip_value(self, at);
        }
        const struct plan_key *key = name.at ? find_key(self, node, i, name) : NULL;
        at = key && key->node ? read_node(self, scope, key->node, at) : skip_value(self, at);
    }
    return at;
}

/* A map: its expected keys, and each entry where the catalog iterates. */
static const uint8_t *read_map(const struct reader *self, struct plan_scope *scope, struct plan_node *node,
                               const uint8_t *at)
{
    const uint8_t *end = NULL;
    if (node->input >= 0 && self->binding->plan->has_gauges[node->input])
        (void) binding_open_root(self->binding, (uint32_t) node->input);
    if (node->n_keys)
        end = read_fields(self, scope, node, at);
    for (struct plan_loop *loop = node->loops; loop; loop = loop->next)
        if (loop->kind == SB_STEP_MAP)
            end = read_entries(self, loop, at);
    return end;
}

static const uint8_t *read_array(const struct reader *self, struct plan_node *node, const uint8_t *at)
{
    const uint8_t *end = NULL;
    for (struct plan_loop *loop = node->loops; loop; loop = loop->next)
        if (loop->kind == SB_STEP_LIST)
            end = read_list(self, loop->scope, at);
    return end;
}

/* Elements that are only counted: whatever they are, they are there. */
static bool takes_any(const struct plan_node *node)
{
    return node->slot == PLAN_NO_SLOT && !node->n_keys && !node->loops;
}

/* Reads the value at `at` for a node and fires its programs. */
static const uint8_t *read_node(const struct reader *self, struct plan_scope *scope, struct plan_node *node,
                                const uint8_t *at)
{
    if (*at == MP_NIL)
        return at + 1;
    const uint8_t *end = NULL;
    if (takes_any(node))
        end = skip_value(self, at);
    else if (is_map(*at))
        end = read_map(self, scope, node, at);
    else if (is_array(*at))
        end = read_array(self, node, at);
    else if (node->slot != PLAN_NO_SLOT)
        end = read_scalar(self, at, &scope->slots[node->slot]);
    if (!end) { /* nothing here takes a value of this type */
        if (node->slot != PLAN_NO_SLOT)
            scope->slots[node->slot].kind = SLOT_BAD;
        refuse_below(self, node);
        return skip_value(self, at);
    }
    for (uint32_t i = 0; i < node->n_programs; i++)
        fire(self, node->programs[i]);
    return end;
}

/* Observations */

static void observe_number(const struct reader *self, const struct plan_family *family, uint32_t target, uint32_t input,
                           double value)
{
    bool is_gauge = family->type == SB_GAUGE;
    if (is_gauge ? !isfinite(value) : !agent_amount_is_possible(value))
        count_refused(self, family->family);
    else if (is_gauge)
        set_gauge(self->binding, target, input, value);
    else if (target != AGENT_NONE)
        add_delta(self->binding->to, target, family->bounds, value);
}

static const uint8_t *observe_value(const struct reader *self, const struct plan_family *family, uint32_t target,
                                    uint32_t input, const uint8_t *at)
{
    uint32_t n = is_array(*at) ? read_count(&at) : 1;
    for (; n; n--) {
        struct plan_slot slot;
        at = read_scalar(self, at, &slot);
        if (slot.kind == SLOT_NUMBER)
            observe_number(self, family, target, input, slot.number);
        else if (slot.kind != SLOT_ABSENT)
            count_refused(self, family->family);
    }
    return at;
}

/* One [family, labels, value]; returns its end. */
static const uint8_t *read_observation(const struct reader *self, const uint8_t *at)
{
    const uint8_t *end = skip_value(self, at);
    struct agent_binding *binding = self->binding;
    struct sb_mp cursor = {.at = at, .end = end};
    struct sb_slice name;
    uint32_t n;
    struct plan_family *family = NULL;
    if (sb_mp_array(&cursor, &n) && n >= 3 && sb_mp_str(&cursor, &name))
        HASH_FIND(hh, binding->plan->families, name.at, name.len, family);
    if (!family || (family->catalog && family->catalog->observes)) {
        /* Both kinds of bindings are asked; one of them counts. And a hello says again what was said before. */
        if (!binding->to->is_front_end && self->parts == AGENT_APPLY_ALL)
            agent_ledger_counters(binding->ledger)->unknown_families++;
        return end;
    }
    bool is_gauge = family->type == SB_GAUGE;
    if (family->is_front_end != binding->to->is_front_end)
        return end;
    const uint8_t *labels = cursor.at;
    const uint8_t *value = skip_value(self, labels);
    struct sb_slice slice = {.at = (const char *) labels, .len = (size_t) (value - labels)};
    if (family->is_cumulative) {
        binding_observe_total(binding, family, slice, (struct sb_slice){(const char *) value, (size_t) (end - value)},
                              self->parts);
        return end;
    }
    if (self->parts == AGENT_APPLY_GAUGES && !is_gauge)
        return end;
    uint32_t input = is_gauge ? binding_open_observed(binding, family->family) : AGENT_NONE;
    if (is_gauge && input == AGENT_NONE)
        return end;
    uint32_t target = binding_target_of_observation(binding, family, slice, input);
    observe_value(self, family, target, input, value);
    for (struct plan_family *other = family->observer; other && target != AGENT_NONE; other = other->next_observer)
        observe_value(self, other, binding_target_of_observation(binding, other, slice, AGENT_NONE), AGENT_NONE, value);
    return end;
}

static const uint8_t *read_observations(const struct reader *self, const uint8_t *at)
{
    uint32_t n = read_count(&at);
    for (; n; n--)
        at = read_observation(self, at);
    return at;
}

void agent_apply(struct agent_binding *self, enum agent_record_type type, struct sb_mp *content,
                 const struct agent_moment *when, enum agent_apply_parts parts)
{
    const struct reader reader = {.binding = self, .end = content->end, .parts = parts};
    self->when = when;
    self->record++;
    self->has_opened = false;
    const enum agent_record_type begins = self->to->is_front_end ? AGENT_RECORD_EVENT : AGENT_RECORD_STEP;
    if (!self->is_declared && type == begins)
        binding_declare(self, false); /* gauges come with the record */
    const uint8_t *at = content->at;
    struct plan_scope *scope = type < AGENT_RECORD_OBS ? self->side->records[type] : NULL;
    if (type == AGENT_RECORD_OBS && is_array(*at))
        content->at = read_observations(&reader, at);
    else
        content->at = scope ? read_element(&reader, scope, at) : skip_value(&reader, at);
    /* Events don't count: every API server tells of them, but only one has the scheduler's snapshots. */
    if (self->has_opened && type != AGENT_RECORD_EVENT)
        self->to->snapshot_ms = when->arrival_ms;
}
