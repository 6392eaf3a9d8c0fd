/* Control that leaves functions sideways: longjmp, siglongjmp, contexts, coroutines. */
// VARIANTS: o0 o2 static
#include "guest.h"
#include <setjmp.h>
#include <ucontext.h>

static jmp_buf env;
static sigjmp_buf signal_env;

__attribute__((noinline)) static void dive(int n)
{
    if (n == 0)
        longjmp(env, 42);
    dive(n - 1);
    say("not ok dive returned\n");
}

static void longjmps(void)
{
    volatile int rounds = 0;
    int r = setjmp(env);
    if (rounds++ < 1000) {
        if (r != 0 && r != 42)
            say("not ok setjmp gave %d\n", r);
        dive(rounds % 50);
    }
    is(rounds, 1001, "longjmp out of recursion 1000 times");
}

static void handler(int sig)
{
    siglongjmp(signal_env, sig);
}

static void from_signals(void)
{
    signal(SIGUSR1, handler);
    signal(SIGSEGV, handler);
    volatile int usr1 = 0, segv = 0;
    for (volatile int i = 0; i < 200; i++) {
        int r = sigsetjmp(signal_env, 1);
        if (r == 0) {
            if (i & 1)
                raise(SIGUSR1);
            else
                *(volatile int *)8 = 1;
            say("not ok came back\n");
        }
        if (r == SIGUSR1)
            usr1++;
        if (r == SIGSEGV)
            segv++;
    }
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    ok(usr1 == 100 && segv == 100 && !sigismember(&set, SIGUSR1) && !sigismember(&set, SIGSEGV),
       "siglongjmp out of handlers restores the mask");
}

static ucontext_t main_context, contexts[3];
static int turns[3], order[400], norder;

static void coroutine(int self)
{
    for (int i = 0; i < 100; i++) {
        turns[self]++;
        order[norder++] = self;
        swapcontext(&contexts[self], &contexts[(self + 1) % 3]);
    }
}

static void coroutines(void)
{
    static char stacks[3][65536];
    for (int i = 0; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    swapcontext(&main_context, &contexts[0]);
    bool good = norder == 300;
    for (int i = 0; i < norder; i++)
        good = good && order[i] == i % 3;
    ok(good && turns[0] == 100 && turns[1] == 100 && turns[2] == 100, "three contexts take turns");
}

/* A coroutine switch as libraries write it: returns on another stack. */
asm(".text\nswitch_to:\n push %rbp\n push %rbx\n push %r12\n mov %rsp, (%rdi)\n mov %rsi, %rsp\n pop %r12\n "
    "pop %rbx\n pop %rbp\n ret\n");
void switch_to(void **save, void *to);
static void *main_stack, *other_stack;
static long ping;

static void pong(void)
{
    for (;;) {
        ping++;
        switch_to(&other_stack, main_stack);
    }
}

static void stack_switches(void)
{
    static uint64_t stack[8192];
    uint64_t *top = &stack[8190];
    *top = (uint64_t)pong;
    other_stack = top - 3;
    for (int i = 0; i < 100000; i++)
        switch_to(&main_stack, other_stack);
    is(ping, 100000, "100000 switches of stacks");
}

int main(void)
{
    longjmps();
    from_signals();
    coroutines();
    stack_switches();
    return finish();
}
