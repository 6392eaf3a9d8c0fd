/* personality(2): READ_IMPLIES_EXEC for every way to get memory, over fork and exec; other bits are kept. */
#include "guest.h"
#include <setjmp.h>
#include <sys/personality.h>
#include <sys/shm.h>

enum { P = 4096, RW = PROT_READ | PROT_WRITE };

static sigjmp_buf back;
static void handler(int signo)
{
    siglongjmp(back, 1);
}

/* Puts code at m and runs it: 42, or -1 when it cannot be run. */
static int run(void *m)
{
    static const uint8_t code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    if (sigsetjmp(back, 1))
        return -1;
    memcpy(m, code, sizeof code);
    return ((int (*)(void))m)();
}

static void *map(int prot)
{
    return mmap(NULL, P, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void readable_is_executable(void)
{
    char *old = map(RW), *writable = map(PROT_WRITE);
    is(personality(READ_IMPLIES_EXEC), 0, "the personality before");
    is(personality(0xffffffff), READ_IMPLIES_EXEC, "the personality after");
    is(run(map(RW)), 42, "mmap");
    is(run(map(PROT_WRITE)), -1, "mmap of memory that is written only");
    is(run(old), -1, "memory from before");
    mprotect(old, P, RW);
    is(run(old), 42, "mprotect");
    mprotect(writable, P, PROT_WRITE);
    is(run(writable), -1, "mprotect to written only");
    is(run(sbrk(P)), 42, "the break");
    int id = shmget(IPC_PRIVATE, P, IPC_CREAT | 0600);
    is(run(shmat(id, NULL, 0)), 42, "shmat");
    shmctl(id, IPC_RMID, NULL);
    char *m = map(RW);
    is(run(mremap(m, P, 2 * P, MREMAP_MAYMOVE)), 42, "mremap");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], seen = 0;
    while (fgets(line, sizeof line, maps))
        seen |= strtoul(line, NULL, 16) <= (uintptr_t)old && strstr(line, " rwxp ");
    fclose(maps);
    ok(seen, "maps shows it");
}

static void inherited(const char *self)
{
    int status;
    pid_t pid = fork();
    if (!pid)
        _exit(personality(0xffffffff) == READ_IMPLIES_EXEC && run(map(RW)) == 42 ? 0 : 1);
    waitpid(pid, &status, 0);
    is(status, 0, "a child has it");
    personality(READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE | UNAME26);
    pid = fork();
    if (!pid) {
        execl(self, self, "child", NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    is(status, 0, "a program executed has the rest");
    personality(0);
    is(run(map(RW)), -1, "none of it any more");
}

int main(int argc, char **argv)
{
    signal(SIGSEGV, handler);
    if (argc > 1)
        return personality(0xffffffff) == (ADDR_NO_RANDOMIZE | UNAME26) && run(map(RW)) == -1 ? 0 : 1;
    if (personality(READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE | UNAME26) < 0) {
        say("skip: personality is refused\n");
        return 0;
    }
    personality(0);
    readable_is_executable();
    inherited(argv[0]);
    return finish();
}
