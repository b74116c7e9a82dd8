#include "ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 8 };

void sb_ranges_init(struct sb_ranges *self)
{
    *self = (struct sb_ranges){0};
}

void sb_ranges_release(struct sb_ranges *self)
{
    free(self->at);
    *self = (struct sb_ranges){0};
}

/* The first range that ends at `number` or above; n when there is none. */
static size_t find(const struct sb_ranges *self, uint64_t number)
{
    /* Nearly all questions are about the last range or what is beyond it. */
    if (self->n == 0 || self->at[self->n - 1].to < number)
        return self->n;
    if (self->at[self->n - 1].from <= number)
        return self->n - 1;

    size_t low = 0;
    size_t high = self->n - 1;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (self->at[middle].to < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool sb_ranges_has(const struct sb_ranges *self, uint64_t number)
{
    const size_t i = find(self, number);
    return i < self->n && self->at[i].from <= number;
}

static bool make_room(struct sb_ranges *self, size_t n)
{
    if (n > SB_RANGES_MAX)
        n = SB_RANGES_MAX;
    if (n <= self->cap)
        return true;
    size_t cap = self->cap ? self->cap : FIRST_CAP;
    while (cap < n)
        cap *= 2;
    struct sb_range *at = realloc(self->at, cap * sizeof at[0]);
    if (!at)
        return false;
    self->at = at;
    self->cap = cap;
    return true;
}

bool sb_ranges_add(struct sb_ranges *self, uint64_t from, uint64_t to)
{
    assert(from <= to);

    /* The ranges first .. end - 1 overlap or touch the new one and become one with it. */
    const size_t first = find(self, from > 0 ? from - 1 : 0);
    size_t end = first;
    while (end < self->n && (to == UINT64_MAX || self->at[end].from <= to + 1))
        end++;

    if (first == end) {
        if (self->n == SB_RANGES_MAX || !make_room(self, self->n + 1))
            return false;
        memmove(self->at + first + 1, self->at + first, (self->n - first) * sizeof self->at[0]);
        self->at[first] = (struct sb_range){.from = from, .to = to};
        self->n++;
        return true;
    }

    if (self->at[first].from < from)
        from = self->at[first].from;
    if (self->at[end - 1].to > to)
        to = self->at[end - 1].to;
    self->at[first] = (struct sb_range){.from = from, .to = to};
    memmove(self->at + first + 1, self->at + end, (self->n - end) * sizeof self->at[0]);
    self->n -= end - first - 1;
    return true;
}

bool sb_ranges_first_hole(const struct sb_ranges *self, uint64_t from, uint64_t last, struct sb_range *hole)
{
    size_t next = find(self, from); /* the range behind the hole */
    if (next < self->n && self->at[next].from <= from) {
        if (self->at[next].to >= last)
            return false;
        from = self->at[next++].to + 1;
    }
    if (from > last)
        return false;
    const bool is_bounded = next < self->n && self->at[next].from <= last;
    *hole = (struct sb_range){.from = from, .to = is_bounded ? self->at[next].from - 1 : last};
    return true;
}

uint64_t sb_ranges_total(const struct sb_ranges *self)
{
    uint64_t total = 0;
    for (size_t i = 0; i < self->n; i++)
        total += self->at[i].to - self->at[i].from + 1;
    return total;
}

void sb_ranges_pack(const struct sb_ranges *self, struct sb_buf *buf)
{
    sb_mp_put_array(buf, (uint32_t) (2 * self->n));
    for (size_t i = 0; i < self->n; i++) {
        sb_mp_put_uint(buf, self->at[i].from);
        sb_mp_put_uint(buf, self->at[i].to);
    }
}

/* Reads the next pair into *range and checks it against the one before (NULL: none). */
static enum sb_rc read_range(struct sb_mp *from, const struct sb_range *before, struct sb_range *range,
                             struct sb_err *err)
{
    if (!sb_mp_uint(from, &range->from) || !sb_mp_uint(from, &range->to))
        return sb_fail(err, SB_FORMAT, "a range is not two numbers");
    if (range->from == 0 || range->from > range->to)
        return sb_fail(err, SB_FORMAT, "a range starts at 0 or ends before it starts");
    if (before && (before->to == UINT64_MAX || range->from <= before->to + 1))
        return sb_fail(err, SB_FORMAT, "ranges do not rise, or touch");
    return SB_OK;
}

enum sb_rc sb_ranges_read(struct sb_ranges *self, struct sb_mp *from, struct sb_err *err)
{
    struct sb_mp mp = *from;
    uint32_t n;
    if (!sb_mp_array(&mp, &n) || n % 2 != 0)
        return sb_fail(err, SB_FORMAT, "ranges are not an array of pairs");
    if (n / 2 > SB_RANGES_MAX)
        return sb_fail(err, SB_FULL, "%u ranges are more than %d", (unsigned) (n / 2), SB_RANGES_MAX);

    SB_OWN(sb_ranges_release) struct sb_ranges read = {0};
    if (n > 0 && !make_room(&read, n / 2))
        return sb_fail(err, SB_NOMEM, "%u ranges", (unsigned) (n / 2));
    for (; read.n < n / 2; read.n++) {
        const struct sb_range *before = read.n ? &read.at[read.n - 1] : NULL;
        const enum sb_rc rc = read_range(&mp, before, &read.at[read.n], err);
        if (rc != SB_OK)
            return rc;
    }

    const struct sb_ranges old = *self;
    *self = read;
    read = old; /* freed on the way out */
    *from = mp;
    return SB_OK;
}
