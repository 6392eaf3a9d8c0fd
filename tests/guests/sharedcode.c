/* Code in shared memory that another process changes between two runs of it, with no store or mapping call of one's own. */
// LIMIT: shares writable memory with its parent
#include "guest.h"

static void put_return(uint8_t *p, int value)
{
    p[0] = 0xb8; /* mov eax, imm32; ret */
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
}

static int run(const void *p)
{
    return ((int (*)(void))p)();
}

/* A read or write of one byte whose registers name no other address. */
static long move(long nr, int fd, char *byte)
{
    long result;
    __asm__ volatile("xor %%r10d, %%r10d\n\txor %%r8d, %%r8d\n\txor %%r9d, %%r9d\n\tsyscall"
                     : "=a"(result)
                     : "a"(nr), "D"((long)fd), "S"(byte), "d"(1l)
                     : "rcx", "r8", "r9", "r10", "r11", "memory");
    return result;
}

int main(void)
{
    uint8_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int to[2], from[2], bad = 0, status;
    char byte = 0;
    pipe(to), pipe(from);
    put_return(m, 0);
    pid_t pid = fork();
    if (!pid) {
        for (int i = 1; i <= 10; i++) {
            move(SYS_read, to[0], &byte);
            bad += run(m) != i - 1;
            put_return(m, i);
            bad += run(m) != i;
            move(SYS_write, from[1], &byte);
        }
        _exit(bad);
    }
    for (int i = 1; i <= 10; i++) {
        bad += run(m) != i - 1;
        move(SYS_write, to[1], &byte);
        move(SYS_read, from[0], &byte);
        bad += run(m) != i;
    }
    waitpid(pid, &status, 0);
    ok(!bad && !status, "code that another process changes in shared memory");
    return finish();
}
