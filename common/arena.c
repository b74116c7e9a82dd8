#include "common/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 * 1024, ALIGN = 16 };

struct sb_arena_block {
    struct sb_arena_block *next;
    size_t used;
    size_t cap;
    _Alignas(ALIGN) unsigned char bytes[];
};

void sb_arena_init(struct sb_arena *self)
{
    self->blocks = NULL;
}

void sb_arena_release(struct sb_arena *self)
{
    while (self->blocks) {
        struct sb_arena_block *block = self->blocks;
        self->blocks = block->next;
        free(block);
    }
}

void *sb_arena_get(struct sb_arena *self, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (!self->blocks || self->blocks->cap - self->blocks->used < n) {
        size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        struct sb_arena_block *block = calloc(1, sizeof *block + cap);
        if (!block)
            return NULL;
        block->cap = cap;
        block->next = self->blocks;
        self->blocks = block;
    }
    void *at = self->blocks->bytes + self->blocks->used;
    self->blocks->used += n;
    return at;
}

char *sb_arena_text(struct sb_arena *self, const char *bytes, size_t n)
{
    char *copy = sb_arena_get(self, n + 1);
    if (copy && n)
        memcpy(copy, bytes, n);
    return copy;
}

void *sb_arena_copy(struct sb_arena *self, const void *from, size_t n, size_t size)
{
    if (n == 0 || n > SIZE_MAX / 2 / size)
        return NULL;
    void *copy = sb_arena_get(self, n * size);
    if (copy)
        memcpy(copy, from, n * size);
    return copy;
}
