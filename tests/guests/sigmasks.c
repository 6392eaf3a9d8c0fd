/*
 * Masks for the time of a call: which signals come, what the handler and the frame have, what remains;
 * several signals at once; signals that instructions raise, sent and held back.
 */
// VARIANTS: o2 static
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <ucontext.h>

enum { RT = 40 };
static volatile int seen[64], nseen;
static volatile uint64_t inside[64], saved[64];
static siginfo_t infos[64];

static uint64_t bit(int sig)
{
    return 1ull << (sig - 1);
}

static uint64_t mask_now(void)
{
    uint64_t now;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
    return now;
}

static void set_mask(uint64_t m)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &m, NULL, 8);
}

static void note(int sig, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;
    int i = nseen++ % 64;
    seen[i] = sig;
    infos[i] = *info;
    memcpy((void *)&saved[i], &u->uc_sigmask, 8);
    inside[i] = mask_now();
}

static void handle(int sig, int flags, uint64_t mask)
{
    struct sigaction a = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    memcpy(&a.sa_mask, &mask, 8);
    sigaction(sig, &a, NULL);
}

/* ---- each call ---- */

static int pipe_fds[2], epoll_fd;

enum call { PPOLL, PSELECT, EPOLL, EPOLL2, SUSPEND, CALLS };
static const char *const names[] = {"ppoll", "pselect6", "epoll_pwait", "epoll_pwait2", "rt_sigsuspend"};

static long call_with(enum call k, const void *mask, size_t size, int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    struct pollfd p = {pipe_fds[0], POLLIN, 0};
    struct epoll_event ev;
    struct {
        const void *mask;
        size_t size;
    } pair = {mask, size};
    fd_set r;
    FD_ZERO(&r);
    FD_SET(pipe_fds[0], &r);
    switch (k) {
    case PPOLL:
        return syscall(SYS_ppoll, &p, 1, &t, mask, size);
    case PSELECT:
        return syscall(SYS_pselect6, pipe_fds[0] + 1, &r, NULL, NULL, &t, &pair);
    case EPOLL:
        return syscall(SYS_epoll_pwait, epoll_fd, &ev, 1, ms, mask, size);
    case EPOLL2:
        return syscall(SYS_epoll_pwait2, epoll_fd, &ev, 1, &t, mask, size);
    default:
        return syscall(SYS_rt_sigsuspend, mask, size);
    }
}

static void interrupted(enum call k)
{
    const uint64_t outer = bit(SIGUSR1) | bit(SIGHUP), temp = bit(SIGUSR2) | bit(SIGTERM);
    handle(SIGUSR1, SA_RESTART, bit(SIGALRM));
    set_mask(outer);
    raise(SIGUSR1);
    nseen = 0;
    long r = call_with(k, &temp, 8, 5000);
    ok(r == -1 && errno == EINTR && nseen == 1 && seen[0] == SIGUSR1,
       "%s: a signal that only its mask lets through", names[k]);
    ok(saved[0] == outer, "%s: the frame has the mask from before", names[k]);
    ok(inside[0] == (temp | bit(SIGALRM) | bit(SIGUSR1)), "%s: the handler's is built on the call's",
       names[k]);
    ok(mask_now() == outer, "%s: the mask is as before", names[k]);
}

static void several(enum call k)
{
    const uint64_t outer = bit(SIGUSR1) | bit(SIGUSR2) | bit(SIGHUP) | bit(RT), temp = bit(SIGTERM);
    union sigval v = {.sival_int = 7};
    handle(SIGUSR1, 0, 0);
    handle(SIGUSR2, 0, 0);
    handle(SIGHUP, 0, 0);
    handle(RT, 0, 0);
    set_mask(outer);
    sigqueue(getpid(), RT, v);
    kill(getpid(), SIGUSR2);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGHUP);
    nseen = 0;
    long r = call_with(k, &temp, 8, 5000);
    /* frames are stacked in the order of numbers, so that the last one runs first */
    ok(r == -1 && errno == EINTR && nseen == 4 && seen[0] == RT && seen[1] == SIGUSR2 && seen[2] == SIGUSR1 &&
           seen[3] == SIGHUP,
       "%s: four at once, the last on top", names[k]);
    ok(saved[3] == outer && saved[2] == (temp | bit(SIGHUP)) &&
           saved[0] == (temp | bit(SIGHUP) | bit(SIGUSR1) | bit(SIGUSR2)),
       "%s: each frame has the mask of the one below", names[k]);
    ok(mask_now() == outer, "%s: and the first the program's", names[k]);
}

static void ready(enum call k)
{
    const uint64_t outer = bit(SIGUSR1), temp = 0;
    struct sigaction a;
    if (k == SUSPEND)
        return;
    handle(SIGUSR1, 0, 0);
    set_mask(outer);
    write(pipe_fds[1], "x", 1);
    raise(SIGUSR1);
    nseen = 0;
    long r = call_with(k, &temp, 8, 5000);
    int during = nseen;
    sigset_t pending;
    sigpending(&pending);
    ok(r == 1 && !during && sigismember(&pending, SIGUSR1), "%s: ready comes before a signal, which waits",
       names[k]);
    char c;
    read(pipe_fds[0], &c, 1);
    sigaction(SIGUSR1, NULL, &a);
    signal(SIGUSR1, SIG_IGN);
    sigaction(SIGUSR1, &a, NULL);
    set_mask(0);
    is(nseen, 0, "which an ignoring disposition throws away");
}

static void arguments(enum call k)
{
    const uint64_t temp = 0;
    is(call_with(k, &temp, 4, 1), -1, "a set of another size");
    is(errno, EINVAL, "is EINVAL");
    is(call_with(k, (void *)8, 8, 1), -1, "a set out of memory");
    is(errno, EFAULT, "is EFAULT");
    if (k == SUSPEND)
        return;
    set_mask(bit(SIGUSR1));
    raise(SIGUSR1);
    nseen = 0;
    is(call_with(k, NULL, 8, 2), 0, "no set: times out");
    is(nseen, 0, "and nothing comes");
    set_mask(0);
    is(nseen, 1, "before it is let through");
    ok(mask_now() == 0, "the mask is empty");
}

static void ignored(enum call k)
{
    const uint64_t temp = bit(SIGCHLD);
    if (k == SUSPEND)
        return;
    pid_t self = getpid(), child;
    signal(SIGUSR2, SIG_IGN);
    set_mask(bit(SIGUSR1));
    nseen = 0;
    if (!(child = fork())) {
        usleep(10000);
        kill(self, SIGUSR2);
        kill(self, SIGSTOP);
        usleep(5000);
        kill(self, SIGCONT);
        usleep(5000);
        write(pipe_fds[1], "x", 1);
        _exit(0);
    }
    long r;
    while ((r = call_with(k, &temp, 8, 10000)) < 0 && errno == EINTR && (k == EPOLL || k == EPOLL2))
        ; /* these do not begin again after a stop */
    char c;
    ok(r == 1 && !nseen, "%s: ignored signals and a stop end nothing", names[k]);
    read(pipe_fds[0], &c, 1);
    waitpid(child, NULL, 0);
    ok(mask_now() == bit(SIGUSR1), "%s: the mask is as before", names[k]);
    set_mask(0);
}

/* ---- several at once elsewhere ---- */

static void at_once(void)
{
    for (int sig = SIGHUP; sig <= SIGUSR2; sig++)
        if (sig == SIGHUP || sig == SIGINT || sig == SIGQUIT || sig == SIGUSR1 || sig == SIGUSR2)
            handle(sig, 0, 0);
    set_mask(~0ull);
    kill(getpid(), SIGUSR2);
    raise(SIGINT); /* a thread's own come before those of the process */
    kill(getpid(), SIGHUP);
    raise(SIGQUIT);
    kill(getpid(), SIGUSR1);
    nseen = 0;
    set_mask(0);
    ok(nseen == 5 && seen[4] == SIGINT && seen[3] == SIGQUIT && seen[2] == SIGHUP && seen[1] == SIGUSR1 &&
           seen[0] == SIGUSR2,
       "sigprocmask: a task's own first, then by number, all before the program goes on");
    ok(saved[4] == 0 && saved[0] == (bit(SIGINT) | bit(SIGQUIT) | bit(SIGHUP) | bit(SIGUSR1)),
       "one mask on another");
    handle(SIGUSR1, 0, bit(SIGUSR2));
    set_mask(~0ull);
    raise(SIGUSR1);
    raise(SIGUSR2);
    nseen = 0;
    set_mask(0);
    ok(nseen == 2 && seen[0] == SIGUSR1 && seen[1] == SIGUSR2,
       "a handler's mask makes the second wait for it");
    for (int i = 0; i < 3; i++) {
        union sigval v = {.sival_int = i};
        handle(RT, SA_NODEFER, 0);
        set_mask(~0ull);
        for (int j = 0; j < 4; j++) {
            v.sival_int = 10 * i + j;
            sigqueue(getpid(), RT, v);
        }
        nseen = 0;
        set_mask(0);
        ok(nseen == 4 && infos[0].si_value.sival_int == 10 * i + 3 && infos[3].si_value.sival_int == 10 * i,
           "SA_NODEFER: queued ones are stacked in their order");
    }
}

/* ---- signals that instructions raise, sent ---- */

static const int sync_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

static void queue(int sig, int code, int value)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = code;
    info.si_pid = getpid();
    info.si_value.sival_int = value;
    syscall(SYS_rt_sigqueueinfo, getpid(), sig, &info);
}

static void sent(int sig)
{
    handle(sig, 0, 0);
    set_mask(0);
    nseen = 0;
    kill(getpid(), sig);
    ok(nseen == 1 && seen[0] == sig && infos[0].si_code == SI_USER && infos[0].si_pid == getpid(),
       "signal %d by kill", sig);
    raise(sig);
    ok(nseen == 2 && infos[1].si_code == SI_TKILL, "signal %d by tgkill", sig);
    for (int code = 1; code < 8; code++)
        queue(sig, code, 33);
    queue(sig, SI_KERNEL, 33);
    ok(nseen == 10 && infos[2].si_code == 1 && infos[8].si_code == 7 && infos[9].si_code == SI_KERNEL &&
           infos[9].si_value.sival_int == 33,
       "signal %d with a fault's codes", sig);
}

static void held(int sig)
{
    sigset_t set, pending;
    siginfo_t info;
    struct timespec none = {0, 0}, some = {5, 0};
    sigemptyset(&set);
    sigaddset(&set, sig);
    set_mask(bit(sig));
    nseen = 0;
    queue(sig, SI_QUEUE, 5);
    queue(sig, SI_QUEUE, 6); /* not queued: no real-time signal */
    sigpending(&pending);
    ok(!nseen && sigismember(&pending, sig) == 1, "signal %d waits while it is blocked", sig);
    ok(sigtimedwait(&set, &info, &none) == sig && info.si_code == SI_QUEUE && info.si_value.sival_int == 5,
       "sigtimedwait takes it");
    is(sigtimedwait(&set, &info, &none), -1, "once");
    pid_t self = getpid(), child;
    if (!(child = fork())) {
        usleep(5000);
        kill(self, sig);
        _exit(0);
    }
    ok(sigtimedwait(&set, &info, &some) == sig && info.si_pid == child, "and waits for it");
    waitpid(child, NULL, 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    struct pollfd p = {fd, POLLIN, 0};
    struct signalfd_siginfo f;
    raise(sig);
    ok(poll(&p, 1, 0) == 1 && read(fd, &f, sizeof f) == sizeof f && f.ssi_signo == (uint32_t)sig,
       "signalfd has it");
    is(poll(&p, 1, 0), 0, "once");
    close(fd);
    raise(sig);
    raise(SIGUSR1);
    ok(nseen == 1 && seen[0] == SIGUSR1, "others come");
    kill(getpid(), SIGUSR2);
    if (!(child = fork())) {
        sigpending(&pending);
        _exit(sigismember(&pending, sig));
    }
    int status;
    waitpid(child, &status, 0);
    is(status, 0, "a child inherits no pending signal");
    nseen = 0;
    set_mask(0);
    ok(nseen == 1 && seen[0] == sig && infos[0].si_code == SI_TKILL, "it comes when it is let through");
    set_mask(~0ull);
    kill(getpid(), sig);
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGUSR2);
    nseen = 0;
    set_mask(0);
    ok(nseen == 3 && seen[2] == sig && seen[1] == SIGHUP && seen[0] == SIGUSR2, "before others");
}

/* A blocked one does not end a call; neither does an ignored one. */
static void undisturbed(int sig)
{
    pid_t self = getpid(), child;
    char c;
    for (int i = 0; i < 2; i++) {
        if (i)
            signal(sig, SIG_IGN);
        set_mask(i ? 0 : bit(sig));
        nseen = 0;
        if (!(child = fork())) {
            usleep(5000);
            kill(self, sig);
            usleep(5000);
            write(pipe_fds[1], "x", 1);
            _exit(0);
        }
        struct pollfd p = {pipe_fds[0], POLLIN, 0};
        ok(poll(&p, 1, 10000) == 1 && !nseen, "poll goes on when signal %d is %s", sig,
           i ? "ignored" : "blocked");
        read(pipe_fds[0], &c, 1);
        waitpid(child, NULL, 0);
    }
    sigset_t pending;
    sigpending(&pending);
    ok(!sigismember(&pending, sig), "ignored means forgotten");
    handle(sig, 0, 0);
    is(nseen, 0, "for good");
}

static void through_suspend(int sig)
{
    const uint64_t temp = ~bit(sig);
    set_mask(bit(sig));
    raise(sig);
    nseen = 0;
    int r = (int)syscall(SYS_rt_sigsuspend, &temp, 8);
    ok(r == -1 && nseen == 1 && seen[0] == sig && saved[0] == bit(sig), "sigsuspend lets signal %d through",
       sig);
    set_mask(0);
}

int main(void)
{
    pipe(pipe_fds);
    epoll_fd = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pipe_fds[0], &ev);
    for (int k = 0; k < CALLS; k++) {
        interrupted(k);
        several(k);
        ready(k);
        arguments(k);
        ignored(k);
    }
    at_once();
    for (int i = 0; i < 5; i++) {
        sent(sync_signals[i]);
        held(sync_signals[i]);
        undisturbed(sync_signals[i]);
        through_suspend(sync_signals[i]);
    }
    return finish();
}
