/*
 * test_memory.c: the memory system calls against the kernel: one child performs random calls itself, another
 * lets kernel/memory.c perform them; results, mappings and content must agree after every call. The second
 * child then replays its recorded events and must get the same memory again.
 */
// LINK: src/engine/kernel/memory.c src/engine/kernel/shm.c src/engine/kernel/mdwe.c src/engine/memory/space.c src/engine/memory/capture.c src/engine/load/slots.c
// LINK: src/engine/load/personality.c src/engine/load/elf.c src/engine/memory/change.c src/engine/memory/objects.c src/engine/memory/replica.c
#include "engine_fakes.h"

#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "engine/kernel/memory.h"
#include "engine/memory/space.h"

enum { PAGES = 40, STEPS = 1500, FILE_PAGES = 24, FILE_SIZE = FILE_PAGES * 4096 + 100 };
#define BASE 0x200000000000ull

/* ---- the two ways to perform a call ---- */

static int64_t native(uint32_t nr, const uint64_t a[6])
{
    return raw6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static const struct {
    uint32_t nr;
    sys_record_fn *fn;
} recorded_calls[] = {
    {SYS_mmap, rec_mmap},         {SYS_munmap, rec_munmap},
    {SYS_mprotect, rec_mprotect}, {SYS_mremap, rec_mremap},
    {SYS_brk, rec_brk},           {SYS_madvise, rec_madvise},
    {SYS_msync, rec_msync},       {SYS_pkey_mprotect, rec_pkey_mprotect},
    {SYS_mlock, rec_mlock},       {SYS_shmat, rec_shmat},
    {SYS_shmdt, rec_shmdt},       {SYS_mincore, rec_mincore},
    {SYS_shmctl, rec_shmctl},
};

static int64_t recorded(uint32_t nr, const uint64_t a[6])
{
    struct sys_call c = {.nr = nr, .args = {a[0], a[1], a[2], a[3], a[4], a[5]}};
    for (size_t i = 0; i < sizeof recorded_calls / sizeof *recorded_calls; i++)
        if (recorded_calls[i].nr == nr)
            return recorded_calls[i].fn(&fake_task, &c);
    abort();
}

static int64_t rec6(uint32_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    return recorded(nr, (uint64_t[6]){a, b, c, d, e, f});
}

/* ---- random calls ---- */

static uint64_t seed;
static uint32_t roll(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

/* Descriptors, at the same numbers in both children. */
enum { FD_READ = 200, FD_WRITE, FD_WRITE_ONLY, FD_DIRECTORY, FD_NULL, FD_CLOSED };

struct step {
    uint32_t nr; /* 0: a store of args[1] bytes at args[0] */
    uint64_t args[6];
};

static uint64_t any_address(void)
{
    return BASE + roll(PAGES) * PAGE_SIZE + (roll(30) ? 0 : roll(4096));
}

static uint64_t any_length(void)
{
    static const uint64_t odd[] = {0, 1, 4095, 4097, UINT64_MAX, UINT64_MAX - 4095, 1ull << 63, 1ull << 47};
    return roll(20) ? (1 + roll(9)) * PAGE_SIZE : odd[roll(8)];
}

static uint32_t any_prot(void)
{
    return roll(30) ? roll(8) : roll(2) ? 0x10 : PROT_GROWSDOWN | PROT_READ;
}

static void roll_mmap(struct step *s, bool writable_files)
{
    static const int flags[] = {MAP_PRIVATE,
                                MAP_SHARED,
                                MAP_PRIVATE | MAP_ANONYMOUS,
                                MAP_SHARED | MAP_ANONYMOUS,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE,
                                MAP_SHARED_VALIDATE,
                                MAP_SHARED_VALIDATE | MAP_ANONYMOUS,
                                MAP_ANONYMOUS,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN,
                                MAP_PRIVATE | MAP_GROWSDOWN};
    static const int fds[] = {FD_READ,      FD_READ, FD_READ, FD_WRITE,  FD_WRITE_ONLY,
                              FD_DIRECTORY, FD_NULL, FD_NULL, FD_CLOSED, -1};
    static const int places[] = {MAP_FIXED, MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE, 0};
    int type = flags[roll(roll(5) ? 5 : 10)], place = places[roll(5)];
    int fd = fds[roll(roll(4) ? 3 : 10)];
    uint32_t prot = any_prot();
    if (fd == FD_WRITE && !writable_files)
        fd = FD_READ;
    uint64_t len = any_length();
    if (!place && len > 1ull << 40)
        len = PAGE_SIZE;
    *s = (struct step){SYS_mmap,
                       {any_address(), len, prot, (uint64_t)(type | place), (uint64_t)fd,
                        roll(40) ? roll(FILE_PAGES) * PAGE_SIZE : 1234}};
}

static void roll_mremap(struct step *s, bool aliases)
{
    static const uint64_t flags[] = {0,
                                     MREMAP_MAYMOVE,
                                     MREMAP_MAYMOVE | MREMAP_FIXED,
                                     MREMAP_MAYMOVE | MREMAP_FIXED,
                                     MREMAP_FIXED,
                                     8,
                                     MREMAP_MAYMOVE | MREMAP_DONTUNMAP};
    uint64_t old_len = roll(12) || !aliases ? (1 + roll(5)) * PAGE_SIZE : 0;
    uint64_t len = roll(3) ? old_len : any_length();
    if (len > 1ull << 40)
        len = roll(2) ? 0 : PAGE_SIZE;
    *s = (struct step){SYS_mremap, {any_address(), old_len, len, flags[roll(6)], any_address()}};
    if ((s->args[3] & MREMAP_FIXED) && old_len == len) /* Linux 6.17 began to move several mappings at once */
        s->args[1] = s->args[2] = PAGE_SIZE;
}

static void roll_madvise(struct step *s)
{
    static const int advice[] = {MADV_DONTNEED, MADV_DONTNEED,   MADV_DONTNEED,   MADV_WILLNEED, MADV_NORMAL,
                                 1000,          MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTFORK, MADV_DOFORK};
    uint64_t len = any_length();
    if (len >= 1ull << 40 && len <= 1ull << 63) /* would reach the performer's own stack */
        len = 0;
    *s = (struct step){SYS_madvise, {any_address(), len, (uint64_t)advice[roll(10)]}};
}

static struct step roll_step(bool writable_files)
{
    struct step s;
    switch (roll(12)) {
    default:
        roll_mmap(&s, writable_files);
        break;
    case 4:
        s = (struct step){SYS_munmap, {any_address(), any_length()}};
        break;
    case 5:
    case 6:
        s = (struct step){roll(9) ? SYS_mprotect : SYS_pkey_mprotect,
                          {any_address(), any_length(), any_prot(), (uint64_t)(roll(4) ? -1 : 5)}};
        break;
    case 7:
    case 8:
        roll_mremap(&s, writable_files);
        break;
    case 9:
        roll_madvise(&s);
        break;
    case 10:
    case 11:
        s = (struct step){0, {BASE + roll(PAGES) * PAGE_SIZE, roll(256)}};
        break;
    }
    return s;
}

/* ---- what is compared ---- */

struct observation {
    struct step step;
    int64_t result;
    char maps[PAGES][4];  /* as in /proc/self/maps, without x */
    int32_t bytes[PAGES]; /* first bytes, or -1 */
};

static void observe_maps(struct observation *o)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char prot[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, prot) != 3 || end <= BASE ||
            start >= BASE + PAGES * PAGE_SIZE)
            continue;
        for (int i = 0; i < PAGES; i++)
            if (start <= BASE + (uint64_t)i * PAGE_SIZE && BASE + (uint64_t)i * PAGE_SIZE < end) {
                o->maps[i][0] =
                    prot[0] == 'r' || prot[2] == 'x' ? 'r' : '-'; /* executable is readable here */
                o->maps[i][1] = prot[1];
                o->maps[i][2] = prot[3];
            }
    }
    fclose(maps);
}

static void observe_bytes(int32_t *bytes)
{
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < PAGES; i++) {
        uint8_t b;
        bytes[i] = pread(mem, &b, 1, (off_t)(BASE + (uint64_t)i * PAGE_SIZE)) == 1 ? b : -1;
    }
    close(mem);
}

static int64_t store(uint64_t addr, uint64_t value)
{
    uint8_t byte = (uint8_t)value;
    return pipe_copy((void *)addr, &byte, 1) == 1 ? 1 : -EFAULT;
}

static void open_files(void)
{
    int fd = memfd_create("content", 0);
    for (int i = 0; i < FILE_PAGES; i++) {
        uint8_t b = (uint8_t)(100 + i);
        pwrite(fd, &b, 1, i * 4096);
    }
    ftruncate(fd, FILE_SIZE);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    dup2(open(path, O_RDONLY), FD_READ);
    dup2(fd, FD_WRITE);
    dup2(open(path, O_WRONLY), FD_WRITE_ONLY);
    dup2(open("/", O_RDONLY | O_DIRECTORY), FD_DIRECTORY);
    dup2(open("/dev/null", O_RDWR), FD_NULL);
}

/*
 * A mapping that went where the performer chose is taken away again; only that it succeeded is compared.
 * Calls the kernel performs on several mappings at once where it has one more or less than the other child
 * (it never merges what it once touched apart) may answer EFAULT in mremap: both children have the same
 * history, so they agree.
 */
static int64_t settle(const struct step *s, int64_t result, int64_t (*call)(uint32_t, const uint64_t *))
{
    bool placed = s->nr == SYS_mmap
                      ? !(s->args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE))
                      : s->nr == SYS_mremap && !(s->args[3] & MREMAP_FIXED) && (uint64_t)result != s->args[0];
    if (!placed || result < 0)
        return result;
    uint64_t len = PAGE_UP(s->args[s->nr == SYS_mmap ? 1 : 2]);
    if (s->nr == SYS_mmap && (uint64_t)result >= BASE && (uint64_t)result < BASE + PAGES * PAGE_SIZE)
        return result; /* a free hint */
    return call(SYS_munmap, (uint64_t[6]){(uint64_t)result, len}) ? -1000 : 1000;
}

static void perform(struct observation *o, int64_t (*call)(uint32_t, const uint64_t *))
{
    const struct step *s = &o->step;
    o->result = s->nr ? settle(s, call(s->nr, s->args), call) : store(s->args[0], s->args[1]);
    observe_maps(o);
    observe_bytes(o->bytes);
}

/* ---- the recording child replays ---- */

static uint32_t maps_until[STEPS], effects_until[STEPS];

static int replay(const struct observation *o, int steps)
{
    space_clear(&guest_space);
    engine.mode = ENGINE_REPLAY;
    uint32_t map = 0, effect = 0;
    for (int i = 0; i < steps; i++) {
        for (; map < maps_until[i]; map++) {
            const struct trace_map *m = &fake_maps[map].map;
            int error = space_apply(&guest_space, m, fake_maps[map].path,
                                    m->op == MAP_OP_FILE ? fake_file(m->file) : -1);
            if (error) {
                print_message("map operation %u: %s\n", m->op, strerror(-error));
                return i + 1;
            }
        }
        for (; effect < effects_until[i]; effect++)
            fake_apply_effect(&fake_effects[effect]);
        if (!o[i].step.nr)
            store(o[i].step.args[0], o[i].step.args[1]);
        int32_t bytes[PAGES];
        observe_bytes(bytes);
        if (memcmp(bytes, o[i].bytes, sizeof bytes)) {
            for (int p = 0; p < PAGES; p++)
                if (bytes[p] != o[i].bytes[p])
                    print_message("page %d: recorded %d, replayed %d\n", p, o[i].bytes[p], bytes[p]);
            return i + 1;
        }
    }
    return 0;
}

static void commit_step(int i)
{
    for (uint32_t e = i ? effects_until[i - 1] : 0; e < fake_neffects; e++) {
        fake_effects[e].bytes = malloc(fake_effects[e].len);
        guest_read(fake_effects[e].bytes, fake_effects[e].addr, fake_effects[e].len);
    }
    maps_until[i] = fake_nmaps;
    effects_until[i] = fake_neffects;
}

static int start_store(void)
{
    int pair[2];
    pthread_t thread;
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    engine.store = hostfd_keep(pair[0]);
    return pthread_create(&thread, NULL, fake_store, (void *)(intptr_t)pair[1]);
}

/* The child's work; the step in which replay differed, or 0. */
static int child(struct observation *o, bool record, bool check_replay)
{
    open_files();
    if (record && start_store())
        return 999;
    int exact = STEPS; /* until a note says that replay will differ */
    for (int i = 0; i < STEPS; i++) {
        perform(&o[i], record ? recorded : native);
        if (record)
            commit_step(i);
        if (fake_notes && exact == STEPS)
            exact = i;
    }
    return record && check_replay ? replay(o, exact) : 0;
}

static int run_child(struct observation *o, bool record, bool check_replay)
{
    pid_t pid = fork();
    if (pid == 0) {
        int *verdict = (int *)&o[STEPS];
        *verdict = child(o, record, check_replay);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    return *(int *)&o[STEPS];
}

static void describe(const struct observation *a, const struct observation *b, int i)
{
    const uint64_t *v = a->step.args;
    print_message("step %d: call %u (0x%lx, 0x%lx, 0x%lx, 0x%lx, %ld, 0x%lx): kernel %ld, recorder %ld\n", i,
                  a->step.nr, v[0], v[1], v[2], v[3], (long)v[4], v[5], a->result, b->result);
    for (int p = 0; p < PAGES; p++)
        if (memcmp(a->maps[p], b->maps[p], 4) || a->bytes[p] != b->bytes[p])
            print_message("page %d: kernel %s %d, recorder %s %d\n", p, a->maps[p], a->bytes[p], b->maps[p],
                          b->bytes[p]);
}

/*
 * mremap wants one mapping. Which neighbours are one depends on their past protection, and pages that the
 * kernel child has executable are not so in the other: an EFAULT of one only ends the comparison.
 */
static bool host_merges(const struct observation *a, const struct observation *b)
{
    return a->step.nr == SYS_mremap && (a->result == -EFAULT) != (b->result == -EFAULT);
}

static void compare(bool writable_files, uint64_t start_seed)
{
    size_t size = (STEPS + 1) * sizeof(struct observation);
    struct observation *o[2];
    for (int i = 0; i < 2; i++)
        o[i] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seed = start_seed;
    for (int i = 0; i < STEPS; i++)
        o[0][i].step = o[1][i].step = roll_step(writable_files);
    run_child(o[0], false, false);
    int diverged = run_child(o[1], true, true);
    int done = 0, compared = 0;
    for (; compared < STEPS; compared++) {
        int i = compared;
        if (host_merges(&o[0][i], &o[1][i]))
            break;
        if (memcmp(&o[0][i], &o[1][i], sizeof o[0][i])) {
            describe(&o[0][i], &o[1][i], i);
            fail_msg("seed %lu: the recorder differs from the kernel at step %d", start_seed, i);
        }
        done += o[0][i].result >= 0;
    }
    if (diverged) {
        describe(&o[0][diverged - 1], &o[1][diverged - 1], diverged - 1);
        fail_msg("seed %lu: replay differs at step %d", start_seed, diverged - 1);
    }
    assert_true(done > compared / 4);
    for (int i = 0; i < 2; i++)
        munmap(o[i], size);
}

static void test_against_kernel(void **state)
{
    for (uint64_t s = 1; s <= 8; s++)
        compare(false, s);
}

static void test_shared_against_kernel(void **state)
{
    for (uint64_t s = 101; s <= 108; s++)
        compare(true, s);
}

/* ---- what the kernel cannot be asked about ---- */

static int clear(void **state)
{
    space_clear(&guest_space);
    return fake_event_begin(state);
}

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void test_host_is_out_of_reach(void **state)
{
    void *host = mmap((void *)HOST_LOW, PAGE_SIZE, PROT_READ | PROT_WRITE, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(host, (void *)HOST_LOW);
    *(char *)host = 7;
    assert_int_equal(rec6(SYS_mmap, HOST_LOW, PAGE_SIZE, PROT_READ, ANON | MAP_FIXED, -1, 0), -ENOMEM);
    assert_non_null(strstr(fake_note, "0x60000000"));
    assert_int_equal(rec6(SYS_mmap, HOST_LOW - PAGE_SIZE, 2 * PAGE_SIZE, PROT_READ, ANON | MAP_FIXED, -1, 0),
                     -ENOMEM);
    assert_int_equal(rec6(SYS_mmap, TABLES_LOW, PAGE_SIZE, PROT_READ, ANON | MAP_FIXED, -1, 0), -ENOMEM);
    assert_int_equal(rec6(SYS_mmap, 0, PAGE_SIZE, PROT_READ, ANON | MAP_FIXED, -1, 0), -EPERM);
    assert_int_equal(rec6(SYS_munmap, HOST_LOW, PAGE_SIZE, 0, 0, 0, 0), 0);
    assert_int_equal(rec6(SYS_munmap, 0, (1ull << 47) - PAGE_SIZE, 0, 0, 0, 0), 0);
    assert_int_equal(rec6(SYS_mprotect, HOST_LOW, PAGE_SIZE, PROT_NONE, 0, 0, 0), -ENOMEM);
    assert_int_equal(rec6(SYS_madvise, HOST_LOW, PAGE_SIZE, MADV_DONTNEED, 0, 0, 0), -ENOMEM);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)&host & ~4095ull, PAGE_SIZE, MADV_DONTNEED, 0, 0, 0),
                     -ENOMEM);
    assert_int_equal(rec6(SYS_mremap, HOST_LOW, PAGE_SIZE, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE, 0),
                     -EFAULT);
    assert_int_equal(rec6(SYS_mlock, HOST_LOW, PAGE_SIZE, 0, 0, 0, 0), -ENOMEM);
    int64_t at = rec6(SYS_mmap, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, ANON, -1, 0);
    assert_true(at >= (int64_t)MMAP_LOW);
    assert_int_equal(rec6(SYS_mremap, at, PAGE_SIZE, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, HOST_LOW, 0),
                     -ENOMEM);
    assert_int_equal(*(char *)host, 7);
    munmap(host, PAGE_SIZE);
}

static void test_brk(void **state)
{
    uint64_t start = BRK_LOW + PAGE_SIZE;
    guest_space.brk_start = guest_space.brk = start;
    assert_int_equal(rec6(SYS_brk, 0, 0, 0, 0, 0, 0), start);
    assert_int_equal(rec6(SYS_brk, start - 1, 0, 0, 0, 0, 0), start);
    assert_int_equal(fake_nmaps, 0);
    assert_int_equal(rec6(SYS_brk, start + 100, 0, 0, 0, 0, 0), start + 100);
    assert_int_equal(fake_nmaps, 1);
    *(char *)(start + 4000) = 1;
    assert_int_equal(rec6(SYS_brk, start + 4096, 0, 0, 0, 0, 0), start + 4096);
    assert_int_equal(fake_nmaps, 1);
    assert_int_equal(rec6(SYS_brk, start + 3 * PAGE_SIZE + 1, 0, 0, 0, 0, 0), start + 3 * PAGE_SIZE + 1);
    assert_int_equal(guest_space.count, 1);
    assert_int_equal(rec6(SYS_brk, start, 0, 0, 0, 0, 0), start);
    assert_int_equal(guest_space.count, 0);
    assert_int_equal(rec6(SYS_brk, start + 1, 0, 0, 0, 0, 0), start + 1);
    assert_int_equal(*(char *)(start + 4000), 0); /* fresh again */
    /* in the way of something else, or beyond the limit */
    assert_int_equal(rec6(SYS_mmap, start + 4 * PAGE_SIZE, PAGE_SIZE, 0, ANON | MAP_FIXED, -1, 0),
                     start + 4 * PAGE_SIZE);
    assert_int_equal(rec6(SYS_brk, start + 6 * PAGE_SIZE, 0, 0, 0, 0, 0), start + 1);
    assert_int_equal(rec6(SYS_brk, BRK_HIGH, 0, 0, 0, 0, 0), start + 1);
    assert_int_equal(rec6(SYS_brk, UINT64_MAX, 0, 0, 0, 0, 0), start + 1);
}

/* A dynamic linker's way to map a library. */
static void test_library_slot(void **state)
{
    int fd = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        print_message("no libc.so.6 where Debian has it\n");
        skip();
    }
    int64_t first = rec6(SYS_mmap, 0, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, (uint64_t)fd, 0);
    assert_true(first >= (int64_t)SLOTS_LOW && first < (int64_t)SLOTS_HIGH);
    int64_t second = rec6(SYS_mmap, 0, 2 << 20, PROT_READ, MAP_PRIVATE, (uint64_t)fd, 0);
    assert_true(second > first && second < (int64_t)SLOTS_HIGH);
    assert_int_equal(rec6(SYS_munmap, (uint64_t)first, 2 << 20, 0, 0, 0, 0), 0);
    assert_int_equal(rec6(SYS_mmap, 0, 2 << 20, PROT_READ, MAP_PRIVATE, (uint64_t)fd, 0), first);
    int64_t data = rec6(SYS_mmap, 0, PAGE_SIZE, PROT_READ, MAP_PRIVATE, (uint64_t)fd, PAGE_SIZE);
    assert_true(data >= (int64_t)MMAP_LOW);
    close(fd);
}

static void test_low_memory(void **state)
{
    int64_t at = rec6(SYS_mmap, 0, 1 << 20, PROT_READ, ANON | MAP_32BIT, -1, 0);
    assert_true(at >= (int64_t)SLOTS_HIGH && at < (int64_t)HOST_LOW);
    int64_t large = rec6(SYS_mmap, 0, 256 << 20, PROT_NONE, ANON | MAP_32BIT, -1, 0);
    assert_true(large >= (int64_t)GUEST_LOW && large < 0x80000000);
    assert_int_equal(rec6(SYS_mmap, 0, 3ull << 30, PROT_NONE, ANON | MAP_32BIT, -1, 0), -ENOMEM);
    int64_t huge = rec6(SYS_mmap, 0, 4 << 20, PROT_NONE, ANON, -1, 0);
    assert_int_equal(huge % (2 << 20), 0);
    /* an AddressSanitizer guest reserves its shadow at a fixed place */
#ifndef __SANITIZE_ADDRESS__
    assert_int_equal(rec6(SYS_munmap, GUEST_LOW, 0x80000000 - GUEST_LOW, 0, 0, 0, 0), 0);
    assert_int_equal(rec6(SYS_mmap, 0x7fff7000, 0x10007fff8000 - 0x7fff7000, PROT_READ | PROT_WRITE,
                          ANON | MAP_FIXED | MAP_NORESERVE, -1, 0),
                     0x7fff7000);
#endif
}

static void test_free_is_at_once(void **state)
{
    int64_t at = rec6(SYS_mmap, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, ANON, -1, 0);
    *(char *)at = 1;
    assert_int_equal(rec6(SYS_madvise, (uint64_t)at, PAGE_SIZE, MADV_FREE, 0, 0, 0), 0);
    assert_int_equal(*(char *)at, 0);
    assert_int_equal(fake_maps[fake_nmaps - 1].map.op, MAP_OP_DISCARD);
    int64_t shared = rec6(SYS_mmap, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)shared, PAGE_SIZE, MADV_FREE, 0, 0, 0), -EINVAL);
    *(char *)shared = 2;
    assert_int_equal(rec6(SYS_madvise, (uint64_t)shared, PAGE_SIZE, MADV_DONTNEED, 0, 0, 0), 0);
    assert_int_equal(*(char *)shared, 2);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)shared, PAGE_SIZE, MADV_REMOVE, 0, 0, 0), 0);
    assert_int_equal(*(char *)shared, 0);
    assert_int_equal(fake_maps[fake_nmaps - 1].map.shared, 1);
}

static void test_forked(void **state)
{
    int64_t at = rec6(SYS_mmap, BASE, 3 * PAGE_SIZE, PROT_READ | PROT_WRITE, ANON, -1, 0);
    memset((void *)at, 1, 3 * PAGE_SIZE);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)at, PAGE_SIZE, MADV_WIPEONFORK, 0, 0, 0), 0);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)at + PAGE_SIZE, PAGE_SIZE, MADV_DONTFORK, 0, 0, 0), 0);
    assert_int_equal(guest_space.count, 3);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)at, 4 * PAGE_SIZE, MADV_DOFORK, 0, 0, 0), -ENOMEM);
    assert_int_equal(guest_space.count, 2);
    assert_int_equal(rec6(SYS_madvise, (uint64_t)at + PAGE_SIZE, PAGE_SIZE, MADV_DONTFORK, 0, 0, 0), 0);
    uint32_t before = fake_nmaps;
    memory_forked(&fake_task);
    assert_int_equal(fake_nmaps, before + 2);
    assert_int_equal(*(char *)at, 0);
    assert_null(space_find(&guest_space, (uint64_t)at + PAGE_SIZE));
    assert_int_equal(*(char *)(at + 2 * PAGE_SIZE), 1);
}

static void test_system_v(void **state)
{
    int id = shmget(IPC_PRIVATE, 5000, IPC_CREAT | 0600);
    assert_true(id >= 0);
    char *outside = shmat(id, NULL, 0);
    strcpy(outside, "from outside");
    int64_t at = rec6(SYS_shmat, (uint64_t)id, 0, 0, 0, 0, 0);
    assert_true(at >= (int64_t)MMAP_LOW);
    assert_string_equal((char *)at, "from outside");
    assert_int_equal(fake_maps[fake_nmaps - 1].map.op, MAP_OP_ANON);
    assert_int_equal(fake_neffects, 1);
    assert_int_equal(fake_effects[0].len, 8192);
    assert_non_null(strstr(fake_note, "System V"));
    assert_int_equal(rec6(SYS_shmat, (uint64_t)id, (uint64_t)at, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(rec6(SYS_shmat, (uint64_t)id, (uint64_t)at + 1, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(rec6(SYS_shmat, (uint64_t)id, (uint64_t)at + 1, SHM_RND | SHM_REMAP, 0, 0, 0), at);
    assert_int_equal(rec6(SYS_shmat, 123456, 0, 0, 0, 0, 0), -EINVAL);
    int64_t next = rec6(SYS_shmat, (uint64_t)id, (uint64_t)at - 8192, 0, 0, 0, 0);
    assert_int_equal(next, at - 8192);
    struct shmid_ds info;
    assert_int_equal(rec6(SYS_shmctl, (uint64_t)id, IPC_STAT, (uint64_t)&info, 0, 0, 0), 0);
    assert_int_equal(info.shm_nattch, 3);
    assert_int_equal(rec6(SYS_shmdt, (uint64_t)at + PAGE_SIZE, 0, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(rec6(SYS_shmdt, (uint64_t)next, 0, 0, 0, 0, 0), 0);
    assert_non_null(space_find(&guest_space, (uint64_t)at));
    assert_int_equal(rec6(SYS_shmdt, (uint64_t)at, 0, 0, 0, 0, 0), 0);
    assert_int_equal(guest_space.count, 0);
    shmctl(id, IPC_STAT, &info);
    assert_int_equal(info.shm_nattch, 1);
    shmdt(outside);
    shmctl(id, IPC_RMID, NULL);
}

static void test_dontunmap(void **state)
{
    int64_t at = rec6(SYS_mmap, 0, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE, ANON, -1, 0);
    *(char *)at = 5;
    int64_t to =
        rec6(SYS_mremap, (uint64_t)at, PAGE_SIZE, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0, 0);
    assert_true(to > 0 && to != at);
    assert_int_equal(*(char *)to, 5);
    assert_int_equal(*(char *)at, 0);
}

static void test_views_of_one_object(void **state)
{
    int fd = memfd_create("twice", MFD_CLOEXEC), other = memfd_create("once", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(ftruncate(other, 4096), 0);
    char *a = (char *)rec6(SYS_mmap, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, (uint64_t)fd, 0);
    char *b = (char *)rec6(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, (uint64_t)fd, 4096);
    char *c = (char *)rec6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, (uint64_t)other, 0);
    char *d = (char *)rec6(SYS_mremap, (uint64_t)a, 0, 8192, MREMAP_MAYMOVE, 0, 0);
    assert_int_equal(fake_notes, 0);
    assert_true(space_shares_memory(&guest_space));
    uint16_t object = space_find(&guest_space, (uint64_t)a)->object;
    assert_int_not_equal(object, 0);
    for (int i = 0; i < 4; i++)
        assert_true((fake_maps[i].map.rec.flags == object) == (i != 2));
    space_clear(&guest_space);
    engine.mode = ENGINE_REPLAY;
    for (uint32_t i = 0; i < fake_nmaps; i++) {
        const struct trace_map *m = &fake_maps[i].map;
        assert_int_equal(space_apply(&guest_space, m, fake_maps[i].path, fake_file(m->file)), 0);
    }
    a[0] = 1;
    a[4096] = 2;
    assert_true(d[0] == 1 && b[0] == 2 && d[4096] == 2 && c[0] == 0);
    assert_true(replica_fd(object) >= 0 && replica_fd(fake_maps[2].map.rec.flags) < 0);
    assert_int_equal(space_unmap(&guest_space, (uint64_t)a, 8192), 0);
    const struct trace_map last[] = {{.op = MAP_OP_UNMAP, .addr = (uint64_t)b, .len = 4096},
                                     {.op = MAP_OP_UNMAP, .addr = (uint64_t)d, .len = 8192}};
    assert_int_equal(space_apply(&guest_space, &last[0], NULL, -1), 0);
    assert_true(replica_fd(object) >= 0);
    assert_int_equal(space_apply(&guest_space, &last[1], NULL, -1), 0);
    assert_true(replica_fd(object) < 0);
    engine.mode = ENGINE_RECORD;
    close(fd);
    close(other);
}

/* A trace that says what cannot be. */
static void test_bad_maps(void **state)
{
    static const uint8_t none[32];
    const struct trace_map bad[] = {
        {.rec.flags = 9, .op = MAP_OP_RESIZE, .aux = 5},
        {.rec.flags = 9, .op = MAP_OP_FILE, .addr = BASE, .len = PAGE_SIZE, .prot = 1, .shared = 1},
        {.rec.flags = 9, .op = 99},
    };
    assert_memory_equal(bad[1].file, none, 32);
    engine.mode = ENGINE_REPLAY;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(space_apply(&guest_space, &bad[i], NULL, -1), -EINVAL);
    assert_int_equal(guest_space.count, 0);
    engine.mode = ENGINE_RECORD;
}

static void test_device(void **state)
{
    int fd = open("/dev/zero", O_RDWR);
    int64_t at = rec6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, (uint64_t)fd, 0);
    assert_true(at > 0);
    assert_int_equal(fake_notes, 0);
    assert_int_equal(fake_maps[0].map.op, MAP_OP_ANON);
    close(fd);
    fd = open("/dev/null", O_RDWR);
    assert_int_equal(rec6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, (uint64_t)fd, 0), -ENODEV);
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_event_begin, clear)
    const struct CMUnitTest tests[] = {
        TEST(test_against_kernel),
        TEST(test_shared_against_kernel),
        TEST(test_host_is_out_of_reach),
        TEST(test_brk),
        TEST(test_library_slot),
        TEST(test_low_memory),
        TEST(test_free_is_at_once),
        TEST(test_forked),
        TEST(test_system_v),
        TEST(test_dontunmap),
        TEST(test_views_of_one_object),
        TEST(test_bad_maps),
        TEST(test_device),
    };
    return cmocka_run_group_tests(tests, fake_engine_begin, NULL);
}
