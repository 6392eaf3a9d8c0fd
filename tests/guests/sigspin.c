/* Asynchronous signals that end loops without system calls, whatever the loop's branches look like. */
// VARIANTS: o0 o2 nopie static
#include "guest.h"
#include <sys/time.h>
#include <ucontext.h>

static volatile sig_atomic_t fired, stop;
static uint64_t leave_at;

static void start_timer(void)
{
    struct itimerval it = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &it, NULL);
}

static void on_alarm(int sig, siginfo_t *info, void *context)
{
    enum { LOOP_MAX = 64 };
    ucontext_t *uc = context;
    uint64_t rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
    if (leave_at && leave_at - rip > LOOP_MAX) { /* the machine is slow: the loop has not begun */
        start_timer();
        return;
    }
    fired++;
    stop = 1;
    if (leave_at)
        uc->uc_mcontext.gregs[REG_RIP] = (greg_t)leave_at;
}

static void arm(uint64_t leave)
{
    fired = stop = 0;
    leave_at = leave;
    start_timer();
}

/* Each loop is named, runs until the signal, and leaves through the flag or the changed rip. */
static void flag_loops(void)
{
    arm(0);
    asm volatile("1: cmpl $0, %0\n je 1b\n" ::"m"(stop) : "cc");
    ok(fired == 1, "cmp, je");
    arm(0);
    asm volatile("1: testl $1, %0\n jz 1b\n" ::"m"(stop) : "cc");
    ok(fired == 1, "test, jz");
    arm(0);
    asm volatile("jmp 2f\n 1: jmp 2f\n 2: cmpl $0, %0\n jne 3f\n jmp 1b\n 3:\n" ::"m"(stop) : "cc");
    ok(fired == 1, "forward and backward jumps");
    arm(0);
    asm volatile("1: mov $1000, %%ecx\n 2: loop 2b\n mov %0, %%ecx\n jrcxz 1b\n" ::"m"(stop) : "rcx", "cc");
    ok(fired == 1, "loop, jrcxz");
    arm(0);
    asm volatile("lea 1f(%%rip), %%rax\n 1: cmpl $0, %0\n jne 2f\n jmp *%%rax\n 2:\n" ::"m"(stop)
                 : "rax", "cc");
    ok(fired == 1, "an indirect jump");
    arm(0);
    asm volatile(
        "sub $128, %%rsp\n 1: call 2f\n cmpl $0, %0\n je 1b\n jmp 3f\n 2: ret\n 3: add $128, %%rsp\n" ::"m"(
            stop)
        : "cc", "memory");
    ok(fired == 1, "calls and returns");
    arm(0);
    asm volatile(
        "1: stc\n 2: jnc 3f\n cmpl $0, %0\n stc\n jc 4f\n 4: mov %0, %%eax\n dec %%eax\n js 2b\n 3:\n" ::"m"(
            stop)
        : "rax", "cc");
    ok(fired == 1, "a loop with carry alive at its head");
    arm(0);
    while (!stop)
        ;
    ok(fired == 1, "while (!stop);");
    arm(0);
    volatile uint64_t n = 0;
    while (!stop)
        for (int i = 0; i < 1000; i++)
            n += (uint64_t)i * n;
    ok(fired == 1, "a loop that works");
}

static void jump_to_self(void)
{
    extern char after_self[], after_call[], after_ret[], after_rep[];
    arm((uint64_t)after_self);
    asm volatile("1: jmp 1b\n .globl after_self\n after_self:\n");
    ok(fired == 1, "a two-byte jump to itself");
    arm((uint64_t)after_call);
    asm volatile("lea 1f(%%rip), %%rax\n 1: jmp *%%rax\n .globl after_call\n after_call:\n" ::: "rax");
    ok(fired == 1, "an indirect jump to itself");
    arm((uint64_t)after_ret);
    asm volatile("mov %%rsp, %%rbx\n sub $128, %%rsp\n lea 1f(%%rip), %%rax\n 1: push %%rax\n ret\n .globl "
                 "after_ret\n after_ret: mov %%rbx, %%rsp\n" ::
                     : "rax", "rbx", "memory");
    ok(fired == 1, "a ret to itself");
    arm((uint64_t)after_rep);
    asm volatile("1: nop\n nop\n jmp 2f\n ud2\n 2: jmp 1b\n .globl after_rep\n after_rep:\n");
    ok(fired == 1, "a loop of two jumps");
}

/* Unwinding recursion has no backward jump, but returns. */
__attribute__((noinline)) static uint64_t recurse(uint64_t n)
{
    return n < 2 ? n : recurse(n - 1) + recurse(n - 2);
}

static void recursion(void)
{
    arm(0);
    uint64_t rounds = 0, sum = 0;
    while (!stop) {
        sum += recurse(18);
        rounds++;
    }
    ok(fired == 1 && sum == rounds * 2584, "recursion");
}

static void nested(int sig)
{
    fired++;
    if (fired < 10) {
        struct itimerval it = {{0, 0}, {0, 2000}};
        setitimer(ITIMER_REAL, &it, NULL);
        int mine = fired;
        while (fired == mine)
            ;
    }
    stop = 1;
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &sa, NULL);
    flag_loops();
    jump_to_self();
    recursion();
    sa.sa_flags = SA_NODEFER;
    sa.sa_handler = nested;
    sigaction(SIGALRM, &sa, NULL);
    arm(0);
    while (!stop)
        ;
    is(fired, 10, "ten nested handlers, each spinning for the next");
    return finish();
}
