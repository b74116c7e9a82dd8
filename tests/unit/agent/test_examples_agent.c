/* The example messages of schemas/examples/engine, read by the agent's real readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/envelope.h"
#include "agent/hello.h"
#include "common/err.h"

enum { EXAMPLE_MAX = 64 * 1024 };

#define PUBLISHER "5f2c0a9be47d41d08c6a3b1e7f905d12"

static struct agent_envelope envelope;

struct example {
    uint8_t bytes[EXAMPLE_MAX];
    size_t n;
};

static struct example load(const char *name)
{
    char path[512];
    struct example out = {.n = 0};
    assert_true(snprintf(path, sizeof path, SOURCE_DIR "/schemas/examples/engine/%s.msgpack", name) <
                (int) sizeof path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out.n = fread(out.bytes, 1, sizeof out.bytes, file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(out.n, 1, sizeof out.bytes - 1);
    return out;
}

/* Reads an example as the JSON beside it frames it. */
static void read_example(const struct example *example, const char *kind, uint64_t number, uint32_t count,
                         enum agent_socket socket)
{
    char topic[64];
    uint8_t header[AGENT_HEADER_LEN];
    assert_true(snprintf(topic, sizeof topic, "statsbus1.%s." PUBLISHER, kind) < (int) sizeof topic);
    for (int i = 0; i < 8; i++)
        header[i] = (uint8_t) (number >> (56 - 8 * i));
    for (int i = 0; i < 4; i++)
        header[8 + i] = (uint8_t) (count >> (24 - 8 * i));
    const struct agent_frames frames = {.topic = {topic, strlen(topic)},
                                        .header = {(const char *) header, sizeof header},
                                        .payload = {(const char *) example->bytes, example->n}};
    assert_int_equal(agent_envelope_read(&envelope, &frames, socket), AGENT_ACCEPTED);
    assert_string_equal(envelope.publisher, PUBLISHER);
    assert_int_equal(envelope.first, number);
    assert_int_equal(envelope.count, count);
}

static void records_are_read(void **state)
{
    (void) state;
    const struct example example = load("rec");
    read_example(&example, "rec", 41, 3, AGENT_STATS);
    assert_int_equal(envelope.kind, AGENT_KIND_REC);
    static const struct {
        enum agent_record_type type;
        uint32_t source;
        double time;
    } wanted[] = {
        {AGENT_RECORD_STEP, 0, 1234.5}, {AGENT_RECORD_EVENT, AGENT_NONE, 1234.6}, {AGENT_RECORD_OBS, 0, 1234.7}};
    for (size_t i = 0; i < SB_COUNT(wanted); i++) {
        assert_int_equal(envelope.records[i].type, wanted[i].type);
        assert_int_equal(envelope.records[i].source, wanted[i].source);
        assert_true(envelope.records[i].time == wanted[i].time);
    }
}

static void hello_is_read(void **state)
{
    (void) state;
    const struct example example = load("hello");
    read_example(&example, "hello", 44, 0, AGENT_STATS);
    struct sb_labelsets *labelsets = sb_labelsets_new();
    assert_non_null(labelsets);
    struct agent_hello hello;
    struct sb_text_faults faults = {0};
    struct sb_err err;
    assert_int_equal(agent_hello_read(&hello, example.bytes, example.n, "node-a", labelsets, &faults, &err), SB_OK);
    assert_string_equal(hello.publisher, PUBLISHER);
    assert_int_equal(hello.pid, 4821);
    assert_true(hello.has_mark);
    assert_true(sb_ranges_has(&hello.mark, 20) && !sb_ranges_has(&hello.mark, 21) && sb_ranges_has(&hello.mark, 40));
    assert_int_equal(hello.n_sources, 1);
    assert_string_equal(sb_labelset_value(hello.sources[0].source, "service_name"), "chat");
    assert_string_equal(sb_labelset_value(hello.sources[0].identity, "zone"), "a");
    assert_string_equal(sb_labelset_value(hello.sources[0].identity, "node"), "node-a");
    assert_null(sb_labelset_value(hello.front_end.source, "dp_rank"));
    assert_string_equal(sb_labelset_value(hello.front_end.source, "service_name"), "chat");
    agent_hello_release(&hello);
    sb_labelsets_destroy(&labelsets);
}

static void final_beat_is_read(void **state)
{
    (void) state;
    const struct example example = load("beat");
    static struct agent_beat beat;
    struct agent_skipped skipped = {0};
    read_example(&example, "beat", 44, 0, AGENT_STATS);
    assert_true(agent_beat_read(envelope.payload, &beat, &skipped));
    assert_int_equal(beat.n_live, 0);
    assert_int_equal(beat.n_ended, 1);
    assert_int_equal(beat.ended[0], 0);
}

static void end_and_mark_are_read_from_the_replay_socket(void **state)
{
    (void) state;
    struct example example = load("end");
    struct sb_range answered;
    read_example(&example, "end", 21, 0, AGENT_REPLAY);
    assert_true(agent_end_read(envelope.payload, &answered));
    assert_int_equal(answered.from, 1);
    assert_int_equal(answered.to, 40);

    example = load("mark");
    uint8_t lineage[AGENT_LINEAGE_LEN];
    struct sb_ranges ranges;
    sb_ranges_init(&ranges);
    read_example(&example, "mark", 44, 0, AGENT_REPLAY);
    assert_true(agent_mark_read(envelope.payload, lineage, &ranges));
    assert_int_equal(lineage[0], 0xa1);
    assert_int_equal(sb_ranges_total(&ranges), 43);
    sb_ranges_release(&ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_read),
        cmocka_unit_test(hello_is_read),
        cmocka_unit_test(final_beat_is_read),
        cmocka_unit_test(end_and_mark_are_read_from_the_replay_socket),
    };
    return cmocka_run_group_tests_name("examples for the agent", tests, NULL, NULL);
}
