/* Address space calls: break, mmap, munmap, mremap, mprotect, madvise, mincore, stacks, and contents after
 * each. */
// VARIANTS: o2 static nopie
#include "guest.h"
#include <sys/resource.h>

static bool all(const uint8_t *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

static uint8_t *anon(size_t pages)
{
    return mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void breaks(void)
{
    uint8_t *start = sbrk(0);
    ok(sbrk(100000) == start, "sbrk up");
    memset(start, 7, 100000);
    ok(sbrk(-50000) == start + 100000 && sbrk(0) == start + 50000, "sbrk down");
    ok(sbrk(60000) == start + 50000, "and up again");
    uint8_t *page = (uint8_t *)(((uintptr_t)start + 50000 + 4095) & ~4095ul);
    ok(all(start, 50000, 7) && all(page, 40000, 0), "kept below, zero above");
    ok(brk(start) == 0 && sbrk(0) == start, "brk");
    ok(sbrk(1l << 50) == (void *)-1 && errno == ENOMEM, "a break too far");
}

static void maps(void)
{
    uint8_t *p = anon(10);
    memset(p, 1, 40960);
    is(munmap(p + 4096 * 3, 4096 * 2), 0, "munmap in the middle");
    ok(mmap(p + 4096 * 3, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
            0) == p + 4096 * 3,
       "MAP_FIXED_NOREPLACE into the hole");
    ok(mmap(p + 4096 * 5, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
               MAP_FAILED &&
           errno == EEXIST,
       "and not over others");
    ok(all(p, 4096 * 3, 1) && all(p + 4096 * 3, 4096, 0) && all(p + 4096 * 5, 4096 * 5, 1), "contents");
    ok(mmap(p + 4096, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
               p + 4096 &&
           all(p + 4096, 8192, 0),
       "MAP_FIXED replaces");
    is(munmap(p, 40960), 0, "munmap of it all");
    ok(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL,
       "no length");
    ok(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 777, 0) == MAP_FAILED && errno == EBADF, "no descriptor");
    ok(munmap((void *)0x123, 4096) == -1 && errno == EINVAL, "munmap unaligned");
    is(munmap((void *)0x7f0000000000 /* nothing there */, 4096), 0, "munmap of nothing");
    /* many small mappings and holes */
    uint8_t *many[200];
    for (int i = 0; i < 200; i++) {
        many[i] = anon(2);
        many[i][4096] = (uint8_t)i;
    }
    for (int i = 0; i < 200; i += 2)
        munmap(many[i], 8192);
    bool good = true;
    for (int i = 1; i < 200; i += 2)
        good = good && many[i][4096] == i;
    ok(good, "200 mappings, every other unmapped");
    void *huge = mmap(NULL, 1ull << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ok(huge != MAP_FAILED, "a terabyte reserved");
    ok(mprotect((uint8_t *)huge + (1ull << 39), 4096, PROT_READ | PROT_WRITE) == 0 &&
           (*((uint8_t *)huge + (1ull << 39)) = 3) == 3,
       "a page of it used");
    munmap(huge, 1ull << 40);
    void *below = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    ok(below != MAP_FAILED && (uintptr_t)below < 1ull << 32, "MAP_32BIT");
}

static void remaps(void)
{
    uint8_t *p = anon(4);
    memset(p, 5, 16384);
    uint8_t *q = mremap(p, 16384, 65536, MREMAP_MAYMOVE);
    ok(q != MAP_FAILED && all(q, 16384, 5) && all(q + 16384, 49152, 0), "mremap grows");
    ok(mremap(q, 65536, 8192, 0) == q && all(q, 8192, 5), "and shrinks");
    uint8_t *to = anon(2);
    ok(mremap(q, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to && all(to, 8192, 5),
       "and moves where told");
    uint8_t *barrier = anon(3);
    munmap(barrier, 4096);
    ok(mremap(barrier + 4096, 4096, 1 << 20, 0) == MAP_FAILED && errno == ENOMEM,
       "it does not grow over others");
    uint8_t *twin = (uint8_t *)syscall(SYS_mremap, to, 8192, 8192, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    ok(twin != MAP_FAILED && all(twin, 8192, 5) && all(to, 8192, 0), "MREMAP_DONTUNMAP leaves an empty one");
    ok(mremap((void *)0x5000, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT,
       "mremap of nothing");
}

static void advice(void)
{
    uint8_t *p = anon(8);
    memset(p, 9, 32768);
    is(madvise(p + 4096, 8192, MADV_DONTNEED), 0, "MADV_DONTNEED");
    ok(all(p, 4096, 9) && all(p + 4096, 8192, 0) && all(p + 12288, 4096, 9), "reads zero");
    p[5000] = 4;
    is(madvise(p, 32768, MADV_WILLNEED), 0, "MADV_WILLNEED");
    ok(p[5000] == 4, "keeps");
    is(madvise(p + 1, 4096, MADV_DONTNEED), -1, "unaligned");
    is(madvise(p, 32768, 12345), -1, "unknown advice");
    is(mprotect(p, 4096, PROT_READ), 0, "mprotect");
    is(mprotect(p + 100, 4096, PROT_READ), -1, "mprotect unaligned");
    uint8_t vec[8];
    is(mincore(p, 32768, vec), 0, "mincore");
    is(msync(p, 32768, MS_SYNC), 0, "msync");
    is(mlock(p, 4096) == 0 || errno == EPERM || errno == ENOMEM, 1, "mlock");
    munlock(p, 4096);
    /* a read into protected memory is the kernel's EFAULT, not a signal */
    int fd = open("/proc/self/comm", O_RDONLY);
    is(read(fd, p, 10), -1, "read into read-only memory");
    is(errno, EFAULT, "EFAULT");
    is(write(1, (void *)0x10, 5), -1, "write from nowhere");
    is(errno, EFAULT, "EFAULT");
    close(fd);
}

__attribute__((noinline)) static int grow(int n)
{
    volatile char page[4096];
    page[0] = (char)n;
    return n == 0 ? page[0] : grow(n - 1) + page[0] * 0;
}

static void heaps(void)
{
    is(grow(1500), 0, "six megabytes of stack");
    uint64_t x = 1, sum = 0;
    void *slots[256] = {0};
    size_t sizes[256] = {0};
    for (int i = 0; i < 20000; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        unsigned s = x >> 56;
        if (slots[s]) {
            sum += *(uint8_t *)slots[s];
            if (x >> 40 & 1) {
                free(slots[s]);
                slots[s] = NULL;
                continue;
            }
        }
        sizes[s] = (x >> 33 & 0x3ff) * (x >> 33 & 0x200 ? 200 : 1) + 1;
        slots[s] = realloc(slots[s], sizes[s]);
        memset(slots[s], (int)(x >> 24), sizes[s]);
    }
    say("heap sum %llu\n", (unsigned long long)sum);
}

/* A child has its own copies of everything. */
static void copies(void)
{
    uint8_t *p = anon(100);
    memset(p, 1, 409600);
    for (int i = 0; i < 5; i++)
        if (fork() == 0) {
            memset(p + i * 4096, 10 + i, 4096);
            p = mremap(p, 409600, 819200, MREMAP_MAYMOVE);
            p[700000] = (uint8_t)i;
            _exit(all(p + i * 4096, 4096, 10 + i) && p[(i + 1) * 4096] == 1 ? 0 : 1);
        }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad += status != 0;
    ok(bad == 0 && all(p, 409600, 1), "copies in children");
}

int main(void)
{
    breaks();
    maps();
    remaps();
    advice();
    heaps();
    copies();
    return finish();
}
