/* Interval, POSIX and descriptor timers, alarms, sleeps. */
// VARIANTS: o2
#include "guest.h"
#include <sys/time.h>
#include <sys/timerfd.h>

static volatile sig_atomic_t hits, value;

static void handler(int sig, siginfo_t *info, void *context)
{
    hits++;
    value = info->si_code == SI_TIMER ? info->si_value.sival_int : -1;
}

int main(void)
{
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &sa, NULL);
    sigaction(SIGRTMIN, &sa, NULL);
    is(alarm(100), 0, "alarm");
    is(alarm(0), 100, "alarm tells what was left");
    struct itimerval it = {{0, 0}, {50, 0}}, old;
    setitimer(ITIMER_REAL, &it, NULL);
    it = (struct itimerval){0};
    setitimer(ITIMER_REAL, &it, &old);
    ok(old.it_value.tv_sec == 49 && old.it_interval.tv_sec == 0, "setitimer gives the old one");
    timer_t timer;
    struct sigevent ev = {
        .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 4321};
    is(timer_create(CLOCK_MONOTONIC, &ev, &timer), 0, "timer_create");
    struct itimerspec its = {{0, 2000000}, {0, 2000000}};
    timer_settime(timer, 0, &its, NULL);
    while (hits < 5)
        pause();
    ok(value == 4321, "its value");
    timer_gettime(timer, &its);
    ok(its.it_interval.tv_nsec == 2000000, "timer_gettime");
    is(timer_delete(timer), 0, "timer_delete");
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    its = (struct itimerspec){{0, 0}, {0, 3000000}};
    timerfd_settime(fd, 0, &its, NULL);
    uint64_t n = 0;
    is(read(fd, &n, 8), 8, "timerfd");
    is(n, 1, "one expiration");
    struct timespec ts = {0, 1000000};
    is(nanosleep(&ts, NULL), 0, "nanosleep");
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += 2000000;
    if (ts.tv_nsec >= 1000000000)
        ts.tv_sec++, ts.tv_nsec -= 1000000000;
    is(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL), 0, "clock_nanosleep to a point");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ok(now.tv_sec > ts.tv_sec || (now.tv_sec == ts.tv_sec && now.tv_nsec >= ts.tv_nsec), "which has passed");
    is(clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){0, -1}, NULL), EINVAL, "a bad time");
    return finish();
}
