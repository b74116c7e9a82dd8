#include "hub_test.h"

static enum sb_rc read_text(struct hub_view_specs *specs, const char *text, struct sb_err *err)
{
    const struct sb_catalog_file file = {.name = "v.yaml", .text = text, .len = strlen(text)};
    return hub_view_specs_read(specs, &file, err);
}

static void the_built_in_views_are_those_of_the_schema(void **state)
{
    (void) state;
    static const char *const names[] = {"full", "instance", "role", "dp", "node", "pod", "stage", "replica"};
    struct hub_view_specs specs;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_view_specs_load(&specs, "", &err), SB_OK);
    assert_int_equal(specs.n, SB_COUNT(names));
    for (size_t i = 0; i < SB_COUNT(names); i++)
        assert_string_equal(specs.at[i].name, names[i]);
    const struct hub_view_spec *full = hub_view_specs_find(&specs, "full");
    assert_true(full->is_kept && full->is_role_scoped && full->has_own && full->has_buckets && full->has_derived);
    assert_false(hub_view_specs_find(&specs, "dp")->is_kept);
    assert_int_equal(hub_view_specs_find(&specs, "dp")->by.n, 4);
    hub_view_specs_release(&specs);
}

static void a_file_adds_views_and_replaces_some(void **state)
{
    (void) state;
    struct hub_view_specs specs;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_view_specs_load(&specs, NULL, &err), SB_OK);
    size_t n = specs.n;
    assert_int_equal(
        read_text(&specs,
                  "version: 1\nviews:\n"
                  "  dp: {by: [dp_rank, zone], rename: {engine: dp_rank}, buckets: false, derived: false}\n"
                  "  zone: {by: [zone], where: {role: [decode, both]}, allow: [a_total, b], deny: [b]}\n",
                  &err),
        SB_OK);
    assert_int_equal(specs.n, n + 1);
    const struct hub_view_spec *dp = hub_view_specs_find(&specs, "dp");
    assert_int_equal(dp->by.n, 2);
    assert_string_equal(dp->renames[0].label, "engine");
    assert_string_equal(dp->renames[0].from, "dp_rank");
    assert_false(dp->has_buckets || dp->has_derived);
    const struct hub_view_spec *zone = hub_view_specs_find(&specs, "zone");
    assert_int_equal(zone->n_where, 1);
    assert_int_equal(zone->where[0].values.n, 2);
    assert_true(hub_view_spec_has(zone, "a_total"));
    assert_false(hub_view_spec_has(zone, "a"));
    assert_false(hub_view_spec_has(zone, "b"));
    assert_false(hub_view_spec_has(zone, "c"));
    assert_int_equal(hub_view_specs_add_engine(&specs, &err), SB_OK);
    assert_int_equal(dp->n_renames, 1);
    hub_view_specs_release(&specs);
}

static void mistakes_are_told_with_their_line(void **state)
{
    (void) state;
#define VIEW(text) "version: 1\nviews:\n  v: " text "\n"
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"", "v.yaml:1: a file of views must be a map"},
        {"version: 2\nviews: {}\n", "v.yaml:1: version must be 1"},
        {"version: 1\n", "v.yaml:1: views must be a map"},
        {"version: 1\nviews: []\n", "v.yaml:2: views must be a map"},
        {"version: 1\nview: {}\n", "v.yaml:2: a file of views: 'view' is not a key that is known here"},
        {"version: 1\nviews:\n  v: {by: []}\n  v: {by: []}\n", "v.yaml:4: view 'v' stands here twice"},
        {"version: 1\nviews:\n  a b: {by: []}\n",
         "v.yaml:3: 'a b' is not a name of a view: letters, digits, _ and -, at most 64"},
        {VIEW("{}"), "v.yaml:3: view 'v' needs the labels to group by: 'by'"},
        {VIEW("[a]"), "v.yaml:3: v must be a map"},
        {VIEW("{by: [], group: []}"), "v.yaml:3: v: 'group' is not a key that is known here"},
        {VIEW("{by: role}"), "v.yaml:3: 'by' must be a list: [a, b]"},
        {VIEW("{by: [9]}"), "v.yaml:3: '9' is not a label name"},
        {VIEW("{by: [pod]}"), "v.yaml:3: 'pod' is a label of Prometheus' own"},
        {VIEW("{by: [a, a]}"), "v.yaml:3: 'a' is grouped by already"},
        {VIEW("{by: [model_name]}"), "v.yaml:3: 'model_name' is grouped by already"},
        {VIEW("{by: [], where: [a]}"), "v.yaml:3: where must be a map of at most 16 labels"},
        {VIEW("{by: [], where: {a: b}}"), "v.yaml:3: 'a' must be a list: [a, b]"},
        {VIEW("{by: [], where: {a: []}}"), "v.yaml:3: 'a' is an empty list"},
        {VIEW("{by: [[a]]}"), "v.yaml:3: 'by': item 0 of the list must be text"},
        {VIEW("{by: [], where: {a-b: [c]}}"), "v.yaml:3: 'a-b' is not a label name"},
        {VIEW("{by: [], rename: {engine: dp_rank}}"), "v.yaml:3: 'dp_rank' is not a label that the view groups by"},
        {VIEW("{by: [a, b], rename: {b: a}}"), "v.yaml:3: 'b' is grouped by already"},
        {VIEW("{by: [], rename: [a]}"), "v.yaml:3: rename must be a map of at most 16 labels"},
        {VIEW("{by: [], keep: yes}"), "v.yaml:3: 'yes' is neither true nor false"},
        {VIEW("{by: [], allow: x}"), "v.yaml:3: 'allow' must be a list: [a, b]"},
        {"version: 1\nviews: {\n", "v.yaml:3: did not find expected node content"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_view_specs specs;
        struct sb_err err = {.text = ""};
        assert_int_equal(hub_view_specs_load(&specs, NULL, NULL), SB_OK);
        assert_int_not_equal(read_text(&specs, cases[i].text, &err), SB_OK);
        assert_string_equal(err.text, cases[i].reason);
        hub_view_specs_release(&specs);
    }
}

static void there_are_at_most_32_views(void **state)
{
    (void) state;
    char text[4096];
    size_t n = (size_t) snprintf(text, sizeof text, "version: 1\nviews:\n");
    for (int i = 0; i < HUB_VIEWS_MAX; i++)
        n += (size_t) snprintf(text + n, sizeof text - n, "  v%d: {by: []}\n", i);
    struct hub_view_specs specs;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_view_specs_load(&specs, NULL, NULL), SB_OK);
    assert_int_equal(read_text(&specs, text, &err), SB_FORMAT);
    assert_string_equal(err.text, "v.yaml:27: there are over 32 views");
    hub_view_specs_release(&specs);
}

static void a_file_that_is_not_there_is_an_error(void **state)
{
    (void) state;
    struct hub_view_specs specs;
    struct sb_err err = {.text = ""};
    assert_int_equal(hub_view_specs_load(&specs, "/nonexistent/views.yaml", &err), SB_IO);
    assert_string_equal(err.text, "--views: /nonexistent/views.yaml: No such file or directory");
}

static void a_family_is_named_with_or_without_total(void **state)
{
    (void) state;
    static const char *const names[] = {"a", "b_total"};
    const struct hub_texts texts = {.at = names, .n = 2};
    assert_true(hub_texts_have_family(&texts, "a"));
    assert_true(hub_texts_have_family(&texts, "a_total"));
    assert_true(hub_texts_have_family(&texts, "b_total"));
    assert_false(hub_texts_have_family(&texts, "b"));
    assert_false(hub_texts_have_family(&texts, "a_total_total"));
    assert_false(hub_texts_have_family(&texts, "ab"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_views_are_those_of_the_schema),
        cmocka_unit_test(a_file_adds_views_and_replaces_some),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(there_are_at_most_32_views),
        cmocka_unit_test(a_file_that_is_not_there_is_an_error),
        cmocka_unit_test(a_family_is_named_with_or_without_total),
    };
    return cmocka_run_group_tests_name("view_specs", tests, NULL, NULL);
}
