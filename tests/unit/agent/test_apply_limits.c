/* What applying records does at its limits. */
#include "rig.h"

#define ROOTS "version: 1\nroots: {it: step.it}\nfamilies:\n"

static void label_sets_over_the_limit_share_one_series(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  c_total: {type: counter, help: h, from: \"it.m{k}\"}\n", "");
    struct agent_contribution *to = agent_binding_contribution(rig.engine);
    for (int i = 0; i < AGENT_SERIES_OF_SOURCE_MAX + 50; i++) {
        char record[64];
        snprintf(record, sizeof record, "{it: {m: {v%d: 1}}}", i);
        rig_step(&rig, record);
    }
    rig_step(&rig, "{it: {m: {v3: 1, other: 1}}}");
    assert_int_equal(to->n_series, AGENT_SERIES_OF_SOURCE_MAX + 1);
    double total = 0;
    for (uint32_t i = 0; i < to->n_series; i++)
        total += to->live[to->series[i].place];
    assert_true(total == AGENT_SERIES_OF_SOURCE_MAX + 52);
    const struct agent_own_series last = to->series[to->n_series - 1];
    assert_string_equal(agent_ledger_series_at(rig.ledger, last.index)->labels->text, "k=\"_overflow\"");
    assert_true(to->live[last.place] == 51);
    assert_true(agent_ledger_counters(rig.ledger)->overflows >= 1);
    rig_release(&rig);
}

static void unknown_keys_are_learnt_up_to_a_limit(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  c_total: {type: counter, help: h, from: it.n}\n", "");
    for (int i = 0; i < 2000; i++) {
        char record[64];
        snprintf(record, sizeof record, "{it: {k%d: [1, {a: 2}], n: 1, z%d: 1}}", i, i);
        rig_step(&rig, record);
    }
    assert_string_equal(rig_show(&rig, rig.engine, "c_total"), "2000");
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_sets_over_the_limit_share_one_series),
        cmocka_unit_test(unknown_keys_are_learnt_up_to_a_limit),
    };
    return cmocka_run_group_tests_name("apply_limits", tests, NULL, NULL);
}
