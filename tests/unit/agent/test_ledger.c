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
    const struct agent_series *a = NULL;
    for (uint32_t i = 0; i < loaded->n_series; i++) {
        const struct agent_series *series = agent_ledger_series_at(copy, loaded->series[i]);
        if (strcmp(series->labels->text, "k=\"a\"") == 0)
            a = series;
    }
    assert_non_null(a);
    assert_true(loaded->live[a->first] == 2);
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

static uint32_t series_of(struct rig *rig, uint32_t family, uint32_t number)
{
    char value[16];
    const int len = snprintf(value, sizeof value, "v%u", number);
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    assert_int_equal(sb_label_draft_set(&draft, "k", 1, value, (size_t) len, NULL, NULL), SB_OK);
    return agent_ledger_series_of(rig->ledger, agent_binding_contribution(rig->engine), family, &draft);
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
    assert_true(made->n_cells > 1000);
    save(&rig, &after);
    assert_true(after.len - before.len < 500);
    sb_buf_release(&before);
    sb_buf_release(&after);
    rig_release(&rig);
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
        cmocka_unit_test(families_of_one_name_and_other_bounds_are_apart),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
