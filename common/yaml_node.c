#include "common/yaml_node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Half of a file must not go unread: only one document may be in it. */
static enum sb_rc check_end(yaml_parser_t *parser, const char *file, struct sb_err *err)
{
    yaml_document_t next;
    if (!yaml_parser_load(parser, &next))
        return sb_fail(err, SB_FORMAT, "%s:%zu: %s", file, parser->problem_mark.line + 1,
                       parser->problem ? parser->problem : "not YAML");
    const bool is_end = yaml_document_get_root_node(&next) == NULL;
    const size_t line = next.start_mark.line + 1;
    yaml_document_delete(&next);
    return is_end ? SB_OK
                  : sb_fail(err, SB_FORMAT, "%s:%zu: a second document begins here: only one is read", file, line);
}

enum sb_rc sb_yaml_load(struct sb_yaml *self, const char *file, const char *text, size_t len, struct sb_err *err)
{
    yaml_parser_t parser;
    *self = (struct sb_yaml){.file = file};
    if (!yaml_parser_initialize(&parser))
        return sb_fail(err, SB_NOMEM, "%s: no memory for a YAML parser", file);

    yaml_parser_set_input_string(&parser, (const unsigned char *) text, len);
    enum sb_rc rc = SB_OK;
    if (!yaml_parser_load(&parser, &self->doc))
        rc = sb_fail(err, SB_FORMAT, "%s:%zu: %s", file, parser.problem_mark.line + 1,
                     parser.problem ? parser.problem : "not YAML");
    else if (yaml_document_get_root_node(&self->doc) && (rc = check_end(&parser, file, err)) != SB_OK)
        yaml_document_delete(&self->doc);
    yaml_parser_delete(&parser);
    if (rc == SB_OK)
        self->root = yaml_document_get_root_node(&self->doc);
    return rc;
}

void sb_yaml_release(struct sb_yaml *self)
{
    yaml_document_delete(&self->doc);
    self->root = NULL;
}

size_t sb_yaml_line(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

enum sb_rc sb_yaml_fail(const struct sb_yaml *self, const yaml_node_t *node, struct sb_err *err, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(err, SB_FORMAT, "%s:%zu: %s", self->file, node ? sb_yaml_line(node) : 1, text);
}

const char *sb_yaml_text(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *) node->data.scalar.value : NULL;
}

bool sb_yaml_pair(struct sb_yaml *self, const yaml_node_t *map, size_t i, yaml_node_t **key, yaml_node_t **value)
{
    if (!map || map->type != YAML_MAPPING_NODE || i >= sb_yaml_count(map))
        return false;
    const yaml_node_pair_t *pair = map->data.mapping.pairs.start + i;
    *key = yaml_document_get_node(&self->doc, pair->key);
    *value = yaml_document_get_node(&self->doc, pair->value);
    return true;
}

bool sb_yaml_item(struct sb_yaml *self, const yaml_node_t *list, size_t i, yaml_node_t **item)
{
    if (!list || list->type != YAML_SEQUENCE_NODE || i >= sb_yaml_count(list))
        return false;
    *item = yaml_document_get_node(&self->doc, list->data.sequence.items.start[i]);
    return true;
}

size_t sb_yaml_count(const yaml_node_t *node)
{
    if (node && node->type == YAML_MAPPING_NODE)
        return (size_t) (node->data.mapping.pairs.top - node->data.mapping.pairs.start);
    if (node && node->type == YAML_SEQUENCE_NODE)
        return (size_t) (node->data.sequence.items.top - node->data.sequence.items.start);
    return 0;
}

yaml_node_t *sb_yaml_get(struct sb_yaml *self, const yaml_node_t *map, const char *key)
{
    yaml_node_t *name, *value;
    for (size_t i = 0; sb_yaml_pair(self, map, i, &name, &value); i++)
        if (sb_yaml_text(name) && strcmp(sb_yaml_text(name), key) == 0)
            return value;
    return NULL;
}

static bool is_known(const char *text, const char *const *known)
{
    while (*known && strcmp(*known, text) != 0)
        known++;
    return *known != NULL;
}

enum sb_rc sb_yaml_check_keys(struct sb_yaml *self, const yaml_node_t *map, const char *const *known, const char *what,
                              struct sb_err *err)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return sb_yaml_fail(self, map, err, "%s must be a map", what);
    yaml_node_t *name, *value;
    for (size_t i = 0; sb_yaml_pair(self, map, i, &name, &value); i++) {
        const char *text = sb_yaml_text(name);
        if (!text || !is_known(text, known))
            return sb_yaml_fail(self, name, err, "%s: '%s' is not a key that is known here", what, text ? text : "?");
        if (sb_yaml_get(self, map, text) != value)
            return sb_yaml_fail(self, name, err, "%s: '%s' stands here twice", what, text);
    }
    return SB_OK;
}

enum sb_rc sb_yaml_check_document(struct sb_yaml *self, const char *const *keys, const char *what, struct sb_err *err)
{
    enum sb_rc rc = sb_yaml_check_keys(self, self->root, keys, what, err);
    if (rc != SB_OK)
        return rc;
    const char *version = sb_yaml_text(sb_yaml_get(self, self->root, "version"));
    if (!version || strcmp(version, "1") != 0)
        return sb_yaml_fail(self, self->root, err, "version must be 1");
    return SB_OK;
}

enum sb_rc sb_yaml_entries(struct sb_yaml *self, const char *name, const char *noun, sb_yaml_entry add, void *arg,
                           struct sb_err *err)
{
    yaml_node_t *map = sb_yaml_get(self, self->root, name);
    if (!map || map->type != YAML_MAPPING_NODE)
        return sb_yaml_fail(self, map ? map : self->root, err, "%s must be a map", name);
    yaml_node_t *key, *node;
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && sb_yaml_pair(self, map, i, &key, &node); i++) {
        const char *text = sb_yaml_text(key);
        if (text && sb_yaml_get(self, map, text) != node)
            return sb_yaml_fail(self, key, err, "%s'%s' stands here twice", noun, text);
        rc = add(arg, key, node, err);
    }
    return rc;
}

enum sb_rc sb_yaml_string(struct sb_yaml *self, const yaml_node_t *map, const char *key, bool is_needed,
                          struct sb_arena *arena, const char **out, struct sb_err *err)
{
    yaml_node_t *node = sb_yaml_get(self, map, key);
    *out = NULL;
    if (!node)
        return is_needed ? sb_yaml_fail(self, map, err, "'%s' is missing", key) : SB_OK;
    if (!sb_yaml_text(node))
        return sb_yaml_fail(self, node, err, "'%s' must be text", key);
    *out = sb_arena_text(arena, sb_yaml_text(node), node->data.scalar.length);
    return *out ? SB_OK : sb_fail(err, SB_NOMEM, "%s: '%s'", self->file, key);
}

enum sb_rc sb_yaml_strings(struct sb_yaml *self, const yaml_node_t *node, const char *name, struct sb_arena *arena,
                           const char *const **out, size_t *n, struct sb_err *err)
{
    size_t count = sb_yaml_count(node);
    if (node->type != YAML_SEQUENCE_NODE)
        return sb_yaml_fail(self, node, err, "'%s' must be a list: [a, b]", name);
    if (count == 0)
        return sb_yaml_fail(self, node, err, "'%s' is an empty list", name);
    const char **texts = sb_arena_get(arena, count * sizeof *texts);
    yaml_node_t *item;
    for (size_t i = 0; texts && sb_yaml_item(self, node, i, &item); i++) {
        if (!sb_yaml_text(item))
            return sb_yaml_fail(self, item, err, "'%s': item %zu of the list must be text", name, i);
        texts[i] = sb_arena_text(arena, sb_yaml_text(item), item->data.scalar.length);
        if (!texts[i])
            texts = NULL;
    }
    if (!texts)
        return sb_fail(err, SB_NOMEM, "%s: list of texts", self->file);
    *out = texts;
    *n = count;
    return SB_OK;
}

enum sb_rc sb_yaml_number(const struct sb_yaml *self, const yaml_node_t *node, double *out, struct sb_err *err)
{
    const char *text = sb_yaml_text(node);
    char *end = NULL;
    double number = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end)
        return sb_yaml_fail(self, node, err, "'%s' is not a number", text ? text : "?");
    *out = number;
    return SB_OK;
}
