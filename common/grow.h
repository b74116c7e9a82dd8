/* Arrays that grow by doubling. */
#ifndef SB_GROW_H
#define SB_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes sure that *array (a T **) has room for `need` elements; new room is zeroed. False: out of memory. */
bool sb_grow(void *array_p, uint32_t *cap, uint32_t need, size_t size);

#endif
