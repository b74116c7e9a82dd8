/* Families of vLLM that no recorded stream exercises, or not with values other than 0: one record each, expected by
 * hand. */
#include "rig.h"

struct family_case {
    const char *family;
    const char *config; /* of the hello */
    const char *record;
    const char *expected; /* rig_show */
};

static const struct family_case cases[] = {
    {"vllm:num_requests_waiting", "{}", "{scheduler_stats: {num_waiting_reqs: 3, num_skipped_waiting_reqs: 2}}", "5"},
    {"vllm:num_requests_waiting", "{}", "{scheduler_stats: {num_waiting_reqs: 3}}", "3"},
    {"vllm:num_requests_waiting_by_reason", "{}", "{scheduler_stats: {num_waiting_reqs: 3}}",
     "reason=\"capacity\" 3; reason=\"deferred\""},
    {"vllm:kv_cache_usage_perc", "{}", "{scheduler_stats: {gpu_cache_usage: 0.5}}", "0.5"},
    {"vllm:num_requests_kv_fetch_by_stage", "{kv_transfer_role: kv_both}",
     "{scheduler_stats: {num_kv_fetch_reqs_by_stage: {waiting_to_start: 4, in_progress: 2}}}",
     "stage=\"waiting_to_start\" 4; stage=\"in_progress\" 2; stage=\"completed_waiting\" 0"},
    {"vllm:num_requests_kv_fetch_by_stage", "{kv_transfer_role: kv_producer}",
     "{scheduler_stats: {num_kv_fetch_reqs_by_stage: {waiting_to_start: 4, in_progress: 2}}}", ""},
    {"vllm:external_prefix_cache_queries_total", "{}",
     "{scheduler_stats: {connector_prefix_cache_stats: {queries: 7, hits: 3, hits_by_source: {host: 2, p2p: 1}}}}",
     "7"},
    {"vllm:external_prefix_cache_hits_total", "{}",
     "{scheduler_stats: {connector_prefix_cache_stats: {queries: 7, hits: 3}}}", "3"},
    {"vllm:prompt_tokens_cached_by_source_total", "{}",
     "{scheduler_stats: {prefix_cache_stats: {hits: 5}, connector_prefix_cache_stats: {hits_by_source: {host: 2, tape: "
     "1}}}}",
     "source=\"device\" 5; source=\"host\" 2; source=\"p2p\" 0; source=\"disk\" 0; source=\"external_unspecified\" 0; "
     "source=\"tape\" 1"},
    {"vllm:mm_cache_queries_total", "{}", "{mm_cache_stats: {queries: 4, hits: 1}}", "4"},
    {"vllm:mm_cache_hits_total", "{}", "{mm_cache_stats: {queries: 4, hits: 1}}", "1"},
    {"vllm:estimated_flops_per_gpu_total", "{}", "{scheduler_stats: {perf_stats: {num_flops_per_gpu: 1e12}}}", "1e+12"},
    {"vllm:estimated_read_bytes_per_gpu_total", "{}", "{scheduler_stats: {perf_stats: {num_read_bytes_per_gpu: 10}}}",
     "10"},
    {"vllm:estimated_write_bytes_per_gpu_total", "{}", "{scheduler_stats: {perf_stats: {num_write_bytes_per_gpu: 11}}}",
     "11"},
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total", "{speculative: {num_speculative_tokens: 3}}",
     "{scheduler_stats: {spec_decoding_stats: {num_accepted_tokens_per_pos: [5, 2]}}}",
     "position=\"0\" 5; position=\"1\" 2; position=\"2\" 0"},
    {"vllm:spec_decode_num_drafts_total", "{speculative: null}",
     "{scheduler_stats: {spec_decoding_stats: {num_drafts: 3}}}", ""},
    {"vllm:diffusion_num_denoising_steps_total", "{is_diffusion: true}",
     "{scheduler_stats: {spec_decoding_stats: {num_drafts: 3, num_draft_tokens: 9, num_accepted_tokens: 5}}}", "3"},
    {"vllm:diffusion_num_canvas_positions_total", "{is_diffusion: true}",
     "{scheduler_stats: {spec_decoding_stats: {num_drafts: 3, num_draft_tokens: 9, num_accepted_tokens: 5}}}", "9"},
    {"vllm:diffusion_num_committed_tokens_total", "{is_diffusion: true}",
     "{scheduler_stats: {spec_decoding_stats: {num_drafts: 3, num_draft_tokens: 9, num_accepted_tokens: 5}}}", "5"},
    {"vllm:nixl_post_time_seconds", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {post_duration: [0.0005, 0.2, 9]}}}",
     "1 0 0 0 0 0 0 1 0 0 0 0 0 1 9.2005"},
    {"vllm:nixl_xfer_time_seconds", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {transfer_duration: [0.002, 5, 7]}}}", "1 0 0 0 0 0 0 0 0 0 0 1 1 12.002"},
    {"vllm:nixl_bytes_transferred", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {bytes_transferred: [1024, 2048, 2049]}}}",
     "2 1 0 0 0 0 0 0 0 0 0 0 0 5121"},
    {"vllm:nixl_num_descriptors", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_descriptors: [5, 90000]}}}", "1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 90005"},
    {"vllm:nixl_num_failed_transfers_total", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_failed_transfers: [1, 1], num_failed_handshakes: [1, 1, 1], "
     "num_failed_notifications: [1]}}}",
     "6"},
    {"vllm:nixl_num_failed_notifications_total", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_failed_notifications: [1]}}}", "1"},
    {"vllm:nixl_num_kv_expired_reqs_total", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_kv_expired_reqs: [1, 1]}}}", "2"},
    {"vllm:nixl_num_notifications_after_expiry_total", "{kv_transfer: {kv_connector: NixlConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_notifications_after_expiry: [1]}}}", "1"},
    {"vllm:nixl_num_descriptors", "{kv_transfer: {kv_connector: OtherConnector}}",
     "{scheduler_stats: {kv_connector_stats: {num_descriptors: [5, 90000]}}}", ""},
    {"vllm:mooncake_store_operation_total", "{kv_transfer: {kv_connector: MooncakeStoreConnector}}",
     "{scheduler_stats: {kv_connector_stats: {put: [{duration_seconds: 0.2, status: ok}, {duration_seconds: 9, status: "
     "error}], "
     "get: [{duration_seconds: 0.001, status: ok}]}}}",
     "operation=\"put\",status=\"ok\" 1; operation=\"put\",status=\"error\" 1; operation=\"get\",status=\"ok\" 1"},
    {"vllm:mooncake_store_operation_time_seconds", "{kv_transfer: {kv_connector: MooncakeStoreConnector}}",
     "{scheduler_stats: {kv_connector_stats: {put: [{duration_seconds: 0.2, status: ok}, {duration_seconds: 9, status: "
     "ok}]}}}",
     "operation=\"put\",status=\"ok\" 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 1 9.2"},
    {"vllm:mooncake_store_operation_keys_total", "{kv_transfer: {kv_connector: MooncakeStoreConnector}}",
     "{scheduler_stats: {kv_connector_stats: {put: [{num_keys: 4, status: ok}, {num_keys: 3, status: ok}]}}}",
     "operation=\"put\",status=\"ok\" 7"},
    {"vllm:mooncake_store_operation_bytes_total", "{kv_transfer: {kv_connector: MooncakeStoreConnector}}",
     "{scheduler_stats: {kv_connector_stats: {put: [{num_bytes: 4096, status: ok}]}}}",
     "operation=\"put\",status=\"ok\" 4096"},
    {"vllm:mooncake_store_operation_failed_keys_total", "{kv_transfer: {kv_connector: MooncakeStoreConnector}}",
     "{scheduler_stats: {kv_connector_stats: {get: [{num_failed_keys: 2, status: error}]}}}",
     "operation=\"get\",status=\"error\" 2"},
    {"vllm:kv_block_reuse_gap_seconds", "{observability: {kv_cache_metrics: true}}",
     "{scheduler_stats: {kv_cache_eviction_events: [{lifetime_seconds: 3, idle_seconds: 1, reuse_gaps_seconds: [0.001, "
     "2000]}]}}",
     "1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 2000"},
    {"vllm:prompt_tokens_total", "{}", "{iteration_stats: {num_prompt_tokens: 7}}", "7"},
    {"vllm:prompt_tokens_by_source_total", "{}",
     "{iteration_stats: {prompt_token_stats: {computed: 1, local_cache_hit: 2, external_kv_transfer: 4}}}",
     "source=\"local_compute\" 1; source=\"local_cache_hit\" 2; source=\"external_kv_transfer\" 4"},
    {"vllm:prompt_tokens_cached_total", "{}", "{iteration_stats: {prompt_token_stats: {cached_tokens: 6}}}", "6"},
    {"vllm:num_preemptions_total", "{}", "{iteration_stats: {num_preempted_reqs: 2}}", "2"},
    {"vllm:inter_token_latency_seconds", "{}", "{iteration_stats: {time_per_output_tokens_iter: [0.1]}}",
     "0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0.1"},
    {"vllm:iteration_tokens_total", "{}", "{iteration_stats: {num_prompt_tokens: 7, num_generation_tokens: 1}}",
     "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"},
    {"vllm:corrupted_requests_total", "{env: {VLLM_COMPUTE_NANS_IN_LOGITS: true}}",
     "{iteration_stats: {num_corrupted_reqs: 2}}", "2"},
    {"vllm:corrupted_requests_total", "{env: {VLLM_COMPUTE_NANS_IN_LOGITS: \"0\"}}",
     "{iteration_stats: {num_corrupted_reqs: 2}}", ""},
    {"vllm:watermark_requests_total", "{watermark: {x: 1}}",
     "{iteration_stats: {num_watermarked_reqs: 1, num_watermark_skipped_reqs: 0, num_not_watermarked_reqs: 7}}",
     "status=\"watermarked\" 1; status=\"skipped\" 0; status=\"not_watermarked\" 7"},
    {"vllm:request_success_total", "{}",
     "{iteration_stats: {finished_requests: [{finish_reason: repetition}, {finish_reason: error}, {finish_reason: "
     "meteor}]}}",
     "finished_reason=\"stop\" 0; finished_reason=\"length\" 0; finished_reason=\"abort\" 0; finished_reason=\"error\" "
     "1; "
     "finished_reason=\"repetition\" 1; finished_reason=\"meteor\" 1"},
    {"vllm:request_prefill_kv_computed_tokens", "{}",
     "{iteration_stats: {finished_requests: [{num_prompt_tokens: 7}, {num_prompt_tokens: 9, num_cached_tokens: 4}, "
     "{num_prompt_tokens: 2, num_cached_tokens: -1}]}}",
     "0 1 1 1 0 0 0 0 0 0 0 14"},
    {"vllm:request_params_max_tokens", "{}",
     "{iteration_stats: {finished_requests: [{max_tokens_param: null}, {max_tokens_param: 0}, {max_tokens_param: 8}]}}",
     "0 0 0 1 0 0 0 0 0 0 0 8"},
};

static void each_family_is_fed_as_the_engine_feeds_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char more[512];
        struct rig rig;
        snprintf(more, sizeof more, ", config: %s", cases[i].config);
        rig_init(&rig, NULL, more);
        rig_step(&rig, cases[i].record);
        const char *shown = rig_show(&rig, rig.engine, cases[i].family);
        if (strcmp(shown, cases[i].expected) != 0)
            fail_msg("%s: '%s' instead of '%s'", cases[i].family, shown, cases[i].expected);
        assert_int_equal(rig_refused(&rig, cases[i].family), 0);
        rig_release(&rig);
    }
}

static void an_old_release_loses_only_what_it_lacks(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, "");
    rig_step(&rig,
             "{scheduler_stats: {num_running_reqs: 1, num_waiting_reqs: 3, gpu_cache_usage: 0.5, brand_new: {x: [1]}}, "
             "iteration_stats: {num_prompt_tokens: 7, num_generation_tokens: 1, time_per_output_tokens_iter: [0.1], "
             "finished_requests: [{finish_reason: stop, num_prompt_tokens: 7}]}}");
    static const char *const expected[][2] = {
        {"vllm:num_requests_running", "1"},
        {"vllm:num_requests_waiting", "3"},
        {"vllm:kv_cache_usage_perc", "0.5"},
        {"vllm:prompt_tokens_total", "7"},
        {"vllm:generation_tokens_total", "1"},
        {"vllm:request_prompt_tokens", "0 0 0 1 0 0 0 0 0 0 0 7"},
        {"vllm:request_prefill_kv_computed_tokens", "0 0 0 1 0 0 0 0 0 0 0 7"},
    };
    for (size_t i = 0; i < SB_COUNT(expected); i++)
        assert_string_equal(rig_show(&rig, rig.engine, expected[i][0]), expected[i][1]);
    rig_release(&rig);
}

/* NIXL behind a MultiConnector: the publisher flattens it, under names that the catalog has for NIXL alone. */
static void a_family_that_is_off_is_there_for_an_engine_that_describes_it(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL,
             ", config: {kv_transfer: {kv_connector: MultiConnector}}, families: "
             "[{name: \"vllm:nixl_num_kv_expired_reqs_total\", type: counter, help: h, labels: []}, "
             "{name: \"vllm:nixl_xfer_time_seconds\", type: histogram, buckets: [1, 2], labels: []}]");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:nixl_num_kv_expired_reqs_total"), "0");
    rig_apply_as(
        &rig, AGENT_RECORD_OBS,
        "[[\"vllm:nixl_num_kv_expired_reqs_total\", null, 3], [\"vllm:nixl_xfer_time_seconds\", null, [1.5, 4]]]",
        AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:nixl_num_kv_expired_reqs_total"), "3");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:nixl_xfer_time_seconds"), "0 1 1 5.5");
    assert_int_equal(rig.counters.families_refused, 0);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_is_fed_as_the_engine_feeds_it),
        cmocka_unit_test(an_old_release_loses_only_what_it_lacks),
        cmocka_unit_test(a_family_that_is_off_is_there_for_an_engine_that_describes_it),
    };
    return cmocka_run_group_tests_name("vllm_families", tests, NULL, NULL);
}
