/* Observations: what they feed, which labels they may have, and sources that have nothing else. */
#include "rig.h"

static void observations_feed_families_by_name(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(
        &rig, NULL,
        ", families: [{name: x_total, type: counter, help: h, labels: [k]}, "
        "{name: y_seconds, type: histogram, help: h, buckets: [1, 2]}, {name: z, type: gauge, help: h, labels: [k]}, "
        "{name: q, type: gauge, help: h, scope: publisher}], config: {lora: {max_loras: 1}}");
    rig_apply_as(
        &rig, AGENT_RECORD_OBS,
        "[[x_total, {k: a}, 2], [x_total, {k: a}, [1, 1, -4]], [y_seconds, null, [0.5, 2, 7]], [z, {k: a}, 4], "
        "[q, null, 1], [nobody, {}, 1], [z, {\"9bad\": a}, 4], 7, [x_total, {k: b}, no]]",
        AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "x_total"), "k=\"a\" 4; k=\"b\" 0");
    assert_string_equal(rig_show(&rig, rig.engine, "y_seconds"), "1 1 1 9.5");
    assert_string_equal(rig_show(&rig, rig.engine, "z"), "k=\"a\" 4");
    assert_string_equal(rig_show(&rig, rig.engine, "q"), "");
    assert_string_equal(rig_show(&rig, rig.front_end, "q"), "1");
    assert_int_equal(rig_refused(&rig, "x_total"), 2);
    assert_int_equal(rig_refused(&rig, "z"), 1);
    assert_int_equal(agent_ledger_counters(rig.ledger)->unknown_families, 2); /* nobody, and 7 */
    rig_apply_as(&rig, AGENT_RECORD_OBS, "[[nobody, {}, 1], 7, [x_total, {}]]", AGENT_APPLY_GAUGES);
    assert_int_equal(agent_ledger_counters(rig.ledger)->unknown_families, 2); /* counted when they came */

    /* The next record's observations of a gauge family replace all of it, and nothing else. */
    rig_apply_as(&rig, AGENT_RECORD_OBS, "[[z, {k: b}, 5]]", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "z"), "k=\"a\"; k=\"b\" 5");
    assert_string_equal(rig_show(&rig, rig.front_end, "q"), "1");
    rig_release(&rig);
}

static void observations_have_the_labels_that_the_catalog_states(void **state)
{
    (void) state;
    static const char catalog[] = "version: 1\nfamilies:\n"
                                  "  of_model_total: {type: counter, help: h, labels: []}\n"
                                  "  of_stage_total: {type: counter, help: h, labels: [stage, kind]}\n"
                                  "  of_replica_total: {type: counter, help: h, labels: [stage, replica]}\n"
                                  "  free_total: {type: counter, help: h}\n";
    struct rig rig;
    rig_init_at(&rig, catalog, ", stage: talker", "");
    rig_apply_as(&rig, AGENT_RECORD_OBS,
                 "[[of_model_total, null, 1], [of_model_total, {}, 1], [of_model_total, {kind: a}, 1], "
                 "[of_stage_total, {kind: a}, 1], [of_stage_total, null, 1], [of_stage_total, {kind: a, more: b}, 1], "
                 "[of_stage_total, {stage: own, kind: a}, 1], "
                 "[of_replica_total, null, 1], [of_replica_total, {replica: \"0\"}, 1], [free_total, {any: a}, 1]]",
                 AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "of_model_total"), "2");
    assert_int_equal(rig_refused(&rig, "of_model_total"), 1);
    assert_string_equal(rig_show(&rig, rig.engine, "of_stage_total"), "kind=\"a\" 1; kind=\"a\",stage=\"own\" 1");
    assert_int_equal(rig_refused(&rig, "of_stage_total"), 2);
    assert_string_equal(rig_show(&rig, rig.engine, "of_replica_total"), "replica=\"0\" 1");
    assert_int_equal(rig_refused(&rig, "of_replica_total"), 1);
    assert_string_equal(rig_show(&rig, rig.engine, "free_total"), "any=\"a\" 1");
    rig_release(&rig);
}

static void a_family_observes_another_with_fewer_labels(void **state)
{
    (void) state;
    static const char catalog[] = "version: 1\nbucket_sets: {b: [1, 2], wide: [1.5]}\nfamilies:\n"
                                  "  edges_total: {type: counter, help: h, labels: [from, to, replica]}\n"
                                  "  pairs_total: {type: counter, help: h, labels: [to, from], observes: edges_total}\n"
                                  "  all_total: {type: counter, help: h, labels: [], observes: edges_total}\n"
                                  "  edge_seconds: {type: histogram, help: h, buckets: b, labels: [from, replica]}\n"
                                  "  pair_seconds: {type: histogram, help: h, buckets: wide, labels: [from], "
                                  "observes: edge_seconds}\n";
    struct rig rig;
    rig_init_at(&rig, catalog, "", "");
    rig_apply_as(
        &rig, AGENT_RECORD_OBS,
        "[[edges_total, {from: a, to: b, replica: \"0\"}, 2], [edges_total, {from: a, to: b, replica: \"1\"}, 3], "
        "[edges_total, {from: b, to: a, replica: \"1\"}, [4, 5]], [edges_total, {from: a, to: b}, 100], "
        "[edges_total, {from: a, to: b, replica: \"1\", more: c}, 100], [pairs_total, {from: a, to: b}, 100], "
        "[edge_seconds, {from: a, replica: \"0\"}, [0.5, 1.25]], [edge_seconds, {from: a, replica: \"1\"}, 9]]",
        AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "pairs_total"), "from=\"a\",to=\"b\" 5; from=\"b\",to=\"a\" 9");
    assert_string_equal(rig_show(&rig, rig.engine, "all_total"), "14");
    assert_string_equal(rig_show(&rig, rig.engine, "pair_seconds"), "from=\"a\" 2 1 10.75");
    assert_int_equal(rig_refused(&rig, "edges_total"), 2); /* with other labels: no observation of theirs either */
    assert_int_equal(rig_refused(&rig, "pairs_total"), 0);
    assert_int_equal(agent_ledger_counters(rig.ledger)->unknown_families, 1); /* pairs_total isn't told itself */
    rig_release(&rig);
}

static void an_observed_source_has_nothing_at_zero_before_its_first_step(void **state)
{
    (void) state;
    static const char *const families[] = {"vllm:num_preemptions_total", "vllm:kv_cache_usage_perc",
                                           "vllm:inter_token_latency_seconds"};
    struct rig rig;
    rig_init_at(&rig, NULL, ", observed: true", "");
    rig_apply_as(&rig, AGENT_RECORD_OBS, "[[vllm_omni:image_count_total, null, 3]]", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "vllm_omni:image_count_total"), "3");
    for (size_t i = 0; i < SB_COUNT(families); i++)
        assert_string_equal(rig_show(&rig, rig.engine, families[i]), "");
    assert_string_equal(rig_show(&rig, rig.engine, "statsbus_source_refused_samples_total"), "0");
    assert_string_equal(rig_show(&rig, rig.front_end, "vllm:admission_rejections_total"), "");
    assert_string_equal(rig_show(&rig, rig.front_end, "statsbus_source_lost_records_total"), "0");
    rig_step(&rig, "{scheduler_stats: {num_running_reqs: 2}, iteration_stats: {}}");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:num_preemptions_total"), "0");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:num_requests_running"), "2");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:kv_cache_usage_perc"), "");
    rig_apply_as(&rig, AGENT_RECORD_EVENT, "{admission: {reason: max_num_queued_reqs}}", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.front_end, "vllm:admission_rejections_total"),
                        "reason=\"max_num_queued_reqs\" 1; reason=\"max_num_queued_tokens\" 0");
    rig_release(&rig);
    rig_init(&rig, NULL, "");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:kv_cache_usage_perc"), "0");
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(observations_feed_families_by_name),
        cmocka_unit_test(observations_have_the_labels_that_the_catalog_states),
        cmocka_unit_test(a_family_observes_another_with_fewer_labels),
        cmocka_unit_test(an_observed_source_has_nothing_at_zero_before_its_first_step),
    };
    return cmocka_run_group_tests_name("observations", tests, NULL, NULL);
}
