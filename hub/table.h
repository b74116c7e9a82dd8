/* A hash table of borrowed pointers. The caller hashes and compares; removing leaves no gap behind. */
#ifndef HUB_TABLE_H
#define HUB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct hub_table {
    struct hub_slot *slots; /* owned; NULL until the first item */
    size_t cap;             /* a power of two, or 0 */
    size_t n;
};

/* Is this item the one with this key? */
typedef bool (*hub_table_is)(const void *item, const void *key);

uint64_t hub_hash(const void *bytes, size_t n, uint64_t seed);

void hub_table_release(struct hub_table *self); /* the items are the caller's */
void *hub_table_find(const struct hub_table *self, uint64_t hash, hub_table_is is, const void *key);
bool hub_table_add(struct hub_table *self, uint64_t hash, void *item) SB_CHECK; /* false: out of memory */
/* Takes out an item that is in the table under this hash. */
void hub_table_remove(struct hub_table *self, uint64_t hash, const void *item);

/* Walks all items: *at starts at 0; NULL at the end. Adding or removing meanwhile is not allowed. */
void *hub_table_next(const struct hub_table *self, size_t *at);

#endif
