#include "open_files.h"

#include <sys/resource.h>

uint64_t sb_open_files_raise(uint64_t most)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    const rlim_t before = limit.rlim_cur;
    const rlim_t wanted = most < limit.rlim_max ? most : limit.rlim_max;
    if (wanted <= before)
        return before;
    limit.rlim_cur = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? wanted : before;
}
