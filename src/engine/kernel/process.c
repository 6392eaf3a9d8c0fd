/*
 * process.c: fork, vfork, clone; arch_prctl and the thread's small change. See process.h.
 *
 * vfork. A child that shares its parent's memory would share the engine with it, so it gets a copy, and the
 * parent waits on a pipe until the child execs or goes. The child then sends what it changed (pagediff); the
 * parent puts it into its own memory as effects of its vfork event. That is what posix_spawn reports a failed
 * exec through.
 *
 *   message: struct changed_range, then its bytes; end of file: the child is gone or has execed
 */
#include "engine/kernel/process.h"

#include <asm/prctl.h>
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/event/session.h"
#include "engine/host/disposition.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/memory.h"
#include "engine/kernel/pagediff.h"
#include "engine/memory/space.h"
#include "engine/translate/cache.h"

struct changed_range {
    uint64_t addr, len;
};

static int vfork_pipe = -1; /* handle: this process is a vfork child whose parent waits */
static bool published;

bool process_published(void)
{
    bool was = published;
    published = false;
    return was;
}

void process_has_published(void)
{
    published = true;
}

/* ---- vfork ---- */

static void write_all(int fd, const void *bytes, uint64_t n)
{
    for (const uint8_t *p = bytes; n;) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* the parent is gone: nobody wants it */
        p += done;
        n -= (uint64_t)done;
    }
}

static bool read_all(int fd, void *bytes, uint64_t n)
{
    for (uint8_t *p = bytes; n;) {
        ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        p += done;
        n -= (uint64_t)done;
    }
    return true;
}

static void send_range(void *context, uint64_t addr, uint64_t len)
{
    const struct changed_range r = {addr, len};
    const int *fd = context;
    write_all(*fd, &r, sizeof r);
    write_all(*fd, (const void *)addr, len);
}

void process_leaving(void)
{
    if (vfork_pipe < 0)
        return;
    int handle = vfork_pipe, fd = hostfd(handle);
    vfork_pipe = -1;
    if (pagediff_changed(&guest_space, send_range, &fd))
        event_note("a vfork child's changes to its parent's memory could not be found");
    hostfd_drop(handle);
}

/* Takes over one page-multiple of the child's memory: only what differs becomes an effect. */
static void take_page(struct task *t, uint64_t addr, const uint8_t *bytes)
{
    const struct vma *v = space_find(&guest_space, addr);
    if (!v || !(v->prot & 2))
        return;
    const uint8_t *mine = (const uint8_t *)addr;
    for (uint64_t i = 0; i < PAGE_SIZE;) {
        if (mine[i] == bytes[i]) {
            i++;
            continue;
        }
        uint64_t end = i + 1, same = 0;
        for (uint64_t j = end; j < PAGE_SIZE && same < 32; j++)
            if (mine[j] == bytes[j]) {
                same++;
            } else {
                same = 0;
                end = j + 1;
            }
        memcpy((uint8_t *)addr + i, bytes + i, end - i);
        effect_add(t, addr + i, end - i);
        i = end;
    }
}

static void wait_for_child(struct task *t, int fd)
{
    struct changed_range r;
    static uint8_t page[4096];
    while (read_all(fd, &r, sizeof r))
        for (uint64_t done = 0; done < r.len; done += PAGE_SIZE) {
            if (!read_all(fd, page, PAGE_SIZE))
                return;
            take_page(t, r.addr + done, page);
        }
}

/* ---- fork ---- */

struct fork_args {
    uint64_t flags, stack, parent_tid, child_tid, tls, pidfd, exit_signal;
};

static void refuse_threads(const struct fork_args *f)
{
    if (f->flags & CLONE_THREAD)
        event_unsupported("thread creation (clone with CLONE_THREAD): programs with several threads cannot "
                          "be recorded yet");
    if ((f->flags & CLONE_VM) && !(f->flags & CLONE_VFORK))
        event_unsupported("clone with CLONE_VM but without CLONE_VFORK: processes that share their memory "
                          "cannot be recorded yet");
}

/* What the kernel is asked for: a process with a copy of the memory on the same (host) stack. */
static int64_t kernel_fork(const struct fork_args *f)
{
    const uint64_t not_passed = CLONE_VM | CLONE_VFORK | CLONE_SIGHAND | CLONE_SETTLS | CLONE_FILES;
    struct clone_args args = {
        .flags = f->flags & ~not_passed,
        .pidfd = f->pidfd,
        .child_tid = f->child_tid,
        .parent_tid = f->parent_tid,
        .exit_signal = f->exit_signal,
    };
    return raw2(SYS_clone3, &args, CLONE_ARGS_SIZE_VER0);
}

static void become_child(struct task *t, const struct fork_args *f, uint32_t number, uint64_t parent_event,
                         uint32_t parent)
{
    t->tid = (int)raw0(SYS_gettid);
    t->effects.count = 0;
    t->maps_used = t->maps_count = 0;
    t->pending = t->held = 0; /* a signal that waits is the parent's */
    t->temp_mask_set = false;
    session_leave_ring();
    session_arm_lifeline();
    session_open_ring(number);
    session_publish_space(parent, parent_event, SPACE_FORK, guest_space.exe, NULL);
    t->regs.gpr[GPR_RAX] = 0;
    t->regs.gpr[GPR_RCX] = t->regs.rip;
    t->regs.gpr[GPR_R11] = t->regs.rflags;
    if (f->stack)
        t->regs.gpr[GPR_RSP] = f->stack;
    if (f->flags & CLONE_SETTLS)
        t->regs.fs_base = f->tls;
    if (f->flags & CLONE_CHILD_SETTID)
        effect_add(t, f->child_tid, 4);
    memory_forked(t);
    struct trace_ev_start own = {.regs = t->regs, .brk = guest_space.brk};
    struct event_head head = {EV_START, 0,         0, t->regs.rip, 0, regs_hash(&t->regs, t->regs.rip),
                              &own,     sizeof own};
    task_reset_ticks(t);
    event_publish(t, &head);
    LOG(process, "space %u: child of space %u", number, parent);
}

static int64_t fork_within_limits(struct task *t, struct sys_call *c, const struct fork_args *f)
{
    refuse_threads(f);
    if (space_shares_memory(&guest_space) && !(f->flags & CLONE_VFORK))
        event_note("a forked process shares writable memory with its parent: what one writes there the "
                   "other's replay may not see");
    bool waits = f->flags & CLONE_VFORK;
    if (vfork_pipe >= 0)
        event_note("a vfork child forked before it executed a program: memory it had changed before may not "
                   "reach its parent");
    int pair[2];
    if (waits && pipe2(pair, O_CLOEXEC))
        return -errno;
    uint32_t parent = engine.space_number, number = session_new_space();
    uint64_t parent_event = engine.ring->events + 1;
    uint32_t hash = engine.ring->call.hash;
    /* a signal of the child's must not find it half born, nor one of ours find two of us */
    uint64_t all = ~0ull, mask;
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8);
    int64_t pid = kernel_fork(f);
    if (pid == 0) {
        hostfd_drop(vfork_pipe); /* our parent's own wait is not ours */
        vfork_pipe = -1;
        if (waits) {
            close(pair[0]);
            vfork_pipe = hostfd_keep(pair[1]);
        }
        become_child(t, f, number, parent_event, parent);
        disposition_mask(t->blocked);
        published = true;
        return 0;
    }
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
    if (waits) {
        close(pair[1]);
        if (pid > 0)
            wait_for_child(t, pair[0]);
        close(pair[0]);
    }
    if (pid < 0)
        return pid;
    if (f->flags & CLONE_PARENT_SETTID)
        effect_add(t, f->parent_tid, 4);
    if (f->flags & CLONE_PIDFD)
        effect_add(t, f->pidfd, 4);
    const struct trace_ev_fork own = {.child_space = number};
    struct event_head head = {EV_FORK, 0, (uint16_t)c->nr, t->call_pc, pid, hash, &own, sizeof own};
    event_publish(t, &head);
    published = true;
    return pid;
}

static int64_t do_fork(struct task *t, struct sys_call *c, const struct fork_args *f)
{
    struct rlimit saved;
    hostfd_limit_raise(&saved);
    int64_t result = fork_within_limits(t, c, f);
    hostfd_limit_restore(&saved);
    return result;
}

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
        .stack = c->args[1],
        .parent_tid = c->args[2],
        .pidfd = c->args[2],
        .child_tid = c->args[3],
        .tls = c->args[4],
        .exit_signal = c->args[0] & 0xff,
    };
    return do_fork(t, c, &f);
}

int64_t both_clone3(struct task *t, struct sys_call *c)
{
    struct clone_args a = {0};
    uint64_t size = c->args[1];
    if (size < CLONE_ARGS_SIZE_VER0 || size > PAGE_SIZE)
        return size > PAGE_SIZE ? -E2BIG : -EINVAL;
    if (guest_read(&a, c->args[0], size < sizeof a ? size : sizeof a))
        return -EFAULT;
    if (a.set_tid_size || a.cgroup)
        event_unsupported("clone3 with chosen thread ids or a control group");
    const struct fork_args f = {
        .flags = a.flags,
        .stack = a.stack ? a.stack + a.stack_size : 0,
        .parent_tid = a.parent_tid,
        .pidfd = a.pidfd,
        .child_tid = a.child_tid,
        .tls = a.tls,
        .exit_signal = a.exit_signal,
    };
    return do_fork(t, c, &f);
}

/* ---- exit ---- */

static _Noreturn void do_exit(struct task *t, struct sys_call *c)
{
    int status = (int)c->args[0] & 0xff;
    struct event_head head = {EV_EXIT, 0, (uint16_t)c->nr, t->call_pc, status, engine.ring->call.hash,
                              NULL,    0};
    event_publish(t, &head);
    LOG(xlate, "%lu blocks of %lu instructions translated, %lu links, %lu link exits, %lu indirect misses",
        cache_stats.blocks, cache_stats.insns, cache_stats.links, cache_stats.exits, cache_stats.misses);
    event_end(END_EXIT, status, NULL);
    process_leaving();
    for (;;)
        raw1(SYS_exit_group, c->args[0]);
}

int64_t both_exit(struct task *t, struct sys_call *c)
{
    do_exit(t, c);
}

int64_t both_exit_group(struct task *t, struct sys_call *c)
{
    do_exit(t, c);
}

/* ---- the thread ---- */

int64_t both_arch_prctl(struct task *t, struct sys_call *c)
{
    const uint64_t user_end = 1ull << 47;
    switch (c->args[0]) {
    case ARCH_SET_FS:
        if (c->args[1] >= user_end)
            return -EPERM;
        t->regs.fs_base = c->args[1];
        return 0;
    case ARCH_GET_FS:
        if (guest_write(c->args[1], &t->regs.fs_base, 8))
            return -EFAULT;
        effect_add(t, c->args[1], 8);
        return 0;
    case ARCH_SET_GS:
        if (c->args[1])
            event_unsupported("a gs base of the program's own (arch_prctl ARCH_SET_GS)");
        return 0;
    case ARCH_GET_GS:
        if (guest_write(c->args[1], &(uint64_t){0}, 8))
            return -EFAULT;
        effect_add(t, c->args[1], 8);
        return 0;
    default:
        return -EINVAL;
    }
}

int64_t rec_set_tid_address(struct task *t, struct sys_call *c)
{
    return task_syscall(t, c);
}

int64_t rec_set_robust_list(struct task *t, struct sys_call *c)
{
    return task_syscall(t, c);
}
