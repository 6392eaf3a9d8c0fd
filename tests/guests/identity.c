/* Changing user, group, root directory, session and limits: the host must go on working after each. */
// VARIANTS: o2
// RUNS: user root low_limits
#include "guest.h"
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void go_on(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            getppid();
        _exit(5);
    }
    int status = 0;
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 5, "and fork works");
}

static void user(void)
{
    if (getuid() == 0) {
        is(setgroups(0, NULL), 0, "setgroups");
        is(setresgid(65534, 65534, 65534), 0, "setresgid");
        is(setresuid(65534, 65534, 65534), 0, "setresuid");
        ok(getuid() == 65534 && setuid(0) == -1, "no way back");
    } else {
        is(setuid(0), -1, "setuid");
        ok(errno == EPERM && setuid(getuid()) == 0, "to oneself");
        ok(true, "-");
        ok(true, "-");
    }
    go_on();
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 0, "and exec");
}

static void root(void)
{
    mkdir("jail", 0755);
    if (chroot("jail") == 0)
        ok(chdir("/") == 0 && access("/bin/sh", F_OK) == -1, "chroot");
    else
        ok(errno == EPERM, "chroot");
    go_on();
}

static void low_limits(void)
{
    struct rlimit l = {3, 3};
    is(setrlimit(RLIMIT_NOFILE, &l), 0, "no more descriptors");
    is(open("/dev/null", O_RDONLY), -1, "none to be had");
    is(errno, EMFILE, "EMFILE");
    struct rlimit f = {4096, 4096};
    is(setrlimit(RLIMIT_FSIZE, &f), 0, "small files");
    for (int i = 0; i < 20000; i++)
        syscall(SYS_getppid);
    go_on();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "user"))
        user();
    if (argc > 1 && !strcmp(argv[1], "root"))
        root();
    if (argc > 1 && !strcmp(argv[1], "low_limits"))
        low_limits();
    return finish();
}
