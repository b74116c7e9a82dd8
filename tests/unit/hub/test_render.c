#include "hub_test.h"

static int open_world(void **state)
{
    static struct world world;
    world_open(&world);
    *state = &world;
    return 0;
}

static int close_world(void **state)
{
    world_close(*state);
    return 0;
}

static void two_ranks_are_two_rows_in_dp_and_one_in_full(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 2);
    assert_int_equal(
        send_frame(
            world, &session,
            (struct test_frame){.number = 1,
                                .contribution = 0,
                                .n_gauges = 5,
                                .gauges = {{C_RUNNING, 3}, {C_USAGE, 0.5}, {C_HOT, 7}, {C_INFO_A, 1}, {C_INFO_B, 2}},
                                .n_cells = 6,
                                .cells = {{C_TOKENS, 10},
                                          {C_ABORTED, 0},
                                          {C_WAIT, 1},
                                          {C_WAIT + 1, 2},
                                          {C_WAIT + 2, 0},
                                          {C_WAIT + 3, 1.25}}}),
        HUB_OK);
    assert_int_equal(
        send_frame(world, &session,
                   (struct test_frame){
                       .number = 2,
                       .contribution = 1,
                       .n_gauges = 4,
                       .gauges = {{C_INFO_A, 5}, {C_HOT, 4}, {C_USAGE, 0.25}, {C_RUNNING, 1}},
                       .n_cells = 5,
                       .cells = {{C_TOKENS, 5}, {C_WAIT, 3}, {C_WAIT + 1, 0}, {C_WAIT + 2, 4}, {C_WAIT + 3, 9.5}}}),
        HUB_OK);
#define R0 "dp_rank=\"0\",instance_id=\"i-1\",model_name=\"m\",role=\"both\",service_name=\"s\""
#define R1 "dp_rank=\"1\",instance_id=\"i-1\",model_name=\"m\",role=\"both\",service_name=\"s\""
#define RF "model_name=\"m\",service_name=\"s\""
    assert_scrape(world, "dp",
                  "# TYPE t:hot gauge\n"
                  "t:hot{" R0 "} 7\n"
                  "t:hot{" R1 "} 4\n"
                  "# TYPE t:info gauge\n"
                  "t:info{" R0 ",what=\"a\"} 1\n"
                  "t:info{" R0 ",what=\"b\"} 2\n"
                  "t:info{" R1 ",what=\"a\"} 5\n"
                  "# TYPE t:running gauge\n"
                  "t:running{" R0 "} 3\n"
                  "t:running{" R1 "} 1\n"
                  "# TYPE t:tokens_total counter\n"
                  "t:tokens_total{" R0 "} 10\n"
                  "t:tokens_total{" R0 ",reason=\"abort\"} 0\n"
                  "t:tokens_total{" R1 "} 5\n"
                  "# TYPE t:usage gauge\n"
                  "t:usage{" R0 "} 0.5\n"
                  "t:usage{" R1 "} 0.25\n"
                  "# TYPE t:wait_seconds histogram\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"0.5\"} 1\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"1.0\"} 3\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"+Inf\"} 3\n"
                  "t:wait_seconds_sum{" R0 "} 1.25\n"
                  "t:wait_seconds_count{" R0 "} 3\n"
                  "t:wait_seconds_bucket{" R1 ",le=\"0.5\"} 3\n"
                  "t:wait_seconds_bucket{" R1 ",le=\"1.0\"} 3\n"
                  "t:wait_seconds_bucket{" R1 ",le=\"+Inf\"} 7\n"
                  "t:wait_seconds_sum{" R1 "} 9.5\n"
                  "t:wait_seconds_count{" R1 "} 7\n");
    assert_scrape(world, "full",
                  "# TYPE t:hot gauge\n"
                  "t:hot{" RF "} 7\n"
                  "# TYPE t:info gauge\n"
                  "t:info{" RF ",what=\"a\"} 5\n"
                  "t:info{" RF ",what=\"b\"} 2\n"
                  "# TYPE t:running gauge\n"
                  "t:running{" RF "} 4\n"
                  "# TYPE t:tokens_total counter\n"
                  "t:tokens_total{" RF "} 15\n"
                  "t:tokens_total{" RF ",reason=\"abort\"} 0\n"
                  "# TYPE t:usage gauge\n"
                  "t:usage{" RF "} 0.375\n"
                  "# TYPE t:wait_seconds histogram\n"
                  "t:wait_seconds_bucket{" RF ",le=\"0.5\"} 4\n"
                  "t:wait_seconds_bucket{" RF ",le=\"1.0\"} 6\n"
                  "t:wait_seconds_bucket{" RF ",le=\"+Inf\"} 10\n"
                  "t:wait_seconds_sum{" RF "} 10.75\n"
                  "t:wait_seconds_count{" RF "} 10\n");
    hub_session_release(&session);
}

static void openmetrics_has_its_own_names_units_and_end(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_int_equal(
        send_frame(world, &session,
                   (struct test_frame){.number = 1, .n_cells = 2, .cells = {{C_TOKENS, 10}, {C_WAIT + 2, 1}}}),
        HUB_OK);
    assert_scrape_as(world, "full", SB_EXPO_OPENMETRICS,
                     "# TYPE t:tokens counter\n"
                     "t:tokens_total{" RF "} 10\n"
                     "# TYPE t:wait_seconds histogram\n"
                     "# UNIT t:wait_seconds seconds\n"
                     "t:wait_seconds_bucket{" RF ",le=\"0.5\"} 0\n"
                     "t:wait_seconds_bucket{" RF ",le=\"1.0\"} 0\n"
                     "t:wait_seconds_bucket{" RF ",le=\"+Inf\"} 1\n"
                     "t:wait_seconds_sum{" RF "} 0\n"
                     "t:wait_seconds_count{" RF "} 1\n"
                     "# EOF\n");
    hub_session_release(&session);
}

static void an_empty_hub_prints_nothing_but_the_end(void **state)
{
    assert_scrape(*state, "full", "");
    assert_scrape_as(*state, "dp", SB_EXPO_OPENMETRICS, "# EOF\n");
}

static void own_labels_give_way_to_those_of_the_view(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    define_family(world, &session, F_NEXT, "x:seen_total", "counter", NULL, 0, C_NEXT,
                  "dp_rank=7,instance=i,le=1,stage=2,exported_instance=e");
    assert_int_equal(
        send_frame(world, &session, (struct test_frame){.number = 1, .n_cells = 1, .cells = {{C_NEXT, 1}}}), HUB_OK);
    assert_scrape(world, "dp",
                  "# TYPE x:seen_total counter\n"
                  "x:seen_total{" R0 ",exported_dp_rank=\"7\",exported_instance=\"e\",exported_exported_instance=\"i\","
                  "exported_le=\"1\",stage=\"2\"} 1\n");
    assert_scrape(world, "full",
                  "# TYPE x:seen_total counter\n"
                  "x:seen_total{" RF ",dp_rank=\"7\",exported_instance=\"e\",exported_exported_instance=\"i\","
                  "exported_le=\"1\",stage=\"2\"} 1\n");
    hub_session_release(&session);
}

static void unset_labels_are_not_printed_and_models_never_mix(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 0);
    struct sb_buf *buf = begin(world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 3);
    put_contribution(buf, 0, 1, "engine", "job_name=j,dp_rank=0", "model_name=a");
    put_contribution(buf, 1, 2, "engine", "job_name=k,dp_rank=0", "model_name=b,instance_id=");
    put_contribution(buf, 2, 3, "front-end", "job_name=j", "model_name=a,role=both");
    assert_int_equal(deliver(world, &session), HUB_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(
            send_frame(
                world, &session,
                (struct test_frame){.number = i + 1, .contribution = i, .n_cells = 1, .cells = {{C_TOKENS, i + 1}}}),
            HUB_OK);
    assert_scrape(world, "dp",
                  "# TYPE t:tokens_total counter\n"
                  "t:tokens_total{dp_rank=\"0\",model_name=\"a\"} 1\n"
                  "t:tokens_total{dp_rank=\"0\",model_name=\"b\"} 2\n"
                  "t:tokens_total{model_name=\"a\",role=\"both\"} 3\n");
    assert_scrape(world, "full",
                  "# TYPE t:tokens_total counter\n"
                  "t:tokens_total{model_name=\"a\"} 4\n"
                  "t:tokens_total{model_name=\"b\"} 2\n");
    hub_session_release(&session);
}

/* Case 2. */
static void unlike_bounds_are_merged_on_what_they_share(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 2);
    static const double wide[] = {0.5};
    define_family(world, &session, F_NEXT, "t:wait_seconds", "histogram", wide, 1, C_NEXT, "");
    assert_int_equal(
        send_frame(world, &session,
                   (struct test_frame){.number = 1,
                                       .n_cells = 4,
                                       .cells = {{C_WAIT, 10}, {C_WAIT + 1, 2}, {C_WAIT + 2, 8}, {C_WAIT + 3, 100}}}),
        HUB_OK);
    assert_int_equal(send_frame(world, &session,
                                (struct test_frame){.number = 2,
                                                    .contribution = 1,
                                                    .n_cells = 3,
                                                    .cells = {{C_NEXT, 5}, {C_NEXT + 1, 4}, {C_NEXT + 2, 50}}}),
                     HUB_OK);
    assert_scrape(world, "full",
                  "# TYPE t:wait_seconds histogram\n"
                  "t:wait_seconds_bucket{" RF ",le=\"0.5\"} 15\n"
                  "t:wait_seconds_bucket{" RF ",le=\"+Inf\"} 29\n"
                  "t:wait_seconds_sum{" RF "} 150\n"
                  "t:wait_seconds_count{" RF "} 29\n");
    assert_scrape(world, "dp",
                  "# TYPE t:wait_seconds histogram\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"0.5\"} 10\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"1.0\"} 12\n"
                  "t:wait_seconds_bucket{" R0 ",le=\"+Inf\"} 20\n"
                  "t:wait_seconds_sum{" R0 "} 100\n"
                  "t:wait_seconds_count{" R0 "} 20\n"
                  "t:wait_seconds_bucket{" R1 ",le=\"0.5\"} 5\n"
                  "t:wait_seconds_bucket{" R1 ",le=\"+Inf\"} 9\n"
                  "t:wait_seconds_sum{" R1 "} 50\n"
                  "t:wait_seconds_count{" R1 "} 9\n");
    assert_int_equal(hub_index_find(&world->store.index, "t:wait_seconds")->n_variants, 2);
    hub_session_release(&session);
}

static void bounds_with_nothing_in_common_leave_the_infinite_bucket(void **state)
{
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    static const double other[] = {0.4, 2};
    define_family(world, &session, F_NEXT, "t:wait_seconds", "histogram", other, 2, C_NEXT, "");
    assert_int_equal(
        send_frame(world, &session,
                   (struct test_frame){.number = 1,
                                       .n_cells = 4,
                                       .cells = {{C_WAIT, 1}, {C_WAIT + 3, 0.25}, {C_NEXT + 1, 2}, {C_NEXT + 3, 3}}}),
        HUB_OK);
    assert_scrape(world, "full",
                  "# TYPE t:wait_seconds histogram\n"
                  "t:wait_seconds_bucket{" RF ",le=\"+Inf\"} 3\n"
                  "t:wait_seconds_sum{" RF "} 3.25\n"
                  "t:wait_seconds_count{" RF "} 3\n");
    hub_session_release(&session);
}

/* Rows, families and members come and go between the pieces of a scrape: what is left is printed whole and once. */
static void a_scrape_survives_what_comes_and_goes(void **state)
{
    enum { RANKS = 600 };
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = i + 1,
                                                        .contribution = i,
                                                        .n_gauges = 1,
                                                        .gauges = {{C_RUNNING, 1}},
                                                        .n_cells = 2,
                                                        .cells = {{C_TOKENS, i}, {C_WAIT, 1}}}),
                         HUB_OK);
    }
    struct sb_buf piece;
    struct sb_buf all;
    sb_buf_init(&piece, 16 * 1024 * 1024);
    sb_buf_init(&all, 16 * 1024 * 1024);
    struct hub_scrape *scrape =
        hub_scrape_new(&world->store, hub_store_view(&world->store, "dp"), SB_EXPO_TEXT, NULL, NULL);
    assert_non_null(scrape);

    uint32_t pieces = 0;
    while (hub_scrape_next(scrape, &piece)) {
        sb_buf_put(&all, piece.data, piece.len);
        sb_buf_clear(&piece);
        pieces++;
        /* The first, the last and a middle rank go; families appear before and behind the cursor. */
        hub_store_remove(&world->store, hub_store_find(&world->store, session.lineage, pieces));
        hub_store_remove(&world->store, hub_store_find(&world->store, session.lineage, RANKS + 1 - pieces));
        hub_store_remove(&world->store, hub_store_find(&world->store, session.lineage, RANKS / 2 + pieces));
        char name[32];
        snprintf(name, sizeof name, "%c:later%u_total", pieces % 2 ? 'a' : 'x', pieces);
        define_family(world, &session, F_NEXT + pieces, name, "counter", NULL, 0, C_NEXT + pieces, "");
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = RANKS + pieces,
                                                        .contribution = 100,
                                                        .n_cells = 1,
                                                        .cells = {{C_NEXT + pieces, 1}}}),
                         HUB_OK);
    }
    sb_buf_put(&all, piece.data, piece.len);
    sb_buf_put_byte(&all, '\0');
    hub_scrape_destroy(&scrape);

    const char *text = (const char *) all.data;
    assert_true(pieces >= 3);
    assert_null(strstr(text, "a:later"));
    assert_non_null(strstr(text, "x:later2_total{dp_rank=\"100\""));
    for (uint32_t i = pieces; i < RANKS / 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "t:tokens_total{dp_rank=\"%u\",", i);
        const char *found = strstr(text, line);
        assert_non_null(found);
        assert_null(strstr(found + 1, line));
    }
    const char *header = strstr(text, "# TYPE t:wait_seconds ");
    assert_non_null(header);
    assert_null(strstr(header + 1, "# TYPE t:wait_seconds "));
    sb_buf_release(&piece);
    sb_buf_release(&all);
    hub_session_release(&session);
}

/* A row of thousands of series is cut into pieces as a family of thousands of rows is. */
static void a_row_of_many_series_comes_in_small_pieces(void **state)
{
    enum { SERIES = 4000, BOUNDS = 2, FAMILY = 77, FIRST_CELL = 1000 };
    static const double bounds[BOUNDS] = {1, 2}, other[BOUNDS] = {1, 3};
    struct world *world = *state;
    struct hub_session session;
    join(world, &session, 'a', 1);
    uint64_t number = 0;
    for (uint32_t i = 0; i < SERIES; i++) {
        char labels[32];
        snprintf(labels, sizeof labels, "adapter=lora-%u", i);
        const bool is_other = i == 0; /* one series under other bounds: all are read through the merge */
        const bool is_first = i < 2;  /* of its bounds: they are defined along */
        uint32_t cell = FIRST_CELL + i * (BOUNDS + 2);
        struct sb_buf *buf = begin(world, 4, "DEFINE");
        sb_mp_put_array(buf, is_first);
        if (is_first)
            put_family(buf, FAMILY + is_other, "big:wait_seconds", "histogram", is_other ? other : bounds, BOUNDS);
        sb_mp_put_array(buf, 1);
        put_series(buf, cell, FAMILY + is_other, labels);
        sb_mp_put_array(buf, 0);
        assert_int_equal(deliver(world, &session), HUB_OK);
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = ++number, .n_cells = 1, .cells = {{cell, 1 + i}}}),
                         HUB_OK);
    }
    struct sb_buf piece;
    sb_buf_init(&piece, 1 << 20);
    struct hub_scrape *scrape =
        hub_scrape_new(&world->store, hub_store_view(&world->store, "full"), SB_EXPO_TEXT, NULL, NULL);
    size_t n_counts = 0, n_headers = 0;
    double total = 0;
    for (bool more = true; more;) {
        sb_buf_clear(&piece);
        more = hub_scrape_next(scrape, &piece);
        assert_true(piece.len < 2 * HUB_CHUNK_BYTES);
        sb_buf_put_byte(&piece, '\0');
        n_headers += strstr((const char *) piece.data, "# TYPE big:wait_seconds ") != NULL;
        for (const char *at = (const char *) piece.data; (at = strstr(at, "big:wait_seconds_count{")) != NULL; at++) {
            total += strtod(strchr(at, ' '), NULL);
            n_counts++;
        }
    }
    assert_int_equal(n_headers, 1);
    assert_int_equal(n_counts, SERIES);
    assert_true(total == SERIES * (SERIES + 1.0) / 2);
    hub_scrape_destroy(&scrape);
    sb_buf_release(&piece);
    hub_session_release(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_ranks_are_two_rows_in_dp_and_one_in_full, open_world, close_world),
        cmocka_unit_test_setup_teardown(openmetrics_has_its_own_names_units_and_end, open_world, close_world),
        cmocka_unit_test_setup_teardown(an_empty_hub_prints_nothing_but_the_end, open_world, close_world),
        cmocka_unit_test_setup_teardown(own_labels_give_way_to_those_of_the_view, open_world, close_world),
        cmocka_unit_test_setup_teardown(unset_labels_are_not_printed_and_models_never_mix, open_world, close_world),
        cmocka_unit_test_setup_teardown(unlike_bounds_are_merged_on_what_they_share, open_world, close_world),
        cmocka_unit_test_setup_teardown(bounds_with_nothing_in_common_leave_the_infinite_bucket, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_scrape_survives_what_comes_and_goes, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_row_of_many_series_comes_in_small_pieces, open_world, close_world),
    };
    return cmocka_run_group_tests_name("render", tests, NULL, NULL);
}
