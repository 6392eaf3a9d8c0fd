/*
 * hostfd.c: see hostfd.h. hostfd_is, which every call with a descriptor passes, is in hostfd_fast.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/host/raw.h"
#include "engine/host/hostfd.h"

/* Room kept for ours; where they lie when the limit is large or cannot be raised. */
enum { RESERVE = 64, HIGHEST = 4096 };

struct hostfd_table hostfd_table = {.fd = {[0 ... HOSTFD_MAX - 1] = -1}, .lowest = ~0ull};

static void update_lowest(void)
{
    uint64_t lowest = ~0ull;
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] >= 0 && (uint64_t)hostfd_table.fd[i] < lowest)
            lowest = (uint64_t)hostfd_table.fd[i];
    hostfd_table.lowest = lowest;
}

/* The lowest number for one of ours under the limit the guest has. */
static int wanted_base(const struct rlimit *r)
{
    rlim_t base = r->rlim_cur;
    if (base > HIGHEST)
        base = HIGHEST - RESERVE;
    if (base + RESERVE > r->rlim_max)
        base = r->rlim_max > RESERVE ? r->rlim_max - RESERVE : r->rlim_max / 2;
    return (int)base;
}

/* Duplicates fd to a free number not below base and not `avoid`, with the limit raised for the moment. */
static int duplicate_high(int fd, int avoid)
{
    struct rlimit old;
    int result = -EMFILE;
    if (raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &old))
        return -EMFILE;
    int base = wanted_base(&old);
    struct rlimit raised = {.rlim_cur = (rlim_t)base + 2 * RESERVE, .rlim_max = old.rlim_max};
    if (raised.rlim_cur > old.rlim_max)
        raised.rlim_cur = old.rlim_max;
    bool raise = raised.rlim_cur > old.rlim_cur;
    if (raise)
        raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, 0);
    for (int from = base; from >= 0 && result<0; from = from> RESERVE ? from - RESERVE : -1) {
        result = (int)raw3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
        if (result == avoid && avoid >= 0) {
            int next = (int)raw3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, avoid + 1);
            raw1(SYS_close, result);
            result = next;
        }
    }
    if (raise)
        raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &old, 0);
    return result;
}

static int find(int fd)
{
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (fd >= 0 && hostfd_table.fd[i] == fd)
            return i;
    return -1;
}

static int free_handle(void)
{
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] < 0)
            return i;
    return -ENFILE;
}

static void set(int handle, int fd)
{
    hostfd_table.fd[handle] = fd;
    update_lowest();
}

int hostfd_keep(int fd)
{
    int handle = free_handle();
    if (handle < 0)
        return handle;
    int high = duplicate_high(fd, -1);
    if (high < 0)
        return high;
    raw1(SYS_close, fd);
    set(handle, high);
    return handle;
}

void hostfd_drop(int handle)
{
    int fd = hostfd(handle);
    if (fd < 0)
        return;
    set(handle, -1);
    raw1(SYS_close, fd);
}

/* Moves one of ours away from its number. Without any free number it stays, and the guest's call fails. */
static void move(int handle)
{
    int old = hostfd_table.fd[handle];
    int fd = duplicate_high(old, old);
    if (fd < 0)
        return;
    set(handle, fd);
    raw1(SYS_close, old);
}

void hostfd_make_way(int fd)
{
    int handle = find(fd);
    if (handle >= 0)
        move(handle);
}

void hostfd_settle(void)
{
    struct rlimit r;
    if (raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &r))
        return;
    int base = wanted_base(&r);
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] >= 0 && hostfd_table.fd[i] < base)
            move(i);
}

int hostfd_list(int *list)
{
    int count = 0;
    for (int i = 0; i < HOSTFD_MAX; i++) {
        int fd = hostfd_table.fd[i], at = count;
        if (fd < 0)
            continue;
        for (; at > 0 && list[at - 1] > fd; at--)
            list[at] = list[at - 1];
        list[at] = fd;
        count++;
    }
    return count;
}

void hostfd_limit_raise(struct rlimit *saved)
{
    enum { ENOUGH = 64 };
    raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, saved);
    struct rlimit raised = *saved;
    raised.rlim_cur += ENOUGH;
    if (raised.rlim_cur > raised.rlim_max)
        raised.rlim_max = raised.rlim_cur; /* allowed to the privileged only */
    if (raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, 0)) {
        raised = (struct rlimit){saved->rlim_max, saved->rlim_max};
        raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, 0);
    }
}

void hostfd_limit_restore(const struct rlimit *saved)
{
    raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, saved, 0);
}
