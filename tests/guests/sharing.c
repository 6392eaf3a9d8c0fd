/* Memory and mapped files shared between processes: each sees what the others store. */
// LIMIT: shares writable memory
#include "guest.h"

static void memory(void)
{
    volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int p[2];
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        shared[0] = 123;
        char c;
        read(p[0], &c, 1);
        shared[1] = shared[2] + 1;
        _exit(0);
    }
    shared[2] = 455;
    write(p[1], "g", 1);
    waitpid(child, NULL, 0);
    ok(shared[0] == 123 && shared[1] == 456, "an anonymous shared page between parent and child");
}

static void file(void)
{
    int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, 4096);
    char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    pid_t child = fork();
    if (child == 0) {
        pwrite(fd, "child", 5, 400);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    ok(!memcmp(p + 400, "child", 5), "a child's write to a mapped file");
}

int main(int argc, char **argv)
{
    memory();
    file();
    return finish();
}
