/* Ends of every kind. */
// VARIANTS: o2 static
// RUNS: segv abrt fpe ill kill trap bus term pipe exit0 exit7 exit255 stack exec_segv child
// FLAGS: -fno-stack-protector
#include "guest.h"
#include <sys/resource.h>

__attribute__((noinline)) static int overflow(int n)
{
    volatile char big[4096];
    big[0] = (char)n;
    return overflow(n + 1) + big[0];
}

static volatile int zero;
static int *volatile null;

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    say("going to %s\n", how);
    fprintf(stderr, "on stderr\n");
    if (!strcmp(how, "segv"))
        *null = 1;
    if (!strcmp(how, "abrt"))
        abort();
    if (!strcmp(how, "fpe"))
        zero = 5 / zero;
    if (!strcmp(how, "ill"))
        asm volatile("ud2");
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "trap"))
        asm volatile("int3");
    if (!strcmp(how, "bus")) {
        int fd = open("bus", O_RDWR | O_CREAT, 0600);
        *(volatile char *)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "pipe")) {
        int p[2];
        pipe(p);
        close(p[0]);
        write(p[1], "x", 1);
    }
    if (!strncmp(how, "exit", 4))
        exit(atoi(how + 4));
    if (!strcmp(how, "stack"))
        return overflow(0);
    if (!strcmp(how, "exec_segv"))
        execl("/bin/sh", "sh", "-c", "kill -SEGV $$", NULL);
    if (!strcmp(how, "child")) {
        if (fork() == 0)
            *null = 1;
        int status;
        wait(&status);
        say("child: signal %d\n", WTERMSIG(status));
        return 3;
    }
    return 99;
}
