/* Whose child a program is, and who adopts orphans: the recorder does not show. */
#include "guest.h"

static void comm_of(pid_t pid, char *to, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/comm", pid);
    int fd = open(name, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);
    to[n > 0 ? n : 0] = 0;
    close(fd);
}

static void orphan(pid_t parent)
{
    char command[64];
    while (getppid() == parent)
        usleep(1000);
    comm_of(getppid(), command, sizeof command);
    ok(strncmp(command, "clio", 4), "an orphan is not the recorder's");
    is(kill(getppid(), 0) && errno != EPERM, 0, "whoever adopted it lives");
}

int main(void)
{
    char command[64], byte;
    int done[2];
    comm_of(getppid(), command, sizeof command);
    say("the parent is %s", command);
    pid_t child = fork();
    if (!child) {
        is(getppid() > 0, 1, "a child has a parent");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pipe(done);
    child = fork();
    if (!child) {
        pid_t me = getpid();
        if (!fork()) {
            orphan(me);
            _exit(0);
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    close(done[1]);
    read(done[0], &byte, 1); /* until the orphan is gone, too */
    return finish();
}
