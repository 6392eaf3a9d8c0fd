/* Who is whose child: orphans, subreapers, daemons, groups, and children that end before, after and without their parents. */
// VARIANTS: o2 static
// RUNS: subreaper vforked daemon groups deathsig waits
#include "guest.h"
#include <sys/prctl.h>
#include <sys/stat.h>

static int status_of(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -errno;
}

static volatile sig_atomic_t told;
static void tell(int signo)
{
    told++;
}

/* A grandchild whose parent has gone is ours. */
static void subreaper(void)
{
    int p[2], q[2];
    pid_t grandchild = 0;
    char byte = 0;
    pipe(p);
    pipe(q);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int set = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &set);
    is(set, 1, "a subreaper");
    pid_t child = fork();
    if (!child) {
        pid_t own = fork();
        if (!own) {
            read(q[0], &byte, 1);
            pid_t parent = getppid();
            write(p[1], &parent, sizeof parent);
            _exit(5);
        }
        write(p[1], &own, sizeof own);
        _exit(0);
    }
    read(p[0], &grandchild, sizeof grandchild);
    is(status_of(child), 0, "the child");
    write(q[1], &byte, 1);
    pid_t parent = 0;
    read(p[0], &parent, sizeof parent);
    is(parent, getpid(), "is succeeded as a parent");
    is(status_of(grandchild), 5 << 8, "by who waits for the grandchild");
    is(wait(NULL), -1, "nobody else is left");
}

/* A subreaper sees of a vfork child that is killed nothing but its end. */
static void vforked(void)
{
    static volatile int word;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, tell);
    for (int i = 0; i < 10; i++) {
        told = 0;
        pid_t child = vfork();
        if (!child) {
            word = i;
            kill(getpid(), SIGKILL);
        }
        siginfo_t info = {0};
        is(word, i, "what it wrote");
        is(waitid(P_ALL, 0, &info, WEXITED), 0, "one child");
        is(told, 1, "one signal");
        ok(info.si_pid == child && info.si_status == SIGKILL && info.si_code == CLD_KILLED,
           "that was killed");
        ok(wait(NULL) == -1 && errno == ECHILD, "and no other");
    }
}

static void daemon_like(void)
{
    int p[2];
    pipe(p);
    pid_t child = fork();
    if (!child) {
        setsid();
        if (fork())
            _exit(0);
        close(p[0]);
        bool alone = getsid(0) != getpid() && getpgrp() == getsid(0);
        chdir("/");
        umask(0);
        for (int fd = 0; fd < 3; fd++)
            dup2(open("/dev/null", O_RDWR), fd);
        write(p[1], &alone, sizeof alone);
        _exit(0);
    }
    bool alone = false;
    close(p[1]);
    is(status_of(child), 0, "the first fork");
    is(read(p[0], &alone, sizeof alone), (long)sizeof alone, "a daemon");
    ok(alone, "in a session without being its leader");
    char byte;
    is(read(p[0], &byte, 1), 0, "and its end");
}

static void groups(void)
{
    pid_t one = fork();
    if (!one) {
        setpgid(0, 0);
        pause();
        _exit(1);
    }
    setpgid(one, one);
    pid_t two = fork();
    if (!two) {
        pause();
        _exit(1);
    }
    is(setpgid(two, one), 0, "a child joins another's group");
    is(getpgid(two), one, "which it has");
    is(kill(-one, SIGTERM), 0, "a signal to the group");
    int status, count = 0;
    while (waitpid(-one, &status, 0) > 0)
        count += WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    is(count, 2, "ends both");
}

static void deathsig(void)
{
    int p[2];
    char byte = 0;
    pipe(p);
    pid_t child = fork();
    if (!child) {
        pid_t own = fork();
        if (!own) {
            close(p[0]);
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            write(p[1], &byte, 1);
            pause();
            _exit(1);
        }
        read(p[0], &byte, 1);
        _exit(0);
    }
    close(p[1]);
    is(status_of(child), 0, "a parent ends");
    is(read(p[0], &byte, 1), 0, "and its child with it");
}

static void waits(void)
{
    siginfo_t info;
    int status, p[2];
    char byte = 0;
    pipe(p);
    pid_t a = fork();
    if (!a) {
        raise(SIGSTOP);
        read(p[0], &byte, 1);
        _exit(3);
    }
    is(waitpid(a, &status, WUNTRACED), a, "a child that stops");
    ok(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "is told so");
    kill(a, SIGCONT);
    is(waitid(P_PID, (id_t)a, &info, WCONTINUED), 0, "and goes on");
    ok(info.si_code == CLD_CONTINUED && info.si_status == SIGCONT, "is told, too");
    write(p[1], &byte, 1);
    is(status_of(a), 3 << 8, "and ends");
    is(waitpid(a, NULL, 0), -1, "once");
    is(waitid(P_PGID, (id_t)getpgrp(), &info, WEXITED | WNOHANG), -1, "nobody of the group");
    is(waitid(P_ALL, 0, &info, 0), -1, "waiting for nothing");
    is(errno, EINVAL, "is an error");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"subreaper", subreaper}, {"vforked", vforked},   {"daemon", daemon_like},
                {"groups", groups},       {"deathsig", deathsig}, {"waits", waits}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (argc > 1 && !strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
