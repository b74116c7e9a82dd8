#include "hub/table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 16 };

struct hub_slot {
    uint64_t hash;
    void *item; /* NULL: free */
};

/* FNV-1a, then a mix, so that the low bits that pick a slot depend on all bytes. */
uint64_t hub_hash(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}

void hub_table_release(struct hub_table *self)
{
    free(self->slots);
    *self = (struct hub_table){0};
}

void *hub_table_find(const struct hub_table *self, uint64_t hash, hub_table_is is, const void *key)
{
    if (self->n == 0)
        return NULL;
    for (size_t i = hash & (self->cap - 1); self->slots[i].item; i = (i + 1) & (self->cap - 1)) {
        if (self->slots[i].hash == hash && is(self->slots[i].item, key))
            return self->slots[i].item;
    }
    return NULL;
}

static void put(struct hub_slot *slots, size_t cap, struct hub_slot slot)
{
    size_t i = slot.hash & (cap - 1);
    while (slots[i].item)
        i = (i + 1) & (cap - 1);
    slots[i] = slot;
}

static bool grow(struct hub_table *self)
{
    size_t cap = self->cap ? self->cap * 2 : FIRST_CAP;
    struct hub_slot *slots = calloc(cap, sizeof slots[0]);
    if (!slots)
        return false;
    for (size_t i = 0; i < self->cap; i++) {
        if (self->slots[i].item)
            put(slots, cap, self->slots[i]);
    }
    free(self->slots);
    self->slots = slots;
    self->cap = cap;
    return true;
}

bool hub_table_add(struct hub_table *self, uint64_t hash, void *item)
{
    if ((self->n + 1) * 4 > self->cap * 3 && !grow(self))
        return false;
    put(self->slots, self->cap, (struct hub_slot){.hash = hash, .item = item});
    self->n++;
    return true;
}

void hub_table_remove(struct hub_table *self, uint64_t hash, const void *item)
{
    if (self->n == 0)
        return;
    size_t mask = self->cap - 1;
    size_t hole = hash & mask;
    while (self->slots[hole].item != item) {
        if (!self->slots[hole].item)
            return;
        hole = (hole + 1) & mask;
    }
    /* Later items of the same run move up, unless that would put them before the place their hash names. */
    for (size_t i = (hole + 1) & mask; self->slots[i].item; i = (i + 1) & mask) {
        size_t home = self->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        self->slots[hole] = self->slots[i];
        hole = i;
    }
    self->slots[hole].item = NULL;
    self->n--;
}

void *hub_table_next(const struct hub_table *self, size_t *at)
{
    while (*at < self->cap) {
        void *item = self->slots[(*at)++].item;
        if (item)
            return item;
    }
    return NULL;
}
