/* Arrays that grow by doubling. */
#ifndef AGENT_GROW_H
#define AGENT_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes sure that *array (a T **) has room for `need` elements; new room is zeroed. False: out of memory. */
bool agent_grow(void *array_p, uint32_t *cap, uint32_t need, size_t size);

#endif
