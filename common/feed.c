#include "common/feed.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool is_name_start(char c)
{
    return isalpha((unsigned char) c) || c == '_';
}

static bool is_name(char c)
{
    return isalnum((unsigned char) c) || c == '_' || c == ':';
}

/* The length of the name at `text`, 0 when none starts there. */
static size_t name_len(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (n ? is_name(text[n]) : is_name_start(text[n])))
        n++;
    return n;
}

/* Reads "[label]" or "{label}" at `text`; returns the bytes it takes, 0 when it is none. */
static size_t read_iterator(struct sb_arena *arena, const char *text, size_t len, struct sb_step *step)
{
    char close = text[0] == '[' ? ']' : '}';
    size_t n = name_len(text + 1, len - 1);
    if (n + 2 > len || text[n + 1] != close || (close == '}' && n == 0))
        return 0;
    step->kind = close == ']' ? SB_STEP_LIST : SB_STEP_MAP;
    step->name = sb_arena_text(arena, text + 1, n);
    return n + 2;
}

enum sb_rc sb_path_parse(struct sb_arena *arena, const char *text, size_t len, struct sb_path *out, struct sb_err *err)
{
    struct sb_step steps[SB_PATH_STEPS_MAX] = {0};
    size_t n = 0, at = 0;
    bool is_whole = len == 1 && text[0] == '@';

    while (!is_whole && at < len) {
        if (n == SB_PATH_STEPS_MAX)
            return sb_fail(err, SB_FULL, "path '%.*s' has over %d steps", (int) len, text, SB_PATH_STEPS_MAX);
        size_t took = 0;
        if (text[at] == '[' || text[at] == '{') {
            took = read_iterator(arena, text + at, len - at, &steps[n]);
        } else {
            size_t dot = n > 0 && text[at] == '.';
            size_t name = name_len(text + at + dot, len - at - dot);
            took = name && (n == 0 || dot) ? dot + name : 0;
            steps[n] = (struct sb_step){.kind = SB_STEP_KEY, .name = sb_arena_text(arena, text + at + dot, name)};
        }
        if (took == 0)
            return sb_fail(err, SB_FORMAT, "path '%.*s' is not understood from '%.*s' on", (int) len, text,
                           (int) (len - at), text + at);
        if (!steps[n].name)
            return sb_fail(err, SB_NOMEM, "path '%.*s'", (int) len, text);
        at += took;
        n++;
    }
    if (len == 0)
        return sb_fail(err, SB_FORMAT, "a path is empty");

    out->n = n;
    out->steps = sb_arena_copy(arena, steps, n, sizeof steps[0]);
    if (n && !out->steps)
        return sb_fail(err, SB_NOMEM, "path '%.*s'", (int) len, text);
    return SB_OK;
}

/* An expression while it is read. */
struct reader {
    struct sb_arena *arena;
    const char *text; /* the whole, for messages */
    const char *at;
    struct sb_op ops[SB_FEED_OPS_MAX];
    size_t n_ops;
    size_t depth; /* numbers on the stack so far */
};

static void skip_space(struct reader *self)
{
    while (*self->at == ' ')
        self->at++;
}

static bool take(struct reader *self, const char *word)
{
    skip_space(self);
    if (strncmp(self->at, word, strlen(word)) != 0)
        return false;
    self->at += strlen(word);
    return true;
}

static enum sb_rc push(struct reader *self, struct sb_op op, struct sb_err *err)
{
    bool is_operand = op.kind == SB_OP_FIELD || op.kind == SB_OP_CONSTANT || op.kind == SB_OP_EQUALS;
    if (is_operand)
        self->depth++;
    else if (op.kind != SB_OP_CLAMP)
        self->depth--;
    if (self->n_ops == SB_FEED_OPS_MAX || self->depth > SB_FEED_STACK_MAX)
        return sb_fail(err, SB_FULL, "'%s' is too long", self->text);
    self->ops[self->n_ops++] = op;
    return SB_OK;
}

/* The path that starts here: it ends at a space, comma, bracket, '|' or '?'. */
static enum sb_rc read_path(struct reader *self, struct sb_path *out, struct sb_err *err)
{
    skip_space(self);
    size_t len = strcspn(self->at, " ,)|?+-");
    if (len == 0)
        return sb_fail(err, SB_FORMAT, "'%s' lacks a field at '%s'", self->text, self->at);
    const char *from = self->at;
    self->at += len;
    return sb_path_parse(self->arena, from, len, out, err);
}

static enum sb_rc read_field(struct reader *self, struct sb_err *err)
{
    struct sb_op op = {.kind = SB_OP_FIELD};
    do {
        if (op.n_paths == SB_FEED_PATHS_MAX)
            return sb_fail(err, SB_FULL, "'%s' has over %d alternatives", self->text, SB_FEED_PATHS_MAX);
        enum sb_rc rc = read_path(self, &op.paths[op.n_paths++], err);
        if (rc != SB_OK)
            return rc;
    } while (take(self, "|"));
    op.is_optional = take(self, "?");
    return push(self, op, err);
}

static enum sb_rc read_sum(struct reader *self, struct sb_err *err);

static enum sb_rc read_term(struct reader *self, struct sb_err *err)
{
    if (take(self, "max(")) {
        enum sb_rc rc = read_sum(self, err);
        if (rc != SB_OK)
            return rc;
        if (!take(self, ",") || !take(self, "0") || !take(self, ")"))
            return sb_fail(err, SB_FORMAT, "'%s': max(...) ends with ', 0)'", self->text);
        return push(self, (struct sb_op){.kind = SB_OP_CLAMP}, err);
    }
    skip_space(self);
    if (isdigit((unsigned char) *self->at)) {
        char *end;
        double number = strtod(self->at, &end);
        self->at = end;
        return push(self, (struct sb_op){.kind = SB_OP_CONSTANT, .number = number}, err);
    }
    return read_field(self, err);
}

static enum sb_rc read_sum(struct reader *self, struct sb_err *err)
{
    enum sb_rc rc = read_term(self, err);
    while (rc == SB_OK) {
        enum sb_op_kind kind = take(self, "+") ? SB_OP_ADD : take(self, "-") ? SB_OP_SUBTRACT : SB_OP_FIELD;
        if (kind == SB_OP_FIELD)
            return SB_OK;
        rc = read_term(self, err);
        if (rc == SB_OK)
            rc = push(self, (struct sb_op){.kind = kind}, err);
    }
    return rc;
}

static enum sb_rc read_is(struct reader *self, const struct sb_feed_text *text, struct sb_err *err)
{
    for (size_t i = 0; i < text->n_is; i++) {
        struct sb_op op = {.kind = SB_OP_EQUALS, .n_paths = 1};
        char *end;
        op.number = strtod(text->is[i].value, &end);
        if (end == text->is[i].value || *end != '\0')
            return sb_fail(err, SB_FORMAT, "is: '%s' is not a number", text->is[i].value);
        enum sb_rc rc = sb_path_parse(self->arena, text->is[i].name, strlen(text->is[i].name), &op.paths[0], err);
        if (rc == SB_OK)
            rc = push(self, op, err);
        if (rc == SB_OK && i > 0)
            rc = push(self, (struct sb_op){.kind = SB_OP_AND}, err);
        if (rc != SB_OK)
            return rc;
    }
    return SB_OK;
}

/* Labels of a feed: "$field" takes the field's text, anything else is itself. */
static enum sb_rc read_labels(struct sb_arena *arena, const struct sb_feed_text *text, struct sb_feed *out,
                              struct sb_err *err)
{
    struct sb_feed_label labels[SB_FEED_LABELS_MAX] = {0};
    if (text->n_labels > SB_FEED_LABELS_MAX)
        return sb_fail(err, SB_FULL, "a feed has over %d labels", SB_FEED_LABELS_MAX);

    for (size_t i = 0; i < text->n_labels; i++) {
        const char *value = text->labels[i].value;
        labels[i].name = sb_arena_text(arena, text->labels[i].name, strlen(text->labels[i].name));
        enum sb_rc rc = SB_OK;
        if (value[0] == '$')
            rc = sb_path_parse(arena, value + 1, strlen(value + 1), &labels[i].path, err);
        else
            labels[i].value = sb_arena_text(arena, value, strlen(value));
        if (rc != SB_OK)
            return rc;
        if (!labels[i].name || (value[0] != '$' && !labels[i].value))
            return sb_fail(err, SB_NOMEM, "label '%s'", text->labels[i].name);
    }
    out->n_labels = text->n_labels;
    out->labels = sb_arena_copy(arena, labels, text->n_labels, sizeof labels[0]);
    return text->n_labels && !out->labels ? sb_fail(err, SB_NOMEM, "labels of a feed") : SB_OK;
}

enum sb_rc sb_feed_parse(struct sb_arena *arena, const struct sb_feed_text *text, struct sb_feed *out,
                         struct sb_err *err)
{
    const char *each = text->each;
    const char *value = text->value;
    size_t each_len = each ? strlen(each) : 0;
    if (!value == !text->n_is)
        return sb_fail(err, SB_FORMAT, "a feed needs either value or is");

    if (!each && value) {
        const char *list = strrchr(value, ']');
        const char *map = strrchr(value, '}');
        const char *last = !list || (map && map > list) ? map : list;
        if (last) { /* "list[].field" is the field of each element, "list[]" the element itself */
            each = value;
            each_len = (size_t) (last + 1 - value);
            value = last[1] == '.' ? last + 2 : last[1] ? last + 1 : "@";
        }
    }

    *out = (struct sb_feed){.is_nonzero = text->is_nonzero};
    struct reader reader = {.arena = arena, .text = value ? value : "is", .at = value};
    enum sb_rc rc = each ? sb_path_parse(arena, each, each_len, &out->element, err) : SB_OK;
    if (rc == SB_OK)
        rc = value ? read_sum(&reader, err) : read_is(&reader, text, err);
    if (rc == SB_OK && value) {
        skip_space(&reader);
        if (*reader.at)
            rc = sb_fail(err, SB_FORMAT, "'%s' is not understood from '%s' on", value, reader.at);
    }
    if (rc == SB_OK)
        rc = read_labels(arena, text, out, err);
    if (rc != SB_OK)
        return rc;

    out->n_ops = reader.n_ops;
    out->ops = sb_arena_copy(arena, reader.ops, reader.n_ops, sizeof reader.ops[0]);
    return out->ops ? SB_OK : sb_fail(err, SB_NOMEM, "feed '%s'", reader.text);
}
