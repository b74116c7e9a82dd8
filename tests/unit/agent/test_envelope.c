/* Messages are taken whole or refused whole, for the reason that is theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/envelope.h"
#include "yaml_pack.h"

#define ID "00112233445566778899aabbccddeeff"

static struct agent_envelope envelope; /* too large for a stack */

static void make_header(uint8_t out[AGENT_HEADER_LEN], uint64_t first, uint32_t count)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t) (first >> (56 - 8 * i));
    for (int i = 0; i < 4; i++)
        out[8 + i] = (uint8_t) (count >> (24 - 8 * i));
}

/* Each frame in a block of just its size, so that a sanitizer sees any read past its end. */
static enum agent_refusal read_frames(const char *topic, size_t topic_len, const void *header, size_t header_len,
                                      const void *payload, size_t payload_len, enum agent_socket socket)
{
    const void *from[] = {topic, header, payload};
    const size_t len[] = {topic_len, header_len, payload_len};
    char *copies[3];
    for (int i = 0; i < 3; i++) {
        copies[i] = malloc(len[i] ? len[i] : 1);
        memcpy(copies[i], from[i], len[i]);
    }
    const struct agent_frames frames = {{copies[0], len[0]}, {copies[1], len[1]}, {copies[2], len[2]}};
    const enum agent_refusal refusal = agent_envelope_read(&envelope, &frames, socket);
    for (int i = 0; i < 3; i++)
        free(copies[i]);
    return refusal;
}

static enum agent_refusal read_bytes(const char *topic, uint64_t first, uint32_t count, const void *payload, size_t n,
                                     enum agent_socket socket)
{
    uint8_t header[AGENT_HEADER_LEN];
    make_header(header, first, count);
    return read_frames(topic, strlen(topic), header, sizeof header, payload, n, socket);
}

static enum agent_refusal read_yaml(const char *topic, uint64_t first, uint32_t count, const char *yaml,
                                    enum agent_socket socket)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    pack_yaml(&buf, yaml);
    const enum agent_refusal refusal = read_bytes(topic, first, count, buf.data, buf.len, socket);
    sb_buf_release(&buf);
    return refusal;
}

static void every_refusal_has_its_reason(void **state)
{
    (void) state;
    static const struct {
        const char *topic;
        uint64_t first;
        uint32_t count;
        const char *payload;
        enum agent_socket socket;
        enum agent_refusal wanted;
    } cases[] = {
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, 1.5, {}]]", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, 1.5, {}]]", AGENT_REPLAY, AGENT_ACCEPTED},
        {"statsbus1.rec." ID, 1, 0, "[]", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.rec." ID, 1, 1, "[[step, null, 2, {a: [1]}, more]]", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.rec." ID, 1, 1, "[[obs, 0, 1.5, []]]", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.rec." ID, 1, 1, "[[new, 0, 1.5, 7]]", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.beat." ID, 1, 0, "{}", AGENT_STATS, AGENT_ACCEPTED},
        {"statsbus1.end." ID, 1, 0, "[1, 2]", AGENT_REPLAY, AGENT_ACCEPTED},
        {"", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus2.rec." ID, 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.rec." ID "0", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.rec.00112233445566778899aabbccddeef", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.rec.00112233445566778899AABBCCDDEEFF", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.rec.00112233445566778899aabbccddeefg", 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.r.c." ID, 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.." ID, 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.abcdefghijklmnopqrstuvwxyzabcdefg." ID, 1, 1, "[]", AGENT_STATS, AGENT_REFUSED_bad_topic},
        {"statsbus1.beat." ID, 1, 0, "{}", AGENT_REPLAY, AGENT_REFUSED_wrong_socket},
        {"statsbus1.end." ID, 1, 0, "[1, 2]", AGENT_STATS, AGENT_REFUSED_wrong_socket},
        {"statsbus1.mark." ID, 1, 0, "[1, 2]", AGENT_STATS, AGENT_REFUSED_wrong_socket},
        {"statsbus1.rec." ID, 0, 1, "[[step, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_header},
        {"statsbus1.rec." ID, UINT64_MAX, 1, "[[step, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_header},
        {"statsbus1.hello." ID, 0, 0, "{}", AGENT_STATS, AGENT_REFUSED_bad_header},
        {"statsbus1.beat." ID, 1, 1, "{}", AGENT_STATS, AGENT_REFUSED_bad_header},
        {"statsbus1.rec." ID, 1, AGENT_RECORDS_MAX + 1, "[]", AGENT_STATS, AGENT_REFUSED_too_many_records},
        {"statsbus1.rec." ID, 1, UINT32_MAX, "[]", AGENT_STATS, AGENT_REFUSED_too_many_records},
        {"statsbus1.rec." ID, 1, 2, "[[step, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_records},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, 1.5, {}], [step, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_records},
        {"statsbus1.rec." ID, 1, 1, "{a: 1}", AGENT_STATS, AGENT_REFUSED_bad_records},
        {"statsbus1.rec." ID, 1, 1, "7", AGENT_STATS, AGENT_REFUSED_bad_records},
        {"statsbus1.rec." ID, 1, 1, "[7]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, 1.5]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[5, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, a, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 1.0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 4294967295, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, a, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, null, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, true, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, .nan, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, .inf, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[step, 0, 1.5, []]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[event, 0, 1.5, null]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 1, "[[obs, 0, 1.5, {}]]", AGENT_STATS, AGENT_REFUSED_bad_record},
        {"statsbus1.rec." ID, 1, 2, "[[step, 0, 1.5, {}], [step, 0, 1.5, 3]]", AGENT_STATS, AGENT_REFUSED_bad_record},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const enum agent_refusal got =
            read_yaml(cases[i].topic, cases[i].first, cases[i].count, cases[i].payload, cases[i].socket);
        if (got != cases[i].wanted)
            fail_msg("%s %s is %s, not %s", cases[i].topic, cases[i].payload, agent_refusal_name(got),
                     agent_refusal_name(cases[i].wanted));
    }
}

static void a_message_cut_at_any_byte_is_refused(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    pack_yaml(&buf, "[[step, 0, 1.5, {iteration_stats: {n: 5, l: [0.5, 1.5, 2.5, 3.5, 4.5], s: \"text\"}}],"
                    " [obs, null, 2, [[f, {a: b}, 1.5]]]]");
    for (size_t n = 0; n < buf.len; n++)
        assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 2, buf.data, n, AGENT_STATS), AGENT_REFUSED_malformed);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 2, buf.data, buf.len, AGENT_STATS), AGENT_ACCEPTED);
    sb_buf_put_byte(&buf, 0xc0);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 2, buf.data, buf.len, AGENT_STATS), AGENT_REFUSED_malformed);
    sb_buf_release(&buf);
}

static void a_header_of_any_other_length_is_refused(void **state)
{
    (void) state;
    static const uint8_t header[32] = {[7] = 1};
    const char *topic = "statsbus1.rec." ID;
    for (size_t n = 0; n <= sizeof header; n++)
        assert_int_equal(read_frames(topic, strlen(topic), header, n, "\x90", 1, AGENT_STATS),
                         n == AGENT_HEADER_LEN ? AGENT_ACCEPTED : AGENT_REFUSED_bad_header);
}

static void a_topic_cut_at_any_byte_is_refused(void **state)
{
    (void) state;
    static const uint8_t header[AGENT_HEADER_LEN] = {[7] = 1};
    const char *topic = "statsbus1.rec." ID;
    for (size_t n = 0; n < strlen(topic); n++)
        assert_int_equal(read_frames(topic, n, header, sizeof header, "\x90", 1, AGENT_STATS), AGENT_REFUSED_bad_topic);
}

static void flipped_bits_crash_nothing(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    pack_yaml(&buf,
              "[[step, 0, 1.5, {iteration_stats: {n: 5, l: [0.5, 1.5]}}], [event, null, 2, {sleep: {sleep: 1}}]]");
    for (size_t i = 0; i < buf.len; i++)
        for (int value = 0; value < 256; value++) {
            const uint8_t before = buf.data[i];
            buf.data[i] = (uint8_t) value;
            (void) !read_bytes("statsbus1.rec." ID, 1, 2, buf.data, buf.len, AGENT_STATS);
            buf.data[i] = before;
        }
    sb_buf_release(&buf);
}

/* [[step, 0, 1.0, {a: [[[...]]]}]] with so many arrays that the whole is `depth` deep. */
static void put_deep(struct sb_buf *buf, int depth)
{
    sb_mp_put_array(buf, 1);
    sb_mp_put_array(buf, 4);
    sb_mp_put_str(buf, "step");
    sb_mp_put_uint(buf, 0);
    sb_mp_put_float(buf, 1);
    sb_mp_put_map(buf, 1);
    sb_mp_put_str(buf, "a");
    for (int i = 3; i < depth; i++)
        sb_mp_put_array(buf, 1);
    sb_mp_put_uint(buf, 1);
}

static void sixteen_levels_are_the_deepest(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    put_deep(&buf, 16);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 1, buf.data, buf.len, AGENT_STATS), AGENT_ACCEPTED);
    sb_buf_clear(&buf);
    put_deep(&buf, 17);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 1, buf.data, buf.len, AGENT_STATS), AGENT_REFUSED_too_deep);
    sb_buf_release(&buf);
}

static void a_payload_of_one_mebibyte_is_the_largest(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    sb_mp_put_array(&buf, 1);
    sb_mp_put_array(&buf, 4);
    sb_mp_put_str(&buf, "new");
    sb_mp_put_uint(&buf, 0);
    sb_mp_put_float(&buf, 1);
    const size_t head = buf.len + 5;
    static char filler[AGENT_PAYLOAD_MAX];
    sb_mp_put_bin(&buf, filler, AGENT_PAYLOAD_MAX - head);
    assert_int_equal(buf.len, AGENT_PAYLOAD_MAX);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 1, buf.data, buf.len, AGENT_STATS), AGENT_ACCEPTED);
    sb_buf_put_byte(&buf, 0);
    assert_int_equal(read_bytes("statsbus1.rec." ID, 1, 1, buf.data, buf.len, AGENT_STATS), AGENT_REFUSED_too_large);
    sb_buf_release(&buf);
}

static void the_most_records_fit(void **state)
{
    (void) state;
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    sb_mp_put_array(&buf, AGENT_RECORDS_MAX);
    for (int i = 0; i < AGENT_RECORDS_MAX; i++)
        pack_yaml(&buf, "[step, 3, 1.5, {}]");
    assert_int_equal(read_bytes("statsbus1.rec." ID, 9, AGENT_RECORDS_MAX, buf.data, buf.len, AGENT_STATS),
                     AGENT_ACCEPTED);
    assert_int_equal(envelope.records[AGENT_RECORDS_MAX - 1].source, 3);
    sb_buf_release(&buf);
}

static void what_is_unknown_is_skipped_and_counted(void **state)
{
    (void) state;
    envelope.skipped = (struct agent_skipped){0};
    assert_int_equal(read_yaml("statsbus1.poem." ID, 0, 7, "7", AGENT_STATS), AGENT_ACCEPTED);
    assert_int_equal(envelope.kind, AGENT_KIND_COUNT);
    assert_int_equal(envelope.skipped.kinds, 1);
    assert_int_equal(
        read_yaml("statsbus1.rec." ID, 1, 2, "[[trace, 0, 1.0, 5, 6], [step, 0, 1.0, {}, 7, 8]]", AGENT_STATS),
        AGENT_ACCEPTED);
    assert_int_equal(envelope.skipped.records, 1);
    assert_int_equal(envelope.skipped.elements, 3);
}

/* The kinds without records */

static void beats_are_read(void **state)
{
    (void) state;
    static const struct {
        const char *yaml;
        bool is_good;
        uint32_t n_live, n_ended;
        uint64_t skipped;
    } cases[] = {
        {"{time: 1.5, live: [0, 1], ended: [2]}", true, 2, 1, 0},
        {"{time: 1, live: []}", true, 0, 0, 0},
        {"{time: 1.5, live: [0], ended: null, mood: good}", true, 1, 0, 1},
        {"{time: 1.5, live: [0], 7: [1, 2]}", true, 1, 0, 1},
        {"{time: 1.5, live: [99999999999]}", true, 1, 0, 0},
        {"{live: [0]}", false, 0, 0, 0},
        {"{time: 1.5}", false, 0, 0, 0},
        {"{time: .nan, live: []}", false, 0, 0, 0},
        {"{time: \"1\", live: []}", false, 0, 0, 0},
        {"{time: 1.5, live: 0}", false, 0, 0, 0},
        {"{time: 1.5, live: [a]}", false, 0, 0, 0},
        {"{time: 1.5, live: [-1]}", false, 0, 0, 0},
        {"{time: 1.5, live: [], ended: {}}", false, 0, 0, 0},
        {"[1]", false, 0, 0, 0},
    };
    static struct agent_beat beat;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct agent_skipped skipped = {0};
        struct sb_buf buf;
        sb_buf_init(&buf, 1 << 16);
        pack_yaml(&buf, cases[i].yaml);
        const bool is_good = agent_beat_read((struct sb_slice){(char *) buf.data, buf.len}, &beat, &skipped);
        sb_buf_release(&buf);
        if (is_good != cases[i].is_good)
            fail_msg("%s", cases[i].yaml);
        if (!is_good)
            continue;
        assert_int_equal(beat.n_live, cases[i].n_live);
        assert_int_equal(beat.n_ended, cases[i].n_ended);
        assert_int_equal(skipped.elements, cases[i].skipped);
    }
}

static void a_beat_of_too_many_sources_is_refused(void **state)
{
    (void) state;
    static struct agent_beat beat;
    struct agent_skipped skipped = {0};
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 16);
    sb_mp_put_map(&buf, 2);
    sb_mp_put_str(&buf, "time");
    sb_mp_put_float(&buf, 1);
    sb_mp_put_str(&buf, "live");
    sb_mp_put_array(&buf, AGENT_SOURCES_MAX + 1);
    for (int i = 0; i <= AGENT_SOURCES_MAX; i++)
        sb_mp_put_uint(&buf, 1);
    assert_false(agent_beat_read((struct sb_slice){(char *) buf.data, buf.len}, &beat, &skipped));
    sb_buf_release(&buf);
}

static void ends_and_marks_of_other_forms_are_refused(void **state)
{
    (void) state;
    static const char *const ends[] = {"[1]", "[a, 2]", "{}", "7", "[1, -2]", "[1.0, 2]"};
    static const char *const marks[] = {"[]", "[abc, []]", "[[], []]", "7", "{}"};
    for (size_t i = 0; i < SB_COUNT(ends) + SB_COUNT(marks); i++) {
        struct sb_buf buf;
        struct sb_range range;
        struct sb_ranges ranges;
        uint8_t lineage[AGENT_LINEAGE_LEN];
        sb_buf_init(&buf, 1 << 12);
        sb_ranges_init(&ranges);
        pack_yaml(&buf, i < SB_COUNT(ends) ? ends[i] : marks[i - SB_COUNT(ends)]);
        const struct sb_slice payload = {(char *) buf.data, buf.len};
        if (i < SB_COUNT(ends))
            assert_false(agent_end_read(payload, &range));
        else
            assert_false(agent_mark_read(payload, lineage, &ranges));
        sb_ranges_release(&ranges);
        sb_buf_release(&buf);
    }
}

static void every_refusal_has_a_name_and_a_text(void **state)
{
    (void) state;
    for (int i = 0; i < AGENT_REFUSAL_COUNT; i++) {
        assert_non_null(agent_refusal_name((enum agent_refusal) i));
        assert_non_null(agent_refusal_text((enum agent_refusal) i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_has_its_reason),
        cmocka_unit_test(a_message_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_header_of_any_other_length_is_refused),
        cmocka_unit_test(a_topic_cut_at_any_byte_is_refused),
        cmocka_unit_test(flipped_bits_crash_nothing),
        cmocka_unit_test(sixteen_levels_are_the_deepest),
        cmocka_unit_test(a_payload_of_one_mebibyte_is_the_largest),
        cmocka_unit_test(the_most_records_fit),
        cmocka_unit_test(what_is_unknown_is_skipped_and_counted),
        cmocka_unit_test(beats_are_read),
        cmocka_unit_test(a_beat_of_too_many_sources_is_refused),
        cmocka_unit_test(ends_and_marks_of_other_forms_are_refused),
        cmocka_unit_test(every_refusal_has_a_name_and_a_text),
    };
    return cmocka_run_group_tests_name("envelope", tests, NULL, NULL);
}
