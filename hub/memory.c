#include "hub/memory.h"

#include <stdlib.h> /* tells which C library this is */
#if defined(__GLIBC__)
#include <malloc.h>
#endif

enum {
    KEPT_BYTES = 4 * 1024 * 1024,
    MAPPED_FROM_BYTES = 1024 * 1024, /* larger pieces are the kernel's again as soon as they are freed */
};

void hub_memory_keep(void)
{
#if defined(__GLIBC__)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
#endif
}
