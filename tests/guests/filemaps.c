/* Mapped files: private and shared, written by calls and by stores, extended, sparse. */
// VARIANTS: o2
#include "guest.h"
#include <sys/stat.h>
#include <sys/uio.h>

static int make(const char *name, size_t size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char block[4096];
    for (size_t i = 0; i < size; i += 4096) {
        memset(block, 'a' + (int)(i / 4096 % 26), 4096);
        write(fd, block, size - i < 4096 ? size - i : 4096);
    }
    return fd;
}

static void private_maps(void)
{
    int fd = make("private", 20000);
    char *p = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    ok(p[0] == 'a' && p[4096] == 'b' && p[19999] == 'e' && p[20000] == 0, "contents and the zero tail");
    p[0] = 'X';
    char c;
    pread(fd, &c, 1, 0);
    ok(c == 'a' && p[0] == 'X', "a private store stays private");
    pwrite(fd, "NEW", 3, 8192);
    ok(!memcmp(p + 8192, "NEW", 3), "a write to the file shows in an untouched page");
    pwrite(fd, "OLD", 3, 0);
    ok(p[0] == 'X' && p[1] == 'a', "but not in a page of our own");
    char *q = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 8192);
    ok(!memcmp(q, "NEW", 3), "a map with an offset");
    madvise(p, 4096, MADV_DONTNEED);
    ok(!memcmp(p, "OLD", 3), "MADV_DONTNEED shows the file again");
    close(fd);
    ok(p[12288] == 'd', "the map outlives its descriptor");
    unlink("private");
    ok(p[16384] == 'e', "and its file");
    munmap(p, 20000);
    munmap(q, 8192);
}

static void shared_maps(void)
{
    int fd = make("shared", 12288);
    char *p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    p[10] = 'S';
    char c;
    pread(fd, &c, 1, 10);
    ok(c == 'S' && q[10] == 'S', "a shared store reaches the file and other maps");
    is(pwrite(fd, "kernel", 6, 100), 6, "pwrite to a mapped file");
    ok(!memcmp(p + 100, "kernel", 6) && !memcmp(q + 100, "kernel", 6), "shows in both");
    lseek(fd, 200, SEEK_SET);
    write(fd, "more", 4);
    writev(fd, (struct iovec[]){{"v1", 2}, {"v2", 2}}, 2);
    ok(!memcmp(p + 200, "morev1v2", 8), "write and writev, too");
    int other = make("source", 4096);
    loff_t in = 0, out = 8192;
    ssize_t n = copy_file_range(other, &in, fd, &out, 100, 0);
    ok(n == 100 && p[8192] == 'a', "copy_file_range");
    close(fd);
    fd = open("shared", O_RDWR);
    pwrite(fd, "again", 5, 300);
    ok(!memcmp(p + 300, "again", 5), "a write through a descriptor opened later");
    ftruncate(fd, 20000);
    ok(true, "longer");
    msync(p, 12288, MS_SYNC);
    munmap(p, 12288);
    munmap(q, 4096);
    close(fd);
    unlink("shared");
    unlink("source");
}

static void memory_files(void)
{
    int fd = memfd_create("mine", 0);
    ftruncate(fd, 8192);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(p, "in memory");
    char b[10];
    pread(fd, b, 10, 0);
    ok(!strcmp(b, "in memory"), "memfd");
    int zero = open("/dev/zero", O_RDWR);
    char *z = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    ok(z != MAP_FAILED && z[100] == 0 && (z[100] = 5) == 5, "/dev/zero");
    /* a sparse file mapped in part */
    int sparse = open("sparse", O_RDWR | O_CREAT, 0600);
    ftruncate(sparse, 1ll << 40);
    pwrite(sparse, "end", 3, (1ll << 40) - 4096);
    char *s = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, sparse, (1ll << 40) - 4096);
    ok(s != MAP_FAILED && !memcmp(s, "end", 3), "the end of a terabyte of holes");
    unlink("sparse");
}

int main(int argc, char **argv)
{
    private_maps();
    shared_maps();
    memory_files();
    return finish();
}
