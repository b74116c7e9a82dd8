/* Reading the catalog's YAML into a catalog under construction. Private to catalog.c. */
#ifndef SB_CATALOG_READ_H
#define SB_CATALOG_READ_H

#include "arena.h"
#include "catalog.h"

enum { SB_CATALOG_ITEMS_MAX = 4096 }; /* families, features, bucket sets or roots */

struct sb_catalog_draft {
    struct sb_catalog catalog; /* its arrays are the ones below */
    struct sb_arena arena;     /* everything else */
    struct sb_family *families;
    struct sb_feature *features;
    struct sb_bucket_set *bucket_sets;
    struct sb_root *roots;
    unsigned n_groups;
};

/* Adds one file. The text of *err is "file:line: reason". */
enum sb_rc sb_catalog_read(struct sb_catalog_draft *draft, const struct sb_catalog_file *file, struct sb_err *err)
    SB_CHECK;

/* What can be judged only when all files are read: references, clashing names. */
enum sb_rc sb_catalog_check(struct sb_catalog_draft *draft, struct sb_err *err) SB_CHECK;

#endif
