/* hostfd_fast.c: the question that every call with a descriptor asks. FAST: see Makefile. */
#include "engine/host/hostfd.h"

bool hostfd_is(int64_t fd)
{
    if ((uint64_t)fd < hostfd_table.lowest)
        return false;
    for (uint32_t i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] == fd && fd >= 0)
            return true;
    return false;
}
