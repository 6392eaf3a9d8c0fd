/* Faults of the guest's own: caught, repaired, escaped from, with exact registers and addresses. */
// VARIANTS: o0 o2 nopie static
// FLAGS: -fno-delete-null-pointer-checks
#include "guest.h"
#include <setjmp.h>
#include <ucontext.h>

static uint8_t *area; /* three pages, the middle one forbidden at first */
static volatile int count;
static volatile uint64_t seen_address, seen_rip, seen_rax, seen_rbx, seen_r15, seen_flags, seen_trapno,
    seen_error;
static volatile int seen_code, seen_signal;
static uint64_t skip_to;
static int repair, restore_rsp;

static void handler(int sig, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    count++;
    seen_signal = sig;
    seen_code = info->si_code;
    seen_address = (uint64_t)info->si_addr;
    seen_rip = (uint64_t)g[REG_RIP];
    seen_rax = (uint64_t)g[REG_RAX];
    seen_rbx = (uint64_t)g[REG_RBX];
    seen_r15 = (uint64_t)g[REG_R15];
    seen_flags = (uint64_t)g[REG_EFL];
    seen_trapno = (uint64_t)g[REG_TRAPNO];
    seen_error = (uint64_t)g[REG_ERR];
    if (repair)
        mprotect(area + 4096, 4096, PROT_READ | PROT_WRITE);
    if (restore_rsp) {
        seen_rax = (uint64_t)g[REG_RSP];
        g[REG_RSP] = g[REG_RSI];
    }
    if (skip_to)
        g[REG_RIP] = (greg_t)skip_to;
}

/* Defines symbols at_NAME and after_NAME around one faulting instruction, runs it, and checks what the
 * handler saw. */
#define FAULT(name, setup, insn)                                                                             \
    do {                                                                                                     \
        extern char at_##name[], after_##name[];                                                             \
        count = 0;                                                                                           \
        skip_to = (uint64_t)after_##name;                                                                    \
        asm volatile("mov $0x1111, %%rax\n mov $0x2222, %%rbx\n mov $0x3333, %%r15\n" setup                  \
                     "\n stc\n .globl at_" #name "\n at_" #name ": " insn "\n .globl after_" #name           \
                     "\n after_" #name ":\n" ::"c"(area + 4096 + 16)                                         \
                     : "rax", "rbx", "rdx", "rsi", "rdi", "r15", "memory", "cc", "xmm0");                    \
        skip_to = 0;                                                                                         \
        ok(count == 1 && seen_rip == (uint64_t)at_##name, #name " faults at its instruction");               \
        ok(seen_rbx == 0x2222 && seen_r15 == 0x3333 && (seen_flags & 1), "with exact registers and flags");  \
    } while (0)

static void exact(void)
{
    FAULT(load, "", "mov (%%rcx), %%rax");
    ok(seen_signal == SIGSEGV && seen_address == (uint64_t)area + 4096 + 16 && seen_code == SEGV_ACCERR &&
           seen_rax == 0x1111,
       "load: address, code");
    is(seen_trapno, 14, "page fault");
    is(seen_error & 7, 4, "of a user's read");
    FAULT(store, "", "movq $1, (%%rcx)");
    is(seen_error & 7, 6, "of a user's write");
    FAULT(modify, "", "addq $1, (%%rcx)");
    restore_rsp = 1;
    FAULT(pushing, "mov %%rsp, %%rsi\n lea 8(%%rcx), %%rsp", "push %%rax");
    FAULT(calling, "mov %%rsp, %%rsi\n lea 8(%%rcx), %%rsp", "call 1f\n 1: nop");
    restore_rsp = 0;
    FAULT(null, "xor %%edx, %%edx", "mov (%%rdx), %%eax");
    ok(seen_address == 0 && seen_code == SEGV_MAPERR, "null");
    FAULT(wild, "mov $0x8000000000000000, %%rdx", "mov (%%rdx), %%eax");
    ok(seen_code == SI_KERNEL && seen_address == 0, "non-canonical address");
    FAULT(vector, "", "movdqu (%%rcx), %%xmm0");
    FAULT(unaligned, "lea -4095(%%rcx), %%rdx", "movdqa (%%rdx), %%xmm0");
    FAULT(string, "mov %%rcx, %%rdi", "stosq");
    FAULT(division, "xor %%edx, %%edx", "div %%rdx");
    ok(seen_signal == SIGFPE && seen_address == seen_rip, "SIGFPE with si_addr");
    FAULT(overflow, "mov $-1, %%rdx\n mov $1, %%esi", "div %%rsi");
    FAULT(undefined, "", "ud2");
    ok(seen_signal == SIGILL && seen_code == ILL_ILLOPN && seen_address == seen_rip, "SIGILL of ud2");
    FAULT(privileged, "", "hlt");
    ok(seen_signal == SIGSEGV && seen_code == SI_KERNEL, "hlt");
    FAULT(in_port, "", "in $0x80, %%al");
}

/* A jump to nowhere is reported at its target. */
static void jumps(void)
{
    extern char back_here[];
    count = 0;
    skip_to = (uint64_t)back_here;
    asm volatile("mov $0x55660000, %%edx\n jmp *%%rdx\n .globl back_here\n back_here:\n" ::: "rdx", "memory");
    ok(count == 1 && seen_rip == 0x55660000 && seen_address == 0x55660000 && seen_code == SEGV_MAPERR,
       "a jump to unmapped memory");
    extern char back_again[];
    skip_to = (uint64_t)back_again;
    asm volatile("jmp *%%rcx\n .globl back_again\n back_again:\n" ::"c"(area) : "memory");
    ok(seen_rip == (uint64_t)area && seen_code == SEGV_ACCERR, "a jump to data");
    skip_to = 0;
}

static void traps(void)
{
    extern char after_int3[];
    count = 0;
    asm volatile("int3\n .globl after_int3\n after_int3:\n");
    ok(count == 1 && seen_signal == SIGTRAP && seen_rip == (uint64_t)after_int3 && seen_code == SI_KERNEL,
       "int3 is seen after itself");
}

static void repaired(void)
{
    repair = 1;
    int bad = 0;
    for (int i = 0; i < 100; i++) {
        mprotect(area + 4096, 4096, i & 1 ? PROT_READ : PROT_NONE);
        count = 0;
        ((volatile uint8_t *)area)[5000] = (uint8_t)i;
        bad += count != 1 || area[5000] != i;
    }
    is(bad, 0, "mprotect in the handler, then the store is done");
    repair = 0;
}

static sigjmp_buf env;
static void jumper(int sig)
{
    siglongjmp(env, sig);
}

static void bus(void)
{
    char name[] = "bus-file";
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, 8192);
    volatile char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    p[5000] = 1;
    ftruncate(fd, 4096);
    signal(SIGBUS, jumper);
    int got = sigsetjmp(env, 1);
    if (got == 0) {
        p[5000] = 2;
        ok(false, "a page beyond the file");
    } else {
        is(got, SIGBUS, "SIGBUS beyond the end of the file");
    }
    unlink(name);
}

int main(void)
{
    area = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + 4096, 4096, PROT_NONE);
    stack_t st = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                  .ss_size = 65536};
    sigaltstack(&st, NULL);
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < 5; i++)
        sigaction(signals[i], &sa, NULL);
    exact();
    jumps();
    traps();
    repaired();
    bus();
    return finish();
}
