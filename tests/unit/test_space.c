/*
 * test_space.c: random changes of an address space against an array of pages and against /proc/self/maps, and
 * the edges of its contract.
 */
// LINK: src/engine/memory/space.c src/engine/memory/capture.c src/engine/memory/objects.c src/engine/memory/replica.c
#include "engine_fakes.h"

#include <sys/un.h>

#include "engine/memory/capture.h"
#include "engine/memory/space.h"

enum { PAGES = 48, ROUNDS = 20000 };
#define BASE 0x200000000000ull

/* What one page should be. */
struct page {
    bool mapped, shared, growsdown;
    uint32_t prot;
    uint8_t flags;
    const struct file_ref *file;
    uint64_t offset;
    uint8_t byte; /* first byte of the page */
};
static struct page model[PAGES];

static uint64_t seed = 1;
static uint32_t roll(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

static uint64_t addr_of(uint32_t page)
{
    return BASE + page * PAGE_SIZE;
}

static const struct file_ref *file;
static int file_fd;

/* A file whose pages each begin with their number plus 100. */
static void make_file(void)
{
    char name[] = "/tmp/clio-test-space-XXXXXX";
    file_fd = mkstemp(name);
    unlink(name);
    for (uint32_t i = 0; i < PAGES; i++) {
        uint8_t page[PAGE_SIZE] = {(uint8_t)(i + 100)};
        assert_int_equal(write(file_fd, page, sizeof page), sizeof page);
    }
    file = file_capture(file_fd, NULL);
    assert_non_null(file);
}

static bool same_object(const struct page *a, const struct page *b)
{
    if (!a->mapped || !b->mapped || a->prot != b->prot || a->shared != b->shared || a->flags != b->flags ||
        a->file != b->file)
        return false;
    return !(a->file || a->shared) || a->offset + PAGE_SIZE == b->offset;
}

static void check_array(const struct space *s)
{
    uint32_t vma = 0;
    for (uint32_t i = 0; i < PAGES; i++) {
        const struct vma *v = space_find(s, addr_of(i));
        assert_int_equal(v != NULL, model[i].mapped);
        if (!v)
            continue;
        assert_int_equal(v->prot, model[i].prot);
        assert_int_equal(v->shared, model[i].shared);
        assert_int_equal(v->flags, model[i].flags);
        assert_ptr_equal(v->file, model[i].file);
        if (v->file || v->shared)
            assert_int_equal(v->offset + (addr_of(i) - v->start), model[i].offset);
        bool first = i == 0 || !same_object(&model[i - 1], &model[i]);
        assert_int_equal(v->start == addr_of(i), first);
        vma += first;
    }
    assert_int_equal(s->count, vma);
}

static void check_host(void)
{
    static char host[PAGES][5];
    memset(host, 0, sizeof host);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char prot[5];
        assert_int_equal(sscanf(line, "%lx-%lx %4s", &start, &end, prot), 3);
        for (uint32_t i = 0; i < PAGES; i++)
            if (start <= addr_of(i) && addr_of(i) < end)
                memcpy(host[i], prot, 5);
    }
    fclose(maps);
    for (uint32_t i = 0; i < PAGES; i++) {
        const struct page *p = &model[i];
        char want[5] = "";
        if (p->mapped)
            snprintf(want, sizeof want, "%c%c-%c", p->prot & (PROT_READ | PROT_EXEC) ? 'r' : '-',
                     p->prot & PROT_WRITE ? 'w' : '-', p->shared && engine.mode == ENGINE_RECORD ? 's' : 'p');
        assert_string_equal(host[i], want);
        if (p->mapped && (p->prot & (PROT_READ | PROT_EXEC)))
            assert_int_equal(*(uint8_t *)addr_of(i), p->byte);
    }
}

static void fill_map(uint32_t from, uint32_t n, uint32_t prot, bool shared, const struct file_ref *f,
                     uint64_t offset)
{
    for (uint32_t i = 0; i < n; i++)
        model[from + i] = (struct page){.mapped = true,
                                        .prot = prot,
                                        .shared = shared,
                                        .file = f,
                                        .offset = offset + i * PAGE_SIZE,
                                        .byte = f ? (uint8_t)(offset / PAGE_SIZE + i + 100) : 0};
}

/* A private page of a file that was writable once. */
static void note_dirty(struct page *p)
{
    if (p->file && !p->shared && (p->prot & PROT_WRITE))
        p->flags |= VMA_DIRTY;
}

static void step_map(struct space *s, uint32_t from, uint32_t n)
{
    bool with_file = roll(2), shared = roll(3) == 0 && !with_file;
    uint32_t prot = roll(8), first = with_file ? roll(PAGES - n + 1) : 0;
    struct trace_map map = {.op = with_file ? MAP_OP_FILE : MAP_OP_ANON,
                            .shared = shared,
                            .prot = prot,
                            .addr = addr_of(from),
                            .len = n * PAGE_SIZE,
                            .offset = first * PAGE_SIZE,
                            .aux = PAGES * PAGE_SIZE};
    memcpy(map.file, file->hash, 32);
    assert_int_equal(space_apply(s, &map, file->path, file_fd), 0);
    const struct file_ref *ref = with_file ? file_known(file->hash, PAGES * PAGE_SIZE, file->path) : NULL;
    fill_map(from, n, prot, shared, ref, first * PAGE_SIZE);
    for (uint32_t i = from; i < from + n; i++)
        note_dirty(&model[i]);
}

static void step_unmap(struct space *s, uint32_t from, uint32_t n)
{
    assert_int_equal(space_unmap(s, addr_of(from), n * PAGE_SIZE), 0);
    memset(&model[from], 0, n * sizeof *model);
}

static void step_protect(struct space *s, uint32_t from, uint32_t n)
{
    uint32_t prot = roll(8);
    bool mapped = true;
    for (uint32_t i = from; i < from + n; i++)
        mapped = mapped && model[i].mapped;
    assert_int_equal(space_protect(s, addr_of(from), n * PAGE_SIZE, prot), mapped ? 0 : -ENOMEM);
    for (uint32_t i = from; mapped && i < from + n; i++) {
        model[i].prot = prot;
        note_dirty(&model[i]);
    }
}

static void step_write(uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++)
        if (model[i].mapped && (model[i].prot & PROT_WRITE) && !(model[i].shared && model[i].file))
            *(uint8_t *)addr_of(i) = model[i].byte = (uint8_t)roll(256);
}

static void step_flag(struct space *s, uint32_t from, uint32_t n)
{
    uint8_t set = (uint8_t)roll(4), clear = (uint8_t)roll(4);
    assert_int_equal(space_flag(s, addr_of(from), n * PAGE_SIZE, set, clear), 0);
    for (uint32_t i = from; i < from + n; i++)
        if (model[i].mapped)
            model[i].flags = (uint8_t)((model[i].flags & ~clear) | set);
}

/* Moves within one vma only, to another place or longer in place. */
static void step_move(struct space *s, uint32_t from, uint32_t n)
{
    uint32_t to = roll(PAGES - n + 1), len = n;
    if (to == from)
        while (from + len < PAGES && !model[from + len].mapped && roll(3))
            len++;
    bool one = model[from].mapped, overlap = to != from && to < from + n && from < to + n;
    for (uint32_t i = from + 1; i < from + n; i++)
        one = one && same_object(&model[i - 1], &model[i]);
    int r = space_move(s, addr_of(to), len * PAGE_SIZE, addr_of(from), n * PAGE_SIZE);
    if (one && !overlap && r == -EFAULT && engine.mode == ENGINE_RECORD)
        return; /* the host's kernel keeps as several mappings what it never merged: its answer stands */
    assert_int_equal(r, !one ? -EFAULT : overlap ? -EINVAL : 0);
    if (r)
        return;
    struct page moved[PAGES];
    memcpy(moved, &model[from], n * sizeof *model);
    memset(&model[from], 0, n * sizeof *model);
    memcpy(&model[to], moved, n * sizeof *model);
    for (uint32_t i = n; i < len; i++) {
        model[to + i] = moved[n - 1];
        model[to + i].offset = moved[n - 1].offset + (i - n + 1) * PAGE_SIZE;
        model[to + i].byte = moved[0].file ? (uint8_t)(model[to + i].offset / PAGE_SIZE + 100) : 0;
    }
}

static void step_discard(struct space *s, uint32_t from, uint32_t n)
{
    struct trace_map map = {.op = MAP_OP_DISCARD, .addr = addr_of(from), .len = n * PAGE_SIZE};
    assert_int_equal(space_apply(s, &map, NULL, -1), 0);
    for (uint32_t i = from; i < from + n; i++)
        if (model[i].mapped && !model[i].shared)
            model[i].byte = model[i].file ? (uint8_t)(model[i].offset / PAGE_SIZE + 100) : 0;
}

static void run_random(enum engine_mode mode, uint64_t start_seed)
{
    struct space s = {0};
    engine.mode = mode;
    seed = start_seed;
    memset(model, 0, sizeof model);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t from = roll(PAGES), n = 1 + roll(PAGES - from < 12 ? PAGES - from : 12);
        switch (roll(8)) {
        case 0:
        case 1:
            step_map(&s, from, n);
            break;
        case 2:
            step_unmap(&s, from, n);
            break;
        case 3:
            step_protect(&s, from, n);
            break;
        case 4:
            step_write(from, n);
            break;
        case 5:
            step_flag(&s, from, n);
            break;
        case 6:
            /* growing beyond a file's end would fault in check_host */
            if (!model[from].file || model[from].offset / PAGE_SIZE + n < PAGES / 2)
                step_move(&s, from, n);
            break;
        case 7:
            step_discard(&s, from, n);
            break;
        }
        for (uint32_t i = 0; i < PAGES; i++)
            if (model[i].file && model[i].offset >= PAGES * PAGE_SIZE)
                step_unmap(&s, i, 1);
        check_array(&s);
        if (round % 16 == 0)
            check_host();
    }
    space_clear(&s);
    memset(model, 0, sizeof model);
    check_host();
}

static void test_random_record(void **state)
{
    run_random(ENGINE_RECORD, 11);
}

static void test_random_replay(void **state)
{
    run_random(ENGINE_REPLAY, 12);
}

static int map_anon(struct space *s, uint64_t start, uint64_t len, uint32_t prot)
{
    return space_map(s, &(struct vma){.start = start, .end = start + len, .prot = prot}, -1, MAP_NORESERVE);
}

static void test_legal(void **state)
{
    struct space s = {0};
    assert_false(space_legal(BASE, 0));
    assert_false(space_legal(BASE + 1, PAGE_SIZE));
    assert_false(space_legal(0, PAGE_SIZE));
    assert_false(space_legal(HOST_LOW, PAGE_SIZE));
    assert_false(space_legal(HOST_LOW - PAGE_SIZE, 2 * PAGE_SIZE));
    assert_false(space_legal(HOST_HIGH - PAGE_SIZE, 2 * PAGE_SIZE));
    assert_false(space_legal(TABLES_LOW - PAGE_SIZE, 2 * PAGE_SIZE));
    assert_false(space_legal(TABLES_HIGH - PAGE_SIZE, 2 * PAGE_SIZE));
    assert_false(space_legal(IMAGE_LOW, PAGE_SIZE));
    assert_false(space_legal(TOP_LOW - PAGE_SIZE, 2 * PAGE_SIZE));
    assert_false(space_legal(GUEST_HIGH - PAGE_SIZE, UINT64_MAX - PAGE_SIZE + 1));
    assert_true(space_legal(TABLES_HIGH, IMAGE_LOW - TABLES_HIGH));
    assert_true(space_legal(IMAGE_HIGH, TOP_LOW - IMAGE_HIGH));
    assert_true(space_legal(GUEST_LOW, PAGE_SIZE));
    assert_true(space_legal(0x7fff8000, 0x10007fff8000 - 0x7fff8000));
    assert_int_equal(map_anon(&s, HOST_LOW, PAGE_SIZE, PROT_READ), -ENOMEM);
    assert_int_equal(s.count, 0);
    /* an unmapping may span the host's range, which stays */
    void *host = mmap((void *)HOST_LOW, PAGE_SIZE, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(host, (void *)HOST_LOW);
    assert_int_equal(map_anon(&s, HOST_LOW - PAGE_SIZE, PAGE_SIZE, PROT_READ), 0);
    assert_int_equal(map_anon(&s, HOST_HIGH, PAGE_SIZE, PROT_READ), 0);
    assert_int_equal(space_unmap(&s, HOST_LOW - PAGE_SIZE, HOST_HIGH - HOST_LOW + 2 * PAGE_SIZE), 0);
    assert_int_equal(s.count, 0);
    assert_int_equal(*(char *)host, 0);
    munmap(host, PAGE_SIZE);
    space_clear(&s);
}

static void test_allows(void **state)
{
    struct space s = {0};
    assert_int_equal(map_anon(&s, BASE, 2 * PAGE_SIZE, PROT_READ), 0);
    assert_int_equal(map_anon(&s, BASE + 2 * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
    assert_true(space_allows(&s, BASE, 3 * PAGE_SIZE, PROT_READ));
    assert_true(space_allows(&s, BASE + 5, 0, PROT_READ));
    assert_false(space_allows(&s, BASE, 3 * PAGE_SIZE, PROT_WRITE));
    assert_true(space_allows(&s, BASE + 2 * PAGE_SIZE + 7, PAGE_SIZE - 7, PROT_WRITE));
    assert_false(space_allows(&s, BASE + 2 * PAGE_SIZE, PAGE_SIZE + 1, PROT_READ));
    assert_false(space_allows(&s, BASE, UINT64_MAX, PROT_READ));
    assert_ptr_equal(space_at_or_above(&s, BASE - 1), s.vmas);
    assert_null(space_find(&s, BASE - 1));
    assert_null(space_at_or_above(&s, BASE + 3 * PAGE_SIZE));
    space_clear(&s);
}

static void test_invalidates(void **state)
{
    struct space s = {0};
    assert_int_equal(map_anon(&s, BASE, 4 * PAGE_SIZE, PROT_READ | PROT_EXEC), 0);
    assert_int_equal(fake_ninvalidated, 0);
    assert_int_equal(space_protect(&s, BASE, 2 * PAGE_SIZE, PROT_READ | PROT_EXEC), 0);
    assert_int_equal(fake_ninvalidated, 0);
    assert_int_equal(space_protect(&s, BASE + PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(fake_ninvalidated, 1);
    assert_int_equal(fake_invalidated[0][0], BASE + PAGE_SIZE);
    assert_int_equal(fake_invalidated[0][1], BASE + 2 * PAGE_SIZE);
    assert_int_equal(space_unmap(&s, BASE, 3 * PAGE_SIZE), 0);
    assert_int_equal(fake_ninvalidated, 3); /* on both sides of the writable page */
    assert_int_equal(map_anon(&s, BASE + 3 * PAGE_SIZE, PAGE_SIZE, PROT_READ), 0);
    assert_int_equal(fake_ninvalidated, 4);
    space_clear(&s);
    assert_int_equal(fake_ninvalidated, 4);
}

/* The highest gap that fits, found without the array. */
static uint64_t pick_simply(const bool *used, uint32_t pages, uint32_t n, uint32_t align)
{
    for (uint32_t at = (pages - n) / align * align; pages >= n; at -= align) {
        uint32_t i = at;
        while (i < at + n && !used[i])
            i++;
        if (i == at + n)
            return at;
        if (at == 0)
            break;
    }
    return UINT64_MAX;
}

static void test_pick(void **state)
{
    enum { SIZE = 256 };
    static bool used[SIZE];
    struct space s = {0};
    uint64_t low = GUEST_HIGH - SIZE * PAGE_SIZE;
    space_set_mmap_top(&s, GUEST_HIGH);
    /* everything below is full, so that the model's range is all there is */
    assert_int_equal(map_anon(&s, MMAP_LOW, low - MMAP_LOW, PROT_NONE), 0);
    assert_int_equal(map_anon(&s, TABLES_HIGH, IMAGE_LOW - TABLES_HIGH, PROT_NONE), 0);
    seed = 5;
    for (int round = 0; round < 20000; round++) {
        uint32_t n = 1 + roll(round % 3 ? 4 : 40), align = 1u << (roll(4) ? 0 : roll(5));
        uint64_t want = pick_simply(used, SIZE, n, align);
        uint64_t at = space_pick(&s, n * PAGE_SIZE, align * PAGE_SIZE, 0);
        assert_int_equal(at, want == UINT64_MAX ? 0 : low + want * PAGE_SIZE);
        if (at && roll(4)) {
            assert_int_equal(map_anon(&s, at, n * PAGE_SIZE, roll(2) ? PROT_READ : PROT_NONE), 0);
            memset(&used[want], 1, n);
        }
        uint32_t from = roll(SIZE), count = 1 + roll(SIZE - from < 20 ? SIZE - from : 20);
        if (roll(3) == 0) {
            assert_int_equal(space_unmap(&s, low + from * PAGE_SIZE, count * PAGE_SIZE), 0);
            memset(&used[from], 0, count);
        }
    }
    space_clear(&s);
    memset(used, 0, sizeof used);
}

static void test_pick_hint(void **state)
{
    struct space s = {0};
    assert_int_equal(space_pick(&s, PAGE_SIZE, PAGE_SIZE, BASE), BASE);
    assert_int_equal(map_anon(&s, BASE, PAGE_SIZE, PROT_READ), 0);
    assert_int_not_equal(space_pick(&s, PAGE_SIZE, PAGE_SIZE, BASE), BASE);
    assert_int_equal(space_pick(&s, PAGE_SIZE, PAGE_SIZE, HOST_LOW), GUEST_HIGH - PAGE_SIZE);
    assert_int_equal(space_pick(&s, GUEST_HIGH, PAGE_SIZE, 0),
                     IMAGE_LOW - GUEST_HIGH); /* too large for the area */
    assert_int_equal(space_pick(&s, IMAGE_LOW, PAGE_SIZE, 0), 0);
    assert_int_equal(space_pick_in(&s, BASE, BASE + 2 * PAGE_SIZE, PAGE_SIZE, PAGE_SIZE), BASE + PAGE_SIZE);
    assert_int_equal(space_pick_in(&s, BASE, BASE + PAGE_SIZE, PAGE_SIZE, PAGE_SIZE), 0);
    space_clear(&s);
}

static void test_shares(void **state)
{
    struct space s = {0};
    struct vma v = {.start = BASE, .end = BASE + PAGE_SIZE, .prot = PROT_READ, .shared = true};
    assert_int_equal(space_map(&s, &v, -1, 0), 0);
    assert_false(space_shares_memory(&s));
    assert_int_equal(space_protect(&s, BASE, PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
    assert_true(space_shares_memory(&s));
    space_clear(&s);
}

static void test_capture_cache(void **state)
{
    char name[] = "/var/tmp/clio-test-space-XXXXXX";
    int fd = mkstemp(name);
    assert_int_equal(write(fd, "one", 3), 3);
    uint32_t before = fake_requests;
    const struct file_ref *first = file_capture(fd, NULL);
    assert_string_equal(first->path, name);
    assert_int_equal(first->size, 3);
    /* just written: its times prove nothing yet */
    assert_int_equal(pwrite(fd, "two", 3, 0), 3);
    const struct file_ref *second = file_capture(fd, NULL);
    assert_memory_not_equal(first->hash, second->hash, 32);
    assert_int_equal(fake_requests, before + 2);
    /* old enough: asked once more, then known */
    usleep(150000);
    const struct file_ref *third = file_capture(fd, NULL);
    assert_memory_equal(third->hash, second->hash, 32);
    uint32_t asked = fake_requests;
    assert_ptr_equal(file_capture(fd, NULL), third);
    assert_int_equal(fake_requests, asked);
    /* a shared mapping may change it behind its times */
    file_changes(third);
    assert_ptr_equal(file_capture(fd, NULL), third);
    assert_int_equal(fake_requests, asked + 1);
    fake_store_error = ENOSPC;
    assert_int_equal(pwrite(fd, "six", 3, 0), 3);
    assert_null(file_capture(fd, NULL));
    assert_int_equal(errno, ENOSPC);
    fake_store_error = 0;
    unlink(name);
    close(fd);
    fd = open("/dev/null", O_RDWR);
    assert_null(file_capture(fd, NULL));
    assert_int_equal(errno, ENODEV);
    close(fd);
}

/* Another store, which listens where the first one did. */
static void *second_store(void *arg)
{
    int listener = (int)(intptr_t)arg;
    usleep(300000);
    listen(listener, 1);
    fake_store((void *)(intptr_t)accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    return NULL;
}

static void test_store_replaced(void **state)
{
    char dir[] = "/tmp/clio-test-space-XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", dir);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    engine.trace_dir = hostfd_keep(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
    int gone[2], old = engine.store;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gone), 0);
    close(gone[1]);
    engine.store = hostfd_keep(gone[0]);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, second_store, (void *)(intptr_t)listener), 0);
    int fd = memfd_create("after", MFD_CLOEXEC);
    const struct file_ref *captured = file_capture(fd, NULL);
    assert_non_null(captured);
    assert_int_equal(captured->size, 0);
    assert_int_not_equal(hostfd(engine.store), gone[0]);
    hostfd_drop(engine.store);
    pthread_join(thread, NULL);
    engine.store = old;
    unlink(address.sun_path);
    rmdir(dir);
    hostfd_drop(engine.trace_dir);
    close(listener);
    close(fd);
}

static int begin(void **state)
{
    if (fake_engine_begin(state))
        return -1;
    make_file();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_random_record, fake_event_begin),
        cmocka_unit_test_setup(test_random_replay, fake_event_begin),
        cmocka_unit_test_setup(test_legal, fake_event_begin),
        cmocka_unit_test_setup(test_allows, fake_event_begin),
        cmocka_unit_test_setup(test_invalidates, fake_event_begin),
        cmocka_unit_test_setup(test_pick, fake_event_begin),
        cmocka_unit_test_setup(test_pick_hint, fake_event_begin),
        cmocka_unit_test_setup(test_shares, fake_event_begin),
        cmocka_unit_test_setup(test_capture_cache, fake_event_begin),
        cmocka_unit_test_setup(test_store_replaced, fake_event_begin),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
