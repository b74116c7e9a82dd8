/* What each construct of the catalog's language does to a record. */
#include "rig.h"

#define ROOTS                                                                                                          \
    "version: 1\n"                                                                                                     \
    "roots: {s: step.s, it: step.it, sleep: event.sleep, admission: event.admission}\n"                                \
    "bucket_sets: {b: [1, 2, 5]}\n"                                                                                    \
    "features: {on: {path: a.b}, of: {path: a.kind, in: [x, \"1\"]}}\n"                                                \
    "families:\n"

/* One family, records that feed it, and its series afterwards (rig_show). */
struct feed_case {
    const char *what;
    const char *family;
    const char *definition;
    const char *hello; /* further keys */
    const char *records[4];
    const char *expected;
    uint64_t refused;
};

static const struct feed_case feed_cases[] = {
    {"a number", "c_total", "{type: counter, help: h, from: it.n}", "", {"{it: {n: 3}}", "{it: {n: 4.5}}"}, "7.5", 0},
    {"zero from the start", "c_total", "{type: counter, help: h, from: it.n}", "", {"{it: {other: 3}}"}, "0", 0},
    {"nil is absent", "c_total", "{type: counter, help: h, from: it.n}", "", {"{it: {n: null}}", "{it: null}"}, "0", 0},
    {"true is one", "c_total", "{type: counter, help: h, from: it.n}", "", {"{it: {n: true}}"}, "1", 0},
    {"bad values cost one family",
     "c_total",
     "{type: counter, help: h, from: it.n}",
     "",
     {"{it: {n: -3}}", "{it: {n: .nan}}", "{it: {n: \"5\"}}", "{it: {n: [1]}}"},
     "0",
     4},
    {"a map where a number belongs",
     "c_total",
     "{type: counter, help: h, from: it.n}",
     "",
     {"{it: {n: {a: 1}}}"},
     "0",
     1},
    {"a number where a map belongs", "c_total", "{type: counter, help: h, from: it.a.n}", "", {"{it: {a: 1}}"}, "0", 1},
    {"infinity", "c_total", "{type: counter, help: h, from: it.n}", "", {"{it: {n: .inf}}"}, "0", 1},
    {"amounts that two of would make a total infinite",
     "c_total",
     "{type: counter, help: h, from: it.n}",
     "",
     {"{it: {n: 1.7e+308}}", "{it: {n: 1.7e+308}}", "{it: {n: 9007199254740994}}", "{it: {n: 4}}"},
     "4",
     3},
    {"observations that no double holds exactly",
     "h",
     "{type: histogram, buckets: b, help: h, from: \"it.l[]\"}",
     "",
     {"{it: {l: [1.7e+308, 1, 1.7e+308]}}"},
     "1 0 0 0 1",
     2},
    {"the largest amount",
     "c_total",
     "{type: counter, help: h, from: it.n}",
     "",
     {"{it: {n: 9007199254740992}}"},
     "9.0072e+15",
     0},
    {"sums need both",
     "c_total",
     "{type: counter, help: h, from: it.a + it.b}",
     "",
     {"{it: {a: 1, b: 2}}", "{it: {a: 5}}"},
     "3",
     0},
    {"optional terms",
     "c_total",
     "{type: counter, help: h, from: it.a + it.b?}",
     "",
     {"{it: {a: 1, b: 2}}", "{it: {a: 5}}"},
     "8",
     0},
    {"a lone optional field",
     "h",
     "{type: histogram, buckets: b, help: h, from: it.a?}",
     "",
     {"{it: {a: 2}}", "{it: {}}"},
     "1 1 0 0 2",
     0},
    {"differences",
     "c_total",
     "{type: counter, help: h, from: it.a - it.b}",
     "",
     {"{it: {a: 5, b: 2}}", "{it: {a: 1, b: 2}}"},
     "3",
     1},
    {"a bad term",
     "c_total",
     "{type: counter, help: h, from: it.a + it.b}",
     "",
     {"{it: {a: [], b: 2}}", "{it: {a: x, b: 2}}"},
     "0",
     2},
    {"clamped",
     "c_total",
     "{type: counter, help: h, from: \"it.a - max(it.b?, 0)\"}",
     "",
     {"{it: {a: 5, b: -2}}", "{it: {a: 5}}"},
     "10",
     0},
    {"the first present",
     "c_total",
     "{type: counter, help: h, from: it.a | it.b}",
     "",
     {"{it: {a: 1, b: 9}}", "{it: {b: 2}}"},
     "3",
     0},
    {"a later field counts where the first is bad in type only once",
     "c_total",
     "{type: counter, help: h, from: it.a | it.b}",
     "",
     {"{it: {a: x, b: 9}}"},
     "0",
     1},
    {"constants count elements",
     "c_total",
     "{type: counter, help: h, from: {each: \"it.l[]\", value: 1}}",
     "",
     {"{it: {l: [{}, {}, {}]}}"},
     "3",
     0},
    {"lists of numbers",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.l[]\"}",
     "",
     {"{it: {l: [0.5, 1, 1.5, 5, 6]}}"},
     "2 1 1 1 14",
     0},
    {"bad elements of a list",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.l[]\"}",
     "",
     {"{it: {l: [1, -1, .nan, x, null, [1], 2]}}"},
     "1 1 0 0 3",
     4},
    {"not a list",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.l[]\"}",
     "",
     {"{it: {l: 3}}", "{it: {l: {}}}"},
     "0 0 0 0 0",
     2},
    {"lists in lists",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.l[].g[]\"}",
     "",
     {"{it: {l: [{g: [1]}, {g: [2, 3]}, {}]}}"},
     "1 1 1 0 6",
     0},
    {"fields of elements",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.l[].x\"}",
     "",
     {"{it: {l: [{x: 1}, {y: 1}, {x: null}, {x: 9}]}}"},
     "1 0 0 1 10",
     0},
    {"fields do not leak to the next element",
     "c_total",
     "{type: counter, help: h, from: {each: \"it.l[]\", value: a + b}}",
     "",
     {"{it: {l: [{a: 1, b: 1}, {a: 1}]}}"},
     "2",
     0},
    {"the first list that shows up wins for good",
     "h",
     "{type: histogram, help: h, buckets: b, from: \"it.new[] | it.old[]\"}",
     "",
     {"{it: {old: [], new: []}}", "{it: {old: [1]}}", "{it: {new: [2], old: [1]}}"},
     "2 0 0 0 2",
     0},
    {"not zero",
     "h",
     "{type: histogram, help: h, buckets: b, from: {each: \"it.l[]\", value: x, nonzero: true}}",
     "",
     {"{it: {l: [{x: 0}, {x: 2}, {}]}}"},
     "0 1 0 0 2",
     0},
    {"a key as label",
     "c_total",
     "{type: counter, help: h, from: \"it.m{k}\"}",
     "",
     {"{it: {m: {a: 1, b: 2}}}", "{it: {m: {b: 3, \"\": 1}}}"},
     "k=\"a\" 1; k=\"b\" 5;  1",
     0},
    {"an index as label",
     "c_total",
     "{type: counter, help: h, from: \"it.l[pos]\"}",
     "",
     {"{it: {l: [5, 7]}}"},
     "pos=\"0\" 5; pos=\"1\" 7",
     0},
    {"a number as key",
     "c_total",
     "{type: counter, help: h, from: \"it.m{k}\"}",
     "",
     {"{it: {m: {7: 1}}}"},
     "k=\"7\" 1",
     0},
    {"a field as label",
     "c_total",
     "{type: counter, help: h, values: {why: [stop]}, from: {each: \"it.l[]\", value: 1, labels: {why: $r}}}",
     "",
     {"{it: {l: [{r: stop}, {r: new}, {}, {r: 5}]}}"},
     "why=\"stop\" 1; why=\"new\" 1;  1; why=\"5\" 1",
     0},
    {"labels of several iterators",
     "c_total",
     "{type: counter, help: h, from: {each: \"it.m{op}[]\", value: n, labels: {how: $how, side: tx}}}",
     "",
     {"{it: {m: {put: [{n: 2, how: ok}, {n: 3, how: bad}], get: [{n: 4, how: ok}]}}}"},
     "how=\"ok\",op=\"put\",side=\"tx\" 2; how=\"bad\",op=\"put\",side=\"tx\" 3; how=\"ok\",op=\"get\",side=\"tx\" 4",
     0},
    {"several feeds",
     "c_total",
     "{type: counter, help: h, values: {k: [a, b]}, from: [{value: it.x, labels: {k: a}}, \"it.m{k}\"]}",
     "",
     {"{it: {x: 1, m: {b: 2, a: 4}}}"},
     "k=\"a\" 5; k=\"b\" 2",
     0},
    {"counted values",
     "c_total",
     "{type: counter, help: h, values: {p: {count: spec.n}}, from: \"it.l[p]\"}",
     ", config: {spec: {n: 2}}",
     {"{it: null}"},
     "p=\"0\" 0; p=\"1\" 0",
     0},
    {"a feature that is off",
     "c_total",
     "{type: counter, help: h, if: on, from: it.n}",
     ", config: {a: {b: false}}",
     {"{it: {n: 1}}"},
     "",
     0},
    {"a feature that is absent",
     "c_total",
     "{type: counter, help: h, if: on, from: it.n}",
     "",
     {"{it: {n: 1}}"},
     "",
     0},
    {"a feature that is on",
     "c_total",
     "{type: counter, help: h, if: on, from: it.n}",
     ", config: {a: {b: {x: 1}}}",
     {"{it: {n: 1}}"},
     "1",
     0},
    {"a feature by value",
     "c_total",
     "{type: counter, help: h, if: of, from: it.n}",
     ", config: {a: {kind: 1}}",
     {"{it: {n: 1}}"},
     "1",
     0},
    {"bounds of the hello win",
     "h",
     "{type: histogram, help: h, buckets: b, from: it.n}",
     ", buckets: {b: [3]}",
     {"{it: {n: 3}}"},
     "1 0 3",
     0},
    {"a gauge", "g", "{type: gauge, help: h, from: s.n}", "", {"{s: {n: 3}}", "{s: {n: 2}}"}, "2", 0},
    {"gauges start at zero", "g", "{type: gauge, help: h, from: s.n}", "", {"{s: null}"}, "0", 0},
    {"a gauge whose field is gone has no sample",
     "g",
     "{type: gauge, help: h, from: s.n}",
     "",
     {"{s: {n: 3}}", "{s: {}}"},
     "",
     0},
    {"a record without the half keeps its gauges",
     "g",
     "{type: gauge, help: h, from: s.n}",
     "",
     {"{s: {n: 3}}", "{s: null, it: {n: 1}}"},
     "3",
     0},
    {"gauges may be negative but finite",
     "g",
     "{type: gauge, help: h, from: s.n}",
     "",
     {"{s: {n: -3}}", "{s: {n: .nan}}"},
     "",
     1},
    {"enumerated values of a gauge are zeroed first",
     "g",
     "{type: gauge, help: h, values: {k: [a, b]}, from: \"s.m{k}\"}",
     "",
     {"{s: {m: {a: 1, b: 2, c: 3}}}", "{s: {m: {b: 5}}}"},
     "k=\"a\" 0; k=\"b\" 5; k=\"c\"",
     0},
    {"a semantic that the type allows",
     "g",
     "{type: gauge, semantic: cache_metric, help: h, from: s.n}",
     "",
     {"{s: {n: 0.5}}"},
     "0.5",
     0},
};

static void every_construct_feeds_as_written(void **state)
{
    (void) state;
    for (size_t i = 0; i < SB_COUNT(feed_cases); i++) {
        const struct feed_case *test = &feed_cases[i];
        char catalog[2048];
        struct rig rig;
        snprintf(catalog, sizeof catalog, ROOTS "  %s: %s\n", test->family, test->definition);
        rig_init(&rig, catalog, test->hello);
        for (size_t j = 0; j < SB_COUNT(test->records) && test->records[j]; j++)
            rig_step(&rig, test->records[j]);
        const char *shown = rig_show(&rig, rig.engine, test->family);
        if (strcmp(shown, test->expected) != 0 &&
            (strncmp(test->expected, " ", 1) != 0 || strcmp(shown, test->expected + 1) != 0))
            fail_msg("%s: '%s' instead of '%s'", test->what, shown, test->expected);
        if (rig_refused(&rig, test->family) != test->refused)
            fail_msg("%s: %lu refused", test->what, (unsigned long) rig_refused(&rig, test->family));
        rig_release(&rig);
    }
}

static void a_bad_field_costs_only_its_own_samples(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, "");
    rig_step(&rig, "{iteration_stats: {num_generation_tokens: 5, prompt_token_stats: {total: -3, computed: 2}, "
                   "inter_token_latencies_iter: [0.02, -1]}}");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:generation_tokens_total"), "5");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:prompt_tokens_total"), "0");
    assert_int_equal(rig_refused(&rig, "vllm:prompt_tokens_total"), 1);
    assert_int_equal(rig_refused(&rig, "vllm:generation_tokens_total"), 0);
    assert_int_equal(rig_refused(&rig, "vllm:inter_token_latency_seconds"), 1);
    rig_release(&rig);
}

static void an_older_snapshot_never_replaces_a_newer_one(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  g: {type: gauge, help: h, from: s.n}\n  c_total: {type: counter, help: h, from: s.d}\n",
             "");
    rig_step(&rig, "{s: {n: 3, d: 1}}");
    rig.now.time = 5;
    rig_step(&rig, "{s: {n: 9, d: 1}}");
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "3");
    assert_string_equal(rig_show(&rig, rig.engine, "c_total"), "2");
    rig_release(&rig);
}

static void times_of_other_hosts_are_shifted_before_they_are_compared(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  g: {type: gauge, help: h, from: s.n}\n", "");
    rig_step(&rig, "{s: {n: 3}}"); /* 10 s on host 1 */
    rig.now = (struct agent_moment){.time = 5000, .host = 2, .shift = -4995, .arrival_ms = 5};
    rig_step(&rig, "{s: {n: 9}}"); /* 5 s of host 1's clock: older */
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "3");
    rig.now = (struct agent_moment){.time = 5006, .host = 2, .shift = -4995, .arrival_ms = 6};
    rig_step(&rig, "{s: {n: 7}}");
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "7");
    rig_release(&rig);
}

static void gauges_of_a_hello_count_no_deltas(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig,
             ROOTS "  g: {type: gauge, help: h, from: s.n}\n  c_total: {type: counter, help: h, from: s.d}\n"
                   "  h: {type: histogram, help: h, buckets: b, from: \"s.l[]\"}\n",
             "");
    rig_apply_as(&rig, AGENT_RECORD_STEP, "{s: {n: 3, d: -1, l: [1, x]}}", AGENT_APPLY_GAUGES);
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "3");
    assert_string_equal(rig_show(&rig, rig.engine, "c_total"), "0");
    assert_string_equal(rig_show(&rig, rig.engine, "h"), "0 0 0 0 0");
    assert_int_equal(rig_refused(&rig, "c_total") + rig_refused(&rig, "h"), 0);
    rig_release(&rig);
}

static void a_source_that_is_not_live_shows_no_gauge(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  g: {type: gauge, help: h, from: s.n}\n", "");
    rig_step(&rig, "{s: {n: 3}}");
    agent_binding_contribution(rig.engine)->is_live = false;
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "");
    rig_release(&rig);
}

static void only_steps_and_observations_with_gauges_are_snapshots(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, ", families: [{name: z, type: gauge, help: h}, {name: c_total, type: counter, help: h}]");
    const struct agent_contribution *to = agent_binding_contribution(rig.engine);
    rig_step(&rig, "{iteration_stats: {num_generation_tokens: 5}}");
    rig_step(&rig, "{scheduler_stats: null}");
    rig_apply_as(&rig, AGENT_RECORD_EVENT, "{sleep: {sleep: 0, level: 0}}", AGENT_APPLY_ALL);
    rig_apply_as(&rig, AGENT_RECORD_OBS, "[[c_total, null, 1]]", AGENT_APPLY_ALL);
    assert_int_equal(to->snapshot_ms, -1);
    const int64_t arrival_ms = rig.now.arrival_ms;
    rig_step(&rig, "{scheduler_stats: {num_running_reqs: 1}}");
    assert_int_equal(to->snapshot_ms, arrival_ms);
    rig_apply_as(&rig, AGENT_RECORD_OBS, "[[z, null, 1]]", AGENT_APPLY_ALL);
    assert_int_equal(to->snapshot_ms, arrival_ms + 1000);
    rig.now.time = 0; /* older than what is there */
    rig_step(&rig, "{scheduler_stats: {num_running_reqs: 7}}");
    assert_int_equal(to->snapshot_ms, arrival_ms + 1000);
    rig_release(&rig);
}

static void the_sleep_state_is_one_of_three(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, "");
    const char *name = "vllm:engine_sleep_state";
    assert_string_equal(rig_show(&rig, rig.engine, name),
                        "sleep_state=\"awake\" 1; sleep_state=\"weights_offloaded\" 0; sleep_state=\"discard_all\" 0");
    rig_apply_as(&rig, AGENT_RECORD_EVENT, "{sleep: {sleep: 1, level: 2}}", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, name),
                        "sleep_state=\"awake\" 0; sleep_state=\"weights_offloaded\" 0; sleep_state=\"discard_all\" 1");
    rig_apply_as(&rig, AGENT_RECORD_EVENT, "{sleep: {sleep: 0, level: 0}}", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, name),
                        "sleep_state=\"awake\" 1; sleep_state=\"weights_offloaded\" 0; sleep_state=\"discard_all\" 0");
    rig_release(&rig);
}

static void admission_rejections_belong_to_the_front_end(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, "");
    rig_apply_as(&rig, AGENT_RECORD_EVENT, "{admission: {reason: max_num_queued_reqs}}", AGENT_APPLY_ALL);
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:admission_rejections_total"), "");
    assert_string_equal(rig_show(&rig, rig.front_end, "vllm:admission_rejections_total"),
                        "reason=\"max_num_queued_reqs\" 1; reason=\"max_num_queued_tokens\" 0");
    assert_string_equal(rig_show(&rig, rig.front_end, "vllm:generation_tokens_total"), "");
    assert_true(agent_plan_feeds_front_end(rig.plan, AGENT_RECORD_EVENT));
    assert_false(agent_plan_feeds_front_end(rig.plan, AGENT_RECORD_STEP));
    rig_release(&rig);
}

static void a_gauge_survives_the_four_billionth_snapshot(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, ROOTS "  g: {type: gauge, semantic: state_gauge, help: h, from: s.n}\n", "");
    rig_step(&rig, "{s: {n: 4}}");
    struct agent_contribution *to = agent_binding_contribution(rig.engine);
    to->inputs[to->gauges[0].input].generation = UINT32_MAX;
    rig_step(&rig, "{s: {n: 5}}");
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "5");
    rig_step(&rig, "{s: {}}");
    assert_string_equal(rig_show(&rig, rig.engine, "g"), "");
    rig_release(&rig);
}

static void info_is_a_gauge_of_one_with_its_content_as_labels(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL,
             ", info: [[null, cache_config_info, {block_size: \"32\"}], [1, cache_config_info, {block_size: \"64\"}], "
             "[0, other, {}]]");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:cache_config_info"), "block_size=\"32\" 1");
    rig_release(&rig);
}

static void sources_get_what_the_agent_counts_about_them(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig,
             "version: 1\nroots: {s: step.s}\nbucket_sets: {b: [1]}\nfamilies:\n"
             "  c_total: {type: counter, help: h, from: s.c}\n"
             "  h: {type: histogram, help: h, buckets: b, from: \"s.list[]\"}\n"
             "  refused_total: {type: counter, help: h, count: refused_samples}\n"
             "  lost_total: {type: counter, help: h, scope: publisher, count: lost_records}\n",
             "");
    assert_string_equal(rig_show(&rig, rig.engine, "refused_total"), "0");
    assert_string_equal(rig_show(&rig, rig.front_end, "lost_total"), "0");
    assert_string_equal(rig_show(&rig, rig.engine, "lost_total"), "");
    rig_step(&rig, "{s: {c: -1, list: [1, x, -2, 3]}}");
    assert_string_equal(rig_show(&rig, rig.engine, "refused_total"), "3");
    agent_binding_count(rig.front_end, SB_AGENT_COUNT_lost_records, 5);
    agent_binding_count(rig.engine, SB_AGENT_COUNT_lost_records, 5); /* it has no family for that */
    assert_string_equal(rig_show(&rig, rig.front_end, "lost_total"), "5");
    rig_release(&rig);
}

static void bad_descriptions_are_refused_one_by_one(void **state)
{
    (void) state;
    static const struct {
        const char *family;
        const char *reason;
    } cases[] = {
        {"{name: \"no name\", type: gauge}", "'no name' is not a metric name"},
        {"{name: a, type: meter}", "family 'a': 'meter' is not a type"},
        {"{name: a, type: counter}", "counter 'a' must end in _total"},
        {"{name: a, type: histogram}", "histogram 'a' has no buckets"},
        {"{name: a, type: histogram, buckets: [2, 1]}", "buckets of 'a': bound 1 (1) is not above the one before (2)"},
        {"{name: a, type: gauge, semantic: odd}", "family 'a': 'odd' is not a semantic"},
        {"{name: 5, type: gauge}", "family '': one of its texts is none"},
        {"{name: \"vllm:time_to_first_token_seconds_count\", type: gauge}",
         "family 'vllm:time_to_first_token_seconds_count' clashes with 'vllm:time_to_first_token_seconds': both have "
         "'vllm:time_to_first_token_seconds_count'"},
        {"{name: \"vllm:num_requests_running\", type: histogram, buckets: [1]}",
         "family 'vllm:num_requests_running' is a gauge, here it is called a histogram"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct rig rig;
        char more[512];
        snprintf(more, sizeof more, ", families: [%s, {name: good_total, type: counter}]", cases[i].family);
        rig_init(&rig, NULL, more);
        assert_int_equal(rig.counters.families_refused, 1);
        assert_string_equal(rig.counters.last.text, cases[i].reason);
        assert_string_equal(rig_show(&rig, rig.engine, "good_total"), "0");
        rig_release(&rig);
    }
}

static void bounds_out_of_order_are_refused_and_the_catalogs_hold(void **state)
{
    (void) state;
    struct rig rig;
    rig_init(&rig, NULL, ", buckets: {request_params_n: [1000, 125, 16, 250, 32, 4, 500]}");
    assert_int_equal(rig.counters.bounds_refused, 1);
    assert_string_equal(rig.counters.last.text,
                        "bucket set 'request_params_n' of the hello: bound 1 (125) is not above the one before (1000)");
    rig_step(&rig, "{iteration_stats: {n_params_iter: [1, 3, 30]}}");
    assert_string_equal(rig_show(&rig, rig.engine, "vllm:request_params_n"), "1 0 1 0 0 1 34");
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_construct_feeds_as_written),
        cmocka_unit_test(a_bad_field_costs_only_its_own_samples),
        cmocka_unit_test(an_older_snapshot_never_replaces_a_newer_one),
        cmocka_unit_test(times_of_other_hosts_are_shifted_before_they_are_compared),
        cmocka_unit_test(gauges_of_a_hello_count_no_deltas),
        cmocka_unit_test(a_source_that_is_not_live_shows_no_gauge),
        cmocka_unit_test(only_steps_and_observations_with_gauges_are_snapshots),
        cmocka_unit_test(the_sleep_state_is_one_of_three),
        cmocka_unit_test(admission_rejections_belong_to_the_front_end),
        cmocka_unit_test(a_gauge_survives_the_four_billionth_snapshot),
        cmocka_unit_test(info_is_a_gauge_of_one_with_its_content_as_labels),
        cmocka_unit_test(sources_get_what_the_agent_counts_about_them),
        cmocka_unit_test(bad_descriptions_are_refused_one_by_one),
        cmocka_unit_test(bounds_out_of_order_are_refused_and_the_catalogs_hold),
    };
    return cmocka_run_group_tests_name("apply", tests, NULL, NULL);
}
