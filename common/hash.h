/* FNV-1a, 64 bits: for telling equal things from others, not against whoever wants a collision. */
#ifndef SB_HASH_H
#define SB_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SB_HASH_START UINT64_C(0xcbf29ce484222325)

/* The hash so far (SB_HASH_START at first), with n more bytes in it. */
static inline uint64_t sb_hash_more(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *) bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
