/* Memory that is freed all at once: for compiled, unchanging structures (catalog, plans). */
#ifndef SB_ARENA_H
#define SB_ARENA_H

#include <stddef.h>

struct sb_arena_block;

struct sb_arena {
    struct sb_arena_block *blocks; /* newest first; all owned */
};

void sb_arena_init(struct sb_arena *self);
void sb_arena_release(struct sb_arena *self);

/* n zeroed bytes, aligned for any type, alive until release. NULL: out of memory. */
void *sb_arena_get(struct sb_arena *self, size_t n);
/* A NUL-terminated copy. NULL: out of memory. */
char *sb_arena_text(struct sb_arena *self, const char *bytes, size_t n);
/* A copy of n elements of `size` bytes. NULL: out of memory (or n is 0). */
void *sb_arena_copy(struct sb_arena *self, const void *from, size_t n, size_t size);

#endif
