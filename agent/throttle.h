/*
 * When snapshots leave: per contribution at once if the period has passed since the last, else when it has.
 *
 * So the last value always gets through, and no source can starve another. Pure: asks no clock.
 */
#ifndef AGENT_THROTTLE_H
#define AGENT_THROTTLE_H

#include <stdint.h>

#include "agent/ledger.h"

struct agent_throttle {
    int64_t period_ms;
    uint32_t n;
    struct agent_throttle_entry {
        uint64_t epoch; /* whose last time this is: indexes are used again */
        int64_t left_ms;
    } * entries; /* by contribution index; owned */
};

void agent_throttle_init(struct agent_throttle *self, int64_t period_ms);
void agent_throttle_release(struct agent_throttle *self);

/* Publishes what is due. Calling it more often than needed changes nothing. */
void agent_throttle_pass(struct agent_throttle *self, struct agent_ledger *ledger, int64_t now_ms);

#endif
