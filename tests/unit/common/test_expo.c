#include "common/expo.h"

#include <math.h>

#include "cmocka_all.h"

static const enum sb_expo_format formats[] = {SB_EXPO_TEXT, SB_EXPO_OPENMETRICS};

static struct sb_expo_labels labels_of(const char *a, const char *b, const char *c)
{
    return (struct sb_expo_labels){
        .text = {a, b, c},
        .len = {(uint32_t) strlen(a), (uint32_t) strlen(b), (uint32_t) strlen(c)},
    };
}

static void assert_text(struct sb_buf *buf, const char *want)
{
    sb_buf_put_byte(buf, 0);
    assert_false(buf->is_overflow);
    assert_string_equal((const char *) buf->data, want);
    sb_buf_clear(buf);
}

static void heads_follow_each_formats_rules(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        enum sb_type type;
        const char *unit;
        const char *help;
        const char *want[2];
    } cases[] = {
        {"vllm:prompt_tokens_total",
         SB_COUNTER,
         NULL,
         "Prompt tokens.",
         {"# HELP vllm:prompt_tokens_total Prompt tokens.\n# TYPE vllm:prompt_tokens_total counter\n",
          "# HELP vllm:prompt_tokens Prompt tokens.\n# TYPE vllm:prompt_tokens counter\n"}},
        {"a_bytes_total",
         SB_COUNTER,
         "bytes",
         "",
         {"# TYPE a_bytes_total counter\n", "# TYPE a_bytes counter\n# UNIT a_bytes bytes\n"}},
        {"a_seconds",
         SB_HISTOGRAM,
         "seconds",
         "x",
         {"# HELP a_seconds x\n# TYPE a_seconds histogram\n",
          "# HELP a_seconds x\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n"}},
        {"a", SB_GAUGE, "seconds", "", {"# TYPE a gauge\n", "# TYPE a gauge\n"}},
        {"aseconds", SB_GAUGE, "seconds", "", {"# TYPE aseconds gauge\n", "# TYPE aseconds gauge\n"}},
        {"a_total", SB_GAUGE, "", "", {"# TYPE a_total gauge\n", "# TYPE a_total gauge\n"}},
        {"iteration_tokens_total",
         SB_HISTOGRAM,
         NULL,
         "",
         {"# TYPE iteration_tokens_total histogram\n", "# TYPE iteration_tokens_total histogram\n"}},
        {"h",
         SB_GAUGE,
         NULL,
         "a \"b\" \\ \n c",
         {"# HELP h a \"b\" \\\\ \\n c\n# TYPE h gauge\n", "# HELP h a \\\"b\\\" \\\\ \\n c\n# TYPE h gauge\n"}},
    };
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        for (size_t f = 0; f < SB_COUNT(formats); f++) {
            const struct sb_expo expo = {.out = &buf, .format = formats[f]};
            sb_expo_family(&expo, cases[i].name, cases[i].type, cases[i].unit, cases[i].help);
            assert_text(&buf, cases[i].want[f]);
        }
    }
}

static void a_line_joins_the_parts_that_are_there(void **state)
{
    (void) state;
    static const struct {
        const char *parts[3];
        double value;
        const char *want;
    } cases[] = {
        {{"", "", ""}, 1, "m 1\n"},
        {{"a=\"1\"", "", ""}, 0.5, "m{a=\"1\"} 0.5\n"},
        {{"", "b=\"2\"", ""}, -3, "m{b=\"2\"} -3\n"},
        {{"", "", "c=\"3\""}, 9007199254740991, "m{c=\"3\"} 9007199254740991\n"},
        {{"a=\"1\"", "", "c=\"3\""}, INFINITY, "m{a=\"1\",c=\"3\"} +Inf\n"},
        {{"a=\"1\"", "b=\"2\"", "c=\"3\""}, 0, "m{a=\"1\",b=\"2\",c=\"3\"} 0\n"},
    };
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    const struct sb_expo expo = {.out = &buf, .format = SB_EXPO_TEXT};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const struct sb_expo_labels labels = labels_of(cases[i].parts[0], cases[i].parts[1], cases[i].parts[2]);
        sb_expo_value(&expo, "m", &labels, cases[i].value);
        assert_text(&buf, cases[i].want);
    }
}

static void a_histogram_is_cumulative_and_le_comes_last(void **state)
{
    (void) state;
    static const double upper[] = {0.005, 1, 1e6};
    static const double buckets[] = {2, 0, 3, 1};
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, SB_COUNT(upper), NULL);
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    for (size_t f = 0; f < SB_COUNT(formats); f++) {
        const struct sb_expo expo = {.out = &buf, .format = formats[f]};
        struct sb_expo_labels labels = labels_of("m=\"x\"", "", "z=\"y\"");
        sb_expo_histogram(&expo, "h", &labels, bounds, buckets, 12.25);
        assert_text(&buf, "h_bucket{m=\"x\",z=\"y\",le=\"0.005\"} 2\n"
                          "h_bucket{m=\"x\",z=\"y\",le=\"1.0\"} 2\n"
                          "h_bucket{m=\"x\",z=\"y\",le=\"1e+06\"} 5\n"
                          "h_bucket{m=\"x\",z=\"y\",le=\"+Inf\"} 6\n"
                          "h_sum{m=\"x\",z=\"y\"} 12.25\n"
                          "h_count{m=\"x\",z=\"y\"} 6\n");
        labels = labels_of("", "", "");
        sb_expo_histogram(&expo, "h", &labels, bounds, buckets, 0);
        assert_text(&buf, "h_bucket{le=\"0.005\"} 2\n"
                          "h_bucket{le=\"1.0\"} 2\n"
                          "h_bucket{le=\"1e+06\"} 5\n"
                          "h_bucket{le=\"+Inf\"} 6\n"
                          "h_sum 0\n"
                          "h_count 6\n");
    }
}

static void openmetrics_has_no_sum_beside_buckets_below_zero(void **state)
{
    (void) state;
    static const double upper[] = {-1, 1};
    static const double buckets[] = {1, 1, 1};
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, SB_COUNT(upper), NULL);
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    const struct sb_expo_labels labels = labels_of("", "", "");
    const struct sb_expo text = {.out = &buf, .format = SB_EXPO_TEXT};
    sb_expo_histogram(&text, "h", &labels, bounds, buckets, -2);
    assert_text(&buf,
                "h_bucket{le=\"-1.0\"} 1\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum -2\nh_count 3\n");
    const struct sb_expo openmetrics = {.out = &buf, .format = SB_EXPO_OPENMETRICS};
    sb_expo_histogram(&openmetrics, "h", &labels, bounds, buckets, -2);
    assert_text(&buf, "h_bucket{le=\"-1.0\"} 1\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 3\n");
}

static void the_longest_lines_fit(void **state)
{
    (void) state;
    double upper[SB_BOUNDS_MAX];
    double buckets[SB_BOUNDS_MAX + 1];
    for (size_t i = 0; i <= SB_BOUNDS_MAX; i++) {
        if (i < SB_BOUNDS_MAX)
            upper[i] = -1.2345678901234567e-300 / (double) (i + 1);
        buckets[i] = -1.2345678901234567e-300;
    }
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, SB_BOUNDS_MAX, NULL);
    assert_non_null(bounds);
    char name[201];
    memset(name, 'n', sizeof name);
    name[200] = '\0';
    char text[40000];
    memset(text, 't', sizeof text);
    text[sizeof text - 1] = '\0';
    const struct sb_expo_labels labels = labels_of(text, text, text);
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 64 << 20);
    const struct sb_expo expo = {.out = &buf, .format = SB_EXPO_TEXT};
    sb_expo_histogram(&expo, name, &labels, bounds, buckets, -1.2345678901234567e-300);
    sb_expo_value(&expo, name, &labels, -1.2345678901234567e-300);
    assert_false(buf.is_overflow);
    size_t lines = 0;
    for (size_t i = 0; i < buf.len; i++)
        lines += buf.data[i] == '\n';
    assert_int_equal(lines, SB_BOUNDS_MAX + 1 + 2 + 1);
}

static void a_full_buffer_gets_whole_lines_only(void **state)
{
    (void) state;
    static const double upper[] = {1};
    static const double buckets[] = {1, 1};
    SB_OWN(sb_bounds_destroy) struct sb_bounds *bounds = sb_bounds_new(upper, 1, NULL);
    const struct sb_expo_labels labels = labels_of("a=\"1\"", "", "");
    const size_t whole = strlen("m{a=\"1\"} 1\nh_bucket{a=\"1\",le=\"1.0\"} 1\nh_bucket{a=\"1\",le=\"+Inf\"} 2\n"
                                "h_sum{a=\"1\"} 1\nh_count{a=\"1\"} 2\n");
    for (size_t max = 0; max < 600; max++) {
        SB_OWN(sb_buf_release) struct sb_buf buf;
        sb_buf_init(&buf, max);
        const struct sb_expo expo = {.out = &buf, .format = SB_EXPO_TEXT};
        sb_expo_value(&expo, "m", &labels, 1);
        sb_expo_histogram(&expo, "h", &labels, bounds, buckets, 1);
        assert_true(buf.len == 0 || buf.data[buf.len - 1] == '\n');
        assert_true(buf.is_overflow || buf.len == whole);
    }
}

static void the_end_is_said_in_openmetrics_alone(void **state)
{
    (void) state;
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 100);
    sb_expo_end(&(struct sb_expo){.out = &buf, .format = SB_EXPO_TEXT});
    assert_text(&buf, "");
    sb_expo_end(&(struct sb_expo){.out = &buf, .format = SB_EXPO_OPENMETRICS});
    assert_text(&buf, "# EOF\n");
}

static void accept_headers(void **state)
{
    (void) state;
    static const struct {
        const char *accept;
        enum sb_expo_format want;
    } cases[] = {
        {NULL, SB_EXPO_TEXT},
        {"", SB_EXPO_TEXT},
        {"*/*", SB_EXPO_TEXT},
        {"text/plain", SB_EXPO_TEXT},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", SB_EXPO_TEXT},
        {"application/openmetrics-text", SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text; version=1.0.0; charset=utf-8", SB_EXPO_OPENMETRICS},
        /* Prometheus 2.42 */
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         SB_EXPO_OPENMETRICS},
        /* Prometheus 2.5, which knows the draft of OpenMetrics alone */
        {"application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", SB_EXPO_TEXT},
        /* Prometheus 3 with native histograms */
        {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
         "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
         "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
         "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
         SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text;q=0", SB_EXPO_TEXT},
        {"application/openmetrics-text;q=0.4,text/plain;q=0.5", SB_EXPO_TEXT},
        {"application/openmetrics-text;q=0.5,text/plain;q=0.4", SB_EXPO_OPENMETRICS},
        {"text/plain;q=0.5 , Application/OpenMetrics-Text ; Q=0.5", SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text;q=0.5,*/*", SB_EXPO_TEXT},
        {"application/openmetrics-text;q=0.5,*/*,text/plain;q=0.1", SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text;version=\"1.0.0\"", SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text;x=\"a,b;q=0\"", SB_EXPO_OPENMETRICS},
        {"application/openmetrics-text;version=2.0.0", SB_EXPO_TEXT},
        {"application/*", SB_EXPO_TEXT},
        {"application/openmetrics-text;q=nan", SB_EXPO_TEXT},
        {"application/openmetrics-text;q=7", SB_EXPO_TEXT},
        {";;;,,,;=\",", SB_EXPO_TEXT},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        assert_int_equal(sb_expo_negotiate(cases[i].accept), cases[i].want);

    char longest[600];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(sb_expo_negotiate(longest), SB_EXPO_TEXT);
}

static void content_types_are_those_of_the_formats(void **state)
{
    (void) state;
    assert_string_equal(sb_expo_content_type(SB_EXPO_TEXT), "text/plain; version=0.0.4; charset=utf-8");
    assert_string_equal(sb_expo_content_type(SB_EXPO_OPENMETRICS),
                        "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

static bool clash(const char *a, enum sb_type a_type, const char *b, enum sb_type b_type)
{
    char of_a[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    char of_b[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX];
    const size_t n_a = sb_expo_claims(a, a_type, of_a);
    const size_t n_b = sb_expo_claims(b, b_type, of_b);
    assert_in_range(n_a, 1, SB_EXPO_CLAIMS_MAX);
    assert_in_range(n_b, 1, SB_EXPO_CLAIMS_MAX);
    for (size_t i = 0; i < n_a; i++) {
        for (size_t k = 0; k < n_b; k++) {
            if (strcmp(of_a[i], of_b[k]) == 0)
                return true;
        }
    }
    return false;
}

static void names_clash_as_parsers_see_it(void **state)
{
    (void) state;
    static const struct {
        const char *a;
        enum sb_type a_type;
        const char *b;
        enum sb_type b_type;
        bool do_clash;
    } cases[] = {
        {"x", SB_HISTOGRAM, "x_count", SB_GAUGE, true},
        {"x", SB_HISTOGRAM, "x_sum", SB_GAUGE, true},
        {"x", SB_HISTOGRAM, "x_bucket", SB_GAUGE, true},
        {"x", SB_HISTOGRAM, "x_created", SB_GAUGE, true},
        {"x", SB_HISTOGRAM, "x_total", SB_GAUGE, false},
        {"x", SB_HISTOGRAM, "x_total", SB_COUNTER, true}, /* both are x in OpenMetrics */
        {"x_total", SB_HISTOGRAM, "x_total", SB_COUNTER, true},
        {"x_total", SB_HISTOGRAM, "x", SB_GAUGE, false},
        {"x", SB_GAUGE, "x_count", SB_GAUGE, false},
        {"x", SB_GAUGE, "x_total", SB_COUNTER, true},
        {"x_total", SB_GAUGE, "x_total", SB_COUNTER, true},
        {"x_created", SB_GAUGE, "x_total", SB_COUNTER, true},
        {"x", SB_GAUGE, "x", SB_GAUGE, true},
        {"x", SB_GAUGE, "y", SB_GAUGE, false},
        {"_total", SB_COUNTER, "x", SB_GAUGE, false},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        assert_int_equal(clash(cases[i].a, cases[i].a_type, cases[i].b, cases[i].b_type), cases[i].do_clash);
        assert_int_equal(clash(cases[i].b, cases[i].b_type, cases[i].a, cases[i].a_type), cases[i].do_clash);
    }
    for (int type = 0; type < SB_TYPE_COUNT; type++)
        assert_non_null(sb_type_text((enum sb_type) type));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_follow_each_formats_rules),
        cmocka_unit_test(a_line_joins_the_parts_that_are_there),
        cmocka_unit_test(a_histogram_is_cumulative_and_le_comes_last),
        cmocka_unit_test(openmetrics_has_no_sum_beside_buckets_below_zero),
        cmocka_unit_test(the_longest_lines_fit),
        cmocka_unit_test(a_full_buffer_gets_whole_lines_only),
        cmocka_unit_test(the_end_is_said_in_openmetrics_alone),
        cmocka_unit_test(accept_headers),
        cmocka_unit_test(content_types_are_those_of_the_formats),
        cmocka_unit_test(names_clash_as_parsers_see_it),
    };
    return cmocka_run_group_tests_name("expo", tests, NULL, NULL);
}
