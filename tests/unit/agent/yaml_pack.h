/* Test messages written as YAML flow text ({a: 1, b: [0.5, null], c: "text"}) and packed to msgpack. */
#ifndef YAML_PACK_H
#define YAML_PACK_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/mp.h"
#include "common/yaml_node.h"

static void pack_scalar(struct sb_buf *out, const yaml_node_t *node)
{
    const char *text = sb_yaml_text(node);
    char *end;
    double number = strtod(text, &end);
    bool is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (!is_plain)
        sb_mp_put_str(out, text);
    else if (strcmp(text, "null") == 0)
        sb_mp_put_nil(out);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        sb_mp_put_bool(out, *text == 't');
    else if (strcmp(text, ".nan") == 0)
        sb_mp_put_float(out, NAN);
    else if (strcmp(text, ".inf") == 0)
        sb_mp_put_float(out, INFINITY);
    else if (end == text || *end)
        sb_mp_put_str(out, text);
    else if (strpbrk(text, ".e") || number < 0)
        sb_mp_put_float(out, number);
    else
        sb_mp_put_uint(out, (uint64_t) number);
}

static void pack_node(struct sb_yaml *yaml, struct sb_buf *out, const yaml_node_t *node)
{
    yaml_node_t *key, *value;
    if (node->type == YAML_MAPPING_NODE) {
        sb_mp_put_map(out, (uint32_t) sb_yaml_count(node));
        for (size_t i = 0; sb_yaml_pair(yaml, node, i, &key, &value); i++) {
            pack_node(yaml, out, key);
            pack_node(yaml, out, value);
        }
    } else if (node->type == YAML_SEQUENCE_NODE) {
        sb_mp_put_array(out, (uint32_t) sb_yaml_count(node));
        for (size_t i = 0; sb_yaml_item(yaml, node, i, &value); i++)
            pack_node(yaml, out, value);
    } else {
        pack_scalar(out, node);
    }
}

/* Appends the message that `text` describes. */
static inline void pack_yaml(struct sb_buf *out, const char *text)
{
    struct sb_yaml yaml;
    struct sb_err err;
    enum sb_rc rc = sb_yaml_load(&yaml, "test", text, strlen(text), &err);
    if (rc != SB_OK)
        abort();
    pack_node(&yaml, out, yaml.root);
    sb_yaml_release(&yaml);
}

#endif
