/*
 * hostfd.c: see hostfd.h. hostfd_is, which every call with a descriptor passes, is in hostfd_fast.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/host/raw.h"
#include "engine/host/hostfd.h"

bool hostfd_sharing;

/* Room kept for ours; where they lie when the limit is large or cannot be raised. */
enum { RESERVE = 64, HIGHEST = 4096 };

struct hostfd_table hostfd_table = {.fd = {[0 ... HOSTFD_MAX - 1] = -1}, .lowest = ~0ull};
static bool mine[HOSTFD_MAX]; /* handles of this process */

/* ---- memory that is shared with the table ---- */

enum { RANGES_MAX = 4 };

static struct range {
    void *start, *copy; /* copy: as it was when unsharing began */
    size_t size;
} ranges[RANGES_MAX] = {{&hostfd_table, NULL, sizeof hostfd_table}};
static int nranges = 1;

void hostfd_describe(void *start, size_t size)
{
    for (int i = 0; i < nranges; i++)
        if (ranges[i].start == start)
            return;
    ranges[nranges++] = (struct range){start, NULL, size};
}

/* A holder that was killed is not waited for. */
static void lock(void)
{
    enum { TRIES = 10000 };
    uint32_t nobody = 0;
    for (int i = 0; hostfd_shared() && i < TRIES; i++, nobody = 0) {
        if (__atomic_compare_exchange_n(&hostfd_table.lock, &nobody, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return;
        raw0(SYS_sched_yield);
    }
}

static void unlock(void)
{
    __atomic_store_n(&hostfd_table.lock, 0, __ATOMIC_RELEASE);
}

/* Copies every range to new memory, `kind` as for mmap. */
static int copy_ranges(uint64_t kind)
{
    for (int i = 0; i < nranges; i++) {
        int64_t p = raw6(SYS_mmap, 0, ranges[i].size, 3, kind | 0x20 /* MAP_ANONYMOUS */, (uint64_t)-1, 0);
        if (p < 0) {
            while (i--)
                raw2(SYS_munmap, ranges[i].copy, ranges[i].size);
            return (int)p;
        }
        ranges[i].copy = (void *)p;
        copy_bytes(ranges[i].copy, ranges[i].start, ranges[i].size);
    }
    return 0;
}

static void drop_copies(void)
{
    for (int i = 0; i < nranges; i++)
        raw2(SYS_munmap, ranges[i].copy, ranges[i].size);
}

/* Puts the copies in place of the ranges. */
static void take_copies(void)
{
    for (int i = 0; i < nranges; i++)
        raw5(SYS_mremap, ranges[i].copy, ranges[i].size, ranges[i].size, 3 /* MAYMOVE FIXED */,
             ranges[i].start);
}

/* ---- the list ---- */

/* While others may change the list, too, the bound only sinks. */
static void update_lowest(void)
{
    uint64_t lowest = hostfd_shared() ? hostfd_table.lowest : ~0ull;
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] >= 0 && (uint64_t)hostfd_table.fd[i] < lowest)
            lowest = (uint64_t)hostfd_table.fd[i];
    hostfd_table.lowest = lowest;
}

/* The lowest number for one of ours under the limit the guest has. */
static int wanted_base(const struct rlimit *r)
{
    rlim_t base = r->rlim_cur > HIGHEST ? HIGHEST - RESERVE : r->rlim_cur;
    return (int)(base > hostfd_table.floor ? base : hostfd_table.floor);
}

/* Raises the limit so that numbers from base on can be had, the hard limit too where that is allowed. Returns the base. */
static int raise_limit(const struct rlimit *old, int base)
{
    rlim_t wanted = (rlim_t)base + 2 * RESERVE;
    struct rlimit raised = {wanted, wanted > old->rlim_max ? wanted : old->rlim_max};
    if (wanted <= old->rlim_cur || !raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, 0))
        return base;
    raised.rlim_cur = raised.rlim_max = old->rlim_max;
    raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, 0);
    int highest = (int)(old->rlim_max > RESERVE ? old->rlim_max - RESERVE : old->rlim_max / 2);
    return base < highest ? base : highest;
}

/* Duplicates fd to a free number not below base and not `avoid`, with the limit raised for the moment. */
static int duplicate_high(int fd, int avoid)
{
    struct rlimit old;
    int result = -EMFILE;
    if (raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &old))
        return -EMFILE;
    int base = raise_limit(&old, wanted_base(&old));
    for (int from = base; from >= 0 && result<0; from = from> RESERVE ? from - RESERVE : -1) {
        result = (int)raw3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
        if (result == avoid && avoid >= 0) {
            int next = (int)raw3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, avoid + 1);
            raw1(SYS_close, result);
            result = next;
        }
    }
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

/* Closes what processes left behind that took another table. */
static int free_handle(void)
{
    for (int i = 0; i < HOSTFD_MAX; i++) {
        if (hostfd_table.fd[i] >= 0 && !hostfd_table.users[i]) {
            raw1(SYS_close, hostfd_table.fd[i]);
            hostfd_table.fd[i] = -1;
        }
        if (hostfd_table.fd[i] < 0)
            return i;
    }
    return -ENFILE;
}

static void set(int handle, int fd)
{
    hostfd_table.fd[handle] = fd;
    update_lowest();
}

int hostfd_keep(int fd)
{
    lock();
    int handle = free_handle(), high = handle < 0 ? handle : duplicate_high(fd, -1);
    if (high >= 0) {
        raw1(SYS_close, fd);
        hostfd_table.users[handle] = 1;
        mine[handle] = true;
        set(handle, high);
    }
    unlock();
    return high < 0 ? high : handle;
}

static void drop_locked(int handle)
{
    int fd = hostfd_table.fd[handle];
    mine[handle] = false;
    if (--hostfd_table.users[handle] > 0)
        return;
    set(handle, -1);
    raw1(SYS_close, fd);
}

void hostfd_drop(int handle)
{
    if (hostfd(handle) < 0 || !mine[handle])
        return;
    lock();
    drop_locked(handle);
    unlock();
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
    lock();
    int handle = find(fd);
    if (handle >= 0)
        move(handle);
    unlock();
}

void hostfd_make_room(int64_t fd)
{
    enum { FLOOR_MAX = 1 << 20 };
    uint64_t before = hostfd_table.lowest;
    if (!hostfd_near(fd) || hostfd_is(fd) || raw2(SYS_fcntl, fd, F_GETFD) == -EBADF)
        return;
    lock();
    hostfd_table.floor = fd < FLOOR_MAX / 2 ? 2 * (uint32_t)fd : FLOOR_MAX;
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] >= 0 && hostfd_table.fd[i] < fd + RESERVE)
            move(i);
    if (hostfd_table.lowest <= before)
        hostfd_table.stuck = hostfd_table.lowest;
    unlock();
}

void hostfd_settle(void)
{
    struct rlimit r;
    if (raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &r))
        return;
    int base = wanted_base(&r);
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (mine[i] && hostfd_table.fd[i] >= 0 && hostfd_table.fd[i] < base) {
            lock();
            move(i);
            unlock();
        }
}

/* ---- sharing ---- */

static void add_users(int change)
{
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (mine[i])
            hostfd_table.users[i] += change;
}

/* This process has a copy of a table that others share: theirs is closed here. */
static void be_alone(void)
{
    hostfd_sharing = false;
    unlock();
    for (int i = 0; i < HOSTFD_MAX; i++) {
        if (hostfd_table.fd[i] >= 0 && !mine[i]) {
            raw1(SYS_close, hostfd_table.fd[i]);
            hostfd_table.fd[i] = -1;
        }
        hostfd_table.users[i] = mine[i];
    }
    update_lowest();
}

int hostfd_fork_begin(bool share)
{
    int error = 0;
    if (!share && !hostfd_shared())
        return 0;
    if (!share) {
        lock();
        error = copy_ranges(2 /* MAP_PRIVATE */);
        if (error)
            unlock();
        return error;
    }
    if (!hostfd_shared()) {
        error = copy_ranges(1 /* MAP_SHARED */);
        if (error)
            return error;
        take_copies();
        hostfd_sharing = true;
    }
    lock();
    add_users(1);
    unlock();
    return 0;
}

void hostfd_fork_parent(bool share, bool failed)
{
    if (!hostfd_shared() || (share && !failed))
        return;
    if (share) {
        lock();
        add_users(-1);
    } else {
        drop_copies();
    }
    unlock();
}

void hostfd_fork_child(bool share)
{
    if (share || !hostfd_shared())
        return;
    take_copies();
    be_alone();
}

void hostfd_arrived(void)
{
    __atomic_add_fetch(&hostfd_table.arrived, 1, __ATOMIC_SEQ_CST);
    raw3(SYS_futex, &hostfd_table.arrived, FUTEX_WAKE, INT32_MAX);
}

void hostfd_await_arrival(uint32_t before)
{
    const struct timespec second = {1, 0}; /* it may have been killed */
    int64_t error = 0;
    while (__atomic_load_n(&hostfd_table.arrived, __ATOMIC_SEQ_CST) == before && error != -ETIMEDOUT)
        error = raw4(SYS_futex, &hostfd_table.arrived, FUTEX_WAIT, before, &second);
}

int hostfd_unshare_begin(void)
{
    lock();
    int error = copy_ranges(2);
    if (error)
        unlock();
    return error;
}

void hostfd_unshare_end(bool done)
{
    if (done)
        add_users(-1);
    unlock();
    if (!done) {
        drop_copies();
        return;
    }
    take_copies();
    be_alone();
}

void hostfd_unshare(void)
{
    enum { UNSHARE = 2, NO_FD = 0x7fffffff };
    if (!hostfd_shared() || hostfd_unshare_begin())
        return;
    hostfd_unshare_end(!raw3(SYS_close_range, NO_FD, NO_FD, UNSHARE));
}

void hostfd_leave(void)
{
    if (!hostfd_shared())
        return;
    lock();
    for (int i = 0; i < HOSTFD_MAX; i++)
        if (mine[i])
            drop_locked(i);
    unlock();
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
