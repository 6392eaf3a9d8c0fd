/*
 * test_descriptors.c: descriptors of ours cannot be seen, used, closed or replaced through the guest's calls;
 * output is told from other files through duplicates; writes to mapped files become effects.
 */
// LINK: src/engine/kernel/table.c src/engine/kernel/prctl.c src/engine/kernel/mdwe.c src/engine/kernel/ioctl.c src/engine/kernel/files.c
// LINK: src/engine/kernel/generic.c src/engine/host/hostfd.c src/engine/host/hostfd_fast.c src/engine/kernel/pagediff.c
// LINK: src/engine/kernel/procview.c src/engine/kernel/procself.c src/engine/kernel/running.c src/engine/kernel/unknown.c src/engine/kernel/sharedcopy.c src/engine/kernel/limits.c
// LINK: src/engine/kernel/process_fast.c src/engine/kernel/effects_fast.c src/engine/kernel/files_fast.c src/engine/memory/objects.c
// LINK: src/engine/cpu/cpuid.c src/engine/cpu/features.c src/engine/cpu/xsave.c
#include <stddef.h>
#include <stdint.h>

#include "fake_engine.h"
#include "engine/memory/objects.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/host/hostfd.h"

static int fresh(void)
{
    int fd = open("/dev/null", O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int handle = -1;

static int hide_one(void **state)
{
    handle = hostfd_keep(fresh());
    return handle < 0 || hostfd(handle) < 0 ? -1 : 0;
}

static int close_it(void **state)
{
    hostfd_drop(handle);
    return hostfd(handle) == -1 ? 0 : -1;
}

static void lies_high(void **state)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    int fd = hostfd(handle);
    assert_true(hostfd_is(fd));
    assert_true(is_open(fd));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fd >= 500 && fd < 5000);
    assert_false(hostfd_is(0));
    assert_false(hostfd_is(-1));
    assert_int_equal(fresh(), 3); /* the number it had is free again */
    close(3);
}

static void above_the_limit(void **state)
{
    struct rlimit old, low;
    getrlimit(RLIMIT_NOFILE, &old);
    low = (struct rlimit){256, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    int h = hostfd_keep(fresh()), fd = hostfd(h);
    assert_true(fd >= 256);
    getrlimit(RLIMIT_NOFILE, &low);
    assert_int_equal(low.rlim_cur, 256); /* the guest does not see that it was raised */
    struct rlimit up = {1024, old.rlim_max};
    assert_int_equal(CALL(setrlimit, RLIMIT_NOFILE, A(&up)), 0);
    assert_true(hostfd(h) >= 1024); /* moved out of the larger range */
    assert_false(is_open(fd));
    low = (struct rlimit){64, old.rlim_max};
    assert_int_equal(CALL(prlimit64, 0, RLIMIT_NOFILE, A(&low), 0), 0);
    assert_true(is_open(hostfd(h)));
    hostfd_drop(h);
    setrlimit(RLIMIT_NOFILE, &old);
}

static void calls_say_ebadf(void **state)
{
    char buffer[256] = "x";
    int fd = hostfd(handle);
    assert_int_equal(CALL(close, A(fd)), -EBADF);
    assert_int_equal(CALL(close, 0xabc00000000 | A(fd)), -EBADF); /* the kernel looks at 32 bits */
    assert_int_equal(CALL(read, A(fd), A(buffer), 1), -EBADF);
    assert_int_equal(CALL(write, A(fd), A(buffer), 1), -EBADF);
    assert_int_equal(CALL(fstat, A(fd), A(buffer)), -EBADF);
    assert_int_equal(CALL(dup, A(fd)), -EBADF);
    assert_int_equal(CALL(dup2, A(fd), 100), -EBADF);
    assert_int_equal(CALL(dup2, A(fd), A(fd)), -EBADF);
    assert_int_equal(CALL(dup3, A(fd), 100, 0), -EBADF);
    assert_int_equal(CALL(fcntl, A(fd), F_GETFD), -EBADF);
    assert_int_equal(CALL(fcntl, A(fd), F_DUPFD, 5), -EBADF);
    assert_int_equal(CALL(ioctl, A(fd), 0x5401, A(buffer)), -EBADF);
    assert_int_equal(CALL(ioctl, A(fd), 0x12345678, A(buffer)), -EBADF);
    assert_int_equal(CALL(openat, A(fd), A("x"), 0), -EBADF);
    assert_int_equal(CALL(mmap, 0, 4096, PROT_READ, MAP_PRIVATE, A(fd), 0), -EBADF);
    assert_int_equal(CALL(fchdir, A(fd)), -EBADF);
    int ep = epoll_create1(0);
    assert_int_equal(CALL(epoll_ctl, A(ep), 1, A(fd), A(buffer)), -EBADF);
    close(ep);
    assert_true(is_open(fd));
}

/* Makes fd a number that the guest may have. */
static void allow(int fd)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur <= (rlim_t)fd)
        r.rlim_cur = (rlim_t)fd + 100;
    setrlimit(RLIMIT_NOFILE, &r);
}

static void moves_away(void **state)
{
    int fd = hostfd(handle);
    struct stat st;
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    if (old.rlim_cur <= (rlim_t)fd) { /* above the limit: a number that the guest cannot have */
        assert_int_equal(CALL(dup2, 0, A(fd)), -EBADF);
        assert_true(is_open(hostfd(handle)));
        fd = hostfd(handle);
    }
    allow(fd);
    assert_int_equal(CALL(dup2, 500, A(fd)), -EBADF); /* fails: ours need not move */
    assert_int_equal(hostfd(handle), fd);
    int p[2];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(CALL(dup2, A(p[0]), A(fd)), fd);
    assert_int_not_equal(hostfd(handle), fd);
    assert_false(hostfd_is(fd));
    fstat(fd, &st);
    assert_true(S_ISFIFO(st.st_mode));
    fstat(hostfd(handle), &st);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(CALL(close, A(fd)), 0);
    fd = hostfd(handle);
    allow(fd);
    assert_int_equal(CALL(dup3, A(p[0]), A(fd), O_CLOEXEC), fd);
    assert_int_not_equal(hostfd(handle), fd);
    close(fd), close(p[0]), close(p[1]);
    setrlimit(RLIMIT_NOFILE, &old);
}

static void survives_close_range(void **state)
{
    int fd = hostfd(handle);
    for (int i = 20; i < 30; i++)
        dup2(1, i);
    dup2(1, fd - 1);
    dup2(1, fd + 1);
    assert_int_equal(CALL(close_range, 20, 25, 0), 0);
    assert_false(is_open(25));
    assert_true(is_open(26));
    assert_int_equal(CALL(close_range, 26, A(~0u), 4), 0); /* CLOSE_RANGE_CLOEXEC */
    assert_true(is_open(26) && (fcntl(26, F_GETFD) & FD_CLOEXEC));
    assert_int_equal(CALL(close_range, A(fd), A(fd), 0), 0);
    assert_int_equal(CALL(close_range, 20, A(~0u), 0), 0);
    assert_false(is_open(fd - 1));
    assert_false(is_open(fd + 1));
    assert_false(is_open(26));
    assert_true(is_open(fd));
    assert_int_equal(CALL(close_range, 5, 4, 0), -EINVAL);
    assert_int_equal(CALL(close_range, 20, 21, 64), -EINVAL);
}

static void waiting(void **state)
{
    int fd = hostfd(handle);
    struct pollfd *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fake_map(p, 4096, PROT_READ | PROT_WRITE, false);
    p[0] = (struct pollfd){fd, POLLIN, 0};
    p[1] = (struct pollfd){-1, POLLIN, 7};
    assert_int_equal(CALL(poll, A(p), 2, 0), 1);
    assert_int_equal(p[0].revents, POLLNVAL);
    assert_int_equal(p[0].fd, fd);
    assert_int_equal(p[1].revents, 0);
    assert_int_equal(fake_task.effects.count, 1);
    assert_int_equal(fake_task.effects.v[0].len, 16);
    struct timespec *ts = (struct timespec *)(p + 4);
    *ts = (struct timespec){0, 0};
    assert_int_equal(CALL(ppoll, A(p), 2, A(ts), 0, 8), 1);
    uint8_t set[1024] = {0};
    if (fd < 8192) {
        set[fd / 8] |= (uint8_t)(1 << fd % 8);
        assert_int_equal(CALL(select, A(fd + 1), A(set), 0, 0, A(ts)), -EBADF);
        assert_int_equal(CALL(pselect6, A(fd + 1), 0, A(set), 0, A(ts), 0), -EBADF);
    }
    guest_space.count = 0;
    munmap(p, 4096);
}

static bool listed(int directory, uint32_t nr, size_t room, int number)
{
    char buffer[4096], name[16];
    int64_t n;
    bool found = false;
    snprintf(name, sizeof name, "%d", number);
    lseek(directory, 0, SEEK_SET);
    while ((n = fake_call6(nr, (uint64_t[6]){A(directory), A(buffer), room})) > 0)
        for (int64_t at = 0; at < n; at += *(uint16_t *)(buffer + at + 16))
            found |= !strcmp(buffer + at + (nr == SYS_getdents64 ? 19 : 18), name);
    assert_int_equal(n, 0);
    return found;
}

static void listings(void **state)
{
    static const char *const names[] = {"/proc/self/fd", "/proc/self/fdinfo", "/proc/thread-self/fd"};
    int fd = hostfd(handle);
    for (int i = 0; i < 3; i++) {
        int d = open(names[i], O_RDONLY | O_DIRECTORY);
        for (int room = 32; room <= 4096; room *= 2) { /* 32: one entry at a time */
            assert_false(listed(d, SYS_getdents64, (size_t)room, fd));
            assert_true(listed(d, SYS_getdents64, (size_t)room, d));
            assert_false(listed(d, SYS_getdents, (size_t)room, fd));
            assert_true(listed(d, SYS_getdents, (size_t)room, 1));
        }
        close(d);
    }
    char name[] = "/tmp/descriptorsXXXXXX", file[64];
    assert_non_null(mkdtemp(name));
    snprintf(file, sizeof file, "%s/%d", name, fd);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    int d = open(name, O_RDONLY | O_DIRECTORY); /* not /proc: the same name is an ordinary one */
    assert_true(listed(d, SYS_getdents64, 4096, fd));
    close(d);
    unlink(file);
    rmdir(name);
}

static void many(void **state)
{
    int handles[HOSTFD_MAX], list[HOSTFD_MAX], n = 0;
    while (n < HOSTFD_MAX && (handles[n] = hostfd_keep(fresh())) >= 0)
        n++;
    assert_int_equal(n, HOSTFD_MAX - 1);
    int fd = 3;
    close(fd); /* the one that found no place */
    assert_int_equal(hostfd_list(list), HOSTFD_MAX);
    for (int i = 1; i < HOSTFD_MAX; i++)
        assert_true(list[i - 1] < list[i]);
    for (int i = 0; i < n; i++) {
        fd = hostfd(handles[i]);
        hostfd_drop(handles[i]);
        assert_false(is_open(fd));
        assert_false(hostfd_is(fd));
    }
}

/* ---- output ---- */

static unsigned output_of(int fd)
{
    struct sys_call c = {.nr = SYS_write, .args = {A(fd)}, .result = 1};
    return sys_output_flags(&c);
}

static void outputs(void **state)
{
    files_begin();
    assert_int_equal(output_of(0), 0);
    assert_int_equal(output_of(1), EVF_OUTPUT);
    assert_int_equal(output_of(2), EVF_OUTERR);
    int a = (int)CALL(dup, 1);
    assert_int_equal(output_of(a), EVF_OUTPUT);
    int b = (int)CALL(fcntl, A(a), F_DUPFD_CLOEXEC, 40);
    assert_int_equal(output_of(b), EVF_OUTPUT);
    assert_int_equal(CALL(dup2, 2, A(a)), a);
    assert_int_equal(output_of(a), EVF_OUTERR);
    assert_int_equal(CALL(dup2, A(a), A(a)), a);
    assert_int_equal(output_of(a), EVF_OUTERR);
    assert_int_equal(CALL(dup2, 0, A(a)), a);
    assert_int_equal(output_of(a), 0);
    assert_int_equal(CALL(dup3, A(b), 60, O_CLOEXEC), 60);
    assert_int_equal(CALL(close, A(b)), 0);
    assert_int_equal(output_of(b), 0);
    int c = (int)CALL(openat, A(AT_FDCWD), A("/dev/null"), O_WRONLY);
    assert_int_equal(output_of(c), 0);
    close(c);
    c = (int)CALL(open, A("/proc/self/fd/60"), O_WRONLY);
    if (c >= 0) /* not for a socket */
        assert_int_equal(output_of(c), EVF_OUTPUT);
    if (c >= 0)
        CALL(close, A(c));
    c = (int)CALL(openat, A(AT_FDCWD), A("/dev/stderr"), O_WRONLY | O_APPEND, 0);
    if (c >= 0)
        assert_int_equal(output_of(c), EVF_OUTERR);
    if (c >= 0)
        CALL(close, A(c));
    files_exec();
    assert_int_equal(output_of(60), 0);
    assert_int_equal(output_of(1), EVF_OUTPUT);
    files_begin();
    close(60);
    close(a);
    dup2(1, 70);
    files_same(70, 1);
    assert_int_equal(CALL(close_range, 65, 80, 0), 0);
    assert_int_equal(output_of(70), 0);
}

/* Descriptors that `clio record` was started with may be its output too. */
static void inherited_outputs(void **state)
{
    dup2(1, 20);
    dup2(2, 21);
    dup2(fresh(), 22);
    files_begin();
    assert_int_equal(output_of(20), EVF_OUTPUT);
    assert_int_not_equal(output_of(21), 0); /* stderr may be stdout */
    assert_int_equal(output_of(22), 0);
    close(20), close(21), close(22), close(3);
    files_begin();
}

static void bytes_that_are_never_in_memory(void **state)
{
    int p[2], q[2], fd = open("/etc/passwd", O_RDONLY);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(pipe(q), 0);
    assert_true(CALL(sendfile, A(p[1]), A(fd), 0, 5) == 5);
    files_same(p[1], 1);
    assert_int_equal(CALL(sendfile, A(p[1]), A(fd), 0, 5), -EINVAL);
    assert_int_equal(CALL(copy_file_range, A(fd), 0, A(p[1]), 0, 5, 0), -EINVAL);
    assert_int_equal(CALL(splice, A(fd), 0, A(p[1]), 0, 5, 0), -EINVAL);
    assert_int_equal(CALL(tee, A(p[0]), A(p[1]), 5, 0), -EINVAL);
    assert_true(CALL(splice, A(p[0]), 0, A(q[1]), 0, 5, 0) == 5);
    files_same(p[1], -1);
    close(fd);
    for (int i = 0; i < 2; i++)
        close(p[i]), close(q[i]);
}

/* Limits on memory are told back as set and do not reach the kernel. */
static void limits(void **state)
{
    struct rlimit *r = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), real;
    fake_map(r, 4096, PROT_READ | PROT_WRITE, false);
    r[0] = (struct rlimit){1000, 2000};
    assert_int_equal(CALL(setrlimit, RLIMIT_AS, A(r)), 0);
    getrlimit(RLIMIT_AS, &real);
    assert_true(real.rlim_cur > 1000);
    assert_int_equal(CALL(getrlimit, RLIMIT_AS, A(r + 1)), 0);
    assert_int_equal(fake_task.effects.v[0].len, 16);
    assert_int_equal(r[1].rlim_cur, 1000);
    assert_int_equal(r[1].rlim_max, 2000);
    r[0].rlim_cur = 500;
    assert_int_equal(CALL(prlimit64, 0, RLIMIT_AS, A(r), A(r + 2)), 0);
    assert_int_equal(r[2].rlim_cur, 1000);
    assert_int_equal(CALL(prlimit64, A(getpid()), RLIMIT_AS, 0, A(r + 2)), 0);
    assert_int_equal(r[2].rlim_cur, 500);
    r[0].rlim_cur = 5000;
    assert_int_equal(CALL(setrlimit, RLIMIT_AS, A(r)), -EINVAL);
    assert_int_equal(CALL(setrlimit, RLIMIT_AS, 0), -EFAULT);
    assert_int_equal(CALL(setrlimit, RLIMIT_AS, 8), -EFAULT);
    assert_int_equal(CALL(getrlimit, RLIMIT_AS, 8), -EFAULT);
    assert_int_equal(CALL(getrlimit, RLIMIT_DATA, A(r + 1)), 0);
    assert_int_equal(r[1].rlim_max, RLIM_INFINITY);
    munmap(r, 4096);
    guest_space.count = 0;
    fake_notes[0] = 0;
}

/* ---- mapped files ---- */

static bool covers(uint64_t addr, uint64_t len)
{
    for (uint32_t i = 0; i < fake_task.effects.count; i++) {
        const struct trace_effect *e = &fake_task.effects.v[i];
        while (len && e->addr <= addr && addr < e->addr + e->len)
            addr++, len--;
    }
    return !len;
}

static void writes_to_mapped_files(void **state)
{
    char name[] = "/tmp/descriptorsXXXXXX";
    struct stat st;
    int fd = mkstemp(name), other = fresh();
    unlink(name);
    assert_int_equal(ftruncate(fd, 3 * 4096), 0);
    uint8_t *p = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    fstat(fd, &st);
    struct file_ref *ref = calloc(1, sizeof *ref + 1);
    ref->dev = st.st_dev;
    ref->ino = st.st_ino;
    struct vma *v = fake_map(p, 2 * 4096, PROT_READ | PROT_WRITE, true);
    v->file = ref;
    v->offset = 4096;
    v->object = 1;
    objects[1] = (struct object){st.st_dev, st.st_ino, 3 * 4096, false};
    assert_int_equal(CALL(pwrite64, A(fd), A("abcdef"), 6, 4093), 6); /* three before, three inside */
    assert_true(covers(A(p), 3));
    assert_int_equal(p[2], 'f');
    lseek(fd, 8190, SEEK_SET);
    assert_int_equal(CALL(write, A(fd), A("abcdef"), 6), 6);
    assert_true(covers(A(p) + 4094, 6));
    assert_int_equal(CALL(pwrite64, A(fd), A("abcdef"), 6, 10), 6);
    assert_int_equal(fake_task.effects.count, 0);
    assert_int_equal(CALL(write, A(other), A("abcdef"), 6), 6);
    assert_int_equal(fake_task.effects.count, 0);
    assert_int_equal(fake_resized, 0);
    assert_int_equal(CALL(pwrite64, A(fd), A("abcdef"), 6, 3 * 4096), 6);
    assert_int_equal(fake_resized, 3 * 4096 + 6);
    assert_int_equal(fake_task.effects.count, 0);
    assert_int_equal(CALL(ftruncate, A(fd), 4096 + 100), 0); /* the second page is gone: SIGBUS */
    assert_true(covers(A(p) + 100, 3996));
    assert_int_equal(fake_resized, 4096 + 100);
    assert_int_equal(objects[1].size, 4096 + 100);
    assert_false(covers(A(p) + 4096, 1));
    /* a descriptor that was something else before is looked at again */
    close(other);
    CALL(close, A(other));
    CALL(write, 999, 0, 0);
    assert_int_equal(CALL(dup2, A(fd), A(other)), other);
    assert_int_equal(CALL(pwrite64, A(other), A("xyz"), 3, 4096), 3);
    assert_true(covers(A(p), 3));
    munmap(p, 2 * 4096);
    guest_space.count = 0;
    free(ref);
    close(fd), close(other);
}

int main(void)
{
    for (int fd = 3; fd < 100; fd++)
        close(fd);
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, hide_one, close_it)
        T(lies_high),
        T(above_the_limit),
        T(calls_say_ebadf),
        T(moves_away),
        T(survives_close_range),
        T(waiting),
        T(listings),
        T(many),
        T(outputs),
        T(inherited_outputs),
        cmocka_unit_test(limits),
        cmocka_unit_test(bytes_that_are_never_in_memory),
        cmocka_unit_test(writes_to_mapped_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
