/* The table of last totals: its limit, and its form in the state file. */
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/raws.h"

#define A "000000000000000000000000000000aa"
#define B "000000000000000000000000000000bb"

/* A ledger with a counter (series 0, 1 cell) and a histogram (series 1, 4 cells). */
struct desk {
    struct sb_labelsets *labelsets;
    struct agent_ledger *ledger;
    struct agent_raws *raws;
};

static void open_desk(struct desk *desk)
{
    const double upper[] = {1, 2};
    struct sb_label_draft none;
    struct sb_err err = {.text = ""};
    struct sb_bounds *bounds = NULL;
    desk->labelsets = sb_labelsets_new();
    desk->ledger = agent_ledger_new(desk->labelsets);
    desk->raws = agent_raws_new(desk->ledger);
    sb_label_draft_clear(&none);
    struct sb_labelset *labels = sb_labelsets_get(desk->labelsets, &none);
    struct agent_contribution *to = agent_ledger_contribution(desk->ledger, false, labels, labels, 1, NULL, &err);
    assert_non_null(to);
    struct agent_family_spec spec = {.name = "x_total", .help = "h", .type = SB_COUNTER};
    assert_int_equal(agent_ledger_family(desk->ledger, &spec, &bounds, &err), 0);
    spec = (struct agent_family_spec){.name = "y", .help = "h", .type = SB_HISTOGRAM};
    spec.semantic = sb_semantic_of_type(SB_HISTOGRAM);
    bounds = sb_bounds_new(upper, 2, &err);
    assert_int_equal(agent_ledger_family(desk->ledger, &spec, &bounds, &err), 1);
    assert_int_equal(agent_ledger_series_of(desk->ledger, to, 0, &none), 0);
    assert_int_equal(agent_ledger_series_of(desk->ledger, to, 1, &none), 1);
    sb_labelsets_drop(desk->labelsets, &labels);
}

static void close_desk(struct desk *desk)
{
    agent_raws_destroy(&desk->raws);
    agent_ledger_destroy(&desk->ledger);
    sb_labelsets_destroy(&desk->labelsets);
}

static struct agent_run *run_of(struct agent_raws *raws, const char *publisher, uint32_t source)
{
    const struct agent_run_name name = {
        .publisher = publisher, .source = source, .counted_by = {"", 0}, .place = "", .instance = "i"};
    return agent_raws_run(raws, &name);
}

/* What a total of the counter adds, or -1. */
static double add(struct agent_raws *raws, struct agent_run *run, uint32_t series, uint64_t number, double total)
{
    double cell = 0;
    const struct agent_raw raw = {.family = 0, .series = series, .number = number, .values = &total, .n = 1};
    return agent_run_add(raws, run, &raw, &cell) ? cell : -1;
}

static void the_table_is_bounded_and_what_it_holds_goes_on(void **state)
{
    (void) state;
    struct desk desk;
    open_desk(&desk);
    struct agent_run *first = run_of(desk.raws, A, 0), *other = run_of(desk.raws, B, 0), *run = first;
    uint32_t n = 0;
    while (run && add(desk.raws, run, 0, 1, 5) == 5)
        run = run_of(desk.raws, A, ++n);
    assert_in_range(n, AGENT_RAWS_BYTES_MAX / 1024, AGENT_RAWS_BYTES_MAX / 128);
    assert_in_range(agent_raws_bytes(desk.raws), AGENT_RAWS_BYTES_MAX - 1024, AGENT_RAWS_BYTES_MAX);
    assert_true(add(desk.raws, first, 0, 2, 7) == 2);
    assert_true(add(desk.raws, other, 0, 1, 7) == -1);
    agent_raws_drop(desk.raws, A);
    assert_true(add(desk.raws, other, 0, 2, 9) == 9); /* whole */
    agent_raws_drop(desk.raws, B);
    assert_int_equal(agent_raws_bytes(desk.raws), 0);
    close_desk(&desk);
}

static void runs_are_bounded_too(void **state)
{
    (void) state;
    struct desk desk;
    open_desk(&desk);
    uint32_t n = 0;
    while (run_of(desk.raws, A, n))
        n++;
    assert_in_range(n, AGENT_RAWS_BYTES_MAX / 1024, AGENT_RAWS_BYTES_MAX / 64);
    assert_non_null(run_of(desk.raws, A, 0)); /* is there */
    agent_raws_drop(desk.raws, A);
    assert_non_null(run_of(desk.raws, A, n));
    close_desk(&desk);
}

static void what_is_saved_comes_back_whole(void **state)
{
    (void) state;
    struct desk desk;
    struct sb_err err = {.text = ""};
    struct sb_buf file, ledger;
    double cells[4] = {0};
    open_desk(&desk);
    sb_buf_init(&file, 1 << 20);
    struct agent_run *run = run_of(desk.raws, A, 0), *resumed = run_of(desk.raws, A, 7);
    (void) !run_of(desk.raws, B, 0); /* nothing in it: not kept */
    const struct agent_raw raw = {
        .family = 1, .series = 1, .number = 9, .values = (const double[]){1, 2, 3, 4.5}, .n = 4};
    assert_true(agent_run_add(desk.raws, run, &raw, cells));
    assert_true(add(desk.raws, run, 0, 8, 100) == 100);
    agent_run_resume(desk.raws, resumed, A);
    sb_buf_init(&ledger, 1 << 20);
    agent_ledger_save(desk.ledger, &ledger);
    sb_buf_release(&ledger);
    agent_raws_save(desk.raws, &file);
    assert_int_equal(sb_mp_validate(file.data, file.len, SB_MP_DEPTH_MAX, &err), SB_OK);

    struct agent_raws *again = agent_raws_new(desk.ledger);
    struct sb_mp at = sb_mp_over(file.data, file.len);
    assert_int_equal(agent_raws_load(again, &at, 0, &err), SB_OK);
    assert_ptr_equal(at.at, at.end);
    run = run_of(again, A, 0);
    assert_true(add(again, run, 0, 7, 99) == 0);
    assert_true(add(again, run, 0, 9, 101) == 1);
    const struct agent_raw more = {
        .family = 1, .series = 1, .number = 10, .values = (const double[]){1, 3, 3, 5.5}, .n = 4};
    assert_true(agent_run_add(again, run, &more, cells));
    assert_true(cells[0] == 1 && cells[1] == 3 && cells[2] == 3 && cells[3] == 5.5);
    assert_true(add(again, run_of(again, A, 7), 0, 20, 50) == 0); /* still to learn where it starts */
    assert_true(add(again, run_of(again, A, 7), 0, 21, 51) == 1);

    /* Cut or spoiled at any byte it is refused, or read as something that is whole. */
    for (size_t i = 0; i < file.len; i++) {
        for (int spoil = 0; spoil < 2; spoil++) {
            struct agent_raws *bad = agent_raws_new(desk.ledger);
            uint8_t *copy = malloc(file.len);
            memcpy(copy, file.data, file.len);
            copy[i] ^= spoil ? 0x15 : 0;
            at = sb_mp_over(copy, spoil ? file.len : i);
            const enum sb_rc rc = agent_raws_load(bad, &at, 0, &err);
            assert_true(spoil || rc == SB_FORMAT);
            agent_raws_destroy(&bad);
            free(copy);
        }
    }
    agent_raws_destroy(&again);
    sb_buf_release(&file);
    close_desk(&desk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_bounded_and_what_it_holds_goes_on),
        cmocka_unit_test(runs_are_bounded_too),
        cmocka_unit_test(what_is_saved_comes_back_whole),
    };
    return cmocka_run_group_tests_name("raws", tests, NULL, NULL);
}
