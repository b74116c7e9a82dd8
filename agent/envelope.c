#include "agent/envelope.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <string.h>

#define PREFIX "statsbus1."
enum { PREFIX_LEN = sizeof PREFIX - 1, KIND_LEN_MAX = 32 };

static const struct reason {
    const char *name;
    const char *text;
} reasons[] = {
    [AGENT_ACCEPTED] = {"accepted", "nothing is wrong"},
#define REFUSAL(name, what) [AGENT_REFUSED_##name] = {#name, what},
#include "agent/refusals.def"
#undef REFUSAL
};
_Static_assert(SB_COUNT(reasons) == AGENT_REFUSAL_COUNT, "every refusal needs a row");
_Static_assert(AGENT_PAYLOAD_MAX == 1 << 20 && AGENT_RECORDS_MAX == 8192 && SB_MP_DEPTH_MAX == 16,
               "refusals.def says these limits in words");

static const struct kind {
    const char *name;
    bool on[2]; /* by enum agent_socket */
} kinds[] = {
    [AGENT_KIND_REC] = {"rec", {true, true}},    [AGENT_KIND_HELLO] = {"hello", {true, true}},
    [AGENT_KIND_BEAT] = {"beat", {true, false}}, [AGENT_KIND_END] = {"end", {false, true}},
    [AGENT_KIND_MARK] = {"mark", {false, true}},
};
_Static_assert(SB_COUNT(kinds) == AGENT_KIND_COUNT, "every kind needs a row");

const char *agent_refusal_name(enum agent_refusal refusal)
{
    return reasons[refusal].name;
}

const char *agent_refusal_text(enum agent_refusal refusal)
{
    return reasons[refusal].text;
}

static bool is_lower_hex(const uint8_t *at, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned digit = at[i] - (unsigned) '0';
        const unsigned letter = at[i] - (unsigned) 'a';
        bad |= (digit > 9) & (letter > 5);
    }
    return bad == 0;
}

static enum agent_kind kind_of(const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < AGENT_KIND_COUNT; i++)
        if (sb_slice_is((struct sb_slice){(const char *) at, len}, kinds[i].name))
            return (enum agent_kind) i;
    return AGENT_KIND_COUNT;
}

static bool read_topic(struct agent_envelope *self, struct sb_slice topic)
{
    self->publisher[0] = '\0';
    const uint8_t *at = (const uint8_t *) topic.at;
    if (topic.len < PREFIX_LEN + 1 + 1 + AGENT_PUBLISHER_ID_LEN || memcmp(at, PREFIX, PREFIX_LEN) != 0)
        return false;
    const size_t kind_len = topic.len - PREFIX_LEN - 1 - AGENT_PUBLISHER_ID_LEN;
    const uint8_t *kind = at + PREFIX_LEN;
    const uint8_t *id = kind + kind_len + 1;
    if (kind_len > KIND_LEN_MAX || kind[kind_len] != '.' || memchr(kind, '.', kind_len) ||
        !is_lower_hex(id, AGENT_PUBLISHER_ID_LEN))
        return false;
    self->kind = kind_of(kind, kind_len);
    memcpy(self->publisher, id, AGENT_PUBLISHER_ID_LEN);
    self->publisher[AGENT_PUBLISHER_ID_LEN] = '\0';
    return true;
}

static bool read_header(struct agent_envelope *self, struct sb_slice header)
{
    if (header.len != AGENT_HEADER_LEN)
        return false;
    uint64_t first;
    uint32_t count;
    memcpy(&first, header.at, sizeof first);
    memcpy(&count, header.at + sizeof first, sizeof count);
    self->first = be64toh(first);
    self->count = be32toh(count);
    if (self->first == 0 || self->first > AGENT_NUMBER_MAX)
        return false;
    return self->kind == AGENT_KIND_REC || self->count == 0;
}

static enum agent_record_type type_of(struct sb_slice name)
{
    if (sb_slice_is(name, "step"))
        return AGENT_RECORD_STEP;
    if (sb_slice_is(name, "obs"))
        return AGENT_RECORD_OBS;
    if (sb_slice_is(name, "event"))
        return AGENT_RECORD_EVENT;
    if (sb_slice_is(name, "lost"))
        return AGENT_RECORD_LOST;
    return AGENT_RECORD_UNKNOWN;
}

static bool read_source(struct sb_mp *at, uint32_t *out)
{
    uint64_t source;
    *out = AGENT_NONE;
    if (sb_mp_nil(at))
        return true;
    if (!sb_mp_uint(at, &source) || source >= AGENT_NONE)
        return false;
    *out = (uint32_t) source;
    return true;
}

static bool read_time(struct sb_mp *at, double *out)
{
    return sb_mp_peek(at) != SB_MP_BOOL && sb_mp_number(at, out) && isfinite(*out);
}

bool agent_record_read(struct sb_mp *at, struct agent_record *out)
{
    struct sb_slice type;
    if (!sb_mp_str(at, &type) || !read_source(at, &out->source) || !read_time(at, &out->time))
        return false;
    out->type = type_of(type);
    out->content = at->at;
    const enum sb_mp_type content = sb_mp_peek(at);
    switch (out->type) {
    case AGENT_RECORD_STEP:
    case AGENT_RECORD_EVENT:
        return content == SB_MP_MAP;
    case AGENT_RECORD_OBS:
        return content == SB_MP_ARRAY;
    case AGENT_RECORD_UNKNOWN:
    case AGENT_RECORD_LOST:
        break;
    }
    return true;
}

static enum agent_refusal read_records(struct agent_envelope *self)
{
    struct sb_mp at = sb_mp_over(self->payload.at, self->payload.len);
    uint32_t n;
    if (!sb_mp_array(&at, &n) || n != self->count)
        return AGENT_REFUSED_bad_records;
    struct agent_skipped skipped = {0};
    for (uint32_t i = 0; i < n; i++) {
        struct agent_record *record = &self->records[i];
        uint32_t elements;
        if (!sb_mp_array(&at, &elements) || elements < 4 || !agent_record_read(&at, record))
            return AGENT_REFUSED_bad_record;
        skipped.records += record->type == AGENT_RECORD_UNKNOWN;
        skipped.elements += elements - 4;
        if (i + 1 == n)
            break; /* nothing is read behind the last content: save a walk */
        for (uint32_t j = 3; j < elements; j++)
            if (!sb_mp_skip(&at))
                return AGENT_REFUSED_bad_record;
    }
    self->skipped.records += skipped.records;
    self->skipped.elements += skipped.elements;
    return AGENT_ACCEPTED;
}

static enum agent_refusal validate(struct sb_slice payload)
{
    switch (sb_mp_validate(payload.at, payload.len, SB_MP_DEPTH_MAX, NULL)) {
    case SB_OK:
        return AGENT_ACCEPTED;
    case SB_FULL:
        return AGENT_REFUSED_too_deep;
    default:
        return AGENT_REFUSED_malformed;
    }
}

enum agent_refusal agent_envelope_read(struct agent_envelope *self, const struct agent_frames *frames,
                                       enum agent_socket socket)
{
    if (!read_topic(self, frames->topic))
        return AGENT_REFUSED_bad_topic;
    if (self->kind == AGENT_KIND_COUNT) {
        self->skipped.kinds++;
        return AGENT_ACCEPTED;
    }
    if (!kinds[self->kind].on[socket])
        return AGENT_REFUSED_wrong_socket;
    if (!read_header(self, frames->header))
        return AGENT_REFUSED_bad_header;
    if (frames->payload.len > AGENT_PAYLOAD_MAX)
        return AGENT_REFUSED_too_large;
    if (self->count > AGENT_RECORDS_MAX)
        return AGENT_REFUSED_too_many_records;
    self->payload = frames->payload;
    const enum agent_refusal refusal = validate(self->payload);
    if (refusal != AGENT_ACCEPTED || self->kind != AGENT_KIND_REC)
        return refusal;
    return read_records(self);
}

/* An array of source indexes. Indexes that no source can have are as good as unknown ones. */
static bool read_indexes(struct sb_mp *at, uint32_t *out, uint32_t *n)
{
    uint32_t count;
    if (!sb_mp_array(at, &count) || count > AGENT_SOURCES_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index;
        if (!sb_mp_uint(at, &index))
            return false;
        out[i] = index < AGENT_NONE ? (uint32_t) index : AGENT_NONE;
    }
    *n = count;
    return true;
}

bool agent_beat_read(struct sb_slice payload, struct agent_beat *out, struct agent_skipped *skipped)
{
    struct sb_mp at = sb_mp_over(payload.at, payload.len);
    uint32_t n;
    bool has_time = false, has_live = false;
    out->n_live = out->n_ended = 0;
    if (!sb_mp_map(&at, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice key = {"", 0};
        if (!sb_mp_str(&at, &key) && !sb_mp_skip(&at))
            return false;
        bool is_good = true;
        if (sb_slice_is(key, "time"))
            is_good = has_time = read_time(&at, &out->time);
        else if (sb_slice_is(key, "live"))
            is_good = has_live = read_indexes(&at, out->live, &out->n_live);
        else if (sb_slice_is(key, "ended") && !sb_mp_nil(&at))
            is_good = read_indexes(&at, out->ended, &out->n_ended);
        else if (!sb_slice_is(key, "ended")) {
            is_good = sb_mp_skip(&at);
            skipped->elements++;
        }
        if (!is_good)
            return false;
    }
    return has_time && has_live;
}

bool agent_end_read(struct sb_slice payload, struct sb_range *out)
{
    struct sb_mp at = sb_mp_over(payload.at, payload.len);
    uint32_t n;
    return sb_mp_array(&at, &n) && n >= 2 && sb_mp_uint(&at, &out->from) && sb_mp_uint(&at, &out->to);
}

bool agent_mark_read(struct sb_slice payload, uint8_t lineage[AGENT_LINEAGE_LEN], struct sb_ranges *ranges)
{
    struct sb_mp at = sb_mp_over(payload.at, payload.len);
    uint32_t n;
    struct sb_slice bytes;
    if (!sb_mp_array(&at, &n) || n < 2 || !sb_mp_bin(&at, &bytes) || bytes.len != AGENT_LINEAGE_LEN ||
        sb_ranges_read(ranges, &at, NULL) != SB_OK)
        return false;
    memcpy(lineage, bytes.at, AGENT_LINEAGE_LEN);
    return true;
}
