#include "hub_test.h"

static bool number_is(const void *item, const void *key)
{
    return *(const uint32_t *) item == *(const uint32_t *) key;
}

static void what_was_added_is_found_and_what_was_removed_is_not(void **state)
{
    (void) state;
    enum { N = 2000 };
    static uint32_t numbers[N];
    struct hub_table table = {0};
    for (uint32_t i = 0; i < N; i++) {
        numbers[i] = i;
        /* Few hashes: long runs that overlap and wrap around. */
        assert_true(hub_table_add(&table, (i % 7) * 0x1111 + 15, &numbers[i]));
    }
    for (uint32_t i = 0; i < N; i += 2)
        hub_table_remove(&table, (i % 7) * 0x1111 + 15, &numbers[i]);
    assert_int_equal(table.n, N / 2);
    for (uint32_t i = 0; i < N; i++) {
        const void *found = hub_table_find(&table, (i % 7) * 0x1111 + 15, number_is, &i);
        assert_ptr_equal(found, i % 2 ? &numbers[i] : NULL);
    }
    hub_table_release(&table);
}

static void a_walk_meets_every_item_once(void **state)
{
    (void) state;
    uint32_t numbers[100];
    bool seen[100] = {0};
    struct hub_table table = {0};
    for (uint32_t i = 0; i < 100; i++) {
        numbers[i] = i;
        assert_true(hub_table_add(&table, hub_hash(&i, sizeof i, 0), &numbers[i]));
    }
    size_t at = 0;
    size_t n = 0;
    for (const uint32_t *item; (item = hub_table_next(&table, &at)) != NULL; n++) {
        assert_false(seen[*item]);
        seen[*item] = true;
    }
    assert_int_equal(n, 100);
    hub_table_release(&table);
}

static void an_empty_table_finds_nothing(void **state)
{
    (void) state;
    struct hub_table table = {0};
    uint32_t key = 1;
    size_t at = 0;
    assert_null(hub_table_find(&table, 1, number_is, &key));
    assert_null(hub_table_next(&table, &at));
    hub_table_remove(&table, 1, &key);
    hub_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found_and_what_was_removed_is_not),
        cmocka_unit_test(a_walk_meets_every_item_once),
        cmocka_unit_test(an_empty_table_finds_nothing),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
