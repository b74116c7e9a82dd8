#include "common/labels.h"

#include <stdio.h>
#include <stdlib.h>

#include "cmocka_all.h"

struct fixture {
    struct sb_labelsets *sets;
    struct sb_label_draft draft;
    struct sb_text_faults faults;
};

static int make(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->sets = sb_labelsets_new();
    assert_non_null(self->sets);
    sb_label_draft_clear(&self->draft);
    *state = self;
    return 0;
}

static int drop(void **state)
{
    struct fixture *self = *state;
    sb_labelsets_destroy(&self->sets);
    assert_null(self->sets);
    sb_labelsets_destroy(&self->sets);
    free(self);
    return 0;
}

static void set(struct fixture *self, const char *name, const char *value)
{
    assert_int_equal(sb_label_draft_set(&self->draft, name, strlen(name), value, strlen(value), &self->faults, NULL),
                     SB_OK);
}

static void equal_sets_are_one_pointer(void **state)
{
    struct fixture *self = *state;
    set(self, "model", "m");
    set(self, "engine", "0");
    struct sb_labelset *first = sb_labelsets_get(self->sets, &self->draft);
    assert_non_null(first);
    assert_string_equal(first->text, "engine=\"0\",model=\"m\"");
    assert_int_equal(first->text_len, strlen(first->text));
    assert_int_equal(first->n, 2);
    assert_string_equal(first->labels[0].name, "engine");
    assert_string_equal(first->labels[0].value, "0");
    assert_string_equal(first->labels[1].name, "model");

    sb_label_draft_clear(&self->draft);
    set(self, "engine", "0");
    set(self, "model", "m");
    struct sb_labelset *same = sb_labelsets_get(self->sets, &self->draft);
    assert_ptr_equal(first, same);
    assert_int_equal(first->refs, 2);

    set(self, "model", "n");
    struct sb_labelset *other = sb_labelsets_get(self->sets, &self->draft);
    assert_ptr_not_equal(first, other);
    assert_int_equal(sb_labelsets_count(self->sets), 2);

    assert_string_equal(sb_labelset_value(other, "model"), "n");
    assert_null(sb_labelset_value(other, "mod"));

    sb_labelsets_drop(self->sets, &first);
    assert_null(first);
    assert_int_equal(sb_labelsets_count(self->sets), 2);
    sb_labelsets_drop(self->sets, &same);
    assert_int_equal(sb_labelsets_count(self->sets), 1);
    sb_labelsets_drop(self->sets, &same);
    assert_int_equal(sb_labelsets_count(self->sets), 1); /* the other dies with the table */
}

static void no_labels_are_a_set_too(void **state)
{
    struct fixture *self = *state;
    struct sb_labelset *empty = sb_labelsets_get(self->sets, &self->draft);
    assert_non_null(empty);
    assert_int_equal(empty->n, 0);
    assert_string_equal(empty->text, "");
    set(self, "a", "1");
    set(self, "a", "");
    struct sb_labelset *same = sb_labelsets_get(self->sets, &self->draft);
    assert_ptr_equal(empty, same);
    sb_labelsets_drop(self->sets, &empty);
    sb_labelsets_drop(self->sets, &same);
    assert_int_equal(sb_labelsets_count(self->sets), 0);
}

static void an_empty_value_takes_the_label_away(void **state)
{
    struct fixture *self = *state;
    set(self, "a", "1");
    set(self, "b", "2");
    set(self, "c", "3");
    set(self, "a", "");
    set(self, "nobody", "");
    struct sb_labelset *labels = sb_labelsets_get(self->sets, &self->draft);
    assert_string_equal(labels->text, "b=\"2\",c=\"3\"");
    sb_labelsets_drop(self->sets, &labels);
}

static void names_that_start_alike_are_two(void **state)
{
    struct fixture *self = *state;
    set(self, "ab", "1");
    set(self, "a", "2");
    set(self, "abc", "3");
    set(self, "ab", "4");
    struct sb_labelset *labels = sb_labelsets_get(self->sets, &self->draft);
    assert_string_equal(labels->text, "a=\"2\",ab=\"4\",abc=\"3\"");
    sb_labelsets_drop(self->sets, &labels);
}

static void hostile_values_are_made_fit_and_counted(void **state)
{
    struct fixture *self = *state;
    static const struct {
        const char *value;
        size_t n;
        const char *text;
        uint64_t replaced;
    } cases[] = {
        {"/models/Qwen 3", 14, "a=\"/models/Qwen 3\"", 0},    {"q\"b\\n\nl,=}{", 11, "a=\"q\\\"b\\\\n\\nl,=}{\"", 0},
        {"\xff\xfe", 2, "a=\"\xef\xbf\xbd\xef\xbf\xbd\"", 1}, {"x\0y", 3, "a=\"x\xef\xbf\xbdy\"", 1},
        {"\xf0\x9f\x98\x80", 4, "a=\"\xf0\x9f\x98\x80\"", 0}, {"\\", 1, "a=\"\\\\\"", 0},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct sb_text_faults faults = {0};
        sb_label_draft_clear(&self->draft);
        assert_int_equal(sb_label_draft_set(&self->draft, "a", 1, cases[i].value, cases[i].n, &faults, NULL), SB_OK);
        struct sb_labelset *labels = sb_labelsets_get(self->sets, &self->draft);
        assert_string_equal(labels->text, cases[i].text);
        assert_int_equal(faults.replaced, cases[i].replaced);
        assert_int_equal(faults.cut, 0);
        sb_labelsets_drop(self->sets, &labels);
    }
}

static void the_largest_set_fits(void **state)
{
    struct fixture *self = *state;
    char value[5000];
    memset(value, '"', sizeof value);
    for (int i = 0; i < SB_LABELS_MAX; i++) {
        char name[SB_LABEL_NAME_MAX + 1];
        snprintf(name, sizeof name, "n%063d", i);
        assert_int_equal(sb_label_draft_set(&self->draft, name, strlen(name), value, sizeof value, &self->faults, NULL),
                         SB_OK);
    }
    assert_int_equal(self->faults.cut, SB_LABELS_MAX);

    struct sb_err err = {0};
    assert_int_equal(sb_label_draft_set(&self->draft, "more", 4, "x", 1, &self->faults, &err), SB_FULL);
    assert_string_equal(err.text, "there are more than 64 labels");
    assert_int_equal(sb_label_draft_set(&self->draft, "more", 4, "", 0, &self->faults, &err), SB_OK);
    assert_int_equal(self->draft.n, SB_LABELS_MAX);

    struct sb_labelset *labels = sb_labelsets_get(self->sets, &self->draft);
    assert_non_null(labels);
    assert_int_equal(labels->n, SB_LABELS_MAX);
    assert_int_equal(labels->text_len, SB_LABELS_MAX * (64 + 2 * 256 + 4) - 1);
    sb_labelsets_drop(self->sets, &labels);
}

static void bad_names_are_refused_and_change_nothing(void **state)
{
    struct fixture *self = *state;
    set(self, "a", "1");
    static const char *const names[] = {"", "9a", "__a", "a-b", "a\nb"};
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        struct sb_err err = {0};
        assert_int_equal(sb_label_draft_set(&self->draft, names[i], strlen(names[i]), "x", 1, &self->faults, &err),
                         SB_FORMAT);
        assert_non_null(strstr(err.text, "is not a label name"));
    }
    assert_int_equal(self->draft.n, 1);
}

static void sets_travel_as_maps(void **state)
{
    struct fixture *self = *state;
    set(self, "b", "2");
    set(self, "a", "\"");
    struct sb_labelset *labels = sb_labelsets_get(self->sets, &self->draft);
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    sb_labelset_pack(labels, &buf);

    sb_label_draft_clear(&self->draft);
    struct sb_mp mp = sb_mp_over(buf.data, buf.len);
    assert_int_equal(sb_label_draft_read(&self->draft, &mp, &self->faults, NULL), SB_OK);
    assert_ptr_equal(mp.at, mp.end);
    struct sb_labelset *same = sb_labelsets_get(self->sets, &self->draft);
    assert_ptr_equal(labels, same);
    sb_labelsets_drop(self->sets, &labels);
    sb_labelsets_drop(self->sets, &same);
}

static void maps_that_are_no_labels_are_refused(void **state)
{
    struct fixture *self = *state;
#define BYTES(text) (text), sizeof(text) - 1
    static const struct {
        const char *bytes;
        size_t n;
        enum sb_rc rc;
        size_t labels;
    } cases[] = {
        {BYTES("\x80"), SB_OK, 0},
        {BYTES("\x82\xa1"
               "a\xc0\xa1"
               "b\xa1x"),
         SB_OK, 1},
        {BYTES("\x82\xa1"
               "a\xa0\xa1"
               "b\xa1x"),
         SB_OK, 1},
        {BYTES("\x90"), SB_FORMAT, 0},
        {BYTES("\xc0"), SB_FORMAT, 0},
        {BYTES("\x81\xa1"
               "a\x05"),
         SB_FORMAT, 0},
        {BYTES("\x81\x05\xa1"
               "a"),
         SB_FORMAT, 0},
        {BYTES("\x81\xa1-\xa1"
               "a"),
         SB_FORMAT, 0},
    };
#undef BYTES
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_label_draft_clear(&self->draft);
        struct sb_mp mp = sb_mp_over(cases[i].bytes, cases[i].n);
        struct sb_err err = {0};
        assert_int_equal(sb_label_draft_read(&self->draft, &mp, &self->faults, &err), cases[i].rc);
        assert_int_equal(self->draft.n, cases[i].labels);
        assert_ptr_equal(mp.at, cases[i].rc == SB_OK ? mp.end : (const uint8_t *) cases[i].bytes);
    }
}

static void many_sets_come_and_go(void **state)
{
    struct fixture *self = *state;
    enum { N = 3000 };
    static struct sb_labelset *labels[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            char value[16];
            snprintf(value, sizeof value, "%d", i);
            set(self, "i", value);
            labels[i] = sb_labelsets_get(self->sets, &self->draft);
            assert_non_null(labels[i]);
            assert_string_equal(sb_labelset_value(labels[i], "i"), value);
        }
        assert_int_equal(sb_labelsets_count(self->sets), N);
        for (int i = 0; i < N; i++)
            sb_labelsets_drop(self->sets, &labels[i]);
        assert_int_equal(sb_labelsets_count(self->sets), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
    const struct CMUnitTest tests[] = {
        TEST(equal_sets_are_one_pointer),
        TEST(no_labels_are_a_set_too),
        TEST(an_empty_value_takes_the_label_away),
        TEST(names_that_start_alike_are_two),
        TEST(hostile_values_are_made_fit_and_counted),
        TEST(the_largest_set_fits),
        TEST(bad_names_are_refused_and_change_nothing),
        TEST(sets_travel_as_maps),
        TEST(maps_that_are_no_labels_are_refused),
        TEST(many_sets_come_and_go),
    };
    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
