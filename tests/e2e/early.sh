#!/usr/bin/env bash
# A process whose recording ends early (something unsupported, an error of ours): its relatives see it exit with status
# 3, wherever they wait for it, and go on; record says who it was and why.
. "$(dirname "$0")/lib.sh"

cat >early.c <<'C'
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

static void end_early(void) { __asm__ volatile("mov $20, %%eax; int $0x80" ::: "rax", "memory"); }
static int status_of(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static void done(const char *what, int good) { printf("%s %s\n", good ? "good" : "bad", what); }

static void pipes(void)
{
    int p[2], q[2];
    char b[10];
    pipe(p), pipe(q);
    pid_t c = fork();
    if (!c) {
        close(q[1]);
        write(p[1], "x", 1);
        end_early();
    }
    close(p[1]), close(q[0]);
    done("what was written is read", read(p[0], b, 10) == 1);
    done("then comes the end", read(p[0], b, 10) == 0);
    struct pollfd poll_it = {p[0], POLLIN, 0};
    done("poll sees it", poll(&poll_it, 1, -1) == 1 && poll_it.revents & POLLHUP);
    signal(SIGPIPE, SIG_IGN);
    done("nobody reads any more", write(q[1], "y", 1) == -1);
    done("waitpid", status_of(c) == 3);
}
static volatile sig_atomic_t got;
static void on_child(int s) { got = 1; }
static void waits(void)
{
    sigset_t set, old;
    siginfo_t info;
    sigemptyset(&set), sigaddset(&set, SIGCHLD);
    signal(SIGCHLD, on_child);
    sigprocmask(SIG_BLOCK, &set, &old);
    pid_t c = fork();
    if (!c)
        end_early();
    while (!got)
        sigsuspend(&old);
    done("SIGCHLD", waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == c && info.si_status == 3 && info.si_code == CLD_EXITED);
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGCHLD, SIG_DFL);
    if (!(c = fork()))
        end_early();
    int fd = (int)syscall(SYS_pidfd_open, c, 0);
    struct pollfd poll_it = {fd, POLLIN, 0};
    done("a pidfd", fd < 0 || poll(&poll_it, 1, -1) == 1);
    done("its status", status_of(c) == 3);
}
static void vforks(void)
{
    pid_t c = vfork();
    if (!c) {
        end_early();
        _exit(9);
    }
    done("a vfork child", status_of(c) == 3);
    char *args[] = {self, "end", NULL};
    done("posix_spawn", posix_spawn(&c, self, NULL, NULL, args, environ) == 0 && status_of(c) == 3);
    fflush(stdout);
    done("system", WEXITSTATUS(system("./early end; exit $?")) == 3);
    fflush(stdout);
    done("a pipeline", WEXITSTATUS(system("(echo in; exec ./early end) | { cat; exec ./early end; } | cat; echo end of it")) == 0);
}
static void locks(void)
{
    int p[2], fd = open("lock", O_RDWR | O_CREAT, 0600);
    char b;
    pipe(p);
    pid_t c = fork();
    if (!c) {
        int own = open("lock", O_RDWR);
        struct flock lock = {.l_type = F_WRLCK};
        flock(own, LOCK_EX);
        fcntl(own, F_SETLK, &lock);
        write(p[1], "l", 1);
        end_early();
    }
    read(p[0], &b, 1);
    struct flock lock = {.l_type = F_WRLCK};
    done("a lock", flock(fd, LOCK_EX) == 0);
    done("a record lock", fcntl(fd, F_SETLKW, &lock) == 0);
    done("who held them", status_of(c) == 3);
}
static void sockets(void)
{
    int s[2];
    char b[4];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
    pid_t c = fork();
    if (!c)
        end_early();
    close(s[1]);
    done("a socket's other end", read(s[0], b, 4) == 0);
    done("who had it", status_of(c) == 3);
}
static void parent_ends(void)
{
    fflush(stdout);
    int p[2];
    pipe(p);
    if (!fork()) {
        char b;
        close(p[1]);
        read(p[0], &b, 1);
        printf("good the child outlives its parent\n");
        fflush(stdout);
        close(open("orphan", O_WRONLY | O_CREAT, 0600));
        _exit(0);
    }
    end_early();
}
int main(int argc, char **argv)
{
    self = argv[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "end"))
        end_early();
    if (argc > 1)
        parent_ends();
    pipes(), waits(), vforks(), locks(), sockets();
    return 6;
}
C
gcc -D_GNU_SOURCE -O1 -w -o early early.c || exit 1

timeout 60 "$CLIO" record -o e.trace -- ./early >e.out 2>e.err
check "the program goes on to its end" test $? = 6
check "everything that its relatives wait for comes" test "$(grep -c '^good' e.out)" = 17 -a "$(grep -c '^bad' e.out)" = 0 || cat e.out
check "each is named, with its reason" test "$(grep -c 'process [0-9]* (space [0-9]*) ended: .*int 0x80' e.err)" -ge 9 || cat e.err
check "and replays" replays e

timeout 60 "$CLIO" record --wait -o p.trace -- ./early parent >p.out 2>p.err
check "the program's own recording ends early: status 3" test $? = 3
check "by name" said p.err 'the program, process [0-9]* (space 1) ended: .*int 0x80'
check "its child is recorded to its end" test -e orphan -a "$(grep -c good p.out)" = 1
check "and replays" replays p
rm -f orphan
timeout 60 "$CLIO" record -o q.trace -- ./early parent >q.out 2>q.err
check "without --wait" test $? = 3
for ((i = 0; i < 200; i++)); do
    "$CLIO" info --json q.trace | grep -q '"live": true' || break
    sleep 0.05
done
check "the child, too" test -e orphan
"$CLIO" replay -a q.trace >q.out2 2>q.err2
check "replays" same_file q.out q.out2
