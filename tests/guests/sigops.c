/*
 * Random sequences of what a program can do with its own signals: send, block, wait for, handle, fault, return. All of them are
 * its own, so everything that happens is determined; it is printed, and must be the same natively.
 */
// VARIANTS: o2
// RUNS: 1|5|14|24
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <ucontext.h>

enum { SEQUENCES = 25, OPERATIONS = 60, DEPTH = 3, STACK = 65536 };

static const int signals[] = {SIGHUP,  SIGINT,  SIGUSR1, SIGUSR2,  SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                              SIGTRAP, SIGCHLD, SIGURG,  SIGWINCH, 34,      35,     50,     64};
enum { COUNT = sizeof signals / sizeof signals[0] };

static uint64_t state;
static int depth, operation, value;
static char stacks[2][STACK];
static int epoll_fd, pipe_fds[2];

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static int some_signal(void)
{
    return signals[draw(COUNT)];
}

/* Sparse masks of the signals above, and full ones. */
static uint64_t some_mask(void)
{
    uint64_t m = 0;
    if (draw(6) == 0)
        return ~0ull;
    for (int i = 0; i < COUNT; i++)
        if (draw(3) == 0)
            m |= 1ull << (signals[i] - 1);
    return m;
}

static uint64_t mask_now(void)
{
    uint64_t now;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
    return now;
}

static void operate(void);

static void handler(int sig, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    greg_t *g = u->uc_mcontext.gregs;
    uint64_t saved;
    char here;
    stack_t now;
    sigaltstack(NULL, &now);
    memcpy(&saved, &u->uc_sigmask, 8);
    int on = &here >= stacks[0] && &here < stacks[0] + STACK   ? 1
             : &here >= stacks[1] && &here < stacks[1] + STACK ? 2
                                                               : 0;
    bool fault = info->si_code > 0 && info->si_code != 77 && sig != SIGCHLD;
    say("  %*sgot %d code %d value %d saved %llx inside %llx stack %d flags %x %x trap %lld error %lld\n",
        depth, "", sig, info->si_code, info->si_code == SI_QUEUE ? info->si_value.sival_int : 0,
        (unsigned long long)saved, (unsigned long long)mask_now(), on, (unsigned)now.ss_flags,
        (unsigned)u->uc_stack.ss_flags, g[REG_TRAPNO], g[REG_ERR]);
    if (fault && sig != SIGTRAP)
        g[REG_RIP] += 2;
    if (draw(4) == 0 && depth < DEPTH) {
        depth++;
        operate();
        depth--;
    }
    if (draw(6) == 0) {
        saved ^= 1ull << (some_signal() - 1);
        memcpy(&u->uc_sigmask, &saved, 8);
    }
}

static void plain(int sig)
{
    say("  %*splain %d inside %llx\n", depth, "", sig, (unsigned long long)mask_now());
}

/* A handler that does not skip the instruction would run for ever. */
static bool raises(int sig)
{
    return sig == SIGSEGV || sig == SIGFPE || sig == SIGILL;
}

static void change_action(void)
{
    static const int flags[] = {SA_NODEFER, SA_RESETHAND, SA_ONSTACK, SA_RESTART};
    int sig = some_signal(), kind = (int)draw(12);
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    uint64_t m = draw(2) ? some_mask() : 0;
    for (int i = 0; i < 4; i++)
        if (draw(i == 1 ? 12 : 3) == 0)
            a.sa_flags |= flags[i];
    memcpy(&a.sa_mask, &m, 8);
    if (kind == 0)
        a.sa_handler = SIG_IGN, a.sa_flags &= ~SA_SIGINFO;
    else if (kind == 1 && (draw(40) == 0 || sig == SIGCHLD || sig == SIGURG || sig == SIGWINCH))
        a.sa_handler = SIG_DFL, a.sa_flags &= ~SA_SIGINFO;
    else if (kind == 2 && !raises(sig))
        a.sa_handler = plain, a.sa_flags &= ~SA_SIGINFO;
    say("action %d kind %d flags %x mask %llx\n", sig, kind, (unsigned)a.sa_flags, (unsigned long long)m);
    sigaction(sig, &a, NULL);
}

static void send(void)
{
    union sigval v = {.sival_int = ++value};
    int sig = some_signal(), how = (int)draw(4);
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = 77;
    say("send %d by %d\n", sig, how);
    if (how == 0)
        raise(sig);
    else if (how == 1)
        kill(getpid(), sig);
    else if (how == 2)
        sigqueue(getpid(), sig, v);
    else
        syscall(SYS_rt_sigqueueinfo, getpid(), sig, &info);
}

static void change_mask(void)
{
    int how = (int)draw(3);
    uint64_t m = some_mask();
    if (how == SIG_BLOCK && draw(2))
        how = SIG_UNBLOCK;
    say("mask %d %llx\n", how, (unsigned long long)m);
    syscall(SYS_rt_sigprocmask, how, &m, NULL, 8);
}

static void change_stack(void)
{
    static const int flags[] = {0, 0, SS_ONSTACK, SS_DISABLE, (int)(1u << 31), 7};
    stack_t s = {.ss_sp = stacks[draw(2)], .ss_size = draw(5) ? STACK : 100, .ss_flags = flags[draw(6)]};
    int r = sigaltstack(&s, NULL) ? errno : 0;
    sigaltstack(NULL, &s);
    say("stack: %d, flags %x size %zu\n", r, (unsigned)s.ss_flags, s.ss_size);
}

static void wait_with_mask(void)
{
    uint64_t m = some_mask(), pending;
    struct timespec t = {0, 1};
    struct pollfd p = {pipe_fds[0], POLLIN, 0};
    struct epoll_event ev;
    struct {
        const void *mask;
        size_t size;
    } pair = {&m, 8};
    fd_set r;
    int which = (int)draw(5);
    syscall(SYS_rt_sigpending, &pending, 8);
    long result = 0;
    errno = 0;
    FD_ZERO(&r);
    switch (which) {
    case 0:
        result = syscall(SYS_ppoll, &p, 1, &t, &m, 8);
        break;
    case 1:
        result = syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, &pair);
        break;
    case 2:
        result = syscall(SYS_epoll_pwait, epoll_fd, &ev, 1, 0, &m, 8);
        break;
    case 3:
        result = syscall(SYS_epoll_pwait2, epoll_fd, &ev, 1, &t, &m, 8);
        break;
    default: { /* only when something will end it */
        struct sigaction a;
        bool ends = false;
        for (int i = 0; i < COUNT && !ends; i++) {
            sigaction(signals[i], NULL, &a);
            ends = (pending & ~m & 1ull << (signals[i] - 1)) && a.sa_handler != SIG_IGN &&
                   a.sa_handler != SIG_DFL;
        }
        result = ends ? syscall(SYS_rt_sigsuspend, &m, 8) : 7;
    }
    }
    say("wait %d with %llx: %ld %d\n", which, (unsigned long long)m, result, result < 0 ? errno : 0);
}

static void take(void)
{
    uint64_t m = some_mask(), pending;
    struct timespec none = {0, 0};
    siginfo_t info = {0};
    errno = 0;
    syscall(SYS_rt_sigpending, &pending, 8);
    if (draw(2)) {
        long r = syscall(SYS_rt_sigtimedwait, &m, &info, &none, 8);
        say("take %llx of %llx: %ld code %d errno %d\n", (unsigned long long)m, (unsigned long long)pending,
            r, info.si_code, r < 0 ? errno : 0);
        return;
    }
    struct signalfd_siginfo f = {0};
    int fd = (int)syscall(SYS_signalfd4, -1, &m, 8, SFD_NONBLOCK);
    long r = read(fd, &f, sizeof f);
    say("read %llx of %llx: %ld signal %u code %d\n", (unsigned long long)m, (unsigned long long)pending, r,
        f.ssi_signo, f.ssi_code);
    close(fd);
}

static void fault(void)
{
    static const int raised[] = {SIGSEGV, SIGILL, SIGTRAP, SIGFPE};
    int which = (int)draw(4);
    struct sigaction a;
    sigaction(raised[which], NULL, &a);
    bool deadly =
        a.sa_handler == SIG_IGN || a.sa_handler == SIG_DFL || (mask_now() >> (raised[which] - 1) & 1);
    say("fault %d\n", which);
    if (deadly && draw(10))
        return;
    switch (which) { /* the handler skips two bytes */
    case 0:
        __asm__ volatile("movl $0x40, %%eax; movb (%%rax), %%al" : : : "rax");
        break;
    case 1:
        __asm__ volatile("ud2");
        break;
    case 2:
        __asm__ volatile("int3");
        break;
    default:
        __asm__ volatile("xorl %%ecx, %%ecx; divl %%ecx" : : : "rax", "rcx", "rdx");
    }
}

static void operate(void)
{
    say("%*s%d: ", depth, "", operation++);
    switch (draw(12)) {
    case 0:
    case 1:
        change_action();
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        send();
        break;
    case 6:
    case 7:
        change_mask();
        break;
    case 8:
        change_stack();
        break;
    case 9:
        wait_with_mask();
        break;
    case 10:
        take();
        break;
    default:
        fault();
    }
}

static void sequence(void)
{
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < COUNT; i++)
        sigaction(signals[i], &a, NULL);
    epoll_fd = epoll_create1(0);
    pipe(pipe_fds);
    for (int i = 0; i < OPERATIONS; i++)
        operate();
    say("end: mask %llx\n", (unsigned long long)mask_now());
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int deaths = 0, status;
    for (uint64_t i = 0; i < SEQUENCES; i++) {
        say("sequence %llu\n", (unsigned long long)i);
        pid_t child = fork();
        if (!child) {
            state = seed * 1000 + i;
            sequence();
            _exit(0);
        }
        waitpid(child, &status, 0);
        say("status %x\n", (unsigned)status & ~0x80u);
        deaths += WIFSIGNALED(status);
    }
    say("%d of %d killed\n", deaths, SEQUENCES);
    return finish();
}
