#include "cmocka_all.h"

#include "common/feed.h"

static void a_path_is_keys_and_iterators(void **state)
{
    (void) state;
    struct sb_arena arena;
    struct sb_path path;
    static const char text[] = "s.events[].gaps{by}[pos].x";
    sb_arena_init(&arena);
    assert_int_equal(sb_path_parse(&arena, text, strlen(text), &path, NULL), SB_OK);
    static const struct sb_step expected[] = {
        {SB_STEP_KEY, "s"},  {SB_STEP_KEY, "events"}, {SB_STEP_LIST, ""}, {SB_STEP_KEY, "gaps"},
        {SB_STEP_MAP, "by"}, {SB_STEP_LIST, "pos"},   {SB_STEP_KEY, "x"},
    };
    assert_int_equal(path.n, SB_COUNT(expected));
    for (size_t i = 0; i < path.n; i++) {
        assert_int_equal(path.steps[i].kind, expected[i].kind);
        assert_string_equal(path.steps[i].name, expected[i].name);
    }
    sb_arena_release(&arena);
}

static void a_value_with_iterators_is_split_at_the_last(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        size_t element;
        size_t value;
    } cases[] = {{"a.b[].c", 3, 1}, {"a.b[]", 3, 0}, {"a{k}[].c.d", 3, 2}, {"a.b", 0, 2}};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_arena arena;
        struct sb_feed feed;
        const struct sb_feed_text text = {.value = cases[i].text};
        sb_arena_init(&arena);
        assert_int_equal(sb_feed_parse(&arena, &text, &feed, NULL), SB_OK);
        assert_int_equal(feed.element.n, cases[i].element);
        assert_int_equal(feed.n_ops, 1);
        assert_int_equal(feed.ops[0].paths[0].n, cases[i].value);
        sb_arena_release(&arena);
    }
}

static void an_expression_is_postfix(void **state)
{
    (void) state;
    struct sb_arena arena;
    struct sb_feed feed;
    const struct sb_feed_text text = {.value = "a.x - max(a.y | a.z?, 0) + 2"};
    sb_arena_init(&arena);
    assert_int_equal(sb_feed_parse(&arena, &text, &feed, NULL), SB_OK);
    static const enum sb_op_kind expected[] = {SB_OP_FIELD,    SB_OP_FIELD,    SB_OP_CLAMP,
                                               SB_OP_SUBTRACT, SB_OP_CONSTANT, SB_OP_ADD};
    assert_int_equal(feed.n_ops, SB_COUNT(expected));
    for (size_t i = 0; i < feed.n_ops; i++)
        assert_int_equal(feed.ops[i].kind, expected[i]);
    assert_int_equal(feed.ops[1].n_paths, 2);
    assert_true(feed.ops[1].is_optional);
    assert_false(feed.ops[0].is_optional);
    assert_true(feed.ops[4].number == 2);
    sb_arena_release(&arena);
}

static void is_needs_all_of_its_fields(void **state)
{
    (void) state;
    struct sb_arena arena;
    struct sb_feed feed;
    static const struct sb_feed_pair is[] = {{"a.x", "1"}, {"a.y", "2"}};
    const struct sb_feed_text text = {.is = is, .n_is = 2};
    sb_arena_init(&arena);
    assert_int_equal(sb_feed_parse(&arena, &text, &feed, NULL), SB_OK);
    assert_int_equal(feed.n_ops, 3);
    assert_int_equal(feed.ops[0].kind, SB_OP_EQUALS);
    assert_true(feed.ops[1].number == 2);
    assert_int_equal(feed.ops[2].kind, SB_OP_AND);
    sb_arena_release(&arena);
}

static void what_is_not_understood_is_named(void **state)
{
    (void) state;
    static const struct {
        const char *value;
        const char *reason;
    } cases[] = {
        {"a b", "'a b' is not understood from 'b' on"},
        {"a +", "'a +' lacks a field at ''"},
        {"max(a, 1)", "'max(a, 1)': max(...) ends with ', 0)'"},
        {"a..b", "path 'a..b' is not understood from '..b' on"},
        {"a[", "path 'a[' is not understood from '[' on"},
        {"a{}", "path 'a{}' is not understood from '{}' on"},
        {"9a | b", "'9a | b' is not understood from 'a | b' on"},
        {"a | b | c | d | e", "'a | b | c | d | e' has over 4 alternatives"},
        {"", "'' lacks a field at ''"},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_arena arena;
        struct sb_feed feed;
        struct sb_err err = {.text = ""};
        const struct sb_feed_text text = {.value = cases[i].value};
        sb_arena_init(&arena);
        assert_int_not_equal(sb_feed_parse(&arena, &text, &feed, &err), SB_OK);
        assert_string_equal(err.text, cases[i].reason);
        sb_arena_release(&arena);
    }
}

static void long_expressions_hit_the_limit(void **state)
{
    (void) state;
    char value[400] = "a";
    for (int i = 0; i < 40; i++)
        memcpy(value + strlen(value), " + a", 5);
    struct sb_arena arena;
    struct sb_feed feed;
    const struct sb_feed_text text = {.value = value};
    sb_arena_init(&arena);
    assert_int_equal(sb_feed_parse(&arena, &text, &feed, NULL), SB_FULL);
    sb_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_keys_and_iterators),
        cmocka_unit_test(a_value_with_iterators_is_split_at_the_last),
        cmocka_unit_test(an_expression_is_postfix),
        cmocka_unit_test(is_needs_all_of_its_fields),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(long_expressions_hit_the_limit),
    };
    return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
