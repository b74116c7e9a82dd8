/* A hello (schemas/engine-wire.md), read and checked as a whole. */
#ifndef AGENT_HELLO_H
#define AGENT_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/labels.h"
#include "common/mp.h"
#include "common/ranges.h"

enum {
    AGENT_PUBLISHER_ID_LEN = 32, /* hex characters */
    AGENT_LINEAGE_LEN = 16,      /* bytes */
    AGENT_SOURCES_MAX = 1024,
    AGENT_DESCRIBED_FAMILIES_MAX = 1024,
    AGENT_ENGINE_TEXT_MAX = 64, /* bytes of a name or version, 0 at the end */
    AGENT_COUNTED_BY_MAX = 256, /* bytes */
};

struct agent_hello_source {
    uint32_t index;
    bool is_observed;             /* of observations: see agent_binding_new */
    struct sb_slice counted_by;   /* what counts the totals of cumulative families; empty: the publisher's process */
    struct sb_labelset *source;   /* service_name, job_name, dp_rank, stage, replica */
    struct sb_labelset *identity; /* model_name, instance_id, role, node, pod_ip and the extra labels */
};

struct agent_hello {
    uint8_t *payload; /* owned copy; the slices below point into it */
    size_t payload_len;
    char publisher[AGENT_PUBLISHER_ID_LEN + 1];
    uint64_t pid;
    char host[64];
    double time;
    char engine_name[AGENT_ENGINE_TEXT_MAX];
    char engine_version[AGENT_ENGINE_TEXT_MAX];
    bool has_mark;
    uint8_t mark_lineage[AGENT_LINEAGE_LEN];
    struct sb_ranges mark;
    size_t n_sources;
    struct agent_hello_source *sources;  /* in the order of the message; indexes are unique */
    struct agent_hello_source front_end; /* index unused */
    /* msgpack values, empty slices when absent: checked as far as plan.c does when it compiles them. */
    struct sb_slice config, buckets, families, info, latest;
    uint64_t shape; /* hash of config, buckets, families, info and sources: equal means nothing to compile anew */
    struct sb_labelsets *labelsets; /* borrowed */
};

/*
 * Reads one hello. node: the label `node` of sources that name none (may be ""). labelsets is borrowed until release.
 * On failure *out holds nothing. Errors: SB_FORMAT (which key, what is wrong), SB_FULL (which limit), SB_NOMEM.
 */
enum sb_rc agent_hello_read(struct agent_hello *out, const void *payload, size_t n, const char *node,
                            struct sb_labelsets *labelsets, struct sb_text_faults *faults, struct sb_err *err) SB_CHECK;
void agent_hello_release(struct agent_hello *self);

#endif
