/* Self-modifying and generated code: every way to change instructions that have already run. */
// VARIANTS: o2 nopie static
#include "guest.h"
#include <sys/uio.h>

static uint8_t *page;

static int run(void)
{
    return ((int (*)(void))page)();
}

static void put_return(uint8_t *p, int value)
{
    p[0] = 0xb8; /* mov eax, imm32; ret */
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
}

static void between_calls(void)
{
    int bad = 0;
    for (int i = 0; i < 300; i++) {
        put_return(page, i);
        bad += run() != i;
    }
    is(bad, 0, "rwx page patched between calls");
    bad = 0;
    for (int i = 0; i < 300; i++) {
        page[1] = (uint8_t)i; /* one byte of the immediate */
        bad += (run() & 0xff) != (i & 0xff);
    }
    is(bad, 0, "one byte patched between calls");
}

/* A loop in the page that increments the immediate of its own instruction on every round. */
static void inside_loop(void)
{
    static const uint8_t code[] = {0x31, 0xc0,                /* xor eax, eax */
                                   0xb9, 100,  0,    0,    0, /* mov ecx, 100 */
                                   0x05, 0,    0,    0,    0, /* 7: add eax, imm32 */
                                   0xff, 0x05, 0xf5, 0xff, 0xff,
                                   0xff,       /* inc dword [rip-11]: the imm32 at 8 (next is 19-1=18) */
                                   0xff, 0xc9, /* dec ecx */
                                   0x75, 0xf1, /* jnz 7 */
                                   0xc3};
    memcpy(page, code, sizeof code);
    int32_t displacement = 8 - 18;
    memcpy(page + 14, &displacement, 4);
    page[21] = (uint8_t)(7 - 22);
    is(run(), 99 * 100 / 2, "a loop that patches itself");
    /* an instruction that patches the very next one */
    static const uint8_t next[] = {0xc6, 0x05, 0x01, 0, 0,
                                   0,    42,               /* mov byte [rip+1], 42: the immediate below */
                                   0xb8, 1,    0,    0, 0, /* mov eax, 1 */
                                   0xc3};
    memcpy(page, next, sizeof next);
    is(run(), 42, "a store into the next instruction");
}

static void protect_cycle(void)
{
    int bad = 0;
    for (int i = 0; i < 200; i++) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        put_return(page, i * 3);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        bad += run() != i * 3;
    }
    is(bad, 0, "mprotect write, mprotect execute");
    mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
}

static void by_the_kernel(void)
{
    int p[2], bad = 0;
    pipe(p);
    for (int i = 0; i < 50; i++) {
        uint8_t code[6];
        put_return(code, 1000 + i);
        write(p[1], code, 6);
        if (i & 1) {
            read(p[0], page, 6);
        } else {
            struct iovec v[2] = {{page, 3}, {page + 3, 3}};
            readv(p[0], v, 2);
        }
        bad += run() != 1000 + i;
    }
    is(bad, 0, "code that read(2) and readv(2) wrote");
    bad = 0;
    for (int i = 0; i < 50; i++) {
        munmap(page, 4096);
        uint8_t *again = mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        put_return(again, i);
        bad += again != page || run() != i;
    }
    is(bad, 0, "unmapped and mapped again");
    put_return(page, 5);
    run();
    uint8_t *moved = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page + 0x100000);
    put_return(
        mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        6);
    ok(((int (*)(void))moved)() == 5 && run() == 6, "moved by mremap");
    madvise(page, 4096, MADV_DONTNEED);
    put_return(page + 16, 8);
    ok(((int (*)(void))(page + 16))() == 8 && page[0] == 0, "discarded by madvise");
}

/* Two mappings of one memory: written through one, run through the other. */
static void two_views(void)
{
    int fd = memfd_create("code", 0);
    ftruncate(fd, 4096);
    uint8_t *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t *x = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    int bad = 0;
    for (int i = 0; i < 50; i++) {
        put_return(w, i * 7);
        bad += ((int (*)(void))x)() != i * 7;
    }
    is(bad, 0, "written through another mapping of the same memory");
}

/* Code on the stack's page neighbour: data and code in one page, data written often. */
static void mixed_page(void)
{
    put_return(page, 77);
    volatile uint64_t *data = (volatile uint64_t *)(page + 2048);
    int bad = 0;
    for (int i = 0; i < 20000; i++) {
        *data += (uint64_t)i;
        if (i % 1000 == 0)
            bad += run() != 77;
    }
    ok(bad == 0 && *data == 19999ull * 20000 / 2, "data written beside code");
}

int main(void)
{
    /* the middle of a reservation, so that there is room beside it */
    uint8_t *room = mmap(NULL, 1 << 21, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page = mmap(room + 0x10000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    between_calls();
    inside_loop();
    protect_cycle();
    mixed_page();
    two_views();
    by_the_kernel();
    return finish();
}
