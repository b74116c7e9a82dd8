#include "agent/hello.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/envelope.h"
#include "common/hash.h"

enum { TEXT_MAX = 63 }; /* of host, engine name and version */

/* Labels of a source that have a name of their own on the wire. */
enum {
#define SOURCE_LABEL(name, part) LABEL_##name,
#include "agent/source_labels.def"
#undef SOURCE_LABEL
    LABEL_COUNT
};

enum part { PART_SOURCE, PART_IDENTITY };

static const struct known_label {
    const char *name;
    enum part part;
} known_labels[] = {
#define SOURCE_LABEL(name, part) [LABEL_##name] = {#name, PART_##part},
#include "agent/source_labels.def"
#undef SOURCE_LABEL
};
_Static_assert(SB_COUNT(known_labels) == LABEL_COUNT, "every label needs a row");

/* What is read so far. */
struct reading {
    struct agent_hello *out;
    const char *node;
    struct sb_text_faults *faults;
    struct sb_slice sources;
    bool has_publisher;
    bool has_time;
};

/* One entry of `sources`, borrowed from the message. */
struct wire_source {
    uint32_t index;
    bool has_index;
    bool is_observed;
    struct sb_slice counted_by;
    struct sb_slice known[LABEL_COUNT];
    struct sb_slice extra; /* msgpack map, or empty */
};

static enum sb_rc wrong(struct sb_err *err, const char *key, const char *wanted)
{
    return sb_fail(err, SB_FORMAT, "'%s' is not %s", key, wanted);
}

/* The bytes of the value at the cursor, which moves past it. */
static bool take_value(struct sb_mp *at, struct sb_slice *out)
{
    const uint8_t *start = at->at;
    if (!sb_mp_skip(at))
        return false;
    *out = (struct sb_slice){(const char *) start, (size_t) (at->at - start)};
    return true;
}

static struct sb_mp over(struct sb_slice value)
{
    return sb_mp_over(value.at, value.len);
}

/* nil counts as absent. */
static bool read_optional_text(struct sb_mp *at, struct sb_slice *out)
{
    *out = (struct sb_slice){"", 0};
    return sb_mp_nil(at) || sb_mp_str(at, out);
}

static enum sb_rc read_publisher(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    struct sb_slice id;
    if (!sb_mp_str(at, &id) || id.len != AGENT_PUBLISHER_ID_LEN)
        return wrong(err, "publisher", "an id of 32 characters");
    memcpy(self->out->publisher, id.at, id.len);
    self->out->publisher[id.len] = '\0';
    self->has_publisher = true;
    return SB_OK;
}

static enum sb_rc read_pid(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    return sb_mp_uint(at, &self->out->pid) ? SB_OK : wrong(err, "pid", "an unsigned number");
}

static enum sb_rc read_host(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    struct sb_slice host;
    if (!sb_mp_str(at, &host))
        return wrong(err, "host", "a text");
    sb_text_clean(self->out->host, TEXT_MAX, host.at, host.len, self->faults);
    return SB_OK;
}

static enum sb_rc read_time(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    if (sb_mp_peek(at) == SB_MP_BOOL || !sb_mp_number(at, &self->out->time) || !isfinite(self->out->time))
        return wrong(err, "time", "a finite number");
    self->has_time = true;
    return SB_OK;
}

static enum sb_rc read_engine(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    uint32_t n;
    if (!sb_mp_map(at, &n))
        return wrong(err, "engine", "a map");
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice key = {"", 0}, value = {"", 0};
        if (!sb_mp_str(at, &key) && !sb_mp_skip(at))
            return wrong(err, "engine", "a map of texts");
        const bool is_name = sb_slice_is(key, "name"), is_version = sb_slice_is(key, "version");
        if (is_name || is_version) {
            if (!read_optional_text(at, &value))
                return wrong(err, is_name ? "engine.name" : "engine.version", "a text");
            char *to = is_name ? self->out->engine_name : self->out->engine_version;
            sb_text_clean(to, TEXT_MAX, value.at, value.len, self->faults);
        } else if (!sb_mp_skip(at)) {
            return wrong(err, "engine", "a map of texts");
        }
    }
    return SB_OK;
}

static enum sb_rc read_mark(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    if (sb_mp_nil(at))
        return SB_OK;
    struct sb_slice value;
    if (!take_value(at, &value) || !agent_mark_read(value, self->out->mark_lineage, &self->out->mark))
        return wrong(err, "mark", "nil or [lineage, ranges]");
    self->out->has_mark = true;
    return SB_OK;
}

/* A value that plan.c looks into: only its type is checked here. */
static enum sb_rc keep(struct sb_mp *at, const char *key, enum sb_mp_type type, struct sb_slice *out,
                       struct sb_err *err)
{
    if (sb_mp_nil(at))
        return SB_OK;
    if (sb_mp_peek(at) != type || !take_value(at, out))
        return wrong(err, key, type == SB_MP_MAP ? "a map" : "an array");
    return SB_OK;
}

static enum sb_rc read_config(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    return keep(at, "config", SB_MP_MAP, &self->out->config, err);
}

static enum sb_rc read_buckets(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    return keep(at, "buckets", SB_MP_MAP, &self->out->buckets, err);
}

static enum sb_rc read_families(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    struct sb_mp head = *at;
    uint32_t n;
    if (sb_mp_array(&head, &n) && n > AGENT_DESCRIBED_FAMILIES_MAX)
        return sb_fail(err, SB_FULL, "%u families are more than %d", (unsigned) n, AGENT_DESCRIBED_FAMILIES_MAX);
    return keep(at, "families", SB_MP_ARRAY, &self->out->families, err);
}

static enum sb_rc read_info(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    return keep(at, "info", SB_MP_ARRAY, &self->out->info, err);
}

static enum sb_rc read_latest(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    const enum sb_rc rc = keep(at, "latest", SB_MP_ARRAY, &self->out->latest, err);
    if (rc != SB_OK || self->out->latest.len == 0)
        return rc;
    struct sb_mp walk = over(self->out->latest);
    uint32_t n;
    if (!sb_mp_array(&walk, &n))
        return wrong(err, "latest", "an array");
    for (uint32_t i = 0; i < n; i++) {
        struct agent_record record;
        uint32_t elements;
        uint64_t number;
        if (!sb_mp_array(&walk, &elements) || elements < 5 || !sb_mp_uint(&walk, &number) ||
            !agent_record_read(&walk, &record))
            return wrong(err, "latest", "an array of [number, type, source, time, content]");
        for (uint32_t j = 4; j < elements; j++)
            if (!sb_mp_skip(&walk))
                return wrong(err, "latest", "an array of records");
    }
    return SB_OK;
}

static enum sb_rc read_sources(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    return keep(at, "sources", SB_MP_ARRAY, &self->sources, err);
}

static const struct key {
    const char *name;
    enum sb_rc (*read)(struct reading *self, struct sb_mp *at, struct sb_err *err);
} keys[] = {
    {"publisher", read_publisher}, {"pid", read_pid},           {"host", read_host},     {"time", read_time},
    {"engine", read_engine},       {"mark", read_mark},         {"config", read_config}, {"buckets", read_buckets},
    {"sources", read_sources},     {"families", read_families}, {"info", read_info},     {"latest", read_latest},
};

static enum sb_rc read_key(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    struct sb_slice key = {"", 0};
    if (!sb_mp_str(at, &key) && !sb_mp_skip(at))
        return sb_fail(err, SB_FORMAT, "the hello is cut");
    for (size_t i = 0; i < SB_COUNT(keys); i++)
        if (sb_slice_is(key, keys[i].name))
            return keys[i].read(self, at, err);
    return sb_mp_skip(at) ? SB_OK : sb_fail(err, SB_FORMAT, "the hello is cut");
}

/* Sources */

static enum sb_rc read_source_key(struct wire_source *out, struct sb_slice key, struct sb_mp *at, struct sb_err *err)
{
    if (sb_slice_is(key, "index")) {
        uint64_t index;
        if (!sb_mp_uint(at, &index) || index >= AGENT_NONE)
            return wrong(err, "index", "an unsigned number of 32 bits");
        out->index = (uint32_t) index;
        out->has_index = true;
        return SB_OK;
    }
    if (sb_slice_is(key, "observed"))
        return sb_mp_bool(at, &out->is_observed) ? SB_OK : wrong(err, "observed", "true or false");
    if (sb_slice_is(key, "counted_by"))
        return read_optional_text(at, &out->counted_by) && out->counted_by.len <= AGENT_COUNTED_BY_MAX
                   ? SB_OK
                   : wrong(err, "counted_by", "nil or a text of at most 256 bytes");
    if (sb_slice_is(key, "labels"))
        return keep(at, "labels", SB_MP_MAP, &out->extra, err);
    for (size_t i = 0; i < LABEL_COUNT; i++)
        if (sb_slice_is(key, known_labels[i].name))
            return read_optional_text(at, &out->known[i]) ? SB_OK : wrong(err, known_labels[i].name, "a text or nil");
    return sb_mp_skip(at) ? SB_OK : sb_fail(err, SB_FORMAT, "the source is cut");
}

static enum sb_rc read_source(struct wire_source *out, struct sb_mp *at, struct sb_err *err)
{
    uint32_t n;
    *out = (struct wire_source){0};
    if (!sb_mp_map(at, &n))
        return sb_fail(err, SB_FORMAT, "it is not a map");
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice key = {"", 0};
        if (!sb_mp_str(at, &key) && !sb_mp_skip(at))
            return sb_fail(err, SB_FORMAT, "it is cut");
        const enum sb_rc rc = read_source_key(out, key, at, err);
        if (rc != SB_OK)
            return rc;
    }
    return out->has_index ? SB_OK : sb_fail(err, SB_FORMAT, "it has no index");
}

static bool is_known_label(struct sb_slice name)
{
    for (size_t i = 0; i < LABEL_COUNT; i++)
        if (sb_slice_is(name, known_labels[i].name))
            return true;
    return false;
}

/* The extra labels; those that have a key of their own in the source are said there or nowhere. */
static enum sb_rc add_extra(struct sb_label_draft *draft, struct sb_slice extra, struct sb_text_faults *faults,
                            struct sb_err *err)
{
    if (extra.len == 0)
        return SB_OK;
    struct sb_mp at = over(extra);
    uint32_t n;
    if (!sb_mp_map(&at, &n))
        return wrong(err, "labels", "a map");
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice name, value;
        if (!sb_mp_str(&at, &name) || !read_optional_text(&at, &value))
            return wrong(err, "labels", "a map of texts");
        if (sb_slice_is(name, "le") || sb_slice_is(name, "quantile"))
            return sb_fail(err, SB_FORMAT, "'labels' has '%.*s', which belongs to histograms", (int) name.len, name.at);
        if (is_known_label(name))
            continue;
        const enum sb_rc rc = sb_label_draft_set(draft, name.at, name.len, value.at, value.len, faults, err);
        if (rc != SB_OK)
            return rc;
    }
    return SB_OK;
}

/* Whose labels: dp_rank, stage and replica tell engines apart and are left out of a front end's. */
static bool belongs(size_t label, enum part part, bool is_front_end)
{
    if (known_labels[label].part != part)
        return false;
    return !is_front_end || (label != LABEL_dp_rank && label != LABEL_stage && label != LABEL_replica);
}

static struct sb_labelset *make_labels(const struct reading *self, const struct wire_source *from, enum part part,
                                       bool is_front_end, struct sb_err *err)
{
    struct sb_label_draft draft;
    sb_label_draft_clear(&draft);
    if (part == PART_IDENTITY && add_extra(&draft, from->extra, self->faults, err) != SB_OK)
        return NULL;
    for (size_t i = 0; i < LABEL_COUNT; i++) {
        if (!belongs(i, part, is_front_end))
            continue;
        struct sb_slice value = from->known[i];
        if (value.len == 0 && i == LABEL_dp_rank)
            value = (struct sb_slice){"0", 1};
        if (value.len == 0 && i == LABEL_node)
            value = (struct sb_slice){self->node, strlen(self->node)};
        if (sb_label_draft_set(&draft, known_labels[i].name, strlen(known_labels[i].name), value.at, value.len,
                               self->faults, err) != SB_OK)
            return NULL;
    }
    struct sb_labelset *made = sb_labelsets_get(self->out->labelsets, &draft);
    if (!made)
        sb_fail(err, SB_NOMEM, "labels of a source");
    return made;
}

static enum sb_rc make_source(const struct reading *self, const struct wire_source *from, bool is_front_end,
                              struct agent_hello_source *out, struct sb_err *err)
{
    struct sb_err reason = {.rc = SB_FORMAT};
    out->index = from->index;
    out->is_observed = from->is_observed;
    out->counted_by = from->counted_by;
    out->source = make_labels(self, from, PART_SOURCE, is_front_end, &reason);
    if (out->source)
        out->identity = make_labels(self, from, PART_IDENTITY, is_front_end, &reason);
    if (out->identity)
        return SB_OK;
    sb_labelsets_drop(self->out->labelsets, &out->source);
    return sb_fail(err, reason.rc, "%s", reason.text);
}

static bool is_index_taken(const struct agent_hello *self, uint32_t index)
{
    for (size_t i = 0; i < self->n_sources; i++)
        if (self->sources[i].index == index)
            return true;
    return false;
}

static enum sb_rc add_source(struct reading *self, struct sb_mp *at, struct sb_err *err)
{
    struct agent_hello *out = self->out;
    struct wire_source source;
    enum sb_rc rc = read_source(&source, at, err);
    if (rc != SB_OK)
        return rc;
    if (is_index_taken(out, source.index))
        return sb_fail(err, SB_FORMAT, "index %u is taken", (unsigned) source.index);
    if (out->n_sources == 0) {
        rc = make_source(self, &source, true, &out->front_end, err);
        if (rc != SB_OK)
            return rc;
    }
    rc = make_source(self, &source, false, &out->sources[out->n_sources], err);
    if (rc == SB_OK)
        out->n_sources++;
    return rc;
}

static enum sb_rc make_sources(struct reading *self, struct sb_err *err)
{
    if (self->sources.len == 0)
        return sb_fail(err, SB_FORMAT, "'sources' is missing");
    struct sb_mp at = over(self->sources);
    uint32_t n;
    if (!sb_mp_array(&at, &n) || n == 0)
        return sb_fail(err, SB_FORMAT, "'sources' is empty");
    if (n > AGENT_SOURCES_MAX)
        return sb_fail(err, SB_FULL, "%u sources are more than %d", (unsigned) n, AGENT_SOURCES_MAX);
    self->out->sources = calloc(n, sizeof *self->out->sources);
    if (!self->out->sources)
        return sb_fail(err, SB_NOMEM, "%u sources", (unsigned) n);
    for (uint32_t i = 0; i < n; i++) {
        const enum sb_rc rc = add_source(self, &at, err);
        if (rc != SB_OK)
            return sb_fail_at(err, rc, "source %u of 'sources'", (unsigned) i);
    }
    return SB_OK;
}

/* With the length in it, so that bytes can't move between neighbours unseen. */
static uint64_t hash_slice(uint64_t hash, struct sb_slice slice)
{
    return sb_hash_more(sb_hash_more(hash, &slice.len, sizeof slice.len), slice.at, slice.len);
}

static uint64_t shape_of(const struct reading *self)
{
    const struct agent_hello *out = self->out;
    uint64_t hash = hash_slice(SB_HASH_START, out->config);
    hash = hash_slice(hash, out->buckets);
    hash = hash_slice(hash, out->families);
    hash = hash_slice(hash, out->info);
    return hash_slice(hash, self->sources);
}

static enum sb_rc read_all(struct reading *self, struct sb_err *err)
{
    struct sb_mp at = sb_mp_over(self->out->payload, self->out->payload_len);
    uint32_t n;
    if (!sb_mp_map(&at, &n))
        return sb_fail(err, SB_FORMAT, "the hello is not a map");
    for (uint32_t i = 0; i < n; i++) {
        const enum sb_rc rc = read_key(self, &at, err);
        if (rc != SB_OK)
            return rc;
    }
    if (!self->has_publisher || !self->has_time)
        return sb_fail(err, SB_FORMAT, "'%s' is missing", self->has_publisher ? "time" : "publisher");
    self->out->shape = shape_of(self);
    return make_sources(self, err);
}

enum sb_rc agent_hello_read(struct agent_hello *out, const void *payload, size_t n, const char *node,
                            struct sb_labelsets *labelsets, struct sb_text_faults *faults, struct sb_err *err)
{
    *out = (struct agent_hello){.labelsets = labelsets, .payload_len = n};
    sb_ranges_init(&out->mark);
    out->payload = malloc(n ? n : 1);
    if (!out->payload)
        return sb_fail(err, SB_NOMEM, "a hello of %zu bytes", n);
    memcpy(out->payload, payload, n);
    struct reading reading = {.out = out, .node = node, .faults = faults};
    const enum sb_rc rc = read_all(&reading, err);
    if (rc != SB_OK)
        agent_hello_release(out);
    return rc;
}

void agent_hello_release(struct agent_hello *self)
{
    for (size_t i = 0; i < self->n_sources; i++) {
        sb_labelsets_drop(self->labelsets, &self->sources[i].source);
        sb_labelsets_drop(self->labelsets, &self->sources[i].identity);
    }
    sb_labelsets_drop(self->labelsets, &self->front_end.source);
    sb_labelsets_drop(self->labelsets, &self->front_end.identity);
    sb_ranges_release(&self->mark);
    free(self->sources);
    free(self->payload);
    *self = (struct agent_hello){0};
}
