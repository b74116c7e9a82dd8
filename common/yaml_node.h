/* Walking a YAML document of libyaml with messages that say file and line. For the readers of YAML (catalog, settings,
 * views). */
#ifndef SB_YAML_NODE_H
#define SB_YAML_NODE_H

#include <stdbool.h>
#include <yaml.h>

#include "arena.h"
#include "err.h"

struct sb_yaml {
    const char *file;
    yaml_document_t doc;
    yaml_node_t *root; /* NULL: an empty document */
};

/* Reads one document; sb_yaml_release it when SB_OK. SB_FORMAT: "file:line: reason". */
enum sb_rc sb_yaml_load(struct sb_yaml *self, const char *file, const char *text, size_t len, struct sb_err *err)
    SB_CHECK;
void sb_yaml_release(struct sb_yaml *self);

size_t sb_yaml_line(const yaml_node_t *node); /* from 1 */

/* SB_FORMAT with "file:line: " before the message. */
enum sb_rc sb_yaml_fail(const struct sb_yaml *self, const yaml_node_t *node, struct sb_err *err, const char *fmt, ...)
    SB_PRINTF(4, 5);

/* A scalar's text (NUL-terminated by libyaml), or NULL for other nodes. */
const char *sb_yaml_text(const yaml_node_t *node);

/* The i-th pair of a map or item of a list; false past the end or for another kind of node. */
bool sb_yaml_pair(struct sb_yaml *self, const yaml_node_t *map, size_t i, yaml_node_t **key, yaml_node_t **value);
bool sb_yaml_item(struct sb_yaml *self, const yaml_node_t *list, size_t i, yaml_node_t **item);
size_t sb_yaml_count(const yaml_node_t *node); /* pairs or items; 0 for scalars */

/* The value of a key of a map, or NULL. */
yaml_node_t *sb_yaml_get(struct sb_yaml *self, const yaml_node_t *map, const char *key);

/* Every key of the map is one of `known` (NULL at its end) and none comes twice. */
enum sb_rc sb_yaml_check_keys(struct sb_yaml *self, const yaml_node_t *map, const char *const *known, const char *what,
                              struct sb_err *err) SB_CHECK;

/* A document of ours has these keys and no others, and is of version 1. */
enum sb_rc sb_yaml_check_document(struct sb_yaml *self, const char *const *keys, const char *what, struct sb_err *err)
    SB_CHECK;

/* One entry of a map; its name is the text of key, if it has one. */
typedef enum sb_rc (*sb_yaml_entry)(void *arg, yaml_node_t *key, yaml_node_t *node, struct sb_err *err);
/* Gives each entry of the map that the document has under `name` to `add`. A name comes once; `noun` ("view ", or "")
 * stands before one that doesn't in the message. */
enum sb_rc sb_yaml_entries(struct sb_yaml *self, const char *name, const char *noun, sb_yaml_entry add, void *arg,
                           struct sb_err *err) SB_CHECK;

/* The scalar under a key, copied into the arena: NULL in *out when the key is absent (then an error if is_needed). */
enum sb_rc sb_yaml_string(struct sb_yaml *self, const yaml_node_t *map, const char *key, bool is_needed,
                          struct sb_arena *arena, const char **out, struct sb_err *err) SB_CHECK;

/* The list of scalars at `node`, copied into the arena. `name` is the key that has it, for messages. */
enum sb_rc sb_yaml_strings(struct sb_yaml *self, const yaml_node_t *node, const char *name, struct sb_arena *arena,
                           const char *const **out, size_t *n, struct sb_err *err) SB_CHECK;

enum sb_rc sb_yaml_number(const struct sb_yaml *self, const yaml_node_t *node, double *out, struct sb_err *err)
    SB_CHECK;

#endif
