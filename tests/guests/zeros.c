/* Calls that set memory to zero: large and small, at odd addresses, between other bytes, over what was there,
 * into code. */
// VARIANTS: o2
#include "guest.h"
#include <sys/uio.h>

enum { SIZE = 3 << 19 };
static uint8_t memory[SIZE];

static void around(uint8_t *p, size_t n)
{
    int zero = open("/dev/zero", O_RDONLY);
    memset(memory, 0xa5, SIZE);
    is(read(zero, p, n), (long)n, "read of zeros");
    close(zero);
    say("%zu %#lx\n", n, (unsigned long)digest(1, memory, SIZE));
}

static void mixed(void)
{
    static const uint8_t text[] = "between";
    int fd = open("sparse", O_RDWR | O_CREAT, 0600);
    is(ftruncate(fd, 1 << 20), 0, "a sparse file");
    is(pwrite(fd, text, 7, 300000), 7, "with an island");
    is(pwrite(fd, text, 7, (1 << 20) - 7), 7, "and a last byte");
    memset(memory, 1, SIZE);
    struct iovec v[] = {
        {memory + 5, 1000}, {memory + 9000, 299000}, {memory + 400000, 256}, {memory + 500000, 1 << 20}};
    is(preadv(fd, v, 4, 0), 1 << 20, "preadv");
    ok(!memcmp(memory + 400000, text, 7), "island");
    say("%#lx\n", (unsigned long)digest(1, memory, SIZE));
    close(fd);
}

/* A page of code that a call empties no longer has the function. */
static void code(void)
{
    static const uint8_t seven[] = {0xb8, 7, 0, 0, 0, 0xc3};
    uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int (*f)(void) = (int (*)(void))(page + 1024);
    memcpy(page + 1024, seven, sizeof seven);
    is(f(), 7, "code");
    int zero = open("/dev/zero", O_RDONLY);
    is(read(zero, page, 1024), 1024, "zeros before it");
    is(f(), 7, "the code is still there");
    is(read(zero, page, 4096), 4096, "zeros over it");
    close(zero);
    memcpy(page + 1024, seven, sizeof seven);
    page[1025] = 8;
    is(f(), 8, "other code");
}

int main(void)
{
    static const size_t sizes[] = {1, 255, 256, 257, 511, 512, 513, 4095, 4096, 65537, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int at = 0; at < 9; at += 3)
            around(memory + 4096 + at, sizes[i]);
    mixed();
    code();
    return finish();
}
