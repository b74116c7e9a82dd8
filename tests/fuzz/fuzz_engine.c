/*
 * An input is a row of messages as engines send them: for each, a byte (bit 0: which socket), then topic, header and
 * payload, each with its length before it. They go the whole way into a ledger.
 */
#include <assert.h>
#include <stdlib.h>

#include "agent/publishers.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t lineage[AGENT_LINEAGE_LEN] = "fuzzing lineage";

static void drop(void *arg, const char *publisher_id, const void *bytes, size_t n)
{
    (void) arg, (void) publisher_id, (void) bytes, (void) n;
}

static void ignore(void *arg)
{
    (void) arg;
}

struct world {
    struct agent_counters counters;
    struct sb_labelsets *labelsets;
    struct agent_ledger *ledger;
    struct agent_publishers *publishers;
};

static const struct sb_catalog *catalog_of_the_product(void)
{
    static struct sb_catalog *catalog;
    struct sb_err err;
    if (!catalog)
        catalog = sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    assert(catalog);
    return catalog;
}

/* labelsets and counters are there. */
static void open_tables(struct world *self)
{
    struct sb_err err;
    self->ledger = agent_ledger_new(self->labelsets);
    assert(self->ledger);
    const enum sb_rc rc = agent_ledger_reserve(self->ledger, catalog_of_the_product(), &err);
    assert(rc == SB_OK);
    (void) rc;
    const struct agent_publishers_cfg cfg = {
        .catalog = catalog_of_the_product(),
        .ledger = self->ledger,
        .counters = &self->counters,
        .node = "fuzz",
        .lineage = lineage,
        .source_timeout_ms = 15000,
        .forget_after_ms = 3600000,
        .send = drop,
        .rolled_back = ignore,
    };
    self->publishers = agent_publishers_new(&cfg);
    assert(self->publishers);
}

static void world_init(struct world *self)
{
    *self = (struct world){.labelsets = sb_labelsets_new()};
    assert(self->labelsets);
    open_tables(self);
}

static void world_release(struct world *self)
{
    agent_publishers_destroy(&self->publishers);
    agent_ledger_destroy(&self->ledger);
    sb_labelsets_destroy(&self->labelsets);
}

/* What was counted goes through a commit and back: both must agree that it is whole. */
static void commit_and_load(struct world *self)
{
    struct sb_buf state;
    struct sb_err err;
    sb_buf_init(&state, 256u << 20);
    agent_ledger_stage(self->ledger);
    agent_ledger_save(self->ledger, &state);
    agent_publishers_save(self->publishers, &state);
    if (!state.is_overflow) {
        agent_publishers_destroy(&self->publishers);
        agent_ledger_destroy(&self->ledger);
        open_tables(self);
        struct sb_mp at = sb_mp_over(state.data, state.len);
        enum sb_rc rc = agent_ledger_load(self->ledger, &at, &err);
        assert(rc == SB_OK);
        rc = agent_publishers_load(self->publishers, &at, 0, &err);
        assert(rc == SB_OK && at.at == at.end);
        (void) rc;
    }
    sb_buf_release(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct agent_envelope envelope;
    struct fuzz_input input = {data, size};
    struct world world;
    int64_t now_ms = 1000;

    world_init(&world);
    while (input.left > 0) {
        const uint8_t flags = (uint8_t) fuzz_take(&input, 1).at[0];
        struct agent_frames frames;
        frames.topic = fuzz_piece(&input);
        frames.header = fuzz_piece(&input);
        frames.payload = fuzz_piece(&input);
        const enum agent_socket socket = flags & 1 ? AGENT_REPLAY : AGENT_STATS;
        if (agent_envelope_read(&envelope, &frames, socket) == AGENT_ACCEPTED)
            (void) !agent_publishers_take(world.publishers, &envelope, socket, now_ms);
        else if (socket == AGENT_REPLAY && envelope.publisher[0])
            agent_publishers_refused(world.publishers, envelope.publisher);
        now_ms += 500;
        agent_publishers_tick(world.publishers, now_ms);
    }
    agent_publishers_sweep(world.publishers, true, now_ms + 20000);
    commit_and_load(&world);
    world_release(&world);
    return 0;
}
