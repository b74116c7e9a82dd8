/* Publishers in the state file: [version, foreign lineages, [[id, next, ranges], ...], last totals] (publishers.h). */
#include <string.h>

#include "agent/publisher.h"

enum {
    VERSION = 3,
    VERSION_WITHOUT_TOTALS = 2, /* still read */
    ELEMENTS = 3,
};

void agent_publishers_save(const struct agent_publishers *self, struct sb_buf *out)
{
    sb_mp_put_array(out, 4);
    sb_mp_put_uint(out, VERSION);
    sb_mp_put_array(out, self->n_foreign);
    for (uint32_t i = 0; i < self->n_foreign; i++)
        sb_mp_put_bin(out, self->foreign[i], AGENT_LINEAGE_LEN);
    sb_mp_put_array(out, HASH_COUNT(self->table));
    for (const struct publisher *at = self->table; at; at = at->hh.next) {
        sb_mp_put_array(out, ELEMENTS);
        sb_mp_put_str(out, at->id);
        sb_mp_put_uint(out, at->next);
        sb_ranges_pack(&at->applied, out);
    }
    agent_raws_save(self->raws, out);
}

static bool load_foreign(struct agent_publishers *self, struct sb_mp *from)
{
    uint32_t n;
    if (!sb_mp_array(from, &n) || n > AGENT_FOREIGN_LINEAGES_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice bytes;
        if (!sb_mp_bin(from, &bytes) || bytes.len != AGENT_LINEAGE_LEN)
            return false;
        memcpy(self->foreign[i], bytes.at, AGENT_LINEAGE_LEN);
    }
    self->n_foreign = n;
    return true;
}

static enum sb_rc load_publisher(struct agent_publishers *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err)
{
    uint32_t n;
    uint64_t next;
    struct sb_slice id;
    if (!sb_mp_array(from, &n) || n != ELEMENTS || !sb_mp_str(from, &id) || id.len != AGENT_PUBLISHER_ID_LEN ||
        !sb_mp_uint(from, &next) || next == 0)
        return sb_fail(err, SB_FORMAT, "a publisher is not [id, next, ranges]");
    if (agent_publisher_find(self, id.at))
        return sb_fail(err, SB_FORMAT, "a publisher is there twice");
    struct publisher *made = agent_publisher_add(self, id.at, now_ms);
    if (!made)
        return sb_fail(err, SB_NOMEM, "a publisher");
    made->next = next;
    return sb_ranges_read(&made->applied, from, err);
}

enum sb_rc agent_publishers_load(struct agent_publishers *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err)
{
    uint32_t elements, n;
    uint64_t version;
    if (!sb_mp_array(from, &elements) || !sb_mp_uint(from, &version) ||
        !(version == VERSION ? elements == 4 : version == VERSION_WITHOUT_TOTALS && elements == 3) ||
        !load_foreign(self, from) || !sb_mp_array(from, &n))
        return sb_fail(err, SB_FORMAT, "publishers are not [version %d, lineages, publishers, totals]", VERSION);
    if (n > AGENT_PUBLISHERS_MAX)
        return sb_fail(err, SB_FULL, "%u publishers are more than %d", (unsigned) n, AGENT_PUBLISHERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const enum sb_rc rc = load_publisher(self, from, now_ms, err);
        if (rc != SB_OK)
            return rc;
    }
    return elements == 4 ? agent_raws_load(self->raws, from, now_ms, err) : SB_OK;
}
