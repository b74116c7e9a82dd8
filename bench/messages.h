/*
 * What an agent with many engines sends to a hub: 1,100 samples a contribution, nodes of 8 engines, one role a node,
 * with semantics and roles from which a hub derives all that it can.
 */
#ifndef BENCH_MESSAGES_H
#define BENCH_MESSAGES_H

#include "common/buf.h"

void bench_put_hello(struct sb_buf *out);
void bench_put_define(struct sb_buf *out, unsigned n_contributions);
/* All samples of a contribution; each round they are others. */
void bench_put_frame(struct sb_buf *out, uint64_t number, unsigned contribution, unsigned round);

#endif
