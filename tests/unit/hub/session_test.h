/* A world with a session, and what is counted in it: for the tests of sessions. */
#ifndef SESSION_TEST_H
#define SESSION_TEST_H

#include <math.h>

#include "hub_test.h"

static inline int open_world(void **state)
{
    static struct world world;
    world_open(&world);
    *state = &world;
    return 0;
}

static inline int close_world(void **state)
{
    world_close(*state);
    return 0;
}

static inline double cell_of(const struct world *world, const struct hub_session *session, uint64_t epoch,
                             const char *family, uint32_t offset)
{
    const struct hub_contribution *contribution = hub_store_find(&world->store, session->lineage, epoch);
    const struct hub_family *found = hub_index_find(&world->store.index, family);
    double value;
    assert_non_null(contribution);
    assert_non_null(found);
    if (!hub_values_read(&contribution->values, found->variants[0]->series[0]->first + offset, 1, &value))
        return -1;
    return value;
}

static inline double gauge_of(const struct hub_contribution *contribution, const struct world *world,
                              const char *family)
{
    uint32_t n;
    const struct hub_gauge *gauges =
        hub_values_gauges(&contribution->values, hub_index_find(&world->store.index, family)->id, &n);
    return n > 0 ? gauges[0].value : -1;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

#endif
