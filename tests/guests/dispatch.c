/* PR_SET_SYSCALL_USER_DISPATCH: which calls go to the program, what it is told of them, who inherits it. */
// VARIANTS: o2 static
#include "guest.h"
#include <sys/prctl.h>
#include <ucontext.h>

enum { DISPATCH = 59, OFF = 0, ON = 1, INCLUSIVE = 2, ALLOW = 0, BLOCK = 1 };

static volatile char selector;
static volatile int hits;
static siginfo_t info;
static uint64_t frame_rip, frame_rax, frame_rcx, frame_r11, frame_flags;
static uint64_t saved_mask;
static long answer;

static void on_sigsys(int sig, siginfo_t *i, void *context)
{
    ucontext_t *u = context;
    greg_t *g = u->uc_mcontext.gregs;
    selector = ALLOW;
    hits++;
    info = *i;
    frame_rip = (uint64_t)g[REG_RIP];
    frame_rax = (uint64_t)g[REG_RAX];
    frame_rcx = (uint64_t)g[REG_RCX];
    frame_r11 = (uint64_t)g[REG_R11];
    frame_flags = (uint64_t)g[REG_EFL];
    memcpy(&saved_mask, &u->uc_sigmask, 8);
    g[REG_RAX] = answer;
}

static long p(long mode, unsigned long offset, unsigned long length, volatile void *at)
{
    long r = syscall(SYS_prctl, DISPATCH, mode, offset, length, at);
    return r < 0 ? -errno : r;
}

extern const char inside_start[], inside_end[], outside_end[];
__asm__(".text\n"
        "inside: movq %rdi, %rax\n movq %rsi, %rdi\n"
        "inside_start: syscall\n"
        "inside_end: ret\n"
        "outside: movq %rdi, %rax\n movq %rsi, %rdi\n syscall\n"
        "outside_end: ret\n"
        ".globl inside_start, inside_end, outside_end\n");
long inside(long nr, long arg), outside(long nr, long arg);

static void arguments(void)
{
    is(p(OFF, 1, 0, NULL), -EINVAL, "off with an offset");
    is(p(OFF, 0, 1, NULL), -EINVAL, "off with a length");
    is(p(OFF, 0, 0, &selector), -EINVAL, "off with a selector");
    is(p(77, 0, 0, NULL), -EINVAL, "no mode");
    is(p(ON, 1, 0, NULL), -EINVAL, "an empty range");
    is(p(ON, 2, -1ul, NULL), -EINVAL, "a range that wraps");
    is(p(ON, 0, 0, (void *)-8l), -EFAULT, "a selector of the kernel's");
    is(p(OFF, 0, 0, NULL), 0, "off when it is off");
}

static void told(void)
{
    is(p(ON, 0, 0, &selector), 0, "on");
    for (int i = 0; i < 5; i++) {
        answer = 4242 + i;
        hits = 0;
        selector = BLOCK;
        long r = outside(i == 4 ? 100000 : SYS_getpid, 7);
        ok(r == answer && hits == 1, "the program answers");
        ok(info.si_signo == SIGSYS && info.si_code == 2 && info.si_call_addr == outside_end &&
               info.si_syscall == (i == 4 ? 100000 : SYS_getpid) && info.si_arch == 0xc000003e &&
               !info.si_errno,
           "what it is told");
        ok(frame_rip == (uint64_t)outside_end && frame_rax == (uint64_t)info.si_syscall &&
               frame_rcx == frame_rip && (frame_r11 | 0x10000) == (frame_flags | 0x10000),
           "registers are as after a call");
    }
    selector = ALLOW;
    hits = 0;
    ok(outside(SYS_getpid, 0) == getpid() && !hits, "allowed");
}

static void ranges(void)
{
    const uint64_t start = (uint64_t)inside_start, end = (uint64_t)inside_end;
    answer = 5;
    selector = ALLOW;
    p(ON, start, end - start + 1, &selector);
    selector = BLOCK;
    long in = inside(SYS_getppid, 0);
    int before = hits;
    long out = outside(SYS_getppid, 0);
    ok(in == getppid() && !before && hits == 1 && out == 5,
       "from the range to the kernel, from elsewhere to the program");
    if (p(INCLUSIVE, start, end - start + 1, &selector) == 0) { /* Linux 6.17 */
        hits = 0;
        selector = BLOCK;
        out = outside(SYS_getppid, 0);
        before = hits;
        in = inside(SYS_getppid, 0);
        ok(out == getppid() && !before && hits == 1 && in == 5, "and the other way round");
    }
    selector = ALLOW;
    p(ON, start, end - start + 1, &selector);
    hits = 0;
}

static void others(void)
{
    int status;
    sigset_t set, old;
    selector = ALLOW;
    pid_t child = fork();
    if (!child) {
        selector = BLOCK;
        hits = 0;
        long r = outside(SYS_getppid, 0);
        selector = ALLOW;
        _exit(r > 0 && !hits ? 3 : 4);
    }
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 3, "a child does not inherit it");
    child = fork();
    if (!child) {
        p(ON, 0, 0, &selector);
        sigemptyset(&set);
        sigaddset(&set, SIGSYS);
        sigprocmask(SIG_BLOCK, &set, &old);
        selector = BLOCK;
        outside(SYS_getpid, 0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "blocked SIGSYS kills");
    child = fork();
    if (!child) {
        signal(SIGSYS, SIG_IGN);
        p(ON, 0, 0, &selector);
        selector = BLOCK;
        outside(SYS_getpid, 0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "ignored SIGSYS, too");
    child = fork();
    if (!child) {
        p(ON, 0, 0, &selector);
        selector = 9;
        outside(SYS_getpid, 0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "so does a selector of no meaning");
    child = fork();
    if (!child) {
        p(ON, 0, 0, (void *)8);
        outside(SYS_getpid, 0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "and one that cannot be read");
    child = fork();
    if (!child) {
        p(ON, 0, 0, &selector);
        execl("/proc/self/exe", "dispatch", "exec", NULL);
    }
    waitpid(child, &status, 0);
    is(status, 0, "an executed program does not inherit it");
}

/* Signals that wait come before the call is looked at; those that come with it are stacked on it. */
static volatile int order[4], norder;
static void on_usr1(int sig)
{
    order[norder++ & 3] = sig;
}

static void with_signals(void)
{
    signal(SIGUSR1, on_usr1);
    answer = 1;
    hits = 0;
    selector = ALLOW;
    p(ON, 0, 0, &selector);
    kill(getpid(), SIGUSR1);
    selector = BLOCK;
    long r = outside(SYS_getpid, 0);
    ok(norder == 1 && hits == 1 && r == 1 && saved_mask == 0, "after another signal");
    p(OFF, 0, 0, NULL);
    selector = BLOCK;
    ok(outside(SYS_getpid, 0) == getpid(), "off");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        selector = BLOCK;
        return 0;
    }
    struct sigaction a = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &a, NULL);
    arguments();
    told();
    ranges();
    p(OFF, 0, 0, NULL);
    others();
    with_signals();
    return finish();
}
