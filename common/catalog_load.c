/* The catalog of a daemon: what is embedded, and an operator's folder over it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/catalog.h"
#include "common/file.h"

enum { FILES_MAX = 256, LAYER_OPERATOR = 1 };

struct files {
    struct sb_catalog_file *at;
    size_t n;
};

static int is_yaml(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 5 && entry->d_name[0] != '.' && strcmp(entry->d_name + n - 5, ".yaml") == 0;
}

/* Bytes of this machine's order, not of its language. */
static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

static void release(struct files *files)
{
    for (size_t i = sb_catalog_embedded_count; i < files->n; i++) {
        free((void *) (uintptr_t) files->at[i].name);
        free((void *) (uintptr_t) files->at[i].text);
    }
    free(files->at);
}

enum sb_rc sb_catalog_file_read(struct sb_catalog_file *out, struct sb_buf *text, const char *path, const char *flag,
                                struct sb_err *err)
{
    sb_buf_init(text, SB_FILE_MAX);
    enum sb_rc rc = sb_file_read(path, text, err);
    if (rc != SB_OK)
        return sb_fail_at(err, rc, "%s", flag);
    *out = (struct sb_catalog_file){.name = path, .text = text->len ? (const char *) text->data : "", .len = text->len};
    return SB_OK;
}

/* Adds a file; its texts belong to files from then on. */
static enum sb_rc add_file(struct files *files, const char *dir, const char *name, struct sb_err *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return sb_fail(err, SB_NOMEM, "%s: no memory", dir);
    struct sb_buf text;
    sb_buf_init(&text, SB_FILE_MAX);
    enum sb_rc rc = sb_file_read(path, &text, err);
    if (rc == SB_OK) {
        sb_buf_put_byte(&text, '\0'); /* an empty file has bytes, too */
        if (text.is_overflow)
            rc = sb_fail(err, SB_FULL, "%s: the file is too large", path);
    }
    if (rc != SB_OK) {
        sb_buf_release(&text);
        free(path);
        return rc;
    }
    files->at[files->n++] = (struct sb_catalog_file){
        .name = path, .text = (const char *) text.data, .len = text.len - 1, .layer = LAYER_OPERATOR};
    return SB_OK;
}

static enum sb_rc add_folder(struct files *files, const char *dir, struct sb_err *err)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, is_yaml, by_bytes);
    if (n < 0)
        return sb_fail(err, SB_IO, "--catalog: %s: %s", dir, strerror(errno));
    enum sb_rc rc = SB_OK;
    if (n > FILES_MAX)
        rc = sb_fail(err, SB_FULL, "%s: over %d files of a catalog", dir, FILES_MAX);
    for (int i = 0; i < n; i++) {
        if (rc == SB_OK)
            rc = add_file(files, dir, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

struct sb_catalog *sb_catalog_load(const char *dir, const struct sb_prefix *prefix, struct sb_err *err)
{
    struct files files = {.at = calloc(sb_catalog_embedded_count + FILES_MAX, sizeof files.at[0])};
    if (!files.at) {
        sb_fail(err, SB_NOMEM, "the catalog");
        return NULL;
    }
    for (; files.n < sb_catalog_embedded_count; files.n++)
        files.at[files.n] = sb_catalog_embedded[files.n];
    struct sb_catalog *self = NULL;
    if (!dir || dir[0] == '\0' || add_folder(&files, dir, err) == SB_OK)
        self = sb_catalog_new_exposed(files.at, files.n, prefix, err);
    release(&files);
    return self;
}
