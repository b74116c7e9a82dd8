/* Which numbers have been seen: a set of uint64 as inclusive ranges that rise and do not touch. */
#ifndef SB_RANGES_H
#define SB_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "mp.h"

enum { SB_RANGES_MAX = 1024 };

struct sb_range {
    uint64_t from;
    uint64_t to; /* inclusive */
};

struct sb_ranges {
    size_t n;
    size_t cap;
    struct sb_range *at; /* owned */
};

void sb_ranges_init(struct sb_ranges *self);
void sb_ranges_release(struct sb_ranges *self);

bool sb_ranges_has(const struct sb_ranges *self, uint64_t number);

/*
 * Adds from..to (from <= to), joining what touches. False, nothing changed: it would make more than SB_RANGES_MAX
 * ranges, or memory ran out. Adding to the end of the last range, or what is already there, always works and is O(1).
 */
bool sb_ranges_add(struct sb_ranges *self, uint64_t from, uint64_t to) SB_CHECK;

/* The first hole in from..last: true and *hole, or false when there is none. */
bool sb_ranges_first_hole(const struct sb_ranges *self, uint64_t from, uint64_t last, struct sb_range *hole);

uint64_t sb_ranges_total(const struct sb_ranges *self); /* how many numbers */

/* On the wire: a flat array [from, to, from, to, ...]. Reading: SB_FORMAT (not rising, from 0, touching), SB_FULL. */
void sb_ranges_pack(const struct sb_ranges *self, struct sb_buf *buf);
enum sb_rc sb_ranges_read(struct sb_ranges *self, struct sb_mp *from, struct sb_err *err) SB_CHECK;

#endif
