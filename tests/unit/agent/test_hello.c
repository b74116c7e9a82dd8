/* A hello is read whole or refused with the key that is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/hello.h"
#include "yaml_pack.h"

#define ID "00112233445566778899aabbccddeeff"
#define HEAD "publisher: \"" ID "\", pid: 7, host: boot, time: 1.5"
#define SOURCES "sources: [{index: 0, service_name: s, instance_id: i}]"

struct reader {
    struct sb_labelsets *labelsets;
    struct sb_text_faults faults;
    struct agent_hello hello;
    struct sb_err err;
};

static enum sb_rc read_hello(struct reader *reader, const char *yaml)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    pack_yaml(&buf, yaml);
    reader->labelsets = sb_labelsets_new();
    reader->faults = (struct sb_text_faults){0};
    reader->err = (struct sb_err){0};
    const enum sb_rc rc =
        agent_hello_read(&reader->hello, buf.data, buf.len, "node-1", reader->labelsets, &reader->faults, &reader->err);
    sb_buf_release(&buf);
    return rc;
}

static void close_reader(struct reader *reader)
{
    agent_hello_release(&reader->hello);
    assert_int_equal(sb_labelsets_count(reader->labelsets), 0);
    sb_labelsets_destroy(&reader->labelsets);
}

static void refusals_name_the_key(void **state)
{
    (void) state;
    static const struct {
        const char *yaml;
        const char *text; /* NULL: fine */
    } cases[] = {
        {"{" HEAD ", " SOURCES "}", NULL},
        {"{" HEAD ", " SOURCES ", mark: null, config: null, buckets: null, families: null, info: null, latest: null}",
         NULL},
        {"{" HEAD ", " SOURCES ", unknown: [1, {a: 2}], 7: 8}", NULL},
        {"{" HEAD ", " SOURCES ", latest: [[1, step, 0, 1.5, {}, more], [2, event, null, 2, {}]]}", NULL},
        {"[]", "the hello is not a map"},
        {"{}", "'publisher' is missing"},
        {"{publisher: \"" ID "\"}", "'time' is missing"},
        {"{" HEAD "}", "'sources' is missing"},
        {"{" HEAD ", sources: []}", "'sources' is empty"},
        {"{" HEAD ", sources: {}}", "'sources' is not an array"},
        {"{" HEAD ", sources: [7]}", "source 0 of 'sources': it is not a map"},
        {"{" HEAD ", sources: [{}]}", "source 0 of 'sources': it has no index"},
        {"{" HEAD ", sources: [{index: a}]}", "source 0 of 'sources': 'index' is not an unsigned number of 32 bits"},
        {"{" HEAD ", sources: [{index: 1}, {index: 1}]}", "source 1 of 'sources': index 1 is taken"},
        {"{" HEAD ", sources: [{index: 1, role: 5}]}", "source 0 of 'sources': 'role' is not a text or nil"},
        {"{" HEAD ", sources: [{index: 1, observed: 1}]}", "source 0 of 'sources': 'observed' is not true or false"},
        {"{" HEAD ", sources: [{index: 1, labels: 5}]}", "source 0 of 'sources': 'labels' is not a map"},
        {"{" HEAD ", sources: [{index: 1, labels: {a: 5}}]}", "source 0 of 'sources': 'labels' is not a map of texts"},
        {"{" HEAD ", sources: [{index: 1, labels: {le: x}}]}",
         "source 0 of 'sources': 'labels' has 'le', which belongs to histograms"},
        {"{publisher: short, time: 1.0}", "'publisher' is not an id of 32 characters"},
        {"{publisher: \"" ID "\", pid: a}", "'pid' is not an unsigned number"},
        {"{publisher: \"" ID "\", host: 5}", "'host' is not a text"},
        {"{publisher: \"" ID "\", time: .nan}", "'time' is not a finite number"},
        {"{publisher: \"" ID "\", time: true}", "'time' is not a finite number"},
        {"{publisher: \"" ID "\", engine: 5}", "'engine' is not a map"},
        {"{publisher: \"" ID "\", engine: {name: 5}}", "'engine.name' is not a text"},
        {"{publisher: \"" ID "\", mark: [5]}", "'mark' is not nil or [lineage, ranges]"},
        {"{publisher: \"" ID "\", config: []}", "'config' is not a map"},
        {"{publisher: \"" ID "\", buckets: []}", "'buckets' is not a map"},
        {"{publisher: \"" ID "\", families: {}}", "'families' is not an array"},
        {"{publisher: \"" ID "\", info: {}}", "'info' is not an array"},
        {"{publisher: \"" ID "\", latest: {}}", "'latest' is not an array"},
        {"{publisher: \"" ID "\", latest: [[step, 0, 1.5, {}]]}",
         "'latest' is not an array of [number, type, source, time, content]"},
        {"{publisher: \"" ID "\", latest: [[1, step, 0, 1.5, 7]]}",
         "'latest' is not an array of [number, type, source, time, content]"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct reader reader;
        const enum sb_rc rc = read_hello(&reader, cases[i].yaml);
        if ((rc == SB_OK) != !cases[i].text)
            fail_msg("%s: %s", cases[i].yaml, reader.err.text);
        if (cases[i].text)
            assert_string_equal(reader.err.text, cases[i].text);
        close_reader(&reader);
    }
}

static void labels_have_their_parts_and_defaults(void **state)
{
    (void) state;
    struct reader reader;
    assert_int_equal(read_hello(&reader, "{" HEAD ", engine: {name: v, version: \"2\"}, sources: ["
                                         "{index: 3, service_name: s, job_name: j, stage: a, replica: \"1\", "
                                         "dp_rank: \"2\", model_name: m, instance_id: i, role: both, "
                                         "labels: {zone: z, dp_rank: \"9\", empty: \"\", nil: null}},"
                                         "{index: 1, node: own, pod_ip: \"1.2.3.4\"}]}"),
                     SB_OK);
    const struct agent_hello *hello = &reader.hello;
    assert_int_equal(hello->n_sources, 2);
    assert_int_equal(hello->sources[0].index, 3);
    assert_string_equal(hello->sources[0].source->text,
                        "dp_rank=\"2\",job_name=\"j\",replica=\"1\",service_name=\"s\",stage=\"a\"");
    assert_string_equal(hello->sources[0].identity->text,
                        "instance_id=\"i\",model_name=\"m\",node=\"node-1\",role=\"both\",zone=\"z\"");
    assert_string_equal(hello->sources[1].source->text, "dp_rank=\"0\"");
    assert_string_equal(hello->sources[1].identity->text, "node=\"own\",pod_ip=\"1.2.3.4\"");
    assert_string_equal(hello->front_end.source->text, "job_name=\"j\",service_name=\"s\"");
    assert_ptr_equal(hello->front_end.identity, hello->sources[0].identity);
    assert_string_equal(hello->host, "boot");
    assert_string_equal(hello->engine_version, "2");
    close_reader(&reader);
}

static void the_shape_changes_with_what_a_plan_is_made_of_and_with_nothing_else(void **state)
{
    (void) state;
    static const struct {
        const char *yaml;
        bool is_same;
    } cases[] = {
        {"{publisher: \"" ID "\", pid: 9, host: other, time: 99.5, engine: {}, " SOURCES ", config: {a: 1}}", true},
        {"{" HEAD ", " SOURCES ", config: {a: 1}, latest: [[1, step, 0, 1.5, {}]]}", true},
        {"{" HEAD ", " SOURCES ", config: {a: 2}}", false},
        {"{" HEAD ", " SOURCES ", config: {a: 1}, buckets: {b: [1]}}", false},
        {"{" HEAD ", " SOURCES ", config: {a: 1}, families: [{}]}", false},
        {"{" HEAD ", " SOURCES ", config: {a: 1}, info: [[]]}", false},
        {"{" HEAD ", sources: [{index: 0, service_name: s, instance_id: j}], config: {a: 1}}", false},
    };
    struct reader first;
    assert_int_equal(read_hello(&first, "{" HEAD ", " SOURCES ", config: {a: 1}}"), SB_OK);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct reader next;
        assert_int_equal(read_hello(&next, cases[i].yaml), SB_OK);
        assert_int_equal(next.hello.shape == first.hello.shape, cases[i].is_same);
        close_reader(&next);
    }
    close_reader(&first);
}

static void limits_are_limits(void **state)
{
    (void) state;
    static const struct {
        int n_sources, n_families;
        const char *text;
    } cases[] = {
        {AGENT_SOURCES_MAX, AGENT_DESCRIBED_FAMILIES_MAX, NULL},
        {AGENT_SOURCES_MAX + 1, 0, "1025 sources are more than 1024"},
        {1, AGENT_DESCRIBED_FAMILIES_MAX + 1, "1025 families are more than 1024"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_buf yaml;
        struct reader reader;
        sb_buf_init(&yaml, 1 << 20);
        sb_buf_put_text(&yaml, "{" HEAD ", families: [");
        for (int j = 0; j < cases[i].n_families; j++)
            sb_buf_put_text(&yaml, "{},");
        sb_buf_put_text(&yaml, "], sources: [");
        for (int j = 0; j < cases[i].n_sources; j++)
            sb_buf_printf(&yaml, "{index: %d},", j * 7);
        sb_buf_put_text(&yaml, "]}");
        sb_buf_put_byte(&yaml, 0);
        const enum sb_rc rc = read_hello(&reader, (const char *) yaml.data);
        assert_int_equal(rc, cases[i].text ? SB_FULL : SB_OK);
        if (cases[i].text)
            assert_string_equal(reader.err.text, cases[i].text);
        close_reader(&reader);
        sb_buf_release(&yaml);
    }
}

/* Case 3. */
static void hostile_texts_are_cleaned_and_counted(void **state)
{
    (void) state;
    struct reader reader;
    struct sb_buf yaml;
    sb_buf_init(&yaml, 1 << 16);
    sb_buf_put_text(&yaml, "{" HEAD ", sources: [{index: 0, model_name: \"");
    for (int i = 0; i < 5000; i++)
        sb_buf_put_byte(&yaml, 'x');
    sb_buf_put_text(&yaml, "\", instance_id: \"a\\\"b\\\\c\\nd,=}\"}]}");
    sb_buf_put_byte(&yaml, 0);
    assert_int_equal(read_hello(&reader, (const char *) yaml.data), SB_OK);
    assert_int_equal(strlen(sb_labelset_value(reader.hello.sources[0].identity, "model_name")), 256);
    assert_string_equal(sb_labelset_value(reader.hello.sources[0].identity, "instance_id"), "a\"b\\c\nd,=}");
    assert_true(reader.faults.cut > 0);
    close_reader(&reader);
    sb_buf_release(&yaml);
}

static void a_hello_cut_anywhere_leaks_nothing(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    pack_yaml(&buf, "{" HEAD ", " SOURCES ", config: {a: 1}, latest: [[1, step, 0, 1.5, {a: 1}]], buckets: {b: [1]}}");
    struct sb_labelsets *labelsets = sb_labelsets_new();
    for (size_t n = 0; n < buf.len; n++) { /* the envelope refuses these before; the reader must hold by itself */
        struct agent_hello hello;
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, buf.data, n);
        assert_int_not_equal(agent_hello_read(&hello, copy, n, "", labelsets, NULL, NULL), SB_OK);
        assert_int_equal(sb_labelsets_count(labelsets), 0);
        free(copy);
    }
    sb_labelsets_destroy(&labelsets);
    sb_buf_release(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_name_the_key),
        cmocka_unit_test(labels_have_their_parts_and_defaults),
        cmocka_unit_test(the_shape_changes_with_what_a_plan_is_made_of_and_with_nothing_else),
        cmocka_unit_test(limits_are_limits),
        cmocka_unit_test(hostile_texts_are_cleaned_and_counted),
        cmocka_unit_test(a_hello_cut_anywhere_leaks_nothing),
    };
    return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
