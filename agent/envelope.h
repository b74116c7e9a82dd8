/*
 * A message from an engine, checked as a whole before anything of it is applied (schemas/engine-wire.md).
 *
 * Allocates nothing and knows no socket: topic, header and payload come in as bytes.
 */
#ifndef AGENT_ENVELOPE_H
#define AGENT_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/apply.h"
#include "agent/hello.h"
#include "common/mp.h"

enum {
    AGENT_PAYLOAD_MAX = 1 << 20,
    AGENT_RECORDS_MAX = 8192,
    AGENT_HEADER_LEN = 12,
};
#define AGENT_NUMBER_MAX INT64_MAX /* of a record */

enum agent_refusal {
    AGENT_ACCEPTED,
#define REFUSAL(name, what) AGENT_REFUSED_##name,
#include "agent/refusals.def"
#undef REFUSAL
    AGENT_REFUSAL_COUNT
};

const char *agent_refusal_name(enum agent_refusal refusal); /* "bad_topic": the label of its counter */
const char *agent_refusal_text(enum agent_refusal refusal); /* what is wrong */

enum agent_socket { AGENT_STATS, AGENT_REPLAY };

enum agent_kind {
    AGENT_KIND_REC,
    AGENT_KIND_HELLO,
    AGENT_KIND_BEAT,
    AGENT_KIND_END,
    AGENT_KIND_MARK,
    AGENT_KIND_COUNT
};

/* The three frames of a message, borrowed. */
struct agent_frames {
    struct sb_slice topic;
    struct sb_slice header;
    struct sb_slice payload;
};

struct agent_record {
    const uint8_t *content; /* a map (step, event), an array (obs), anything (unknown) */
    double time;            /* the engine host's monotonic clock, seconds; finite */
    uint32_t source;        /* AGENT_NONE: the engine gave none */
    enum agent_record_type type;
};

/* What was stepped over, as newer publishers may say more than this agent knows. */
struct agent_skipped {
    uint64_t kinds;    /* messages */
    uint64_t records;  /* of unknown type */
    uint64_t elements; /* trailing elements and unknown keys */
};

/* Large (some 260 KB): one lives in the agent and is used again for each message. */
struct agent_envelope {
    enum agent_kind kind; /* AGENT_KIND_COUNT: unknown, to be skipped */
    char publisher[AGENT_PUBLISHER_ID_LEN + 1];
    uint64_t first; /* the header's numbers */
    uint32_t count;
    struct sb_slice payload;                        /* borrowed from the frames; validated */
    struct agent_skipped skipped;                   /* since the start */
    struct agent_record records[AGENT_RECORDS_MAX]; /* `count` of them, in a rec */
};

/*
 * Reads one message that came in on that socket. On refusal `publisher` is set if the topic was good (else ""), and
 * nothing else may be used. The frames must outlive the envelope's use.
 */
enum agent_refusal agent_envelope_read(struct agent_envelope *self, const struct agent_frames *frames,
                                       enum agent_socket socket) SB_CHECK;

/* Reads a record's head, up to its content, and moves there: false if it is not one. *n: elements of its array. Also
 * for the entries of a hello's `latest`, after their number. */
bool agent_record_read(struct sb_mp *at, struct agent_record *out) SB_CHECK;

struct agent_beat {
    double time; /* monotonic clock of the publisher's host, seconds */
    uint32_t n_live, n_ended;
    uint32_t live[AGENT_SOURCES_MAX];
    uint32_t ended[AGENT_SOURCES_MAX];
};

/* The payloads of beat, end and mark, validated before by agent_envelope_read. False: to be refused. */
bool agent_beat_read(struct sb_slice payload, struct agent_beat *out, struct agent_skipped *skipped) SB_CHECK;
bool agent_end_read(struct sb_slice payload, struct sb_range *out) SB_CHECK;
/* *ranges: as sb_ranges_read leaves it; initialised by the caller. */
bool agent_mark_read(struct sb_slice payload, uint8_t lineage[AGENT_LINEAGE_LEN], struct sb_ranges *ranges) SB_CHECK;

#endif
