#include "cmocka_all.h"

#include "common/catalog.h"

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
        {"version: 1\nfeatures:\n  f: {in: [a]}\n", "a.yaml:3: 'path' is missing"},
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
    const struct sb_catalog_file same[] = {{"a.yaml", one, sizeof one - 1}, {"b.yaml", one, sizeof one - 1}};
    const struct sb_catalog_file unlike[] = {{"a.yaml", one, sizeof one - 1}, {"b.yaml", other, sizeof other - 1}};
    struct sb_catalog *catalog = sb_catalog_new(same, 2, &err);
    assert_non_null(catalog);
    assert_int_equal(catalog->n_roots, 1);
    sb_catalog_destroy(&catalog);
    assert_null(sb_catalog_new(unlike, 2, &err));
    assert_string_equal(err.text, "b.yaml:2: root 's' is 'step.s' elsewhere");
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
        cmocka_unit_test(every_semantic_reads_back),
    };
    return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
