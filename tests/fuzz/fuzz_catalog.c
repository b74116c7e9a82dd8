/* An input is the text of a catalog file: read it, and what was read must be whole. */
#include <assert.h>
#include <string.h>

#include "common/catalog.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sb_catalog_file file = {.name = "fuzz.yaml", .text = (const char *) data, .len = size};
    struct sb_err err;
    struct sb_catalog *catalog = sb_catalog_new(&file, 1, &err);
    if (!catalog) {
        assert(strstr(err.text, "fuzz.yaml") || err.rc == SB_NOMEM);
        return 0;
    }
    for (size_t i = 0; i < catalog->n_families; i++) {
        const struct sb_family *family = &catalog->families[i];
        assert(sb_catalog_family(catalog, family->name, strlen(family->name)) == family);
        assert(!family->bucket_set || sb_catalog_bucket_set(catalog, family->bucket_set));
        assert(!family->feature || sb_catalog_feature(catalog, family->feature));
    }
    sb_catalog_destroy(&catalog);
    return 0;
}
