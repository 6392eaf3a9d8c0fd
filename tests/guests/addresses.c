/* Addresses that programs ask for: hints that are free are honoured, wherever runtimes like to live; code runs there. */
// VARIANTS: o2 nopie
#include "guest.h"

enum {
    P = 4096,
    RWX = PROT_READ | PROT_WRITE | PROT_EXEC,
    ANON = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
};

static const struct place {
    uint64_t at;
    const char *who;
} places[] = {
    {0x40000000, "MAP_32BIT area"},
    {0x50000000, "SBCL static"},
    {0x50001000, "not aligned"},
    {0x7fff8000, "ASan shadow"},
    {0x80000000, "JVM heap"},
    {0xc0000000, "4 GiB minus 1"},
    {0x100000000, "4 GiB"},
    {0x140000000, "PE image"},
    {0x800000000, "JVM class space"},
    {0x1000000000, "SBCL dynamic space"},
    {0xc000000000, "Go"},
    {0x10007fff8000, "ASan high"},
    {0x222200000, "a V8 cage"},
    {0x300000000000, "48 TiB"},
    {0x4000007fe000, "64 TiB"},
    {0x600000000000, "ASan heap"},
    {0x6fe000000000, "LSan"},
    {0x7b0000000000, "TSan"},
    {0x7d0000001000, "TSan heap"},
};
enum { PLACES = sizeof places / sizeof *places };

static int run(uint8_t *p, int value)
{
    p[0] = 0xb8;
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
    return ((int (*)(void))p)();
}

static void hints(size_t len)
{
    for (int i = 0; i < PLACES; i++) {
        uint8_t *want = (uint8_t *)places[i].at, *at = mmap(want, len, RWX, ANON, -1, 0);
        ok(at == want, "a hint, %zu KiB: %s", len >> 10, places[i].who);
        ok(run(at, i) == i && run(at, i + 100) == i + 100, "... and code there");
        munmap(at, len);
    }
}

static void hints_alone(void)
{
    for (int i = 0; i < PLACES; i++) { /* a multiple of 2 MiB, at what is none */
        uint8_t *want = (uint8_t *)(places[i].at + P), *at = mmap(want, 4 << 20, PROT_NONE, ANON, -1, 0);
        ok(at == want, "a large hint off a page: %s", places[i].who);
        munmap(at, 4 << 20);
        at = mmap(want, P, RWX, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        ok(at == want && mmap(want, P, RWX, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
               errno == EEXIST,
           "MAP_FIXED_NOREPLACE");
        uint8_t *other = mmap(want, P, RWX, ANON, -1, 0);
        ok(other != want && other != MAP_FAILED, "a hint that is taken");
        munmap(other, P);
        ok(mmap(want + 100, P, RWX, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL,
           "MAP_FIXED between pages");
        ok(mremap(want, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, want + 16 * P) == want + 16 * P, "mremap there");
        munmap(want + 16 * P, P);
        other = mmap(want + 100, P, RWX, ANON, -1, 0);
        ok(other == want, "a hint between pages");
        munmap(other, P);
    }
}

static void low(void)
{
    uint8_t *a = mmap(NULL, 1 << 20, RWX, ANON | MAP_32BIT, -1, 0);
    ok((uintptr_t)a < 0x80000000 && run(a, 5) == 5, "MAP_32BIT");
    uint8_t *b = mmap((void *)0x47123000, P, RWX, ANON | MAP_32BIT, -1, 0);
    ok(b == (uint8_t *)0x47123000, "MAP_32BIT with a hint");
    uint8_t *c = mmap((void *)0x123456789000, P, RWX, ANON | MAP_32BIT, -1, 0);
    ok((uintptr_t)c < 0x80000000, "MAP_32BIT with a hint beyond");
    uint8_t *d = mmap(NULL, 200 << 20, PROT_NONE, ANON | MAP_32BIT, -1, 0);
    ok((uintptr_t)d < 0x80000000, "MAP_32BIT, 200 MiB");
    munmap(a, 1 << 20), munmap(b, P), munmap(c, P), munmap(d, 200 << 20);
    ok(mmap((void *)1, P, RWX, ANON, -1, 0) != MAP_FAILED, "a hint that is no page");
    ok(mmap((void *)0xffff800000000000, P, RWX, ANON, -1, 0) != MAP_FAILED, "a hint in the kernel");
    ok(mmap((void *)0xffff800000000000, P, RWX, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM,
       "MAP_FIXED in the kernel");
    ok(mmap((void *)0x7ffffffff000, P, RWX, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM,
       "MAP_FIXED at the end");
}

static void large(void)
{
    int bad = 0;
    void *m[8];
    for (int i = 0; i < 8; i++)
        bad += (m[i] = mmap(NULL, 10ul << 30, PROT_NONE, ANON, -1, 0)) == MAP_FAILED;
    is(bad, 0, "eight reservations of 10 GiB");
    for (int i = 0; i < 8; i++)
        munmap(m[i], 10ul << 30);
    void *huge = mmap(NULL, 40ul << 40, PROT_NONE, ANON, -1, 0);
    ok(huge != MAP_FAILED, "a reservation of 40 TiB");
    mprotect((char *)huge + (20ul << 40), P, RWX);
    is(run((uint8_t *)huge + (20ul << 40), 9), 9, "... code in its middle");
    munmap(huge, 40ul << 40);
    ok(mmap(NULL, 1ul << 47, PROT_NONE, ANON, -1, 0) == MAP_FAILED && errno == ENOMEM,
       "a reservation of everything");
    uint64_t shadow = 0x7fff8000, end = 0x10007fff8000;
    ok(mmap((void *)shadow, end - shadow, PROT_READ | PROT_WRITE, ANON | MAP_FIXED_NOREPLACE, -1, 0) ==
           (void *)shadow,
       "the shadow of AddressSanitizer");
    *(char *)(shadow + (8ul << 40)) = 1;
    munmap((void *)shadow, end - shadow);
}

int main(void)
{
    hints(P);
    hints(2 << 20);
    hints_alone();
    low();
    large();
    return finish();
}
