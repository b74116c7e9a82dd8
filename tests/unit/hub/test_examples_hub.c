/* The example messages of schemas/examples/hub, read and written by the hub's real session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "hub/session.h"

enum { EXAMPLE_MAX = 64 * 1024 };

/* The hub id in the example of WELCOME. */
static const uint8_t hub_id[HUB_ID_BYTES] = {0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8,
                                             0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf, 0xc0};

struct example {
    uint8_t bytes[EXAMPLE_MAX];
    size_t n;
};

struct world {
    struct sb_catalog *catalog;
    struct hub_view_specs views;
    struct hub_counters counters;
    struct hub_store store;
    struct hub_session session;
    struct sb_buf answer;
};

static struct example load(const char *name)
{
    char path[512];
    struct example out = {.n = 0};
    assert_true(snprintf(path, sizeof path, SOURCE_DIR "/schemas/examples/hub/%s.msgpack", name) < (int) sizeof path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out.n = fread(out.bytes, 1, sizeof out.bytes, file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(out.n, 1, sizeof out.bytes - 1);
    return out;
}

static int make(void **state)
{
    static struct world world;
    const struct hub_store_limits limits = {.contributions = 16, .row_bytes = 1u << 20};
    struct sb_err err;
    memset(&world, 0, sizeof world);
    world.catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    if (!world.catalog || hub_view_specs_load(&world.views, NULL, &err) != SB_OK ||
        hub_store_init(&world.store, world.catalog, &world.views, &world.counters, limits, &err) != SB_OK)
        return -1;
    hub_session_init(&world.session, &world.store, 1, 1000);
    sb_buf_init(&world.answer, 1u << 20);
    *state = &world;
    return 0;
}

static int drop(void **state)
{
    struct world *world = *state;
    hub_session_release(&world->session);
    hub_store_release(&world->store);
    hub_view_specs_release(&world->views);
    sb_catalog_destroy(&world->catalog);
    sb_buf_release(&world->answer);
    return 0;
}

static void take(struct world *world, const char *name)
{
    const struct example example = load(name);
    const enum hub_refusal refusal =
        hub_session_take(&world->session, hub_id, example.bytes, example.n, 1000, &world->answer);
    if (refusal != HUB_OK)
        fail_msg("%s is refused: %s", name, hub_refusal_text(refusal));
}

static void a_session_is_taken_and_answered_as_the_examples_say(void **state)
{
    struct world *world = *state;
    take(world, "HELLO");
    assert_true(world->answer.len > 0); /* WELCOME, with generation 0: the example's is of a hub that has seen 16 */
    sb_buf_clear(&world->answer);
    take(world, "DEFINE");
    take(world, "FRAME");
    take(world, "FRAME-alone");

    const struct example ack = load("ACK");
    hub_session_pack_ack(&world->session, &world->answer);
    assert_int_equal(world->answer.len, ack.n);
    assert_memory_equal(world->answer.data, ack.bytes, ack.n);

    assert_int_equal(world->counters.frames, 1);
    take(world, "END");
    take(world, "FORGET");
}

static void welcome_names_the_highest_generation_that_was_seen(void **state)
{
    struct world *world = *state;
    take(world, "HELLO");
    take(world, "DEFINE");
    take(world, "FRAME"); /* of generation 17 */
    hub_session_release(&world->session);
    hub_session_init(&world->session, &world->store, 2, 2000);
    sb_buf_clear(&world->answer);
    take(world, "HELLO");
    struct example welcome = load("WELCOME");
    assert_int_equal(welcome.bytes[welcome.n - 2], 16);
    welcome.bytes[welcome.n - 2] = 17;
    assert_int_equal(world->answer.len, welcome.n);
    assert_memory_equal(world->answer.data, welcome.bytes, welcome.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_is_taken_and_answered_as_the_examples_say, make, drop),
        cmocka_unit_test_setup_teardown(welcome_names_the_highest_generation_that_was_seen, make, drop),
    };
    return cmocka_run_group_tests_name("examples for the hub", tests, NULL, NULL);
}
