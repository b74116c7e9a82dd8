/* An input is a row of messages of one session, each with its length before it, as an agent sends them. */
#include <assert.h>

#include "hub/render.h"
#include "hub/session.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t hub_id[HUB_ID_BYTES] = "fuzzing the hub";

static const struct sb_catalog *catalog_of_the_product(void)
{
    static struct sb_catalog *catalog;
    struct sb_err err;
    if (!catalog)
        catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    assert(catalog);
    return catalog;
}

static const struct hub_view_specs *views_of_the_product(void)
{
    static struct hub_view_specs views;
    enum sb_rc rc = views.n > 0 ? SB_OK : hub_view_specs_load(&views, NULL, NULL);
    assert(rc == SB_OK);
    (void) rc;
    return &views;
}

static void scrape_all(struct hub_store *store, int64_t now_ms)
{
    struct sb_buf out;
    sb_buf_init(&out, 64u << 20);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct hub_counters counters = {0};
    struct hub_store store;
    struct hub_session session;
    struct sb_buf answer;
    struct sb_err err;
    int64_t now_ms = 1000;

    const enum sb_rc rc = hub_store_init(&store, catalog_of_the_product(), views_of_the_product(), &counters,
                                         (struct hub_store_limits){.contributions = 64, .row_bytes = 16u << 20}, &err);
    assert(rc == SB_OK);
    (void) rc;
    hub_session_init(&session, &store, 1, now_ms);
    sb_buf_init(&answer, 1u << 20);
    while (input.left > 0) {
        const struct sb_slice message = fuzz_piece(&input);
        if (hub_session_take(&session, hub_id, message.at, message.len, now_ms, &answer) != HUB_OK) {
            hub_session_release(&session); /* refused: the agent starts a new one */
            hub_session_init(&session, &store, 2, now_ms);
        }
        hub_session_pack_ack(&session, &answer);
        sb_buf_clear(&answer);
        now_ms += 100;
    }
    scrape_all(&store, now_ms);
    hub_store_sweep(&store, now_ms + 20000, 15000, 60000);
    hub_session_release(&session);
    hub_store_sweep(&store, now_ms + 100000, 15000, 60000);
    scrape_all(&store, now_ms + 100000);
    hub_store_release(&store);
    sb_buf_release(&answer);
    return 0;
}
