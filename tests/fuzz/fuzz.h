/* What libFuzzer calls, and a reader of the pieces that an input is made of. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/mp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A cursor over an input. Lengths in it are cut to what is left, so that every input means something. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

static inline struct sb_slice fuzz_take(struct fuzz_input *self, size_t n)
{
    const size_t taken = n < self->left ? n : self->left;
    const struct sb_slice piece = {(const char *) self->at, taken};
    self->at += taken;
    self->left -= taken;
    return piece;
}

/* A piece with its length before it: 4 bytes, little-endian. */
static inline struct sb_slice fuzz_piece(struct fuzz_input *self)
{
    const struct sb_slice head = fuzz_take(self, 4);
    uint32_t n = 0;
    memcpy(&n, head.at, head.len);
    return fuzz_take(self, n);
}

#endif
