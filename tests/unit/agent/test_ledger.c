/* The ledger by itself: series, contributions, and that a save loads as it was. */
#include "rig.h"

static const char catalog[] = "version: 1\nroots: {s: step.s, it: step.it}\nbucket_sets: {b: [1, 2, 5]}\nfamilies:\n"
                              "  c_total: {type: counter, help: \"a \\\"help\\\"\", unit: tokens, from: \"it.m{k}\"}\n"
                              "  h: {type: histogram, help: h, buckets: b, from: \"it.l[]\"}\n"
                              "  g: {type: gauge, help: h, from: s.n}\n";

static void save(struct rig *rig, struct sb_buf *out)
{
    agent_ledger_stage(rig->ledger);
    agent_ledger_save(rig->ledger, out);
    assert_false(out->is_overflow);
    assert_int_equal(sb_mp_validate(out->data, out->len, SB_MP_DEPTH_MAX, NULL), SB_OK);
}

static void fill(struct rig *rig)
{
    rig_init(rig, catalog, "");
    rig_step(rig, "{it: {m: {a: 1, b: 2}, l: [0.5, 3]}, s: {n: 4}}");
    rig_step(rig, "{it: {m: {a: 1, b: x}, l: [7]}, s: {n: 4}}");
}

static void a_save_loads_as_it_was(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_buf first, second;
    sb_buf_init(&first, 1 << 20);
    sb_buf_init(&second, 1 << 20);
    fill(&rig);
    save(&rig, &first);

    struct agent_ledger *copy = agent_ledger_new(rig.labelsets);
    struct sb_mp at = sb_mp_over(first.data, first.len);
    struct sb_err err = {.text = ""};
    assert_int_equal(agent_ledger_load(copy, &at, &err), SB_OK);
    assert_ptr_equal(at.at, at.end);
    agent_ledger_save(copy, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);

    /* The same labels and bounds find the same contribution and series again, and the next epoch goes on. */
    const struct agent_contribution *had = agent_binding_contribution(rig.engine);
    bool is_new;
    struct agent_contribution *have =
        agent_ledger_contribution(copy, false, had->source, had->identity, had->shape, &is_new, &err);
    assert_false(is_new);
    assert_int_equal(have->epoch, had->epoch);
    assert_memory_equal(have->live, had->live, had->n_cells * sizeof(double));
    struct agent_contribution *other =
        agent_ledger_contribution(copy, false, had->source, had->identity, had->shape + 1, &is_new, &err);
    assert_true(is_new);
    assert_int_equal(other->epoch, 3);

    agent_ledger_destroy(&copy);
    sb_buf_release(&first);
    sb_buf_release(&second);
    rig_release(&rig);
}

static void a_damaged_save_is_refused_at_every_cut(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_buf whole;
    sb_buf_init(&whole, 1 << 20);
    fill(&rig);
    save(&rig, &whole);
    for (size_t n = 0; n < whole.len; n++) {
        struct agent_ledger *copy = agent_ledger_new(rig.labelsets);
        struct sb_mp at = sb_mp_over(whole.data, n);
        struct sb_err err = {.text = ""};
        assert_int_equal(agent_ledger_load(copy, &at, &err), SB_FORMAT);
        assert_true(err.text[0]);
        agent_ledger_destroy(&copy);
    }
    sb_buf_release(&whole);
    rig_release(&rig);
}

static void changed_bytes_never_crash_a_load(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_buf whole;
    sb_buf_init(&whole, 1 << 20);
    fill(&rig);
    save(&rig, &whole);
    for (size_t i = 0; i < whole.len; i++) {
        uint8_t was = whole.data[i];
        for (unsigned change = 1; change < 256; change += 17) {
            whole.data[i] = (uint8_t) (was ^ change);
            if (sb_mp_validate(whole.data, whole.len, SB_MP_DEPTH_MAX, NULL) != SB_OK)
                continue;
            struct agent_ledger *copy = agent_ledger_new(rig.labelsets);
            struct sb_mp at = sb_mp_over(whole.data, whole.len);
            enum sb_rc rc = agent_ledger_load(copy, &at, NULL);
            assert_true(rc == SB_OK || rc == SB_FORMAT);
            agent_ledger_destroy(&copy);
        }
        whole.data[i] = was;
    }
    sb_buf_release(&whole);
    rig_release(&rig);
}

static void what_came_after_staging_is_not_in_the_save(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    fill(&rig);
    agent_ledger_stage(rig.ledger);
    rig_step(&rig, "{it: {m: {a: 100, brand_new: 1}, l: [1]}}");
    agent_ledger_save(rig.ledger, &buf);
    struct agent_ledger *copy = agent_ledger_new(rig.labelsets);
    struct sb_mp at = sb_mp_over(buf.data, buf.len);
    assert_int_equal(agent_ledger_load(copy, &at, NULL), SB_OK);
    const struct agent_contribution *loaded = agent_ledger_contribution_at(copy, 0);
    const struct agent_contribution *live = agent_binding_contribution(rig.engine);
    assert_true(live->n_series > loaded->n_series);
    uint32_t a = AGENT_NONE;
    for (uint32_t i = 0; i < loaded->n_series; i++)
        if (strcmp(agent_ledger_series_at(copy, loaded->series[i].index)->labels->text, "k=\"a\"") == 0)
            a = loaded->series[i].place;
    assert_int_not_equal(a, AGENT_NONE);
    assert_true(loaded->live[a] == 2);
    agent_ledger_destroy(&copy);
    sb_buf_release(&buf);
    rig_release(&rig);
}

static void a_forgotten_contribution_leaves_its_place(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_err err;
    fill(&rig);
    struct sb_labelset *source = agent_binding_contribution(rig.engine)->source;
    struct agent_contribution *made =
        agent_ledger_contribution(rig.ledger, false, source, rig.hello.sources[0].identity, 99, NULL, &err);
    uint32_t index = made->index;
    agent_ledger_forget(rig.ledger, index);
    assert_int_equal(agent_ledger_n_contributions(rig.ledger), index);
    bool is_new;
    made = agent_ledger_contribution(rig.ledger, false, source, rig.hello.sources[0].identity, 99, &is_new, &err);
    assert_true(is_new);
    assert_int_equal(made->index, index);
    assert_int_equal(made->epoch, 4);
    rig_release(&rig);
}

static uint32_t series_for(struct rig *rig, struct agent_contribution *to, uint32_t family, uint32_t number)
{
    char value[16];
    const int len = snprintf(value, sizeof value, "v%u", number);
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    assert_int_equal(sb_label_draft_set(&draft, "k", 1, value, (size_t) len, NULL, NULL), SB_OK);
    return agent_ledger_series_of(rig->ledger, to, family, &draft);
}

static uint32_t series_of(struct rig *rig, uint32_t family, uint32_t number)
{
    return series_for(rig, agent_binding_contribution(rig->engine), family, number);
}

static void when_the_cells_are_used_up_label_sets_are_folded_and_rows_grew_by_doubling(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_err err;
    double upper[SB_BOUNDS_MAX];
    for (size_t i = 0; i < SB_BOUNDS_MAX; i++)
        upper[i] = (double) i;
    rig_init(&rig, catalog, "");
    struct sb_bounds *bounds = sb_bounds_new(upper, SB_BOUNDS_MAX, &err);
    const struct agent_family_spec spec = {.name = "wide", .type = SB_HISTOGRAM};
    const uint32_t family = agent_ledger_family(rig.ledger, &spec, &bounds, &err);
    const struct agent_contribution *to = agent_binding_contribution(rig.engine);
    uint32_t moves = 0, number = 0, index = 0;
    const char *text = "";
    for (; number < AGENT_SERIES_OF_SOURCE_MAX && strcmp(text, "k=\"_overflow\"") != 0; number++) {
        const double *before = to->live;
        const uint32_t cap = to->cap_cells;
        index = series_of(&rig, family, number);
        assert_int_not_equal(index, AGENT_NONE);
        moves += before != to->live || cap != to->cap_cells;
        text = agent_ledger_series_at(rig.ledger, index)->labels->text;
    }
    assert_string_equal(text, "k=\"_overflow\"");
    assert_true(to->n_cells > AGENT_CELLS_MAX - AGENT_OVERFLOW_CELLS - SB_BOUNDS_MAX);
    assert_in_range(moves, 1, 20);
    assert_int_equal(series_of(&rig, family, number), index);
    assert_int_equal(agent_ledger_counters(rig.ledger)->overflows, 2);
    rig_release(&rig);
}

static void a_save_holds_the_cells_of_a_contributions_own_series_alone(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_err err;
    struct sb_buf before, after;
    sb_buf_init(&before, 1 << 20);
    sb_buf_init(&after, 1 << 20);
    rig_init(&rig, catalog, "");
    for (uint32_t i = 0; i < 1000; i++)
        (void) series_of(&rig, 0, i);
    save(&rig, &before);
    const struct agent_contribution *engine = agent_binding_contribution(rig.engine);
    struct agent_contribution *made =
        agent_ledger_contribution(rig.ledger, false, engine->source, engine->identity, 99, NULL, &err);
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    assert_int_equal(sb_label_draft_set(&draft, "k", 1, "last", 4, NULL, NULL), SB_OK);
    assert_int_not_equal(agent_ledger_series_of(rig.ledger, made, 0, &draft), AGENT_NONE);
    assert_int_equal(made->n_cells, 1); /* however many cells others have */
    save(&rig, &after);
    assert_true(after.len - before.len < 500);
    sb_buf_release(&before);
    sb_buf_release(&after);
    rig_release(&rig);
}

static void a_save_leaves_out_what_no_contribution_has_any_more(void **state)
{
    (void) state;
    struct rig rig;
    struct sb_err err;
    struct sb_buf before, after;
    sb_buf_init(&before, 1 << 20);
    sb_buf_init(&after, 1 << 20);
    fill(&rig);
    save(&rig, &before);
    const struct agent_contribution *engine = agent_binding_contribution(rig.engine);
    struct agent_contribution *passing =
        agent_ledger_contribution(rig.ledger, false, engine->source, engine->identity, 99, NULL, &err);
    const struct agent_family_spec spec = {.name = "passing_total", .type = SB_COUNTER};
    struct sb_bounds *none = NULL;
    const uint32_t family = agent_ledger_family(rig.ledger, &spec, &none, &err);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_not_equal(series_for(&rig, passing, i % 2 ? family : 0, i), AGENT_NONE);
    agent_ledger_forget(rig.ledger, passing->index);
    rig_step(&rig, "{it: {m: {late: 5}}}"); /* of a series behind those that go */
    save(&rig, &after);
    assert_in_range(after.len, before.len + 10, before.len + 100);

    struct agent_ledger *copy = agent_ledger_new(rig.labelsets);
    struct sb_mp at = sb_mp_over(after.data, after.len);
    assert_int_equal(agent_ledger_load(copy, &at, &err), SB_OK);
    const struct agent_contribution *loaded = agent_ledger_contribution_at(copy, 0);
    assert_int_equal(loaded->n_series, engine->n_series);
    assert_int_equal(agent_ledger_n_series(copy), engine->n_series);
    const struct agent_own_series last = loaded->series[loaded->n_series - 1];
    assert_string_equal(agent_ledger_series_at(copy, last.index)->labels->text, "k=\"late\"");
    assert_true(loaded->live[last.place] == 5);
    agent_ledger_destroy(&copy);
    sb_buf_release(&before);
    sb_buf_release(&after);
    rig_release(&rig);
}

/* Contributions with thousands of series each: rows cost what they hold, and all together not more than the limit. */
static void when_rows_are_used_up_label_sets_are_folded_and_nothing_is_dropped(void **state)
{
    enum { SOURCES = 500, SERIES = 9000, PLAIN = 8 };
    (void) state;
    struct rig rig;
    struct sb_err err;
    rig_init(&rig, catalog, "");
    const struct agent_contribution *engine = agent_binding_contribution(rig.engine);
    uint32_t n_folded = 0;
    for (uint32_t k = 0; k < SOURCES; k++) {
        struct agent_contribution *to =
            agent_ledger_contribution(rig.ledger, false, engine->source, engine->identity, 100 + k, NULL, &err);
        for (uint32_t i = 0; i < SERIES; i++) {
            const uint32_t index = series_for(&rig, to, 0, i);
            assert_int_not_equal(index, AGENT_NONE);
            n_folded += strcmp(agent_ledger_series_at(rig.ledger, index)->labels->text, "k=\"_overflow\"") == 0;
        }
        struct sb_label_draft none;
        sb_label_draft_clear(&none);
        assert_int_not_equal(agent_ledger_series_of(rig.ledger, to, 1, &none), AGENT_NONE); /* without labels: itself */
        assert_true(to->n_cells <= SERIES + PLAIN);
    }
    const uint32_t room = AGENT_ROW_CELLS_MAX - AGENT_OVERFLOW_ROW_CELLS;
    assert_in_range(SOURCES * SERIES - n_folded, room - SOURCES * PLAIN, room);
    rig_release(&rig);
}

static void long_labels_are_folded_when_they_take_too_much(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, catalog, "");
    char value[SB_LABEL_VALUE_MAX + 1];
    memset(value, 'x', sizeof value);
    uint32_t n = 0;
    for (const char *text = ""; strcmp(text, "k=\"_overflow\"") != 0; n++) {
        struct sb_err err;
        const struct agent_contribution *engine = agent_binding_contribution(rig.engine);
        struct agent_contribution *to = agent_ledger_contribution(rig.ledger, false, engine->source, engine->identity,
                                                                  100 + n / AGENT_SERIES_OF_SOURCE_MAX, NULL, &err);
        snprintf(value + 100, 16, "%u", n);
        struct sb_label_draft draft;
        sb_label_draft_clear(&draft);
        value[strlen(value)] = 'x';
        for (int k = 0; k < 16; k++) {
            const char name[] = {'k', (char) ('a' + k)};
            assert_int_equal(sb_label_draft_set(&draft, name, k ? 2 : 1, value, SB_LABEL_VALUE_MAX, NULL, NULL), SB_OK);
        }
        const uint32_t index = agent_ledger_series_of(rig.ledger, to, 0, &draft);
        assert_int_not_equal(index, AGENT_NONE);
        text = agent_ledger_series_at(rig.ledger, index)->labels->text;
        if (strncmp(text, "k=\"_overflow", 12) == 0)
            break;
    }
    assert_in_range(n, 10000, AGENT_LABEL_BYTES_MAX / (16 * SB_LABEL_VALUE_MAX));
    rig_release(&rig);
}

static void described_families_leave_room_for_those_of_the_catalog(void **state)
{
    (void) state;
    struct sb_labelsets *labelsets = sb_labelsets_new();
    struct agent_ledger *ledger = agent_ledger_new(labelsets);
    char name[32];
    struct agent_family_spec spec = {.name = name, .type = SB_GAUGE};
    struct sb_bounds *none = NULL;
    struct sb_err err;
    for (uint32_t i = 0; i < AGENT_FAMILIES_MAX; i++) {
        snprintf(name, sizeof name, "described_%u", i);
        const bool is_taken = i < AGENT_FAMILIES_MAX - AGENT_CATALOG_FAMILIES;
        assert_int_equal(agent_ledger_family(ledger, &spec, &none, &err), is_taken ? i : AGENT_NONE);
        assert_int_equal(is_taken ? SB_FULL : err.rc, SB_FULL);
    }
    assert_int_equal(agent_ledger_counters(ledger)->limit_hits, AGENT_CATALOG_FAMILIES);
    spec.is_in_catalog = true;
    for (uint32_t i = 0; i < AGENT_CATALOG_FAMILIES; i++) {
        snprintf(name, sizeof name, "catalog_%u", i);
        assert_int_not_equal(agent_ledger_family(ledger, &spec, &none, &err), AGENT_NONE);
    }
    agent_ledger_destroy(&ledger);
    sb_labelsets_destroy(&labelsets);
}

static void families_of_one_name_and_other_bounds_are_apart(void **state)
{
    (void) state;
    struct sb_labelsets *labelsets = sb_labelsets_new();
    struct agent_ledger *ledger = agent_ledger_new(labelsets);
    struct agent_family_spec spec = {.name = "x", .type = SB_HISTOGRAM, .semantic = SB_SEMANTIC_histogram};
    static const double one[] = {1}, two[] = {1, 2};
    struct sb_err err;
    struct sb_bounds *bounds = sb_bounds_new(one, 1, &err);
    uint32_t a = agent_ledger_family(ledger, &spec, &bounds, &err);
    bounds = sb_bounds_new(two, 2, &err);
    uint32_t b = agent_ledger_family(ledger, &spec, &bounds, &err);
    bounds = sb_bounds_new(one, 1, &err);
    assert_int_equal(agent_ledger_family(ledger, &spec, &bounds, &err), a);
    assert_int_not_equal(a, b);
    assert_null(bounds);

    struct agent_family_spec clash = {.name = "x_count", .type = SB_GAUGE, .semantic = SB_SEMANTIC_state_gauge};
    assert_int_equal(agent_ledger_family(ledger, &clash, &bounds, &err), AGENT_NONE);
    assert_string_equal(err.text, "family 'x_count' clashes with 'x': both have 'x_count'");
    assert_int_equal(agent_ledger_counters(ledger)->clashes, 1);
    agent_ledger_destroy(&ledger);
    sb_labelsets_destroy(&labelsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_loads_as_it_was),
        cmocka_unit_test(a_damaged_save_is_refused_at_every_cut),
        cmocka_unit_test(changed_bytes_never_crash_a_load),
        cmocka_unit_test(what_came_after_staging_is_not_in_the_save),
        cmocka_unit_test(a_forgotten_contribution_leaves_its_place),
        cmocka_unit_test(when_the_cells_are_used_up_label_sets_are_folded_and_rows_grew_by_doubling),
        cmocka_unit_test(a_save_holds_the_cells_of_a_contributions_own_series_alone),
        cmocka_unit_test(a_save_leaves_out_what_no_contribution_has_any_more),
        cmocka_unit_test(when_rows_are_used_up_label_sets_are_folded_and_nothing_is_dropped),
        cmocka_unit_test(long_labels_are_folded_when_they_take_too_much),
        cmocka_unit_test(described_families_leave_room_for_those_of_the_catalog),
        cmocka_unit_test(families_of_one_name_and_other_bounds_are_apart),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
