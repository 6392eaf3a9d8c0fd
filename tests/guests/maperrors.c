/* What mmap says of descriptors of every kind, and of requests at the edge: the kernel's errors in the kernel's order. */
// VARIANTS: o2
#include "guest.h"
#include <linux/memfd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum { PAGE = 4096 };

static void map(const char *what, size_t length, int prot, int flags, int fd, off_t offset)
{
    char *p = mmap(NULL, length, prot, flags, fd, offset);
    if (p == MAP_FAILED) {
        say("%s: %s\n", what, strerror(errno));
        return;
    }
    say("%s: mapped\n", what);
    munmap(p, length);
}

/* Every way of asking for one page of fd. */
static void ways(const char *what, int fd)
{
    static const struct {
        const char *name;
        int prot, flags;
    } all[] = {{"private, read", PROT_READ, MAP_PRIVATE},
               {"private, write", PROT_READ | PROT_WRITE, MAP_PRIVATE},
               {"private, write only", PROT_WRITE, MAP_PRIVATE},
               {"private, none", PROT_NONE, MAP_PRIVATE},
               {"private, run", PROT_READ | PROT_EXEC, MAP_PRIVATE},
               {"shared, read", PROT_READ, MAP_SHARED},
               {"shared, write", PROT_READ | PROT_WRITE, MAP_SHARED},
               {"shared, write only", PROT_WRITE, MAP_SHARED},
               {"shared, none", PROT_NONE, MAP_SHARED},
               {"validated", PROT_READ, MAP_SHARED_VALIDATE},
               {"validated, unknown flag", PROT_READ, MAP_SHARED_VALIDATE | 0x1000000},
               {"unknown flag", PROT_READ, MAP_PRIVATE | 0x1000000},
               {"grows down", PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN},
               {"locked", PROT_READ, MAP_PRIVATE | MAP_LOCKED},
               {"populated", PROT_READ, MAP_PRIVATE | MAP_POPULATE},
               {"neither", PROT_READ, 0},
               {"both", PROT_READ, MAP_SHARED_VALIDATE | MAP_PRIVATE}};
    char text[200];
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(text, sizeof text, "%s, %s", what, all[i].name);
        map(text, PAGE, all[i].prot, all[i].flags, fd, 0);
    }
    if (fd >= 0)
        close(fd);
}

static int file(int flags)
{
    return open("file", flags);
}

static int sealed(int seals)
{
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    ftruncate(fd, PAGE);
    fcntl(fd, F_ADD_SEALS, seals);
    return fd;
}

int main(void)
{
    int fd = open("file", O_CREAT | O_RDWR, 0644), p[2];
    ftruncate(fd, 3 * PAGE);
    close(fd);
    sigset_t none;
    sigemptyset(&none);
    ways("read only", file(O_RDONLY));
    ways("write only", file(O_WRONLY));
    ways("read and write", file(O_RDWR));
    ways("append", file(O_RDWR | O_APPEND));
    ways("path only", file(O_PATH));
    ways("directory", open(".", O_RDONLY));
    pipe(p);
    ways("pipe", p[0]);
    ways("pipe's end", p[1]);
    ways("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    ways("eventfd", eventfd(0, 0));
    ways("epoll", epoll_create1(0));
    ways("inotify", inotify_init1(0));
    ways("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
    ways("signalfd", signalfd(-1, &none, 0));
    ways("null", open("/dev/null", O_RDWR));
    ways("full", open("/dev/full", O_RDWR));
    ways("zero", open("/dev/zero", O_RDWR));
    ways("zero, read only", open("/dev/zero", O_RDONLY));
    ways("proc", open("/proc/self/comm", O_RDONLY));
    ways("terminal", open("/dev/ptmx", O_RDWR | O_NOCTTY));
    ways("no descriptor", -1);
    ways("closed", 77);
    ways("sealed against writing", sealed(F_SEAL_WRITE));
    ways("sealed against later writing", sealed(F_SEAL_FUTURE_WRITE));
    ways("sealed in size", sealed(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    int exec = memfd_create("x", 8 /* MFD_NOEXEC_SEAL */);
    ways("not to be run", exec < 0 ? sealed(0) : exec);
    fd = file(O_RDWR);
    map("nothing", 0, PROT_READ, MAP_PRIVATE, fd, 0);
    map("odd offset", PAGE, PROT_READ, MAP_PRIVATE, fd, 100);
    map("offset beyond the end", PAGE, PROT_READ, MAP_PRIVATE, fd, 100 * PAGE);
    map("last offset", PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)0x7ffffffffffff000);
    map("negative offset", PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)0xfffffffffffff000);
    map("offset that overflows", 16 * PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)0xffffffffffff0000);
    map("all of memory", SIZE_MAX, PROT_READ, MAP_PRIVATE, fd, 0);
    map("half of memory", SIZE_MAX / 2, PROT_READ, MAP_PRIVATE, fd, 0);
    map("128 TiB", 1ul << 47, PROT_READ, MAP_PRIVATE, fd, 0);
    map("huge pages of a file", PAGE, PROT_READ, MAP_PRIVATE | MAP_HUGETLB, fd, 0);
    map("longer than the file", 100 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    map("anonymous with offset", PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 100 * PAGE);
    map("anonymous with descriptor", PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    map("anonymous with a closed one", PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, 77, 0);
    map("protection beyond", PAGE, 0x100000 | PROT_READ, MAP_PRIVATE, fd, 0);
    return finish();
}
