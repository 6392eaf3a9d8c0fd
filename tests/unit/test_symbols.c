/* Names, lines and inlined calls of this very program, found under a name as in a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbols/disassemble.h"
#include "symbols/symbols.h"

long global_pair[2] = {1, 2};
long zeroed_later[3];
static void *volatile inner_address;

enum { INNER_LINE = __LINE__ + 3 };
static inline __attribute__((always_inline)) long inner(long x)
{
    __asm__ volatile("lea 0(%%rip), %0" : "=r"(inner_address));
    return x * global_pair[1];
}

enum { OUTER_LINE = __LINE__ + 2 };
__attribute__((noinline)) static long outer_function(long x)
{
    long y = inner(x + 1);
    return y ^ zeroed_later[0];
}

static char directory[64];
static struct symbols_map maps[64];
static size_t nmaps;

/* This program's maps, as the guest's would be told. */
static int setup(void **state)
{
    char path[128], line[512], exe[256] = "", name[256];
    snprintf(directory, sizeof directory, "/tmp/test_symbols.%d", (int)getpid());
    snprintf(path, sizeof path, "%s/files", directory);
    if (mkdir(directory, 0700) || mkdir(path, 0700) || readlink("/proc/self/exe", exe, sizeof exe - 1) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/files/abc", directory);
    FILE *f = fopen("/proc/self/maps", "r");
    if (symlink(exe, path) || !f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        struct symbols_map m = {.path = "/somewhere/program", .file = "abc"};
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &m.start, &m.end, &m.offset, name) == 4 &&
            !strcmp(name, exe))
            maps[nmaps++] = m;
    }
    fclose(f);
    return nmaps ? 0 : -1;
}

static int teardown(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/files/abc", directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/files", directory);
    rmdir(path);
    return rmdir(directory);
}

static const struct symbols_map *map_of(uint64_t address)
{
    for (size_t i = 0; i < nmaps; i++)
        if (address >= maps[i].start && address < maps[i].end)
            return &maps[i];
    fail_msg("0x%lx is not in this program", (unsigned long)address);
    return NULL;
}

static void function_and_line(void **state)
{
    struct symbols *s = symbols_open(directory, maps, nmaps);
    struct symbols_place p;
    uint64_t address = (uint64_t)outer_function;
    symbols_lookup(s, map_of(address), address, &p);
    assert_string_equal(p.module, "program");
    assert_int_equal(p.count, 1);
    assert_string_equal(p.frames[0].function, "outer_function");
    assert_int_equal(p.function_offset, 0);
    assert_non_null(strstr(p.frames[0].file, "test_symbols.c"));
    assert_int_equal(p.frames[0].line, OUTER_LINE);
    symbols_close(s);
}

static void inlined_call(void **state)
{
    struct symbols *s = symbols_open(directory, maps, nmaps);
    struct symbols_place p;
    outer_function(3);
    uint64_t address = (uint64_t)inner_address - 1;
    symbols_lookup(s, map_of(address), address, &p);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.frames[0].function, "inner");
    assert_int_equal(p.frames[0].line, INNER_LINE);
    assert_string_equal(p.frames[1].function, "outer_function");
    assert_int_equal(p.frames[1].line, OUTER_LINE + 1);
    assert_non_null(strstr(p.frames[1].file, "test_symbols.c"));
    assert_true(p.function_offset > 0 && p.function_offset < 100);
    symbols_close(s);
}

static void variables(void **state)
{
    struct symbols *s = symbols_open(directory, maps, nmaps);
    uint64_t address, size;
    for (size_t i = 0; i < nmaps; i++) {
        assert_true(symbols_find(s, &maps[i], "global_pair", &address, &size));
        assert_int_equal(address, (uint64_t)global_pair);
        assert_int_equal(size, sizeof global_pair);
        assert_true(symbols_find(s, &maps[i], "zeroed_later", &address, &size));
        assert_int_equal(address, (uint64_t)zeroed_later);
        assert_true(symbols_find(s, &maps[i], "outer_function", &address, &size));
        assert_int_equal(address, (uint64_t)outer_function);
        assert_false(symbols_find(s, &maps[i], "no_such_name", &address, &size));
    }
    symbols_close(s);
}

static void unknown_file(void **state)
{
    struct symbols *s = symbols_open(directory, maps, nmaps);
    struct symbols_map m = {0x1000, 0x3000, 0x2000, "/lib/libgone.so.1", "0123"};
    struct symbols_place p;
    uint64_t address, size;
    uint8_t bytes[4];
    symbols_lookup(s, &m, 0x1234, &p);
    assert_string_equal(p.module, "libgone.so.1");
    assert_int_equal(p.module_offset, 0x2234);
    assert_int_equal(p.count, 1);
    assert_null(p.frames[0].function);
    assert_false(symbols_find(s, &m, "main", &address, &size));
    assert_int_equal(symbols_bytes(s, &m, 0x1234, bytes, 4), 0);
    symbols_close(s);
}

static void instructions(void **state)
{
    static const uint8_t store[] = {0x48, 0x89, 0x02}, none[] = {0x06};
    char text[64];
    struct symbols *s = symbols_open(directory, maps, nmaps);
    uint8_t bytes[8];
    uint64_t address = (uint64_t)outer_function;
    assert_int_equal(symbols_bytes(s, map_of(address), address, bytes, sizeof bytes), sizeof bytes);
    assert_memory_equal(bytes, (void *)outer_function, sizeof bytes);
    disassemble(store, sizeof store, 0x1000, text, sizeof text);
    assert_string_equal(text, "mov %rax, (%rdx)");
    disassemble(none, sizeof none, 0x1000, text, sizeof text);
    assert_string_equal(text, "");
    symbols_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(function_and_line), cmocka_unit_test(inlined_call),
                                       cmocka_unit_test(variables), cmocka_unit_test(unknown_file),
                                       cmocka_unit_test(instructions)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
