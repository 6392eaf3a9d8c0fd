/* descriptors.c: see descriptors.h. */
#include "base/descriptors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { UNLIMITED = 1 << 20 }; /* descriptors to look at when no limit is known */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Closes first to last; one by one where the system lacks close_range or a filter refuses it. */
static void close_all(unsigned first, unsigned last)
{
    struct rlimit limit;
    if (first > last || close_range(first, last, 0) == 0)
        return;
    unsigned most =
        getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max > UNLIMITED ? UNLIMITED : (unsigned)limit.rlim_max;
    for (unsigned fd = first; fd <= last && fd < most; fd++)
        close((int)fd);
}

void descriptors_close_others(int *keep, size_t n)
{
    qsort(keep, n, sizeof *keep, by_number);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        if (!bsearch(&fd, keep, n, sizeof *keep, by_number) && null != fd && dup2(null, fd) < 0)
            close(fd);
    unsigned from = 3;
    for (size_t i = 0; i < n; i++) {
        if (keep[i] < (int)from)
            continue;
        if (keep[i] > 0)
            close_all(from, (unsigned)keep[i] - 1);
        from = (unsigned)keep[i] + 1;
    }
    close_all(from, ~0u);
}

void descriptors_lift_limit(struct rlimit *was)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (was)
        *was = limit;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
