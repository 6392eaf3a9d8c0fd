/*
 * test_procview.c: the guest sees itself, not the engine, in /proc/self and its other names.
 */
// LINK: src/engine/kernel/table.c src/engine/kernel/prctl.c src/engine/kernel/mdwe.c src/engine/kernel/ioctl.c src/engine/kernel/files.c
// LINK: src/engine/kernel/generic.c src/engine/host/hostfd.c src/engine/host/hostfd_fast.c src/engine/kernel/pagediff.c
// LINK: src/engine/kernel/procview.c src/engine/kernel/procself.c src/engine/kernel/running.c src/engine/kernel/unknown.c src/engine/kernel/sharedcopy.c src/engine/kernel/limits.c
// LINK: src/engine/kernel/process_fast.c src/engine/kernel/effects_fast.c src/engine/kernel/files_fast.c src/engine/memory/objects.c
// LINK: src/engine/cpu/cpuid.c src/engine/cpu/features.c src/engine/cpu/xsave.c
#include <stddef.h>
#include <stdint.h>

#include "fake_engine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "engine/host/hostfd.h"
#include "engine/kernel/procview.h"
#include "engine/kernel/running.h"

static char *page; /* guest memory */
static char program[] = "/tmp/procviewXXXXXX";
static int hidden;

static int setup(void **state)
{
    struct space *s = &guest_space;
    page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 2 * 4096, 4096, PROT_NONE);
    fake_map(page, 2 * 4096, PROT_READ | PROT_WRITE, false);
    close(mkstemp(program));
    static struct ring_control control;
    engine.control = &control;
    engine.task = &fake_task;
    engine.trace_dir = -1;
    running_set(open(program, O_RDONLY));
    memcpy(page + 2000, "prog\0arg 1\0arg2", 16);
    memcpy(page + 2200, "HOME=/\0A=b", 11);
    s->arg_start = A(page + 2000), s->arg_end = A(page + 2016);
    s->env_start = A(page + 2200), s->env_end = A(page + 2211);
    memcpy(s->auxv, "0123456789abcdef", 16);
    s->auxv_size = 16;
    hidden = hostfd(hostfd_keep(open("/dev/null", O_RDONLY)));
    files_begin();
    return 0;
}

static int teardown(void **state)
{
    return unlink(program);
}

static const char *forms[7];

static void make_forms(const char *rest)
{
    static char text[7][128];
    int pid = getpid();
    snprintf(text[0], 128, "/proc/self/%s", rest);
    snprintf(text[1], 128, "/proc/%d/%s", pid, rest);
    snprintf(text[2], 128, "/proc/thread-self/%s", rest);
    snprintf(text[3], 128, "/proc/self/task/%d/%s", pid, rest);
    snprintf(text[4], 128, "/proc/%d/task/%d/%s", pid, pid, rest);
    snprintf(text[5], 128, "//proc/.//self///%s", rest);
    snprintf(text[6], 128, "/./proc/self/%s", rest);
    for (int i = 0; i < 7; i++)
        forms[i] = text[i];
}

static void link_to_program(void **state)
{
    size_t n = strlen(program);
    make_forms("exe");
    for (int i = 0; i < 7; i++) {
        memset(page, 'x', 64);
        assert_int_equal(CALL(readlink, A(forms[i]), A(page), 64), n);
        assert_memory_equal(page, program, n);
        assert_int_equal(page[n], 'x');
        assert_int_equal(fake_task.effects.count, 1);
        assert_int_equal(fake_task.effects.v[0].len, n);
        assert_int_equal(CALL(readlinkat, A(AT_FDCWD), A(forms[i]), A(page), 4), 4);
    }
    assert_int_equal(CALL(readlink, A("/proc/self/exe"), A(page), 0), -EINVAL);
    assert_int_equal(CALL(readlink, A("/proc/self/exe"), A(page), A(-1)), -EINVAL);
    assert_int_equal(CALL(readlink, A("/proc/self/exe"), A(page + 2 * 4096), 100), -EFAULT);
    assert_int_equal(CALL(readlink, 0, A(page), 100), -EFAULT);
    /* relative to a directory, and to the current one */
    int d = open("/proc/self", O_PATH | O_DIRECTORY);
    assert_int_equal(CALL(readlinkat, A(d), A("exe"), A(page), 64), n);
    assert_int_equal(CALL(readlinkat, A(d), A("./exe"), A(page), 64), n);
    fchdir(d);
    assert_int_equal(CALL(readlink, A("exe"), A(page), 64), n);
    chdir("/");
    assert_int_equal(CALL(readlink, A("proc/self/exe"), A(page), 64), n);
    chdir("/tmp");
    assert_int_equal(CALL(readlink, A("exe"), A(page), 64), -ENOENT);
    close(d);
    /* another process is not ours to dress up */
    char other[32];
    snprintf(other, sizeof other, "/proc/%d/exe", getppid());
    memset(page, 0, 256);
    if (CALL(readlink, A(other), A(page), 255) > 0)
        assert_string_not_equal(page, program);
}

static void program_itself(void **state)
{
    struct stat want, *got = (struct stat *)page;
    stat(program, &want);
    make_forms("exe");
    for (int i = 0; i < 7; i++) {
        assert_int_equal(CALL(stat, A(forms[i]), A(got)), 0);
        assert_int_equal(got->st_ino, want.st_ino);
        assert_int_equal(CALL(newfstatat, A(AT_FDCWD), A(forms[i]), A(got), 0), 0);
        assert_int_equal(got->st_ino, want.st_ino);
        assert_int_equal(CALL(lstat, A(forms[i]), A(got)), 0);
        assert_true(S_ISLNK(got->st_mode));
        assert_int_equal(CALL(newfstatat, A(AT_FDCWD), A(forms[i]), A(got), AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISLNK(got->st_mode));
        assert_int_equal(CALL(access, A(forms[i]), R_OK), 0);
        int fd = (int)CALL(openat, A(AT_FDCWD), A(forms[i]), O_RDONLY);
        assert_true(fd >= 0);
        fstat(fd, got);
        assert_int_equal(got->st_ino, want.st_ino);
        close(fd);
        assert_int_equal(readlink(procview_exe_path(AT_FDCWD, forms[i]), page, 64), strlen(program));
        assert_memory_equal(page, program, strlen(program));
    }
    assert_int_equal(CALL(open, A("/proc/self/exe"), O_RDONLY | O_NOFOLLOW), -ELOOP);
    assert_string_equal(procview_exe_path(AT_FDCWD, "/bin/ls"), "/bin/ls");
    assert_int_equal(CALL(faccessat, A(AT_FDCWD), A("/proc/self/exe"), R_OK), 0);
    assert_int_equal(CALL(faccessat2, A(AT_FDCWD), A("/proc/self/exe"), R_OK, 0), 0);
}

static ssize_t contents(const char *path, char *buffer, size_t size)
{
    int first = open("/dev/null", O_RDONLY); /* the number a new descriptor gets */
    close(first);
    int fd = (int)CALL(openat, A(AT_FDCWD), A(path), O_RDONLY | O_CLOEXEC);
    assert_int_equal(fd, first);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    ssize_t n = read(fd, buffer, size);
    close(fd);
    return n;
}

static void files(void **state)
{
    char buffer[4096];
    make_forms("cmdline");
    for (int i = 0; i < 7; i++) {
        assert_int_equal(contents(forms[i], buffer, sizeof buffer), 16);
        assert_memory_equal(buffer, "prog\0arg 1\0arg2", 16);
    }
    assert_int_equal(contents("/proc/self/environ", buffer, sizeof buffer), 11);
    assert_memory_equal(buffer, "HOME=/\0A=b", 11);
    assert_int_equal(contents("/proc/self/auxv", buffer, sizeof buffer), 16);
    assert_memory_equal(buffer, guest_space.auxv, 16);
    assert_true(contents("/proc/self/status", buffer, sizeof buffer) > 100);
    uint64_t how[3] = {O_RDONLY, 0, 0};
    int fd = (int)CALL(openat2, A(AT_FDCWD), A("/proc/self/cmdline"), A(how), 24);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, buffer, sizeof buffer), 16);
    close(fd);
    assert_int_equal(CALL(open, A("/proc/self/cmdline"), O_RDONLY | O_DIRECTORY), -ENOTDIR);
    assert_int_equal(CALL(open, A("/proc/self/nothing"), O_RDONLY), -ENOENT);
}

/* Lines look as the kernel's do: compare with its own for a mapping that both know. */
static void maps(void **state)
{
    char name[] = "/tmp/procview mapXXXXXX", *text = malloc(1 << 20), *kernel = malloc(1 << 20), want[64];
    int fd = mkstemp(name);
    struct stat st;
    ftruncate(fd, 3 * 4096);
    fstat(fd, &st);
    uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 8192);
    struct file_ref *ref = calloc(1, sizeof *ref + sizeof name);
    ref->dev = st.st_dev, ref->ino = st.st_ino;
    strcpy(ref->path, name);
    struct vma *v = fake_map(p, 4096, PROT_READ | PROT_EXEC, false);
    v->file = ref, v->offset = 8192;
    struct space *s = &guest_space;
    s->brk_start = 0x110000000000, s->brk = s->brk_start + 100;
    s->stack_low = 0x20fffff00000, s->stack_high = 0x210000000000;
    fake_map((void *)s->brk_start, 4096, PROT_READ | PROT_WRITE, false);
    fake_map((void *)s->stack_low, 0x100000, PROT_READ | PROT_WRITE, false)->growsdown = true;
    fake_map((void *)0x7f0000000000 - (1ull << 46), 4096, PROT_NONE, true);
    text[contents("/proc/self/maps", text, (1 << 20) - 1)] = 0;
    fd = open("/proc/self/maps", O_RDONLY);
    size_t used = 0;
    for (ssize_t n; (n = read(fd, kernel + used, 65536)) > 0;)
        used += (size_t)n;
    kernel[used] = 0;
    close(fd);
    snprintf(want, sizeof want, "%lx-", A(p));
    char *ours = strstr(text, want), *theirs = strstr(kernel, want);
    assert_non_null(ours);
    assert_non_null(theirs);
    *strchr(ours, '\n') = 0;
    *strchr(theirs, '\n') = 0;
    assert_string_equal(ours, theirs);
    ours[strlen(ours)] = '\n';
    assert_non_null(
        strstr(text, "110000000000-110000001000 rw-p 00000000 00:00 0                          [heap]\n"));
    assert_non_null(
        strstr(text, "20fffff00000-210000000000 rw-p 00000000 00:00 0                          [stack]\n"));
    assert_non_null(strstr(text, " ---s 00000000 00:00 0 \n"));
    assert_null(strstr(text, "test_procview"));
    unlink(name);
    free(text), free(kernel);
}

static void hidden_descriptors(void **state)
{
    char rest[32], target[64];
    struct stat *st = (struct stat *)page;
    snprintf(rest, sizeof rest, "fd/%d", hidden);
    make_forms(rest);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(CALL(readlink, A(forms[i]), A(target), 64), -ENOENT);
        assert_int_equal(CALL(open, A(forms[i]), O_RDONLY), -ENOENT);
        assert_int_equal(CALL(stat, A(forms[i]), A(st)), -ENOENT);
        assert_int_equal(CALL(lstat, A(forms[i]), A(st)), -ENOENT);
        assert_int_equal(CALL(newfstatat, A(AT_FDCWD), A(forms[i]), A(st), AT_SYMLINK_NOFOLLOW), -ENOENT);
        assert_int_equal(CALL(access, A(forms[i]), F_OK), -ENOENT);
    }
    snprintf(rest, sizeof rest, "fdinfo/%d", hidden);
    make_forms(rest);
    assert_int_equal(CALL(open, A(forms[0]), O_RDONLY), -ENOENT);
    int d = open("/proc/self/fd", O_RDONLY);
    snprintf(rest, sizeof rest, "%d", hidden);
    assert_int_equal(CALL(readlinkat, A(d), A(rest), A(target), 64), -ENOENT);
    assert_int_equal(CALL(openat, A(d), A(rest), O_RDONLY), -ENOENT);
    assert_true(CALL(readlinkat, A(d), A("0"), A(target), 64) > 0);
    snprintf(rest, sizeof rest, "/dev/fd/%d", hidden);
    assert_int_equal(CALL(open, A(rest), O_RDONLY), -ENOENT);
    close(d);
}

static void ordinary_paths(void **state)
{
    static const char *const quick[] = {"/etc/passwd", "/",    "",      "relative",
                                        "/dev/null",   "/pro", "/proc", "a/b/exec"};
    for (size_t i = 0; i < sizeof quick / sizeof quick[0]; i++) {
        struct sys_call c = {.args = {A(quick[i])}};
        assert_false(slow_path0(&c));
    }
    struct sys_call c = {.args = {A(page + 2 * 4096)}};
    assert_false(slow_path0(&c)); /* cannot be read: the kernel will say so */
    strcpy(page + 2 * 4096 - 5, "/etc");
    c.args[0] = A(page + 2 * 4096 - 5);
    assert_false(slow_path0(&c));
    strcpy(page + 2 * 4096 - 15, "/proc/self/exe");
    c.args[0] = A(page + 2 * 4096 - 15);
    assert_true(slow_path0(&c));
    memcpy(page + 2 * 4096 - 5, "/proc", 5); /* not terminated */
    c.args[0] = A(page + 2 * 4096 - 5);
    assert_int_equal(CALL(open, A(page + 2 * 4096 - 5), O_RDONLY), -EFAULT);
    assert_int_equal(CALL(open, A("/etc/nothing"), O_RDONLY), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_to_program),    cmocka_unit_test(program_itself), cmocka_unit_test(files),
        cmocka_unit_test(hidden_descriptors), cmocka_unit_test(ordinary_paths), cmocka_unit_test(maps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
