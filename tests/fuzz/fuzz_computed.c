/* An input is the text of a file of computed metrics: read it, and let a store compute them. */
#include <assert.h>
#include <string.h>

#include "hub/render.h"
#include "hub/store.h"
#include "tests/fuzz/fuzz.h"

static void compute(const struct hub_computed_specs *specs, const struct sb_catalog *catalog)
{
    static const struct hub_expectations none;
    struct hub_view_specs views;
    struct hub_counters counters = {.messages = 0};
    struct hub_store store;
    struct sb_err err;
    const struct hub_store_limits limits = {.contributions = 1, .row_bytes = 1 << 20, .linger_ms = 1000};
    if (hub_view_specs_load(&views, NULL, &err) != SB_OK)
        return;
    if (hub_store_init(&store, catalog, &views, &counters, limits, &err) == SB_OK) {
        const enum sb_rc rc = hub_store_compute(&store, specs, &none, 1000, &err);
        assert(rc == SB_OK || rc == SB_NOMEM || strstr(err.text, "fuzz.yaml:"));
        hub_computed_begin_round(&store, 1000);
        while (hub_computed_go_on(&store)) {
        }
        hub_store_release(&store);
    }
    hub_view_specs_release(&views);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sb_catalog *catalog;
    static struct hub_computed_specs specs;
    struct sb_err err;
    if (!catalog)
        catalog = sb_catalog_load(NULL, NULL, &err);
    assert(catalog);
    const struct sb_catalog_file file = {.name = "fuzz.yaml", .text = (const char *) data, .len = size};
    specs = (struct hub_computed_specs){.prefix = "motor_"};
    sb_arena_init(&specs.arena);
    if (hub_computed_specs_read(&specs, &file, catalog, &err) == SB_OK) {
        for (size_t i = 0; i < specs.n; i++) {
            const struct hub_computed_spec *spec = &specs.at[i];
            assert(strncmp(spec->name, "motor_", 6) == 0 && spec->help && spec->type < HUB_COMPUTES);
            assert(spec->roles.n <= HUB_COMPUTED_ROLES_MAX && spec->sources.n <= HUB_COMPUTED_SOURCES_MAX);
            assert(spec->backlog.n == 0 || spec->backlog.n == 2);
        }
        compute(&specs, catalog);
    } else {
        assert(strstr(err.text, "fuzz.yaml") || err.rc == SB_NOMEM);
    }
    hub_computed_specs_release(&specs);
    return 0;
}
