/*
 * soak.c: soak SEED STEPS: a random program: what it does follows from SEED, what comes of it from the
 * machine.
 *
 * Every step draws one action: compute, allocate, map, fork a child that does steps of its own, talk through
 * a pipe, send signals to itself or to children, set timers, sleep, read the clock, modify code, take a
 * fault. Everything it learns goes into a digest that is printed now and then, so that a replay that differs
 * anywhere prints something else.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t state, learnt = 0xcbf29ce484222325ull;
static volatile uint64_t work, signals_seen;
static int level;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

static void learn(uint64_t x)
{
    learnt = (learnt ^ x) * 0x100000001b3ull;
    learnt ^= learnt >> 29;
}

static void report(const char *what)
{
    char text[128];
    int n = snprintf(text, sizeof text, "%d %s %016llx\n", level, what, (unsigned long long)learnt);
    while (write(1, text, (size_t)n) < 0 && errno == EINTR)
        ;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)context;
    signals_seen++;
    learn((uint64_t)sig + work * 64 + (uint64_t)info->si_code);
}

static sigjmp_buf after_fault;
static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    learn((uint64_t)sig ^ (uint64_t)info->si_addr);
    siglongjmp(after_fault, 1);
}

static void compute(void)
{
    uint64_t x = state | 1;
    for (uint32_t i = 0, n = draw(300000); i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        work++;
    }
    learn(x);
}

static void allocate(void)
{
    static void *slots[64];
    for (int i = 0; i < 100; i++) {
        uint32_t s = draw(64), size = draw(2) ? draw(200) + 1 : draw(300000) + 1;
        free(slots[s]);
        slots[s] = malloc(size);
        memset(slots[s], (int)s, size);
        learn((uint64_t)(uintptr_t)slots[s]);
    }
}

static void map(void)
{
    static uint8_t *maps[16];
    static size_t lengths[16];
    uint32_t i = draw(16);
    switch (draw(5)) {
    case 0:
    case 1:
        if (maps[i])
            munmap(maps[i], lengths[i]);
        lengths[i] = (draw(30) + 1) * 4096;
        maps[i] = mmap(NULL, lengths[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        maps[i][lengths[i] / 2] = (uint8_t)i;
        break;
    case 2:
        if (maps[i]) {
            size_t longer = lengths[i] + (draw(10) + 1) * 4096;
            maps[i] = mremap(maps[i], lengths[i], longer, MREMAP_MAYMOVE);
            lengths[i] = longer;
        }
        break;
    case 3:
        if (maps[i]) {
            madvise(maps[i], 4096, MADV_DONTNEED);
            learn(maps[i][0]);
        }
        break;
    default:
        if (maps[i]) {
            mprotect(maps[i], 4096, PROT_READ);
            learn(maps[i][1]);
            mprotect(maps[i], 4096, PROT_READ | PROT_WRITE);
        }
    }
    learn((uint64_t)(uintptr_t)maps[i]);
}

static void talk(void)
{
    int p[2];
    char text[5000];
    if (pipe(p) != 0)
        return;
    uint32_t n = draw(sizeof text) + 1;
    if (getrandom(text, n, 0) > 0)
        learn((uint64_t)text[n / 2]);
    ssize_t w = write(p[1], text, n), r = read(p[0], text, draw(n) + 1);
    learn((uint64_t)w ^ (uint64_t)r << 20 ^ (uint64_t)text[0]);
    struct pollfd pf = {p[0], POLLIN, 0};
    learn((uint64_t)poll(&pf, 1, 0));
    close(p[0]);
    close(p[1]);
}

static void timers(void)
{
    long us = draw(2) ? draw(500) + 50 : draw(20000) + 50;
    struct itimerval it = {{0, draw(3) ? us : 0}, {0, us}};
    setitimer(draw(4) ? ITIMER_REAL : ITIMER_VIRTUAL, &it, NULL);
}

static void signals(void)
{
    static const int all[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGURG};
    sigset_t set, old;
    int sig = all[draw(4)];
    switch (draw(3)) {
    case 0:
        raise(sig);
        break;
    case 1:
        sigemptyset(&set);
        sigaddset(&set, sig);
        sigprocmask(SIG_BLOCK, &set, &old);
        kill(getpid(), sig);
        work++;
        if (draw(2))
            sigsuspend(&old);
        sigprocmask(SIG_SETMASK, &old, NULL);
        break;
    default:
        sigqueue(getpid(), sig, (union sigval){.sival_int = (int)draw(100)});
    }
}

static void clocks(void)
{
    struct timespec ts;
    clock_gettime((clockid_t)draw(2), &ts);
    learn((uint64_t)ts.tv_nsec);
    uint32_t lo, hi;
    asm volatile("rdtsc" : "=a"(lo), "=d"(hi));
    learn(lo);
    if (draw(4) == 0) {
        ts = (struct timespec){0, (long)draw(2000000)};
        learn((uint64_t)nanosleep(&ts, &ts));
    }
}

static void code(void)
{
    static uint8_t *page;
    if (!page)
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 10; i++) {
        uint32_t value = draw(1u << 30), at = draw(40) * 64;
        page[at] = 0xb8;
        memcpy(page + at + 1, &value, 4);
        page[at + 5] = 0xc3;
        learn(((uint32_t(*)(void))(page + at))());
    }
}

static void fault(void)
{
    if (sigsetjmp(after_fault, 1) == 0) {
        switch (draw(3)) {
        case 0:
            *(volatile char *)(uintptr_t)draw(4096) = 1;
            break;
        case 1:
            asm volatile("ud2");
            break;
        default:
            asm volatile("xor %%ecx, %%ecx\n div %%ecx" ::: "rax", "rcx", "rdx");
        }
    }
}

static void steps(int n);

static void children(void)
{
    if (level >= 3)
        return;
    int p[2], n = (int)draw(3) + 1, status;
    if (pipe(p) != 0)
        return;
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) {
            level++;
            state += (uint64_t)i * 977 + 1;
            close(p[0]);
            steps((int)draw(12));
            report("child");
            while (write(p[1], &learnt, 8) < 0 && errno == EINTR)
                ;
            _exit((int)(learnt & 63));
        }
        if (draw(3) == 0)
            kill(child, SIGUSR1);
    }
    close(p[1]);
    uint64_t from;
    for (ssize_t r; (r = read(p[0], &from, 8)) != 0;)
        if (r == 8)
            learn(from);
    close(p[0]);
    for (pid_t w; (w = wait(&status)) > 0 || errno == EINTR;)
        if (w > 0)
            learn((uint64_t)status);
}

static void steps(int n)
{
    static void (*const actions[])(void) = {compute, compute, compute, allocate, map,  map,   talk,
                                            timers,  signals, signals, clocks,   code, fault, children};
    for (int i = 0; i < n; i++) {
        actions[draw(sizeof actions / sizeof *actions)]();
        if (i % 16 == 0)
            report("at");
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15ull + 1;
    static const int ours[] = {SIGALRM, SIGVTALRM, SIGUSR1, SIGUSR2, SIGWINCH, SIGURG};
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        sigaction(ours[i], &sa, NULL);
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
    sigaction(SIGFPE, &sa, NULL);
    steps(atoi(argv[2]));
    struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, NULL);
    setitimer(ITIMER_VIRTUAL, &none, NULL);
    report("end");
    return 0;
}
