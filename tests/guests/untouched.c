/* What recording does with the program's files leaves no mark on them: offset, flags, locks, leases, owners,
   times, links, blocks, watches. */
// VARIANTS: o2 static
// RUNS: dense sparse memory locks flock leases owners run
#include "guest.h"
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { SIZE = 300000, PLACE = 12345 };

static int watch = -1;

/* Everything that was seen of the watched files since the last time. */
static unsigned events(void)
{
    char text[8192] __attribute__((aligned(8)));
    unsigned seen = 0;
    for (ssize_t n; (n = read(watch, text, sizeof text)) > 0;)
        for (char *p = text; p < text + n;
             p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len)
            seen |= ((struct inotify_event *)p)->mask;
    return seen;
}

static void fill(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    char block[1000];
    for (int i = 0; i < SIZE / (int)sizeof block; i++) {
        memset(block, 'a' + i % 26, sizeof block);
        write(fd, block, sizeof block);
    }
    fsync(fd);
    close(fd);
}

/* A mapping may change the access time as any mount likes; where the program forbids that it stays. */
static void same_times(const struct stat *a, const struct stat *b, bool quiet, const char *what)
{
    ok(!quiet || (a->st_atim.tv_sec == b->st_atim.tv_sec && a->st_atim.tv_nsec == b->st_atim.tv_nsec),
       "%s: atime", what);
    ok(a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec, "%s: mtime", what);
    ok(a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec, "%s: ctime", what);
    is(b->st_nlink, a->st_nlink, "links");
    is(b->st_blocks, a->st_blocks, "blocks");
    is(b->st_size, a->st_size, "size");
}

/* The known limit: such a file is opened once more, to find its holes. */
static bool sparse_in_memory(int fd)
{
    struct statfs fs;
    struct stat st;
    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC && fstat(fd, &st) == 0 &&
           st.st_blocks * 512 < st.st_size;
}

/* Maps fd, reads a little of it, and looks at everything that might have moved. */
static void map_and_look(int fd, int prot, int flags, const char *what)
{
    struct stat before, after;
    int status = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD), seals = fcntl(fd, F_GET_SEALS);
    lseek(fd, PLACE, SEEK_SET);
    fstat(fd, &before);
    events();
    volatile char *p = mmap(NULL, SIZE, prot, flags, fd, 0);
    ok(p != MAP_FAILED, "%s: mapped", what);
    fstat(fd, &after);
    same_times(&before, &after, status & O_NOATIME, what);
    is(lseek(fd, 0, SEEK_CUR), PLACE, "offset");
    is(fcntl(fd, F_GETFL), status, "status flags");
    is(fcntl(fd, F_GETFD), own, "descriptor flags");
    is(fcntl(fd, F_GET_SEALS), seals, "seals");
    is(fcntl(fd, F_GETLEASE), F_UNLCK, "no lease");
    is(fcntl(fd, F_GETOWN), 0, "no owner");
    say("%s: %c\n", what, p[PLACE]);
    ok(!events() || sparse_in_memory(fd), "nothing seen");
    char byte = 0;
    is(read(fd, &byte, 1), 1, "reads on");
    is(byte, p[PLACE], "from its place");
    munmap((void *)p, SIZE);
}

static void dense(void)
{
    fill("file");
    inotify_add_watch(watch, "file", IN_ALL_EVENTS);
    inotify_add_watch(watch, ".", IN_ALL_EVENTS);
    int fd = open("file", O_RDONLY | O_NOATIME);
    map_and_look(fd, PROT_READ, MAP_PRIVATE, "private");
    map_and_look(fd, PROT_READ, MAP_SHARED, "shared");
    map_and_look(fd, PROT_READ | PROT_EXEC, MAP_PRIVATE, "code");
    int second = dup(fd);
    map_and_look(second, PROT_READ | PROT_WRITE, MAP_PRIVATE, "duplicate");
    close(fd);
    close(second);
    fd = open("file", O_RDWR | O_NOATIME | O_APPEND);
    map_and_look(fd, PROT_READ, MAP_SHARED, "read and write");
    close(fd);
    unlink("file");
    is(events() & ~(unsigned)(IN_OPEN | IN_ACCESS | IN_CLOSE | IN_ATTRIB | IN_DELETE | IN_DELETE_SELF |
                              IN_IGNORED | IN_ISDIR),
       0, "what this program did itself");
}

static void sparse(void)
{
    int fd = open("file", O_RDWR | O_CREAT | O_NOATIME, 0644);
    ftruncate(fd, 4 << 20);
    pwrite(fd, "middle", 6, 2 << 20);
    pwrite(fd, "start", 5, PLACE);
    fsync(fd);
    inotify_add_watch(watch, "file", IN_ALL_EVENTS);
    inotify_add_watch(watch, ".", IN_ALL_EVENTS);
    map_and_look(fd, PROT_READ, MAP_PRIVATE, "with holes");
    close(fd);
    fd = open("file", O_RDONLY | O_NOATIME);
    map_and_look(fd, PROT_READ, MAP_SHARED, "with holes, reading");
    char *p = mmap(NULL, 4 << 20, PROT_READ, MAP_PRIVATE, fd, 0);
    is(memcmp(p + (2 << 20), "middle", 7), 0, "what is between the holes");
    close(fd);
}

static void memory(void)
{
    int fd = memfd_create("memory", MFD_ALLOW_SEALING);
    ftruncate(fd, 4 << 20);
    pwrite(fd, "start", 5, PLACE);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    struct stat st;
    map_and_look(fd, PROT_READ, MAP_PRIVATE, "memfd");
    fstat(fd, &st);
    say("blocks after reading one page: %ld\n", (long)st.st_blocks);
    map_and_look(fd, PROT_READ | PROT_WRITE, MAP_SHARED, "memfd, shared");
    close(fd);
}

/* What another process would have to wait for: F_WRLCK, F_RDLCK or F_UNLCK. */
static int locked_as(const char *name, off_t start, off_t length)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct flock l = {.l_type = F_WRLCK, .l_start = start, .l_len = length};
        int fd = open(name, O_RDWR);
        _exit(fcntl(fd, F_GETLK, &l) ? 99 : l.l_type == F_UNLCK || l.l_pid == getppid() ? l.l_type : 98);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void locks(void)
{
    fill("file");
    int fd = open("file", O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_start = 10, .l_len = 20};
    is(fcntl(fd, F_SETLK, &l), 0, "record lock");
    l = (struct flock){.l_type = F_RDLCK, .l_start = 100, .l_len = 20};
    is(fcntl(fd, F_SETLK, &l), 0, "record lock for reading");
    for (int i = 0; i < 4; i++) {
        char *p = mmap(NULL, SIZE, PROT_READ, i & 1 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        say("%c\n", p[i]);
        is(locked_as("file", 10, 20), F_WRLCK, "still locked for writing");
        is(locked_as("file", 100, 20), F_RDLCK, "still locked for reading");
        if (i & 2)
            pwrite(fd, "x", 1, i);
        if (i == 3)
            ftruncate(fd, SIZE - 5000);
        munmap(p, SIZE);
    }
    is(locked_as("file", 10, 20), F_WRLCK, "locked at the end");
    close(open("file", O_RDONLY));
    is(locked_as("file", 10, 20), F_UNLCK, "dropped by a close of one's own");
    close(fd);
}

/* A flock ends with the last descriptor of its open file, at once. */
static void flocks(void)
{
    fill("file");
    int other = open("file", O_RDONLY);
    int failed = 0;
    for (int i = 0; i < 50; i++) {
        int fd = open("file", O_RDWR);
        flock(fd, LOCK_EX);
        void *p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
        munmap(p, SIZE);
        pwrite(fd, &i, 1, i);
        is(flock(other, LOCK_EX | LOCK_NB), -1, "held");
        close(fd);
        failed += flock(other, LOCK_EX | LOCK_NB) != 0;
        flock(other, LOCK_UN);
    }
    is(failed, 0, "free after close");
}

static volatile int broken;

static void on_break(int signal)
{
    broken++;
}

static void leases(void)
{
    fill("file");
    signal(SIGIO, on_break);
    int fd = open("file", O_RDONLY);
    if (fcntl(fd, F_SETLEASE, F_RDLCK)) {
        say("this file system has no leases\n");
        return;
    }
    void *p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    is(fcntl(fd, F_GETLEASE), F_RDLCK, "is kept");
    is(fcntl(fd, F_GETOWN), getpid(), "and its owner");
    munmap(p, SIZE);
    fcntl(fd, F_SETLEASE, F_UNLCK);
    close(fd);
    fd = open("file", O_RDWR);
    is(fcntl(fd, F_SETLEASE, F_WRLCK), 0, "a lease for writing");
    p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    is(fcntl(fd, F_GETLEASE), F_WRLCK, "is kept");
    is(broken, 0, "and nobody broke it");
    munmap(p, SIZE);
    close(fd);
}

static void owners(void)
{
    fill("file");
    int fd = open("file", O_RDONLY);
    fcntl(fd, F_SETOWN, getpid());
    fcntl(fd, F_SETSIG, SIGRTMIN + 3);
    mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    is(fcntl(fd, F_GETOWN), getpid(), "owner");
    is(fcntl(fd, F_GETSIG), SIGRTMIN + 3, "signal");
    is(fcntl(fd, F_GETLEASE), F_UNLCK, "no lease");
    fcntl(fd, F_SETOWN, 0);
    fcntl(fd, F_SETSIG, 0);
    mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    is(fcntl(fd, F_GETOWN), 0, "no owner");
    is(fcntl(fd, F_GETSIG), 0, "no signal");
    close(fd);
}

/* A program that is run is opened, read and closed; which events that makes is the kernel's matter. */
static void run(void)
{
    char block[65536];
    int in = open("/proc/self/exe", O_RDONLY), out = open("copy", O_WRONLY | O_CREAT, 0755);
    for (ssize_t n; (n = read(in, block, sizeof block)) > 0;)
        write(out, block, (size_t)n);
    close(in);
    close(out);
    inotify_add_watch(watch, "copy", IN_ALL_EVENTS);
    struct stat before, after;
    stat("copy", &before);
    pid_t child = fork();
    if (child == 0) {
        execl("copy", "copy", "nothing", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    stat("copy", &after);
    is(after.st_nlink, before.st_nlink, "links");
    is(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec, "ctime");
    say("seen: %x\n", events());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"dense", dense},  {"sparse", sparse}, {"memory", memory}, {"locks", locks},
                {"flock", flocks}, {"leases", leases}, {"owners", owners}, {"run", run}};
    watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (!strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
