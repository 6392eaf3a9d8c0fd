/*
 * clone.c: fork, vfork, clone, clone3.
 *
 * The kernel makes a process with a copy of the memory on the same host stack, by clone wherever that can say
 * what is wanted, since profiles of containers refuse clone3. What acts on memory or registers (thread ids,
 * fs, the stack) is done here, and what would share memory, handlers or time with the parent is either
 * honoured by the engine (vfork.h) or ends the recording by name. Everything else is passed on and checked by
 * the kernel.
 */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/event/session.h"
#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/memory.h"
#include "engine/kernel/process.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/vfork.h"
#include "engine/memory/space.h"
#include "engine/translate/cache.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { PID_NAMESPACES_MAX = 32 };

struct fork_args {
    uint64_t flags; /* without the signal */
    uint64_t exit_signal, stack, parent_tid, child_tid, tls, pidfd, set_tid, set_tid_size, cgroup;
};

/* ---- what is asked for ---- */

/* The kernel's checks of what it does not get to see. */
static int64_t check_flags(const struct fork_args *f)
{
    if ((f->flags & CLONE_THREAD) && !(f->flags & CLONE_SIGHAND))
        return -EINVAL;
    if ((f->flags & CLONE_SIGHAND) && !(f->flags & CLONE_VM))
        return -EINVAL;
    if ((f->flags & CLONE_THREAD) && (f->flags & (CLONE_NEWUSER | CLONE_NEWPID)))
        return -EINVAL;
    if ((f->flags & CLONE_PIDFD) && (f->flags & CLONE_PARENT_SETTID) && f->pidfd == f->parent_tid)
        return -EINVAL;
    if ((f->flags & CLONE_SETTLS) && f->tls >= USER_END)
        return -EPERM;
    if ((f->flags & CLONE_PIDFD) && !space_allows(&guest_space, f->pidfd, 4, 2))
        return -EFAULT;
    return 0;
}

static void refuse_sharing(const struct fork_args *f)
{
    if (f->flags & CLONE_THREAD)
        event_unsupported("thread creation (clone with CLONE_THREAD): programs with several threads cannot "
                          "be recorded yet");
    if ((f->flags & CLONE_VM) && !(f->flags & CLONE_VFORK))
        event_unsupported("clone with CLONE_VM but without CLONE_VFORK: processes that share their memory "
                          "cannot be recorded yet");
    if (f->flags & CLONE_SIGHAND)
        event_unsupported("clone with CLONE_SIGHAND: processes that share their signal handlers cannot be "
                          "recorded yet");
}

/* ---- the kernel's part ---- */

static int64_t kernel_clone3(const struct fork_args *f, uint64_t flags)
{
    struct clone_args args = {
        .flags = flags,
        .pidfd = f->pidfd,
        .exit_signal = f->exit_signal,
        .set_tid = f->set_tid,
        .set_tid_size = f->set_tid_size,
        .cgroup = f->cgroup,
    };
    return raw2(SYS_clone3, &args, sizeof args);
}

static int64_t kernel_fork(const struct fork_args *f)
{
    const uint64_t ours = CLONE_VM | CLONE_VFORK | CLONE_SIGHAND | CLONE_SETTLS | CLONE_PARENT_SETTID |
                          CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_CLEAR_SIGHAND;
    uint64_t flags = f->flags & ~ours;
    if (f->set_tid_size || (flags & (CLONE_INTO_CGROUP | CLONE_NEWTIME)))
        return kernel_clone3(f, flags);
    return raw5(SYS_clone, flags | f->exit_signal, 0, f->pidfd, 0, 0);
}

/* ---- both sides ---- */

static void set_child_registers(struct task *t, const struct fork_args *f)
{
    t->regs.gpr[GPR_RAX] = 0;
    t->regs.gpr[GPR_RCX] = t->regs.rip;
    t->regs.gpr[GPR_R11] = t->regs.rflags;
    if (f->stack)
        t->regs.gpr[GPR_RSP] = f->stack;
    if (f->flags & CLONE_SETTLS)
        t->regs.fs_base = f->tls;
}

static void become_child(struct task *t, const struct fork_args *f, uint32_t number, uint64_t parent_event,
                         uint32_t parent)
{
    t->tid = (int)raw0(SYS_gettid);
    t->effects.count = 0;
    t->maps_used = t->maps_count = 0; /* growth of stacks since the parent's last event: its fork says so */
    t->pending = 0;                   /* a signal that waits is the parent's */
    task_forget_held(t, ~0ull);
    prctl_forked(t);
    session_leave_ring();
    session_arm_lifeline();
    session_open_ring(number);
    session_publish_space(parent, parent_event, SPACE_FORK, guest_space.exe, NULL);
    set_child_registers(t, f);
    signals_forked(t);
    if (f->flags & CLONE_CLEAR_SIGHAND)
        signals_clear_handlers(t);
    memory_forked(t);
    space_shared_with_others(&guest_space);
    if ((f->flags & CLONE_CHILD_SETTID) && !guest_write(f->child_tid, &t->tid, 4))
        effect_add(t, f->child_tid, 4);
    if (f->flags & CLONE_CHILD_CLEARTID)
        vfork_set_clear_tid(f->child_tid);
    struct trace_ev_start own = {.regs = t->regs, .brk = guest_space.brk};
    struct event_head head = {EV_START, 0,         0, t->regs.rip, 0, regs_hash(&t->regs, t->regs.rip),
                              &own,     sizeof own};
    task_reset_ticks(t);
    event_publish(t, &head);
    LOG(process, "space %u: child of space %u", number, parent);
}

static int64_t fork_within_limits(struct task *t, struct sys_call *c, const struct fork_args *f)
{
    if (space_shares_memory(&guest_space) && !(f->flags & CLONE_VFORK))
        event_note("a forked process shares writable memory with its parent: what one writes there the "
                   "other's replay may not see");
    bool share = f->flags & CLONE_FILES;
    struct vfork v = {.waits = f->flags & CLONE_VFORK, .shares_table = share};
    int64_t error = vfork_begin(&v);
    if (!error)
        error = hostfd_fork_begin(share);
    if (error)
        return error;
    if (share)
        cache_unshare(
            "record locks, which guard the shared cache, do not tell those apart that share descriptors");
    uint32_t parent = engine.space_number, number = session_new_space();
    uint64_t parent_event = engine.ring->events + 1;
    uint32_t hash = engine.ring->call.hash, arrived = hostfd_table.arrived;
    /* a signal of the child's must not find it half born, nor one of ours find two of us */
    uint64_t all = ~0ull, mask;
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8);
    int64_t pid = kernel_fork(f);
    if (pid == 0) {
        hostfd_fork_child(share);
        vfork_child(&v);
        become_child(t, f, number, parent_event, parent);
        if (share)
            hostfd_arrived();
        disposition_mask(t->blocked);
        process_has_published();
        return 0;
    }
    uint64_t waiting = ~SYNC_SIGNALS;
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &waiting, 0, 8);
    hostfd_fork_parent(share, pid < 0);
    if (share && pid > 0 && !v.waits)
        hostfd_await_arrival(arrived);
    vfork_parent(&v, t, pid);
    if (pid > 0 && !v.waits)
        space_shared_with_others(&guest_space);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
    if (pid < 0)
        return pid;
    int tid = (int)pid;
    if ((f->flags & CLONE_PARENT_SETTID) && !guest_write(f->parent_tid, &tid, 4))
        effect_add(t, f->parent_tid, 4);
    if (f->flags & CLONE_PIDFD)
        effect_add(t, f->pidfd, 4);
    const struct trace_ev_fork own = {.child_space = number};
    struct event_head head = {EV_FORK, 0, (uint16_t)c->nr, t->call_pc, pid, hash, &own, sizeof own};
    event_publish(t, &head);
    vfork_done();
    process_has_published();
    return pid;
}

static int64_t do_fork(struct task *t, struct sys_call *c, const struct fork_args *f)
{
    struct rlimit saved;
    int64_t result = check_flags(f);
    if (result)
        return result;
    refuse_sharing(f);
    hostfd_limit_raise(&saved);
    result = fork_within_limits(t, c, f);
    hostfd_limit_restore(&saved);
    return result;
}

/* ---- the calls ---- */

int64_t both_fork(struct task *t, struct sys_call *c)
{
    return do_fork(t, c, &(struct fork_args){.exit_signal = SIGCHLD});
}

int64_t both_vfork(struct task *t, struct sys_call *c)
{
    return do_fork(t, c, &(struct fork_args){.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD});
}

int64_t both_clone(struct task *t, struct sys_call *c)
{
    const struct fork_args f = {
        .flags = c->args[0] & 0xffffff00u,
        .exit_signal = c->args[0] & 0xff,
        .stack = c->args[1],
        .parent_tid = c->args[2],
        .pidfd = c->args[2],
        .child_tid = c->args[3],
        .tls = c->args[4],
    };
    return do_fork(t, c, &f);
}

/* A structure from a newer program than this kernel: what is not known must be zero. */
static int64_t read_clone_args(struct clone_args *a, uint64_t addr, uint64_t size)
{
    uint64_t known = size < sizeof *a ? size : sizeof *a;
    uint8_t byte;
    if (size > PAGE_SIZE)
        return -E2BIG;
    if (size < CLONE_ARGS_SIZE_VER0)
        return -EINVAL;
    for (uint64_t i = known; i < size; i++) {
        if (guest_read(&byte, addr + i, 1))
            return -EFAULT;
        if (byte)
            return -E2BIG;
    }
    return guest_read(a, addr, known) ? -EFAULT : 0;
}

static int64_t check_clone_args(const struct clone_args *a, uint64_t size)
{
    const uint64_t known = 0xffffff00u | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP | CLONE_NEWTIME;
    if (a->set_tid_size > PID_NAMESPACES_MAX || !a->set_tid != !a->set_tid_size || a->exit_signal > 64)
        return -EINVAL;
    if ((a->flags & CLONE_INTO_CGROUP) && (a->cgroup > INT32_MAX || size < CLONE_ARGS_SIZE_VER2))
        return -EINVAL;
    if ((a->flags & ~known) || (a->flags & CLONE_DETACHED))
        return -EINVAL;
    if ((a->flags & CLONE_SIGHAND) && (a->flags & CLONE_CLEAR_SIGHAND))
        return -EINVAL;
    if ((a->flags & (CLONE_THREAD | CLONE_PARENT)) && a->exit_signal)
        return -EINVAL;
    if (!a->stack != !a->stack_size || a->stack > USER_END || a->stack_size > USER_END - a->stack)
        return -EINVAL;
    return 0;
}

int64_t both_clone3(struct task *t, struct sys_call *c)
{
    struct clone_args a = {0};
    int64_t error = read_clone_args(&a, c->args[0], c->args[1]);
    if (!error)
        error = check_clone_args(&a, c->args[1]);
    if (error)
        return error;
    const struct fork_args f = {
        .flags = a.flags,
        .exit_signal = a.exit_signal,
        .stack = a.stack + a.stack_size,
        .parent_tid = a.parent_tid,
        .pidfd = a.pidfd,
        .child_tid = a.child_tid,
        .tls = a.tls,
        .set_tid = a.set_tid,
        .set_tid_size = a.set_tid_size,
        .cgroup = a.cgroup,
    };
    return do_fork(t, c, &f);
}
