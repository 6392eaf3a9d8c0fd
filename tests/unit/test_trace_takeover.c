/*
 * test_trace_takeover.c: a store that dies, or whose disk is full, at any byte of what it writes, and one
 * that takes over: nothing is lost and nothing is there twice. And readers of a trace that grows under them.
 */
#include "trace_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

enum { RING = 1 << 18 };

/* In the order in which the sink writes them. */
static const char *const names[] = {"spaces/1/data", "spaces/1/maps", "spaces/1/events", "tasks"};
enum { FILES = 4 };

struct image {
    uint8_t *bytes;
    size_t size;
};

static void load(const struct fixture *f, struct image *images)
{
    for (int i = 0; i < FILES; i++) {
        struct stat st;
        int fd = openat(f->dir, names[i], O_RDONLY);
        images[i] = (struct image){0};
        if (fd < 0)
            continue;
        assert_int_equal(fstat(fd, &st), 0);
        images[i] = (struct image){malloc((size_t)st.st_size + 1), (size_t)st.st_size};
        assert_int_equal(read(fd, images[i].bytes, images[i].size), images[i].size);
        close(fd);
    }
}

static void unload(struct image *images)
{
    for (int i = 0; i < FILES; i++)
        free(images[i].bytes);
}

static void restore(const struct fixture *f, int i, const struct image *image, size_t size)
{
    int fd = openat(f->dir, names[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, image->bytes, size), size);
    close(fd);
}

/* Puts the files into the state after `written` bytes of the append that led from `before` to `after`. */
static void half_way(const struct fixture *f, const struct image *before, const struct image *after,
                     size_t written)
{
    for (int i = 0; i < FILES; i++) {
        size_t grown = after[i].size - before[i].size, part = written < grown ? written : grown;
        if (before[i].size + part == 0)
            unlinkat(f->dir, names[i], 0);
        else
            restore(f, i, &after[i], before[i].size + part);
        written -= part;
    }
}

static void check_complete(const struct fixture *f, uint64_t expected)
{
    struct clio_error error;
    uint64_t events;
    assert_int_equal(read_all(f->path, 1, &events, &error), CLIO_CLEAN_END);
    assert_int_equal(events, expected);
    const struct clio_space_info *spaces;
    size_t count;
    struct clio_source *source = clio_source_open(f->path, &error);
    assert_true(clio_source_spaces(source, &spaces, &count, &error));
    assert_int_equal(count, 1);
    assert_int_equal(spaces[0].end, CLIO_END_EXIT);
    assert_int_equal(source_tasks(source), 2);
    clio_source_close(source);
}

/* The store is killed after each byte of an append; another one appends what it finds in the ring. */
static void killed_at(bool first_batch, size_t step)
{
    struct fixture f;
    struct producer p;
    struct clio_error error;
    struct image before[FILES], after[FILES];
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    producer_space(&p);
    producer_events(&p, 50);
    if (!first_batch)
        assert_true(drain(&p, sink, &error));
    load(&f, before);
    producer_events(&p, 50);
    producer_exit(&p);
    uint64_t tail = p.ring->tail;
    assert_true(drain(&p, sink, &error));
    trace_sink_close(sink, false, &error);
    load(&f, after);
    size_t total = 0;
    for (int i = 0; i < FILES; i++)
        total += after[i].size - before[i].size;
    for (size_t written = 0; written <= total; written += step) {
        p.ring->tail = tail;
        half_way(&f, before, after, written);
        check_complete(&f, 101); /* what the files lack is in the ring */
        sink = trace_sink_open(f.dir, &error);
        assert_non_null(sink);
        assert_true(drain(&p, sink, &error));
        assert_true(trace_sink_ended(sink, 1));
        assert_int_equal(trace_sink_events(sink, 1), 101);
        trace_sink_close(sink, false, &error);
        check_complete(&f, 101);
        p.ring->head = p.ring->tail = 0; /* the files alone */
        check_complete(&f, 101);
        p.ring->head = p.filled;
    }
    unload(before);
    unload(after);
    producer_close(&p);
    fixture_close(&f);
}

static void test_killed_first(void **state)
{
    (void)state;
    killed_at(true, 7);
}

static void test_killed_later(void **state)
{
    (void)state;
    killed_at(false, 7);
}

/* The same with writes that fail: the sink itself goes on when there is room. */
static void test_disk_full(void **state)
{
    (void)state;
    struct rlimit unlimited, limit;
    struct clio_error error;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t room = 0; room < 3000; room += 17) {
        struct fixture f;
        struct producer p;
        fixture_open(&f);
        producer_open(&p, f.dir, 1, RING);
        struct trace_sink *sink = trace_sink_open(f.dir, &error);
        producer_space(&p);
        producer_events(&p, 60);
        limit = unlimited;
        limit.rlim_cur = room;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        bool stored = drain(&p, sink, &error);
        if (!stored) {
            assert_int_equal(error.fault, CLIO_FAULT_SYSTEM);
            assert_int_equal(error.code, EFBIG);
        }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
        producer_events(&p, 40);
        producer_exit(&p);
        assert_true(drain(&p, sink, &error));
        trace_sink_close(sink, false, &error);
        check_complete(&f, 101);
        producer_close(&p);
        fixture_close(&f);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void test_bad_ring(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    producer_space(&p);
    producer_events(&p, 10);
    struct trace_record bad = {24, 77, 0};
    memcpy(p.data + p.filled % RING, &bad, sizeof bad);
    p.ring->head += 24;
    assert_false(drain(&p, sink, &error));
    assert_int_equal(error.fault, CLIO_FAULT_DAMAGED);
    assert_non_null(strstr(error.text, "rings/1"));
    assert_int_equal(trace_sink_stored(sink, 1, STREAM_EVENTS), 0);
    uint64_t events;
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_non_null(strstr(error.text, "rings/1"));
    trace_sink_close(sink, false, &error);
    producer_close(&p);
    fixture_close(&f);
}

/* ---- live ---- */

enum { LIVE_EVENTS = 60000 };

struct live {
    struct fixture f;
    struct producer p;
    bool produced;
};

static void *produce(void *argument)
{
    struct live *l = argument;
    for (int i = 1; i < LIVE_EVENTS; i++) {
        producer_events(&l->p, 1);
        if (i % 997 == 0)
            sched_yield();
    }
    producer_exit(&l->p);
    __atomic_store_n(&l->produced, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Drains, and now and then dies and is replaced. */
static void *store(void *argument)
{
    struct live *l = argument;
    struct clio_error error;
    struct trace_sink *sink = trace_sink_open(l->f.dir, &error);
    bool last = false;
    for (int i = 0; !last; i++) {
        last = __atomic_load_n(&l->produced, __ATOMIC_ACQUIRE);
        if (!drain(&l->p, sink, &error))
            fail_msg("%s", error.text);
        if (i % 50 == 49) {
            struct trace_sink *next = trace_sink_open(l->f.dir, &error);
            trace_sink_close(sink, false, &error);
            sink = next;
        }
        usleep(i % 7 * 100);
    }
    char name[32] = "rings/1";
    unlinkat(l->f.dir, name, 0);
    trace_sink_close(sink, false, &error);
    return NULL;
}

static void *read_live(void *argument)
{
    struct live *l = argument;
    struct clio_error error;
    struct clio_source *source = clio_source_open(l->f.path, &error);
    struct trace_reader *reader = trace_reader_open(source, 1, &error);
    struct trace_item item;
    const struct clio_space_info *spaces;
    size_t count;
    uint64_t n = 0, waits = 0;
    enum clio_next next;
    while ((next = trace_reader_next(reader, &item)) == CLIO_RECORD || next == CLIO_NOTHING_YET) {
        if (next == CLIO_RECORD && !is_event(&item, ++n))
            fail_msg("live: event %llu is wrong", (unsigned long long)n);
        if (next == CLIO_NOTHING_YET && ++waits % 16 == 0)
            assert_true(clio_source_spaces(source, &spaces, &count, &error));
    }
    if (next != CLIO_CLEAN_END)
        fail_msg("live: %s", trace_reader_error(reader)->text);
    assert_int_equal(n, LIVE_EVENTS);
    assert_true(clio_source_spaces(source, &spaces, &count, &error));
    assert_int_equal(count, 1);
    assert_int_equal(spaces[0].end, CLIO_END_EXIT);
    assert_int_equal(source_tasks(source), 2);
    trace_reader_close(reader);
    clio_source_close(source);
    return NULL;
}

static void test_live(void **state)
{
    (void)state;
    struct live l = {0};
    struct clio_error error;
    pthread_t threads[4];
    fixture_open(&l.f);
    int lifeline = trace_lifeline_hold(l.f.dir);
    producer_open(&l.p, l.f.dir, 1, RING);
    producer_space(&l.p);
    struct trace_sink *sink = trace_sink_open(l.f.dir, &error);
    trace_sink_close(sink, false, &error);
    pthread_create(&threads[0], NULL, produce, &l);
    pthread_create(&threads[1], NULL, store, &l);
    pthread_create(&threads[2], NULL, read_live, &l);
    pthread_create(&threads[3], NULL, read_live, &l);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    close(lifeline);
    producer_close(&l.p);
    fixture_close(&l.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_first), cmocka_unit_test(test_killed_later),
        cmocka_unit_test(test_disk_full),    cmocka_unit_test(test_bad_ring),
        cmocka_unit_test(test_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
