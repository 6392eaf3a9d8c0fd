/* Descriptors: the host's must be invisible and survive whatever the guest does to all numbers. */
// VARIANTS: o2 static
// RUNS: close range dup limit numbers closed many
#include "guest.h"
#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

static int list(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d);
    closedir(d);
    return n;
}

static void go_on(const char *after)
{
    int fd = open("/proc/self/comm", O_RDONLY);
    is(fd, 3, after);
    close(fd);
    pid_t child = fork();
    if (child == 0)
        _exit(6);
    int status = 0;
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 6, "fork still works");
    void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 1 << 20);
    for (int i = 0; i < 1000; i++)
        syscall(SYS_getppid);
    char t[] = "true";
    child = fork();
    if (child == 0) {
        execl("/bin/true", t, NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 0, "exec still works");
}

static void closing(void)
{
    int closed = 0;
    for (int fd = 3; fd < 4096; fd++)
        closed += close(fd) == 0;
    is(closed, 0, "nothing to close above 2");
    go_on("after closing every number");
}

static void range(void)
{
    open("/dev/null", O_RDONLY);
    open("/dev/null", O_RDONLY);
    is(list(), 5, "five are open");
    is(syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC), 0, "close_range that marks");
    is(fcntl(4, F_GETFD), FD_CLOEXEC, "marks");
    is(syscall(SYS_close_range, 3, ~0u, 0), 0, "close_range(3, ~0)");
    is(list(), 3, "three are left");
    go_on("after close_range");
}

static void duplicates(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int bad = 0, top = limit.rlim_cur > 4096 ? 4096 : (int)limit.rlim_cur;
    for (int fd = 3; fd < top; fd++)
        bad += dup2(0, fd) != fd;
    is(bad, 0, "dup2 onto every number");
    struct stat a, b;
    fstat(0, &a);
    for (int fd = 3; fd < top; fd++)
        bad += fstat(fd, &b) != 0 || a.st_rdev != b.st_rdev || a.st_ino != b.st_ino;
    is(bad, 0, "each is what it should be");
    is(list(), top, "all are listed");
    for (int fd = 3; fd < top; fd++)
        bad += close(fd) != 0;
    is(bad, 0, "and closes");
    go_on("after that");
}

static void limits(void)
{
    struct rlimit old, now = {32, 32};
    getrlimit(RLIMIT_NOFILE, &old);
    now.rlim_max = old.rlim_max;
    is(setrlimit(RLIMIT_NOFILE, &now), 0, "setrlimit");
    getrlimit(RLIMIT_NOFILE, &now);
    is(now.rlim_cur, 32, "getrlimit");
    int n = 0, last = -1, fd;
    while ((fd = dup(0)) >= 0)
        n++, last = fd;
    ok(n == 29 && last == 31 && errno == EMFILE, "29 more descriptors, then EMFILE");
    is(dup2(0, 32), -1, "dup2 beyond the limit");
    is(errno, EBADF, "EBADF");
    is(fcntl(0, F_DUPFD, 32), -1, "F_DUPFD beyond the limit");
    is(errno, EINVAL, "EINVAL");
    syscall(SYS_close_range, 3, ~0u, 0);
    setrlimit(RLIMIT_NOFILE, &old);
    go_on("with the old limit");
}

static void numbers(void)
{
    is(open("/dev/null", O_RDONLY), 3, "open gives 3");
    is(dup(1), 4, "dup gives 4");
    int p[2];
    pipe(p);
    ok(p[0] == 5 && p[1] == 6, "pipe gives 5 and 6");
    close(3);
    is(open("/dev/null", O_RDONLY), 3, "the lowest free number again");
    is(fcntl(1, F_DUPFD, 100), 100, "F_DUPFD");
    is(fcntl(1, F_DUPFD_CLOEXEC, 100), 101, "F_DUPFD_CLOEXEC");
    is(fcntl(101, F_GETFD), FD_CLOEXEC, "its flag");
    is(dup3(1, 1, 0), -1, "dup3 onto itself");
    is(dup2(1, 1), 1, "dup2 onto itself");
    is(dup2(77, 78), -1, "dup2 of nothing");
    is(close(77), -1, "close of nothing");
    is(errno, EBADF, "EBADF");
    char c;
    for (int fd = 200; fd < 1200; fd++)
        if (read(fd, &c, 1) != -1 || errno != EBADF || write(fd, "x", 1) != -1 || errno != EBADF ||
            fcntl(fd, F_GETFL) != -1)
            ok(false, "descriptor %d answers", fd);
    long top = sysconf(_SC_OPEN_MAX);
    for (long fd = top - 100 > 1200 ? top - 100 : 1200; fd < top; fd++)
        if (fcntl((int)fd, F_GETFD) != -1)
            ok(false, "descriptor %ld answers", fd);
    ok(true, "no other number answers");
}

/* Standard descriptors closed: what is opened next takes their numbers. */
static void closed(void)
{
    int keep = dup(1);
    close(0);
    close(1);
    close(2);
    int a = open("/dev/null", O_RDWR), b = open("/dev/null", O_RDWR), c = open("/dev/null", O_RDWR);
    write(1, "to nowhere\n", 11);
    dup2(keep, 1);
    close(keep);
    ok(a == 0 && b == 1 && c == 2, "0, 1 and 2 can be taken again");
}

/* Thousands of descriptors, each with the number that is its turn. */
static void many(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 9000 ? limit.rlim_max : 9000;
    setrlimit(RLIMIT_NOFILE, &limit);
    int top = (int)limit.rlim_cur - 50, wrong = 0, p[2];
    for (int fd = 3; fd < top; fd++)
        if (fd % 5 == 0 && fd + 1 < top) {
            wrong += pipe(p) || p[0] != fd || p[1] != fd + 1;
            fd++;
        } else {
            wrong += (fd % 3 ? open("/dev/null", O_RDONLY) : fd % 2 ? dup(0) : fcntl(0, F_DUPFD, 3)) != fd;
        }
    is(wrong, 0, "every number in its turn");
    wrong = 0;
    for (int fd = top / 3; fd < top; fd += 7) {
        close(fd);
        wrong += fcntl(0, F_DUPFD_CLOEXEC, fd) != fd;
    }
    is(wrong, 0, "and again from a number on");
    syscall(SYS_close_range, 3, ~0u, 0);
    wrong = 0;
    for (int fd = 100; fd < top; fd += 97) {
        wrong += fcntl(0, F_DUPFD, fd) != fd;
        close(fd);
    }
    is(wrong, 0, "at places that nobody uses");
    go_on("with all of them closed");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } all[] = {{"close", closing},   {"range", range},   {"dup", duplicates}, {"limit", limits},
               {"numbers", numbers}, {"closed", closed}, {"many", many}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name))
            all[i].f();
    return finish();
}
