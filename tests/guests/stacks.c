/* Stacks that grow: the main one up to its soft limit, by stores, loads, system calls and signal frames; MAP_GROWSDOWN; guard
 * gaps; overflow; executable stacks. */
// VARIANTS: o0 o2 static
#include "guest.h"
#include <setjmp.h>
#include <sys/resource.h>
#include <ucontext.h>

enum { P = 4096, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };
#define MB (1l << 20)

static sigjmp_buf back;
static volatile int code;
static char *volatile fault;
static volatile uintptr_t deepest;
static char *top; /* of the stack, nearly */

static void handler(int signo, siginfo_t *info, void *context)
{
    code = info->si_code;
    fault = info->si_addr;
    siglongjmp(back, 1);
}

static char *stack_start(void)
{
    char line[512], *start = NULL;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f))
        if (strstr(line, "[stack]"))
            start = (char *)strtoul(line, NULL, 16);
    fclose(f);
    return start;
}

static void limit_to(long size)
{
    struct rlimit r;
    getrlimit(RLIMIT_STACK, &r);
    r.rlim_cur = (rlim_t)size;
    if (setrlimit(RLIMIT_STACK, &r))
        ok(false, "setrlimit");
}

/* True when the byte can be touched. */
static bool touch(char *at, bool write_)
{
    if (sigsetjmp(back, 1))
        return false;
    if (write_)
        *(volatile char *)at = 1;
    else
        (void)*(volatile char *)at;
    return true;
}

static __attribute__((noinline)) int recurse(int depth)
{
    volatile char room[1000];
    room[0] = (char)depth;
    deepest = (uintptr_t)room;
    return depth ? recurse(depth - 1) + room[0] : 0;
}

static void grown(void)
{
    char *start = stack_start(), local;
    ok(start <= &local && &local - start < 256 * 1024, "the stack begins small");
    ok(touch(start - 8, true) && stack_start() == start - P, "a store below it grows it by a page");
    ok(touch(start - 100 * P, false) && stack_start() == start - 100 * P,
       "a load far below it grows it to there");
    ok(touch(start - 50 * P, true), "what lies between is there");
    start = stack_start();
    int p[2];
    pipe(p);
    write(p[1], "abc", 3);
    is(read(p[0], start - 3 * P, 3), 3, "a call that writes there");
    ok(!memcmp(start - 3 * P, "abc", 3) && stack_start() == start - 3 * P, "... grows it, too");
    start = stack_start();
    is(write(p[1], start - 10, 10), 10, "a call that reads there");
    close(p[0]), close(p[1]);
}

/* The fault comes where the limit is. */
static void overflow(long size)
{
    limit_to(size);
    if (!sigsetjmp(back, 1)) {
        recurse(1 << 30);
        ok(false, "no overflow");
    }
    long used = (long)((uintptr_t)top - deepest);
    ok(used > size - 96 * 1024 && used <= size, "recursion ends at the limit of %ld KiB", size >> 10);
    ok(code == SEGV_MAPERR && (uintptr_t)fault <= deepest + P && deepest - (uintptr_t)fault < 8 * P,
       "... with the fault below the last frame");
}

static void limits(void)
{
    overflow(2 * MB);
    overflow(8 * MB);
    char *start = stack_start();
    ok(!touch(start - 8 * MB, true) && fault == start - 8 * MB && code == SEGV_MAPERR,
       "nothing grows beyond the limit");
    limit_to(40 * MB);
    ok(touch(top - 39 * MB, true) && recurse(30000) != 12345, "a raised limit counts at once");
    limit_to(MB);
    start = stack_start();
    ok(!touch(start - P, true) && touch(start, true), "a lowered one ends growth");
    limit_to(8 * MB);
}

static void neighbours(void)
{
    limit_to(64 * MB);
    char *start = stack_start();
    char *m = mmap(start - 3 * MB, P, RW, ANON | MAP_FIXED, -1, 0);
    ok(touch(m + P + 256 * P, true), "a stack grows up to the gap above another mapping");
    ok(!touch(m + P + 256 * P - 1, true), "... and no further");
    mprotect(m, P, PROT_NONE);
    ok(touch(m + P + 10 * P, true) && touch(m + P, true), "memory that nobody can touch has no gap");
    ok(!touch(m + 5, true) && code == SEGV_ACCERR, "... and is a guard itself");
    munmap(m, P); /* the limit stays: the stack is longer than the old one by now */
}

static void grows_down(void)
{
    char *room = mmap(NULL, 2048 * P, PROT_NONE, ANON, -1, 0);
    munmap(room, 2048 * P);
    char *m = mmap(room + 2000 * P, 4 * P, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    int bad = 0;
    for (int i = 1; i <= 40; i++)
        bad += !touch(m - i * P + 100, i & 1);
    is(bad, 0, "MAP_GROWSDOWN grows page by page");
    ok(touch(m - 400 * P, true) && touch(m - 200 * P, true), "... and further");
    m -= 400 * P;
    char *near = mmap(m - 100 * P, P, RW, ANON, -1, 0);
    ok(near != m - 100 * P && (near >= m + 4 * P || near + P <= m - 256 * P), "nothing is placed in its gap");
    ok(mmap(m - 257 * P, P, RW, ANON, -1, 0) == m - 257 * P, "a hint below the gap counts");
    ok(!touch(m - P, true), "then it cannot grow");
    munmap(m - 257 * P, P);
    ok(mprotect(m + 10 * P, P, PROT_READ | PROT_GROWSDOWN) == 0 && !touch(m, true) && touch(m + 12 * P, true),
       "PROT_GROWSDOWN reaches down to its start");
    ok(touch(m - 3 * P, false) && !touch(m - 4 * P + 1, true) && code == SEGV_ACCERR,
       "what grows has its protection");
    ok(mprotect(m - 4 * P, P, PROT_READ | PROT_GROWSDOWN) == 0, "PROT_GROWSDOWN of what has grown");
    is(mprotect(room, P, PROT_READ | PROT_GROWSDOWN), -1, "PROT_GROWSDOWN where nothing is");
    is((long)mmap(NULL, P, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), -1,
       "shared memory does not grow");
    munmap(near, P);
}

static void forked(void)
{
    int status;
    char *start = stack_start();
    pid_t pid = fork();
    if (!pid)
        _exit(touch(start - 5 * P, true) && touch(start - 2 * P, true) && stack_start() == start - 5 * P ? 0
                                                                                                         : 1);
    waitpid(pid, &status, 0);
    is(status, 0, "a child's stack grows");
    ok(stack_start() == start && touch(start - P, true) && stack_start() == start - P,
       "the parent's grows by itself");
}

/* A signal frame that does not fit the pages that are there. */
static volatile int handled;
static void count(int signo)
{
    handled++;
}

static void frames(void)
{
    signal(SIGUSR1, count);
    char *start = stack_start();
    for (int i = 0; i < 5; i++) {
        char *sp =
            start - i * 3 * P + 300; /* rsp is moved there for the time of the call that raises the signal */
        long nr = SYS_kill, pid = getpid(), result;
        __asm__ volatile("mov %%rsp, %%rbx\n\tmov %4, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                         : "=a"(result)
                         : "a"(nr), "D"(pid), "S"((long)SIGUSR1), "r"(sp)
                         : "rbx", "rcx", "r11", "memory");
    }
    is(handled, 5, "signal frames grow the stack");
}

static __attribute__((noinline)) int run_on_stack(void)
{
    uint8_t room[64] = {0xb8, 42, 0, 0, 0, 0xc3};
    __asm__ volatile("" : : "r"(room) : "memory");
    return ((int (*)(void))room)();
}

static void executable(void)
{
    char *page = (char *)((uintptr_t)&page & ~(uintptr_t)(P - 1)), *start = stack_start();
    if (!sigsetjmp(back, 1))
        ((void (*)(void))(start - 10 * P))();
    ok(code == SEGV_ACCERR && fault == start - 10 * P && stack_start() == fault, "a jump below it grows it");
    is(mprotect(page, P, RW | PROT_EXEC | PROT_GROWSDOWN), 0, "the stack is made executable");
    is(run_on_stack(), 42, "code runs there");
    char *below = start - 20 * P;
    memcpy(below, "\xb8\x07\0\0\0\xc3", 6);
    is(((int (*)(void))below)(), 7, "... and where it grew");
}

/* Overflow of a stack of one's own into its guard, with shared memory on both sides. */
static ucontext_t main_context, own_context;
static void on_own_stack(void)
{
    recurse(1 << 30);
}

static void guard(void)
{
    char *m = mmap(NULL, 64 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *stack = mmap(m + 16 * P, 32 * P, RW, ANON | MAP_FIXED | MAP_STACK, -1, 0);
    memset(m, 7, 16 * P), memset(m + 48 * P, 7, 16 * P);
    mprotect(stack, P, PROT_NONE);
    volatile bool again = false;
    if (!sigsetjmp(back, 1)) {
        getcontext(&own_context);
        own_context.uc_stack.ss_sp = stack;
        own_context.uc_stack.ss_size = 32 * P;
        makecontext(&own_context, on_own_stack, 0);
        swapcontext(&main_context, &own_context);
        again = true;
    }
    int bad = 0;
    for (int i = 0; i < 16 * P; i++)
        bad += m[i] != 7 || m[48 * P + i] != 7;
    ok(!again && !bad && code == SEGV_ACCERR && fault >= stack && fault < stack + P,
       "overflow into a guard page");
}

int main(int argc, char **argv)
{
    static char other[65536];
    stack_t alt = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    struct rlimit r;
    getrlimit(RLIMIT_STACK, &r);
    if (r.rlim_cur < 8 * MB || r.rlim_max < 64 * MB) {
        say("skip: the limits on stacks are too low\n");
        return 0;
    }
    sigaltstack(&alt, NULL);
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGBUS, &a, NULL);
    alarm(60);
    top = (char *)&r;
    limit_to(8 * MB);
    grown();
    limits();
    neighbours();
    grows_down();
    forked();
    frames();
    guard();
    executable();
    return finish();
}
