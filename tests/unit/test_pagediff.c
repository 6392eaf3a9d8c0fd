/*
 * test_pagediff.c: pages written since a fork are found, in small and large heaps, with huge pages, in files
 * mapped privately, and by the kernel; pages that were only read are not.
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
#include <signal.h>
#include <sys/wait.h>

#include "engine/kernel/pagediff.h"

enum { PAGES_MAX = 1 << 18 };

static uint8_t *base;
static uint8_t marked[PAGES_MAX];
static uint64_t total;

static void mark(void *ctx, uint64_t addr, uint64_t len)
{
    assert_int_equal(addr % 4096, 0);
    assert_int_equal(len % 4096, 0);
    for (uint64_t i = 0; i < len; i += 4096, total++)
        marked[(addr + i - A(base)) / 4096] = 1;
}

static int other_side(void)
{
    int pid = fork();
    if (!pid)
        for (;;)
            pause();
    return pid;
}

static void use(uint8_t *p, uint64_t size)
{
    guest_space.count = 0;
    base = p;
    fake_map(p, size, PROT_READ | PROT_WRITE, false);
}

/* Runs `work` after a fork and collects what was changed. */
static void find(void (*work)(void))
{
    memset(marked, 0, sizeof marked);
    total = 0;
    int pid = other_side();
    work();
    assert_int_equal(pagediff_changed(&guest_space, mark, NULL), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static uint8_t *anonymous(uint64_t size)
{
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void write_some(void)
{
    base[5 * 4096] = 1;                         /* touched before */
    *(volatile uint8_t *)(base + 6 * 4096) = 7; /* written with what it held */
    base[100 * 4096 + 4095] = 2;                /* never touched before */
    *(volatile uint8_t *)(base + 50 * 4096);
}

static void small_heap(void **state)
{
    use(anonymous(200 * 4096), 200 * 4096);
    memset(base, 7, 20 * 4096);
    find(write_some);
    assert_true(marked[5] && marked[6] && marked[100]);
    assert_int_equal(total, 3);
}

static void write_nothing(void)
{
}

static void nothing(void **state)
{
    find(write_nothing);
    assert_int_equal(total, 0);
}

static void write_by_kernel(void)
{
    int fd = open("/dev/zero", O_RDONLY);
    assert_int_equal(read(fd, base + 3 * 4096 + 10, 9000), 9000);
    close(fd);
}

static void kernel_writes(void **state)
{
    find(write_by_kernel);
    assert_true(marked[3] && marked[4] && marked[5]);
    assert_int_equal(total, 3);
    munmap(base, 200 * 4096);
}

static void write_far_apart(void)
{
    base[0] = 1;
    base[(600ull << 20) + 1] = 1;
    base[(1ull << 30) - 1] = 1;
}

static void large_heap(void **state)
{
    use(anonymous(1ull << 30), 1ull << 30);
    memset(base, 3, 100 << 20);
    memset(base + (600ull << 20), 3, 10 << 20);
    find(write_far_apart);
    assert_true(marked[0] && marked[(600 << 20) / 4096] && marked[PAGES_MAX - 1]);
    assert_int_equal(total, 3);
    munmap(base, 1ull << 30);
}

static void write_in_huge(void)
{
    base[0] = 1;
    base[700 * 4096] = 1;
}

static void huge_pages(void **state)
{
    uint64_t size = 8 << 20;
    uint8_t *p = anonymous(2 * size);
    p = (uint8_t *)((A(p) + (2 << 20) - 1) & ~(uint64_t)((2 << 20) - 1));
    madvise(p, size, MADV_HUGEPAGE);
    use(p, size);
    memset(p, 1, size);
    find(write_in_huge);
    assert_true(marked[0] && marked[700]);
    assert_true(total <= 1024); /* not more than the two huge pages */
    /* a huge page made after the fork */
    madvise(p, size, MADV_DONTNEED);
    find(write_in_huge);
    assert_true(marked[0] && marked[700]);
}

static void write_in_file(void)
{
    base[4096] = 9;
    *(volatile uint8_t *)(base + 8192);
}

static void private_file(void **state)
{
    char name[] = "/tmp/pagediffXXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    assert_int_equal(ftruncate(fd, 16384), 0);
    uint8_t *p = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    use(p, 16384);
    *(volatile uint8_t *)(base + 8192);
    find(write_in_file);
    assert_true(marked[1]);
    assert_int_equal(total, 1);
    base[0] = 1; /* before the fork */
    find(write_nothing);
    assert_int_equal(total, 0);
    munmap(p, 16384);
    close(fd);
}

/* Read-only memory is looked at too: it may have been written and then protected. */
static void write_and_protect(void)
{
    base[4096] = 9;
    mprotect(base, 16384, PROT_READ);
}

static void protected_later(void **state)
{
    use(anonymous(16384), 16384);
    memset(base, 1, 16384);
    find(write_and_protect);
    assert_true(marked[1]);
    assert_int_equal(total, 1);
    munmap(base, 16384);
}

/* What the child of a vfork sees: it finds its own writes, and its parent's earlier ones stay shared. */
static void in_the_child(void **state)
{
    int status;
    use(anonymous(16384), 16384);
    memset(base, 1, 16384);
    int pid = fork();
    if (!pid) {
        memset(marked, 0, 4);
        total = 0;
        base[8192] = 4;
        pagediff_changed(&guest_space, mark, NULL);
        _exit(total == 1 && marked[2] ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    munmap(base, 16384);
}

/* A call without a row that fills shared memory. */
static void unknown_in_shared_memory(void **state)
{
    uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    guest_space.count = 0;
    fake_map(p, 8192, PROT_READ | PROT_WRITE, true);
    struct sys_call c = {.nr = SYS_getcwd, .args = {A(p + 4090), 100}};
    fake_task.effects.count = 0;
    sys_record_unknown(&fake_task, &c, "getcwd");
    assert_true(c.result > 0);
    uint64_t end = 0, start = ~0ull;
    for (uint32_t i = 0; i < fake_task.effects.count; i++) {
        const struct trace_effect *e = &fake_task.effects.v[i];
        start = e->addr < start ? e->addr : start;
        end = e->addr + e->len > end ? e->addr + e->len : end;
    }
    assert_true(start <= A(p + 4090) && end >= A(p + 4090) + (uint64_t)c.result - 1);
    munmap(p, 8192);
}

/* Nothing of the snapshot is left, its pipe ends included. */
static void unknown_leaves_nothing(void **state)
{
    int p[2];
    char c;
    assert_int_equal(pipe(p), 0);
    struct sys_call call = {.nr = SYS_close, .args = {A(p[1])}};
    sys_record_unknown(&fake_task, &call, "close");
    assert_int_equal(call.result, 0);
    assert_int_equal(read(p[0], &c, 1), 0);
    assert_int_equal(waitpid(-1, NULL, __WALL), -1);
    assert_int_equal(errno, ECHILD);
    close(p[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_heap),
        cmocka_unit_test(nothing),
        cmocka_unit_test(kernel_writes),
        cmocka_unit_test(large_heap),
        cmocka_unit_test(huge_pages),
        cmocka_unit_test(private_file),
        cmocka_unit_test(protected_later),
        cmocka_unit_test(in_the_child),
        cmocka_unit_test(unknown_in_shared_memory),
        cmocka_unit_test(unknown_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
