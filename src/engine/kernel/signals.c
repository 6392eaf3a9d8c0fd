/*
 * signals.c: see signals.h. What the kernel's signal.c does, in its order: which disposition, which mask,
 * what is forced.
 */
#include "engine/kernel/signals.h"

#include <errno.h>
#include <linux/audit.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/frame.h"
#include "engine/kernel/vfork.h"

enum {
    SIGNALS = 64,
    TRAP_PROTECTION = 13,
    TRAP_PAGE_FAULT = 14,
    RESUME_FLAG = 0x10000,
    USER_DISPATCH = 2 /* of SIGSYS */
};

/* Flags that the kernel keeps: the children's, SIGINFO, EXPOSE_TAGBITS, RESTORER, ONSTACK, RESTART, NODEFER,
 * RESETHAND. */
#define FLAGS_KEPT 0xdc000807u

static struct signal_action actions[SIGNALS + 1];

static uint64_t bit(int signo)
{
    return 1ull << (signo - 1);
}

#define NEVER_BLOCKED (bit(SIGKILL) | bit(SIGSTOP))

static bool dies_by_default(int signo)
{
    switch (signo) {
    case SIGCHLD:
    case SIGCONT:
    case SIGURG:
    case SIGWINCH:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGKILL:
        return false;
    default:
        return true;
    }
}

/* The kernel keeps signals with the default action from the first process of a pid namespace. */
static bool first_process;

/* Makes the kernel's disposition follow the guest's. */
static void install(struct task *t, int signo)
{
    const struct signal_action *a = &actions[signo];
    t->ignored &= ~bit(signo);
    if (a->handler == 1) {
        t->ignored |= bit(signo) & SYNC_SIGNALS;
        task_forget_held(t, bit(signo));
    }
    if (a->handler == 1)
        disposition_ignore(signo, a->flags);
    else if (a->handler == 0 && (first_process || !dies_by_default(signo)))
        disposition_default(signo, a->flags);
    else
        disposition_catch(signo, a->handler == 0 || (a->flags & SA_RESTART), a->flags);
}

/* ---- calls ---- */

int64_t rec_rt_sigaction(struct task *t, struct sys_call *c)
{
    uint64_t signo = (uint32_t)c->args[0];
    struct signal_action new, old;
    if (c->args[3] != 8)
        return -EINVAL;
    if (c->args[1] && guest_read(&new, c->args[1], sizeof new))
        return -EFAULT;
    if (signo < 1 || signo > SIGNALS || (c->args[1] && (NEVER_BLOCKED & bit((int)signo))))
        return -EINVAL;
    old = actions[signo];
    if (c->args[1]) {
        new.flags &= FLAGS_KEPT;
        new.mask &= ~NEVER_BLOCKED;
        actions[signo] = new;
        install(t, (int)signo);
    }
    if (c->args[2]) {
        if (guest_write(c->args[2], &old, sizeof old))
            return -EFAULT;
        effect_add(t, c->args[2], sizeof old);
    }
    return 0;
}

static void block_sync(struct task *t)
{
    const uint64_t sync = SYNC_SIGNALS;
    if (!task_holds(t))
        return;
    raw4(SYS_rt_sigprocmask, SIG_BLOCK, &sync, 0, 8);
    task_give_back_held(t);
}

/*
 * The guest's mask becomes `blocked`. What waits in the kernel and may come now comes in the kernel's order,
 * the first to t->queued. With one queued already, all are blocked until it was delivered.
 */
static void set_blocked(struct task *t, uint64_t blocked)
{
    t->blocked = blocked & ~NEVER_BLOCKED;
    if (engine.mode != ENGINE_RECORD || t->pending)
        return;
    block_sync(t);
    disposition_mask(t->blocked);
}

/*
 * The same for a call of the guest's, at one instant: false when a signal came before, which is to be
 * delivered with the mask as it was; then nothing has changed.
 */
static bool change_blocked(struct task *t, uint64_t blocked)
{
    const uint64_t old = t->blocked, mask = blocked & ~NEVER_BLOCKED & ~SYNC_SIGNALS, sync = SYNC_SIGNALS;
    struct sys_call set = {.nr = SYS_rt_sigprocmask, .args = {SIG_SETMASK, (uint64_t)&mask, 0, 8}};
    t->blocked = blocked & ~NEVER_BLOCKED;
    if (engine.mode != ENGINE_RECORD)
        return true;
    block_sync(t);
    task_syscall_enter(t, &set);
    if (!set.restart)
        return true;
    t->blocked = old;
    raw4(SYS_rt_sigprocmask, SIG_UNBLOCK, &sync, 0, 8);
    return false;
}

int64_t rec_rt_sigprocmask(struct task *t, struct sys_call *c)
{
    uint64_t set, old = t->blocked;
    if (c->args[3] != 8)
        return -EINVAL;
    if (c->args[1]) {
        if (guest_read(&set, c->args[1], 8))
            return -EFAULT;
        switch ((int)c->args[0]) {
        case SIG_BLOCK:
            set |= old;
            break;
        case SIG_UNBLOCK:
            set = old & ~set;
            break;
        case SIG_SETMASK:
            break;
        default:
            return -EINVAL;
        }
        if (!change_blocked(t, set)) {
            c->restart = true;
            return -EINTR;
        }
    }
    if (c->args[2]) {
        if (guest_write(c->args[2], &old, 8))
            return -EFAULT;
        effect_add(t, c->args[2], 8);
    }
    return 0;
}

int64_t rec_rt_sigsuspend(struct task *t, struct sys_call *c)
{
    return task_syscall(t, c);
}

/* ---- delivery ---- */

struct delivery {
    uint16_t flags; /* of the event */
    uint64_t pc;    /* where the guest was, and its registers there: the event's */
    uint32_t hash;
    uint64_t mask;  /* in force; the handler's mask is built on it */
    uint64_t saved; /* what sigreturn is to bring back */
    bool forced;    /* not to be blocked or ignored */
};

static struct delivery delivery_here(const struct task *t, uint16_t flags)
{
    const uint64_t pc = t->regs.rip;
    return (struct delivery){flags, pc, regs_hash(&t->regs, pc), t->blocked, t->blocked, false};
}

static void publish_signal(struct task *t, const struct delivery *d, uint16_t flags, int signo,
                           const uint8_t siginfo[128])
{
    struct trace_ev_signal own = {.regs = t->regs, .blocked = t->blocked};
    memcpy(own.siginfo, siginfo, sizeof own.siginfo);
    struct event_head head = {EV_SIGNAL, (uint16_t)(d->flags | flags), 0, d->pc, signo, d->hash, &own,
                              sizeof own};
    event_publish(t, &head);
}

static bool stops_by_default(int signo)
{
    return signo == SIGTSTP || signo == SIGTTIN || signo == SIGTTOU;
}

/*
 * The guest does not have the signal after all: nothing happened. The budget that was spent for it is given
 * back as a replay, which was not preempted here, has it.
 */
static void drop(struct task *t, int signo, const struct delivery *d)
{
    bool blocked = d->mask & bit(signo);
    t->budget = BUDGET_FULL - (int64_t)task_ticks(t);
    t->tick_base = BUDGET_FULL;
    set_blocked(t, d->saved);
    if (!blocked && actions[signo].handler == 0 && stops_by_default(signo))
        raw2(SYS_kill, raw0(SYS_getpid), signo);
}

static void die_of(struct task *t, const struct delivery *d, const uint8_t siginfo[128])
{
    int signo;
    memcpy(&signo, siginfo, 4);
    publish_signal(t, d, EVF_FATAL, signo, siginfo);
    signals_die(signo);
}

static bool deliver(struct task *t, const uint8_t siginfo[128], const struct delivery *d);

/* What the kernel forces on who cannot take a signal or returns badly from one. */
static bool force_segv(struct task *t, const struct delivery *d)
{
    siginfo_t info;
    struct delivery forced = *d;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SI_KERNEL;
    forced.forced = true;
    return deliver(t, (const uint8_t *)&info, &forced);
}

static bool fatal(const struct signal_action *a, int signo, const struct delivery *d)
{
    if (d->forced)
        return a->handler <= 1 || (d->mask & bit(signo));
    return a->handler == 0 && dies_by_default(signo);
}

/* Delivers to the handler or dies. False when there was nothing to do after all, and there is no event. */
static bool deliver(struct task *t, const uint8_t siginfo[128], const struct delivery *d)
{
    int signo;
    memcpy(&signo, siginfo, 4);
    struct signal_action *a = &actions[signo], action = *a;
    LOG(signal, "signal %d at %lx, handler %lx, flags %x, ticks %lu", signo, (unsigned long)d->pc,
        (unsigned long)a->handler, d->flags, (unsigned long)task_ticks(t));
    if (fatal(a, signo, d))
        die_of(t, d, siginfo);
    if (a->handler <= 1) {
        drop(t, signo, d);
        return false;
    }
    if (action.flags & SA_RESETHAND) {
        a->handler = 0;
        install(t, signo);
    }
    if (!frame_push(t, signo, &action, siginfo, d->saved)) {
        if (signo == SIGSEGV)
            a->handler = 0; /* there is nothing left to force but death */
        return force_segv(t, d);
    }
    t->blocked = (d->mask | action.mask | (action.flags & SA_NODEFER ? 0 : bit(signo))) & ~NEVER_BLOCKED;
    publish_signal(t, d, 0, signo, siginfo);
    set_blocked(t, t->blocked);
    return true;
}

/*
 * Gives a signal back to the kernel. It was taken first, so the queued ones of its number that wait there have to come behind
 * it again. The kernel blocks them all here.
 */
static void give_back(struct task *t, const uint8_t siginfo[128])
{
    enum { REALTIME = 32, BATCH = 64 };
    static uint8_t later[BATCH][128];
    const struct timespec none = {0, 0};
    int signo, n = 0;
    memcpy(&signo, siginfo, 4);
    const uint64_t set = bit(signo);
    while (signo >= REALTIME && n < BATCH && raw4(SYS_rt_sigtimedwait, &set, later[n], &none, 8) == signo)
        n++;
    if (n == BATCH)
        event_note("very many signals %d were queued: their order may have changed", signo);
    task_requeue(t, siginfo);
    for (int i = 0; i < n; i++)
        task_requeue(t, later[i]);
}

/* Delivers t->queued. False: there is no event. */
static bool deliver_queued(struct task *t, uint16_t flags)
{
    const struct queued_signal q = t->queued;
    struct delivery d = delivery_here(t, flags);
    int signo;
    memcpy(&signo, q.siginfo, 4);
    t->pending = 0; /* the kernel's mask is still full: no second one comes before set_blocked */
    if (q.in_call)
        d.mask = t->temp_mask;
    if (d.mask & bit(signo)) { /* the handler of a fault has blocked it since: back to where it waits */
        if (bit(signo) & SYNC_SIGNALS)
            task_hold(t, q.siginfo);
        else
            give_back(t, q.siginfo);
        drop(t, signo, &d);
        return false;
    }
    return deliver(t, q.siginfo, &d);
}

bool signals_queued_by_timer(const struct task *t)
{
    int signo, code;
    memcpy(&signo, t->queued.siginfo, 4);
    memcpy(&code, t->queued.siginfo + 8, 4);
    bool interval = signo == SIGALRM || signo == SIGVTALRM || signo == SIGPROF;
    return code == SI_TIMER || (interval && code == SI_KERNEL);
}

void signals_deliver_queued(struct task *t, uint16_t flags)
{
    uint64_t timers = 0; /* whose signals were delivered here */
    while (t->pending) {
        int signo;
        memcpy(&signo, t->queued.siginfo, 4);
        if (signals_queued_by_timer(t)) {
            if (timers & bit(signo))
                break;
            timers |= bit(signo);
        }
        if (deliver_queued(t, flags))
            flags = EVF_EXIT;
    }
}

/* The processor reports it at the instruction, and sets the resume flag in what it saves; of the others, behind it. */
static bool faulted(uint64_t trap)
{
    enum { DEBUG = 1, BREAKPOINT = 3, OVERFLOW = 4 };
    return trap != DEBUG && trap != BREAKPOINT && trap != OVERFLOW;
}

void signals_deliver_fault(struct task *t)
{
    uint8_t siginfo[128];
    if (t->pending && faulted(t->fault.trap) && deliver_queued(t, EVF_SYNC)) {
        signals_deliver_queued(t, EVF_EXIT);
        return; /* the signal was there first; the instruction faults again when its handler returns */
    }
    struct delivery d = delivery_here(t, EVF_SYNC);
    memcpy(siginfo, t->fault.siginfo, sizeof siginfo);
    t->shown.error = t->fault.error;
    t->shown.trap = t->fault.trap;
    if (t->fault.trap == TRAP_PAGE_FAULT)
        t->shown.cr2 = t->fault.cr2;
    if (faulted(t->fault.trap))
        t->regs.rflags |= RESUME_FLAG;
    d.forced = true;
    deliver(t, siginfo, &d);
    signals_deliver_queued(t, EVF_EXIT);
}

void signals_deliver_protection(struct task *t)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SI_KERNEL;
    memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
    t->fault.trap = TRAP_PROTECTION;
    t->fault.error = 0;
    signals_deliver_fault(t);
}

/* As after a call that returned its own number: SIGSYS, which the program is to answer. */
void signals_deliver_dispatch(struct task *t, enum prctl_dispatch why)
{
    siginfo_t info;
    t->regs.rip = t->call_pc = t->exit_pc - 2;
    struct delivery d = delivery_here(t, EVF_ENTRY);
    d.forced = true;
    t->regs.rip = t->regs.gpr[GPR_RCX] = t->exit_pc;
    t->regs.gpr[GPR_R11] = t->regs.rflags;
    memset(&info, 0, sizeof info);
    info.si_signo = why == DISPATCH_BAD_SELECTOR ? SIGSEGV : SIGSYS;
    info.si_code = SI_KERNEL;
    if (why != DISPATCH_SIGNAL)
        die_of(t, &d, (const uint8_t *)&info);
    info.si_code = USER_DISPATCH;
    info.si_call_addr = (void *)t->exit_pc;
    info.si_syscall = (int)t->regs.gpr[GPR_RAX];
    info.si_arch = AUDIT_ARCH_X86_64;
    deliver(t, (const uint8_t *)&info, &d);
}

int64_t both_rt_sigreturn(struct task *t, struct sys_call *c)
{
    uint64_t mask;
    bool good = frame_mask(t, &mask);
    if (good && !change_blocked(t, mask)) {
        c->restart = true;
        return -EINTR;
    }
    t->regs.gpr[GPR_RCX] = t->regs.rip;
    t->regs.gpr[GPR_R11] = t->regs.rflags;
    t->bad_return = !good || !frame_return(t);
    if (t->bad_return)
        t->regs.gpr[GPR_RAX] = 0;
    return (int64_t)t->regs.gpr[GPR_RAX];
}

void signals_after_return(struct task *t)
{
    if (!t->bad_return)
        return;
    t->bad_return = false;
    const struct delivery d = delivery_here(t, EVF_EXIT);
    force_segv(t, &d);
}

/* ---- life ---- */

void signals_begin(struct task *t)
{
    raw4(SYS_rt_sigprocmask, SIG_BLOCK, 0, &t->blocked, 8);
    for (int signo = 1; signo <= SIGNALS; signo++) {
        struct signal_action a = {0};
        if (signo == SIGKILL || signo == SIGSTOP)
            continue;
        raw4(SYS_rt_sigaction, signo, 0, &a, 8);
        actions[signo] = (struct signal_action){.handler = a.handler == 1};
        install(t, signo);
    }
    disposition_mask(t->blocked);
}

void signals_sets(uint64_t *ignored, uint64_t *caught)
{
    *ignored = *caught = 0;
    for (int signo = 1; signo <= SIGNALS; signo++)
        if (actions[signo].handler)
            *(actions[signo].handler == 1 ? ignored : caught) |= bit(signo);
}

void signals_clear_handlers(struct task *t)
{
    for (int signo = 1; signo <= SIGNALS; signo++) {
        if (actions[signo].handler <= 1 && !actions[signo].flags)
            continue;
        actions[signo] = (struct signal_action){.handler = actions[signo].handler == 1};
        if (signo != SIGKILL && signo != SIGSTOP)
            install(t, signo);
    }
}

void signals_exec(struct task *t)
{
    signals_clear_handlers(t);
    altstack_exec(t);
}

void signals_forked(struct task *t)
{
    if (first_process || raw0(SYS_getpid) != 1)
        return;
    first_process = true;
    for (int signo = 1; signo <= SIGNALS; signo++)
        if (!actions[signo].handler && signo != SIGKILL && signo != SIGSTOP)
            install(t, signo);
}

void signals_die(int signo)
{
    event_end(END_SIGNAL, signo, NULL);
    vfork_leave();
    hostfd_leave();
    const struct rlimit none = {0, 0};
    raw4(SYS_prlimit64, 0, RLIMIT_CORE, &none, 0);
    struct signal_action a = {0};
    raw4(SYS_rt_sigaction, signo, &a, 0, 8);
    raw2(SYS_kill, raw0(SYS_getpid), signo);
    uint64_t others = ~bit(signo);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &others, 0, 8);
    raw2(SYS_kill, raw0(SYS_getpid), SIGKILL);
    for (;;) /* the first process of a pid namespace cannot kill itself */
        raw1(SYS_exit_group, 128 + signo);
}
