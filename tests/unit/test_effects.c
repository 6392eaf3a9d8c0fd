/*
 * test_effects.c: every byte that the kernel changes in guest memory is covered by an effect.
 *
 * Calls are made for real on buffers in an arena filled with a pattern, with unmapped pages around it.
 * Afterwards each byte that changed must lie in an effect, each effect must lie in the arena, and at most
 * `slack` bytes may be covered that still hold the pattern (rows that claim more than the kernel wrote say so
 * here; one or two such bytes in a row are chance, as in a time). Failing calls and buffers that end at an
 * unmapped page are tested in the same way.
 */
// LINK: src/engine/kernel/table.c src/engine/kernel/prctl.c src/engine/kernel/mdwe.c src/engine/kernel/ioctl.c src/engine/kernel/files.c
// LINK: src/engine/kernel/generic.c src/engine/host/hostfd.c src/engine/host/hostfd_fast.c src/engine/kernel/pagediff.c
// LINK: src/engine/kernel/procview.c src/engine/kernel/procself.c src/engine/kernel/running.c src/engine/kernel/unknown.c src/engine/kernel/sharedcopy.c src/engine/kernel/limits.c
// LINK: src/engine/kernel/process_fast.c src/engine/kernel/effects_fast.c src/engine/kernel/files_fast.c src/engine/memory/objects.c
// LINK: src/engine/cpu/cpuid.c src/engine/cpu/features.c src/engine/cpu/xsave.c
#include <stddef.h>
#include <stdint.h>

#include "fake_engine.h"

#include <arpa/inet.h>
#include <asm/termbits.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/if.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum { ARENA = 16 * 4096, FILL = 0xa5, CHANCE = 3 };

static uint8_t *arena; /* ARENA writable bytes; the pages before and after cannot be touched */
static uint8_t before[ARENA], covered[ARENA];

/* The last n bytes of the arena: what follows is unmapped. */
static uint8_t *tail(size_t n)
{
    return arena + ARENA - n;
}

static void fill(void)
{
    memset(arena, FILL, ARENA);
}

static void cover(void)
{
    memset(covered, 0, sizeof covered);
    for (uint32_t i = 0; i < fake_task.effects.count; i++) {
        const struct trace_effect *e = &fake_task.effects.v[i];
        if (e->addr < A(arena) || e->addr + e->len > A(arena) + ARENA)
            fail_msg("effect %u at arena%+ld, %u bytes, is outside of the arena", i,
                     (long)(e->addr - A(arena)), e->len);
        memset(covered + (e->addr - A(arena)), 1, e->len);
    }
}

static void check(const char *what, int64_t result, long slack)
{
    long excess = 0, run = 0;
    cover();
    for (int i = 0; i < ARENA; i++) {
        if (arena[i] != before[i] && !covered[i])
            fail_msg("%s = %ld: byte %d was changed (%02x to %02x) and is not covered", what, (long)result, i,
                     before[i], arena[i]);
        run = covered[i] && arena[i] == FILL ? run + 1 : 0;
        excess += run == CHANCE ? CHANCE : run > CHANCE;
    }
    if (excess > slack)
        fail_msg("%s = %ld: %ld bytes too many are covered", what, (long)result, excess);
}

static int64_t checked(const char *what, uint32_t nr, long slack, const uint64_t args[6])
{
    memcpy(before, arena, ARENA);
    int64_t result = fake_call6(nr, args);
    check(what, result, slack);
    return result;
}
/* Whether this runs under a system-call filter, as in a container. */
static bool filtered(void)
{
    return prctl(PR_GET_SECCOMP) > 0;
}

/* As tests/run counts it. */
static void refused_here(const char *what)
{
    printf("skip %s: refused by a system-call filter\n", what);
    fflush(stdout);
}

#define CHECK_SLACK(slack, name, ...) checked(#name, SYS_##name, slack, (uint64_t[6]){__VA_ARGS__})
#define CHECK(name, ...)              CHECK_SLACK(0, name, __VA_ARGS__)
#define OK(expression)                                                                                       \
    do {                                                                                                     \
        int64_t ok_ = (expression);                                                                          \
        if (ok_ == -EPERM && filtered())                                                                     \
            refused_here(#expression);                                                                       \
        else if (ok_ < 0)                                                                                    \
            fail_msg("%s: %s", #expression, strerror((int)-ok_));                                            \
    } while (0)
#define FAILS(error, expression) assert_int_equal(-(error), expression)

static int temporary(const char *text)
{
    char name[] = "/tmp/effectsXXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int setup(void **state)
{
    uint8_t *p = mmap(NULL, ARENA + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena = p + 4096;
    if (p == MAP_FAILED || mprotect(arena, ARENA, PROT_READ | PROT_WRITE))
        return -1;
    fake_map(arena, ARENA, PROT_READ | PROT_WRITE, false);
    files_begin();
    return 0;
}

static int refill(void **state)
{
    fill();
    return 0;
}

/* ---- files ---- */

static void reading(void **state)
{
    int fd = temporary("hello, world: a file of forty characters");
    struct iovec *iov = (struct iovec *)(arena + 8192);
    OK(CHECK(read, A(fd), A(arena), 10));
    OK(CHECK(read, A(fd), A(arena), 4096)); /* short */
    OK(CHECK(read, A(fd), A(arena), 10));   /* end of file */
    OK(CHECK(pread64, A(fd), A(arena + 100), 20, 5));
    fill();
    iov[0] = (struct iovec){arena + 3, 4};
    iov[1] = (struct iovec){arena + 64, 0};
    iov[2] = (struct iovec){arena + 100, 500};
    OK(CHECK(preadv, A(fd), A(iov), 3, 1));
    lseek(fd, 0, SEEK_SET);
    OK(CHECK(readv, A(fd), A(iov), 3));
    OK(CHECK(preadv2, A(fd), A(iov), 2, 0, 0, 0));
    FAILS(EFAULT, CHECK(readv, A(fd), 8, 3));
    FAILS(EBADF, CHECK(read, 999, A(arena), 10));
    close(fd);
}

static void reading_into_the_void(void **state)
{
    int fd = temporary("hello, world: a file of forty characters"), p[2];
    struct iovec *iov = (struct iovec *)(arena + 8192);
    assert_int_equal(CHECK(read, A(fd), A(tail(5)), 40), 5);
    FAILS(EFAULT, CHECK(read, A(fd), A(arena + ARENA), 40));
    iov[0] = (struct iovec){arena, 4};
    iov[1] = (struct iovec){tail(7), 20};
    assert_int_equal(CHECK(preadv, A(fd), A(iov), 2, 0), 11);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "0123456789", 10), 10);
    CHECK_SLACK(5, read, A(p[0]), A(tail(5)), 10); /* copied, then EFAULT */
    assert_int_equal(arena[ARENA - 1], '4');
    fill();
    int q[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, q), 0);
    assert_int_equal(write(q[1], "01234", 5), 5);
    assert_int_equal(write(q[1], "56789", 5), 5);
    CHECK_SLACK(16, read, A(q[0]), A(tail(8)), 20);
    for (int i = 0; i < 2; i++)
        close(p[i]), close(q[i]);
    close(fd);
}

static void status(void **state)
{
    int fd = temporary("x");
    strcpy((char *)arena, "/etc");
    OK(CHECK(stat, A(arena), A(arena + 100)));
    OK(CHECK(lstat, A(arena), A(arena + 400)));
    OK(CHECK(fstat, A(fd), A(arena + 800)));
    OK(CHECK(newfstatat, A(AT_FDCWD), A(arena), A(arena + 1200), 0));
    OK(CHECK(statx, A(AT_FDCWD), A(arena), 0, 0x7ff, A(arena + 1600)));
    OK(CHECK(statfs, A(arena), A(arena + 2000)));
    OK(CHECK(fstatfs, A(fd), A(arena + 2400)));
    FAILS(ENOENT, CHECK(stat, A("/nonexistent"), A(arena + 100)));
    FAILS(EFAULT, CHECK_SLACK(20, fstat, A(fd), A(tail(20))));
    FAILS(EFAULT, CHECK_SLACK(20, statfs, A("/etc"), A(tail(20))));
    struct stat st;
    stat("/", &st);
    CHECK(ustat, st.st_dev, A(arena + 2800));
    FAILS(EFAULT, CHECK(fstat, A(fd), 0));
    close(fd);
}

static void directories(void **state)
{
    int fd = open("/etc", O_RDONLY);
    OK(CHECK_SLACK(400, getdents64, A(fd), A(arena), 1000)); /* records have padding */
    OK(CHECK_SLACK(400, getdents, A(fd), A(arena + 2000), 1000));
    OK(CHECK(getcwd, A(arena + 8192), 4096));
    FAILS(ERANGE, CHECK(getcwd, A(arena), 1));
    OK(CHECK(readlink, A("/proc/self/cwd"), A(arena + 12288), 100));
    OK(CHECK(readlinkat, A(AT_FDCWD), A("/proc/self/cwd"), A(arena + 12400), 3));
    close(fd);
}

static void attributes(void **state)
{
    int fd = temporary("x");
    if (fsetxattr(fd, "user.clio", "value", 5, 0) == 0) {
        char name[40];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        OK(CHECK(fgetxattr, A(fd), A("user.clio"), A(arena), 100));
        char linked[] = "/tmp/effects-link";
        unlink(linked);
        if (!symlink("/etc", linked) && !lsetxattr(linked, "trusted.clio", "value", 5, 0)) {
            OK(CHECK(lgetxattr, A(linked), A("trusted.clio"), A(arena + 4400), 100));
            OK(CHECK(llistxattr, A(linked), A(arena + 4600), 100));
        }
        unlink(linked);
        OK(CHECK(getxattr, A(name), A("user.clio"), A(arena + 200), 5));
        OK(CHECK(fgetxattr, A(fd), A("user.clio"), A(arena + 300), 0));
        FAILS(ERANGE, CHECK(fgetxattr, A(fd), A("user.clio"), A(arena + 300), 2));
        OK(CHECK(flistxattr, A(fd), A(arena + 400), 100));
        OK(CHECK(listxattr, A(name), A(arena + 600), 100));
        OK(CHECK(flistxattr, A(fd), A(arena + 400), 0));
        uint64_t *a = (uint64_t *)(arena + 1024);
        a[0] = A(arena + 1200), a[1] = 50;
        int64_t r =
            checked("getxattrat", 464, 50, (uint64_t[6]){A(AT_FDCWD), A(name), 0, A("user.clio"), A(a), 16});
        assert_true(r == 5 || r == -ENOSYS);
        r = checked("listxattrat", 465, 0, (uint64_t[6]){A(AT_FDCWD), A(name), 0, A(arena + 1400), 50});
        assert_true(r > 0 || r == -ENOSYS);
    }
    /* file_getattr: a path and a size */
    checked("file_getattr", 468, 24, (uint64_t[6]){A(AT_FDCWD), A("/etc"), A(arena + 2000), 24, 0});
    uint32_t *handle = (uint32_t *)(arena + 3000);
    handle[0] = 128;
    CHECK_SLACK(140, name_to_handle_at, A(AT_FDCWD), A("/etc"), A(handle), A(arena + 3400), 0);
    handle[0] = 0; /* too small: the size wanted comes back */
    CHECK_SLACK(12, name_to_handle_at, A(AT_FDCWD), A("/etc"), A(handle), A(arena + 3400), 0);
    *(uint64_t *)(arena + 4000) = 0, *(uint64_t *)(arena + 4008) = 0;
    checked("cachestat", 451, 0, (uint64_t[6]){A(fd), A(arena + 4000), A(arena + 4096), 0});
    close(fd);
}

static void copying(void **state)
{
    int in = temporary("some text to copy"), out = temporary(""), p[2];
    int64_t *offset = (int64_t *)arena;
    assert_int_equal(pipe(p), 0);
    offset[0] = 2;
    OK(CHECK(sendfile, A(out), A(in), A(offset), 5));
    offset[0] = 2, offset[1] = 0;
    OK(CHECK(copy_file_range, A(in), A(offset), A(out), A(offset + 1), 5, 0));
    OK(CHECK(splice, A(in), A(offset), A(p[1]), 0, 5, 0));
    OK(CHECK(splice, A(p[0]), 0, A(out), A(offset + 1), 5, 0));
    assert_int_equal(write(p[1], "in the pipe", 11), 11);
    struct iovec *iov = (struct iovec *)(arena + 64);
    iov[0] = (struct iovec){arena + 128, 20};
    OK(CHECK(vmsplice, A(p[0]), A(iov), 1, 0));
    FAILS(EBADF, CHECK_SLACK(8, sendfile, 999, A(in), A(offset), 5));
    close(in), close(out), close(p[0]), close(p[1]);
}

static void descriptors(void **state)
{
    struct flock *lock = (struct flock *)(arena + 512);
    int fd = temporary("x");
    OK(CHECK(pipe, A(arena)));
    OK(CHECK(pipe2, A(arena + 64), O_CLOEXEC));
    OK(CHECK(socketpair, AF_UNIX, SOCK_STREAM, 0, A(arena + 128)));
    for (int i = 0; i < 6; i++)
        close(((int *)(arena + i / 2 * 64))[i % 2]);
    *lock = (struct flock){.l_type = F_WRLCK};
    OK(CHECK(fcntl, A(fd), F_GETLK, A(lock)));
    OK(CHECK(fcntl, A(fd), F_GETOWN_EX, A(arena + 700)));
    OK(CHECK(fcntl, A(fd), F_GETFL, A(arena + 700)));
    CHECK_SLACK(8, fcntl, A(fd), F_GET_RW_HINT, A(arena + 800));
    close(fd);
}

/* ---- waiting ---- */

static void waiting_for_descriptors(void **state)
{
    int p[2], ep = epoll_create1(0);
    struct pollfd *fds = (struct pollfd *)arena;
    struct timespec *ts = (struct timespec *)(arena + 512);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    fds[0] = (struct pollfd){p[0], POLLIN, 0x7777};
    fds[1] = (struct pollfd){-1, POLLIN, 0x7777};
    fds[2] = (struct pollfd){p[1], POLLOUT, 0x7777};
    OK(CHECK(poll, A(fds), 3, 1000));
    fds[0].revents = 0x7777;
    *ts = (struct timespec){1, 0};
    OK(CHECK(ppoll, A(fds), 3, A(ts), 0, 8));
    fd_set *sets = (fd_set *)(arena + 1024);
    for (int i = 0; i < 2; i++) {
        memset(sets, 0, 3 * sizeof *sets);
        FD_SET(p[0], &sets[0]);
        FD_SET(p[1], &sets[0]); /* never readable: its bit goes */
        FD_SET(p[0], &sets[1]);
        FD_SET(p[1], &sets[1]);
        FD_SET(p[0], &sets[2]);
        *ts = (struct timespec){1, 0};
        if (i)
            OK(CHECK(pselect6, 64, A(&sets[0]), A(&sets[1]), A(&sets[2]), A(ts), 0));
        else
            OK(CHECK(select, A(p[1] + 1), A(&sets[0]), A(&sets[1]), A(&sets[2]), A(ts)));
    }
    FAILS(EBADF, CHECK_SLACK(1000, select, 900, A(arena), 0, 0, A(ts)));
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 0x1122334455667788};
    epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev);
    epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev);
    OK(CHECK(epoll_wait, A(ep), A(arena + 2048), 10, 0));
    OK(CHECK(epoll_pwait, A(ep), A(arena + 2200), 1, 0, 0, 8));
    *ts = (struct timespec){0, 0};
    OK(CHECK(epoll_pwait2, A(ep), A(arena + 2400), 10, A(ts), 0, 8));
    CHECK_SLACK(20, epoll_wait, A(ep), A(tail(20)), 10, 0);
    close(p[0]), close(p[1]), close(ep);
}

static void special_files(void **state)
{
    char name[] = "/tmp/effectsXXXXXX";
    int in = inotify_init1(IN_NONBLOCK), tfd = timerfd_create(CLOCK_MONOTONIC, 0);
    assert_true(mkdtemp(name) != NULL);
    inotify_add_watch(in, name, IN_ALL_EVENTS);
    rmdir(name);
    OK(CHECK(read, A(in), A(arena), 1000));
    struct itimerspec *ts = (struct itimerspec *)(arena + 2048);
    *ts = (struct itimerspec){{1, 0}, {1, 0}};
    OK(CHECK(timerfd_settime, A(tfd), 0, A(ts), A(arena + 3000)));
    OK(CHECK(timerfd_gettime, A(tfd), A(arena + 3100)));
    FAILS(EFAULT, CHECK_SLACK(9, timerfd_gettime, A(tfd), A(tail(9))));
    close(in), close(tfd);
}

static void on_alarm(int sig)
{
}

static void sleeping(void **state)
{
    struct timespec *ts = (struct timespec *)arena;
    struct itimerval timer = {{0, 0}, {0, 20000}};
    struct sigaction sa = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &sa, NULL);
    *ts = (struct timespec){0, 1000};
    OK(CHECK(nanosleep, A(ts), A(arena + 100)));
    OK(CHECK(clock_nanosleep, CLOCK_MONOTONIC, 0, A(ts), A(arena + 100)));
    ts->tv_sec = 5;
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(nanosleep, A(ts), A(arena + 200)));
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(clock_nanosleep, CLOCK_MONOTONIC, 0, A(ts), A(arena + 300)));
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(ppoll, 0, 0, A(ts), 0, 8));
    ts->tv_sec = 5;
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(pselect6, 0, 0, 0, 0, A(ts), 0));
    struct pollfd *p = (struct pollfd *)(arena + 512);
    int q[2];
    assert_int_equal(pipe(q), 0);
    *p = (struct pollfd){q[0], POLLIN, 0x1234};
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(poll, A(p), 1, 5000));
    close(q[0]), close(q[1]);
}

/* ---- processes and signals ---- */

static int child(int status)
{
    int pid = fork();
    if (!pid)
        _exit(status);
    return pid;
}

static void waiting_for_children(void **state)
{
    int pid = child(3);
    OK(CHECK(wait4, A(pid), A(arena), 0, A(arena + 64)));
    pid = child(4);
    OK(CHECK_SLACK(6, waitid, P_PID, A(pid), A(arena + 512), WEXITED, A(arena + 1024)));
    fill();
    FAILS(ECHILD, CHECK_SLACK(28, wait4, A(-1), A(arena), 0, A(arena + 64)));
    FAILS(ECHILD, CHECK_SLACK(28, waitid, P_ALL, 0, A(arena + 512), WEXITED, A(arena + 1024)));
    int p[2];
    assert_int_equal(pipe(p), 0);
    if (!(pid = fork())) {
        char c;
        close(p[1]);
        _exit(read(p[0], &c, 1) < 0);
    }
    assert_int_equal(CHECK(wait4, A(pid), A(arena), WNOHANG, A(arena + 64)), 0);
    assert_int_equal(
        CHECK_SLACK(200, waitid, P_PID, A(pid), A(arena + 512), WEXITED | WNOHANG, A(arena + 1024)), 0);
    close(p[0]), close(p[1]);
    waitpid(pid, NULL, 0);
}

static void signals(void **state)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    OK(CHECK(rt_sigpending, A(arena), 8));
    OK(CHECK(rt_sigtimedwait, A(&set), A(arena + 64), 0, 8));
    union sigval value = {.sival_ptr = arena};
    sigqueue(getpid(), SIGUSR2, value);
    OK(CHECK(rt_sigtimedwait, A(&set), A(arena + 300), 0, 8));
    struct timespec zero = {0, 0};
    FAILS(EAGAIN, CHECK(rt_sigtimedwait, A(&set), A(arena + 600), A(&zero), 8));
}

static void identity(void **state)
{
    OK(CHECK(uname, A(arena)));
    fill();
    OK(CHECK(getrlimit, RLIMIT_NOFILE, A(arena + 512)));
    OK(CHECK(prlimit64, 0, RLIMIT_STACK, 0, A(arena + 600)));
    OK(CHECK(getrusage, RUSAGE_SELF, A(arena + 700)));
    OK(CHECK(sysinfo, A(arena + 1000)));
    OK(CHECK(times, A(arena + 1200)));
    gid_t groups[] = {0x01020304, 0x05060708};
    if (!geteuid())
        raw2(SYS_setgroups, 2, groups);
    OK(CHECK(getgroups, 100, A(arena + 1300)));
    OK(CHECK(getgroups, 0, A(arena + 1300)));
    OK(CHECK(getresuid, A(arena + 2000), A(arena + 2010), A(arena + 2020)));
    OK(CHECK(getresgid, A(arena + 2030), A(arena + 2040), A(arena + 2050)));
    uint32_t *head = (uint32_t *)(arena + 2100);
    head[0] = _LINUX_CAPABILITY_VERSION_3, head[1] = 0;
    OK(CHECK(capget, A(head), A(arena + 2200)));
    head[0] = 0;
    CHECK_SLACK(24, capget, A(head), A(arena + 2300)); /* the version wanted comes back */
    OK(CHECK_SLACK(16, prctl, PR_GET_NAME, A(arena + 2400)));
    OK(CHECK(prctl, PR_GET_PDEATHSIG, A(arena + 2500)));
    OK(CHECK(prctl, PR_GET_CHILD_SUBREAPER, A(arena + 2600)));
    OK(CHECK(prctl, PR_GET_TSC, A(arena + 2700)));
    OK(CHECK(prctl, PR_GET_DUMPABLE));
    CHECK_SLACK(512, prctl, 0x41555856, A(arena + 3000), 512, 0, 0);
    OK(CHECK(getcpu, A(arena + 3600), A(arena + 3610)));
    OK(CHECK(get_robust_list, 0, A(arena + 3700), A(arena + 3710)));
    strcpy((char *)arena + 4096, "x");
    OK(CHECK(sysfs, 2, 0, A(arena + 4100)));
    CHECK(syslog, 10, A(arena), 0);
    CHECK(syslog, 3, A(arena + 5000), 500);
    OK(CHECK_SLACK(60, getrandom, A(arena + 6000), 3000, 0));
    assert_int_equal(CHECK_SLACK(100, getrandom, A(tail(100)), 200, 0), 100);
    checked("lsm_get_self_attr", 459, 1000, (uint64_t[6]){100, A(arena + 10000), A(arena + 11000), 0});
    *(uint32_t *)(arena + 11000) = 800;
    checked("lsm_get_self_attr", 459, 1000, (uint64_t[6]){100, A(arena + 10000), A(arena + 11000), 0});
    *(uint32_t *)(arena + 12000) = 160;
    checked("lsm_list_modules", 461, 160, (uint64_t[6]){A(arena + 11100), A(arena + 12000), 0});
}

static void scheduling(void **state)
{
    OK(CHECK(sched_getparam, 0, A(arena)));
    OK(CHECK(sched_getaffinity, 0, 128, A(arena + 64)));
    OK(CHECK(sched_rr_get_interval, 0, A(arena + 256)));
    OK(CHECK_SLACK(80, sched_getattr, 0, A(arena + 512), 80, 0));
    OK(CHECK(sched_getattr, 0, A(arena + 700), 48, 0));
    CHECK_SLACK(64, get_mempolicy, A(arena + 1024), A(arena + 1040), 64, 0, 0);
    void **pages = (void **)(arena + 2048);
    pages[0] = arena, pages[1] = arena + 4096;
    if (filtered())
        refused_here("CHECK(move_pages)");
    else
        CHECK(move_pages, 0, 2, A(pages), 0, A(arena + 2100), 0);
}

/* ---- time ---- */

static void clocks(void **state)
{
    OK(CHECK(gettimeofday, A(arena), A(arena + 20)));
    OK(CHECK(time, A(arena + 64)));
    OK(CHECK(clock_gettime, CLOCK_REALTIME, A(arena + 100)));
    OK(CHECK(clock_getres, CLOCK_REALTIME, A(arena + 130)));
    OK(CHECK(clock_getres, CLOCK_REALTIME, 0));
    FAILS(EFAULT, CHECK_SLACK(4, clock_gettime, CLOCK_REALTIME, A(tail(4))));
    *(uint32_t *)(arena + 200) = 0; /* modes: nothing is set */
    OK(CHECK_SLACK(56, adjtimex, A(arena + 200)));
    *(uint32_t *)(arena + 500) = 0;
    OK(CHECK_SLACK(56, clock_adjtime, CLOCK_REALTIME, A(arena + 500)));
    OK(CHECK(getitimer, ITIMER_REAL, A(arena + 800)));
    memset(arena + 900, 0, 32);
    OK(CHECK(setitimer, ITIMER_VIRTUAL, A(arena + 900), A(arena + 950)));
    OK(CHECK(timer_create, CLOCK_MONOTONIC, 0, A(arena + 1000)));
    int id = *(int *)(arena + 1000);
    OK(CHECK(timer_settime, A(id), 0, A(arena + 900), A(arena + 1050)));
    OK(CHECK(timer_gettime, A(id), A(arena + 1100)));
    OK(CHECK(timer_delete, A(id)));
}

static void futexes(void **state)
{
    uint32_t *words = (uint32_t *)arena;
    words[0] = words[1] = 0;
    OK(CHECK(futex, A(words), FUTEX_WAKE_OP, 1, 1, A(words + 1),
             FUTEX_OP(FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 0)));
    assert_int_equal(words[1], 7);
    OK(CHECK(futex, A(words), FUTEX_LOCK_PI, 0, 0));
    assert_int_not_equal(words[0], 0);
    OK(CHECK(futex, A(words), FUTEX_UNLOCK_PI, 0, 0));
    OK(CHECK(futex, A(words), FUTEX_TRYLOCK_PI, 0, 0));
    FAILS(EAGAIN, CHECK(futex, A(words + 1), FUTEX_WAIT, 1, 0));
}

/* ---- sockets ---- */

static void addresses(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof in;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
    assert_int_equal(bind(listener, (struct sockaddr *)&in, size), 0);
    getsockname(listener, (struct sockaddr *)&in, &size);
    listen(listener, 5);
    connect(client, (struct sockaddr *)&in, size);
    *(uint32_t *)(arena + 128) = 100;
    server = (int)CHECK(accept, A(listener), A(arena), A(arena + 128));
    OK(server);
    *(uint32_t *)(arena + 128) = 7; /* too short for the address */
    OK(CHECK(getsockname, A(server), A(arena + 200), A(arena + 128)));
    *(uint32_t *)(arena + 128) = 16;
    OK(CHECK(getpeername, A(server), A(arena + 300), A(arena + 128)));
    connect(client, (struct sockaddr *)&in, size);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    connect(again, (struct sockaddr *)&in, size);
    OK(CHECK(accept4, A(listener), 0, 0, SOCK_CLOEXEC));
    int third = socket(AF_INET, SOCK_STREAM, 0);
    connect(third, (struct sockaddr *)&in, size);
    *(uint32_t *)(arena + 128) = 16;
    OK(CHECK(accept4, A(listener), A(arena + 350), A(arena + 128), 0));
    close(third);
    *(uint32_t *)(arena + 128) = 16;
    FAILS(EBADF, CHECK(getpeername, 999, A(arena + 400), A(arena + 128)));
    FAILS(EFAULT, CHECK_SLACK(16, getpeername, A(server), A(tail(3)), A(arena + 128)));
    close(listener), close(client), close(server), close(again);
}

static void options(void **state)
{
    static const int numbers[] = {SO_TYPE,     SO_ERROR,    SO_SNDBUF,   SO_LINGER,
                                  SO_RCVTIMEO, SO_PEERCRED, SO_KEEPALIVE};
    int p[2], u = socket(AF_INET, SOCK_DGRAM, 0);
    uint32_t *size = (uint32_t *)(arena + 512);
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_RET | BPF_A, 0)};
    struct sock_fprog program = {2, code};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *size = 16;
        OK(CHECK_SLACK(32, getsockopt, A(p[0]), SOL_SOCKET, A(numbers[i]), A(arena), A(size)));
        *size = 2;
        OK(CHECK_SLACK(32, getsockopt, A(p[0]), SOL_SOCKET, A(numbers[i]), A(arena + 64), A(size)));
    }
    setsockopt(u, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    *size = 2;
    OK(CHECK(getsockopt, A(u), SOL_SOCKET, SO_GET_FILTER, A(arena + 1024), A(size)));
    *size = 1; /* too small: the size wanted may come back */
    CHECK_SLACK(16, getsockopt, A(u), SOL_SOCKET, SO_GET_FILTER, A(arena + 2048), A(size));
    FAILS(ENOPROTOOPT, CHECK_SLACK(4, getsockopt, A(u), SOL_SOCKET, 9999, A(arena + 3000), A(size)));
    close(p[0]), close(p[1]), close(u);
}

static struct msghdr *message(size_t room, size_t control)
{
    struct msghdr *m = (struct msghdr *)arena;
    struct iovec *iov = (struct iovec *)(arena + 128);
    iov[0] = (struct iovec){arena + 1024, 3};
    iov[1] = (struct iovec){arena + 2048, room};
    *m = (struct msghdr){.msg_name = arena + 256,
                         .msg_namelen = 100,
                         .msg_iov = iov,
                         .msg_iovlen = 2,
                         .msg_control = control ? arena + 4096 : NULL,
                         .msg_controllen = control,
                         .msg_flags = 0x5555};
    return m;
}

static void send_descriptors(int fd, const int *fds, int count)
{
    char control[256] = {0};
    struct iovec iov = {"message", 7};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    m.msg_controllen = CMSG_SPACE(count * sizeof *fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){CMSG_LEN(count * sizeof *fds), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), fds, count * sizeof *fds);
    assert_int_equal(sendmsg(fd, &m, 0), 7);
}

static void messages(void **state)
{
    int p[2], one = 1, fds[3] = {0, 1, 2};
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, p), 0);
    setsockopt(p[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    setsockopt(p[0], SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one);
    for (size_t control = 0; control <= 200; control += 20) { /* truncated in all ways */
        fill();
        send_descriptors(p[1], fds, 3);
        OK(CHECK_SLACK(200, recvmsg, A(p[0]), A(message(100, control)), 0));
    }
    fill();
    send_descriptors(p[1], fds, 1);
    assert_int_equal(CHECK_SLACK(40, recvmsg, A(p[0]), A(message(1, 0)), MSG_TRUNC), 7);
    send_descriptors(p[1], fds, 1);
    struct msghdr *m = message(100, 100);
    m->msg_control = tail(30);
    CHECK_SLACK(200, recvmsg, A(p[0]), A(m), 0);
    send_descriptors(p[1], fds, 1);
    m = message(100, 0);
    m->msg_iov[1].iov_base = tail(2);
    CHECK_SLACK(300, recvmsg, A(p[0]), A(m), 0);
    FAILS(EAGAIN, CHECK(recvmsg, A(p[0]), A(m), MSG_DONTWAIT));
    FAILS(EFAULT, CHECK(recvmsg, A(p[0]), 16, MSG_DONTWAIT));
    for (int fd = 10; fd < 100; fd++)
        if (fd != p[0] && fd != p[1])
            close(fd);
    close(p[0]), close(p[1]);
}

static int datagram_pair(struct sockaddr_in *to)
{
    socklen_t size = sizeof *to;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)to, size), 0);
    getsockname(fd, (struct sockaddr *)to, &size);
    return fd;
}

static void datagrams(void **state)
{
    struct sockaddr_in to;
    int fd = datagram_pair(&to);
    for (int i = 0; i < 6; i++)
        sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&to, sizeof to);
    *(uint32_t *)(arena + 512) = 100;
    OK(CHECK(recvfrom, A(fd), A(arena), 100, 0, A(arena + 600), A(arena + 512)));
    assert_int_equal(CHECK(recvfrom, A(fd), A(arena + 800), 4, MSG_TRUNC, 0, 0), 10);
    fill();
    struct mmsghdr *m = (struct mmsghdr *)arena;
    struct iovec *iov = (struct iovec *)(arena + 1024);
    struct timespec *ts = (struct timespec *)(arena + 1200);
    memset(m, 0, 4 * sizeof *m);
    for (int i = 0; i < 4; i++) {
        iov[i] = (struct iovec){arena + 2048 + 64 * i, 32};
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
        m[i].msg_hdr.msg_name = arena + 4096 + 64 * i;
        m[i].msg_hdr.msg_namelen = 16;
    }
    iov[3].iov_base = tail(3); /* the fourth fails halfway */
    *ts = (struct timespec){1, 0};
    assert_int_equal(CHECK_SLACK(16, recvmmsg, A(fd), A(m), 4, 0, A(ts)), 3);
    *(uint32_t *)(arena + 512) = 4; /* the fault is kept for the next call */
    OK(CHECK(getsockopt, A(fd), SOL_SOCKET, SO_ERROR, A(arena + 520), A(arena + 512)));
    m[0].msg_len = m[1].msg_len = 0xa5a5a5a5;
    for (int i = 0; i < 2; i++) {
        m[i].msg_hdr.msg_name = arena + 6000;
        m[i].msg_hdr.msg_namelen = sizeof to;
    }
    memcpy(arena + 6000, &to, sizeof to);
    assert_int_equal(CHECK(sendmmsg, A(fd), A(m), 2, 0), 2);
    close(fd);
}

/* ---- what the result does not tell ---- */

/* Calls that write and then fail. */
static void writes_of_failing_calls(void **state)
{
    struct sockaddr_in to;
    FAILS(EOPNOTSUPP, CHECK_SLACK(8, socketpair, AF_INET, SOCK_STREAM, 0, A(arena + 128)));
    uint32_t *attr = (uint32_t *)(arena + 256);
    memset(attr, 0, 512);
    attr[0] = 512, attr[100] = 1; /* larger than any kernel's, and not zero: the size wanted comes back */
    FAILS(E2BIG, CHECK(sched_setattr, 0, A(attr), 0));
    assert_int_not_equal(attr[0], 512);
    FAILS(EINVAL, CHECK_SLACK(4, timer_create, (uint32_t)(~99999999u << 3 | 2), 0, A(arena + 1024)));
    int fd = datagram_pair(&to);
    sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&to, sizeof to);
    *(int32_t *)(arena + 2048) = -1;
    FAILS(EINVAL,
          CHECK_SLACK(90, recvfrom, A(fd), A(arena + 3000), 100, 0, A(arena + 2100), A(arena + 2048)));
    assert_memory_equal(arena + 3000, "0123456789", 10);
    close(fd);
}

/* Pointers that the kernel does not look at may lead anywhere: nothing is recorded there. */
static void ignored_pointers(void **state)
{
    struct timespec *ts = (struct timespec *)arena;
    struct itimerval timer = {{0, 0}, {0, 20000}};
    struct sigaction sa = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &sa, NULL);
    clock_gettime(CLOCK_MONOTONIC, ts);
    ts->tv_sec += 5;
    setitimer(ITIMER_REAL, &timer, NULL);
    FAILS(EINTR, CHECK(clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, A(ts), 0x1000));
    CHECK(syslog, 10, 0x1000, 100);
    fd_set *set = (fd_set *)(arena + 512); /* only the lower half of the count is looked at */
    int p[2];
    assert_int_equal(pipe(p), 0);
    memset(set, 0, sizeof *set);
    FD_SET(p[0], set);
    FD_SET(p[1], set);
    memset(ts, 0, sizeof *ts);
    OK(CHECK(select, 0xdead00000000 | (unsigned)(p[1] + 1), A(set), 0, 0, A(ts)));
    assert_false(FD_ISSET(p[1], set));
    close(p[0]), close(p[1]);
}

/* O_DIRECT reads whole blocks, and says how much of them is the file's. */
static void direct_reading(void **state)
{
    char name[] = "effectsXXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a hundred bytes or less", 23), 23);
    fsync(fd);
    close(fd);
    fd = open(name, O_RDONLY | O_DIRECT);
    unlink(name);
    if (fd < 0) {
        print_message("no O_DIRECT here: %s\n", strerror(errno));
        skip();
    }
    struct iovec *iov = (struct iovec *)(arena + 12288);
    iov[0] = (struct iovec){arena + 8192, 4096};
    OK(CHECK_SLACK(4096, pread64, A(fd), A(arena), 4096, 0));
    OK(CHECK_SLACK(4096, preadv, A(fd), A(iov), 1, 0));
    OK(CHECK_SLACK(4096, read, A(fd), A(arena + 4096), 4096));
    close(fd);
}

/* ---- ioctl ---- */

static void terminals(void **state)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), p[2], zero = 0;
    assert_true(master >= 0);
    ioctl(master, TIOCSPTLCK, &zero);
    OK(CHECK(ioctl, A(master), TCGETS, A(arena)));
    OK(CHECK(ioctl, A(master), TCGETS2, A(arena + 64)));
    OK(CHECK(ioctl, A(master), TCGETA, A(arena + 128)));
    OK(CHECK(ioctl, A(master), TIOCGWINSZ, A(arena + 200)));
    OK(CHECK(ioctl, A(master), TIOCGPTN, A(arena + 220)));
    OK(CHECK(ioctl, A(master), TIOCGPTLCK, A(arena + 240)));
    OK(CHECK(ioctl, A(master), TIOCOUTQ, A(arena + 260)));
    OK(CHECK(ioctl, A(master), FIONREAD, A(arena + 280)));
    OK(CHECK(ioctl, A(master), TIOCGETD, A(arena + 300)));
    FAILS(EFAULT, CHECK_SLACK(10, ioctl, A(master), TCGETS, A(tail(10))));
    assert_int_equal(pipe(p), 0);
    FAILS(ENOTTY, CHECK(ioctl, A(p[0]), TCGETS, A(arena + 400)));
    OK(CHECK(ioctl, A(p[0]), FIONREAD, A(arena + 440)));
    assert_string_equal(fake_notes, "");
    close(master), close(p[0]), close(p[1]);
}

static void interfaces(void **state)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifconf *conf = (struct ifconf *)arena;
    struct ifreq *r = (struct ifreq *)(arena + 4096);
    *conf = (struct ifconf){.ifc_len = 2000, .ifc_buf = (char *)arena + 1024};
    OK(CHECK(ioctl, A(fd), SIOCGIFCONF, A(conf)));
    memset(r, 0, sizeof *r);
    strcpy(r->ifr_name, "lo");
    OK(CHECK(ioctl, A(fd), SIOCGIFFLAGS, A(r)));
    OK(CHECK(ioctl, A(fd), SIOCGIFINDEX, A(r)));
    OK(CHECK(ioctl, A(fd), SIOCGIFMTU, A(r)));
    OK(CHECK(ioctl, A(fd), SIOCGIFHWADDR, A(r)));
    close(fd);
}

static void file_commands(void **state)
{
    int fd = temporary("text"), dir = open("/etc", O_RDONLY);
    CHECK(ioctl, A(dir), FS_IOC_GETFLAGS, A(arena));
    CHECK(ioctl, A(fd), FIGETBSZ, A(arena + 64));
    struct fiemap *map = (struct fiemap *)(arena + 128);
    memset(map, 0, sizeof *map);
    map->fm_length = 1 << 20;
    map->fm_extent_count = 4;
    fsync(fd);
    CHECK(ioctl, A(fd), FS_IOC_FIEMAP, A(map));
    map->fm_flags = 1u << 30; /* unknown: it comes back as what was refused */
    CHECK_SLACK(64, ioctl, A(fd), FS_IOC_FIEMAP, A(map));
    CHECK(ioctl, A(dir), FS_IOC_FSGETXATTR, A(arena + 1024));
    close(fd), close(dir);
}

static void ioctl_table_is_sorted(void **state)
{
    for (uint32_t i = 0; i < ioctl_table_count; i++) {
        if (i)
            assert_true(ioctl_table[i - 1].cmd < ioctl_table[i].cmd);
        assert_ptr_equal(ioctl_find(ioctl_table[i].cmd), &ioctl_table[i]);
    }
    assert_null(ioctl_find(0));
    assert_null(ioctl_find(0xffffffff));
}

/* ---- the table ---- */

/* Each call that the system's headers know has a row of its number and name. */
static void numbers_and_names(void **state)
{
    FILE *f = fopen("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "r");
    char line[200], name[64];
    unsigned nr, found = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "#define __NR_%63s %u", name, &nr) != 2 || !strcmp(name, "bpf"))
            continue;
        if (!sys_name(nr) || strcmp(sys_name(nr), name))
            fail_msg("call %u is %s, the table says %s", nr, name, sys_name(nr) ? sys_name(nr) : "nothing");
        found++;
    }
    fclose(f);
    assert_true(found > 300);
    assert_null(sys_name(400));
    assert_null(sys_name(~0u));
}

/* What a row says fits together. */
static void rows_are_sound(void **state)
{
    for (uint32_t nr = 0; nr < sys_table_count; nr++) {
        const struct sys_row *row = &sys_table[nr];
        unsigned ways = !!row->both + (row->record && !row->slow) + !!(row->flags & ROW_REFUSED);
        if (!row->name)
            continue;
        if (ways > 1 || (row->slow && !row->record) || (ways && !(row->flags & SYS_NOT_FAST)) ||
            ((row->flags & ROW_REFUSED) && row->refusal <= 0) ||
            ((row->flags & SYS_SEEN) && row->outs[0].how) ||
            ((row->flags & SYS_WRITES) && !(row->fds >> row->to_fd & 1)))
            fail_msg("the row of %s contradicts itself", row->name);
        for (int i = 0; i < SYS_OUTS && row->outs[i].how; i++) {
            const struct sys_out *o = &row->outs[i];
            bool vector = o->how == OUT_IOVEC || o->how == OUT_MSG || o->how == OUT_MMSG;
            if (o->arg > 5 || (o->how == OUT_FN) != !!o->fn || (o->how == OUT_FIXED && !o->size) ||
                vector != (!i && (row->flags & ROW_VECTOR)))
                fail_msg("output %d of %s contradicts itself", i, row->name);
        }
    }
}

/* What a call acts on decides how its row is made. */
static bool made_for(const struct sys_row *row)
{
    bool own = row->both || (row->record && !row->slow), refused = row->flags & ROW_REFUSED;
    switch (row->acts) {
    case ACTS_OUTSIDE:
        return true;
    case ACTS_OPENED:
        return row->after || row->record;
    case ACTS_MEMORY:
    case ACTS_TASKS:
        return own || refused;
    case ACTS_SIGNALS:
        return own || (row->flags & SYS_TEMPMASK);
    case ACTS_ENGINE:
        return own || refused || row->record;
    }
    return false;
}

/* A row says what its call acts on, and one of: no effects, outputs, a function of its own, refused. */
static void rows_say_what_they_act_on(void **state)
{
    for (uint32_t nr = 0; nr < sys_table_count; nr++) {
        const struct sys_row *row = &sys_table[nr];
        if (!row->name)
            continue;
        if (row->acts == ACTS_UNSAID || !made_for(row))
            fail_msg("%s acts on %d, and its row is not made for that", row->name, row->acts);
        if (!(row->flags & (SYS_SEEN | SYS_WRITES | ROW_REFUSED)) && !row->outs[0].how && !row->record &&
            !row->both)
            fail_msg("%s says neither what it writes nor that it writes nothing", row->name);
    }
}

/* What must never be performed in record and skipped in replay, whatever a row says of itself. */
static void calls_that_replay_needs(void **state)
{
    static const struct {
        enum sys_acts acts;
        const char *names;
    } known[] = {
        {ACTS_MEMORY,
         " mmap mprotect munmap brk mremap msync madvise shmat shmdt mlock munlock mlockall munlockall mlock2"
         " remap_file_pages process_madvise personality pkey_mprotect pkey_alloc mseal memfd_secret "
         "map_shadow_stack "
         "uselib "},
        {ACTS_SIGNALS,
         " rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack rt_sigsuspend ppoll pselect6 epoll_pwait"
         " epoll_pwait2 "},
        {ACTS_TASKS, " clone fork vfork execve exit exit_group clone3 execveat arch_prctl set_tid_address "},
        {ACTS_ENGINE,
         " ptrace modify_ldt iopl ioperm io_setup io_submit io_uring_setup io_uring_enter seccomp userfaultfd"
         " perf_event_open rseq prctl setrlimit prlimit64 landlock_restrict_self uprobe uretprobe "},
    };
    unsigned found = 0;
    for (uint32_t nr = 0; nr < sys_table_count; nr++) {
        char name[64];
        snprintf(name, sizeof name, " %s ", sys_table[nr].name ? sys_table[nr].name : "-");
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strstr(known[i].names, name)) {
                found++;
                if (sys_table[nr].acts != known[i].acts)
                    fail_msg("%s acts on %d, and its row says %d", name, known[i].acts, sys_table[nr].acts);
            }
    }
    assert_int_equal(found, 60);
}

/* ---- others ---- */

static void queues(void **state)
{
    int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 3, 0600);
    struct {
        long type;
        char text[8];
    } m = {1, "abcdefg"};
    assert_true(q >= 0 && s >= 0);
    msgsnd(q, &m, 8, 0);
    OK(CHECK(msgrcv, A(q), A(arena), 100, 0, 0));
    FAILS(ENOMSG, CHECK_SLACK(108, msgrcv, A(q), A(arena + 100), 100, 0, IPC_NOWAIT));
    OK(CHECK(msgctl, A(q), IPC_STAT, A(arena + 512)));
    OK(CHECK(semctl, A(s), 0, IPC_STAT, A(arena + 1024)));
    fill();
    OK(CHECK(semctl, A(s), 0, GETALL, A(arena + 2048)));
    OK(CHECK(semctl, A(s), 1, GETVAL, 0));
    OK(CHECK_SLACK(104, semctl, A(s), 0, SEM_INFO, A(arena + 3000)));
    msgctl(q, IPC_RMID, NULL);
    semctl(s, 0, IPC_RMID);
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 32};
    mqd_t mq = mq_open("/clio-test-effects", O_RDWR | O_CREAT, 0600, &attr);
    if (mq >= 0) {
        mq_unlink("/clio-test-effects");
        mq_send(mq, "message", 7, 3);
        OK(CHECK(mq_timedreceive, A(mq), A(arena), 32, A(arena + 64), 0));
        OK(CHECK_SLACK(64, mq_getsetattr, A(mq), 0, A(arena + 128)));
        close(mq);
    }
}

static void keys(void **state)
{
    int64_t key = raw5(SYS_add_key, "user", "clio:test", "secret", 6, KEY_SPEC_PROCESS_KEYRING);
    if (key < 0) {
        print_message("no keys here: %s\n", strerror((int)-key));
        skip();
    }
    OK(CHECK_SLACK(100, keyctl, KEYCTL_DESCRIBE, A(key), A(arena), 100));
    OK(CHECK_SLACK(100, keyctl, KEYCTL_READ, A(key), A(arena + 200), 100));
    OK(CHECK_SLACK(100, keyctl, KEYCTL_READ, A(key), A(arena + 400), 3));
}

static void other_memory(void **state)
{
    struct iovec *iov = (struct iovec *)arena;
    iov[0] = (struct iovec){arena + 100, 5};
    iov[1] = (struct iovec){arena + 200, 5};
    iov[2] = (struct iovec){(void *)"0123456789", 10};
    OK(CHECK(process_vm_readv, A(getpid()), A(iov), 2, A(iov + 2), 1, 0));
    iov[3] = (struct iovec){arena + 300, 10};
    OK(CHECK(process_vm_writev, A(getpid()), A(iov + 2), 1, A(iov + 3), 1, 0));
    uint64_t *request = (uint64_t *)(arena + 1024);
    request[0] = 24, request[1] = ~0ull, request[2] = 0;
    checked("listmount", 458, 0, (uint64_t[6]){A(request), A(arena + 2048), 10, 0});
    struct statx stx;
    statx(AT_FDCWD, "/", 0, 0x4000, &stx);
    request[1] = stx.stx_mnt_id, request[2] = 7;
    checked("statmount", 457, 1000, (uint64_t[6]){A(request), A(arena + 4096), 1000, 0});
}

/* ---- calls without a row ---- */

static void refused(void **state)
{
    FAILS(ENOSYS, checked("io_uring_setup", 425, 0, (uint64_t[6]){0}));
    FAILS(ENOSYS, checked("rseq", 334, 0, (uint64_t[6]){0}));
}

static void unknown(void **state)
{
    struct sys_call c = {.nr = SYS_uname, .args = {A(arena + 5000)}};
    memcpy(before, arena, ARENA);
    fake_task.effects.count = 0;
    sys_record_unknown(&fake_task, &c, "uname");
    check("unknown uname", c.result, 128);
    struct sys_call r = {.nr = SYS_getrandom, .args = {A(arena + 3000), 9000}};
    memcpy(before, arena, ARENA);
    fake_task.effects.count = 0;
    sys_record_unknown(&fake_task, &r, "getrandom");
    check("unknown getrandom", r.result, 200);
    assert_int_equal(r.result, 9000);
    assert_int_equal(waitpid(-1, NULL, __WALL), -1); /* the snapshot is gone */
    fake_notes[0] = 0;
    FAILS(ENOSYS, checked("call 500", 500, 0, (uint64_t[6]){0}));
    assert_non_null(strstr(fake_notes, "call 500"));
    fake_notes[0] = 0;
    FAILS(ENOSYS, checked("nobody's", 600, 0, (uint64_t[6]){0})); /* without a search */
    FAILS(ENOSYS, checked("nobody's", ~0u, 0, (uint64_t[6]){0}));
    assert_string_equal(fake_notes, "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, refill)
    const struct CMUnitTest tests[] = {
        T(reading),
        T(reading_into_the_void),
        T(status),
        T(directories),
        T(attributes),
        T(copying),
        T(descriptors),
        T(waiting_for_descriptors),
        T(special_files),
        T(sleeping),
        T(waiting_for_children),
        T(signals),
        T(identity),
        T(scheduling),
        T(clocks),
        T(futexes),
        T(addresses),
        T(options),
        T(messages),
        T(datagrams),
        T(terminals),
        T(interfaces),
        T(file_commands),
        T(ioctl_table_is_sorted),
        T(numbers_and_names),
        T(rows_are_sound),
        T(rows_say_what_they_act_on),
        T(calls_that_replay_needs),
        T(writes_of_failing_calls),
        T(ignored_pointers),
        T(direct_reading),
        T(queues),
        T(keys),
        T(other_memory),
        T(refused),
        T(unknown),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
