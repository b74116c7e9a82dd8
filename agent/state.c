#include "agent/state.h"

#include <stddef.h>
#include <string.h>

#include "common/mp.h"

enum { ELEMENTS = 6 };

/* The agent's own counters that go on after a restart: those that say what is missing. */
static const struct kept {
    const char *name;
    size_t offset;
} kept[] = {
    {"records_lost", offsetof(struct agent_counters, records_lost)},
    {"state_losses", offsetof(struct agent_counters, state_losses)},
};

static uint64_t *field(struct agent_counters *counters, size_t offset)
{
    return (uint64_t *) (void *) ((unsigned char *) counters + offset);
}

static void save_counters(const struct agent_counters *counters, struct sb_buf *out)
{
    sb_mp_put_map(out, SB_COUNT(kept));
    for (size_t i = 0; i < SB_COUNT(kept); i++) {
        uint64_t value;
        memcpy(&value, (const unsigned char *) counters + kept[i].offset, sizeof value);
        sb_mp_put_str(out, kept[i].name);
        sb_mp_put_uint(out, value);
    }
}

static bool load_counters(struct agent_counters *counters, struct sb_mp *from)
{
    uint32_t n;
    if (!sb_mp_map(from, &n))
        return false;
    for (; n > 0; n--) {
        struct sb_slice name;
        uint64_t value;
        if (!sb_mp_str(from, &name) || !sb_mp_uint(from, &value))
            return false;
        for (size_t i = 0; i < SB_COUNT(kept); i++)
            if (sb_slice_is(name, kept[i].name))
                *field(counters, kept[i].offset) = value;
    }
    return true;
}

void agent_state_save(const struct agent_state *self, struct agent_ledger *ledger,
                      const struct agent_publishers *publishers, const struct agent_counters *counters,
                      struct sb_buf *out)
{
    sb_mp_put_array(out, ELEMENTS);
    sb_mp_put_uint(out, AGENT_STATE_VERSION);
    sb_mp_put_bin(out, self->lineage, AGENT_LINEAGE_LEN);
    sb_mp_put_uint(out, self->generation);
    save_counters(counters, out);
    agent_ledger_save(ledger, out);
    agent_publishers_save(publishers, out);
}

/* A source that is not heard of again ends some time after this start, not some time after its last sign of life: the
 * monotonic clock of then may be another one. */
static void start_lives(struct agent_ledger *ledger, int64_t now_ms)
{
    for (uint32_t i = 0; i < agent_ledger_n_contributions(ledger); i++) {
        struct agent_contribution *contribution = agent_ledger_contribution_at(ledger, i);
        if (!contribution)
            continue;
        contribution->alive_ms = now_ms;
        contribution->ended_ms = now_ms;
    }
}

enum sb_rc agent_state_load(struct agent_state *self, struct agent_ledger *ledger, struct agent_publishers *publishers,
                            struct agent_counters *counters, const void *bytes, size_t n, int64_t now_ms,
                            struct sb_err *err)
{
    struct sb_mp at = sb_mp_over(bytes, n);
    uint32_t elements;
    uint64_t version;
    struct sb_slice lineage;
    struct agent_state read;
    struct agent_counters counters_read = *counters;

    if (!sb_mp_array(&at, &elements) || elements != ELEMENTS || !sb_mp_uint(&at, &version))
        return sb_fail(err, SB_FORMAT, "it is not a state of this agent");
    if (version != AGENT_STATE_VERSION)
        return sb_fail(err, SB_FORMAT, "it is of version %llu, this agent reads %d", (unsigned long long) version,
                       AGENT_STATE_VERSION);
    if (!sb_mp_bin(&at, &lineage) || lineage.len != AGENT_LINEAGE_LEN || !sb_mp_uint(&at, &read.generation) ||
        !load_counters(&counters_read, &at))
        return sb_fail(err, SB_FORMAT, "lineage, generation or counters are malformed");
    memcpy(read.lineage, lineage.at, AGENT_LINEAGE_LEN);
    enum sb_rc rc = agent_ledger_load(ledger, &at, err);
    if (rc == SB_OK)
        rc = agent_publishers_load(publishers, &at, now_ms, err);
    if (rc != SB_OK)
        return rc;
    start_lives(ledger, now_ms);
    *self = read;
    *counters = counters_read;
    return SB_OK;
}
