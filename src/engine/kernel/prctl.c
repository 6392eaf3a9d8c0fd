/*
 * prctl.c: see prctl.h. A row for each option that a kernel for x86-64 has, up to 6.18; any other number is one that it
 * does not have.
 */
#include "engine/kernel/prctl.h"

#include <asm/prctl.h>
#include <errno.h>
#include <linux/prctl.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/raw.h"
#include "engine/kernel/mdwe.h"
#include "engine/kernel/table.h"
#include "engine/memory/space.h"

#define USER_END 0x7ffffffff000ull

static struct settings {
    bool undumpable; /* PR_SET_DUMPABLE 0: in the kernel it would shut the engine out of its own /proc/self */
    bool no_tsc, no_cpuid;   /* these instructions raise SIGSEGV */
    uint64_t offset, length; /* user dispatch: calls from [offset, offset+length) go to the kernel */
    uint64_t selector;       /* address of the byte that decides about the others; 0: to the program */
} settings;

static int64_t put(struct task *t, uint64_t addr, const void *value, uint64_t size)
{
    if (guest_write(addr, value, size))
        return -EFAULT;
    effect_add(t, addr, size);
    return 0;
}

/* ---- options that are kept here ---- */

/* Allowing dumps again is the kernel's, too: it may have forbidden them itself, after setuid. */
static int64_t set_dumpable(struct task *t, struct sys_call *c)
{
    if (c->args[1] > 1)
        return -EINVAL;
    settings.undumpable = !c->args[1];
    return settings.undumpable ? 0 : task_syscall(t, c);
}

static int64_t get_dumpable(struct task *t, struct sys_call *c)
{
    return settings.undumpable ? 0 : task_syscall(t, c);
}

static int64_t get_tsc(struct task *t, struct sys_call *c)
{
    const uint32_t mode = settings.no_tsc ? PR_TSC_SIGSEGV : PR_TSC_ENABLE;
    return put(t, c->args[1], &mode, sizeof mode);
}

static int64_t set_tsc(struct task *t, struct sys_call *c)
{
    uint32_t mode = (uint32_t)c->args[1];
    if (mode != PR_TSC_ENABLE && mode != PR_TSC_SIGSEGV)
        return -EINVAL;
    settings.no_tsc = mode == PR_TSC_SIGSEGV;
    return 0;
}

static int64_t get_auxv(struct task *t, struct sys_call *c)
{
    uint64_t n = guest_space.auxv_size;
    if (c->args[3] || c->args[4])
        return -EINVAL;
    if (n > c->args[2])
        n = c->args[2];
    int64_t error = put(t, c->args[1], guest_space.auxv, n);
    return error ? error : (int64_t)guest_space.auxv_size;
}

static int64_t set_user_dispatch(struct task *t, struct sys_call *c)
{
    enum { OFF, EXCLUSIVE, INCLUSIVE };
    uint64_t offset = c->args[2], length = c->args[3], selector = c->args[4];
    switch (c->args[1]) {
    case OFF:
        if (offset || length || selector)
            return -EINVAL;
        break;
    case EXCLUSIVE:
        if (offset && offset + length <= offset)
            return -EINVAL;
        break;
    case INCLUSIVE: /* calls from everywhere else go to the kernel */
        if (!length || offset + length <= offset)
            return -EINVAL;
        offset += length;
        length = -length;
        break;
    default:
        return -EINVAL;
    }
    if (selector >= USER_END)
        return -EFAULT;
    settings.offset = offset;
    settings.length = length;
    settings.selector = selector;
    t->user_dispatch = c->args[1] != OFF;
    return 0;
}

static int64_t set_mdwe(struct task *t, struct sys_call *c)
{
    return mdwe_set(c->args + 1);
}

static int64_t get_mdwe(struct task *t, struct sys_call *c)
{
    return mdwe_get(c->args + 1);
}

/* ---- the table ---- */

enum how {
    PASSED = 1, /* the kernel's own; it may write `size` bytes at argument `arg` */
    REFUSED     /* told as by a kernel built without it, and named */
};

struct option {
    uint32_t number;
    uint8_t how, arg, size;
    const char *name; /* REFUSED */
    int64_t (*own)(struct task *t, struct sys_call *c);
};

#define PASS(option)                                                                                         \
    {                                                                                                        \
        option, PASSED, 0, 0, NULL, NULL                                                                     \
    }
#define OUT(option, arg, size)                                                                               \
    {                                                                                                        \
        option, PASSED, arg, size, NULL, NULL                                                                \
    }
#define REFUSE(option, name)                                                                                 \
    {                                                                                                        \
        option, REFUSED, 0, 0, name, NULL                                                                    \
    }
#define OWN(option, fn)                                                                                      \
    {                                                                                                        \
        option, 0, 0, 0, NULL, fn                                                                            \
    }

enum { /* younger than the headers of the oldest system that this builds on */
       NEW_PR_SET_MDWE = 65,
       NEW_PR_GET_MDWE = 66,
       NEW_PR_SET_MEMORY_MERGE = 67,
       NEW_PR_GET_MEMORY_MERGE = 68,
       NEW_PR_TIMER_CREATE_RESTORE_IDS = 77,
       NEW_PR_FUTEX_HASH = 78,
       NEW_PR_GET_AUXV = 0x41555856,
};

static const struct option options[] = {
    PASS(PR_SET_PDEATHSIG),
    OUT(PR_GET_PDEATHSIG, 1, 4),
    OWN(PR_GET_DUMPABLE, get_dumpable),
    OWN(PR_SET_DUMPABLE, set_dumpable),
    PASS(PR_GET_KEEPCAPS),
    PASS(PR_SET_KEEPCAPS),
    PASS(PR_GET_TIMING),
    PASS(PR_SET_TIMING),
    PASS(PR_SET_NAME),
    OUT(PR_GET_NAME, 1, 16),
    PASS(PR_GET_SECCOMP),
    REFUSE(PR_SET_SECCOMP, "PR_SET_SECCOMP"), /* would filter the engine's calls */
    PASS(PR_CAPBSET_READ),
    PASS(PR_CAPBSET_DROP),
    OWN(PR_GET_TSC, get_tsc),
    OWN(PR_SET_TSC, set_tsc),
    PASS(PR_GET_SECUREBITS),
    PASS(PR_SET_SECUREBITS),
    PASS(PR_SET_TIMERSLACK),
    PASS(PR_GET_TIMERSLACK),
    PASS(PR_TASK_PERF_EVENTS_DISABLE),
    PASS(PR_TASK_PERF_EVENTS_ENABLE),
    PASS(PR_MCE_KILL),
    PASS(PR_MCE_KILL_GET),
    REFUSE(PR_SET_MM, "PR_SET_MM"), /* would move the engine's break and describe the engine's memory */
    PASS(PR_SET_CHILD_SUBREAPER),
    OUT(PR_GET_CHILD_SUBREAPER, 1, 4),
    PASS(PR_SET_NO_NEW_PRIVS),
    PASS(PR_GET_NO_NEW_PRIVS),
    OUT(PR_GET_TID_ADDRESS, 1, 8),
    PASS(PR_SET_THP_DISABLE),
    PASS(PR_GET_THP_DISABLE),
    PASS(PR_CAP_AMBIENT),
    PASS(PR_GET_SPECULATION_CTRL),
    PASS(PR_SET_SPECULATION_CTRL),
    PASS(PR_SET_IO_FLUSHER),
    PASS(PR_GET_IO_FLUSHER),
    OWN(PR_SET_SYSCALL_USER_DISPATCH, set_user_dispatch),
    OUT(PR_SCHED_CORE, 4, 8),
    OWN(NEW_PR_SET_MDWE, set_mdwe),
    OWN(NEW_PR_GET_MDWE, get_mdwe),
    PASS(NEW_PR_SET_MEMORY_MERGE),
    PASS(NEW_PR_GET_MEMORY_MERGE),
    PASS(NEW_PR_TIMER_CREATE_RESTORE_IDS),
    PASS(NEW_PR_FUTEX_HASH),
    PASS(PR_SET_PTRACER),
    PASS(PR_SET_VMA),
    OWN(NEW_PR_GET_AUXV, get_auxv),
};

static const struct option *find(uint32_t number)
{
    for (uint32_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].number == number)
            return &options[i];
    return NULL;
}

int64_t rec_prctl(struct task *t, struct sys_call *c)
{
    const struct option *o = find((uint32_t)c->args[0]);
    if (!o)
        return -EINVAL;
    if (o->own)
        return o->own(t, c);
    if (o->how == REFUSED) {
        event_note("prctl %s cannot be recorded: the program was told that the kernel lacks it", o->name);
        return -EINVAL;
    }
    int64_t result = task_syscall(t, c);
    if (o->size && !c->restart && (result >= 0 || result == -EFAULT))
        effect_add_writable(t, c->args[o->arg], o->size);
    return result;
}

/* ---- arch_prctl ---- */

/* What the guest's processor has in XSAVE areas: none of it is to be asked for. */
static uint64_t components(void)
{
    const uint64_t x87_sse = 3;
    return engine.cpu.xcr0 ? engine.cpu.xcr0 : x87_sse;
}

/* The only component that programs ask for is that of AMX tiles, which the guest's processor lacks. */
static int64_t request_component(uint64_t component)
{
    enum { TILE_DATA = 18 };
    return component > TILE_DATA ? -EINVAL : -EOPNOTSUPP;
}

static int64_t set_cpuid(uint64_t enabled)
{
    settings.no_cpuid = !enabled;
    return 0;
}

int64_t both_arch_prctl(struct task *t, struct sys_call *c)
{
    const uint64_t user_end = 1ull << 47, zero = 0, has = components();
    switch ((int)c->args[0]) {
    case ARCH_SET_FS:
        if (c->args[1] >= user_end)
            return -EPERM;
        t->regs.fs_base = c->args[1];
        return 0;
    case ARCH_GET_FS:
        return put(t, c->args[1], &t->regs.fs_base, 8);
    case ARCH_SET_GS:
        if (c->args[1] >= user_end)
            return -EPERM;
        if (c->args[1])
            event_unsupported("a gs base of the program's own (arch_prctl ARCH_SET_GS)");
        return 0;
    case ARCH_GET_GS:
        return put(t, c->args[1], &zero, 8);
    case ARCH_GET_CPUID:
        return !settings.no_cpuid;
    case ARCH_SET_CPUID:
        return set_cpuid(c->args[1]);
    case ARCH_GET_XCOMP_SUPP:
    case ARCH_GET_XCOMP_PERM:
    case ARCH_GET_XCOMP_GUEST_PERM:
        return put(t, c->args[1], &has, 8);
    case ARCH_REQ_XCOMP_PERM:
    case ARCH_REQ_XCOMP_GUEST_PERM:
        return request_component(c->args[1]);
    default: /* the vdso's mapping, tagged addresses, shadow stacks: as by a kernel built without them */
        return -EINVAL;
    }
}

/* ---- what the settings do ---- */

bool prctl_forbids(unsigned insn)
{
    switch (insn) {
    case INSN_RDTSC:
    case INSN_RDTSCP:
        return settings.no_tsc;
    case INSN_CPUID:
        return settings.no_cpuid;
    default:
        return false;
    }
}

enum prctl_dispatch prctl_dispatch(const struct task *t)
{
    enum { ALLOW, BLOCK };
    uint8_t state = BLOCK;
    if (!t->user_dispatch || t->exit_pc - settings.offset < settings.length)
        return DISPATCH_KERNEL;
    if (settings.selector && guest_read(&state, settings.selector, 1))
        return DISPATCH_BAD_SELECTOR;
    return state == ALLOW ? DISPATCH_KERNEL : state == BLOCK ? DISPATCH_SIGNAL : DISPATCH_BAD_VALUE;
}

void prctl_exec(struct task *t)
{
    t->user_dispatch = false;
    settings.undumpable = settings.no_cpuid = false;
    mdwe_inherit();
}

void prctl_forked(struct task *t)
{
    t->user_dispatch = false;
    mdwe_inherit();
}
