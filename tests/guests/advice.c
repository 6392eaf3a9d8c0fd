/* Advice and other calls on mappings that must take effect in replay: process_madvise, MADV_REMOVE and its like, old pages shown
 * otherwise, System V memory in parts. */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/pidfd.h>
#include <sys/shm.h>
#include <sys/uio.h>

enum { P = 4096, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static bool all(const uint8_t *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

static uint8_t *anon(int pages, int value)
{
    uint8_t *m = mmap(NULL, (size_t)pages * P, RW, ANON, -1, 0);
    memset(m, value, (size_t)pages * P);
    return m;
}

static long advise(int fd, const struct iovec *v, size_t n, int advice)
{
    return syscall(SYS_process_madvise, fd, v, n, advice, 0);
}

static void by_pidfd(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0), file = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint8_t *m = anon(8, 1), *f, *s = mmap(NULL, 2 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint8_t page[P];
    memset(page, 2, P), memset(s, 3, 2 * P);
    write(file, page, P), write(file, page, P);
    f = mmap(NULL, 2 * P, RW, MAP_PRIVATE, file, 0);
    memset(f, 4, 2 * P);
    struct iovec v[] = {{m + P, P}, {m + 4 * P, 2 * P}, {f, P}};
    long r = advise(fd, v, 3, MADV_DONTNEED);
    if (r == -1 && errno == EINVAL) { /* before Linux 6.13 */
        say("process_madvise cannot drop\n");
    } else {
        is(r, 4 * P, "process_madvise: bytes advised");
        ok(all(m, P, 1) && all(m + P, P, 0) && all(m + 2 * P, 2 * P, 1) && all(m + 4 * P, 2 * P, 0),
           "private memory dropped");
        ok(all(f, P, 2) && all(f + P, P, 4), "private file pages dropped");
        v[0] = (struct iovec){s, P};
        ok(advise(fd, v, 1, MADV_REMOVE) == P && all(s, P, 0) && all(s + P, P, 3), "shared memory removed");
        v[0] = (struct iovec){m, P}, v[1] = (struct iovec){m + 1, P}, v[2] = (struct iovec){m + 2 * P, P};
        ok(advise(fd, v, 3, MADV_DONTNEED) == P && all(m, P, 0) && all(m + 2 * P, P, 1),
           "up to the first that is wrong");
        ok(advise(fd, v + 1, 1, MADV_DONTNEED) == -1 && errno == EINVAL, "one that is wrong");
    }
    v[0] = (struct iovec){m, 8 * P};
    is(advise(fd, v, 1, MADV_COLD), 8 * P, "MADV_COLD");
    is(advise(fd, v, 0, MADV_COLD), 0, "no range");
    ok(advise(99, v, 1, MADV_COLD) == -1 && errno == EBADF, "no descriptor");
    ok(syscall(SYS_process_madvise, fd, v, 1, MADV_COLD, 1) == -1 && errno == EINVAL, "flags");
    int status, child = fork();
    if (!child)
        for (;;)
            pause();
    int other = (int)syscall(SYS_pidfd_open, child, 0);
    ok(advise(other, v, 1, MADV_DONTNEED) == -1 && errno == EINVAL, "another process cannot be made to drop");
    ok(all(m + 2 * P, P, 1), "... and this one has not");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(fd), close(other), close(file);
}

static void plain(void)
{
    uint8_t *m = anon(4, 5);
    is(madvise(m, P, MADV_POPULATE_READ), 0, "MADV_POPULATE_READ");
    is(madvise(m, P, MADV_POPULATE_WRITE), 0, "MADV_POPULATE_WRITE");
    is(madvise(m, P, MADV_COLD), 0, "MADV_COLD");
    is(madvise(m, P, MADV_PAGEOUT), 0, "MADV_PAGEOUT");
    ok(all(m, 4 * P, 5), "content stays");
    is(madvise(m + P, P, MADV_DONTNEED), 0, "MADV_DONTNEED");
    ok(all(m, P, 5) && all(m + P, P, 0) && all(m + 2 * P, 2 * P, 5), "content goes");
    munmap(m + 2 * P, P);
    ok(madvise(m, 4 * P, MADV_DONTNEED) == -1 && errno == ENOMEM && all(m, P, 0) && all(m + 3 * P, P, 0),
       "over a hole");
    int fd = memfd_create("m", 0);
    ftruncate(fd, 4 * P);
    uint8_t *a = mmap(NULL, 4 * P, RW, MAP_SHARED, fd, 0), *b = mmap(NULL, 4 * P, RW, MAP_SHARED, fd, 0);
    memset(a, 6, 4 * P);
    ok(madvise(b + P, P, MADV_DONTNEED) == 0 && all(a, 4 * P, 6) && all(b, 4 * P, 6),
       "a shared file keeps what a view drops");
    ok(madvise(b + P, P, MADV_REMOVE) == 0 && all(a + P, P, 0) && all(a + 2 * P, P, 6),
       "... and loses what one removes");
    uint8_t *c = mmap(NULL, 4 * P, RW, MAP_PRIVATE, fd, 0);
    memset(c, 7, 2 * P);
    ok(madvise(c, P, MADV_DONTNEED) == 0 && all(c, P, 6) && all(c + P, P, 7),
       "a private view shows the file again");
    ok(madvise(c, P, MADV_FREE) == -1 && errno == EINVAL, "MADV_FREE of a file");
    close(fd);
}

static void shown_otherwise(void)
{
    int fd = memfd_create("m", 0);
    ftruncate(fd, 4 * P);
    uint8_t *m = mmap(NULL, 4 * P, RW, MAP_SHARED, fd, 0);
    for (int i = 0; i < 4; i++)
        memset(m + i * P, i + 1, P);
    is(remap_file_pages(m, P, 0, 3, 0), 0, "remap_file_pages");
    ok(m[0] == 4 && m[P] == 2, "shows the last page first");
    ((volatile uint8_t *)m)[0] = 9;
    is(((volatile uint8_t *)m)[3 * P], 9, "and is the same memory");
    is(remap_file_pages(m + P, 2 * P, 0, 0, 0), 0, "two pages");
    ok(m[P] == 1 && m[2 * P] == 2 && m[3 * P] == 9, "shown");
    uint8_t *p = anon(1, 1);
    ok(remap_file_pages(p, P, 0, 0, 0) == -1 && errno == EINVAL, "private memory cannot");
    close(fd);
}

static void system_v(void)
{
    int id = shmget(IPC_PRIVATE, 6 * P, IPC_CREAT | 0600);
    struct shmid_ds d;
    uint8_t *a = shmat(id, NULL, 0), *b = shmat(id, NULL, SHM_RDONLY);
    memset(a, 1, 6 * P);
    ok(all(b, 6 * P, 1), "two views");
    mprotect(a + P, P, PROT_READ);
    munmap(a + 3 * P, P);
    shmctl(id, IPC_STAT, &d);
    is(d.shm_nattch, 5, "pieces count as attached");
    uint8_t *over = mmap(a + 3 * P, P, RW, ANON | MAP_FIXED, -1, 0);
    *over = 7;
    is(shmdt(a), 0, "shmdt after mprotect and munmap");
    unsigned char vec;
    int gone = 0;
    for (int i = 0; i < 6; i++)
        gone += mincore(a + i * P, P, &vec) == -1;
    ok(gone == 5 && *over == 7, "takes all pieces and leaves what is not its own");
    ok(shmdt(a) == -1 && errno == EINVAL, "nothing more to detach");
    shmctl(id, IPC_RMID, NULL);
    ok(all(b, 6 * P, 1), "removed, and still attached");
    shmctl(id, IPC_STAT, &d);
    is(d.shm_nattch, 1, "by one");
    uint8_t *c = shmat(id, NULL, 0);
    ok(c != (void *)-1 && (c[0] = 9) && b[0] == 9, "attached after its removal");
    uint8_t *moved = mremap(c, 6 * P, 6 * P, MREMAP_MAYMOVE | MREMAP_FIXED, anon(6, 0));
    ok(moved[0] == 9 && shmdt(moved) == 0, "detached where it was moved");
    is(shmdt(b), 0, "the last one");
    ok(shmat(id, NULL, 0) == (void *)-1, "gone");
    munmap(over, P);
}

int main(void)
{
    by_pidfd();
    plain();
    shown_otherwise();
    system_v();
    return finish();
}
