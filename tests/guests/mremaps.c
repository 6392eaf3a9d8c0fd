/* mremap in all its shapes: what stays behind, second views, several mappings at once, limits of the address space. */
#include "guest.h"

enum {
    P = 4096,
    RW = PROT_READ | PROT_WRITE,
    ANON = MAP_PRIVATE | MAP_ANONYMOUS,
    MAY = MREMAP_MAYMOVE,
    FIX = MREMAP_FIXED
};
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
enum { KEEP = MREMAP_DONTUNMAP };

static uint8_t *remap(void *old, size_t old_len, size_t len, int flags, void *to)
{
    return (uint8_t *)syscall(SYS_mremap, old, old_len, len, flags, to);
}

static bool failed(void *p, int error)
{
    return p == MAP_FAILED && errno == error;
}

static uint8_t *room(int pages)
{
    uint8_t *m = mmap(NULL, (size_t)(pages + 2) * P, PROT_NONE, ANON, -1, 0);
    munmap(m, (size_t)(pages + 2) * P);
    return m + P;
}

static bool mapped(void *p)
{
    unsigned char v;
    return mincore(p, P, &v) == 0;
}

static int file_of(int pages)
{
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < pages; i++) {
        uint8_t page[P];
        memset(page, 'A' + i, P);
        write(fd, page, P);
    }
    return fd;
}

static void keeping(void)
{
    uint8_t *m = mmap(NULL, 4 * P, RW, ANON, -1, 0);
    for (int i = 0; i < 4; i++)
        m[i * P] = (uint8_t)(i + 1);
    uint8_t *n = remap(m + P, 2 * P, 2 * P, MAY | KEEP, NULL);
    ok(n != MAP_FAILED && n[0] == 2 && n[P] == 3 && m[0] == 1 && m[P] == 0 && m[2 * P] == 0 && m[3 * P] == 4,
       "private memory");
    m[P] = 9;
    ok(n[0] == 2, "two memories");
    int fd = file_of(3);
    uint8_t *f = mmap(NULL, 3 * P, RW, MAP_PRIVATE, fd, 0);
    f[0] = 'x', f[P] = 'y';
    n = remap(f, 2 * P, 2 * P, MAY | KEEP, NULL);
    if (failed(n, EINVAL)) {
        say("files cannot stay behind before Linux 5.13\n");
        return;
    }
    ok(n[0] == 'x' && n[P] == 'y' && n[1] == 'A' && f[0] == 'A' && f[P] == 'B' && f[2 * P] == 'C',
       "a private file");
    pwrite(fd, "z", 1, 0);
    ok(f[0] == 'z' && n[0] == 'x', "what stays shows the file");
    n = remap(f, 2 * P, 2 * P, MAY | KEEP | FIX, room(2));
    ok(n[0] == 'z' && n[P] == 'B' && f[0] == 'z', "again, to a fixed place");
    uint8_t *s = mmap(NULL, 3 * P, RW, MAP_SHARED, fd, 0);
    n = remap(s + P, 2 * P, 2 * P, MAY | KEEP, NULL);
    n[0] = 'q';
    ok(((volatile uint8_t *)s)[P] == 'q' && n[P] == 'C' && f[P] == 'q', "a shared file");
    uint8_t *a = mmap(NULL, 2 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    a[0] = 5;
    n = remap(a, 2 * P, 2 * P, MAY | KEEP, NULL);
    n[P] = 6;
    ok(n[0] == 5 && ((volatile uint8_t *)a)[P] == 6, "shared memory");
    ok(failed(remap(a, P, 2 * P, MAY | KEEP, NULL), EINVAL), "of another size");
    ok(failed(remap(a, P, P, KEEP, NULL), EINVAL), "that may not move");
    uint8_t *hint = room(2);
    ok(remap(m, P, P, MAY | KEEP, hint) == hint, "to a hint");
    close(fd);
}

static void second_views(void)
{
    uint8_t *a = mmap(NULL, 4 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    a[P] = 1;
    uint8_t *b = remap(a + P, 0, 2 * P, MAY, NULL), *c = remap(a, 0, 4 * P, MAY | FIX, room(4));
    ok(b[0] == 1 && c[P] == 1, "second views of shared memory");
    b[P] = 2;
    ok(((volatile uint8_t *)a)[2 * P] == 2 && ((volatile uint8_t *)c)[2 * P] == 2, "are the same memory");
    munmap(a, 4 * P);
    b[0] = 3;
    is(((volatile uint8_t *)c)[P], 3, "also when the first is gone");
    uint8_t *p = mmap(NULL, P, RW, ANON, -1, 0);
    ok(failed(remap(p, 0, P, MAY, NULL), EINVAL), "private memory has none");
    ok(failed(remap(c, 0, P, 0, NULL), ENOMEM), "one that may not move");
}

static void several(void)
{
    uint8_t *m = mmap(NULL, 6 * P, RW, ANON, -1, 0), *to = room(6);
    for (int i = 0; i < 6; i++)
        m[i * P] = (uint8_t)(i + 1);
    mprotect(m + P, P, PROT_READ);
    int fd = file_of(2);
    mmap(m + 4 * P, 2 * P, RW, MAP_SHARED | MAP_FIXED, fd, 0);
    munmap(m + 2 * P, P);
    uint8_t *r = remap(m, 6 * P, 6 * P, MAY | FIX, to);
    if (r == MAP_FAILED) {
        ok(errno == EFAULT, "several mappings cannot move before Linux 6.17");
    } else {
        ok(r == to && !mapped(m) && !mapped(m + 5 * P), "several mappings move");
        ok(to[0] == 1 && to[P] == 2 && !mapped(to + 2 * P) && to[3 * P] == 4 && to[4 * P] == 'A' &&
               to[5 * P] == 'B',
           "each to its place");
        m = to;
    }
    ok(failed(remap(m, 6 * P, 7 * P, MAY, NULL), EFAULT), "they cannot grow");
    ok(remap(m, 6 * P, 2 * P, 0, NULL) == m && mapped(m + P) && !mapped(m + 3 * P) && !mapped(m + 5 * P),
       "but be cut");
    close(fd);
}

static void protections(void)
{
    uint8_t *m = mmap(NULL, 2 * P, PROT_READ, ANON, -1, 0);
    uint8_t *n = remap(m, 2 * P, 4 * P, MAY | FIX, room(4));
    ok(n[3 * P] == 0 && mprotect(n, 4 * P, RW) == 0 && (n[3 * P] = 1), "a read-only mapping that grew");
    uint8_t *none = mmap(NULL, P, PROT_NONE, ANON, -1, 0);
    n = remap(none, P, 2 * P, MAY, NULL);
    ok(n != MAP_FAILED && mprotect(n, 2 * P, RW) == 0 && (n[P] = 1), "one without permissions");
    ok(failed(remap(n, P, P, MAY | FIX, (void *)0x7ffffffff000), EINVAL), "beyond the end");
    ok(failed(remap(n, P, 1ul << 47, MAY, NULL), EINVAL) || errno == ENOMEM, "larger than everything");
    ok(failed(remap(n, P, P, MAY | FIX, n), EINVAL), "onto itself");
    ok(failed(remap(n, P, P, 8, NULL), EINVAL), "an unknown flag");
    ok(failed(remap(n, P, 0, MAY, NULL), EINVAL), "to nothing");
}

int main(void)
{
    keeping();
    second_views();
    several();
    protections();
    return finish();
}
