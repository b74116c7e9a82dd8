/* What a session refuses, and that it changes nothing. */
#include "session_test.h"

/* A frame of this world that is right, of which the cases below spoil one thing. */
static struct test_frame good_frame(void)
{
    return (struct test_frame){
        .number = 7, .n_gauges = 1, .gauges = {{C_RUNNING, 99}}, .n_cells = 2, .cells = {{C_TOKENS, 99}, {C_WAIT, 99}}};
}

static void a_bad_frame_changes_nothing(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *what;
        uint64_t number;
        uint32_t contribution;
        struct sample gauge;
        struct sample cell;
        enum hub_refusal refusal;
    } cases[] = {
        {"unknown contribution", 7, 9, {C_RUNNING, 1}, {C_WAIT, 1}, HUB_REFUSAL_unknown_id},
        {"far contribution", 7, UINT32_MAX, {C_RUNNING, 1}, {C_WAIT, 1}, HUB_REFUSAL_unknown_id},
        {"number 0", 0, 0, {C_RUNNING, 1}, {C_WAIT, 1}, HUB_REFUSAL_number},
        {"undefined cell", 7, 0, {C_RUNNING, 1}, {C_NEXT, 1}, HUB_REFUSAL_unknown_id},
        {"far cell", 7, 0, {C_RUNNING, 1}, {UINT32_MAX, 1}, HUB_REFUSAL_unknown_id},
        {"a gauge among cells", 7, 0, {C_RUNNING, 1}, {C_HOT, 1}, HUB_REFUSAL_unknown_id},
        {"a cell among gauges", 7, 0, {C_WAIT, 1}, {C_WAIT, 1}, HUB_REFUSAL_unknown_id},
        {"an undefined gauge", 7, 0, {C_NEXT, 1}, {C_WAIT, 1}, HUB_REFUSAL_unknown_id},
        {"a far gauge", 7, 0, {UINT32_MAX, 1}, {C_WAIT, 1}, HUB_REFUSAL_unknown_id},
        {"a negative count", 7, 0, {C_RUNNING, 1}, {C_WAIT, -1}, HUB_REFUSAL_value},
        {"NaN", 7, 0, {C_RUNNING, 1}, {C_WAIT, NAN}, HUB_REFUSAL_value},
        {"minus NaN", 7, 0, {C_RUNNING, 1}, {C_WAIT, -NAN}, HUB_REFUSAL_value},
        {"infinity", 7, 0, {C_RUNNING, 1}, {C_WAIT, INFINITY}, HUB_REFUSAL_value},
        {"minus infinity", 7, 0, {C_RUNNING, 1}, {C_WAIT, -INFINITY}, HUB_REFUSAL_value},
        {"a gauge of NaN", 7, 0, {C_RUNNING, NAN}, {C_WAIT, 1}, HUB_REFUSAL_value},
        {"an infinite gauge", 7, 0, {C_RUNNING, -INFINITY}, {C_WAIT, 1}, HUB_REFUSAL_value},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        assert_int_equal(send_frame(world, &session,
                                    (struct test_frame){.number = 1,
                                                        .n_gauges = 1,
                                                        .gauges = {{C_RUNNING, 3}},
                                                        .n_cells = 2,
                                                        .cells = {{C_TOKENS, 5}, {C_WAIT, 2}}}),
                         HUB_OK);
        char *before = scrape_as(world, "dp", SB_EXPO_TEXT);
        struct test_frame frame = good_frame();
        frame.number = cases[i].number;
        frame.contribution = cases[i].contribution;
        frame.gauges[0] = cases[i].gauge;
        frame.cells[1] = cases[i].cell;
        enum hub_refusal refusal = send_frame(world, &session, frame);
        if (refusal != cases[i].refusal)
            fail_msg("%s: %s", cases[i].what, hub_refusal_name(refusal));
        assert_int_equal(acked(world, &session), 1);
        assert_scrape(world, "dp", before);
        free(before);
        hub_session_release(&session);
    }
}

static void packed_arrays_must_have_one_length(void **state)
{
    struct world *world = *state;
    static const struct {
        size_t ids;
        size_t values;
    } cases[] = {{4, 0}, {0, 8}, {4, 16}, {3, 8}, {4, 7}, {8, 8}};
    static const uint8_t zeros[16];
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        struct sb_buf *buf = begin(world, 10, "FRAME");
        for (int k = 0; k < 4; k++)
            sb_mp_put_uint(buf, k == 0);
        sb_mp_put_bool(buf, true);
        sb_mp_put_bin(buf, zeros, 0);
        sb_mp_put_bin(buf, zeros, 0);
        sb_mp_put_bin(buf, zeros, cases[i].ids);
        sb_mp_put_bin(buf, zeros, cases[i].values);
        assert_int_equal(deliver(world, &session), HUB_REFUSAL_length);
        hub_session_release(&session);
    }
}

/* Long runs of ids take a path of their own: the same rules there, at every place of the run. */
static void long_runs_are_checked_and_applied_like_single_cells(void **state)
{
    struct world *world = *state;
    enum { BOUNDS = 200, CELLS = BOUNDS + 2 };
    double bounds[BOUNDS];
    for (uint32_t i = 0; i < BOUNDS; i++)
        bounds[i] = i + 1;
    struct sample samples[CELLS];
    struct hub_session session;
    for (uint32_t spoilt = 0; spoilt <= CELLS; spoilt++) {
        join(world, &session, 'a', 1);
        define_family(world, &session, F_NEXT, "y", "histogram", bounds, BOUNDS, C_NEXT, "");
        for (uint32_t i = 0; i < CELLS; i++)
            samples[i] = (struct sample){C_NEXT + i, i == spoilt ? -INFINITY : (double) ((i * 7) % 50 + spoilt)};
        struct sb_buf *buf = begin(world, 10, "FRAME");
        for (int k = 0; k < 4; k++)
            sb_mp_put_uint(buf, k == 0);
        sb_mp_put_bool(buf, true);
        put_samples(buf, NULL, 0);
        put_samples(buf, samples, CELLS);
        assert_int_equal(deliver(world, &session), spoilt < CELLS ? HUB_REFUSAL_value : HUB_OK);
        if (spoilt < CELLS)
            hub_session_release(&session);
    }
    for (uint32_t i = 0; i < CELLS; i++)
        assert_number(cell_of(world, &session, 1, "y", i), (i * 7) % 50 + CELLS);

    /* Lower and higher values, with one id out of line in the middle of a run. */
    for (uint32_t i = 0; i < CELLS; i++)
        samples[i] = (struct sample){C_NEXT + i, i % 2 ? 1 : 1000 + i};
    samples[40].id = C_TOKENS;
    struct sb_buf *buf = begin(world, 10, "FRAME");
    sb_mp_put_uint(buf, 2);
    for (int k = 0; k < 3; k++)
        sb_mp_put_uint(buf, 0);
    sb_mp_put_bool(buf, true);
    put_samples(buf, NULL, 0);
    put_samples(buf, samples, CELLS);
    assert_int_equal(deliver(world, &session), HUB_OK);
    for (uint32_t i = 0; i < CELLS; i++)
        assert_number(cell_of(world, &session, 1, "y", i), i % 2 || i == 40 ? (i * 7) % 50 + CELLS : 1000 + i);
    assert_number(cell_of(world, &session, 1, "t:tokens_total", 0), 1040);
    hub_session_release(&session);
}

static void bad_definitions_are_refused_by_reason(void **state)
{
    struct world *world = *state;
    static const double falling[] = {1, 0.5};
    static const double equal[] = {1, 1};
    static const double endless[] = {1, INFINITY};
    static const double good[] = {1, 2};
    static const struct {
        const char *what;
        const char *name;
        const char *type;
        const double *bounds;
        uint32_t family;
        uint32_t cell;
        uint32_t of;
        const char *labels;
        enum hub_refusal refusal;
    } cases[] = {
        {"a name with a space", "a b", "gauge", NULL, 6, 11, 6, "", HUB_REFUSAL_name},
        {"no name", "", "gauge", NULL, 6, 11, 6, "", HUB_REFUSAL_name},
        {"a type of its own", "a", "summary", NULL, 6, 11, 6, "", HUB_REFUSAL_type},
        {"falling bounds", "a", "histogram", falling, 6, 11, 6, "", HUB_REFUSAL_bounds},
        {"equal bounds", "a", "histogram", equal, 6, 11, 6, "", HUB_REFUSAL_bounds},
        {"an infinite bound", "a", "histogram", endless, 6, 11, 6, "", HUB_REFUSAL_bounds},
        {"a histogram without bounds", "a", "histogram", NULL, 6, 11, 6, "", HUB_REFUSAL_type},
        {"a family id twice", "a", "gauge", NULL, 0, 11, 0, "", HUB_REFUSAL_id_taken},
        {"a far family id", "a", "gauge", NULL, 65536, 11, 65536, "", HUB_REFUSAL_id_range},
        {"an unknown family", "a", "gauge", NULL, 6, 11, 7, "", HUB_REFUSAL_unknown_id},
        {"a cell twice", "a", "gauge", NULL, 6, C_WAIT + 3, 6, "", HUB_REFUSAL_id_taken},
        {"overlapping cells", "t:b", "histogram", good, 6, C_NEXT - 1, 6, "", HUB_REFUSAL_id_taken},
        {"the first cell over the limit", "a", "gauge", NULL, 6, 1048576, 6, "", HUB_REFUSAL_id_range},
        {"the last cell over the limit", "t:b", "histogram", good, 6, 1048573, 6, "", HUB_REFUSAL_id_range},
        {"a bad label name", "a", "gauge", NULL, 6, 11, 6, "a-b=c", HUB_REFUSAL_name},
        {"a kept label name", "a", "gauge", NULL, 6, 11, 6, "__name__=c", HUB_REFUSAL_name},
        {"nothing bad", "a", "gauge", NULL, 6, 1048575, 6, "a=b", HUB_OK},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        uint32_t families = world->store.index.n_families;
        struct sb_buf *buf = begin(world, 4, "DEFINE");
        sb_mp_put_array(buf, 1);
        put_family(buf, cases[i].family, cases[i].name, cases[i].type, cases[i].bounds, 2);
        sb_mp_put_array(buf, 1);
        put_series(buf, cases[i].cell, cases[i].of, cases[i].labels);
        sb_mp_put_array(buf, 0);
        enum hub_refusal refusal = deliver(world, &session);
        if (refusal != cases[i].refusal)
            fail_msg("%s: %s", cases[i].what, hub_refusal_name(refusal));
        if (refusal != HUB_OK)
            assert_int_equal(world->store.index.n_families, families);
        hub_session_release(&session);
    }
}

static void bad_contributions_are_refused_by_reason(void **state)
{
    struct world *world = *state;
    static const struct {
        uint32_t id;
        uint64_t epoch;
        const char *kind;
        const char *source;
        const char *identity;
        enum hub_refusal refusal;
    } cases[] = {
        {0, 5, "engine", "", "", HUB_REFUSAL_id_taken},
        {65536, 5, "engine", "", "", HUB_REFUSAL_id_range},
        {1, 5, "engines", "", "", HUB_REFUSAL_type},
        {1, 5, "engine", "a b=c", "", HUB_REFUSAL_name},
        {1, 1, "engine", "service_name=s,job_name=j,dp_rank=0", "model_name=other", HUB_REFUSAL_identity},
        {1, 1, "front-end", "service_name=s,job_name=j,dp_rank=0", "model_name=m,role=both,instance_id=i-1",
         HUB_REFUSAL_identity},
        {1, 1, "engine", "service_name=s,job_name=j,dp_rank=0", "model_name=m,role=both,instance_id=i-1",
         HUB_REFUSAL_id_taken}, /* an epoch has one id in a session: FORGET of it must leave no other */
        {65535, 6, "front-end", "", "", HUB_OK},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        struct sb_buf *buf = begin(world, 4, "DEFINE");
        sb_mp_put_array(buf, 0);
        sb_mp_put_array(buf, 0);
        sb_mp_put_array(buf, 1);
        put_contribution(buf, cases[i].id, cases[i].epoch, cases[i].kind, cases[i].source, cases[i].identity);
        assert_int_equal(deliver(world, &session), cases[i].refusal);
        hub_session_release(&session);
    }
}

/* Every message, cut at every byte and with every byte changed: refused or taken, never a crash, and what is shown
 * changes only when it was taken. */
static void cut_and_spoilt_messages_are_refused_whole(void **state)
{
    struct world *world = *state;
    struct sb_buf messages[4];
    struct hub_session session;
    join(world, &session, 'a', 1);
    struct test_frame frame = good_frame();
    for (size_t m = 0; m < SB_COUNT(messages); m++) {
        struct sb_buf *buf;
        sb_buf_init(&messages[m], 1 << 20);
        if (m == 0) {
            pack_hello(world, 'a', 1);
        } else if (m == 1) {
            buf = begin(world, 4, "DEFINE");
            pack_usual_families(buf);
            sb_mp_put_array(buf, 1);
            put_contribution(buf, 0, 1, "engine", "service_name=s,job_name=j,dp_rank=0",
                             "model_name=m,role=both,instance_id=i-1");
        } else if (m == 2) {
            pack_frame(world, &frame);
        } else {
            buf = begin(world, 2, "END");
            sb_mp_put_array(buf, 1);
            sb_mp_put_uint(buf, 0);
        }
        sb_buf_put(&messages[m], world->message.data, world->message.len);
    }
    hub_session_release(&session);

    for (size_t m = 0; m < SB_COUNT(messages); m++) {
        for (size_t cut = 0; cut < messages[m].len; cut++) {
            join(world, &session, 'a', m == 1 ? 0 : 1);
            if (m == 0) {
                hub_session_release(&session);
                hub_session_init(&session, &world->store, ++world->last_serial, world->now_ms);
            }
            uint8_t *exact = malloc(cut + 1);
            assert_non_null(exact);
            memcpy(exact, messages[m].data, cut + 1);
            char *before = scrape_as(world, "dp", SB_EXPO_TEXT);
            assert_int_not_equal(take(world, &session, exact, cut), HUB_OK);
            assert_scrape(world, "dp", before);
            for (unsigned bit = 0; bit < 8; bit++) {
                uint8_t *spoilt = malloc(messages[m].len);
                assert_non_null(spoilt);
                memcpy(spoilt, messages[m].data, messages[m].len);
                spoilt[cut] ^= (uint8_t) (1u << bit);
                hub_session_release(&session);
                join(world, &session, 'b', m == 1 ? 0 : 1);
                if (m == 0) {
                    hub_session_release(&session);
                    hub_session_init(&session, &world->store, ++world->last_serial, world->now_ms);
                }
                free(before);
                before = scrape_as(world, "dp", SB_EXPO_TEXT);
                if (take(world, &session, spoilt, messages[m].len) != HUB_OK)
                    assert_scrape(world, "dp", before);
                free(spoilt);
            }
            free(before);
            free(exact);
            hub_session_release(&session);
        }
        sb_buf_release(&messages[m]);
    }
}

static void counts_that_a_message_cannot_hold_cost_nothing(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *bytes;
        size_t n;
        enum hub_refusal refusal;
    } cases[] = {
        {"\xdd\xff\x00\x00\x00", 5, HUB_REFUSAL_malformed},
        {"\x94\xa6"
         "DEFINE\xdd\xff\xff\xff\xff\x90\x90",
         15, HUB_REFUSAL_malformed},
        {"\x90", 1, HUB_REFUSAL_type},
        {"\x91\x01", 2, HUB_REFUSAL_type},
        {"\x81\xa1x\x01", 4, HUB_REFUSAL_type},
        {"", 0, HUB_REFUSAL_malformed},
        {"\xc1", 1, HUB_REFUSAL_malformed},
        {"\x91\xa5"
         "FRAME\x00",
         8, HUB_REFUSAL_malformed},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        assert_int_equal(take(world, &session, cases[i].bytes, cases[i].n), cases[i].refusal);
        hub_session_release(&session);
    }
    uint8_t deep[64];
    memset(deep, 0x91, sizeof deep);
    deep[sizeof deep - 1] = 0xc0;
    struct hub_session session;
    join(world, &session, 'a', 1);
    assert_int_equal(take(world, &session, deep, sizeof deep), HUB_REFUSAL_too_deep);
    assert_int_equal(take(world, &session, NULL, HUB_MESSAGE_MAX + 1), HUB_REFUSAL_too_large);
    hub_session_release(&session);
}

static void random_bytes_never_crash_a_session(void **state)
{
    struct world *world = *state;
    uint32_t seed = 12345;
    for (int round = 0; round < 3000; round++) {
        struct hub_session session;
        join(world, &session, 'a', 1);
        struct test_frame frame = good_frame();
        pack_frame(world, &frame);
        uint8_t *bytes = malloc(world->message.len);
        size_t len = world->message.len;
        assert_non_null(bytes);
        memcpy(bytes, world->message.data, len);
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525 + 1013904223;
            bytes[(seed >> 8) % len] = (uint8_t) (seed >> 24);
        }
        enum hub_refusal refusal = take(world, &session, bytes, len);
        assert_true(refusal < HUB_REFUSAL_COUNT);
        free(bytes);
        hub_session_release(&session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_bad_frame_changes_nothing),
        CASE(packed_arrays_must_have_one_length),
        CASE(long_runs_are_checked_and_applied_like_single_cells),
        CASE(bad_definitions_are_refused_by_reason),
        CASE(bad_contributions_are_refused_by_reason),
        CASE(cut_and_spoilt_messages_are_refused_whole),
        CASE(counts_that_a_message_cannot_hold_cost_nothing),
        CASE(random_bytes_never_crash_a_session),
    };
    return cmocka_run_group_tests_name("session_refusals", tests, NULL, NULL);
}
