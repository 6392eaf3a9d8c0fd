/* Stop and continue, process groups, sessions, and what exec keeps of signals. */
// VARIANTS: o2
// RUNS: stops groups kept defaults
#include "guest.h"

static void stops(void)
{
    int status, go[2];
    pipe(go);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        char c;
        read(go[0], &c, 1);
        _exit(5);
    }
    is(waitpid(child, &status, WUNTRACED), child, "a child that stops itself");
    ok(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "WIFSTOPPED");
    kill(child, SIGCONT);
    is(waitpid(child, &status, WCONTINUED), child, "continued");
    ok(WIFCONTINUED(status), "WIFCONTINUED");
    write(go[1], "g", 1);
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 5, "and it ends");
    /* stopped from outside in a loop without calls */
    child = fork();
    if (child == 0) {
        alarm(30);
        for (volatile uint64_t i = 0;; i++)
            ;
    }
    usleep(20000);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    ok(WIFSTOPPED(status), "a spinning child stops");
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "and is terminated");
    child = fork();
    if (child == 0) {
        raise(SIGTSTP);
        _exit(6);
    }
    setpgid(child, child); /* an orphaned group ignores SIGTSTP; ours is not */
    usleep(20000);
    waitpid(child, &status, WUNTRACED);
    if (WIFSTOPPED(status)) {
        kill(child, SIGCONT);
        waitpid(child, &status, 0);
    }
    is(WEXITSTATUS(status), 6, "SIGTSTP");
}

static void groups(void)
{
    int status, p[2];
    pipe(p);
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                write(p[1], "r", 1);
                for (;;)
                    pause();
            }
        write(p[1], "r", 1);
        for (;;)
            pause();
    }
    char c;
    for (int i = 0; i < 4; i++)
        read(p[0], &c, 1);
    is(getpgid(leader), leader, "the child's group");
    is(kill(-leader, SIGKILL), 0, "killing a group");
    waitpid(leader, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the leader is killed");
    pid_t child = fork();
    if (child == 0)
        _exit(setsid() == getpid() && getsid(0) == getpid() && getpgrp() == getpid() ? 7 : 8);
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 7, "setsid");
}

static void handler(int sig)
{
}

/* exec keeps ignored signals and the mask, and resets handlers. */
static void kept(char **argv)
{
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, handler);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGHUP);
    sigprocmask(SIG_BLOCK, &s, NULL);
    raise(SIGHUP); /* stays pending over exec */
    execl("/proc/self/exe", argv[0], "after", NULL);
    say("not ok exec: %s\n", strerror(errno));
}

static void after(void)
{
    struct sigaction a, b;
    sigaction(SIGUSR1, NULL, &a);
    sigaction(SIGUSR2, NULL, &b);
    ok(a.sa_handler == SIG_IGN && b.sa_handler == SIG_DFL, "ignored stays, handlers go");
    sigset_t s, pending;
    sigprocmask(SIG_BLOCK, NULL, &s);
    sigpending(&pending);
    ok(sigismember(&s, SIGHUP) && !sigismember(&s, SIGUSR1), "the mask stays");
    ok(sigismember(&pending, SIGHUP), "so do pending signals");
}

/* Default actions, seen by the parent. */
static void defaults(void)
{
    static const int all[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,   SIGFPE,
                              SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM,  SIGXCPU,
                              SIGSYS,  34,      50,      64,      SIGCHLD, SIGURG,  SIGWINCH, SIGCONT};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(all[i], SIG_DFL);
            raise(all[i]);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        bool ignored = all[i] == SIGCHLD || all[i] == SIGURG || all[i] == SIGWINCH || all[i] == SIGCONT;
        ok(ignored ? WIFEXITED(status) : WIFSIGNALED(status) && WTERMSIG(status) == all[i],
           "default of signal %d", all[i]);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "stops"))
        stops();
    if (!strcmp(what, "groups"))
        groups();
    if (!strcmp(what, "kept"))
        kept(argv);
    if (!strcmp(what, "after"))
        after();
    if (!strcmp(what, "defaults"))
        defaults();
    return finish();
}
