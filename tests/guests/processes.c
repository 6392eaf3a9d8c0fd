/* Process trees: forks, vforks, waits, orphans, pipelines, failed spawns. */
// VARIANTS: o2 static nopie
// RUNS: tree vforks spawns waits orphan pipeline busy
#include "guest.h"
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int tree_node(int level, int number)
{
    if (level == 0)
        return number % 50;
    pid_t kids[2];
    for (int i = 0; i < 2; i++) {
        kids[i] = fork();
        if (kids[i] == 0)
            _exit(tree_node(level - 1, number * 2 + i));
    }
    int sum = 0, status;
    for (int i = 0; i < 2; i++) {
        waitpid(kids[i], &status, 0);
        sum += WEXITSTATUS(status);
    }
    return sum % 200;
}

static void tree(void)
{
    is(tree_node(4, 1), 176, "a tree of 31 processes");
}

static volatile int shared_by_vfork;
static void vforks(void)
{
    pid_t child = vfork();
    if (child == 0) {
        shared_by_vfork = 42;
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    ok(WEXITSTATUS(status) == 3, "vfork and exit");
    is(shared_by_vfork, 42, "the child wrote into the parent's memory");
    child = vfork();
    if (child == 0) {
        execl("/nonexistent/program", "x", NULL);
        shared_by_vfork = errno;
        _exit(4);
    }
    waitpid(child, &status, 0);
    ok(WEXITSTATUS(status) == 4 && shared_by_vfork == ENOENT, "vfork and failing exec");
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(5);
    }
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 0, "vfork and exec");
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 6", NULL);
        _exit(5);
    }
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 6, "vfork and exec of a shell");
}

static void spawns(void)
{
    extern char **environ;
    pid_t pid;
    char *none[] = {"x", NULL}, *echo[] = {"sh", "-c", "echo from the child; exit 9", NULL};
    is(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, none, environ), ENOENT,
       "posix_spawn of nothing");
    is(posix_spawn(&pid, "/etc/passwd", NULL, NULL, none, environ), EACCES,
       "posix_spawn of a file without permission");
    int status, error = posix_spawn(&pid, "/bin/sh", NULL, NULL, echo, environ);
    waitpid(pid, &status, 0);
    is(error, 0, "posix_spawn");
    is(WEXITSTATUS(status), 9, "its status");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT, 0600);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    is(posix_spawnp(&pid, "sh", &actions, &attr, echo, environ), 0, "posix_spawnp with actions");
    waitpid(pid, &status, 0);
    char text[64] = "";
    int fd = open("spawned", O_RDONLY);
    read(fd, text, 63);
    ok(!strcmp(text, "from the child\n"), "its output went to a file");
    unlink("spawned");
    for (int i = 0; i < 20; i++) {
        char *t[] = {"true", NULL};
        posix_spawn(&pid, "/bin/true", NULL, NULL, t, environ);
        waitpid(pid, &status, 0);
        if (status != 0)
            ok(false, "true");
    }
    is(system("exit 13") >> 8, 13, "system");
    FILE *f = popen("echo a b c | tr a-z A-Z", "r");
    ok(fgets(text, 64, f) && !strcmp(text, "A B C\n"), "popen");
    is(pclose(f), 0, "pclose");
}

static void waits(void)
{
    int status;
    siginfo_t si;
    struct rusage ru;
    is(wait(&status), -1, "wait without children");
    is(errno, ECHILD, "ECHILD");
    pid_t a = fork();
    if (a == 0)
        _exit(11);
    is(waitid(P_PID, (id_t)a, &si, WEXITED | WNOWAIT), 0, "waitid that leaves the child");
    ok(si.si_status == 11 && si.si_code == CLD_EXITED, "its status");
    is(wait4(a, &status, 0, &ru), a, "wait4");
    ok(WEXITSTATUS(status) == 11 && ru.ru_maxrss > 0, "with resource usage");
    int p[2];
    pipe(p);
    a = fork();
    if (a == 0) {
        char c;
        close(p[1]);
        read(p[0], &c, 1);
        _exit(12);
    }
    close(p[0]);
    is(waitpid(-1, &status, WNOHANG), 0, "WNOHANG");
    close(p[1]);
    is(waitpid(0, &status, 0), a, "waitpid of the group");
    is(WEXITSTATUS(status), 12, "its status");
    signal(SIGCHLD, SIG_IGN);
    a = fork();
    if (a == 0)
        _exit(1);
    is(waitpid(a, &status, 0), -1, "children of those who ignore SIGCHLD vanish");
    signal(SIGCHLD, SIG_DFL);
    a = fork();
    if (a == 0)
        abort();
    waitid(P_ALL, 0, &si, WEXITED);
    ok((si.si_code == CLD_KILLED || si.si_code == CLD_DUMPED) && si.si_status == SIGABRT, "killed");
}

static void orphan(void)
{
    int p[2];
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            for (int i = 0; i < 2000 && getppid() == parent; i++)
                usleep(1000);
            write(p[1], getppid() != parent ? "adopted" : "notyet!", 7);
            _exit(0);
        }
        usleep(10000);
        _exit(0);
    }
    close(p[1]);
    waitpid(child, NULL, 0);
    char text[8] = "";
    read(p[0], text, 7);
    ok(!strcmp(text, "adopted"), "an orphan goes on and is adopted");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    child = fork();
    if (child == 0) {
        if (fork() == 0) {
            usleep(20000);
            _exit(17);
        }
        _exit(16);
    }
    int sum = 0, status;
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    is(sum, 33, "a subreaper gets grandchildren");
}

static void pipeline(void)
{
    enum { STAGES = 6 };
    int in[2];
    pipe(in);
    int first = in[1], last = in[0];
    for (int i = 0; i < STAGES; i++) {
        int next[2];
        pipe(next);
        if (fork() == 0) {
            close(first);
            close(next[0]);
            char buffer[1000];
            ssize_t n;
            while ((n = read(last, buffer, sizeof buffer)) > 0) {
                for (ssize_t k = 0; k < n; k++)
                    buffer[k]++;
                for (ssize_t k = 0; k < n;)
                    k += write(next[1], buffer + k, (size_t)(n - k));
            }
            _exit(0);
        }
        close(last);
        close(next[1]);
        last = next[0];
    }
    if (fork() == 0) {
        close(last);
        static char data[200000];
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (char)(i * 13 >> 3);
        for (size_t i = 0; i < sizeof data;)
            i += (size_t)write(first, data + i, sizeof data - i);
        _exit(0);
    }
    close(first);
    uint64_t h = DIGEST_START, total = 0;
    char buffer[4096];
    ssize_t n;
    while ((n = read(last, buffer, sizeof buffer)) > 0) {
        h = digest(h, buffer, (size_t)n);
        total += (uint64_t)n;
    }
    int children = 0;
    while (wait(NULL) > 0)
        children++;
    say("digest %llx\n", (unsigned long long)h);
    ok(total == 200000 && children == STAGES + 1, "200000 bytes through six processes");
    /* SIGPIPE */
    int p[2];
    pipe(p);
    close(p[0]);
    pid_t child = fork();
    if (child == 0) {
        write(p[1], "x", 1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE, "SIGPIPE kills");
    signal(SIGPIPE, SIG_IGN);
    is(write(p[1], "x", 1), -1, "ignored, write fails");
    is(errno, EPIPE, "EPIPE");
}

/* Several processes that compute and allocate at once. */
static void busy(void)
{
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            uint64_t x = (uint64_t)i + 1, *p = malloc(1 << 20);
            for (int k = 0; k < 1000000; k++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                p[x & 0x1ffff] += x;
            }
            free(p);
            _exit((int)(x & 127));
        }
    int sum = 0, status;
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    say("sum %d\n", sum);
    ok(sum > 0, "eight busy children");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } all[] = {{"tree", tree},     {"vforks", vforks},     {"spawns", spawns}, {"waits", waits},
               {"orphan", orphan}, {"pipeline", pipeline}, {"busy", busy}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name))
            all[i].f();
    return finish();
}
