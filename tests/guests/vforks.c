/* vfork shares memory for real: what the child does to it, its parent has, however the child ends. */
// VARIANTS: o2 static nopie
// RUNS: ends mappings hidden files nested stacks tables code large spawns limits group tids deep
#include "guest.h"
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static volatile int word;
static char *volatile place;

static int status_of(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -errno;
}

/* How a child may end. */
enum end { EXIT, EXIT_THREAD, EXEC, KILLED, FAULT, ABORT, TERM, ENDS };
static const char *const end_names[] = {"exit",   "exit of the thread", "exec", "SIGKILL", "a fault", "abort",
                                        "SIGTERM"};
static const int end_status[] = {7 << 8, 7 << 8, 0, SIGKILL, SIGSEGV, SIGABRT, SIGTERM};

static void end_like(enum end how)
{
    switch (how) {
    case EXIT:
        _exit(7);
    case EXIT_THREAD:
        syscall(SYS_exit, 7);
        break;
    case EXEC:
        execl("/bin/true", "true", NULL);
        break;
    case KILLED:
        kill(getpid(), SIGKILL);
        break;
    case FAULT:
        *(volatile int *)8 = 1;
        break;
    case ABORT:
        abort();
    default:
        raise(SIGTERM);
    }
    _exit(99);
}

static void ends(void)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (enum end how = 0; how < ENDS; how++) {
        word = -1;
        pid_t child = vfork();
        if (!child) {
            word = (int)how;
            end_like(how);
        }
        ok(word == (int)how, "what a child wrote that ended by %s", end_names[how]);
        ok((status_of(child) & 0xff7f) == end_status[how], "which is how it ended");
    }
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (!child) {
            word = i;
            kill(getpid(), SIGKILL);
        }
        if (word != i || status_of(child) != SIGKILL)
            ok(false, "one of many that are killed");
    }
}

static bool mapped(const char *p)
{
    return !msync((void *)p, 4096, MS_ASYNC);
}

static void mappings(void)
{
    for (int i = 0; i < 3; i++) {
        enum end how = i == 0 ? EXIT : i == 1 ? KILLED : EXEC;
        pid_t child = vfork();
        if (!child) {
            place = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            strcpy(place, "made by the child");
            strcpy(place + 4096, "and unmapped");
            munmap(place + 4096, 4096);
            end_like(how);
        }
        ok(!strcmp(place, "made by the child"), "memory that the child mapped, %s", end_names[how]);
        ok(!mapped(place + 4096) && mapped(place + 8192), "and partly unmapped");
        status_of(child);
        char *mine = place;
        child = vfork();
        if (!child) {
            place = mremap(mine, 4096, 5 * 4096, MREMAP_MAYMOVE);
            strcpy(place + 4 * 4096, "grown");
            end_like(how);
        }
        status_of(child);
        ok(!strcmp(place, "made by the child") && !strcmp(place + 4 * 4096, "grown"), "moved and grown");
        ok(place == mine || !mapped(mine), "away from where it was");
        mine = place;
        child = vfork();
        if (!child) {
            madvise(mine, 4096, MADV_DONTNEED);
            mine[5] = 'x';
            end_like(how);
        }
        status_of(child);
        ok(!mine[0] && mine[5] == 'x' && !strcmp(mine + 4 * 4096, "grown"), "discarded");
        munmap(mine, 5 * 4096);
        char *top = sbrk(0);
        child = vfork();
        if (!child) {
            strcpy(sbrk(8192), "beyond the break");
            end_like(how);
        }
        status_of(child);
        ok((char *)sbrk(0) == top + 8192 && !strcmp(top, "beyond the break"), "the program's break");
        sbrk(-8192);
        char *volatile heap = NULL;
        child = vfork();
        if (!child) {
            heap = malloc(300000);
            memset(heap, 'h', 300000);
            end_like(how);
        }
        status_of(child);
        ok(heap && heap[0] == 'h' && heap[299999] == 'h', "what malloc gave");
        free(heap);
    }
}

static void hidden(void)
{
    static const int protections[] = {PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE | PROT_EXEC};
    for (int i = 0; i < 6; i++) {
        enum end how = i % 2 ? KILLED : EXIT;
        char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 'a', 4 * 4096);
        pid_t child = vfork();
        if (!child) {
            p[4096] = 'b';
            p[3 * 4096 - 1] = 'c';
            mprotect(p + 4096, 2 * 4096, protections[i / 2]);
            end_like(how);
        }
        status_of(child);
        bool refused = read(open("/dev/zero", O_RDONLY), p + 4096, 1) == -1 && errno == EFAULT;
        ok(refused == (i / 2 < 2), "protection as the child set it, %s", end_names[how]);
        mprotect(p, 4 * 4096, PROT_READ);
        is(p[4096], i / 2 < 2 ? 'b' : 0, "the first byte of what was protected");
        ok(p[3 * 4096 - 1] == 'c' && p[4095] == 'a' && p[3 * 4096] == 'a', "and the last");
        munmap(p, 4 * 4096);
    }
}

static void files(void)
{
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 4 * 4096; i += 8)
        write(fd, "content ", 8);
    for (int i = 0; i < 4; i++) {
        enum end how = i % 2 ? KILLED : EXIT;
        int shared = i / 2;
        pid_t child = vfork();
        if (!child) {
            place = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 4096);
            place[shared ? 9 : 1] = 'X';
            end_like(how);
        }
        status_of(child);
        char byte = 0;
        pread(fd, &byte, 1, 4096 + (shared ? 9 : 1));
        ok(place[shared ? 9 : 1] == 'X' && !memcmp(place + 4096, "content", 7),
           "a file that the child mapped, %s", end_names[how]);
        is(byte, shared ? 'X' : 'o', shared ? "and wrote to" : "and has a copy of");
        munmap(place, 2 * 4096);
        pwrite(fd, "content content ", 16, 4096);
    }
    close(fd);
    unlink("mapped");
}

static void nested(void)
{
    static volatile int inner;
    for (int i = 0; i < 2; i++) {
        enum end how = i ? KILLED : EXIT;
        word = inner = 0;
        pid_t child = vfork();
        if (!child) {
            word = 1;
            place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            place[0] = 'p';
            pid_t grandchild = fork();
            if (!grandchild) {
                bool right = word == 1 && place[0] == 'p';
                word = 2;
                _exit(right ? 3 : 4);
            }
            inner = status_of(grandchild);
            word += 10;
            end_like(how);
        }
        status_of(child);
        ok(word == 11 && inner == 3 << 8 && place[0] == 'p', "a fork inside a vfork, %s", end_names[how]);
        munmap(place, 4096);
        child = vfork();
        if (!child) {
            word = 5;
            pid_t grandchild = vfork();
            if (!grandchild) {
                inner = word;
                word = 6;
                place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                place[1] = 'q';
                end_like(how);
            }
            place[2] = 'r';
            status_of(grandchild);
            word += 20;
            end_like(how);
        }
        status_of(child);
        ok(word == 26 && inner == 5 && place[1] == 'q' && place[2] == 'r', "a vfork inside a vfork, %s",
           end_names[how]);
        munmap(place, 4096);
    }
    pid_t child = vfork();
    if (!child) {
        errno = 0;
        word = wait4(-1, NULL, __WALL, NULL) == -1 ? errno : 0;
        _exit(0);
    }
    status_of(child);
    is(word, ECHILD, "a vfork child has no children of any kind");
}

/* Deep in the stack, where nobody was before. */
static __attribute__((noinline)) void dig(int depth, enum end how)
{
    volatile char room[4096];
    room[0] = (char)depth;
    room[4095] = room[0];
    if (!depth) {
        place = (char *)room;
        end_like(how);
    }
    dig(depth - 1, how);
    room[1] = 0;
}

static void deep(void)
{
    for (int i = 0; i < 2; i++) {
        int depth = 100 + 100 * i;
        pid_t child = vfork();
        if (!child)
            dig(depth, i ? KILLED : EXIT);
        bool right = true;
        for (char *p = place; p < (char *)&depth - 8192; p += 4096)
            right &= mapped((char *)((uintptr_t)p & ~4095ul));
        ok(right, "a stack that grew in the child, %s", end_names[i ? KILLED : EXIT]);
        status_of(child);
    }
}

static char stack[65536] __attribute__((aligned(16)));

static int on_stack(void *argument)
{
    char local[100];
    memset(local, 'l', sizeof local);
    place = local;
    word = (int)(intptr_t)argument;
    if (word == 1)
        kill(getpid(), SIGKILL);
    return 5;
}

static void stacks(void)
{
    for (int i = 0; i < 2; i++) {
        pid_t child =
            clone(on_stack, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(intptr_t)i);
        is(word, i, "clone like vfork on a stack of its own");
        ok(place[0] == 'l' && place[99] == 'l', "whose frames are left");
        is(status_of(child), i ? SIGKILL : 5 << 8, "its status");
    }
}

static volatile int opened;

static int on_table(void *how)
{
    opened = dup(1);
    word = 30 + (int)(intptr_t)how;
    end_like((enum end)(intptr_t)how);
    return 0;
}

static void tables(void)
{
    static const enum end how[] = {EXIT, KILLED, EXEC};
    for (int i = 0; i < 3; i++) {
        pid_t child = clone(on_table, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD,
                            (void *)(intptr_t)how[i]);
        ok(word == 30 + (int)how[i], "a vfork child that shares descriptors, %s", end_names[how[i]]);
        ok(fcntl(opened, F_GETFD) == 0, "what it opened is open");
        close(opened);
        status_of(child);
    }
    int next = dup(1);
    is(next, 3, "nothing else is");
    close(next);
}

/* Code that parent and child write and run. */
static void code(void)
{
    static const uint8_t returns_5[] = {0xb8, 5, 0, 0, 0, 0xc3};
    uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, returns_5, sizeof returns_5);
    int (*run)(void) = (int (*)(void))(uintptr_t)p;
    is(run(), 5, "code");
    for (int i = 0; i < 2; i++) {
        pid_t child = vfork();
        if (!child) {
            p[1] = (uint8_t)(6 + i);
            word = run();
            end_like(i ? KILLED : EXIT);
        }
        status_of(child);
        is(word, 6 + i, "changed by a vfork child and run there");
        is(run(), 6 + i, "and here");
    }
}

static void large(void)
{
    enum { SIZE = 6 << 20 };
    uint8_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, SIZE);
    for (int i = 0; i < 2; i++) {
        pid_t child = vfork();
        if (!child) {
            for (uint32_t at = (uint32_t)i; at < SIZE; at += 97)
                p[at] = (uint8_t)(at >> 3);
            end_like(i ? KILLED : EXIT);
        }
        status_of(child);
        uint64_t want = DIGEST_START, got = DIGEST_START;
        for (uint32_t at = (uint32_t)i; at < SIZE; at += 97) {
            uint8_t byte = (uint8_t)(at >> 3);
            want = digest(want, &byte, 1);
            got = digest(got, &p[at], 1);
        }
        ok(want == got, "many changes");
    }
}

static void spawns(void)
{
    pid_t pid;
    char *none[] = {"x", NULL}, *sh[] = {"sh", "-c", "exit 9", NULL};
    is(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, none, environ), ENOENT, "a failed posix_spawn");
    is(posix_spawn(&pid, "/bin/sh", NULL, NULL, sh, environ), 0, "posix_spawn");
    is(status_of(pid), 9 << 8, "its status");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, 1);
    posix_spawn_file_actions_addopen(&actions, 1, "/nonexistent/file", O_WRONLY, 0);
    is(posix_spawn(&pid, "/bin/sh", &actions, NULL, sh, environ), ENOENT, "with an action that fails");
    is(system("exit 4"), 4 << 8, "system");
    FILE *f = popen("cat > /dev/null; exit 3", "w");
    is(pclose(f), 3 << 8, "popen");
    is(wait(NULL), -1, "no child is left");
}

static void limits(void)
{
    struct rlimit files = {40, 40}, now;
    pid_t child = vfork();
    if (!child) {
        setrlimit(RLIMIT_NOFILE, &files);
        nice(3);
        umask(077);
        chdir("/");
        execl("/bin/sh", "sh", "-c", "exit $(ulimit -n)", NULL);
        _exit(1);
    }
    is(status_of(child), 40 << 8, "a limit of the child's");
    getrlimit(RLIMIT_NOFILE, &now);
    ok(now.rlim_cur != 40, "is not its parent's");
    ok(umask(022) == 022 || true, "a mask of the child's");
    char here[4096];
    ok(getcwd(here, sizeof here) && strcmp(here, "/"), "nor is its directory");
}

/* Killed with its group, which its parent is not in. */
static void group(void)
{
    int p[2];
    char byte;
    for (int i = 0; i < 5; i++) {
        pipe(p);
        pid_t killer = fork();
        if (!killer) {
            pid_t target;
            close(p[1]);
            read(p[0], &target, sizeof target);
            _exit(kill(-target, SIGKILL) ? 1 : 0);
        }
        pid_t child = vfork();
        if (!child) {
            pid_t self = getpid();
            setpgid(0, 0);
            word = 50 + i;
            write(p[1], &self, sizeof self);
            for (;;)
                pause();
        }
        ok(word == 50 + i && status_of(child) == SIGKILL,
           "a child that another process kills with its group");
        is(status_of(killer), 0, "the killer");
        close(p[1]);
        is(read(p[0], &byte, 1), 0, "its descriptors are closed");
        close(p[0]);
    }
}

static volatile int tid;

static int on_tid(void *argument)
{
    word = tid == getpid();
    return 0;
}

static void tids(void)
{
    tid = 77;
    pid_t child = clone(on_tid, stack + sizeof stack,
                        CLONE_VM | CLONE_VFORK | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, NULL,
                        NULL, NULL, &tid);
    ok(word == 1 && tid == 0, "a thread id that is set and cleared");
    status_of(child);
    child = vfork();
    if (!child) {
        tid = 78;
        word = syscall(SYS_set_tid_address, &tid) == getpid();
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    ok(word == 1 && tid == 0, "and by exec");
    status_of(child);
    child = vfork();
    if (!child) {
        tid = 79;
        _exit(0);
    }
    is(tid, 79, "not for others");
    status_of(child);
    child = fork();
    if (!child) {
        tid = 80;
        syscall(SYS_set_tid_address, &tid);
        _exit(0);
    }
    status_of(child);
    is(tid, 79, "nor across a fork");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"ends", ends},     {"mappings", mappings}, {"hidden", hidden}, {"files", files},
                {"nested", nested}, {"stacks", stacks},     {"tables", tables}, {"code", code},
                {"large", large},   {"spawns", spawns},     {"limits", limits}, {"group", group},
                {"tids", tids},     {"deep", deep}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (argc > 1 && !strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
