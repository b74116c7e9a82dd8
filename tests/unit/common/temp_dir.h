/* A directory of its own for a test, gone afterwards. */
#ifndef TEMP_DIR_H
#define TEMP_DIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmocka_all.h"

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void) info;
    (void) kind;
    (void) walk;
    return remove(path);
}

static inline int temp_dir_make(void **state)
{
    char *path = strdup("/tmp/statsbus-test-XXXXXX");
    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    *state = path;
    return 0;
}

static inline int temp_dir_drop(void **state)
{
    nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

/* "DIR/name", written to out. */
static inline const char *temp_path(void **state, char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", (const char *) *state, name);
    return out;
}

#endif
