#include "cmocka_all.h"

#include "common/catalog.h"
#include "temp_dir.h"

static struct sb_catalog *read(const char *text, struct sb_err *err)
{
    const struct sb_catalog_file file = {.name = "a.yaml", .text = text, .len = strlen(text)};
    return sb_catalog_new(&file, 1, err);
}

static void the_embedded_catalog_is_sound(void **state)
{
    (void) state;
    struct sb_err err = {.text = ""};
    struct sb_catalog *catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    assert_string_equal(err.text, "");
    assert_non_null(catalog);
    assert_true(catalog->n_families >= 63);
    const struct sb_family *family = sb_catalog_family(catalog, "vllm:time_to_first_token_seconds_bucket", 32);
    assert_non_null(family);
    assert_int_equal(family->type, SB_HISTOGRAM);
    assert_int_equal(family->semantic, SB_SEMANTIC_sla_metric);
    assert_int_equal(family->n_role_scope, 2);
    assert_string_equal(family->role_scope[0], "decode");
    assert_null(sb_catalog_family(catalog, "vllm:time", 9));
    sb_catalog_destroy(&catalog);
    assert_null(catalog);
}

#define OBSERVED "version: 1\nfamilies:\n  x_total: {type: counter, help: h, labels: [a, b]}\n"
#define HISTOGRAM(name, more)                                                                                          \
    "version: 1\nbucket_sets: {b: [1]}\nfamilies:\n  " name ": {type: histogram, help: h, buckets: b" more "}\n"

static void errors_say_file_line_and_reason(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"version: 2\n", "a.yaml:1: version must be 1"},
        {"- 1\n", "a.yaml:1: a catalog file must be a map"},
        {"", "a.yaml:1: a catalog file must be a map"},
        {"version: 1\nfoo: 3\n", "a.yaml:2: a catalog file: 'foo' is not a key that is known here"},
        {"version: 1\nfamilies:\n  x: {type: counter, help: h}\n", "a.yaml:3: counter 'x' must end in _total"},
        {"version: 1\nfamilies:\n  x: {type: meter, help: h}\n",
         "a.yaml:3: 'x' needs a type: counter, gauge or histogram"},
        {"version: 1\nfamilies:\n  x: {type: gauge}\n", "a.yaml:3: 'help' is missing"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, form: s.a}\n",
         "a.yaml:3: x: 'form' is not a key that is known here"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, from: s.a}\n", "a.yaml:3: 's' is not one of the roots"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, from: 5}\n",
         "a.yaml:3: a feed without any field never has a sample"},
        {"version: 1\nroots: {s: step.s}\nfamilies:\n  x:\n    type: gauge\n    help: h\n    from: \"s.a +\"\n",
         "a.yaml:7: 's.a +' lacks a field at ''"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, semantic: odd}\n",
         "a.yaml:3: 'odd' is not a semantic; a gauge has: counter, throughput_counter, ratio_numerator, "
         "ratio_denominator, state_gauge, queue_gauge, "
         "cache_metric, resource_utilization_gauge, hotspot_resource_gauge, occupancy_metric, metadata_gauge"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, semantic: sla_metric}\n",
         "a.yaml:3: semantic 'sla_metric' does not go with a gauge"},
        {"version: 1\nfamilies:\n  x: {type: histogram, help: h}\n",
         "a.yaml:3: 'x': buckets go with histograms, and only with them"},
        {"version: 1\nfamilies:\n  x: {type: histogram, help: h, buckets: b}\n",
         "a.yaml:3: 'x': there is no bucket set 'b'"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, if: f}\n", "a.yaml:3: 'x': there is no feature 'f'"},
        {"version: 1\nbucket_sets:\n  b: [1, 3, 2]\n",
         "a.yaml:3: bucket set 'b': bound 2 (2) is not above the one before (3)"},
        {"version: 1\nbucket_sets:\n  b: [1, x]\n", "a.yaml:3: 'x' is not a number"},
        {"version: 1\nroots: {s: step.s}\nfamilies:\n  x: {type: gauge, help: h, from: {each: \"s.l[]\", value: n, "
         "nonzero: yes}}\n",
         "a.yaml:4: 'nonzero' is neither true nor false"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h}\n  x_count: {type: gauge, help: h}\n  x: {type: gauge, "
         "help: h}\n",
         "a.yaml:5: 'x' is there already (a.yaml:3)"},
        {"version: 1\nbucket_sets: {b: [1]}\nfamilies:\n  x: {type: histogram, help: h, buckets: b}\n"
         "  x_count: {type: gauge, help: h}\n",
         "a.yaml:5: 'x_count' clashes with 'x' (a.yaml:4): both have 'x_count'"},
        {"version: 1\nfamilies:\n  \"x y\": {type: gauge, help: h}\n", "a.yaml:3: 'x y' is not a metric name"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, scope: engine}\n",
         "a.yaml:3: scope 'engine' is not known: only publisher is"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, values: {k: [a]}, initial: {b: 1}}\n",
         "a.yaml:3: initial: 'b' is not among the values of 'k'"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, values: {\"9\": [a]}}\n",
         "a.yaml:3: '9' is not a label name"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, labels: [\"9\"]}\n", "a.yaml:3: '9' is not a label name"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, labels: stage}\n",
         "a.yaml:3: 'labels' must be a list: [a, b]"},
        {OBSERVED "  y_total: {type: counter, help: h, observes: x_total}\n",
         "a.yaml:4: 'y_total': observes needs labels, and is all that feeds a family"},
        {OBSERVED "  y_total: {type: counter, help: h, labels: [], observes: z_total}\n",
         "a.yaml:4: 'y_total': there is no family 'z_total'"},
        {OBSERVED "  y: {type: gauge, help: h, labels: [], observes: x_total}\n",
         "a.yaml:4: 'y': 'x_total' must be a counter or histogram of the same scope"},
        {OBSERVED "  y_total: {type: counter, help: h, labels: [], observes: x_total, scope: publisher}\n",
         "a.yaml:4: 'y_total': 'x_total' must be a counter of the same scope"},
        {OBSERVED "  y_total: {type: counter, help: h, labels: [c], observes: x_total}\n",
         "a.yaml:4: 'y_total': 'x_total' has no label 'c'"},
        {OBSERVED "  y_total: {type: counter, help: h}\n  z_total: {type: counter, help: h, labels: [], observes: "
                  "y_total}\n",
         "a.yaml:5: 'z_total': 'y_total' is not observed with stated labels"},
        {"version: 1\nfeatures:\n  f: {in: [a]}\n", "a.yaml:3: 'path' is missing"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, quantiles: [0.5]}\n",
         "a.yaml:3: quantiles go with histograms only"},
        {HISTOGRAM("x", ", quantiles: [1.5]"), "a.yaml:4: quantile 1.5 is not above 0 and at most 1"},
        {HISTOGRAM("x", ", quantiles: [0]"), "a.yaml:4: quantile 0 is not above 0 and at most 1"},
        {HISTOGRAM("x", ", quantiles: 0.5"), "a.yaml:4: quantiles must be a list of at most 32 numbers"},
        {HISTOGRAM("x", ", quantiles: [0.5, 0.500]"), "a.yaml:4: two quantiles share the name '_p50'"},
        {HISTOGRAM("x", ", quantiles: [0.999]") "  x_p99_9: {type: gauge, help: h}\n",
         "a.yaml:5: 'x_p99_9' clashes with 'x_p99_9' (a.yaml:4): both have 'x_p99_9'"},
        {HISTOGRAM("x", ", semantic: sla_metric") "  x_mean: {type: gauge, help: h}\n",
         "a.yaml:5: 'x_mean' clashes with 'x_mean' (a.yaml:4): both have 'x_mean'"},
        {"version: 1\nderived:\n  x: {max: y, help: h}\n", "a.yaml:3: 'x': there is no family 'y'"},
        {"version: 1\nderived:\n  x: {max: y}\n", "a.yaml:3: 'help' is missing"},
        {"version: 1\nderived:\n  x: {help: h}\n", "a.yaml:3: 'x' needs either max, ratio or within"},
        {"version: 1\nderived:\n  x: {max: y, ratio: [a, b], help: h}\n",
         "a.yaml:3: 'x' needs either max, ratio or within"},
        {"version: 1\nderived:\n  x: {ratio: [a], help: h}\n", "a.yaml:3: ratio must name two families"},
        {OBSERVED "derived:\n  x: {max: x_total, bound: 1, help: h}\n", "a.yaml:5: 'x': bound goes with within"},
        {OBSERVED "derived:\n  x: {ratio: [[x_total], x_total], help: h}\n",
         "a.yaml:5: a total can't be divided by single series"},
        {OBSERVED "derived:\n  x: {ratio: [x_total, [x_total, y]], help: h}\n",
         "a.yaml:5: 'x': there is no family 'y'"},
        {OBSERVED "derived:\n  x: {ratio: [x_total, [a, b, c, d, e]], help: h}\n",
         "a.yaml:5: a total is of at most 4 families"},
        {OBSERVED "  y: {type: gauge, help: h}\nderived:\n  x: {ratio: [[x_total], [y]], help: h}\n",
         "a.yaml:6: 'x': 'y' is not a counter"},
        {OBSERVED "derived:\n  x: {within: x_total, help: h}\n", "a.yaml:5: 'bound' is missing"},
        {OBSERVED "derived:\n  x: {within: x_total, bound: 1, help: h}\n",
         "a.yaml:5: 'x': 'x_total' is not a histogram"},
        {HISTOGRAM("h", "") "derived:\n  x: {within: h, bound: 1.5, help: h}\n",
         "a.yaml:6: 'x': 1.5 is not a bound of 'b'"},
        {"version: 1\nderived:\n  x-y: {max: y, help: h}\n", "a.yaml:3: 'x-y' is not a metric name"},
        {"version: 1\nfamilies:\n  y_total: {type: counter, help: h}\nderived:\n  x: {max: y_total, help: h}\n",
         "a.yaml:5: 'x': 'y_total' is not a gauge"},
        {"version: 1\nfamilies:\n  y: {type: gauge, help: h}\nderived:\n  y: {max: y, help: h}\n",
         "a.yaml:5: 'y' clashes with 'y' (a.yaml:3): both have 'y'"},
        {"version: 1\nfamilies:\n  x_total: {type: counter, help: h, count: odd}\n",
         "a.yaml:3: 'odd' is nothing that an agent counts"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, count: lost_records}\n",
         "a.yaml:3: count is for counters without from and values"},
        {"version: 1\nfamilies:\n  x_total: {type: counter, help: h, cumulative: true, labels: []}\n"
         "  y_total: {type: counter, help: h, labels: [], observes: x_total}\n",
         "a.yaml:4: 'y_total': 'x_total' is cumulative: its totals can't be observed"},
        {"version: 1\nfamilies:\n  x: {type: gauge, help: h, cumulative: true}\n",
         "a.yaml:3: cumulative is for counters and histograms without from, values, observes and count"},
        {"version: 1\nfamilies:\n  x_total: {type: counter, help: h, cumulative: true, values: {k: [a]}}\n",
         "a.yaml:3: cumulative is for counters and histograms without from, values, observes and count"},
        {"version: 1\nfamilies:\n  x_total: {type: counter, help: h, cumulative: 1}\n",
         "a.yaml:3: 'cumulative' is neither true nor false"},
        {"version: 1\nfamilies: [\n", "a.yaml:3: did not find expected node content"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {.text = ""};
        struct sb_catalog *catalog = read(cases[i].text, &err);
        assert_string_equal(err.text, cases[i].reason);
        assert_null(catalog);
    }
}

static void files_share_roots_and_may_not_disagree(void **state)
{
    (void) state;
    struct sb_err err = {.text = ""};
    static const char one[] = "version: 1\nroots: {s: step.s}\n", other[] = "version: 1\nroots: {s: step.t}\n";
    const struct sb_catalog_file same[] = {{.name = "a.yaml", .text = one, .len = sizeof one - 1},
                                           {.name = "b.yaml", .text = one, .len = sizeof one - 1}};
    const struct sb_catalog_file unlike[] = {{.name = "a.yaml", .text = one, .len = sizeof one - 1},
                                             {.name = "b.yaml", .text = other, .len = sizeof other - 1}};
    struct sb_catalog *catalog = sb_catalog_new(same, 2, &err);
    assert_non_null(catalog);
    assert_int_equal(catalog->n_roots, 1);
    sb_catalog_destroy(&catalog);
    assert_null(sb_catalog_new(unlike, 2, &err));
    assert_string_equal(err.text, "b.yaml:2: root 's' is 'step.s' elsewhere");
}

static void a_higher_layer_replaces_what_has_the_same_name(void **state)
{
    (void) state;
    struct sb_err err = {.text = ""};
    static const char lower[] = "version: 1\nroots: {s: step.s}\nbucket_sets: {b: [1]}\nfeatures: {f: {path: a}}\n"
                                "families:\n  x: {type: gauge, help: old, from: s.x}\n  y: {type: gauge, help: h}\n"
                                "derived:\n  z: {max: x, help: old}\n";
    static const char upper[] = "version: 1\nroots: {s: step.t}\nbucket_sets: {b: [2, 3]}\nfeatures: {f: {path: b}}\n"
                                "families:\n  x: {type: gauge, help: new}\n  w: {type: gauge, help: h}\n"
                                "derived:\n  z: {max: y, help: new}\n";
    struct sb_catalog_file files[] = {{.name = "a.yaml", .text = lower, .len = sizeof lower - 1},
                                      {.name = "b.yaml", .text = upper, .len = sizeof upper - 1, .layer = 1}};
    struct sb_catalog *catalog = sb_catalog_new(files, 2, &err);
    assert_string_equal(err.text, "");
    assert_non_null(catalog);
    assert_int_equal(catalog->n_families, 3);
    assert_int_equal(catalog->n_derived, 1);
    assert_string_equal(sb_catalog_family(catalog, "x", 1)->help, "new");
    assert_int_equal(sb_catalog_family(catalog, "x", 1)->n_feeds, 0);
    assert_string_equal(catalog->derived[0].of, "y");
    assert_string_equal(catalog->roots[0].path, "step.t");
    assert_int_equal(sb_catalog_bucket_set(catalog, "b")->bounds->n, 2);
    assert_string_equal(sb_catalog_feature(catalog, "f")->path, "b");
    sb_catalog_destroy(&catalog);

    files[1].layer = 0;
    assert_null(sb_catalog_new(files, 2, &err));
    assert_string_equal(err.text, "b.yaml:2: root 's' is 'step.s' elsewhere");
}

static void quantiles_are_by_semantic_unless_they_are_said(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {HISTOGRAM("x", ""), 0},
        {HISTOGRAM("x", ", semantic: histogram"), 0},
        {HISTOGRAM("x", ", semantic: histogram_latency"), 3},
        {HISTOGRAM("x", ", semantic: sla_metric"), 3},
        {HISTOGRAM("x", ", semantic: sla_metric, quantiles: []"), 0},
        {HISTOGRAM("x", ", quantiles: [0.5, 0.999]"), 2},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_err err = {.text = ""};
        struct sb_catalog *catalog = read(cases[i].text, &err);
        assert_string_equal(err.text, "");
        assert_int_equal(catalog->families[0].n_quantiles, cases[i].n);
        sb_catalog_destroy(&catalog);
    }
    static const struct {
        double quantile;
        const char *name;
    } names[] = {{0.5, "x_p50"},       {0.95, "x_p95"}, {0.99, "x_p99"}, {0.999, "x_p99_9"},
                 {0.9999, "x_p99_99"}, {0.05, "x_p5"},  {1, "x_p100"}};
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char name[SB_EXPO_NAME_MAX];
        sb_quantile_name(name, "x", names[i].quantile);
        assert_string_equal(name, names[i].name);
    }
}

static void put_file(void **state, const char *name, const char *text)
{
    char path[256];
    FILE *file = fopen(temp_path(state, path, name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_folder_is_laid_over_what_is_embedded(void **state)
{
    struct sb_err err = {.text = ""};
    struct sb_catalog *catalog = sb_catalog_load("", NULL, &err);
    assert_non_null(catalog);
    size_t n = catalog->n_families;
    sb_catalog_destroy(&catalog);

    put_file(state, "b.yaml", "version: 1\nfamilies:\n  vllm:num_requests_running: {type: gauge, help: mine}\n");
    put_file(state, "a.yaml", "version: 1\nfamilies:\n  my:own: {type: gauge, help: h}\n");
    put_file(state, "notes.txt", "not a catalog");
    catalog = sb_catalog_load(*state, NULL, &err);
    assert_string_equal(err.text, "");
    assert_non_null(catalog);
    assert_int_equal(catalog->n_families, n + 1);
    assert_string_equal(sb_catalog_family(catalog, "vllm:num_requests_running", 25)->help, "mine");
    sb_catalog_destroy(&catalog);

    char path[256];
    put_file(state, "c.yaml", "");
    assert_null(sb_catalog_load(*state, NULL, &err));
    assert_non_null(strstr(err.text, "c.yaml:1: a catalog file must be a map"));
    assert_null(sb_catalog_load(temp_path(state, path, "nowhere"), NULL, &err));
    assert_int_equal(err.rc, SB_IO);
}

static void names_are_exposed_with_another_prefix(void **state)
{
    (void) state;
    struct sb_err err = {.text = ""};
    static const char text[] = "version: 1\nfamilies:\n"
                               "  old_a_total: {type: counter, help: h}\n"
                               "  old_b_total: {type: counter, help: h}\n"
                               "  is_old_: {type: gauge, help: h}\n"
                               "derived:\n"
                               "  old_share: {ratio: [old_a_total, old_b_total], help: h}\n"
                               "  old_most: {max: is_old_, help: h}\n";
    const struct sb_catalog_file file = {.name = "a.yaml", .text = text, .len = sizeof text - 1};
    const struct sb_prefix prefix = {.from = "old_", .to = "a:newer_"};
    struct sb_catalog *catalog = sb_catalog_new_exposed(&file, 1, &prefix, &err);
    assert_string_equal(err.text, "");
    assert_non_null(catalog);
    assert_string_equal(catalog->families[0].name, "a:newer_a_total");
    assert_string_equal(catalog->families[2].name, "is_old_");
    assert_string_equal(catalog->derived[0].name, "a:newer_share");
    assert_string_equal(catalog->derived[0].of, "a:newer_a_total");
    assert_string_equal(catalog->derived[0].by, "a:newer_b_total");
    assert_string_equal(catalog->derived[1].of, "is_old_");
    char made[SB_EXPO_NAME_MAX];
    struct sb_slice name = sb_prefix_expose(&catalog->prefix, (struct sb_slice){.at = "old_x/", .len = 5}, made);
    assert_int_equal(name.len, 9);
    assert_string_equal(name.at, "a:newer_x");
    char longest[SB_EXPO_NAME_MAX];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "old_", 4);
    name = sb_prefix_expose(&catalog->prefix, (struct sb_slice){.at = longest, .len = sizeof longest - 1}, made);
    assert_ptr_equal(name.at, longest);
    sb_catalog_destroy(&catalog);

    const struct sb_prefix clashing = {.from = "old_a", .to = "old_b"};
    assert_null(sb_catalog_new_exposed(&file, 1, &clashing, &err));
    assert_non_null(strstr(err.text, "'old_b_total' is there already"));
}

static void every_semantic_reads_back(void **state)
{
    (void) state;
    for (int i = 0; i < SB_SEMANTIC_COUNT; i++) {
        enum sb_semantic out = SB_SEMANTIC_COUNT;
        const char *text = sb_semantic_text((enum sb_semantic) i);
        assert_non_null(text);
        assert_true(sb_semantic_parse(text, strlen(text), &out));
        assert_int_equal(out, i);
    }
    enum sb_semantic out;
    assert_false(sb_semantic_parse("odd", 3, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_embedded_catalog_is_sound),
        cmocka_unit_test(errors_say_file_line_and_reason),
        cmocka_unit_test(files_share_roots_and_may_not_disagree),
        cmocka_unit_test(a_higher_layer_replaces_what_has_the_same_name),
        cmocka_unit_test(quantiles_are_by_semantic_unless_they_are_said),
        cmocka_unit_test_setup_teardown(a_folder_is_laid_over_what_is_embedded, temp_dir_make, temp_dir_drop),
        cmocka_unit_test(names_are_exposed_with_another_prefix),
        cmocka_unit_test(every_semantic_reads_back),
    };
    return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
