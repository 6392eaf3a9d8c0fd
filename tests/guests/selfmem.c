/* Writing to one's own /proc/self/mem: data, read-only data, code in files and in memory, stacks, holes. */
// VARIANTS: o2 static
#include "guest.h"
#include <sys/uio.h>

enum {
    P = 4096,
    RW = PROT_READ | PROT_WRITE,
    RX = PROT_READ | PROT_EXEC,
    ANON = MAP_PRIVATE | MAP_ANONYMOUS
};

static int mem;
static const char constant[16] = "constant";
static const char *volatile constant_at = constant;

__attribute__((noinline, section(".text.patched"))) static int answer(void)
{
    __asm__ volatile("");
    return 1;
}

static long put(const void *at, const void *bytes, size_t n)
{
    return pwrite(mem, bytes, n, (off_t)(uintptr_t)at);
}

static void put_return(uint8_t *p, int value)
{
    p[0] = 0xb8;
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
}

static int run(const void *p)
{
    return ((int (*)(void))p)();
}

static void data(void)
{
    uint8_t *m = mmap(NULL, 3 * P, RW, ANON, -1, 0), byte = 0;
    is(put(m, "hello", 6), 6, "a writable page");
    ok(!strcmp((char *)m, "hello"), "written");
    mprotect(m, P, PROT_READ);
    is(put(m, "HELLO", 5), 5, "a read-only page");
    ok(!strcmp((char *)m, "HELLO"), "written");
    is(put(m + P - 3, "abcdef", 6), 6, "over a border");
    ok(!memcmp(m + P - 3, "abcdef", 6), "written");
    is(put(constant_at, "CONST", 5), 5, "read-only data of the program");
    ok(!strcmp(constant_at, "CONSTant"), "written");
    munmap(m + 2 * P, P);
    is(put(m + 2 * P - 4, "12345678", 8), 4, "up to a hole");
    ok(put(m + 2 * P, "1", 1) == -1 && errno == EIO, "a hole");
    ok(put((void *)8, "1", 1) == -1 && errno == EIO, "address 8");
    ok(pwrite(mem, (void *)8, 1, (off_t)(uintptr_t)m) == -1 && errno == EFAULT, "from nowhere");
    uint8_t *s = mmap(NULL, P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ok(put(s, "shared", 7) == 7 && !strcmp((char *)s, "shared"), "shared memory");
    mprotect(s, P, PROT_READ);
    ok(put(s, "SHARED", 7) == -1 && !strcmp((char *)s, "shared"), "shared memory that is read-only");
    lseek(mem, (off_t)(uintptr_t)m, SEEK_SET);
    struct iovec v[3] = {{"one", 3}, {"", 0}, {"two", 4}};
    ok(write(mem, "zero", 4) == 4 && writev(mem, v, 3) == 7 && !strcmp((char *)m, "zeroonetwo"),
       "write and writev go on");
    is(lseek(mem, 0, SEEK_CUR) - (off_t)(uintptr_t)m, 11, "the position");
    is(pwritev(mem, v, 1, (off_t)(uintptr_t)m), 3, "pwritev");
    is(pread(mem, &byte, 1, (off_t)(uintptr_t)m), 1, "read back");
    is(byte, 'o', "the byte");
}

static void code(void)
{
    uint8_t *m = mmap(NULL, P, RW, ANON, -1, 0), new[6];
    int bad = 0;
    put_return(m, 1);
    mprotect(m, P, RX);
    for (int i = 0; i < 20; i++) {
        put_return(new, i);
        bad += put(m, new, 6) != 6 || run(m) != i;
    }
    is(bad, 0, "code in a page that is not writable");
    mprotect(m, P, RW | PROT_EXEC);
    for (int i = 0; i < 20; i++) {
        put_return(new, i);
        bad += put(m, new, 6) != 6 || run(m) != i;
        m[1]++;
        bad += run(m) != i + 1;
    }
    is(bad, 0, "code in a page that is writable");
    int before = answer();
    put_return(new, 42);
    ok(put((void *)(uintptr_t)answer, new, 6) == 6 && before == 1 && answer() == 42, "code of the program");
    uint8_t *view = mmap(NULL, P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint8_t *x = mremap(view, 0, P, MREMAP_MAYMOVE);
    mprotect(x, P, RX);
    put_return(view, 1), run(x);
    put_return(new, 7);
    ok(put(view, new, 6) == 6 && run(x) == 7, "code that another view shows");
}

static void descriptors(void)
{
    static char target[8];
    int copy = dup(mem), status;
    close(mem);
    mem = copy;
    ok(put(target, "copy", 5) == 5 && !strcmp(target, "copy"), "a duplicate");
    pid_t pid = fork();
    if (!pid) {
        int own = open("/proc/self/mem", O_RDWR);
        _exit(pwrite(own, "mine", 5, (off_t)(uintptr_t)target) == 5 && !strcmp(target, "mine") ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    ok(!status && !strcmp(target, "copy"), "a child writes its own");
    int reading = open("/proc/self/mem", O_RDONLY);
    ok(pwrite(reading, "x", 1, (off_t)(uintptr_t)target) == -1 && errno == EBADF, "one that is for reading");
    char name[40];
    snprintf(name, sizeof name, "/proc/%d/mem", getpid());
    int other = open(name, O_WRONLY);
    ok(pwrite(other, "name", 5, (off_t)(uintptr_t)target) == 5 && !strcmp(target, "name"), "by number");
    close(other), close(reading);
}

int main(void)
{
    mem = open("/proc/self/mem", O_RDWR);
    if (mem < 0) {
        say("skip: /proc/self/mem cannot be opened\n");
        return 0;
    }
    data();
    code();
    descriptors();
    return finish();
}
