/* Reading the catalog's YAML into a catalog under construction. Private to catalog.c. */
#ifndef SB_CATALOG_READ_H
#define SB_CATALOG_READ_H

#include "arena.h"
#include "catalog.h"
#include "yaml_node.h"

enum { SB_CATALOG_ITEMS_MAX = 4096 }; /* of one kind: families, features, ... */

struct sb_catalog_draft {
    struct sb_catalog catalog; /* its arrays are the ones below */
    struct sb_arena arena;     /* everything else */
    struct sb_family *families;
    struct sb_feature *features;
    struct sb_bucket_set *bucket_sets;
    struct sb_root *roots;
    struct sb_derived *derived;
    unsigned n_groups;
};

/* What every reader of a part gets. */
struct sb_catalog_reader {
    struct sb_catalog_draft *draft;
    struct sb_arena *arena;
    struct sb_yaml yaml;
    unsigned layer;
};

/* The name of a family as it is exposed, for ever; NULL: out of memory. */
const char *sb_catalog_name(struct sb_catalog_reader *self, const char *written);

/* Adds one file. The text of *err is "file:line: reason". */
enum sb_rc sb_catalog_read(struct sb_catalog_draft *draft, const struct sb_catalog_file *file, struct sb_err *err)
    SB_CHECK;

/* What can be judged only when all files are read: references, clashing names. */
enum sb_rc sb_catalog_check(struct sb_catalog_draft *draft, struct sb_err *err) SB_CHECK;

/* Where a new item goes: over one of the same name from a lower layer (`known`, from 0; SIZE_MAX: there is none), or to
 * the end of *array_p, for which room is made. */
enum sb_rc sb_catalog_place(void *array_p, size_t n, size_t size, size_t known, size_t *at, struct sb_err *err)
    SB_CHECK;

/* catalog_derived.c: the quantiles of a family, and one item of `derived`. */
enum sb_rc sb_catalog_read_quantiles(struct sb_catalog_reader *self, yaml_node_t *node, struct sb_family *family,
                                     struct sb_err *err) SB_CHECK;
enum sb_rc sb_catalog_read_derived(struct sb_catalog_reader *self, const char *name, yaml_node_t *node,
                                   struct sb_err *err) SB_CHECK;

#endif
