/* guest.c: strings in guest memory. FAST: see Makefile. */
#include <errno.h>

#include "engine/guest/access.h"
#include "engine/guest/engine.h"
#include "engine/guest/layout.h"

int64_t guest_string(char *to, size_t size, uint64_t addr)
{
    size_t n = 0;
    while (n < size) {
        size_t piece = PAGE_SIZE - (addr + n) % PAGE_SIZE; /* never across a page: a fault loses nothing */
        if (piece > size - n)
            piece = size - n;
        if (piece > 64)
            piece = 64;
        if (guest_read(to + n, addr + n, piece))
            return -EFAULT;
        for (size_t i = 0; i < piece; i++)
            if (!to[n + i])
                return (int64_t)(n + i);
        n += piece;
    }
    return -ENAMETOOLONG;
}
