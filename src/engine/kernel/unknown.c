/*
 * unknown.c: records a call of which nothing is known, by finding what the kernel wrote.
 *
 * A snapshot of the process is made by clone without an exit signal, so that the guest's wait and SIGCHLD do
 * not see it. It shares the descriptor table, so that it keeps no pipe open, and does nothing. After the
 * call, the pages written since (pagediff.h) are compared with the snapshot's, and what differs is recorded;
 * pages that cannot be compared are recorded whole. Writable shared mappings are not copied by fork: they are
 * compared with a copy made before, up to SHARED_LIMIT bytes. A warning, once for each such call, tells
 * people.
 *
 * Cost: about that of a fork, per call.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "engine/host/raw.h"
#include "engine/kernel/pagediff.h"
#include "engine/kernel/sharedcopy.h"
#include "engine/kernel/table.h"

struct snapshot {
    int pid, memory; /* its /proc/PID/mem, or an error */
    struct task *task;
    struct shared_copy shared;
};

/* ---- comparing ---- */

static void compare(void *ctx, uint64_t addr, uint64_t len)
{
    struct snapshot *s = ctx;
    uint8_t old[PAGE_SIZE];
    for (uint64_t page = addr; page < addr + len; page += PAGE_SIZE) {
        if (raw4(SYS_pread64, s->memory, old, PAGE_SIZE, page) == (int64_t)PAGE_SIZE)
            add_differences(s->task, page, old, PAGE_SIZE);
        else
            effect_add_writable(s->task, page, PAGE_SIZE);
    }
}

/* ---- the snapshot ---- */

static _Noreturn void be_snapshot(int parent)
{
    raw5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while (raw0(SYS_getppid) == parent)
        raw0(SYS_pause);
    for (;;)
        raw1(SYS_exit_group, 0);
}

/* Signals stay blocked while the snapshot is young, so that it never runs a handler. */
static int take(void)
{
    uint64_t all = ~0ull, old;
    int parent = (int)raw0(SYS_getpid);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
    int pid = (int)raw5(SYS_clone, CLONE_FILES, 0, 0, 0, 0);
    if (!pid)
        be_snapshot(parent);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &old, 0, 8);
    return pid;
}

static void drop(int pid)
{
    raw2(SYS_kill, pid, SIGKILL);
    while (raw4(SYS_wait4, pid, 0, __WCLONE, 0) == -EINTR)
        ;
}

static void find_writes(struct snapshot *s)
{
    char name[40];
    snprintf(name, sizeof name, "/proc/%d/mem", s->pid);
    s->memory = (int)raw3(SYS_open, name, O_RDONLY | O_CLOEXEC, 0);
    if (s->pid < 0 || pagediff_changed(&guest_space, compare, s))
        event_note("what a call without a row wrote could not be found: replay may differ");
    if (s->memory >= 0)
        raw1(SYS_close, s->memory);
}

int64_t sys_record_unknown(struct task *t, struct sys_call *c, const char *what)
{
    event_note("%s is not in the table of system calls: what it wrote was found by comparing memory", what);
    struct snapshot s = {.task = t};
    shared_copy_take(&s.shared, "a call without a row");
    s.pid = take();
    task_syscall(t, c);
    if (!c->restart)
        find_writes(&s);
    shared_copy_compare(&s.shared, t);
    if (s.pid > 0)
        drop(s.pid);
    return c->result;
}
