/*
 * signals.c: see signals.h. The frame is the kernel's struct rt_sigframe of x86-64:
 *
 *   (higher addresses; at most rsp-128, or the end of the alternate stack)
 *   xsave image, 64-byte aligned: 512 bytes legacy, 64 header, 256 AVX, then FP_XSTATE_MAGIC2
 *   siginfo (128)
 *   ucontext: flags, link, stack (24), sigcontext (256), mask (8)
 *   pretcode                       <- rsp in the handler, 8 below a multiple of 16
 */
#include "engine/kernel/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/raw.h"
#include "engine/kernel/vfork.h"

enum { SIGNALS = 64, REDZONE = 128, XSTATE_SIZE = 512 + 64 + 256, XSTATE_FEATURES = 7 };
enum { MAGIC1 = 0x46505853, MAGIC2 = 0x46505845 };
enum { FLAG_RESTORER = 0x04000000, FLAG_ONSTACK = 0x08000000, STACK_AUTODISARM = (int)(1u << 31) };

struct action { /* the kernel's struct sigaction */
    uint64_t handler, flags, restorer, mask;
};

static struct action actions[SIGNALS + 1];

struct sigcontext_image {
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip, flags;
    uint16_t cs, gs, fs, ss;
    uint64_t error, trap, oldmask, cr2, fpstate, reserved[8];
};

struct frame {
    uint64_t pretcode;
    struct ucontext_image {
        uint64_t flags, link;
        uint64_t stack[3];
        struct sigcontext_image context;
        uint64_t mask;
    } uc;
    uint8_t siginfo[128];
};
_Static_assert(sizeof(struct frame) == 440, "the kernel's rt_sigframe");

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

/* Makes the kernel's disposition follow the guest's. */
static void install(int signo)
{
    const struct action *a = &actions[signo];
    if (a->handler == 1)
        disposition_ignore(signo);
    else if (a->handler == 0 && !dies_by_default(signo))
        disposition_default(signo);
    else
        disposition_catch(signo, a->handler == 0 || (a->flags & SA_RESTART), a->flags);
}

/* ---- calls ---- */

int64_t rec_rt_sigaction(struct task *t, struct sys_call *c)
{
    uint64_t signo = c->args[0];
    struct action new, old;
    if (c->args[3] != 8 || signo < 1 || signo > SIGNALS)
        return -EINVAL;
    if (c->args[1] && guest_read(&new, c->args[1], sizeof new))
        return -EFAULT;
    if (c->args[1] && (signo == SIGKILL || signo == SIGSTOP))
        return -EINVAL;
    old = actions[signo];
    if (c->args[1]) {
        new.mask &= ~NEVER_BLOCKED;
        actions[signo] = new;
        install((int)signo);
    }
    if (c->args[2]) {
        if (guest_write(c->args[2], &old, sizeof old))
            return -EFAULT;
        effect_add(t, c->args[2], sizeof old);
    }
    return 0;
}

static void set_blocked(struct task *t, uint64_t blocked)
{
    t->blocked = blocked & ~NEVER_BLOCKED;
    if (engine.mode != ENGINE_RECORD ||
        t->pending) /* with one queued, the kernel blocks all until it is delivered */
        return;
    disposition_mask(t->blocked);
    while (t->held && !t->pending) { /* came while another one was queued; see on_async */
        int signo = __builtin_ctzll(t->held) + 1;
        t->held &= t->held - 1;
        raw2(SYS_kill, raw0(SYS_getpid), signo);
    }
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
        set_blocked(t, set);
    }
    if (c->args[2]) {
        if (guest_write(c->args[2], &old, 8))
            return -EFAULT;
        effect_add(t, c->args[2], 8);
    }
    return 0;
}

static bool on_altstack(const struct task *t, uint64_t sp)
{
    return !(t->altstack[1] & (uint64_t)(uint32_t)STACK_AUTODISARM) && t->altstack[2] &&
           sp > t->altstack[0] && sp - t->altstack[0] <= t->altstack[2];
}

static uint64_t altstack_flags(const struct task *t, uint64_t sp)
{
    if (!t->altstack[2])
        return SS_DISABLE;
    return (on_altstack(t, sp) ? SS_ONSTACK : 0) | (t->altstack[1] & (uint64_t)(uint32_t)STACK_AUTODISARM);
}

static int64_t set_altstack(struct task *t, const uint64_t new[3], uint64_t sp)
{
    uint32_t flags = (uint32_t) new[1], mode = flags & ~(uint32_t)STACK_AUTODISARM;
    if (on_altstack(t, sp))
        return -EPERM;
    if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
        return -EINVAL;
    if (mode != SS_DISABLE && new[2] < 2048)
        return -ENOMEM;
    t->altstack[0] = mode == SS_DISABLE ? 0 : new[0];
    t->altstack[1] = flags;
    t->altstack[2] = mode == SS_DISABLE ? 0 : new[2];
    return 0;
}

int64_t rec_sigaltstack(struct task *t, struct sys_call *c)
{
    uint64_t sp = t->regs.gpr[GPR_RSP], new[3];
    uint64_t old[3] = {t->altstack[0], altstack_flags(t, sp), t->altstack[2]};
    if (c->args[0]) {
        if (guest_read(new, c->args[0], sizeof new))
            return -EFAULT;
        int64_t error = set_altstack(t, new, sp);
        if (error)
            return error;
    }
    if (c->args[1]) {
        if (guest_write(c->args[1], old, sizeof old))
            return -EFAULT;
        effect_add(t, c->args[1], sizeof old);
    }
    return 0;
}

int64_t rec_rt_sigsuspend(struct task *t, struct sys_call *c)
{
    return task_syscall(t, c);
}

void signals_note_temp_mask(struct task *t, const struct sys_call *c)
{
    uint64_t at = 0, pair[2];
    t->temp_mask_set = false;
    switch (c->nr) {
    case SYS_rt_sigsuspend:
        at = c->args[0];
        break;
    case SYS_ppoll:
        at = c->args[3];
        break;
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
        at = c->args[4];
        break;
    case SYS_pselect6:
        if (c->args[5] && !guest_read(pair, c->args[5], sizeof pair))
            at = pair[0];
        break;
    }
    if (at && !guest_read(&t->temp_mask, at, 8)) {
        t->temp_mask &= ~NEVER_BLOCKED;
        t->temp_mask_set = true;
    }
}

/* ---- frames ---- */

static void context_from_regs(struct sigcontext_image *s, const struct trace_regs *r)
{
    const uint64_t *g = r->gpr;
    *s = (struct sigcontext_image){
        .r8 = g[8],
        .r9 = g[9],
        .r10 = g[10],
        .r11 = g[11],
        .r12 = g[12],
        .r13 = g[13],
        .r14 = g[14],
        .r15 = g[15],
        .di = g[GPR_RDI],
        .si = g[GPR_RSI],
        .bp = g[GPR_RBP],
        .bx = g[GPR_RBX],
        .dx = g[GPR_RDX],
        .ax = g[GPR_RAX],
        .cx = g[GPR_RCX],
        .sp = g[GPR_RSP],
        .ip = r->rip,
        .flags = r->rflags,
        .cs = 0x33,
        .ss = 0x2b,
    };
}

static void regs_from_context(struct trace_regs *r, const struct sigcontext_image *s)
{
    const uint64_t user_flags = 0x50dd5; /* what sigreturn may set: arithmetic, DF, TF, RF, AC */
    uint64_t *g = r->gpr;
    const uint64_t values[16] = {s->ax, s->cx, s->dx,  s->bx,  s->sp,  s->bp,  s->si,  s->di,
                                 s->r8, s->r9, s->r10, s->r11, s->r12, s->r13, s->r14, s->r15};
    memcpy(g, values, sizeof values);
    r->rip = s->ip;
    r->rflags = (r->rflags & ~user_flags) | (s->flags & user_flags & ~0x100ull);
}

static uint64_t frame_stack(const struct task *t, const struct action *a)
{
    uint64_t sp = t->regs.gpr[GPR_RSP];
    if ((a->flags & FLAG_ONSTACK) && t->altstack[2] && !on_altstack(t, sp))
        return t->altstack[0] + t->altstack[2];
    return sp - REDZONE;
}

/* The task's vector state as a frame shows it; t->xsave is valid here. */
static int put_vectors(const struct task *t, uint64_t at)
{
    uint8_t image[XSTATE_SIZE + 4];
    memcpy(image, t->xsave, XSTATE_SIZE);
    uint64_t features;
    memcpy(&features, image + 512, 8);
    features &= XSTATE_FEATURES;
    memset(image + 512, 0, 64);
    memcpy(image + 512, &features, 8);
    const struct {
        uint32_t magic, extended;
        uint64_t features;
        uint32_t size, padding[7];
    } software = {MAGIC1, XSTATE_SIZE + 4, XSTATE_FEATURES, XSTATE_SIZE, {0}};
    memcpy(image + 464, &software, sizeof software);
    const uint32_t end = MAGIC2;
    memcpy(image + XSTATE_SIZE, &end, 4);
    return guest_write(at, image, sizeof image);
}

static int64_t get_vectors(struct task *t, uint64_t at)
{
    uint8_t image[XSTATE_SIZE];
    uint32_t magic;
    if (!at) {
        task_initial_vectors(t);
        return 0;
    }
    if (guest_read(image, at, 512))
        return -EFAULT;
    memcpy(&magic, image + 464, 4);
    bool extended = magic == MAGIC1 && !guest_read(image, at, sizeof image);
    uint64_t features = 3;
    if (extended) {
        memcpy(&features, image + 512, 8);
        features &= XSTATE_FEATURES;
        memcpy(t->xsave + 576, image + 576, 256);
    }
    memcpy(t->xsave, image, 512);
    memset(t->xsave + 464, 0, 48);
    memset(t->xsave + 512, 0, 64);
    memcpy(t->xsave + 512, &features, 8);
    uint32_t mxcsr;
    memcpy(&mxcsr, t->xsave + 24, 4);
    mxcsr &= 0xffff; /* reserved bits would fault when restored */
    memcpy(t->xsave + 24, &mxcsr, 4);
    return 0;
}

/* Builds the frame and enters the handler. False when the stack cannot take it. */
static bool push_frame(struct task *t, int signo, const struct action *a, const uint8_t siginfo[128],
                       uint64_t saved_mask, bool fault)
{
    uint64_t sp = frame_stack(t, a);
    uint64_t vectors = (sp - (XSTATE_SIZE + 4)) & ~63ull;
    uint64_t at = ((vectors - sizeof(struct frame)) & ~15ull) - 8;
    struct frame f = {.pretcode = a->restorer, .uc.flags = 7, .uc.mask = saved_mask};
    memcpy(f.siginfo, siginfo, sizeof f.siginfo);
    f.uc.stack[0] = t->altstack[0];
    f.uc.stack[1] = altstack_flags(t, t->regs.gpr[GPR_RSP]);
    f.uc.stack[2] = t->altstack[2];
    context_from_regs(&f.uc.context, &t->regs);
    if (fault) {
        f.uc.context.error = t->fault.error;
        f.uc.context.trap = t->fault.trap;
        f.uc.context.cr2 = t->fault.cr2;
    }
    f.uc.context.oldmask = saved_mask;
    f.uc.context.fpstate = vectors;
    if (put_vectors(t, vectors) || guest_write(at, &f, sizeof f))
        return false;
    effect_add(t, at, sizeof f);
    effect_add(t, vectors, XSTATE_SIZE + 4);
    if (t->altstack[1] & (uint64_t)(uint32_t)STACK_AUTODISARM)
        memset(t->altstack, 0, sizeof t->altstack);
    task_initial_vectors(t);
    uint64_t *g = t->regs.gpr;
    g[GPR_RDI] = (uint64_t)signo;
    g[GPR_RSI] = at + offsetof(struct frame, siginfo);
    g[GPR_RDX] = at + offsetof(struct frame, uc);
    g[GPR_RAX] = 0;
    g[GPR_RSP] = at;
    t->regs.rip = a->handler;
    t->regs.rflags &= ~0x10500ull; /* DF, TF, RF */
    return true;
}

static void publish_signal(struct task *t, uint16_t flags, int signo, const uint8_t siginfo[128], uint64_t pc,
                           uint32_t hash)
{
    struct trace_ev_signal own = {.regs = t->regs, .blocked = t->blocked};
    memcpy(own.siginfo, siginfo, sizeof own.siginfo);
    struct event_head head = {EV_SIGNAL, flags, 0, pc, signo, hash, &own, sizeof own};
    event_publish(t, &head);
}

static bool stops_by_default(int signo)
{
    return signo == SIGTSTP || signo == SIGTTIN || signo == SIGTTOU;
}

/*
 * The guest stopped handling the signal after it was queued (exec, sigaction), and would not die of it:
 * nothing happened. The budget that was spent for it is given back as a replay, which was not preempted here,
 * has it.
 */
static void drop(struct task *t, int signo, uint64_t saved_mask)
{
    bool blocked = saved_mask & bit(signo);
    t->budget = BUDGET_FULL - (int64_t)task_ticks(t);
    t->tick_base = BUDGET_FULL;
    set_blocked(t, saved_mask);
    if (!blocked && actions[signo].handler == 0 && stops_by_default(signo))
        raw2(SYS_kill, raw0(SYS_getpid), signo);
}

/* Delivers to the handler or dies. A fault that is blocked or ignored means the default action. */
static void deliver(struct task *t, const uint8_t siginfo[128], uint64_t saved_mask, uint16_t flags)
{
    int signo;
    memcpy(&signo, siginfo, 4);
    struct action *a = &actions[signo];
    bool fault = flags & EVF_SYNC;
    uint64_t pc = t->regs.rip, base = t->temp_mask_set ? t->temp_mask : saved_mask;
    uint32_t hash = regs_hash(&t->regs, pc);
    LOG(signal, "signal %d at %lx, handler %lx, flags %x, ticks %lu", signo, (unsigned long)pc,
        (unsigned long)a->handler, flags, (unsigned long)task_ticks(t));
    t->temp_mask_set = false;
    bool dies =
        fault ? a->handler <= 1 || (t->blocked & bit(signo)) : a->handler == 0 && dies_by_default(signo);
    struct action action = *a;
    if (!dies && a->handler <= 1) {
        drop(t, signo, saved_mask);
        return;
    }
    if (!dies && !push_frame(t, signo, &action, siginfo, saved_mask, fault)) {
        t->effects.count = 0;
        signo = SIGSEGV;
        dies = true;
    }
    if (dies) {
        publish_signal(t, flags | EVF_FATAL, signo, siginfo, pc, hash);
        signals_die(signo);
    }
    if (action.flags & SA_RESETHAND) {
        a->handler = 0;
        install(signo);
    }
    t->blocked = (base | action.mask | (action.flags & SA_NODEFER ? 0 : bit(signo))) & ~NEVER_BLOCKED;
    publish_signal(t, flags, signo, siginfo, pc, hash);
    set_blocked(t, t->blocked);
}

void signals_deliver_queued(struct task *t, uint16_t flags)
{
    struct queued_signal q = t->queued;
    int signo;
    memcpy(&signo, q.siginfo, 4);
    t->pending = 0; /* the kernel's mask is still full: no second one comes before set_blocked */
    uint64_t effective = t->temp_mask_set ? t->temp_mask : t->blocked;
    if (effective & ~SYNC_SIGNALS & bit(signo)) { /* the program has blocked it since: back to the kernel */
        t->temp_mask_set = false;
        raw4(SYS_rt_tgsigqueueinfo, raw0(SYS_getpid), t->tid, signo, q.siginfo);
        drop(t, signo, t->blocked);
        return;
    }
    deliver(t, q.siginfo, t->blocked, flags);
}

bool signals_queued_by_timer(const struct task *t)
{
    int signo, code;
    memcpy(&signo, t->queued.siginfo, 4);
    memcpy(&code, t->queued.siginfo + 8, 4);
    bool interval = signo == SIGALRM || signo == SIGVTALRM || signo == SIGPROF;
    return code == SI_TIMER || (interval && code == SI_KERNEL);
}

void signals_deliver_fault(struct task *t)
{
    uint8_t siginfo[128];
    memcpy(siginfo, t->fault.siginfo, sizeof siginfo);
    t->temp_mask_set = false;
    deliver(t, siginfo, t->blocked, EVF_SYNC);
}

int64_t both_rt_sigreturn(struct task *t, struct sys_call *c)
{
    struct ucontext_image uc;
    if (guest_read(&uc, t->regs.gpr[GPR_RSP], sizeof uc) || get_vectors(t, uc.context.fpstate)) {
        if (engine.mode == ENGINE_RECORD)
            signals_die(SIGSEGV);
        return -EFAULT;
    }
    regs_from_context(&t->regs, &uc.context);
    set_altstack(t, uc.stack, t->regs.gpr[GPR_RSP]);
    set_blocked(t, uc.mask);
    return (int64_t)t->regs.gpr[GPR_RAX];
}

/* ---- life ---- */

void signals_begin(struct task *t)
{
    raw4(SYS_rt_sigprocmask, SIG_BLOCK, 0, &t->blocked, 8);
    for (int signo = 1; signo <= SIGNALS; signo++) {
        struct action a = {0};
        if (signo == SIGKILL || signo == SIGSTOP)
            continue;
        raw4(SYS_rt_sigaction, signo, 0, &a, 8);
        actions[signo] = (struct action){.handler = a.handler == 1};
        install(signo);
    }
    disposition_mask(t->blocked);
}

void signals_clear_handlers(void)
{
    for (int signo = 1; signo <= SIGNALS; signo++) {
        if (actions[signo].handler <= 1 && !actions[signo].flags)
            continue;
        actions[signo] = (struct action){.handler = actions[signo].handler == 1};
        if (signo != SIGKILL && signo != SIGSTOP)
            install(signo);
    }
}

void signals_exec(struct task *t)
{
    signals_clear_handlers();
    memset(t->altstack, 0, sizeof t->altstack);
}

void signals_die(int signo)
{
    event_end(END_SIGNAL, signo, NULL);
    vfork_leave();
    const struct rlimit none = {0, 0};
    raw4(SYS_prlimit64, 0, RLIMIT_CORE, &none, 0);
    struct action a = {0};
    raw4(SYS_rt_sigaction, signo, &a, 0, 8);
    raw2(SYS_kill, raw0(SYS_getpid), signo);
    uint64_t others = ~bit(signo);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &others, 0, 8);
    for (;;)
        raw2(SYS_kill, raw0(SYS_getpid), SIGKILL);
}
