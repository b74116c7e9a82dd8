/* The tree of a plan: from feeds to scopes, nodes and programs. */
#include <string.h>

#include "agent/plan_private.h"

bool plan_push(struct agent_plan *self, void *array_p, uint32_t *n, uint32_t *cap, size_t size)
{
    void **array = array_p;
    if (*n == *cap) {
        uint32_t bigger = *cap ? 2 * *cap : 4;
        void *copy = sb_arena_get(&self->arena, bigger * size);
        if (!copy)
            return false;
        if (*n)
            memcpy(copy, *array, *n * size);
        *array = copy;
        *cap = bigger;
    }
    (*n)++;
    return true;
}

static struct plan_scope *new_scope(struct agent_plan *self, const char *label)
{
    struct plan_scope *scope = sb_arena_get(&self->arena, sizeof *scope);
    if (!scope)
        return NULL;
    scope->root.slot = PLAN_NO_SLOT;
    scope->root.input = -1;
    scope->label = label;
    return scope;
}

static struct plan_node *child_of(struct agent_plan *self, struct plan_node *node, const char *text, size_t len)
{
    for (uint32_t i = 0; i < node->n_keys; i++)
        if (node->keys[i].len == len && memcmp(node->keys[i].text, text, len) == 0)
            return node->keys[i].node;

    struct plan_node *child = sb_arena_get(&self->arena, sizeof *child);
    const char *copy = sb_arena_text(&self->arena, text, len);
    if (!child || !copy || node->n_keys == PLAN_NODE_KEYS_MAX ||
        !plan_push(self, &node->keys, &node->n_keys, &node->cap_keys, sizeof *node->keys))
        return NULL;
    *child = (struct plan_node){.parent = node, .depth = node->depth + 1, .slot = PLAN_NO_SLOT, .input = -1};
    node->keys[node->n_keys - 1] = (struct plan_key){.text = copy, .len = (uint32_t) len, .node = child};
    return child;
}

void plan_learn(struct agent_plan *self, struct plan_node *node, uint32_t at, struct sb_slice key)
{
    if (self->n_learnt == PLAN_LEARNT_KEYS_MAX || node->n_keys == PLAN_NODE_KEYS_MAX || key.len > SB_LABEL_VALUE_MAX)
        return;
    const char *copy = sb_arena_text(&self->arena, key.at, key.len);
    if (!copy || !plan_push(self, &node->keys, &node->n_keys, &node->cap_keys, sizeof *node->keys))
        return;
    memmove(&node->keys[at + 1], &node->keys[at], (node->n_keys - 1 - at) * sizeof *node->keys);
    node->keys[at] = (struct plan_key){.text = copy, .len = (uint32_t) key.len};
    self->n_learnt++;
}

/* A place in the tree. */
struct place {
    struct plan_scope *scope;
    struct plan_node *node;
};

static bool enter_loop(struct agent_plan *self, struct place *at, const struct sb_step *step)
{
    struct plan_loop **link = &at->node->loops;
    while (*link && ((*link)->kind != step->kind || strcmp((*link)->label, step->name) != 0))
        link = &(*link)->next;
    if (!*link) {
        struct plan_loop *loop = sb_arena_get(&self->arena, sizeof *loop);
        struct plan_scope *scope = new_scope(self, step->name);
        if (!loop || !scope)
            return false;
        *loop = (struct plan_loop){.kind = step->kind, .label = step->name, .scope = scope};
        *link = loop;
    }
    at->scope = (*link)->scope;
    at->node = &at->scope->root;
    return true;
}

/* Follows steps from a place, making what is not there. */
static bool walk(struct agent_plan *self, struct place *at, const struct sb_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (steps[i].kind != SB_STEP_KEY) {
            if (!enter_loop(self, at, &steps[i]))
                return false;
            continue;
        }
        at->node = child_of(self, at->node, steps[i].name, strlen(steps[i].name));
        if (!at->node)
            return false;
    }
    return true;
}

static enum agent_record_type record_type(const char *path, size_t len)
{
    static const char *const names[] = {[AGENT_RECORD_STEP] = "step", [AGENT_RECORD_EVENT] = "event"};
    for (size_t i = 0; i < SB_COUNT(names); i++)
        if (strlen(names[i]) == len && memcmp(path, names[i], len) == 0)
            return (enum agent_record_type) i;
    return AGENT_RECORD_UNKNOWN;
}

/* The place of a root ("step.scheduler_stats"), where the snapshot of its gauges begins. */
static enum sb_rc enter_root(struct agent_plan *self, struct plan_side *side, const char *name, struct place *at,
                             uint32_t *index, struct sb_err *err)
{
    const struct sb_root *roots = self->catalog->roots;
    uint32_t root = 0;
    while (strcmp(roots[root].name, name) != 0) /* the catalog has checked that it is there */
        root++;
    if (root >= AGENT_INPUTS_MAX)
        return sb_fail(err, SB_FULL, "the catalog has over %d roots", AGENT_INPUTS_MAX);

    const char *rest = strchrnul(roots[root].path, '.');
    enum agent_record_type type = record_type(roots[root].path, (size_t) (rest - roots[root].path));
    if (type == AGENT_RECORD_UNKNOWN)
        return sb_fail(err, SB_FORMAT, "root '%s' starts with neither step nor event", name);
    if (!side->records[type])
        side->records[type] = new_scope(self, "");
    at->scope = side->records[type];
    at->node = at->scope ? &at->scope->root : NULL;
    while (at->node && *rest) {
        const char *key = rest + 1;
        rest = strchrnul(key, '.');
        at->node = child_of(self, at->node, key, (size_t) (rest - key));
    }
    if (!at->node)
        return sb_fail(err, SB_NOMEM, "root '%s'", name);
    at->node->input = (int) root;
    *index = root;
    return SB_OK;
}

/* A feed being compiled into a program. */
struct compiler {
    struct agent_plan *plan;
    struct plan_side *side;
    const struct sb_feed *feed;
    struct place base;      /* the element; for a feed without element the scope's root */
    struct plan_node *fire; /* the lowest node that holds all fields so far; NULL: no field yet */
    struct plan_program *program;
    struct plan_op ops[SB_FEED_OPS_MAX];
    struct plan_label labels[2 * SB_FEED_LABELS_MAX];
};

static struct plan_node *common_node(struct plan_node *a, struct plan_node *b)
{
    while (a != b) {
        if (a->depth >= b->depth)
            a = a->parent;
        else
            b = b->parent;
    }
    return a;
}

/* The slot of a path, and that the program needs its node. */
static enum sb_rc slot_of(struct compiler *self, const struct sb_path *path, int *slot, struct sb_err *err)
{
    struct place at = self->base;
    size_t from = 0;
    if (!self->feed->element.n) {
        enum sb_rc rc = enter_root(self->plan, self->side, path->steps[0].name, &at, &self->program->input, err);
        if (rc != SB_OK)
            return rc;
        from = 1;
    }
    if (path->n > from && !walk(self->plan, &at, path->steps + from, path->n - from))
        return sb_fail(err, SB_FULL, "too many keys at one place, or out of memory");
    if (self->base.scope && at.scope != self->base.scope)
        return sb_fail(err, SB_FORMAT, "a field lies in another scope than the rest of its feed");
    self->base.scope = at.scope;
    if (at.node->slot == PLAN_NO_SLOT) {
        if (!plan_push(self->plan, &at.scope->slots, &at.scope->n_slots, &at.scope->cap_slots, sizeof *at.scope->slots))
            return sb_fail(err, SB_NOMEM, "a slot");
        at.node->slot = (int) at.scope->n_slots - 1;
    }
    *slot = at.node->slot;
    self->fire = self->fire ? common_node(self->fire, at.node) : at.node;
    return SB_OK;
}

static enum sb_rc compile_ops(struct compiler *self, struct sb_err *err)
{
    bool has_choice = false;
    for (size_t i = 0; i < self->feed->n_ops; i++) {
        const struct sb_op *op = &self->feed->ops[i];
        self->ops[i] = (struct plan_op){.kind = op->kind, .is_optional = op->is_optional, .number = op->number};
        self->ops[i].n_slots = (uint32_t) op->n_paths;
        has_choice |= op->is_optional || op->n_paths > 1;
        for (size_t j = 0; j < op->n_paths; j++) {
            enum sb_rc rc = slot_of(self, &op->paths[j], &self->ops[i].slots[j], err);
            if (rc != SB_OK)
                return rc;
        }
    }
    const struct plan_op *first = &self->ops[0];
    bool is_single = self->feed->n_ops == 1 && first->kind == SB_OP_FIELD && !has_choice;
    self->program->single = is_single ? first->slots[0] : PLAN_NO_SLOT;
    /* An optional field may be absent, so its own node can't be what fires the program. */
    if (has_choice && self->fire && !self->fire->n_keys && self->fire->parent)
        self->fire = self->fire->parent;
    return SB_OK;
}

/* Labels that the feed states, then those of the iterators on the way to the element. */
static enum sb_rc compile_labels(struct compiler *self, struct sb_err *err)
{
    uint32_t n = 0;
    for (size_t i = 0; i < self->feed->n_labels; i++) {
        const struct sb_feed_label *label = &self->feed->labels[i];
        struct plan_label made = {.name = label->name, .value = label->value, .slot = PLAN_NO_SLOT};
        if (!label->value) {
            enum sb_rc rc = slot_of(self, &label->path, &made.slot, err);
            if (rc != SB_OK)
                return rc;
            self->program->is_dynamic = true;
        }
        self->labels[n++] = made;
    }
    struct place at = {0};
    uint32_t root;
    if (self->feed->element.n && enter_root(self->plan, self->side, self->feed->element.steps[0].name, &at, &root, err))
        return err ? err->rc : SB_FORMAT;
    for (size_t i = 1; i < self->feed->element.n; i++) {
        const struct sb_step *step = &self->feed->element.steps[i];
        if (!walk(self->plan, &at, step, 1))
            return sb_fail(err, SB_NOMEM, "a label");
        if (step->kind == SB_STEP_KEY || step->name[0] == '\0')
            continue;
        if (n == SB_COUNT(self->labels))
            return sb_fail(err, SB_FULL, "a feed has over %zu labels", SB_COUNT(self->labels));
        self->labels[n++] = (struct plan_label){.name = step->name, .slot = PLAN_NO_SLOT, .scope = at.scope};
        self->program->is_dynamic = true;
    }
    self->program->n_labels = n;
    return SB_OK;
}

/* A feed whose value needs no field counts elements, whether their labels are there or not. */
static bool has_field(const struct sb_feed *feed)
{
    for (size_t i = 0; i < feed->n_ops; i++)
        if (feed->ops[i].n_paths)
            return true;
    return false;
}

/* The loop that opens a scope, looked for below a node. */
static struct plan_loop *loop_of(struct plan_node *node, const struct plan_scope *scope)
{
    for (struct plan_loop *loop = node->loops; loop; loop = loop->next) {
        struct plan_loop *deeper = loop->scope == scope ? loop : loop_of(&loop->scope->root, scope);
        if (deeper)
            return deeper;
    }
    for (uint32_t i = 0; i < node->n_keys; i++) {
        struct plan_loop *found = node->keys[i].node ? loop_of(node->keys[i].node, scope) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

static const struct plan_values *values_of(const struct plan_family *family, const char *label)
{
    for (size_t i = 0; i < family->n_values; i++)
        if (strcmp(family->values[i].label, label) == 0)
            return &family->values[i];
    return NULL;
}

/* A gauge fed from a map first zeroes its enumerated values: a key that is gone means 0, not the value before. */
static enum sb_rc add_zeros(struct compiler *self, const struct plan_family *family, struct sb_err *err)
{
    const struct plan_program *program = self->program;
    if (family->type != SB_GAUGE || program->n_labels != 1 || !program->labels[0].scope)
        return SB_OK;
    const struct plan_values *values = values_of(family, program->labels[0].name);
    struct plan_loop *loop = NULL;
    for (size_t type = 0; !loop && type < AGENT_RECORD_UNKNOWN; type++)
        if (self->side->records[type])
            loop = loop_of(&self->side->records[type]->root, program->labels[0].scope);
    for (size_t i = 0; loop && values && i < values->n; i++) {
        struct plan_zero *zero = sb_arena_get(&self->plan->arena, sizeof *zero);
        if (!zero)
            return sb_fail(err, SB_NOMEM, "family '%s'", family->name);
        *zero = (struct plan_zero){
            .next = loop->zeros, .program = program, .value = values->values[i], .number = self->plan->n_targets++};
        loop->zeros = zero;
    }
    return SB_OK;
}

static bool is_observer(const struct plan_scope *scope)
{
    const struct plan_node *root = &scope->root;
    if (root->n_keys || root->loops || root->n_programs != 1 || scope->label[0])
        return false;
    const struct plan_program *program = root->programs[0];
    return program->type == SB_HISTOGRAM && !program->is_dynamic && !program->is_nonzero &&
           program->single == root->slot && program->single != PLAN_NO_SLOT;
}

static enum sb_rc add_program(struct compiler *self, const struct plan_family *family, struct sb_err *err)
{
    struct agent_plan *plan = self->plan;
    struct plan_program *program = self->program;
    if (!has_field(self->feed))
        self->fire = self->base.node;
    if (!self->fire)
        return sb_fail(err, SB_FORMAT, "a feed has no field");
    program->scope = self->base.scope;
    program->is_plain = program->type != SB_GAUGE && program->single != PLAN_NO_SLOT && !program->is_dynamic &&
                        !program->is_nonzero && !program->group;
    program->n_ops = (uint32_t) self->feed->n_ops;
    program->ops = sb_arena_copy(&plan->arena, self->ops, program->n_ops, sizeof self->ops[0]);
    program->labels = sb_arena_copy(&plan->arena, self->labels, program->n_labels, sizeof self->labels[0]);
    struct plan_node *node = self->fire;
    if (!program->ops || (program->n_labels && !program->labels) ||
        !plan_push(plan, &node->programs, &node->n_programs, &node->cap_programs, sizeof *node->programs))
        return sb_fail(err, SB_NOMEM, "family '%s'", family->name);
    node->programs[node->n_programs - 1] = program;
    return SB_OK;
}

static enum sb_rc add_feed(struct agent_plan *self, const struct plan_family *family, const struct sb_feed *feed,
                           struct sb_err *err)
{
    struct plan_program *program = sb_arena_get(&self->arena, sizeof *program);
    if (!program)
        return sb_fail(err, SB_NOMEM, "family '%s'", family->name);
    *program = (struct plan_program){
        .number = self->n_targets++,
        .family = family->family,
        .type = family->type,
        .bounds = family->bounds,
        .is_nonzero = feed->is_nonzero,
        .group = feed->group,
    };
    if (feed->group >= self->n_groups)
        self->n_groups = feed->group + 1;

    struct compiler compiler = {
        .plan = self,
        .side = family->is_front_end ? &self->front_end : &self->engine,
        .feed = feed,
        .program = program,
    };
    enum sb_rc rc = SB_OK;
    if (feed->element.n) {
        rc = enter_root(self, compiler.side, feed->element.steps[0].name, &compiler.base, &program->input, err);
        if (rc == SB_OK && feed->element.n > 1 &&
            !walk(self, &compiler.base, feed->element.steps + 1, feed->element.n - 1))
            rc = sb_fail(err, SB_FULL, "too many keys at one place, or out of memory");
    }
    if (rc == SB_OK)
        rc = compile_ops(&compiler, err);
    if (rc == SB_OK)
        rc = compile_labels(&compiler, err);
    if (rc == SB_OK)
        rc = add_program(&compiler, family, err);
    if (rc == SB_OK && family->type == SB_GAUGE)
        self->has_gauges[program->input] = true;
    return rc == SB_OK ? add_zeros(&compiler, family, err) : rc;
}

static void find_observers(struct plan_node *node)
{
    for (struct plan_loop *loop = node->loops; loop; loop = loop->next) {
        loop->scope->observer = is_observer(loop->scope) ? loop->scope->root.programs[0] : NULL;
        find_observers(&loop->scope->root);
    }
    for (uint32_t i = 0; i < node->n_keys; i++)
        if (node->keys[i].node)
            find_observers(node->keys[i].node);
}

enum sb_rc plan_add_feeds(struct agent_plan *self, const struct plan_family *family, struct sb_err *err)
{
    struct plan_side *side = family->is_front_end ? &self->front_end : &self->engine;
    for (size_t i = 0; i < family->catalog->n_feeds; i++) {
        struct sb_err reason;
        enum sb_rc rc = add_feed(self, family, &family->catalog->feeds[i], &reason);
        if (rc != SB_OK)
            return sb_fail(err, rc, "%s:%zu: '%s': %s", family->catalog->file, family->catalog->line, family->name,
                           reason.text);
    }
    for (size_t type = 0; type < AGENT_RECORD_UNKNOWN; type++)
        if (side->records[type])
            find_observers(&side->records[type]->root);
    return SB_OK;
}
