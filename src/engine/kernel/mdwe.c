/* mdwe.c: see mdwe.h. */
#include "engine/kernel/mdwe.h"

#include <errno.h>
#include <sys/mman.h>

enum { REFUSE_EXEC_GAIN = 1, NO_INHERIT = 2 };

static uint64_t refused; /* the bits that were set; they stay */

int64_t mdwe_set(const uint64_t args[4])
{
    uint64_t bits = args[0];
    if (args[1] || args[2] || args[3] || (bits & ~(uint64_t)(REFUSE_EXEC_GAIN | NO_INHERIT)) ||
        bits == NO_INHERIT)
        return -EINVAL;
    if (refused && refused != bits)
        return -EPERM;
    refused = bits;
    return 0;
}

int64_t mdwe_get(const uint64_t args[4])
{
    return args[0] || args[1] || args[2] || args[3] ? -EINVAL : (int64_t)refused;
}

bool mdwe_denies(uint32_t old, uint32_t prot)
{
    if (!refused || !(prot & PROT_EXEC))
        return false;
    return (prot & PROT_WRITE) || !(old & PROT_EXEC);
}

void mdwe_inherit(void)
{
    if (refused & NO_INHERIT)
        refused = 0;
}
