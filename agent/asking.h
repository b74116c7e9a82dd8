/*
 * Asking one publisher for the records that did not arrive: which numbers, when, and when to give up on them.
 *
 * Pure: time comes in, the question goes out. One question is out at a time; holes are asked for in turn, so that one
 * that can't be healed doesn't keep others waiting.
 */
#ifndef AGENT_ASKING_H
#define AGENT_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ranges.h"

enum {
    AGENT_ASK_MAX = 4096,        /* numbers of one question */
    AGENT_ASK_PATIENCE_MS = 100, /* a hole may just be under way on the other socket */
    AGENT_ASK_RETRY_MS = 1000,   /* no answer, or one that brought nothing */
};

struct agent_asking {
    bool is_out;
    bool is_refused; /* a message of the answer was refused */
    bool is_poor;    /* the last answer brought nothing */
    bool has_hole;
    struct sb_range question; /* the one that is out, else the last */
    uint64_t turn;            /* holes up to this number have had their turn */
    bool is_out_of_turn;      /* the question was for the first hole, though another one's turn it was */
    int64_t asked_ms;         /* of the question, or of the last thing that came of it */
    int64_t hole_ms;          /* when the holes were first seen */
    uint64_t gained;          /* numbers that came since the question */
    uint64_t width;           /* numbers of the next question at most; 0: AGENT_ASK_MAX */
};

/* Shall a question go out now? True: *question is it, and it counts as out. last: the highest number known to be given.
 */
bool agent_asking_next(struct agent_asking *self, const struct sb_ranges *applied, uint64_t last, int64_t now_ms,
                       struct sb_range *question);

/* Records came on the replay socket, n of them new. */
void agent_asking_gained(struct agent_asking *self, uint32_t n, int64_t now_ms);

/*
 * A message on the replay socket, which may be part of the answer, was refused. Then half as many numbers are asked for
 * next, and so on: only a number that was asked for alone is lost, not those that travelled with it.
 */
void agent_asking_refused(struct agent_asking *self);

/*
 * The answer to `answered` is over; the publisher holds nothing below first_held. What can't come any more is added to
 * *applied. Returns how many numbers that were: lost.
 */
uint64_t agent_asking_end(struct agent_asking *self, struct sb_ranges *applied, const struct sb_range *answered,
                          uint64_t first_held, int64_t now_ms);

/* Gives up on a question that was not answered in time, so that it may go out again; returns as agent_asking_end. */
uint64_t agent_asking_expire(struct agent_asking *self, struct sb_ranges *applied, int64_t now_ms);

#endif
