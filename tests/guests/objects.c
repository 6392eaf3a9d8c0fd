/* What several mappings show: files and shared memory whose content, size or views change while they are
 * mapped. */
// VARIANTS: o2 static
#include "guest.h"
#include <setjmp.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { PAGE = 4096 };
enum { RW = PROT_READ | PROT_WRITE };

static int make(const char *name, int pages)
{
    char block[PAGE];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < pages; i++) {
        memset(block, 'a' + i, PAGE);
        write(fd, block, PAGE);
    }
    return fd;
}

static char *map(int fd, int pages, int prot, int flags, int from)
{
    char *p = mmap(NULL, (size_t)pages * PAGE, prot, flags, fd, (off_t)from * PAGE);
    if (p == MAP_FAILED)
        _exit(99);
    return p;
}

/* ---- faults ---- */

static sigjmp_buf back;
static volatile uintptr_t fault_at;

static void on_fault(int signo, siginfo_t *info, void *context)
{
    fault_at = (uintptr_t)info->si_addr;
    siglongjmp(back, signo);
}

static int peek(volatile char *p)
{
    int signo = sigsetjmp(back, 1);
    return signo ? -signo : *p;
}

static int poke(volatile char *p, char c)
{
    int signo = sigsetjmp(back, 1);
    if (signo)
        return -signo;
    *p = c;
    return 0;
}

/* ---- views ---- */

static void two_views(int fd, const char *what)
{
    char *a = map(fd, 4, RW, MAP_SHARED, 0), *b = map(fd, 4, RW, MAP_SHARED, 0),
         *c = map(fd, 2, PROT_READ, MAP_SHARED, 1);
    int p[2];
    pipe(p);
    a[5] = 'A';
    b[6] = 'B';
    b[PAGE + 7] = 'C';
    ok(a[6] == 'B' && b[5] == 'A' && c[7] == 'C', what);
    write(p[1], "through a pipe", 14);
    read(p[0], a + 2 * PAGE, 14);
    ok(!memcmp(b + 2 * PAGE, "through a pipe", 14) && !memcmp(c + PAGE, "through", 7),
       "read() into one shows in all");
    pwrite(fd, "WRITTEN", 7, 3 * PAGE - 3);
    ok(!memcmp(a + 3 * PAGE - 3, "WRITTEN", 7) && !memcmp(b + 3 * PAGE - 3, "WRITTEN", 7),
       "pwrite across a page border");
    a = mremap(a, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    b[9] = 'M';
    ok(a[9] == 'M', "a moved view is a view");
    mprotect(b, 4 * PAGE, PROT_READ);
    a[10] = 'P';
    mprotect(b, 4 * PAGE, RW);
    ok(b[10] == 'P', "and so is a protected one");
    munmap(a, 8 * PAGE);
    b[11] = 'U';
    munmap(b, 4 * PAGE);
    munmap(c, 2 * PAGE);
    a = map(fd, 4, PROT_READ, MAP_SHARED, 0);
    ok(a[11] == 'U' && a[10] == 'P' && !memcmp(a + 2 * PAGE, "through", 7),
       "mapped again: earlier stores are there");
    mprotect(a, PAGE, RW);
    a[12] = 'V';
    b = map(fd, 1, PROT_READ, MAP_SHARED, 0);
    ok(b[12] == 'V', "a view that became writable");
    munmap(a, 4 * PAGE);
    a = map(fd, 1, PROT_READ, MAP_PRIVATE, 0);
    ok(a[12] == 'V', "private, after the store");
    munmap(a, PAGE);
    munmap(b, PAGE);
    close(p[0]);
    close(p[1]);
}

/* A store that does not move the file's times: its page was dirty and writable before. */
static void same_times(void)
{
    int fd = make("times", 1);
    char *w = map(fd, 1, RW, MAP_SHARED, 0);
    w[0] = '1';
    usleep(150000);
    for (int i = 0; i < 4; i++) {
        w[0] = (char)('2' + i);
        char *r = map(fd, 1, PROT_READ, MAP_PRIVATE, 0);
        ok(r[0] == '2' + i, "a fresh private view shows the last store");
        munmap(r, PAGE);
    }
    munmap(w, PAGE);
    close(fd);
}

static void private_views(void)
{
    int fd = make("private", 6);
    char *early = map(fd, 6, RW, MAP_PRIVATE, 0); /* before anybody knows that the file will change */
    early[0] = 'X';
    early[5 * PAGE] = 'Y';
    char *s = map(fd, 6, RW, MAP_SHARED, 0);
    char *late = map(fd, 6, RW, MAP_PRIVATE, 0);
    s[1] = '1';
    s[PAGE + 1] = '2';
    ok(early[0] == 'X' && early[1] == 'a' && early[5 * PAGE] == 'Y', "copied pages stay as they are");
    ok(early[PAGE + 1] == '2' && late[PAGE + 1] == '2' && late[1] == '1', "others show a shared store");
    late[2 * PAGE] = 'L';
    pwrite(fd, "by call", 7, 2 * PAGE);
    ok(late[2 * PAGE] == 'L' && late[2 * PAGE + 1] == 'c' && early[2 * PAGE + 1] == 'y',
       "pwrite beside a copied page");
    madvise(late, 6 * PAGE, MADV_DONTNEED);
    madvise(early, PAGE, MADV_DONTNEED);
    ok(!memcmp(late + 2 * PAGE, "by call", 7) && early[1] == '1' && early[0] == 'a',
       "discarded: the file shows again");
    s[0] = 'S';
    ok(early[0] == 'S', "and follows it again");
    munmap(s, 6 * PAGE);
    pwrite(fd, "end", 3, 5 * PAGE);
    ok(early[5 * PAGE] == 'Y' && late[5 * PAGE] == 'e', "without a shared view, too");
    madvise(early, 6 * PAGE, MADV_DONTNEED);
    ok(early[5 * PAGE] == 'e', "which a discard brings into view");
    munmap(early, 6 * PAGE);
    munmap(late, 6 * PAGE);
    close(fd);
}

/* Only private views, only calls. */
static void calls_only(void)
{
    int fd = make("calls", 4);
    char *p = map(fd, 2, RW, MAP_PRIVATE, 0), *none = map(fd, 4, PROT_NONE, MAP_PRIVATE, 0);
    p[3] = 'p';
    pwrite(fd, "zero", 4, 0);
    pwrite(fd, "three", 5, 3 * PAGE);
    pwrite(fd, "two", 3, 2 * PAGE);
    ok(p[0] == 'a' && p[3] == 'p', "a copy is not the file's");
    mprotect(none, 4 * PAGE, PROT_READ);
    ok(!memcmp(none, "zero", 4) && !memcmp(none + 3 * PAGE, "three", 5),
       "what could not be read when it was written");
    p = mremap(p, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    ok(!memcmp(p + 2 * PAGE, "two", 3) && p[3] == 'p', "what was not mapped when it was written");
    madvise(p, PAGE, MADV_DONTNEED);
    ok(!memcmp(p, "zero", 4), "what was behind a copy");
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE + 100, 2 * PAGE);
    ok(p[PAGE + 99] == 'b' && p[PAGE + 100] == 0 && p[2 * PAGE] == 0 && p[3 * PAGE + 100] == 'd',
       "a hole is punched");
    int other = make("other", 1);
    struct iovec v[2] = {{"vec", 3}, {"tor", 3}};
    pwritev(fd, v, 2, PAGE - 3);
    loff_t in = 0, out = 3 * PAGE;
    copy_file_range(other, &in, fd, &out, 10, 0);
    ok(!memcmp(none + PAGE - 3, "vector", 6) && !memcmp(none + 3 * PAGE, "aaaaaaaaaa", 10),
       "pwritev and copy_file_range");
    munmap(p, 4 * PAGE);
    munmap(none, 4 * PAGE);
    close(fd);
    close(other);
}

/* ---- sizes ---- */

static void shrinks_and_grows(int flags)
{
    int fd = make("sized", 4);
    char *p = map(fd, 6, RW, flags, 0);
    ok(peek(p + 4 * PAGE) == -SIGBUS && fault_at == (uintptr_t)p + 4 * PAGE, "behind the end: SIGBUS");
    p[2 * PAGE] = 'k';
    p[3 * PAGE] = 'c';
    is(ftruncate(fd, 2 * PAGE + 10), 0, "shorter");
    ok(peek(p + 3 * PAGE) == -SIGBUS && poke(p + 3 * PAGE, 1) == -SIGBUS, "what was there is SIGBUS");
    ok(p[2 * PAGE] == 'k' && peek(p + 2 * PAGE + 9) == 'c', "up to the new end all is well");
    is(peek(p + 2 * PAGE + 10), flags == MAP_SHARED ? 0 : 'c', "zero behind it in a page of the file's");
    is(ftruncate(fd, 5 * PAGE), 0, "longer");
    ok(peek(p + 3 * PAGE) == 0 && peek(p + 4 * PAGE) == 0 && peek(p + 5 * PAGE) == -SIGBUS, "zeros appear");
    p[4 * PAGE] = 'n';
    lseek(fd, 5 * PAGE, SEEK_SET);
    write(fd, "appended", 8);
    ok(!memcmp(p + 5 * PAGE, "appended", 8) && p[5 * PAGE + 8] == 0 && p[4 * PAGE] == 'n',
       "a write makes it grow");
    int append = open("sized", O_WRONLY | O_APPEND);
    pwrite(append, "+", 1, 0);
    ok(p[5 * PAGE + 8] == '+' && (p[0] == 'a' || flags == MAP_PRIVATE), "an appending pwrite");
    is(truncate("sized", PAGE), 0, "truncate");
    ok(peek(p + PAGE) == -SIGBUS && p[0] == 'a', "cut by its name");
    close(open("sized", O_RDWR | O_TRUNC));
    ok(peek(p) == -SIGBUS, "O_TRUNC");
    pwrite(fd, "reborn", 6, 0);
    ok(!memcmp(p, "reborn", 6) && p[6] == 0, "written anew");
    fallocate(fd, 0, 0, 3 * PAGE);
    ok(peek(p + 2 * PAGE) == 0 && peek(p + 3 * PAGE) == -SIGBUS, "fallocate");
    munmap(p, 6 * PAGE);
    close(append);
    close(fd);
}

/* ---- memory without a file ---- */

static void anonymous(void)
{
    char *a = map(-1, 4, RW, MAP_SHARED | MAP_ANONYMOUS, 0);
    a[0] = '0';
    a[2 * PAGE] = '2';
    char *b = mremap(a, 0, 4 * PAGE, MREMAP_MAYMOVE), *c = mremap(a + 2 * PAGE, 0, PAGE, MREMAP_MAYMOVE);
    b[1] = '1';
    c[1] = '3';
    ok(a[1] == '1' && b[0] == '0' && b[2 * PAGE] == '2' && a[2 * PAGE + 1] == '3', "mremap makes views");
    madvise(a, 4 * PAGE, MADV_DONTNEED);
    ok(a[1] == '1', "a discard keeps shared memory");
    madvise(a, PAGE, MADV_REMOVE);
    ok(a[1] == 0 && b[0] == 0 && b[2 * PAGE] == '2', "MADV_REMOVE does not");
    munmap(a, 4 * PAGE);
    ok(c[0] == '2' && b[2 * PAGE + 1] == '3', "other views remain");
    munmap(b, 4 * PAGE);
    munmap(c, PAGE);
    int id = shmget(IPC_PRIVATE, 2 * PAGE, IPC_CREAT | 0600);
    char *s = shmat(id, NULL, 0);
    strcpy(s, "segment");
    const char *r = shmat(id, NULL, SHM_RDONLY);
    ok(!strcmp(r, "segment"), "a System V segment attached twice");
    s[0] = 'S';
    ok(r[0] == 'S', "shows stores");
    shmdt(s);
    ok(r[1] == 'e', "after the other detached");
    shmdt(r);
    s = shmat(id, NULL, 0);
    ok(!strcmp(s, "Segment"), "attached again");
    shmdt(s);
    shmctl(id, IPC_RMID, NULL);
}

/* More objects, one after the other, than there are numbers for them. */
static void many(void)
{
    int fd = make("lasting", 2);
    char *a = map(fd, 2, RW, MAP_SHARED, 0), *b = map(fd, 2, PROT_READ, MAP_SHARED, 0);
    for (int i = 0; i < 70000; i++) {
        char *p = map(-1, 1, RW, MAP_SHARED | MAP_ANONYMOUS, 0);
        if (i % 1000 == 0) {
            p[0] = 'x';
            a[i / 1000]++;
        }
        munmap(p, PAGE);
    }
    ok(b[0] == 'b' && b[69] == 'b', "a view outlives 70000 others");
    munmap(a, 2 * PAGE);
    munmap(b, 2 * PAGE);
    close(fd);
}

/* ---- code ---- */

static void put_code(uint8_t *code, uint32_t value)
{
    code[0] = 0xb8; /* mov eax, value; ret */
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
}

static uint32_t run(const void *code)
{
    uint32_t (*f)(void);
    memcpy(&f, &code, sizeof f);
    return f();
}

static void code(void)
{
    uint8_t bytes[6];
    int fd = memfd_create("code", 0);
    ftruncate(fd, 2 * PAGE);
    put_code(bytes, 1);
    pwrite(fd, bytes, 6, 0);
    char *x = map(fd, 2, PROT_READ | PROT_EXEC, MAP_SHARED, 0),
         *px = map(fd, 2, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0);
    ok(run(x) == 1 && run(px) == 1, "code in a file");
    put_code(bytes, 2);
    pwrite(fd, bytes, 6, 0);
    ok(run(x) == 2 && run(px) == 2, "written anew by a call");
    uint8_t *w = (uint8_t *)map(fd, 2, RW, MAP_SHARED, 0);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 20; i++) {
        put_code(w, 100 + i);
        sum += run(x) + run(px);
    }
    is((int)sum, 2 * (100 * 20 + 190), "and through a view that came later");
    ftruncate(fd, 0);
    int signo = sigsetjmp(back, 1);
    if (!signo)
        run(x);
    is(signo, SIGBUS, "cut away");
    ftruncate(fd, 2 * PAGE);
    put_code(w, 7);
    ok(run(x) == 7, "and back");
    munmap(x, 2 * PAGE);
    munmap(px, 2 * PAGE);
    munmap(w, 2 * PAGE);
    close(fd);
}

/* ---- processes: each looks only at what it wrote itself ---- */

static void children(void)
{
    int fd = make("family", 4);
    char *a = map(fd, 4, RW, MAP_SHARED, 0), *b = map(fd, 4, PROT_READ, MAP_SHARED, 0),
         *p = map(fd, 4, RW, MAP_PRIVATE, 0);
    a[0] = '1';
    p[PAGE] = 'p';
    pid_t child = fork();
    if (child == 0) {
        bool good = b[0] == '1' && p[0] == '1' && p[PAGE] == 'p';
        a[2 * PAGE] = 'c';
        good = good && b[2 * PAGE] == 'c' && p[2 * PAGE] == 'c';
        char *again = map(fd, 4, PROT_READ, MAP_SHARED, 0);
        good = good && again[2 * PAGE] == 'c' && again[0] == '1';
        ftruncate(fd, 3 * PAGE);
        _exit(good && peek(a + 3 * PAGE) == -SIGBUS && peek(p + 2 * PAGE) == 'c' ? 7 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 7, "a child's views");
    a[1] = '2';
    ok(b[1] == '2' && p[1] == '2' && p[PAGE] == 'p', "the parent's go on");
    munmap(a, 4 * PAGE);
    munmap(b, 4 * PAGE);
    munmap(p, 4 * PAGE);
    close(fd);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    int fd = make("views", 4);
    two_views(fd, "a file mapped twice");
    close(fd);
    fd = memfd_create("views", 0);
    ftruncate(fd, 4 * PAGE);
    two_views(fd, "a memfd mapped twice");
    close(fd);
    same_times();
    private_views();
    calls_only();
    shrinks_and_grows(MAP_SHARED);
    shrinks_and_grows(MAP_PRIVATE);
    anonymous();
    many();
    code();
    children();
    return finish();
}
