/*
 * frame.c: see frame.h. The frame is the kernel's struct rt_sigframe of x86-64:
 *
 *   (higher addresses; at most rsp-128, or the end of the alternate stack)
 *   vector state, 64-byte aligned, as large as the guest's processor makes it (cpu/xsave.h)
 *   siginfo (128), written when the handler asks for it
 *   ucontext: flags, link, stack (24), sigcontext (256), mask (8)
 *   pretcode                       <- rsp in the handler, 8 below a multiple of 16
 */
#include "engine/kernel/frame.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "engine/cpu/registers.h"
#include "engine/cpu/xsave.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/table.h"
#include "engine/translate/translate.h"

enum { REDZONE = 128, ALTSTACK_MIN = 2048 };
enum { UC_FP_XSTATE = 1, UC_SIGCONTEXT_SS = 2, UC_STRICT_RESTORE_SS = 4 };
enum { FLAG_RESTORER = 0x04000000, FLAG_ONSTACK = 0x08000000, TRAP_FLAG = 0x100 };
enum { USER_CS = 0x33, USER_CS_32 = 0x23, USER_SS = 0x2b, TRAP_GP = 13 };
#define AUTODISARM (1u << 31)
#define USER_END   0x7ffffffff000ull

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

/* Selectors that a bad sigreturn has left, for the frame of its SIGSEGV. */
static uint16_t shown_cs = USER_CS, shown_ss = USER_SS;

/* ---- the alternate stack ---- */

static bool autodisarm(const struct task *t)
{
    return (uint32_t)t->altstack[1] & AUTODISARM;
}

/* sp lies on the stack, which grows down to its first byte. */
static bool within_altstack(const struct task *t, uint64_t sp)
{
    return sp > t->altstack[0] && sp - t->altstack[0] <= t->altstack[2];
}

/* One that disarms itself counts as left. */
static bool on_altstack(const struct task *t, uint64_t sp)
{
    return !autodisarm(t) && within_altstack(t, sp);
}

void altstack_exec(struct task *t)
{
    t->altstack[0] = t->altstack[2] = 0; /* its flags stay as they were */
}

static void disarm(struct task *t)
{
    t->altstack[0] = t->altstack[2] = 0;
    t->altstack[1] = SS_DISABLE;
}

static int64_t set_altstack(struct task *t, const uint64_t new[3], uint64_t sp)
{
    uint32_t flags = (uint32_t) new[1], mode = flags & ~AUTODISARM;
    bool disable = mode == SS_DISABLE;
    if (on_altstack(t, sp))
        return -EPERM;
    if (!disable && mode != SS_ONSTACK && mode != 0)
        return -EINVAL;
    if (t->altstack[0] == new[0] && (uint32_t)t->altstack[1] == flags && t->altstack[2] == new[2])
        return 0;
    if (!disable && new[2] < ALTSTACK_MIN)
        return -ENOMEM;
    t->altstack[0] = disable ? 0 : new[0];
    t->altstack[1] = flags;
    t->altstack[2] = disable ? 0 : new[2];
    return 0;
}

static uint64_t altstack_flags(const struct task *t, uint64_t sp)
{
    uint64_t mode = !t->altstack[2] ? SS_DISABLE : on_altstack(t, sp) ? SS_ONSTACK : 0;
    return mode | (autodisarm(t) ? AUTODISARM : 0);
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

/* ---- registers ---- */

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
        .cs = shown_cs,
        .ss = shown_ss,
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
    r->rflags = (r->rflags & ~user_flags) | (s->flags & user_flags & ~(uint64_t)TRAP_FLAG);
}

/* ---- vector state ---- */

static struct xsave_state vectors_of(struct task *t)
{
    return (struct xsave_state){t->xsave, &engine.host.layout};
}

static uint64_t vectors_size(void)
{
    return xsave_frame_size(&engine.cpu);
}

/* The task's vector state as a frame shows it; t->xsave is valid here. */
static int put_vectors(struct task *t, uint64_t at)
{
    static struct xsave_image image;
    struct xsave_state state = vectors_of(t);
    struct x87_pointers pointers = translate_x87_pointers(t);
    xsave_frame_store(&engine.cpu, &state, &pointers, &image);
    return guest_write(at, image.bytes, vectors_size());
}

/* False as the processor or the kernel refuses the image. */
static bool get_vectors(struct task *t, uint64_t at)
{
    static struct xsave_image image;
    struct xsave_state state = vectors_of(t);
    uint32_t end, size = XSAVE_LEGACY;
    if (!at) {
        xsave_initial(&state);
        return true;
    }
    if (at >= USER_END || guest_read(image.bytes, at, XSAVE_LEGACY))
        return false;
    uint32_t whole = xsave_frame_extended(&engine.cpu, image.bytes);
    if (whole && guest_read(&end, at + whole, sizeof end))
        return false;
    if (whole && end == XSAVE_MAGIC2)
        size = whole;
    if (at % (size == XSAVE_LEGACY ? 16 : 64) || guest_read(image.bytes, at, size))
        return false;
    return xsave_frame_load(&engine.cpu, &state, size, &image);
}

/* ---- into the handler ---- */

struct frame_place {
    uint64_t at, vectors;
};

/* Where the frame goes. False: it would overflow the alternate stack. */
static bool place(const struct task *t, const struct signal_action *a, struct frame_place *p)
{
    uint64_t sp = t->regs.gpr[GPR_RSP];
    bool nested = on_altstack(t, sp);
    sp -= REDZONE;
    bool entering = (a->flags & FLAG_ONSTACK) && t->altstack[2] && !on_altstack(t, sp);
    if (entering)
        sp = t->altstack[0] + t->altstack[2];
    p->vectors = (sp - vectors_size()) & ~63ull;
    p->at = ((p->vectors - sizeof(struct frame)) & ~15ull) - 8;
    return !(nested || entering) || within_altstack(t, p->at);
}

static bool user_range(uint64_t addr, uint64_t len)
{
    return addr < USER_END && len <= USER_END - addr;
}

static uint64_t frame_flags(void)
{
    return UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | (engine.cpu.xcr0 ? UC_FP_XSTATE : 0);
}

static bool write_frame(struct task *t, const struct signal_action *a, const struct frame_place *p,
                        const struct frame *f)
{
    const size_t without_info = offsetof(struct frame, siginfo);
    return user_range(p->at, p->vectors + vectors_size() - p->at) && !put_vectors(t, p->vectors) &&
           !guest_write(p->at, f, a->flags & SA_SIGINFO ? sizeof *f : without_info);
}

bool frame_push(struct task *t, int signo, const struct signal_action *a, const uint8_t siginfo[128],
                uint64_t saved_mask)
{
    struct frame_place p;
    struct frame f = {.pretcode = a->restorer, .uc.flags = frame_flags(), .uc.mask = saved_mask};
    if (!(a->flags & FLAG_RESTORER) || !place(t, a, &p))
        return false;
    memcpy(f.siginfo, siginfo, sizeof f.siginfo);
    memcpy(f.uc.stack, t->altstack, sizeof f.uc.stack);
    context_from_regs(&f.uc.context, &t->regs);
    f.uc.context.error = t->shown.error;
    f.uc.context.trap = t->shown.trap;
    f.uc.context.cr2 = t->shown.cr2;
    f.uc.context.oldmask = saved_mask;
    f.uc.context.fpstate = p.vectors;
    if (!write_frame(t, a, &p, &f)) {
        effect_add_writable(t, p.at, p.vectors + vectors_size() - p.at); /* a part of it may be there */
        return false;
    }
    effect_add(t, p.at, sizeof f);
    effect_add(t, p.vectors, vectors_size());
    shown_cs = USER_CS;
    shown_ss = USER_SS;
    if (autodisarm(t))
        disarm(t);
    task_initial_vectors(t);
    uint64_t *g = t->regs.gpr;
    g[GPR_RDI] = (uint64_t)signo;
    g[GPR_RSI] = p.at + offsetof(struct frame, siginfo);
    g[GPR_RDX] = p.at + offsetof(struct frame, uc);
    g[GPR_RAX] = 0;
    g[GPR_RSP] = p.at;
    t->regs.rip = a->handler;
    t->regs.rflags &= ~0x10500ull; /* DF, TF, RF */
    return true;
}

/* ---- and back ---- */

static uint64_t frame_at(const struct task *t)
{
    return t->regs.gpr[GPR_RSP] - sizeof(uint64_t);
}

bool frame_mask(const struct task *t, uint64_t *mask)
{
    uint64_t at = frame_at(t);
    return user_range(at, sizeof(struct frame)) &&
           !guest_read(mask, at + offsetof(struct frame, uc.mask), sizeof *mask);
}

/* The processor refuses to go on with these selectors. */
static bool selectors_good(struct task *t, const struct ucontext_image *uc)
{
    uint16_t cs = uc->context.cs | 3, ss = uc->context.ss | 3;
    if (!(uc->flags & UC_STRICT_RESTORE_SS))
        ss = USER_SS; /* the kernel mends it for those who know nothing of it */
    if (cs == USER_CS && ss == USER_SS)
        return true;
    if (cs == USER_CS_32 && engine.mode == ENGINE_RECORD)
        event_unsupported("a signal handler that returns to 32-bit code");
    t->shown.trap = TRAP_GP;
    t->shown.error = (cs != USER_CS ? cs : ss) & 0xfffcu;
    shown_cs = cs;
    shown_ss = ss;
    return false;
}

bool frame_return(struct task *t)
{
    struct ucontext_image uc;
    const size_t used = offsetof(struct sigcontext_image, reserved);
    uint64_t at = frame_at(t) + offsetof(struct frame, uc);
    if (guest_read(&uc, at, offsetof(struct ucontext_image, context)))
        return false;
    set_altstack(t, uc.stack, t->regs.gpr[GPR_RSP]);
    if (guest_read(&uc.context, at + offsetof(struct ucontext_image, context), used))
        return false;
    if ((uc.context.flags & TRAP_FLAG) && engine.mode == ENGINE_RECORD)
        event_unsupported("a program that single-steps itself (EFLAGS.TF)");
    regs_from_context(&t->regs, &uc.context);
    if (!get_vectors(t, uc.context.fpstate)) {
        task_initial_vectors(t);
        return false;
    }
    return selectors_good(t, &uc);
}
