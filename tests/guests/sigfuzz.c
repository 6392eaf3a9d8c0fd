/*
 * Signals of every kind from another process while a program waits, blocks, faults and returns: none is lost, queued ones
 * come in their order, masks are what they should be. Recordings differ; each replays.
 */
// NONDET
// RUNS: 1|2|3
#include "guest.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <ucontext.h>

enum { RT = 40, KINDS = 4, SENT = 400 };
static const int plain[] = {SIGUSR1, SIGUSR2, SIGSEGV, SIGTRAP};

static volatile int counts[65], next_value[KINDS], disorder, wrong_mask, faults, bad_faults;
static volatile uint64_t expected_mask, previous_mask; /* while the program runs outside of handlers */
static uint64_t state;

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static uint64_t bit(int sig)
{
    return 1ull << (sig - 1);
}

static void set_mask(uint64_t m)
{
    previous_mask = expected_mask;
    expected_mask = m;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &m, NULL, 8);
}

static void took(int sig, int value)
{
    counts[sig]++;
    if (sig < RT)
        return;
    disorder += value != next_value[sig - RT];
    next_value[sig - RT] = value + 1;
}

static void handler(int sig, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    if (info->si_code == SEGV_MAPERR && sig == SIGSEGV) {
        faults++;
        bad_faults += info->si_addr != (void *)0x40;
        u->uc_mcontext.gregs[REG_RCX] = (greg_t)&state;
        return;
    }
    uint64_t mask;
    memcpy(&mask, &u->uc_sigmask, 8);
    wrong_mask += sig != SIGSEGV && mask != expected_mask && mask != previous_mask;
    took(sig, info->si_value.sival_int);
}

__attribute__((noinline)) static void fault(void)
{
    uint64_t x = 0x40;
    __asm__ volatile("movl (%0), %%eax" : "+c"(x) : : "rax", "memory");
}

static void send_all(pid_t to, int run)
{
    union sigval v;
    state = (uint64_t)run * 77;
    int values[KINDS] = {0};
    for (int i = 0; i < SENT; i++) {
        int k = (int)draw(KINDS);
        v.sival_int = values[k]++;
        while (sigqueue(to, RT + k, v))
            usleep(100);
        if (draw(3) == 0)
            kill(to, plain[draw(4)]);
        if (draw(8) == 0)
            usleep(draw(300));
    }
    _exit(0);
}

static uint64_t some_mask(void)
{
    uint64_t m = 0;
    for (int k = 0; k < KINDS; k++)
        if (draw(2))
            m |= bit(RT + k);
    for (int k = 0; k < 4; k++)
        if (draw(3) == 0)
            m |= bit(plain[k]);
    return m;
}

static void wait_somehow(int epoll_fd, int never)
{
    const uint64_t temp = some_mask();
    struct timespec t = {0, (long)draw(500000)};
    struct pollfd p = {never, POLLIN, 0};
    struct epoll_event ev;
    siginfo_t info;
    uint64_t blocked = expected_mask & ~bit(SIGSEGV);
    switch (draw(6)) {
    case 0:
        syscall(SYS_ppoll, &p, 1, &t, &temp, 8);
        break;
    case 1:
        syscall(SYS_epoll_pwait, epoll_fd, &ev, 1, 1, &temp, 8);
        break;
    case 2:
        nanosleep(&t, NULL);
        break;
    case 3: { /* what is blocked may be taken */
        int sig = (int)syscall(SYS_rt_sigtimedwait, &blocked, &info, &t, 8);
        if (sig > 0)
            took(sig, info.si_value.sival_int);
        break;
    }
    case 4: {
        struct signalfd_siginfo f;
        int fd = (int)syscall(SYS_signalfd4, -1, &blocked, 8, SFD_NONBLOCK);
        if (read(fd, &f, sizeof f) == sizeof f)
            took((int)f.ssi_signo, f.ssi_int);
        close(fd);
        break;
    }
    default:
        for (volatile unsigned i = draw(2000); i; i--)
            ;
    }
}

int main(int argc, char **argv)
{
    int run = argc > 1 ? atoi(argv[1]) : 1, pipe_fds[2], status;
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&a.sa_mask);
    sigdelset(&a.sa_mask, SIGSEGV);
    sigset_t none;
    sigemptyset(&none);
    for (int k = 0; k < KINDS; k++) {
        sigaction(RT + k, &a, NULL);
        if (plain[k] != SIGSEGV)
            sigaction(plain[k], &a, NULL);
    }
    sigfillset(&a.sa_mask);
    sigaction(SIGSEGV, &a, NULL);
    pipe(pipe_fds);
    int epoll_fd = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pipe_fds[0], &ev);
    pid_t self = getpid(), child = fork();
    if (!child)
        send_all(self, run);
    state = (uint64_t)run;
    int rounds = 0, made = 0;
    while (waitpid(child, &status, WNOHANG) != child) {
        set_mask(some_mask());
        if (!(expected_mask & bit(SIGSEGV)) && draw(2)) {
            made++;
            fault();
        }
        wait_somehow(epoll_fd, pipe_fds[0]);
        rounds++;
    }
    set_mask(0);
    int total = 0;
    for (int k = 0; k < KINDS; k++)
        total += counts[RT + k];
    is(total, SENT, "every queued signal came");
    is(disorder, 0, "in order");
    is(bad_faults, 0, "faults are told from signals");
    is(faults, made, "and all of them seen");
    ok(wrong_mask == 0, "the frame's mask is the program's (%d are not)", wrong_mask);
    ok(rounds > 0 && counts[SIGUSR1] <= SENT, "rounds");
    return finish();
}
