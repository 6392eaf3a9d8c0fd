/* clone and clone3 with flags and signals of every kind, as the kernel takes and refuses them. */
// VARIANTS: o2 static
// RUNS: parent signals errors clone3s pidfds files handlers namespaces
#include "guest.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/stat.h>

static long raw_clone(uint64_t flags, void *stack, int *ptid, int *ctid, uint64_t tls)
{
    return syscall(SYS_clone, flags, stack, ptid, ctid, tls);
}

static long raw_clone3(struct clone_args *a)
{
    return syscall(SYS_clone3, a, sizeof *a);
}

static int status_of(pid_t pid, int flags)
{
    int status = -1;
    pid_t got = waitpid(pid, &status, flags);
    return got == pid ? status : -errno;
}

/* A sibling made through CLONE_PARENT, with either call. */
static void parent(void)
{
    for (int three = 0; three < 2; three++) {
        int q[2], got[3] = {0};
        pid_t top = getpid();
        pipe(q);
        pid_t child = fork();
        if (!child) {
            struct clone_args a = {.flags = CLONE_PARENT};
            long sibling = three ? raw_clone3(&a) : raw_clone(CLONE_PARENT | SIGUSR1, 0, 0, 0, 0);
            if (!sibling) {
                int mine[3] = {getpid(), getppid(), wait(NULL) == -1 && errno == ECHILD};
                write(q[1], mine, sizeof mine);
                _exit(7);
            }
            _exit(sibling > 0 && waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD ? 6 : 9);
        }
        is(status_of(child, 0), 6 << 8, "the child has no children");
        close(q[1]);
        is(read(q[0], got, sizeof got), (long)sizeof got, "its sibling reports");
        close(q[0]);
        ok(got[1] == top && got[2] == 1, "its parent is the first process");
        is(status_of(got[0], 0), 7 << 8, "which waits for it as for any child");
    }
}

static volatile sig_atomic_t seen[65];
static void note_signal(int signo)
{
    seen[signo]++;
}

static void signals(void)
{
    const int signals[] = {0, SIGUSR1, SIGCHLD, SIGRTMIN + 3, 64};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i])
            signal(signals[i], note_signal);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        memset((void *)seen, 0, sizeof seen);
        pid_t child = (pid_t)raw_clone((uint64_t)signals[i], 0, 0, 0, 0);
        if (!child)
            _exit((int)(10 + i));
        bool usual = signals[i] == SIGCHLD;
        if (!usual)
            is(status_of(child, WNOHANG), -ECHILD, "not a child that wait sees");
        is(status_of(child, usual ? 0 : __WCLONE), (10 + (int)i) << 8, "waited for");
        int others = 0;
        for (int s = 1; s <= 64; s++)
            others += s != signals[i] ? seen[s] : 0;
        ok(!others && (!signals[i] || seen[signals[i]] == 1), "its signal and no other");
    }
    pid_t child = (pid_t)raw_clone(0, 0, 0, 0, 0);
    if (!child)
        _exit(1);
    is(status_of(child, __WALL), 1 << 8, "__WALL waits for all");
    child = (pid_t)raw_clone(0xff, 0, 0, 0, 0); /* no signal of this number: none is sent */
    if (!child)
        _exit(2);
    is(status_of(child, __WALL), 2 << 8, "an exit signal out of range");
}

static int refused(long result)
{
    int error = result == -1 ? errno : 0;
    if (result == 0)
        _exit(0);
    if (result > 0)
        waitpid((pid_t)result, NULL, __WALL);
    return error;
}

static void errors(void)
{
    int word;
    is(refused(raw_clone(CLONE_THREAD | SIGCHLD, 0, 0, 0, 0)), EINVAL, "CLONE_THREAD alone");
    is(refused(raw_clone(CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0)), EINVAL, "CLONE_SIGHAND alone");
    is(refused(raw_clone(CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0)), EINVAL, "CLONE_NEWNS with CLONE_FS");
    is(refused(raw_clone(CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0)), EINVAL,
       "CLONE_NEWUSER with CLONE_FS");
    is(refused(raw_clone(CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, &word, 0, 0)), EINVAL,
       "CLONE_PIDFD with CLONE_PARENT_SETTID");
    is(refused(raw_clone(CLONE_PIDFD | CLONE_DETACHED | SIGCHLD, 0, &word, 0, 0)), EINVAL,
       "CLONE_PIDFD with CLONE_DETACHED");
    is(refused(raw_clone(CLONE_PIDFD | SIGCHLD, 0, (int *)8, 0, 0)), EFAULT, "CLONE_PIDFD into nothing");
    is(refused(raw_clone(CLONE_SETTLS | SIGCHLD, 0, 0, 0, 1ull << 63)), EPERM,
       "a thread pointer out of range");
    is(refused(raw_clone(CLONE_DETACHED | SIGCHLD, 0, 0, 0, 0)), 0, "CLONE_DETACHED is ignored");
    is(refused(raw_clone(CLONE_IO | CLONE_UNTRACED | CLONE_PTRACE | CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0)), 0,
       "harmless flags");
    is(refused(raw_clone((1ull << 32) | SIGCHLD, 0, 0, 0, 0)), 0, "the upper half of the flags is ignored");
    is(refused(raw_clone(CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, (int *)8, (int *)8, 0)), 0,
       "thread ids that cannot be stored are not");
}

static int refused3(uint64_t flags, uint64_t exit_signal, uint64_t stack, uint64_t stack_size)
{
    struct clone_args a = {
        .flags = flags, .exit_signal = exit_signal, .stack = stack, .stack_size = stack_size};
    return refused(raw_clone3(&a));
}

static void clone3s(void)
{
    static char room[200];
    struct clone_args a = {.exit_signal = SIGCHLD};
    is(refused(syscall(SYS_clone3, &a, 0)), EINVAL, "no size");
    is(refused(syscall(SYS_clone3, &a, 63)), EINVAL, "a size too small");
    is(refused(syscall(SYS_clone3, &a, 5000)), E2BIG, "a size too large");
    is(refused(syscall(SYS_clone3, 8, 64)), EFAULT, "arguments that cannot be read");
    memcpy(room, &a, sizeof a);
    is(refused(syscall(SYS_clone3, room, 180)), 0, "a larger structure");
    room[150] = 1;
    is(refused(syscall(SYS_clone3, room, 180)), E2BIG, "with something unknown in it");
    is(refused(syscall(SYS_clone3, &a, 64)), 0, "the first version");
    is(refused3(SIGCHLD, 0, 0, 0), EINVAL, "a signal among the flags");
    is(refused3(CLONE_DETACHED, SIGCHLD, 0, 0), EINVAL, "CLONE_DETACHED");
    is(refused3(0, 65, 0, 0), EINVAL, "an exit signal out of range");
    is(refused3(1ull << 40, SIGCHLD, 0, 0), EINVAL, "an unknown flag");
    is(refused3(CLONE_PARENT, SIGCHLD, 0, 0), EINVAL, "CLONE_PARENT with a signal");
    is(refused3(0, SIGCHLD, 4096, 0), EINVAL, "a stack without a size");
    is(refused3(0, SIGCHLD, 0, 4096), EINVAL, "a size without a stack");
    is(refused3(0, SIGCHLD, ~0xfffull, 4096), EINVAL, "a stack out of range");
    is(refused3(CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM, SIGCHLD, 0, 0), EINVAL,
       "handlers shared and cleared");
    a = (struct clone_args){.exit_signal = SIGCHLD, .set_tid_size = 1};
    is(refused(raw_clone3(&a)), EINVAL, "a size without thread ids");
    a = (struct clone_args){.exit_signal = SIGCHLD, .set_tid = (uintptr_t)room, .set_tid_size = 33};
    is(refused(raw_clone3(&a)), EINVAL, "too many thread ids");
    a = (struct clone_args){.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = 1ull << 32};
    is(refused(raw_clone3(&a)), EINVAL, "a control group out of range");
    a.cgroup = 99;
    is(refused(raw_clone3(&a)), EBADF, "a control group that is not open");
    int parent = 0;
    static int child_tid;
    a = (struct clone_args){.flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID,
                            .exit_signal = SIGCHLD,
                            .parent_tid = (uintptr_t)&parent,
                            .child_tid = (uintptr_t)&child_tid};
    pid_t pid = (pid_t)raw_clone3(&a);
    if (!pid)
        _exit(child_tid == getpid() && child_tid == syscall(SYS_gettid) && !parent ? 3 : 4);
    ok(parent == pid && child_tid == 0, "thread ids on either side");
    is(status_of(pid, 0), 3 << 8, "seen by the child");
}

static void pidfds(void)
{
    int fd = -1, other = -1;
    siginfo_t si;
    pid_t pid = (pid_t)raw_clone(CLONE_PIDFD | SIGCHLD, 0, &fd, 0, 0);
    if (!pid)
        _exit(fd == -1 ? 5 : 6);
    struct pollfd p = {fd, POLLIN, 0};
    is(poll(&p, 1, -1), 1, "a pidfd tells the end");
    is(fcntl(fd, F_GETFD), FD_CLOEXEC, "and is close-on-exec");
    is(waitid(P_PIDFD, (id_t)fd, &si, WEXITED), 0, "waitid(P_PIDFD)");
    ok(si.si_pid == pid && si.si_status == 5, "the right child; its pidfd went to the parent only");
    is(syscall(SYS_pidfd_send_signal, fd, SIGTERM, 0, 0), -1, "no signals to the dead");
    close(fd);
    int parent = 0;
    struct clone_args a = {.flags = CLONE_PIDFD | CLONE_PARENT_SETTID,
                           .exit_signal = SIGCHLD,
                           .pidfd = (uintptr_t)&other,
                           .parent_tid = (uintptr_t)&parent};
    pid = (pid_t)raw_clone3(&a);
    if (!pid) {
        pause();
        _exit(1);
    }
    ok(parent == pid && other == fd, "clone3 gives pidfd and thread id");
    is(syscall(SYS_pidfd_send_signal, other, SIGKILL, 0, 0), 0, "a signal through it");
    is(status_of(pid, 0), SIGKILL, "which kills");
    close(other);
    pid = fork();
    if (!pid)
        _exit(8);
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    is(waitid(P_PIDFD, (id_t)fd, &si, WEXITED | WNOWAIT), 0, "a pidfd of pidfd_open");
    is(status_of(pid, 0), 8 << 8, "left to wait");
}

static void files(void)
{
    char here[4096], there[4096];
    mkdir("below", 0700);
    getcwd(here, sizeof here);
    pid_t pid = (pid_t)raw_clone(CLONE_FS | SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
        umask(0123);
        _exit(chdir("below"));
    }
    is(status_of(pid, 0), 0, "a child that shares the directory changes it");
    getcwd(there, sizeof there);
    ok(!strcmp(there + strlen(here), "/below"), "for both");
    is(umask(022), 0123, "and the mask for new files");
    chdir("..");
    rmdir("below");
}

static void handlers(void)
{
    signal(SIGUSR1, note_signal);
    signal(SIGUSR2, SIG_IGN);
    struct clone_args a = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)raw_clone3(&a);
    if (!pid) {
        struct sigaction one, two;
        sigaction(SIGUSR1, NULL, &one);
        sigaction(SIGUSR2, NULL, &two);
        raise(SIGUSR2);
        if (one.sa_handler == SIG_DFL && two.sa_handler == SIG_IGN)
            raise(SIGUSR1);
        _exit(9);
    }
    is(status_of(pid, 0), SIGUSR1, "CLONE_CLEAR_SIGHAND clears handlers and leaves what is ignored");
}

/* Without the right to make one the answer is the kernel's. */
static void namespaces(void)
{
    pid_t pid = (pid_t)raw_clone(CLONE_NEWUTS | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
    if (!pid)
        _exit(sethostname("clio", 4) ? 1 : 0);
    if (pid > 0)
        is(status_of(pid, 0), 0, "a host name of its own");
    else
        is(errno, EPERM, "a host name of its own");
    int q[2];
    pipe(q);
    pid = (pid_t)raw_clone(CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
        int numbers[2] = {getpid(), getppid()};
        write(q[1], numbers, sizeof numbers);
        raise(SIGTERM); /* which the first process does not get */
        pid_t grandchild = fork();
        if (!grandchild)
            _exit(getpid() == 2 ? 4 : 5);
        _exit(status_of(grandchild, 0) >> 8);
    }
    if (pid < 0) {
        is(errno, EPERM, "process numbers of its own");
        return;
    }
    int numbers[2] = {0};
    read(q[0], numbers, sizeof numbers);
    ok(numbers[0] == 1 && numbers[1] == 0, "process numbers of its own");
    is(status_of(pid, 0), 4 << 8, "in which it has children");
    pid = (pid_t)raw_clone(CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
        signal(SIGTERM, note_signal);
        raise(SIGTERM);
        signal(SIGTERM, SIG_DFL);
        kill(getpid(), SIGKILL);
        _exit(seen[SIGTERM] == 1 ? 6 : 7);
    }
    is(status_of(pid, 0), 6 << 8, "signals that the first process handles, and SIGKILL");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"parent", parent}, {"signals", signals}, {"errors", errors},     {"clone3s", clone3s},
                {"pidfds", pidfds}, {"files", files},     {"handlers", handlers}, {"namespaces", namespaces}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (argc > 1 && !strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
