/*
 * Signal frames: stacks that cannot take one, the alternate stack and its rules, frames that sigreturn refuses. What the
 * kernel forces then is a SIGSEGV that a handler may take.
 */
// VARIANTS: o2 static
// FLAGS: -fno-stack-protector
#include "guest.h"
#include <setjmp.h>
#include <ucontext.h>

enum { SIZE = 65536 };
#define AUTODISARM (1u << 31)
#define NOBODY     0x8000000000001000ull /* no address at all */

static char alternate[SIZE] __attribute__((aligned(64))), second[SIZE];
static sigjmp_buf back;
static volatile int usr, segv;
static siginfo_t info;
static ucontext_t context;
static uint64_t mask_in_handler;

static void set_mask(uint64_t m)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &m, NULL, 8);
}

static uint64_t mask_now(void)
{
    uint64_t now;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
    return now;
}

static uint64_t bit(int sig)
{
    return 1ull << (sig - 1);
}

static void use(void *stack, size_t size, int flags)
{
    stack_t s = {.ss_sp = stack, .ss_size = size, .ss_flags = flags};
    if (sigaltstack(&s, NULL))
        say("sigaltstack: %d\n", errno);
}

static void on_usr(int sig)
{
    usr++;
}

static void on_segv(int sig, siginfo_t *i, void *c)
{
    segv++;
    info = *i;
    context = *(ucontext_t *)c;
    mask_in_handler = mask_now();
    siglongjmp(back, 1);
}

static void handle(int sig, void *f, int flags)
{
    struct sigaction a = {.sa_handler = f, .sa_flags = flags};
    sigaction(sig, &a, NULL);
}

static bool forced(void)
{
    return info.si_signo == SIGSEGV && info.si_code == SI_KERNEL && !info.si_addr && !info.si_pid;
}

/* Runs f in a child; the signal that killed it, or -status. */
static int fate(void (*f)(void))
{
    int status;
    pid_t child = fork();
    if (!child) {
        f();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

/* kill(getpid(), SIGUSR1) with another stack pointer. */
static void kill_on(uint64_t stack)
{
    long r = SYS_kill;
    __asm__ volatile("movq %%rsp, %%r12; movq %3, %%rsp; syscall; movq %%r12, %%rsp"
                     : "+a"(r)
                     : "D"((long)getpid()), "S"((long)SIGUSR1), "r"(stack)
                     : "rcx", "r11", "r12", "memory");
}

/* ---- stacks that cannot take a frame ---- */

static char *pages; /* writable, read-only, not there, writable */

static void bad_stacks(void)
{
    pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_READ);
    mprotect(pages + 8192, 4096, PROT_NONE);
    uint64_t p = (uint64_t)pages;
    const uint64_t stacks[] = {0,
                               8,
                               0x1000,
                               p + 8192,
                               p + 12288,
                               p + 12288 + 256,
                               p + 8192 - 512,
                               NOBODY,
                               0x7ffffffff000,
                               ~0ull,
                               0x7ffffffff000 + 8,
                               0xffffffff80000000};
    handle(SIGUSR1, on_usr, 0);
    handle(SIGSEGV, on_segv, SA_SIGINFO | SA_ONSTACK);
    use(alternate, SIZE, 0);
    for (unsigned i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        usr = segv = 0;
        set_mask(bit(SIGUSR2));
        if (!sigsetjmp(back, 1))
            kill_on(stacks[i]);
        ok(usr == 0 && segv == 1 && forced(), "stack %u: SIGSEGV instead", i);
        ok(mask_in_handler == (bit(SIGUSR2) | bit(SIGSEGV)), "the signal that failed is not blocked");
        ok((uint64_t)context.uc_mcontext.gregs[REG_RSP] == stacks[i] &&
               context.uc_mcontext.gregs[REG_RAX] == 0,
           "registers are those after the call");
        set_mask(0);
    }
    usr = 0;
    kill_on(p + 4096);
    is(usr, 1, "a page that has room");
}

static void other_reasons(void)
{
    struct {
        void *handler;
        uint64_t flags, restorer, mask;
    } raw = {on_usr, 0, 0, 0};
    usr = segv = 0;
    syscall(SYS_rt_sigaction, SIGUSR1, &raw, NULL, 8);
    if (!sigsetjmp(back, 1))
        kill(getpid(), SIGUSR1);
    ok(!usr && segv == 1 && forced(), "an action without a restorer");
    handle(SIGUSR1, on_usr, SA_RESETHAND);
    segv = 0;
    if (!sigsetjmp(back, 1))
        kill_on(8);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    ok(segv == 1 && now.sa_handler == SIG_DFL, "SA_RESETHAND has reset the one that failed");
    handle(SIGUSR1, on_usr, 0);
    /* two at once: the first cannot be taken, the second is not lost */
    set_mask(bit(SIGUSR1) | bit(SIGUSR2));
    handle(SIGUSR2, on_usr, SA_ONSTACK);
    kill(getpid(), SIGUSR2);
    usr = segv = 0;
    if (!sigsetjmp(back, 1)) {
        uint64_t none = 0;
        long r = SYS_rt_sigprocmask;
        kill(getpid(), SIGUSR1);
        __asm__ volatile("movq %%rsp, %%r12; movq $8, %%rsp; movq $8, %%r10; syscall; movq %%r12, %%rsp"
                         : "+a"(r)
                         : "D"(2l), "S"(&none), "d"(0l)
                         : "rcx", "r11", "r12", "r10", "memory");
    }
    ok(usr == 1 && segv == 1, "the next signal is stacked on the SIGSEGV");
    set_mask(0);
}

static void with_plain_segv(void)
{
    handle(SIGSEGV, on_segv, SA_SIGINFO);
    if (!sigsetjmp(back, 1))
        kill_on(8);
}

static void with_blocked_segv(void)
{
    set_mask(bit(SIGSEGV));
    if (!sigsetjmp(back, 1))
        kill_on(8);
}

static void with_ignored_segv(void)
{
    signal(SIGSEGV, SIG_IGN);
    kill_on(8);
}

static void with_default_segv(void)
{
    signal(SIGSEGV, SIG_DFL);
    kill_on(8);
}

static void fault_on_bad_stack(void)
{
    handle(SIGSEGV, on_segv, SA_SIGINFO);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("movq $8, %%rsp; movq (%%rsp), %%rax" : : : "rax", "memory");
}

static void trap_on_bad_stack(void)
{
    handle(SIGTRAP, on_usr, 0);
    signal(SIGSEGV, SIG_DFL);
    __asm__ volatile("movq $8, %%rsp; int3" : : : "memory");
}

static void deaths(void)
{
    is(fate(with_plain_segv), SIGSEGV, "no stack for SIGSEGV either");
    is(fate(with_blocked_segv), SIGSEGV, "SIGSEGV blocked");
    is(fate(with_ignored_segv), SIGSEGV, "SIGSEGV ignored");
    is(fate(with_default_segv), SIGSEGV, "SIGSEGV by default");
    is(fate(fault_on_bad_stack), SIGSEGV, "a fault without a stack");
    is(fate(trap_on_bad_stack), SIGSEGV, "a trap without a stack dies of SIGSEGV");
}

/* ---- the alternate stack ---- */

static stack_t seen, in_frame;
static volatile bool inside;

static void look(int sig, siginfo_t *i, void *c)
{
    char here;
    inside = &here >= alternate && &here < alternate + SIZE;
    sigaltstack(NULL, &seen);
    in_frame = ((ucontext_t *)c)->uc_stack;
    context = *(ucontext_t *)c;
    if (i->si_code == SI_QUEUE)
        use(second, SIZE, 0);
}

static void rules(void)
{
    stack_t s = {.ss_sp = alternate, .ss_size = 2047}, old;
    is(sigaltstack(&s, NULL), -1, "too small");
    is(errno, ENOMEM, "ENOMEM");
    s.ss_size = 2048;
    is(sigaltstack(&s, NULL), 0, "just enough");
    for (int flags = 0; flags < 9; flags++) {
        static const int results[] = {0, 0, 0, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL};
        s.ss_flags = flags;
        s.ss_size = SIZE;
        int r = sigaltstack(&s, NULL) ? errno : 0;
        is(r, results[flags], "flags");
    }
    s.ss_flags = (int)(AUTODISARM | 4);
    is(sigaltstack(&s, NULL), -1, "SS_AUTODISARM and nonsense");
    is(sigaltstack((void *)8, NULL), -1, "out of memory");
    is(errno, EFAULT, "EFAULT");
    s.ss_flags = SS_DISABLE;
    s.ss_size = 1;
    is(sigaltstack(&s, NULL), 0, "disabled");
    sigaltstack(NULL, &old);
    ok(old.ss_flags == SS_DISABLE && !old.ss_sp && !old.ss_size, "reads back as nothing");
    handle(SIGUSR1, look, SA_SIGINFO | SA_ONSTACK);
    raise(SIGUSR1);
    ok(!inside && seen.ss_flags == SS_DISABLE && in_frame.ss_flags == SS_DISABLE,
       "the handler runs where it was");
    s = (stack_t){.ss_sp = alternate, .ss_size = SIZE, .ss_flags = SS_ONSTACK};
    is(sigaltstack(&s, &old), 0, "SS_ONSTACK may be said");
    raise(SIGUSR1);
    ok(inside && seen.ss_flags == SS_ONSTACK && in_frame.ss_flags == SS_ONSTACK &&
           in_frame.ss_sp == alternate,
       "the frame has the flags as they were said");
    sigaltstack(NULL, &old);
    is(old.ss_flags, 0, "and the kernel tells whether it is so");
}

static void disarming(void)
{
    union sigval v = {0};
    stack_t now;
    use(alternate, SIZE, (int)AUTODISARM);
    sigaltstack(NULL, &now);
    is(now.ss_flags, (int)AUTODISARM, "SS_AUTODISARM reads back");
    raise(SIGUSR1);
    ok(inside && seen.ss_flags == SS_DISABLE && !seen.ss_sp && in_frame.ss_flags == (int)AUTODISARM &&
           in_frame.ss_sp == alternate,
       "the handler has none, its frame has it");
    sigaltstack(NULL, &now);
    ok(now.ss_flags == (int)AUTODISARM && now.ss_sp == alternate, "and brings it back");
    sigqueue(getpid(), SIGUSR1, v);
    sigaltstack(NULL, &now);
    ok(now.ss_flags == (int)AUTODISARM && now.ss_sp == alternate, "also over one that the handler has set");
    use(NULL, 0, SS_DISABLE);
}

static void nest(int sig)
{
    usr++;
    raise(sig);
}

static void overflow_plain(void)
{
    use(alternate, SIZE, 0);
    handle(SIGUSR1, nest, SA_ONSTACK | SA_NODEFER);
    handle(SIGSEGV, on_segv, SA_SIGINFO | SA_ONSTACK);
    if (!sigsetjmp(back, 1))
        raise(SIGUSR1);
}

static void leave_below(int sig)
{
    usr++;
    kill_on((uint64_t)alternate + 512); /* on the stack, with no room below */
}

static void overflow_below(void)
{
    use(alternate, SIZE, 0);
    handle(SIGUSR1, leave_below, SA_ONSTACK | SA_NODEFER);
    raise(SIGUSR1);
}

static void too_small_for_a_frame(void)
{
    stack_t s = {.ss_sp = alternate + 32768, .ss_size = 2048};
    sigaltstack(&s, NULL);
    memset(alternate, 0x5a, SIZE);
    handle(SIGUSR1, on_usr, 0);
    kill_on((uint64_t)alternate + 32768 + 128 + 256); /* on it, and what is below is not of it */
}

static void overflows(void)
{
    is(fate(overflow_plain), SIGSEGV, "handlers that fill the alternate stack");
    is(fate(overflow_below), SIGSEGV, "no room on it");
    is(fate(too_small_for_a_frame), SIGSEGV, "memory below it does not count");
}

static void *info_pointer;

__attribute__((noinline)) static void keep_pointer(int sig, siginfo_t *i, void *c)
{
    info_pointer = i;
    inside = true;
    for (unsigned k = 0; k < sizeof *i; k++)
        inside = inside && ((uint8_t *)i)[k] == 0x5a;
}

static void what_is_written(void)
{
    use(alternate, SIZE, 0);
    memset(alternate, 0x5a, SIZE);
    handle(SIGUSR1, keep_pointer, SA_ONSTACK);
    raise(SIGUSR1);
    ok(inside && info_pointer > (void *)alternate, "without SA_SIGINFO no siginfo is written");
    handle(SIGUSR1, look, SA_SIGINFO | SA_ONSTACK);
    handle(SIGSEGV, on_segv, SA_SIGINFO);
    if (!sigsetjmp(back, 1))
        *(volatile int *)0x28 = 1;
    greg_t *g = context.uc_mcontext.gregs;
    ok(g[REG_TRAPNO] == 14 && g[REG_ERR] == 6 && g[REG_CR2] == 0x28, "a page fault's numbers");
    raise(SIGUSR1);
    ok(g[REG_TRAPNO] == 14 && g[REG_ERR] == 6 && g[REG_CR2] == 0x28, "stay in later frames");
    if (!sigsetjmp(back, 1))
        *(volatile int *)NOBODY = 1;
    ok(g[REG_TRAPNO] == 13 && g[REG_ERR] == 0 && g[REG_CR2] == 0x28, "a protection fault leaves the address");
    int status;
    if (!fork()) {
        raise(SIGUSR1);
        _exit(g[REG_TRAPNO] == 13 && g[REG_CR2] == 0x28 ? 5 : 6);
    }
    wait(&status);
    is(WEXITSTATUS(status), 5, "a child inherits them");
    ok(context.uc_link == NULL && (g[REG_CSGSFS] & 0xffff) == 0x33 && (uint64_t)g[REG_CSGSFS] >> 48 == 0x2b,
       "selectors");
}

static volatile uint64_t flags_in_handler;

__attribute__((noinline)) static void keep_flags(int sig)
{
    uint64_t f;
    __asm__ volatile("pushfq; popq %0" : "=r"(f));
    flags_in_handler = f;
}

static void flags(void)
{
    uint64_t f;
    handle(SIGTRAP, keep_flags, 0);
    __asm__ volatile("subq $128, %%rsp; std; int3; pushfq; popq %0; cld; addq $128, %%rsp"
                     : "=r"(f)
                     :
                     : "memory");
    ok(!(flags_in_handler & 0x400) && (f & 0x400),
       "the direction flag is clear in the handler and comes back");
}

/* ---- sigreturn ---- */

static int spoil; /* which part of the frame */
enum {
    FP_UNREADABLE,
    FP_KERNEL,
    FP_ODD,
    MXCSR,
    HEADER_BITS,
    HEADER_COMPACT,
    HEADER_RESERVED,
    RIP,
    CS,
    SS,
    BOTH,
    GOOD,
    FP_NONE,
    NO_MAGIC,
    NO_END,
    SPOILS
};

static void spoil_frame(int sig, siginfo_t *i, void *c)
{
    ucontext_t *u = c;
    uint8_t *fp = (uint8_t *)u->uc_mcontext.fpregs;
    uint32_t *size = (uint32_t *)(fp + 464 + 16);
    uint64_t *selectors = (uint64_t *)&u->uc_mcontext.gregs[REG_CSGSFS];
    u->uc_mcontext.gregs[REG_R15] = 0x1234;
    memset(&u->uc_sigmask, 0, 8);
    sigaddset(&u->uc_sigmask, SIGHUP);
    switch (spoil) {
    case FP_UNREADABLE:
        u->uc_mcontext.fpregs = (void *)0x1000;
        break;
    case FP_KERNEL:
        u->uc_mcontext.fpregs = (void *)0xffffffff80000000;
        break;
    case FP_ODD:
        u->uc_mcontext.fpregs = memmove(fp + 8, fp, *size + 4);
        break;
    case MXCSR:
        fp[27] = 0x80;
        break;
    case HEADER_BITS:
        fp[512 + 7] |= 0x40;
        break;
    case HEADER_COMPACT:
        fp[520] = 4;
        break;
    case HEADER_RESERVED:
        fp[528] = 1;
        break;
    case RIP:
        u->uc_mcontext.gregs[REG_RIP] = (greg_t)NOBODY;
        break;
    case CS:
        *selectors &= ~0xffffull;
        break;
    case SS:
        *selectors &= 0xffffffffffffull;
        break;
    case BOTH:
        *selectors = (*selectors & 0xffffffffffffull) | 0x53ull << 48;
        break;
    case FP_NONE:
        u->uc_mcontext.fpregs = NULL;
        break;
    case NO_MAGIC:
        memset(fp + 464, 0, 4);
        break;
    case NO_END:
        memset(fp + *size, 0, 4);
        break;
    }
}

static uint64_t spoiled_r15;

/* Raises SIGUSR1 with xmm7 set; what it is afterwards. */
__attribute__((noinline)) static uint64_t raise_spoiled(void)
{
    uint64_t x = 0x1122334455667788, r15 = 0;
    long r = SYS_kill;
    __asm__ volatile("movq %0, %%xmm7; xorl %%r15d, %%r15d; syscall; movq %%xmm7, %0; movq %%r15, %1"
                     : "+r"(x), "=&r"(r15), "+a"(r)
                     : "D"((long)getpid()), "S"((long)SIGUSR1)
                     : "rcx", "r11", "r15", "xmm7", "memory");
    spoiled_r15 = r15;
    return x;
}

static void bad_returns(void)
{
    use(alternate, SIZE, 0);
    handle(SIGUSR1, spoil_frame, SA_SIGINFO);
    handle(SIGSEGV, on_segv, SA_SIGINFO | SA_ONSTACK);
    for (spoil = 0; spoil < SPOILS; spoil++) {
        volatile uint64_t x = 0;
        segv = 0;
        set_mask(0);
        memset(&context, 0, sizeof context);
        if (!sigsetjmp(back, 1))
            x = raise_spoiled();
        const greg_t *g = context.uc_mcontext.gregs;
        bool whole = spoil == GOOD || spoil == NO_MAGIC || spoil == NO_END;
        if (spoil >= GOOD) {
            ok(!segv && x == (spoil == FP_NONE ? 0 : 0x1122334455667788) && spoiled_r15 == 0x1234, "%s",
               whole ? "a frame that is good enough" : "a frame without vector state");
            ok(mask_now() == bit(SIGHUP), "its mask");
            continue;
        }
        ok(segv == 1 && forced(), "bad frame %d forces SIGSEGV", spoil);
        ok(g[REG_R15] == 0x1234 && mask_in_handler == (bit(SIGHUP) | bit(SIGSEGV)),
           "registers and mask are taken from it");
        if (spoil < RIP)
            is(g[REG_RAX], 0, "but for the result");
        else
            ok(g[REG_TRAPNO] == 13, "the processor refused");
        if (spoil == RIP)
            ok((uint64_t)g[REG_RIP] == NOBODY && g[REG_ERR] == 0, "the address");
        if (spoil == CS)
            ok((g[REG_CSGSFS] & 0xffff) == 3 && g[REG_ERR] == 0, "the code selector");
        if (spoil == SS)
            ok((uint64_t)g[REG_CSGSFS] >> 48 == 3, "the stack selector");
        if (spoil == BOTH)
            ok((uint64_t)g[REG_CSGSFS] >> 48 == 0x53 && g[REG_ERR] == 0x50, "and its number");
    }
    set_mask(0);
}

static void unreadable_frame(void)
{
    for (int i = 0; i < 3; i++) {
        const uint64_t stacks[] = {0x1000, NOBODY, 0xffffffff80000000};
        segv = 0;
        set_mask(bit(SIGUSR2));
        if (!sigsetjmp(back, 1))
            __asm__ volatile("movq %0, %%rsp; movl $15, %%eax; movl $77, %%r15d; syscall"
                             :
                             : "r"(stacks[i])
                             : "rax", "rcx", "r11", "r15", "memory");
        const greg_t *g = context.uc_mcontext.gregs;
        ok(segv == 1 && forced() && (uint64_t)g[REG_RSP] == stacks[i] && g[REG_RAX] == 0 &&
               g[REG_R15] == 77 && g[REG_RCX] == g[REG_RIP],
           "no frame at all");
        ok(mask_in_handler == (bit(SIGUSR2) | bit(SIGSEGV)), "the mask is as it was");
    }
    set_mask(0);
}

static void return_to_nowhere(void)
{
    signal(SIGSEGV, SIG_DFL);
    __asm__ volatile("movq $8, %%rsp; movl $15, %%eax; syscall" : : : "memory");
}

static void return_with_segv_blocked(void)
{
    set_mask(bit(SIGSEGV));
    __asm__ volatile("movq $8, %%rsp; movl $15, %%eax; syscall" : : : "memory");
}

int main(void)
{
    bad_stacks();
    other_reasons();
    deaths();
    rules();
    disarming();
    overflows();
    what_is_written();
    flags();
    bad_returns();
    unreadable_frame();
    is(fate(return_to_nowhere), SIGSEGV, "sigreturn without a frame kills");
    is(fate(return_with_segv_blocked), SIGSEGV, "also when SIGSEGV is blocked");
    return finish();
}
