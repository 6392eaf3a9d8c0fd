/* Storms of timer signals: each prints where it arrived, so a replay that is one tick off differs. */
// VARIANTS: o2 o0
// NONDET
#include "guest.h"
#include <sys/time.h>

static volatile uint64_t work, hits, at_hit, mixed = DIGEST_START;

static void handler(int sig)
{
    hits++;
    at_hit = work;
    mixed = digest(mixed, (void *)&at_hit, 8);
}

static void storm(int which, int sig, const char *name, void (*body)(void), uint64_t enough)
{
    signal(sig, handler);
    hits = work = 0;
    struct itimerval it = {{0, 300}, {0, 300}};
    setitimer(which, &it, NULL);
    while (hits < enough)
        body();
    it = (struct itimerval){0};
    setitimer(which, &it, NULL);
    say("%s: %llu signals, %llu units, last at %llu, digest %llx\n", name, (unsigned long long)hits,
        (unsigned long long)work, (unsigned long long)at_hit, (unsigned long long)mixed);
}

static void counting(void)
{
    for (int i = 0; i < 1000; i++)
        work++;
}

static void calling(void)
{
    for (int i = 0; i < 20; i++) {
        getppid();
        work++;
    }
}

static void writing(void)
{
    static int p[2];
    if (!p[1])
        pipe(p);
    char text[64];
    for (int i = 0; i < 20; i++) {
        int n = snprintf(text, sizeof text, "%d %f", i, (double)work);
        if (write(p[1], text, (size_t)n) == n)
            while (n > 0) {
                ssize_t r = read(p[0], text, (size_t)n);
                if (r > 0)
                    n -= (int)r;
            }
        work++;
    }
}

static void allocating(void)
{
    for (int i = 1; i < 20; i++) {
        void *p = malloc((size_t)i * 20000);
        memset(p, i, (size_t)i * 20000);
        free(p);
        work++;
    }
}

static void forking(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit((int)(work & 63));
    int status = 0;
    while (waitpid(child, &status, 0) == -1)
        ;
    if (WEXITSTATUS(status) > 63)
        say("not ok exit status %d\n", WEXITSTATUS(status));
    work++;
}

int main(void)
{
    storm(ITIMER_REAL, SIGALRM, "counting", counting, 300);
    storm(ITIMER_VIRTUAL, SIGVTALRM, "virtual", counting, 10);
    storm(ITIMER_PROF, SIGPROF, "profile", counting, 10);
    storm(ITIMER_REAL, SIGALRM, "calling", calling, 300);
    storm(ITIMER_REAL, SIGALRM, "writing", writing, 300);
    storm(ITIMER_REAL, SIGALRM, "allocating", allocating, 200);
    storm(ITIMER_REAL, SIGALRM, "forking", forking, 30);
    return finish();
}
