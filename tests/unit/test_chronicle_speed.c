/*
 * How fast a chronicle is built and asked, for a program-like log: calls with pushes, counters, a sequential
 * fill, a hash table. Prints figures; asserts only that the answers are right. CLIO_SPEED_WRITES: how many
 * writes (default 4000000).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "chronicle/log.h"
#include "clio/chronicle.h"

enum { BUFFER = 1 << 17, NBLOCKS = 64, NINSNS = 6 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t *put(uint64_t *w, unsigned index, unsigned size, uint64_t address, uint64_t value)
{
    w[0] = (uint64_t)LOG_WRITE << 56 | (uint64_t)size << 40 | index;
    w[1] = address;
    w[2] = value;
    return w + 3;
}

/* One turn of a made-up loop: a call, a counter, an array element, a hash table slot. 6 writes, 5 blocks, 30
 * instructions. */
static uint64_t *turn(uint64_t *w, uint64_t i)
{
    uint64_t hash = i * 0x9e3779b97f4a7c15ull;
    uint64_t stack = 0x210000000000 - 8 * (hash >> 60);
    unsigned function = (unsigned)(hash >> 40) % 8;
    *w++ = (uint64_t)LOG_BLOCK << 56 | LOG_BLOCK_TICK | 0;
    w = put(w, 2, 8, stack - 8, 0x10001000 + function);
    *w++ = (uint64_t)LOG_BLOCK << 56 | (1 + function);
    w = put(w, 0, 8, stack - 16, 0x110000000000 + (hash >> 50));
    w = put(w, 1, 8, stack - 24, i);
    *w++ = (uint64_t)LOG_BLOCK << 56 | 20;
    w = put(w, 3, 4, 0x110000000000, i);
    *w++ = (uint64_t)LOG_BLOCK << 56 | LOG_BLOCK_TICK | (21 + function / 2);
    w = put(w, 3, 4, 0x110000100000 + 4 * (i % 1000000), i * 3);
    *w++ = (uint64_t)LOG_BLOCK << 56 | 40;
    return put(w, 3, 8, 0x110010000000 + 8 * (hash >> 46), hash);
}

static void build(const char *path, uint64_t turns)
{
    static const uint16_t lengths[NINSNS] = {4, 3, 5, 7, 2, 2};
    struct chron_builder *b;
    uint64_t from[3] = {1, 0, 0}, to[3] = {1, UINT64_MAX, 0};
    uint64_t *words = malloc(BUFFER * sizeof *words), start[3] = {(uint64_t)LOG_MOMENT << 56 | 1, 0, 0};
    assert_int_equal(chron_build_open(&b, path, "/", 1), 0);
    for (uint64_t i = 0; i < NBLOCKS; i++) {
        struct chron_block block = {
            .number = i, .pc = 0x10001000 + i * 64, .ninsns = NINSNS, .lengths = lengths};
        assert_int_equal(chron_build_block(b, &block), 0);
    }
    assert_int_equal(chron_build_log(b, start, 3), 0);
    double spent = 0;
    for (uint64_t i = 0; i < turns;) {
        uint64_t *w = words;
        for (; i < turns && w < words + BUFFER - 64; i++)
            w = turn(w, i);
        double t = now();
        assert_int_equal(chron_build_log(b, words, (uint64_t)(w - words)), 0);
        spent += now() - t;
    }
    double t = now();
    assert_int_equal(chron_build_close(b, from, to), 0);
    double closing = now() - t, writes = 6.0 * (double)turns;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    printf("%.1f M writes: consumed at %.1f M/s, closed in %.2f s, together %.1f M/s; %.2f bytes a write, "
           "%.2f an instruction\n",
           writes / 1e6, writes / spent / 1e6, closing, writes / (spent + closing) / 1e6,
           (double)st.st_size / writes, (double)st.st_size / ((double)turns * 30));
    free(words);
}

static void questions(const char *path, uint64_t turns)
{
    struct clio_error error;
    const struct clio_write *a;
    size_t n;
    double t = now();
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    assert_non_null(c);
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t turn_number = i * turns / 200, slot = turn_number % 1000000;
        assert_true(clio_chronicle_last_write(c, 0x110000100000 + 4 * slot, 4, NULL, &a, &n, &error));
        uint64_t last = slot + (turns - 1 - slot) / 1000000 * 1000000;
        assert_int_equal(n, 1);
        assert_int_equal(a[0].ordinal, last * 6 + 4);
    }
    printf("200 last-write questions: %.2f ms each, opening included\n", (now() - t) * 1000 / 200);
    t = now();
    assert_true(clio_chronicle_last_write(c, 0x110000000000, 8, NULL, &a, &n, &error));
    assert_int_equal(n, 2);
    assert_int_equal(a[0].ordinal, turns * 6 - 3);
    printf("the counter: %.3f ms\n", (now() - t) * 1000);
    clio_chronicle_close(c);
}

static void speed(void **state)
{
    char path[64];
    const char *asked = getenv("CLIO_SPEED_WRITES");
    uint64_t turns = (asked ? strtoull(asked, NULL, 10) : 4000000) / 6;
    snprintf(path, sizeof path, "/tmp/test_chronicle_speed.%d", (int)getpid());
    build(path, turns);
    questions(path, turns);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(speed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
