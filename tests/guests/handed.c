/* Output goes to stdout by whichever descriptor: what is handed over by a socket or a pidfd is written by replay, too. */
// VARIANTS: o2
// RUNS: rights closed many pidfd family range others hidden
#include "guest.h"
#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open  434
#define SYS_pidfd_getfd 438
#endif

static int pair[2];

static int pass(const int *fds, int count)
{
    char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec iov = {"x", 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    m.msg_controllen = CMSG_SPACE((size_t)count * sizeof *fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){CMSG_LEN((size_t)count * sizeof *fds), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof *fds);
    return (int)sendmsg(pair[1], &m, 0);
}

static int take(int *fds, int room)
{
    char control[CMSG_SPACE(16 * sizeof(int))], byte;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    m.msg_controllen = CMSG_SPACE((size_t)room * sizeof *fds);
    if (recvmsg(pair[0], &m, 0) != 1)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof *fds);
    memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof *fds);
    return count;
}

static void put(int fd, const char *text)
{
    write(fd, text, strlen(text));
}

static void rights(void)
{
    int fds[2] = {1, 2}, got[2];
    pass(fds, 2);
    is(take(got, 2), 2, "two came over");
    put(got[0], "to stdout\n");
    put(got[1], "to stderr\n");
    int again = dup(got[0]);
    put(again, "to a copy of it\n");
    dup2(got[0], 50);
    put(50, "to a copy of a chosen number\n");
    int null = open("/dev/null", O_WRONLY);
    fds[0] = null;
    pass(fds, 1);
    is(take(got, 1), 1, "one came over");
    put(got[0], "not to be seen\n");
    close(again);
    is(open("/dev/null", O_WRONLY), again, "the number serves another file");
    put(again, "not to be seen either\n");
}

/* No descriptor leads to stdout any more when it comes back. */
static void closed(void)
{
    int fds[1] = {1}, got[1], fork_of = dup(1);
    pass(fds, 1);
    close(fork_of);
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    put(1, "not to be seen\n");
    int n = take(got, 1);
    put(got[0], n == 1 ? "it came back\n" : "it did not come back\n");
    dup2(got[0], 1);
    ok(true, "and is stdout again");
}

static void many(void)
{
    struct mmsghdr m[4] = {0};
    char control[4][CMSG_SPACE(sizeof(int))], bytes[4];
    struct iovec iov[4];
    int fds[2] = {1, 2};
    for (int i = 0; i < 4; i++) {
        pass(&fds[i % 2], 1);
        iov[i] = (struct iovec){&bytes[i], 1};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i],
                                       .msg_iovlen = 1,
                                       .msg_control = control[i],
                                       .msg_controllen = sizeof control[i]};
    }
    is(recvmmsg(pair[0], m, 4, 0, NULL), 4, "four messages");
    for (int i = 0; i < 4; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m[i].msg_hdr)), sizeof fd);
        put(fd, "by one of four\n");
    }
}

static void pidfd(void)
{
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int fd = (int)syscall(SYS_pidfd_getfd, self, 1, 0);
    put(fd < 0 ? 1 : fd, "to a descriptor of one's own\n");
    int p[2];
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        dup2(1, 77);
        write(p[1], "x", 1);
        pause();
        _exit(0);
    }
    char byte;
    read(p[0], &byte, 1);
    int other = (int)syscall(SYS_pidfd_open, child, 0);
    fd = (int)syscall(SYS_pidfd_getfd, other, 77, 0);
    put(fd < 0 ? 1 : fd, "to a descriptor of a child\n");
    is(syscall(SYS_pidfd_getfd, other, 900, 0), -1, "nothing at 900");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void family(void)
{
    int a = dup(1), b = fcntl(a, F_DUPFD, 100), c = fcntl(b, F_DUPFD_CLOEXEC, 200),
        d = dup3(c, 300, O_CLOEXEC);
    put(a, "dup\n");
    put(b, "F_DUPFD\n");
    put(c, "F_DUPFD_CLOEXEC\n");
    put(d, "dup3\n");
    struct stat st;
    fstat(1, &st);
    const char *const again[] = {"/dev/stdout", "/proc/self/fd/100", "/dev/fd/200"};
    for (int i = 0; i < 3 && !S_ISREG(st.st_mode); i++) /* a file opened again has an offset of its own */
        put(open(again[i], O_WRONLY), again[i]);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "echo by a program >&100; (echo lost >&200) 2>/dev/null || echo closed",
              NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    put(c, "still here\n");
}

static void range(void)
{
    int null = open("/dev/null", O_WRONLY);
    for (int fd = 60; fd < 70; fd++)
        dup2(1, fd);
    syscall(SYS_close_range, 60, 64, 0);
    for (int fd = 60; fd < 65; fd++)
        dup2(null, fd);
    put(62, "not to be seen\n");
    put(66, "one that was left\n");
    is(syscall(SYS_close_range, 65, 66, CLOSE_RANGE_UNSHARE), 0, "closed with a table of one's own");
    dup2(null, 66);
    put(66, "not to be seen\n");
    put(67, "another that was left\n");
    syscall(SYS_close_range, 67, 69, CLOSE_RANGE_CLOEXEC);
    put(68, "marked but open\n");
}

/* Between processes: the parent's stdout arrives at a child that had closed its own. */
static void others(void)
{
    int fds[1] = {1}, got[1];
    pass(fds, 1);
    pid_t child = fork();
    if (child == 0) {
        close(0), close(1);
        int n = take(got, 1);
        put(got[0], n == 1 ? "from the child\n" : "nothing came\n");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    put(1, "from the parent\n");
}

/* Descriptors that the program does not have cannot be handed over, whatever has their numbers. */
static void hidden(void)
{
    int passed = 0, taken = 0, self = (int)syscall(SYS_pidfd_open, getpid(), 0), got[1];
    for (int fd = 100; fd < 8192; fd++) {
        if (pass(&fd, 1) == 1) {
            passed++;
            take(got, 1);
        }
        taken += syscall(SYS_pidfd_getfd, self, fd, 0) >= 0;
    }
    is(passed, 0, "passed over the socket");
    is(taken, 0, "taken by pidfd");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"rights", rights}, {"closed", closed}, {"many", many},     {"pidfd", pidfd},
                {"family", family}, {"range", range},   {"others", others}, {"hidden", hidden}};
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (!strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
