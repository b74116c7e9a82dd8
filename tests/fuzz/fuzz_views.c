/*
 * An input is the text of a file of views, read after those of the product. What was read must be whole, and a hub with
 * these views must take an agent's messages and answer scrapes of all of them.
 */
#include <assert.h>
#include <string.h>

#include "hub/render.h"
#include "hub/session.h"
#include "tests/fuzz/fuzz.h"

enum { NOW_MS = 1000, LINGER_MS = 1000 };

static const struct sb_catalog *catalog_of_the_product(void)
{
    static struct sb_catalog *catalog;
    struct sb_err err;
    if (!catalog)
        catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    assert(catalog);
    return catalog;
}

static void check(struct hub_view_specs *specs)
{
    assert(specs->n > 0 && specs->n <= HUB_VIEWS_MAX);
    for (size_t i = 0; i < specs->n; i++) {
        const struct hub_view_spec *spec = &specs->at[i];
        assert(hub_view_specs_find(specs, spec->name) == spec); /* names are unique */
        assert(spec->by.n <= HUB_VIEW_LABELS_MAX && spec->n_where <= HUB_VIEW_LABELS_MAX);
        for (size_t k = 0; k < spec->n_renames; k++)
            assert(strcmp(spec->renames[k].label, spec->renames[k].from) != 0);
    }
}

static void put_pair(struct sb_buf *out, const char *name, const char *value)
{
    sb_mp_put_str(out, name);
    sb_mp_put_str(out, value);
}

static void put_hello(struct sb_buf *out)
{
    static const uint8_t lineage[HUB_LINEAGE_BYTES] = "fuzz-lineage";
    sb_mp_put_array(out, 6);
    sb_mp_put_str(out, "HELLO");
    sb_mp_put_uint(out, HUB_WIRE_VERSION);
    sb_mp_put_str(out, "node");
    sb_mp_put_bin(out, lineage, sizeof lineage);
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "fuzz");
}

/* One histogram whose own label has the name of one that views group by. */
static void put_families(struct sb_buf *out)
{
    sb_mp_put_array(out, 1);
    sb_mp_put_array(out, 8);
    sb_mp_put_uint(out, 0);
    sb_mp_put_str(out, "fuzz:h");
    sb_mp_put_str(out, "histogram");
    sb_mp_put_nil(out);
    sb_mp_put_array(out, 1);
    sb_mp_put_float(out, 0.5);
    sb_mp_put_str(out, "");
    sb_mp_put_str(out, "histogram_latency");
    sb_mp_put_array(out, 1);
    sb_mp_put_str(out, "decode");
    sb_mp_put_array(out, 1);
    sb_mp_put_array(out, 3);
    sb_mp_put_uint(out, 0);
    sb_mp_put_uint(out, 0);
    sb_mp_put_map(out, 1);
    put_pair(out, "role", "of its own");
}

static void put_define(struct sb_buf *out)
{
    sb_mp_put_array(out, 4);
    sb_mp_put_str(out, "DEFINE");
    put_families(out);
    sb_mp_put_array(out, 1);
    sb_mp_put_array(out, 5);
    sb_mp_put_uint(out, 0);
    sb_mp_put_uint(out, 1);
    sb_mp_put_str(out, "engine");
    sb_mp_put_map(out, 2);
    put_pair(out, "job_name", "j");
    put_pair(out, "dp_rank", "0");
    sb_mp_put_map(out, 3);
    put_pair(out, "model_name", "m");
    put_pair(out, "role", "decode");
    put_pair(out, "node", "n");
}

static void put_frame(struct sb_buf *out)
{
    static const uint32_t cells[] = {0, 1, 2};
    static const double values[] = {7, 2, 0.25};
    sb_mp_put_array(out, 10);
    sb_mp_put_str(out, "FRAME");
    sb_mp_put_uint(out, 1);
    sb_mp_put_uint(out, 1);
    sb_mp_put_uint(out, 0);
    sb_mp_put_uint(out, 5);
    sb_mp_put_bool(out, true);
    sb_mp_put_bin(out, NULL, 0);
    sb_mp_put_bin(out, NULL, 0);
    sb_mp_put_bin(out, cells, sizeof cells);
    sb_mp_put_bin(out, values, sizeof values);
}

static void scrape_all(struct hub_store *store, int64_t now_ms)
{
    struct sb_buf out;
    sb_buf_init(&out, 1u << 20);
    for (size_t i = 0; i < store->n_shown_views; i++) {
        const struct hub_ask ask = {.view = &store->views[i], .now_ms = now_ms};
        struct hub_scrape *scrape = hub_scrape_new(store, &ask);
        while (scrape && hub_scrape_next(scrape, &out))
            sb_buf_clear(&out);
        sb_buf_clear(&out);
        hub_scrape_destroy(&scrape);
    }
    sb_buf_release(&out);
}

static void live(const struct hub_view_specs *specs)
{
    static void (*const story[])(struct sb_buf * out) = {put_hello, put_define, put_frame};
    static const uint8_t hub_id[HUB_ID_BYTES] = "fuzzing views";
    const struct hub_store_limits limits = {.contributions = 4, .row_bytes = 1u << 20, .linger_ms = LINGER_MS};
    struct hub_counters counters = {0};
    struct hub_store store;
    struct hub_session session;
    struct sb_buf message, answer;
    enum sb_rc rc = hub_store_init(&store, catalog_of_the_product(), specs, &counters, limits, NULL);
    assert(rc == SB_OK);
    (void) rc;
    hub_session_init(&session, &store, 1, NOW_MS);
    sb_buf_init(&message, 4096);
    sb_buf_init(&answer, 4096);
    for (size_t i = 0; i < SB_COUNT(story); i++) {
        story[i](&message);
        enum hub_refusal refusal = hub_session_take(&session, hub_id, message.data, message.len, NOW_MS, &answer);
        assert(refusal == HUB_OK);
        (void) refusal;
        sb_buf_clear(&message);
    }
    scrape_all(&store, NOW_MS);
    hub_session_release(&session);
    hub_store_sweep(&store, NOW_MS + 20 * LINGER_MS, LINGER_MS, 10 * LINGER_MS); /* closes the lineage */
    scrape_all(&store, NOW_MS + 20 * LINGER_MS);
    hub_store_release(&store);
    sb_buf_release(&message);
    sb_buf_release(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sb_catalog_file file = {.name = "fuzz.yaml", .text = (const char *) data, .len = size};
    struct hub_view_specs specs;
    struct sb_err err = {.text = ""};
    enum sb_rc rc = hub_view_specs_load(&specs, NULL, &err);
    assert(rc == SB_OK);
    rc = hub_view_specs_read(&specs, &file, &err);
    if (rc == SB_OK) {
        check(&specs);
        live(&specs);
    } else {
        assert(strstr(err.text, "fuzz.yaml") || rc == SB_NOMEM);
    }
    hub_view_specs_release(&specs);
    return 0;
}
