/* Signal semantics: masks, flags, siginfo, waiting, queues, signalfd, altstack. */
// VARIANTS: o2 static
// FLAGS: -fno-stack-protector
#include "guest.h"
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <ucontext.h>

static volatile sig_atomic_t count, depth, deepest, last_signal;
static siginfo_t last_info;
static volatile int order[64], norder;

static void counter(int sig)
{
    count++;
    last_signal = sig;
}

static void keep_info(int sig, siginfo_t *info, void *context)
{
    count++;
    last_signal = sig;
    last_info = *info;
    if (norder < 64)
        order[norder++] = info->si_code == SI_QUEUE ? info->si_value.sival_int : sig;
}

static void reenter(int sig)
{
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (++count < 5)
        raise(sig);
    depth--;
}

static void set(int sig, void (*f)(int), int flags)
{
    struct sigaction sa = {.sa_handler = f, .sa_flags = flags};
    sigaction(sig, &sa, NULL);
}

static void set_info(int sig, int flags)
{
    struct sigaction sa = {.sa_sigaction = keep_info, .sa_flags = SA_SIGINFO | flags};
    sigaction(sig, &sa, NULL);
}

static sigset_t set_of(int a, int b)
{
    sigset_t s;
    sigemptyset(&s);
    if (a)
        sigaddset(&s, a);
    if (b)
        sigaddset(&s, b);
    return s;
}

static void flags(void)
{
    count = deepest = 0;
    set(SIGUSR1, reenter, SA_NODEFER);
    raise(SIGUSR1);
    ok(count == 5 && deepest == 5, "SA_NODEFER nests");
    count = deepest = 0;
    set(SIGUSR1, reenter, 0);
    raise(SIGUSR1);
    ok(count == 5 && deepest == 1, "without it the signal waits for the handler");
    count = 0;
    set(SIGUSR1, counter, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    ok(count == 1 && now.sa_handler == SIG_DFL, "SA_RESETHAND");
    struct sigaction sa = {.sa_handler = counter, .sa_flags = SA_RESTART}, got;
    sigaddset(&sa.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &sa, NULL);
    sigaction(SIGUSR1, NULL, &got);
    ok(got.sa_handler == counter && (got.sa_flags & 0x1bffffff) == SA_RESTART &&
           sigismember(&got.sa_mask, SIGUSR2) == 1,
       "sigaction reads back");
    is(sigaction(SIGKILL, &sa, NULL), -1, "SIGKILL refuses a handler");
    is(errno, EINVAL, "EINVAL");
    signal(SIGUSR1, SIG_IGN);
    raise(SIGUSR1);
    ok(true, "ignored");
}

static void masks(void)
{
    sigset_t block = set_of(SIGUSR1, SIGUSR2), old, pending;
    set(SIGUSR1, counter, 0);
    set(SIGUSR2, counter, 0);
    count = 0;
    sigprocmask(SIG_BLOCK, &block, &old);
    raise(SIGUSR1);
    raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    sigpending(&pending);
    ok(count == 0 && sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2),
       "blocked signals are pending");
    sigprocmask(SIG_SETMASK, &old, NULL);
    ok(count == 2, "and delivered once each when unblocked");
    count = 0;
    sigprocmask(SIG_BLOCK, &block, NULL);
    raise(SIGUSR1);
    sigset_t wait_mask = old;
    int r = sigsuspend(&wait_mask);
    ok(r == -1 && errno == EINTR && count == 1, "sigsuspend");
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    ok(sigismember(&now, SIGUSR1), "the mask is restored after sigsuspend");
    int sig = 0;
    raise(SIGUSR2);
    sigset_t two = set_of(SIGUSR2, 0);
    is(sigwait(&two, &sig), 0, "sigwait");
    ok(sig == SIGUSR2 && count == 1, "takes the signal without its handler");
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void infos(void)
{
    set_info(SIGUSR1, 0);
    union sigval value = {.sival_int = 1234};
    sigqueue(getpid(), SIGUSR1, value);
    ok(last_info.si_code == SI_QUEUE && last_info.si_value.sival_int == 1234 &&
           last_info.si_pid == getpid() && last_info.si_uid == getuid(),
       "sigqueue's value and sender");
    kill(getpid(), SIGUSR1);
    ok(last_info.si_code == SI_USER && last_info.si_pid == getpid(), "kill");
    raise(SIGUSR1);
    ok(last_info.si_code == SI_TKILL, "raise");
    /* real-time signals queue and keep their order */
    int rt = SIGRTMIN + 3;
    set_info(rt, 0);
    set_info(rt + 1, 0);
    sigset_t both = set_of(rt, rt + 1), old;
    sigprocmask(SIG_BLOCK, &both, &old);
    norder = 0;
    for (int i = 0; i < 10; i++) {
        value.sival_int = 100 + i;
        sigqueue(getpid(), i % 2 ? rt : rt + 1, value);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    /* each delivery interrupts the one before it, so the last delivered runs first */
    uint64_t h = digest(DIGEST_START, (void *)order, (size_t)norder * sizeof *order);
    is(norder, 10, "ten queued real-time signals");
    say("order");
    for (int i = 0; i < norder; i++)
        say(" %d", order[i]);
    say(" %llx\n", (unsigned long long)h);
    pid_t child = fork();
    if (child == 0)
        _exit(9);
    set_info(SIGCHLD, 0);
    sigset_t chld = set_of(SIGCHLD, 0);
    siginfo_t si;
    (void)chld;
    memset(&si, 0, sizeof si);
    waitid(P_PID, (id_t)child, &si, WEXITED);
    ok(si.si_signo == SIGCHLD && si.si_code == CLD_EXITED && si.si_status == 9 && si.si_pid == child,
       "waitid's siginfo");
    signal(SIGCHLD, SIG_DFL);
}

static void waiting(void)
{
    sigset_t s = set_of(SIGUSR1, SIGCHLD), old;
    sigprocmask(SIG_BLOCK, &s, &old);
    siginfo_t si;
    struct timespec none = {0, 0}, brief = {0, 3000000};
    is(sigtimedwait(&s, &si, &none), -1, "sigtimedwait with nothing there");
    is(errno, EAGAIN, "EAGAIN");
    is(sigtimedwait(&s, &si, &brief), -1, "sigtimedwait runs out");
    union sigval value = {.sival_int = 77};
    sigqueue(getpid(), SIGUSR1, value);
    is(sigwaitinfo(&s, &si), SIGUSR1, "sigwaitinfo");
    is(si.si_value.sival_int, 77, "its value");
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    is(sigwaitinfo(&s, &si), SIGCHLD, "sigwaitinfo of a child");
    ok(si.si_pid == child && si.si_status == 3 && si.si_code == CLD_EXITED, "which and how");
    waitpid(child, NULL, 0);
    int fd = signalfd(-1, &s, SFD_NONBLOCK | SFD_CLOEXEC);
    struct signalfd_siginfo sfi;
    is(read(fd, &sfi, sizeof sfi), -1, "empty signalfd");
    value.sival_int = 55;
    sigqueue(getpid(), SIGUSR1, value);
    is(read(fd, &sfi, sizeof sfi), sizeof sfi, "signalfd");
    ok(sfi.ssi_signo == SIGUSR1 && sfi.ssi_int == 55 && sfi.ssi_pid == (uint32_t)getpid(), "its contents");
    close(fd);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static stack_t alternate;
static volatile int on_alternate;
static volatile uint64_t handler_sp;
static sigjmp_buf recovered;

static void on_stack(int sig)
{
    char here;
    handler_sp = (uint64_t)&here;
    stack_t s;
    sigaltstack(NULL, &s);
    on_alternate = s.ss_flags;
    if (sig == SIGSEGV)
        siglongjmp(recovered, 1);
}

static bool inside_alternate(void)
{
    return handler_sp >= (uint64_t)alternate.ss_sp &&
           handler_sp < (uint64_t)alternate.ss_sp + alternate.ss_size;
}

__attribute__((noinline)) static int overflow(int n)
{
    volatile char big[4096];
    big[0] = (char)n;
    return overflow(n + 1) + big[0];
}

static void stacks(void)
{
    alternate.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    alternate.ss_size = 65536;
    is(sigaltstack(&alternate, NULL), 0, "sigaltstack");
    set(SIGUSR1, on_stack, SA_ONSTACK);
    raise(SIGUSR1);
    ok(inside_alternate() && on_alternate == SS_ONSTACK, "the handler runs there");
    stack_t now;
    sigaltstack(NULL, &now);
    ok(now.ss_flags == 0 && now.ss_sp == alternate.ss_sp, "and leaves it");
    set(SIGUSR1, on_stack, 0);
    raise(SIGUSR1);
    ok(!inside_alternate() && on_alternate == 0, "without SA_ONSTACK it does not");
    set(SIGSEGV, on_stack, SA_ONSTACK);
    struct rlimit small = {1 << 20, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_STACK, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_STACK, &small);
    volatile int times = 0;
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(recovered, 1) == 0)
            overflow(0);
        else
            times += inside_alternate();
    }
    is(times, 3, "stack overflow caught on the alternate stack, three times");
    setrlimit(RLIMIT_STACK, &before);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    signal(SIGSEGV, SIG_DFL);
}

int main(void)
{
    flags();
    masks();
    infos();
    waiting();
    stacks();
    return finish();
}
