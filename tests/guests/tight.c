/* A program that has lowered its limits can still be recorded, and does not meet them where it would not alone. */
// VARIANTS: o2
// RUNS: fsize hard nofile memlock all
#include "guest.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>

static volatile int exceeded;

static void on_exceeded(int signal)
{
    exceeded++;
}

static void lower(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit r = {soft, hard};
    ok(setrlimit(resource, &r) == 0, "limit %d is %ld", resource, (long)soft);
}

static long length_of(const char *path)
{
    char text[4096];
    long total = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -errno;
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        total += n;
    close(fd);
    return total;
}

static int status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void live(bool may_open)
{
    char *argv[] = {"true", NULL};
    if (may_open) {
        ok(length_of("/proc/self/maps") > 200, "maps");
        ok(length_of("/proc/self/environ") >= 0, "environ");
        ok(length_of("/proc/self/cmdline") > 0, "cmdline");
        ok(length_of("/proc/self/auxv") >= 256, "auxv");
        ok(length_of("/proc/self/status") > 200, "status");
        int fd = open("/proc/self/exe", O_RDONLY);
        void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        ok(p != MAP_FAILED && !memcmp(p, "\177ELF", 4), "a file is mapped");
        munmap(p, 4096);
        close(fd);
    }
    void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 1 << 20);
    p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ok(p != MAP_FAILED, "memory is shared");
    memset(p, 1, 1 << 20);
    pid_t child = fork();
    if (child == 0)
        _exit(5);
    is(status_of(child), 5 << 8, "fork");
    child = fork();
    if (child == 0) {
        close(3);
        execv("/bin/true", argv);
        _exit(1);
    }
    is(status_of(child), 0, "exec");
    child = vfork();
    if (child == 0) {
        execv("/nonexistent", argv);
        _exit(4);
    }
    is(status_of(child), 4 << 8, "vfork");
    for (int i = 0; i < 20000; i++)
        getppid();
    is(exceeded, 0, "no limit was met");
}

static void fsize(void)
{
    lower(RLIMIT_FSIZE, 0, RLIM_INFINITY);
    live(true);
    int fd = open("file", O_CREAT | O_WRONLY, 0600);
    is(write(fd, "x", 1), -1, "a write that is too much");
    is(errno, EFBIG, "is told so");
    is(exceeded, 1, "twice");
}

static void hard(void)
{
    lower(RLIMIT_FSIZE, 0, 0);
    live(true);
    is(ftruncate(memfd_create("m", 0), 100), -1, "no memory in files");
    is(exceeded, 1, "by signal");
}

static void nofile(void)
{
    for (int fd = 3; fd < 20; fd++)
        close(fd);
    lower(RLIMIT_NOFILE, 4, 4);
    live(true);
    is(open("/dev/null", O_RDONLY), 3, "one is left");
    is(open("/dev/null", O_RDONLY), -1, "and no more");
    live(false);
}

static void memlock(void)
{
    lower(RLIMIT_MEMLOCK, 0, 0);
    lower(RLIMIT_CORE, 0, 0);
    lower(RLIMIT_MSGQUEUE, 0, 0);
    lower(RLIMIT_SIGPENDING, 0, 0);
    live(true);
}

static void all(void)
{
    lower(RLIMIT_FSIZE, 0, 0);
    lower(RLIMIT_MEMLOCK, 0, 0);
    lower(RLIMIT_NOFILE, 4, 4);
    lower(RLIMIT_STACK, 1 << 20, 1 << 20);
    live(true);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"fsize", fsize}, {"hard", hard}, {"nofile", nofile}, {"memlock", memlock}, {"all", all}};
    signal(SIGXFSZ, on_exceeded);
    int pair[2], status;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t child = fork(); /* its output goes through a socket, which has no size */
    if (child == 0) {
        dup2(pair[1], 1);
        close(pair[0]), close(pair[1]);
        for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++)
            if (!strcmp(argv[1], runs[i].name))
                runs[i].run();
        _exit(finish());
    }
    close(pair[1]);
    char text[4096];
    for (ssize_t n; (n = read(pair[0], text, sizeof text)) > 0;)
        write(1, text, (size_t)n);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}
