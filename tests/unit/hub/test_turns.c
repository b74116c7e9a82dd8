/* Scrapes of much: each piece is a bounded amount of work, and what happens between two of them harms no number. */
#include "hub_test.h"

enum { RANKS = 3 * HUB_TURN };

struct fixture {
    struct world world;
    struct hub_session session;
    uint64_t number;
};

/* Contributions of these ranks, each with one token and one running request. */
static void add_ranks(struct fixture *self, uint32_t from, uint32_t n)
{
    struct sb_buf *buf = begin(&self->world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, n);
    for (uint32_t i = from; i < from + n; i++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=s,job_name=j,dp_rank=%u", i);
        put_contribution(buf, i, i + 1, "engine", source, "model_name=m,role=both,instance_id=i-1");
    }
    assert_int_equal(deliver(&self->world, &self->session), HUB_OK);
    for (uint32_t i = from; i < from + n; i++) {
        assert_int_equal(send_frame(&self->world, &self->session,
                                    (struct test_frame){.number = ++self->number,
                                                        .contribution = i,
                                                        .n_gauges = 1,
                                                        .gauges = {{C_RUNNING, 1}},
                                                        .n_cells = 1,
                                                        .cells = {{C_TOKENS, 1}}}),
                         HUB_OK);
    }
}

static int open_crowd(void **state)
{
    static struct fixture self;
    self = (struct fixture){.number = 0};
    world_open_with(&self.world, (struct hub_store_limits){.contributions = 2 * RANKS,
                                                           .row_bytes = (size_t) 1 << 30,
                                                           .linger_ms = TEST_LINGER_MS});
    join(&self.world, &self.session, 'a', 0);
    add_ranks(&self, 0, RANKS);
    *state = &self;
    return 0;
}

static int close_crowd(void **state)
{
    struct fixture *self = *state;
    hub_session_release(&self->session);
    world_close(&self->world);
    return 0;
}

/* What happens between two pieces, told how many there were. */
typedef void (*between_fn)(struct fixture *self, uint32_t pieces);

struct taken {
    struct sb_buf text; /* ends with 0 */
    uint32_t pieces;
    size_t longest;
};

static struct taken scrape(struct fixture *self, const struct hub_ask *ask, between_fn between)
{
    struct taken taken = {.pieces = 1};
    sb_buf_init(&taken.text, 64 << 20);
    struct hub_scrape *scrape = hub_scrape_new(&self->world.store, ask);
    assert_non_null(scrape);
    size_t from = 0;
    for (; hub_scrape_next(scrape, &taken.text); taken.pieces++, from = taken.text.len) {
        taken.longest = taken.text.len - from > taken.longest ? taken.text.len - from : taken.longest;
        if (between)
            between(self, taken.pieces);
    }
    assert_false(hub_scrape_is_cut(scrape));
    hub_scrape_destroy(&scrape);
    sb_buf_put_byte(&taken.text, '\0');
    return taken;
}

static size_t count(const struct taken *taken, const char *what)
{
    size_t n = 0;
    for (const char *at = (const char *) taken->text.data; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static double number_of(const struct taken *taken, const char *line)
{
    const char *found = strstr((const char *) taken->text.data, line);
    assert_non_null(found);
    return strtod(found + strlen(line), NULL);
}

static void a_scrape_that_finds_nothing_looks_once_at_each_row_and_a_turn_at_a_time(void **state)
{
    struct fixture *self = *state;
    const struct hub_view *view = hub_store_view(&self->world.store, "dp");
    struct hub_query query = {.view = view->spec};
    assert_true(hub_query_narrow(&query, HUB_NARROW_model_name, "another"));
    struct taken taken = scrape(self, &(struct hub_ask){.view = view, .query = &query}, NULL);
    assert_string_equal((const char *) taken.text.data, "");
    assert_int_equal(taken.pieces, RANKS / HUB_TURN + 1);
    sb_buf_release(&taken.text);
}

/* A family that one row of many has. */
static void rows_without_numbers_end_a_piece_too(void **state)
{
    struct fixture *self = *state;
    define_family(&self->world, &self->session, F_NEXT, "x:rare_total", "counter", NULL, 0, C_NEXT, "");
    assert_int_equal(
        send_frame(&self->world, &self->session,
                   (struct test_frame){
                       .number = ++self->number, .contribution = RANKS - 1, .n_cells = 1, .cells = {{C_NEXT, 7}}}),
        HUB_OK);
    const struct hub_view *view = hub_store_view(&self->world.store, "dp");
    struct hub_query query = {.view = view->spec};
    assert_true(hub_query_add_family(&query, "x:rare_total"));
    struct taken taken = scrape(self, &(struct hub_ask){.view = view, .query = &query}, NULL);
    assert_int_equal(count(&taken, "\nx:rare_total{"), 1);
    assert_true(taken.pieces >= RANKS / HUB_TURN && taken.pieces <= 4 * RANKS / HUB_TURN);
    sb_buf_release(&taken.text);
}

static void all_rows_are_printed_once(void **state)
{
    struct fixture *self = *state;
    struct taken taken = scrape(self, &(struct hub_ask){.view = hub_store_view(&self->world.store, "dp")}, NULL);
    assert_int_equal(count(&taken, "\nt:tokens_total{"), RANKS);
    assert_int_equal(count(&taken, "\nt:running{"), RANKS);
    assert_true(taken.longest < 2 * HUB_CHUNK_BYTES);
    sb_buf_release(&taken.text);
}

#define FULL "{model_name=\"m\",service_name=\"s\"} "

static void assert_full(struct fixture *self, between_fn between, double tokens, double running)
{
    struct taken taken = scrape(self, &(struct hub_ask){.view = hub_store_view(&self->world.store, "full")}, between);
    assert_true(taken.pieces > 2);
    assert_number(number_of(&taken, "t:tokens_total" FULL), tokens);
    assert_number(number_of(&taken, "t:running" FULL), running);
    sb_buf_release(&taken.text);
}

static void a_large_row_is_added_up_in_turns(void **state)
{
    assert_full(*state, NULL, RANKS, RANKS);
}

/* One that is in the sum already: its part in what is retired would come again. */
static void forget_the_first(struct fixture *self, uint32_t pieces)
{
    if (pieces > 1)
        return;
    hub_store_retire(&self->world.store, hub_store_find(&self->world.store, self->session.lineage, 1));
}

static void what_is_forgotten_meanwhile_counts_once(void **state)
{
    struct fixture *self = *state;
    assert_int_equal(send_frame(&self->world, &self->session,
                                (struct test_frame){.number = ++self->number,
                                                    .n_gauges = 1,
                                                    .gauges = {{C_RUNNING, 1}},
                                                    .n_cells = 1,
                                                    .cells = {{C_TOKENS, 101}}}),
                     HUB_OK);
    assert_full(self, forget_the_first, RANKS + 100, RANKS - 1);
}

static void forget_another(struct fixture *self, uint32_t pieces)
{
    struct hub_contribution *found = hub_store_find(&self->world.store, self->session.lineage, pieces);
    assert_non_null(found);
    hub_store_retire(&self->world.store, found);
}

/* However often: it is added up in one turn in the end. */
static void a_row_that_never_rests_is_added_up_all_the_same(void **state)
{
    assert_full(*state, forget_another, RANKS, RANKS - HUB_RESTARTS_MAX);
}

static void add_one(struct fixture *self, uint32_t pieces)
{
    if (pieces == 1)
        add_ranks(self, RANKS, 1);
}

static void what_comes_meanwhile_is_in_it(void **state)
{
    assert_full(*state, add_one, RANKS + 1, RANKS + 1);
}

/* The first source goes on in the last contribution of the row: its gauge is shown of that from now on. */
static void move_a_source(struct fixture *self, uint32_t pieces)
{
    if (pieces > 1)
        return;
    struct sb_buf *buf = begin(&self->world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, RANKS, RANKS + 1, "engine", "service_name=s,job_name=j,dp_rank=0",
                     "model_name=m,role=both,instance_id=i-2");
    assert_int_equal(deliver(&self->world, &self->session), HUB_OK);
    assert_int_equal(send_frame(&self->world, &self->session,
                                (struct test_frame){.number = ++self->number,
                                                    .contribution = RANKS,
                                                    .n_gauges = 1,
                                                    .gauges = {{C_RUNNING, 1}},
                                                    .n_cells = 1,
                                                    .cells = {{C_TOKENS, 1}}}),
                     HUB_OK);
}

static void a_source_whose_gauges_move_meanwhile_is_shown_once(void **state)
{
    assert_full(*state, move_a_source, RANKS + 1, RANKS);
}

static void a_row_of_many_gauges_comes_in_small_pieces(void **state)
{
    enum { SERIES = 5000, A_FRAME = 1000, FAMILY = 77, FIRST = 1000 };
    static struct sample samples[SERIES];
    struct fixture *self = *state;
    for (uint32_t i = 0; i < SERIES; i++) {
        char labels[32];
        snprintf(labels, sizeof labels, "adapter=lora-%u", i);
        struct sb_buf *buf = begin(&self->world, 4, "DEFINE");
        sb_mp_put_array(buf, i == 0);
        if (i == 0)
            put_family(buf, FAMILY, "big:loaded", "gauge", NULL, 0);
        sb_mp_put_array(buf, 1);
        put_series(buf, FIRST + i, FAMILY, labels);
        sb_mp_put_array(buf, 0);
        assert_int_equal(deliver(&self->world, &self->session), HUB_OK);
        samples[i] = (struct sample){.id = FIRST + i, .value = i};
    }
    for (uint32_t i = 0; i < SERIES / A_FRAME; i++) {
        struct sb_buf *buf = begin(&self->world, 10, "FRAME");
        sb_mp_put_uint(buf, ++self->number);
        sb_mp_put_uint(buf, 0);
        sb_mp_put_uint(buf, i);
        sb_mp_put_uint(buf, 0);
        sb_mp_put_bool(buf, true);
        put_samples(buf, samples + i * (size_t) A_FRAME, A_FRAME);
        put_samples(buf, NULL, 0);
        assert_int_equal(deliver(&self->world, &self->session), HUB_OK);
    }
    struct taken taken = scrape(self, &(struct hub_ask){.view = hub_store_view(&self->world.store, "full")}, NULL);
    assert_int_equal(count(&taken, "\nbig:loaded{"), SERIES);
    assert_true(taken.longest < 2 * HUB_CHUNK_BYTES);
    const char *at = (const char *) taken.text.data;
    for (uint32_t i = 0; i < SERIES; i++) {
        char line[96];
        snprintf(line, sizeof line, "\nbig:loaded{model_name=\"m\",service_name=\"s\",adapter=\"lora-%u\"} %u\n", i, i);
        at = strstr(at, line);
        assert_non_null(at);
    }
    sb_buf_release(&taken.text);
}

static void a_scrape_over_the_memory_for_sums_is_cut_and_counted(void **state)
{
    struct fixture *self = *state;
    struct hub_sum_memory memory = {.max = 1 << 20};
    const struct hub_ask ask = {.view = hub_store_view(&self->world.store, "full"), .memory = &memory};
    struct taken taken = scrape(self, &ask, NULL);
    sb_buf_release(&taken.text);
    assert_int_equal(memory.bytes, 0);
    assert_false(hub_sum_memory_is_short(&memory));

    memory.bytes = memory.max - 100; /* of other scrapes */
    assert_true(hub_sum_memory_is_short(&memory));
    struct hub_scrape *over = hub_scrape_new(&self->world.store, &ask);
    struct sb_buf out;
    sb_buf_init(&out, 1 << 20);
    while (hub_scrape_next(over, &out)) {
    }
    assert_true(hub_scrape_is_cut(over));
    assert_true(memory.bytes > memory.max);
    assert_int_equal(self->world.counters.limits[HUB_LIMIT_scrape_memory], 1);
    hub_scrape_destroy(&over);
    assert_int_equal(memory.bytes, memory.max - 100);
    sb_buf_release(&out);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_crowd, close_crowd)
    const struct CMUnitTest tests[] = {
        TEST(a_scrape_that_finds_nothing_looks_once_at_each_row_and_a_turn_at_a_time),
        TEST(rows_without_numbers_end_a_piece_too),
        TEST(all_rows_are_printed_once),
        TEST(a_large_row_is_added_up_in_turns),
        TEST(what_is_forgotten_meanwhile_counts_once),
        TEST(a_row_that_never_rests_is_added_up_all_the_same),
        TEST(what_comes_meanwhile_is_in_it),
        TEST(a_source_whose_gauges_move_meanwhile_is_shown_once),
        TEST(a_row_of_many_gauges_comes_in_small_pieces),
        TEST(a_scrape_over_the_memory_for_sums_is_cut_and_counted),
    };
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
