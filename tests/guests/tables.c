/* Processes that share one table of descriptors: clone with CLONE_FILES and without CLONE_VM. */
// VARIANTS: o2 static
// RUNS: both exec killed separate forks passed many
#include "guest.h"
#include <linux/close_range.h>
#include <sched.h>
#include <sys/socket.h>

static pid_t share(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

static int status_of(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -errno;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* How many descriptors /proc shows. */
static int count_open(void)
{
    char buffer[4096];
    int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY), count = 0;
    for (long n; (n = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;)
        for (long at = 0; at < n; at += *(uint16_t *)(buffer + at + 16))
            count += buffer[at + 19] != '.';
    close(fd);
    return count - 1;
}

static void both(void)
{
    char text[8] = "";
    int here = count_open();
    pid_t child = share();
    if (!child) {
        int p[2];
        pipe(p);
        dup2(p[0], 40);
        dup2(p[1], 41);
        write(41, "hello", 5);
        close(p[0]);
        close(p[1]);
        _exit(count_open() == here + 2 ? 3 : 4);
    }
    is(status_of(child), 3 << 8, "the child opens two");
    is(count_open(), here + 2, "which are open here");
    is(read(40, text, 5), 5, "and hold what it wrote");
    child = share();
    if (!child) {
        close(40);
        close(41);
        _exit(5);
    }
    is(status_of(child), 5 << 8, "another closes them");
    ok(!is_open(40) && !is_open(41) && count_open() == here, "here, too");
    child = share();
    if (!child) {
        dup2(1, 42);
        say("through 1\n");
        _exit(0);
    }
    status_of(child);
    is(write(42, "through 42\n", 11), 11, "a copy of stdout made by the child");
    close(42);
    for (int i = 0; i < 30; i++) {
        child = share();
        if (!child)
            _exit(count_open() == here ? 0 : 1);
        if (status_of(child))
            ok(false, "hidden descriptors of the dead are seen");
    }
    is(count_open(), here, "nothing is left of thirty more");
}

static void exec(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), other = open("/dev/null", O_RDONLY);
    char text[64];
    snprintf(text, sizeof text, "test -e /proc/self/fd/%d && exit 1; exec %d<&-; exit 6", fd, other);
    for (int i = 0; i < 40; i++) {
        pid_t child = share();
        if (!child) {
            execl("/bin/sh", "sh", "-c", i ? "exit 6" : text, NULL);
            _exit(1);
        }
        if (status_of(child) != 6 << 8)
            ok(false, "a child that execs");
    }
    ok(is_open(fd) && is_open(other), "exec gives the child a table of its own");
    close(fd);
    close(other);
}

static void killed(void)
{
    int here = count_open();
    for (int i = 0; i < 30; i++) {
        pid_t child = share();
        if (!child) {
            raise(i % 2 ? SIGKILL : SIGTERM);
            _exit(1);
        }
        if (status_of(child) != (i % 2 ? SIGKILL : SIGTERM))
            ok(false, "a child that is killed");
    }
    is(count_open(), here, "nothing is left of those that were killed");
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    is(fd, here, "the next number is the next");
}

static void separate(void)
{
    pid_t child = share();
    if (!child) {
        int error = unshare(CLONE_FILES);
        close(0);
        dup2(1, 43);
        _exit(error ? 1 : is_open(43) ? 7 : 2);
    }
    is(status_of(child), 7 << 8, "unshare");
    ok(is_open(0) && !is_open(43), "separates");
    child = share();
    if (!child) {
        syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_UNSHARE);
        close(0);
        _exit(8);
    }
    is(status_of(child), 8 << 8, "close_range with CLOSE_RANGE_UNSHARE");
    ok(is_open(0), "separates");
    dup2(1, 44);
    child = share();
    if (!child) {
        syscall(SYS_close_range, 3, ~0u, 0);
        _exit(9);
    }
    is(status_of(child), 9 << 8, "close_range of all");
    ok(!is_open(44), "closes here");
}

static void forks(void)
{
    int p[2];
    char byte;
    pipe(p);
    pid_t child = share();
    if (!child) {
        pid_t grandchild = fork(); /* with a copy */
        if (!grandchild) {
            close(p[1]);
            dup2(1, 45);
            _exit(10);
        }
        _exit(status_of(grandchild) >> 8);
    }
    is(status_of(child), 10 << 8, "a child of a sharer");
    ok(is_open(p[1]) && !is_open(45), "has a table of its own");
    close(p[1]);
    is(read(p[0], &byte, 1), 0, "no other writer is left");
    close(p[0]);
    child = share();
    if (!child) {
        pid_t more = share();
        if (!more) {
            dup2(1, 46);
            _exit(11);
        }
        _exit(status_of(more) >> 8);
    }
    is(status_of(child), 11 << 8, "three that share");
    ok(is_open(46), "what the third opened");
    close(46);
}

static void passed(void)
{
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t child = fork();
    if (!child) {
        char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {&byte, 1};
        struct msghdr m = {
            .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        int one = 1;
        memcpy(CMSG_DATA(c), &one, sizeof one);
        sendmsg(pair[1], &m, 0);
        _exit(0);
    }
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    is(recvmsg(pair[0], &m, 0), 1, "a descriptor over a socket");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    status_of(child);
    is(write(fd, "through a received one\n", 23), 23, "writing to it");
    close(fd);
}

/* Two that open and close at the same time never see anything but theirs. */
static void many(void)
{
    int bad = 0;
    pid_t child = share();
    for (int i = 0; i < 2000; i++) {
        int fd = open("/dev/null", O_RDONLY);
        bad += fd < 0 || fd > 20 || close(fd);
    }
    if (!child)
        _exit(bad ? 1 : 12);
    is(bad, 0, "two at once");
    is(status_of(child), 12 << 8, "in one table");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"both", both},   {"exec", exec},     {"killed", killed}, {"separate", separate},
                {"forks", forks}, {"passed", passed}, {"many", many}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (argc > 1 && !strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
