/* Calls interrupted by signals: SA_RESTART, EINTR, remaining times, calls that never restart. */
// VARIANTS: o2
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>

static volatile sig_atomic_t hits;
static int feed = -1;

static void handler(int sig)
{
    hits++;
    if (feed >= 0 && hits == 3)
        write(feed, "x", 1);
}

static void arm(int flags, int ms)
{
    struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &sa, NULL);
    hits = 0;
    struct itimerval it = {{0, ms * 1000}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
}

static void disarm(void)
{
    struct itimerval it = {0};
    setitimer(ITIMER_REAL, &it, NULL);
}

int main(void)
{
    int p[2];
    char c;
    pipe(p);
    feed = p[1];
    arm(SA_RESTART, 10);
    ssize_t r = read(p[0], &c, 1);
    disarm();
    ok(r == 1 && hits >= 3, "read restarts until the handler feeds it");
    feed = -1;
    arm(0, 10);
    r = read(p[0], &c, 1);
    disarm();
    ok(r == -1 && errno == EINTR, "read without SA_RESTART");
    arm(SA_RESTART, 10);
    struct pollfd pf = {p[0], POLLIN, 0};
    r = poll(&pf, 1, 5000);
    disarm();
    ok(r == -1 && errno == EINTR, "poll never restarts");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(p[0], &set);
    struct timeval tv = {5, 0};
    arm(SA_RESTART, 10);
    r = select(p[0] + 1, &set, NULL, NULL, &tv);
    disarm();
    ok(r == -1 && errno == EINTR, "select");
    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev);
    arm(SA_RESTART, 10);
    r = epoll_wait(ep, &ev, 1, 5000);
    disarm();
    ok(r == -1 && errno == EINTR, "epoll_wait");
    struct timespec ts = {5, 0}, left = {0};
    arm(SA_RESTART, 10);
    r = nanosleep(&ts, &left);
    disarm();
    ok(r == -1 && errno == EINTR && left.tv_sec == 4, "nanosleep says what is left");
    arm(SA_RESTART, 10);
    r = clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &left);
    disarm();
    ok(r == EINTR && left.tv_sec == 4, "clock_nanosleep");
    arm(SA_RESTART, 10);
    r = pause();
    disarm();
    ok(r == -1 && errno == EINTR, "pause");
    int sv[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    arm(0, 10);
    r = recv(sv[0], &c, 1, 0);
    disarm();
    ok(r == -1 && errno == EINTR, "recv");
    feed = sv[1];
    arm(SA_RESTART, 10);
    r = recv(sv[0], &c, 1, 0);
    disarm();
    ok(r == 1 && c == 'x', "recv restarts");
    feed = -1;
    /* wait for a child that ends later */
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        _exit(4);
    }
    arm(SA_RESTART, 10);
    int status;
    r = waitpid(child, &status, 0);
    disarm();
    ok(r == child && WEXITSTATUS(status) == 4 && hits > 0, "waitpid restarts");
    child = fork();
    if (child == 0) {
        usleep(100000);
        _exit(5);
    }
    int interrupted = 0;
    arm(0, 10);
    while ((r = waitpid(child, &status, 0)) == -1 && errno == EINTR)
        interrupted++;
    disarm();
    ok(r == child && interrupted > 0 && WEXITSTATUS(status) == 5, "waitpid without it");
    /* a full pipe: write of which a part was taken returns that part */
    static char big[300000];
    arm(0, 20);
    r = write(p[1], big, sizeof big);
    disarm();
    ok(r == 65536 || (r == -1 && errno == EINTR), "a partial write is not lost: %s",
       r > 0 ? "65536" : "EINTR");
    /* an ignored signal interrupts nothing; one with default-ignore neither */
    signal(SIGALRM, SIG_IGN);
    struct itimerval it = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &it, NULL);
    ts = (struct timespec){0, 50000000};
    r = nanosleep(&ts, NULL);
    disarm();
    is(r, 0, "an ignored signal does not interrupt");
    return finish();
}
