#include "grow.h"

#include <stdlib.h>
#include <string.h>

bool sb_grow(void *array_p, uint32_t *cap, uint32_t need, size_t size)
{
    void **array = array_p;
    if (need <= *cap)
        return true;
    uint32_t bigger = *cap ? *cap : 8;
    while (bigger < need)
        bigger *= 2;
    unsigned char *grown = realloc(*array, bigger * size);
    if (!grown)
        return false;
    memset(grown + *cap * size, 0, (bigger - *cap) * size);
    *array = grown;
    *cap = bigger;
    return true;
}
