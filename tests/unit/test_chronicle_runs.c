/* The external sort behind a chronicle's index, with so little memory that it merges on every level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "chronicle/runs.h"
#include "chronicle/format.h"

struct pairs {
    uint64_t (*list)[2];
    uint64_t count, next;
};

static uint64_t seed = 88172645463325252ull;
static uint64_t draw(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

static int by_pair(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : x[1] < y[1] ? -1 : x[1] > y[1];
}

/* What runs must hold for a write, by another way: granule by granule, joined where pieces grow. */
static void expect(struct pairs *p, uint64_t address, uint64_t length, uint64_t ordinal)
{
    while (length) {
        uint64_t size;
        unsigned code = piece_first(address, length, &size);
        uint64_t start, extent, key = key_of(address, code);
        key_extent(key, &start, &extent);
        assert_int_equal(start, address);
        assert_int_equal(extent, size);
        assert_true(size <= length && (size < 8 || (!(size & (size - 1)) && !(address & (size - 1)))));
        p->list[p->count][0] = key;
        p->list[p->count++][1] = ordinal;
        address += size;
        length -= size;
    }
}

static int check(void *context, uint64_t key, uint64_t ordinal)
{
    struct pairs *p = context;
    assert_true(p->next < p->count);
    assert_int_equal(key, p->list[p->next][0]);
    assert_int_equal(ordinal, p->list[p->next][1]);
    p->next++;
    return 0;
}

static void sorted(uint32_t limit, uint64_t writes, uint64_t spread)
{
    struct runs r;
    struct pairs p = {.list = malloc(writes * 200 * sizeof *p.list)};
    assert_int_equal(runs_init(&r, "/tmp"), 0);
    r.limit = limit;
    uint64_t ordinal = 0;
    for (uint64_t i = 0; i < writes; i++) {
        uint64_t address = 0x1000 + draw(spread), length = 1 + draw(draw(20) ? 16 : 100000);
        if (draw(1000) == 0)
            ordinal += 3ull << 30; /* farther than a pair in memory can say */
        assert_int_equal(runs_add(&r, address, length, ordinal), 0);
        expect(&p, address, length, ordinal++);
    }
    qsort(p.list, p.count, sizeof *p.list, by_pair);
    assert_int_equal(runs_finish(&r, check, &p), 0);
    assert_int_equal(p.next, p.count);
    runs_free(&r);
    free(p.list);
}

static void in_memory(void **state)
{
    sorted(RUNS_PAIRS, 0, 1);
    sorted(RUNS_PAIRS, 1, 1);
    sorted(RUNS_PAIRS, 20000, 1 << 16);
}

static void many_runs(void **state)
{
    sorted(7, 20000, 1 << 14); /* thousands of runs: three levels */
    sorted(1000, 30000, 1ull << 40);
}

static void many_pages(void **state)
{
    sorted(RUNS_PAIRS, 150000, 1ull << 50);
}

static int refuse(void *context, uint64_t key, uint64_t ordinal)
{
    return -28;
}

static void errors_come_back(void **state)
{
    struct runs r;
    assert_int_equal(runs_init(&r, "/nonexistent"), 0);
    assert_int_equal(runs_add(&r, 0x1000, 8, 0), 0);
    assert_int_equal(runs_finish(&r, refuse, NULL), -2);
    runs_free(&r);
    assert_int_equal(runs_init(&r, "/tmp"), 0);
    assert_int_equal(runs_add(&r, 0x1000, 8, 0), 0);
    assert_int_equal(runs_finish(&r, refuse, NULL), -28);
    runs_free(&r);
}

static void codes(void **state)
{
    unsigned next = 0;
    for (unsigned start = 0; start < 8; start++)
        for (unsigned length = 1; length <= 8 - start; length++) {
            uint64_t at, size;
            assert_int_equal(code_of_part(start, length), next);
            key_extent(key_of(0x12345678 & ~7ull, next++), &at, &size);
            assert_int_equal(at, (0x12345678 & ~7ull) + start);
            assert_int_equal(size, length);
        }
    assert_int_equal(next, CODE_PARTS);
    assert_int_equal(code_of_level(54), CODE_LARGEST);
    assert_true(CODE_LARGEST < 128);
}

static void numbers(void **state)
{
    uint8_t bytes[16];
    for (int i = 0; i < 10000; i++) {
        uint64_t v = draw(UINT64_MAX) >> draw(64), back = 0;
        uint8_t *end = varint_put(bytes, v);
        assert_ptr_equal(varint_get(bytes, end, &back), end);
        assert_int_equal(back, v);
        assert_null(varint_get(bytes, end - 1, &back));
        assert_int_equal(unzigzag(zigzag(v)), v);
        assert_int_equal(unzigzag(zigzag(-v)), -v);
    }
    memset(bytes, 0xff, sizeof bytes);
    uint64_t v;
    assert_null(varint_get(bytes, bytes + sizeof bytes, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes),      cmocka_unit_test(numbers),
                                       cmocka_unit_test(in_memory),  cmocka_unit_test(many_runs),
                                       cmocka_unit_test(many_pages), cmocka_unit_test(errors_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
