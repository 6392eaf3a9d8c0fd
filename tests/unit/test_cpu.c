/*
 * The guest's processor over made-up hosts: what it shows, what it stores and loads, which instructions it has.
 */
// LINK: src/engine/cpu/cpuid.c src/engine/cpu/features.c src/engine/cpu/xsave.c src/engine/cpu/instructions.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "engine/cpu/instructions.h"
#include "engine/cpu/xsave.h"

/* ---- made-up hosts ---- */

enum { NEHALEM_ECX = 0x00982201, AVX_ECX = 1 << 26 | 1 << 27 | 1 << 28, HASWELL_ECX = 0x7ffafbff };
enum { HASWELL_7B = 0x000027ab, AMX_7D = 7 << 22, PKU_7C = 1 << 3 | 1 << 4 };
#define AVX512_7B 0xd1030000u

static const struct cpu_layout intel = {{[2] = 576, [5] = 1088, [6] = 1152, [7] = 1664}};
static const struct cpu_layout amd = {{[2] = 576, [5] = 832, [6] = 896, [7] = 1408}};

static const struct made_up {
    const char *name;
    int best;
    struct cpu_host host;
} hosts[] = {
    {"no XSAVE", 2, {.leaf = {[LEAF_1] = {.c = NEHALEM_ECX}, [LEAF_EXT1] = {.c = 1}}}},
    {"no AVX2",
     2,
     {.leaf = {[LEAF_1] = {.c = NEHALEM_ECX | AVX_ECX}, [LEAF_EXT1] = {.c = 1}}, .xcr0 = 7, .layout = intel}},
    {"AVX2",
     3,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX}, [LEAF_7] = {.b = HASWELL_7B}, [LEAF_EXT1] = {.c = 0x21}},
      .xcr0 = 7,
      .layout = intel}},
    {"AVX2 that the kernel has not switched on",
     2,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX}, [LEAF_7] = {.b = HASWELL_7B}, [LEAF_EXT1] = {.c = 0x21}},
      .xcr0 = 3,
      .layout = intel}},
    {"AVX2 and PKRU",
     3,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX},
               [LEAF_7] = {.b = HASWELL_7B, .c = PKU_7C},
               [LEAF_EXT1] = {.c = 0x21}},
      .xcr0 = 0x207,
      .layout = intel}},
    {"AVX-512",
     3,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX},
               [LEAF_7] = {.b = HASWELL_7B | AVX512_7B},
               [LEAF_EXT1] = {.c = 0x21}},
      .xcr0 = 0x2e7,
      .layout = intel}},
    {"AVX-512 in AMD's layout",
     3,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX},
               [LEAF_7] = {.b = HASWELL_7B | AVX512_7B},
               [LEAF_EXT1] = {.c = 0x75c237ff}},
      .xcr0 = 0x2e7,
      .layout = amd}},
    {"AMX",
     3,
     {.leaf = {[LEAF_1] = {.c = HASWELL_ECX},
               [LEAF_7] = {.b = HASWELL_7B | AVX512_7B, .d = AMX_7D},
               [LEAF_EXT1] = {.c = 0x121}},
      .xcr0 = 0x602e7,
      .layout = intel}},
};
enum { HOSTS = sizeof hosts / sizeof hosts[0] };

static struct cpu guest(int level, const char *names)
{
    struct cpu cpu;
    uint64_t features;
    char unknown[40];
    assert_true(cpu_names_parse(names, &features, unknown, sizeof unknown));
    cpu_init(&cpu, level, cpu_level_features(level) | features, false);
    return cpu;
}

/* ---- levels and features ---- */

static void test_best_level(void **state)
{
    for (int i = 0; i < HOSTS; i++)
        if (cpu_best_level(&hosts[i].host) != hosts[i].best)
            fail_msg("%s: v%d", hosts[i].name, cpu_best_level(&hosts[i].host));
}

static void test_missing(void **state)
{
    char names[CPU_NAMES_MAX];
    cpu_names(cpu_missing(cpu_level_features(4), &hosts[2].host), names, sizeof names);
    assert_string_equal(names, "avx512f,avx512dq,avx512cd,avx512bw,avx512vl");
    cpu_names(cpu_missing(cpu_level_features(4), &hosts[5].host), names, sizeof names);
    assert_string_equal(names, "");
    cpu_names(cpu_missing(cpu_level_features(3), &hosts[1].host), names, sizeof names);
    assert_string_equal(names, "fma,movbe,f16c,bmi1,avx2,bmi2,lzcnt");
    cpu_names(~0ull >> (64 - CPU_FEATURES), names, sizeof names);
    assert_true(strlen(names) < CPU_NAMES_MAX - 1);
}

/* What Clio performs itself a host need not have. */
static void test_ours(void **state)
{
    const uint64_t ours = CPU_BIT(CPU_RDRAND) | CPU_BIT(CPU_RDSEED) | CPU_BIT(CPU_RDPID);
    for (int i = 0; i < HOSTS; i++)
        assert_int_equal(cpu_missing(ours, &hosts[i].host), 0);
}

static void expect_choice(const char *text, int level, const char *features, const char *asked)
{
    struct cpu_choice c;
    char problem[200], names[CPU_NAMES_MAX];
    assert_true(cpu_choose(text, &hosts[5].host, &c, problem, sizeof problem));
    assert_int_equal(c.level, level);
    cpu_names(c.features & ~cpu_level_features(level), names, sizeof names);
    assert_string_equal(names, features);
    cpu_names(c.asked & ~cpu_level_features(level), names, sizeof names);
    assert_string_equal(names, asked);
}

static void expect_problem(const char *text, const char *part)
{
    struct cpu_choice c;
    char problem[200];
    assert_false(cpu_choose(text, &hosts[5].host, &c, problem, sizeof problem));
    if (!strstr(problem, part))
        fail_msg("%s: %s", text, problem);
}

static void test_choose(void **state)
{
    expect_choice("v1", 1, "", "");
    expect_choice("v3", 3, "aes,pclmulqdq,rdrand,rdseed,rdpid", "");
    expect_choice("3", 3, "aes,pclmulqdq,rdrand,rdseed,rdpid", "");
    expect_choice("v3-aes-rdrand", 3, "pclmulqdq,rdseed,rdpid", "");
    expect_choice("v3+sha", 3, "aes,pclmulqdq,rdrand,rdseed,rdpid,sha", "sha");
    expect_choice("v1+aes", 1, "aes", "aes");
    expect_choice("v4+avx512_vnni-aes", 4, "pclmulqdq,rdrand,rdseed,rdpid,avx512_vnni", "avx512_vnni");
    static const char *const bad[] = {"", "v", "v0", "v5", "v33", "v3 ", "haswell", "3v", "v3,aes"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(bad[i], "the levels are");
    expect_problem("v3+", "no feature");
    expect_problem("v3+amx", "amx is no feature");
    expect_problem("v2+avx2", "avx2 is part of level v3");
    expect_problem("v3-avx2", "part of level");
    expect_problem("v2+vaes", "vaes needs level v3");
    uint64_t set;
    char unknown[8];
    assert_false(cpu_names_parse("aes,flying", &set, unknown, sizeof unknown));
    assert_string_equal(unknown, "flying");
}

/* ---- CPUID ---- */

static void test_identity(void **state)
{
    for (int level = 1; level <= CPU_LEVEL_MAX; level++) {
        struct cpu cpu = guest(level, "");
        struct cpu_leaf l = cpu_id(&cpu, 0, 0), one = cpu_id(&cpu, 1, 0), brand = cpu_id(&cpu, 0x80000002, 0);
        assert_memory_equal(&l.b, "Genu", 4);
        assert_memory_equal(&l.d, "ineI", 4);
        assert_memory_equal(&l.c, "ntel", 4);
        assert_memory_equal(&brand, "Clio x86-64-v", 13);
        assert_int_equal(one.d, cpu_hwcap());
        assert_int_equal(one.c >> 31, 0);        /* no hypervisor */
        assert_int_equal(one.c & 1 << 3, 0);     /* no monitor */
        assert_int_equal(one.b >> 16 & 0xff, 1); /* one processor */
        assert_int_equal(one.b >> 24, 0);        /* of number 0 */
        assert_int_equal(!!(one.c & 1 << 27), level >= 3);
        for (uint32_t leaf = 0x40000000; leaf < 0x40000010; leaf++) {
            l = cpu_id(&cpu, leaf, 0);
            assert_int_equal(l.a | l.b | l.c | l.d, 0);
        }
        assert_int_equal(cpu_id(&cpu, 7, 0).b & (1 | 1 << 4 | 1 << 11), 0);     /* FSGSBASE, HLE, RTM */
        assert_int_equal(cpu_id(&cpu, 7, 0).c & (PKU_7C | 1 << 5 | 1 << 7), 0); /* WAITPKG, CET */
        assert_int_equal(cpu_id(&cpu, 7, 0).d & AMX_7D, 0);
        assert_int_equal(cpu_id(&cpu, 0x80000000, 0).a, 0x80000008);
    }
}

/* The bits of the psABI's levels. */
static void test_level_bits(void **state)
{
    static const struct {
        uint32_t leaf1c, leaf7b, ext1c;
    } want[] = {{0, 0, 0},
                {0, 0, 0},
                {0x00982201, 0, 1},
                {0x3cd83201, 0x328, 0x121},
                {0x3cd83201, 0xd0030328, 0x121}};
    for (int level = 1; level <= CPU_LEVEL_MAX; level++) {
        struct cpu cpu = guest(level, "");
        assert_int_equal(cpu_id(&cpu, 1, 0).c, want[level].leaf1c);
        assert_int_equal(cpu_id(&cpu, 7, 0).b, want[level].leaf7b);
        assert_int_equal(cpu_id(&cpu, 0x80000001, 0).c, want[level].ext1c);
    }
    struct cpu cpu = guest(3, "sha,aes,gfni,avx_vnni,clzero,sse4a,serialize");
    assert_int_equal(cpu_id(&cpu, 1, 0).c, 0x3cd83201 | 1 << 25);
    assert_int_equal(cpu_id(&cpu, 7, 0).b, 0x328 | 1 << 29);
    assert_int_equal(cpu_id(&cpu, 7, 0).c, 1 << 8);
    assert_int_equal(cpu_id(&cpu, 7, 0).d, 1 << 14);
    assert_int_equal(cpu_id(&cpu, 7, 1).a, 1 << 4);
    assert_int_equal(cpu_id(&cpu, 0x80000001, 0).c, 0x121 | 1 << 6);
    assert_int_equal(cpu_id(&cpu, 0x80000008, 0).b, 1);
}

static void test_xsave_leaves(void **state)
{
    static const struct {
        uint32_t xcr0, size, compact, frame, stack;
    } want[] = {{0, 0, 0, 0, 0},
                {0, 512, 576, 512, 1440},
                {0, 512, 576, 512, 1440},
                {7, 832, 832, 836, 1776},
                {0xe7, 2688, 2432, 2692, 3632}};
    for (int level = 1; level <= CPU_LEVEL_MAX; level++) {
        struct cpu cpu = guest(level, "");
        struct cpu_leaf d = cpu_id(&cpu, 0xd, 0), d1 = cpu_id(&cpu, 0xd, 1);
        uint64_t value;
        assert_int_equal(cpu.xcr0, want[level].xcr0);
        assert_int_equal(d.a, want[level].xcr0);
        assert_int_equal(d.b, want[level].xcr0 ? want[level].size : 0);
        assert_int_equal(d.c, d.b);
        assert_int_equal(d1.b, want[level].xcr0 ? want[level].compact : 0);
        assert_int_equal(d1.a, want[level].xcr0 ? 15 : 0);
        assert_int_equal(xsave_frame_size(&cpu), want[level].frame);
        assert_int_equal(cpu_minimal_stack(&cpu), want[level].stack);
        for (uint32_t sub = 2; sub < 64; sub++) {
            struct cpu_leaf c = cpu_id(&cpu, 0xd, sub);
            assert_int_equal(!!c.a, sub < 8 && (cpu.xcr0 >> sub & 1));
            assert_true(c.a + c.b <= want[level].size);
        }
        assert_true(cpu_xgetbv(&cpu, 0, &value) && value == want[level].xcr0);
        assert_true(cpu_xgetbv(&cpu, 1, &value) && value == want[level].xcr0);
        assert_false(cpu_xgetbv(&cpu, 2, &value));
    }
}

/* ---- areas ---- */

struct host_state {
    _Alignas(64) uint8_t area[4096];
    struct xsave_state state;
};

/* The same values as a host of that layout keeps them; `used`: what it says is in use. */
static void fill(struct host_state *h, const struct cpu_layout *layout, uint64_t used)
{
    static const uint32_t sizes[] = {0, 0, 256, 0, 0, 64, 512, 1024};
    memset(h->area, 0xee, sizeof h->area); /* of what is not in use nothing may be seen */
    h->state = (struct xsave_state){h->area, layout};
    memset(h->area + 512, 0, 64);
    memcpy(h->area + 512, &used, 8);
    memcpy(h->area + 24, &(uint32_t){0x5fa0}, 4);
    for (int i = 0; i < 160; i++)
        if ((used & 1) && !(i >= 24 && i < 32))
            h->area[i] = (uint8_t)(i + 1);
    for (int i = 0; (used & 2) && i < 256; i++)
        h->area[160 + i] = (uint8_t)(i * 3);
    for (int c = 2; c < 8; c++)
        for (uint32_t i = 0; (used >> c & 1) && i < sizes[c]; i++)
            h->area[layout->offset[c] + i] = (uint8_t)(i * 5 + (uint32_t)c);
}

static void store(const struct cpu *cpu, const struct host_state *h, enum xsave_form form, uint64_t asked,
                  uint8_t *to)
{
    struct xsave_image image;
    uint64_t old;
    memset(&image, 0x77, sizeof image);
    memcpy(&old, to + 512, 8);
    struct x87_pointers p = {0x1234567890, 0x9876543210, 0x3ff};
    xsave_store(cpu, &h->state, form, asked, true, old, &p, &image);
    for (unsigned i = 0; i < image.count; i++) {
        assert_true(image.parts[i].offset + image.parts[i].size <=
                    (form == FORM_FXSAVE ? 512 : cpu->area_size));
        memcpy(to + image.parts[i].offset, image.bytes + image.parts[i].offset, image.parts[i].size);
    }
}

static uint64_t word(const uint8_t *at)
{
    uint64_t w;
    memcpy(&w, at, 8);
    return w;
}

/* Whatever the layout, whatever is asked, the guest sees its own. */
static void test_store(void **state)
{
    struct host_state a, b;
    for (int level = 3; level <= 4; level++) {
        struct cpu cpu = guest(level, "");
        for (uint64_t asked = 0; asked < 0x800; asked++) {
            for (int form = FORM_STANDARD; form <= FORM_COMPACT; form++) {
                uint8_t one[XSAVE_MAX], two[XSAVE_MAX];
                memset(one, 0x5a, sizeof one);
                memset(one + 512, 0, 64);
                memcpy(two, one, sizeof two);
                fill(&a, &intel, 0xe7);
                fill(&b, &amd, 0x2e7);
                store(&cpu, &a, form, asked | ~0x7ffull, one);
                store(&cpu, &b, form, asked, two);
                assert_memory_equal(one, two, sizeof one);
                uint64_t stored = asked & cpu.xcr0;
                assert_int_equal(word(one + 512), stored);
                assert_int_equal(word(one + 520), form == FORM_COMPACT ? stored | 1ull << 63 : 0);
                for (uint32_t i = cpu.area_size; i < sizeof one; i++)
                    assert_int_equal(one[i], 0x5a);
            }
        }
    }
}

/* A component that the host's bookkeeping leaves out is stored in its initial state; others keep what the area says. */
static void test_initial(void **state)
{
    struct host_state h;
    struct cpu cpu = guest(3, "");
    uint8_t area[XSAVE_MAX];
    fill(&h, &intel, 0);
    memset(area, 0x5a, sizeof area);
    memset(area + 512, 0, 64);
    area[512] = 4;
    store(&cpu, &h, FORM_STANDARD, 3, area);
    assert_int_equal(area[512], 7);
    assert_int_equal(word(area) & 0xffffffffffff, 0x37f);
    assert_int_equal(word(area + 24), 0xffff00005fa0);
    for (int i = 32; i < 416; i++)
        assert_int_equal(area[i], 0);
    for (int i = 576; i < 832; i++)
        assert_int_equal(area[i], 0x5a);
    assert_int_equal(area[416], 0x5a);
    assert_int_equal(area[464], 0x5a);
}

static void test_pointers(void **state)
{
    struct host_state h;
    struct cpu cpu = guest(3, "");
    struct xsave_image image;
    fill(&h, &intel, 3);
    struct x87_pointers p = {0x1234567890, 0x9876543210, 0x3ff};
    xsave_store(&cpu, &h.state, FORM_FXSAVE, 0, false, 0, &p, &image);
    assert_int_equal(word(image.bytes + 8), 0x34567890);
    assert_int_equal(word(image.bytes + 16), 0x76543210);
    xsave_store(&cpu, &h.state, FORM_FXSAVE, 0, true, 0, &p, &image);
    assert_int_equal(word(image.bytes + 8), 0x1234567890);
    assert_int_equal(word(image.bytes + 16), 0x9876543210);
    assert_int_equal(image.bytes[6] | image.bytes[7] << 8, 0x3ff);
    fill(&h, &intel, 2);
    p = xsave_x87_pointers(&h.state);
    assert_int_equal(p.instruction | p.operand | p.opcode, 0);
}

/* Stored and loaded again, into a host of the other layout. */
static void test_load(void **state)
{
    struct cpu cpu = guest(4, "");
    for (int form = FORM_FXSAVE; form <= FORM_COMPACT; form++) {
        struct host_state a, b;
        struct xsave_image image = {0};
        bool fx = form == FORM_FXSAVE;
        fill(&a, &intel, 0xe7);
        fill(&b, &amd, fx ? 0xe7 : 0);
        for (int i = 0; i < 8; i++)
            memset(a.area + 32 + 16 * i + 10, 0, 6);
        store(&cpu, &a, form, 0xe7, image.bytes);
        assert_true(xsave_plan_load(&cpu, fx, ~0ull, &image));
        assert_int_equal(image.count, fx ? 0 : 4);
        xsave_load(&cpu, &b.state, fx, ~0ull, true, &image);
        assert_int_equal(word(b.area + 512), 0xe7);
        assert_memory_equal(a.area + 24, b.area + 24, 4);
        assert_memory_equal(a.area + 32, b.area + 32, 128);
        for (unsigned c = 1; c < 8; c++) {
            uint8_t one[1024], two[1024];
            if (c == 3 || c == 4)
                continue;
            xsave_component(&a.state, c, one);
            xsave_component(&b.state, c, two);
            assert_memory_equal(one, two, c == 1 ? 256 : xsave_component_size(c));
        }
    }
}

static void test_load_parts(void **state)
{
    struct cpu cpu = guest(3, "");
    struct host_state h;
    struct xsave_image image = {0};
    uint8_t zero[256] = {0}, now[256];
    fill(&h, &intel, 7);
    memcpy(image.bytes + 24, &(uint32_t){0x3f80}, 4);
    image.bytes[512] = 1; /* SSE and AVX are asked for and not there: they become initial; MXCSR is taken */
    assert_true(xsave_plan_load(&cpu, false, 6, &image));
    assert_int_equal(image.count, 1);
    xsave_load(&cpu, &h.state, false, 6, true, &image);
    assert_int_equal(word(h.area + 512), 1);
    assert_int_equal(word(h.area + 24) & 0xffffffff, 0x3f80);
    xsave_component(&h.state, 1, now);
    assert_memory_equal(now, zero, 256);
    xsave_component(&h.state, 2, now);
    assert_memory_equal(now, zero, 256);
    memcpy(image.bytes + 520, &(uint64_t){7 | 1ull << 63}, 8); /* compacted: MXCSR becomes initial, too */
    xsave_load(&cpu, &h.state, false, 6, true, &image);
    assert_int_equal(word(h.area + 24) & 0xffffffff, 0x1f80);
}

static bool takes(const struct cpu *cpu, uint64_t present, uint64_t form, int at, uint8_t byte,
                  uint64_t asked)
{
    struct xsave_image image = {0};
    memcpy(image.bytes + 24, &(uint32_t){0x1f80}, 4);
    memcpy(image.bytes + 512, &present, 8);
    memcpy(image.bytes + 520, &form, 8);
    if (at)
        image.bytes[at] = byte;
    return xsave_plan_load(cpu, false, asked, &image);
}

static void test_header_rules(void **state)
{
    const uint64_t compact = 1ull << 63;
    struct cpu v3 = guest(3, ""), v4 = guest(4, "");
    assert_true(takes(&v3, 7, 0, 0, 0, 7));
    assert_true(takes(&v3, 0, 0, 0, 0, 0));
    assert_false(takes(&v3, 0x20, 0, 0, 0, 0));
    assert_true(takes(&v4, 0x20, 0, 0, 0, 0));
    assert_false(takes(&v4, 0x200, 0, 0, 0, 0));
    assert_false(takes(&v3, 7, 7, 0, 0, 7));
    assert_false(takes(&v3, 7, 0, 528, 1, 7));
    assert_true(takes(&v3, 7, 0, 536, 1, 7)); /* only bytes 8 to 23 of the header count */
    assert_true(takes(&v3, 3, compact | 7, 0, 0, 7));
    assert_false(takes(&v3, 7, compact | 3, 0, 0, 7));
    assert_false(takes(&v3, 3, compact | 0x27, 0, 0, 7));
    assert_true(takes(&v4, 3, compact | 0x27, 0, 0, 7));
    assert_false(takes(&v3, 3, compact | 7, 536, 1, 7));
    assert_false(takes(&v3, 3, compact | 7, 575, 1, 7));
    assert_false(takes(&v3, 7, 0, 26, 2, 7)); /* MXCSR bit 17 is some processors' own */
    assert_false(takes(&v3, 0, 0, 26, 2, 4)); /* which counts although only AVX is asked for */
    assert_true(takes(&v3, 7, 0, 26, 2, 1));
    assert_true(takes(&v3, 4, compact | 7, 26, 2, 6));
    assert_false(takes(&v3, 6, compact | 7, 26, 2, 6));
}

static void test_frames(void **state)
{
    for (int level = 1; level <= CPU_LEVEL_MAX; level++) {
        struct cpu cpu = guest(level, "");
        struct host_state a, b;
        struct xsave_image image;
        struct x87_pointers p = {0x1234, 0, 0};
        uint32_t magic;
        fill(&a, &intel, 0xe7);
        fill(&b, &amd, 0xe7);
        xsave_frame_store(&cpu, &a.state, &p, &image);
        uint32_t size = xsave_frame_extended(&cpu, image.bytes);
        assert_int_equal(size, level >= 3 ? cpu.area_size : 0);
        memcpy(&magic, image.bytes + 464, 4);
        assert_int_equal(magic, level >= 3 ? 0x46505853 : 0);
        assert_int_equal(word(image.bytes + 512), cpu.xcr0);
        if (size) {
            memcpy(&magic, image.bytes + size, 4);
            assert_int_equal(magic, XSAVE_MAGIC2);
        }
        assert_true(xsave_frame_load(&cpu, &b.state, size ? size : XSAVE_LEGACY, &image));
        uint8_t one[1024], two[1024];
        for (unsigned c = 1; c < 8; c++)
            if ((cpu.xcr0 ? cpu.xcr0 : 3) >> c & 1) {
                xsave_component(&a.state, c, one);
                xsave_component(&b.state, c, two);
                assert_memory_equal(one, two, c == 1 ? 256 : xsave_component_size(c));
            }
        image.bytes[26] = 2;
        assert_false(xsave_frame_load(&cpu, &b.state, size ? size : XSAVE_LEGACY, &image));
    }
}

/* A frame larger than the guest's area, or without the magic number, counts as far as its legacy region. */
static void test_bad_frames(void **state)
{
    struct cpu cpu = guest(3, ""), more = guest(4, "");
    struct host_state h;
    struct xsave_image image;
    struct x87_pointers p = {0};
    fill(&h, &intel, 7);
    xsave_frame_store(&more, &h.state, &p, &image);
    assert_int_equal(xsave_frame_extended(&cpu, image.bytes), 0);
    xsave_frame_store(&cpu, &h.state, &p, &image);
    image.bytes[464] ^= 1;
    assert_int_equal(xsave_frame_extended(&cpu, image.bytes), 0);
    image.bytes[464] ^= 1;
    image.bytes[512] |= 8;
    assert_false(xsave_frame_load(&cpu, &h.state, 832, &image));
}

/* ---- instructions ---- */

struct sample {
    const char *name;
    char bytes[8];
    int level;            /* the lowest that has it; 0: none */
    const char *features; /* or these */
    int class;
};

static const struct sample samples[] = {
    {"addsd", "\xf2\x0f\x58\xc1", 1, "", CLASS_PLAIN},
    {"cmpxchg8b", "\x0f\xc7\x0f", 1, "", CLASS_PLAIN},
    {"cmpxchg16b", "\x48\x0f\xc7\x0f", 2, "", CLASS_PLAIN},
    {"pshufb", "\x66\x0f\x38\x00\xc1", 2, "", CLASS_PLAIN},
    {"lahf", "\x9f", 2, "", CLASS_PLAIN},
    {"popcnt", "\xf3\x0f\xb8\xc1", 2, "", CLASS_PLAIN},
    {"crc32", "\xf2\x0f\x38\xf1\xc1", 2, "", CLASS_PLAIN},
    {"vaddps ymm", "\xc5\xf4\x58\xc2", 3, "", CLASS_PLAIN},
    {"vpaddd ymm", "\xc5\xf5\xfe\xc2", 3, "", CLASS_PLAIN},
    {"vfmadd231ps", "\xc4\xe2\x75\xb8\xc2", 3, "", CLASS_PLAIN},
    {"vgatherdps", "\xc4\xe2\x6d\x92\x04\x08", 3, "", CLASS_PLAIN},
    {"andn", "\xc4\xe2\x70\xf2\xc2", 3, "", CLASS_PLAIN},
    {"pdep", "\xc4\xe2\x73\xf5\xc2", 3, "", CLASS_PLAIN},
    {"movbe", "\x0f\x38\xf0\x07", 3, "", CLASS_PLAIN},
    {"vaddps zmm", "\x62\xf1\x74\x48\x58\xc2", 4, "", CLASS_PLAIN},
    {"vpxord ymm16", "\x62\xa1\x7d\x20\xef\xc0", 4, "", CLASS_PLAIN},
    {"vpconflictd", "\x62\xf2\x7d\x48\xc4\xc1", 4, "", CLASS_PLAIN},
    {"kmovw", "\xc5\xf8\x92\xc8", 4, "", CLASS_PLAIN},
    {"vpdpbusd zmm", "\x62\xf2\x75\x48\x50\xc2", 0, "avx512_vnni", CLASS_PLAIN},
    {"vpdpbusd vex", "\xc4\xe2\x75\x50\xc2", 0, "avx_vnni", CLASS_PLAIN},
    {"vaddph", "\x62\xf5\x74\x48\x58\xc2", 0, "avx512_fp16", CLASS_PLAIN},
    {"tdpbssd", "\xc4\xe2\x73\x5e\xc2", 0, NULL, CLASS_PLAIN},
    {"tilerelease", "\xc4\xe2\x78\x49\xc0", 0, NULL, CLASS_PLAIN},
    {"aesenc", "\x66\x0f\x38\xdc\xc1", 0, "aes", CLASS_PLAIN},
    {"vaesenc xmm", "\xc4\xe2\x71\xdc\xc2", 0, "aes", CLASS_PLAIN},
    {"vaesenc ymm", "\xc4\xe2\x75\xdc\xc2", 0, "vaes", CLASS_PLAIN},
    {"pclmulqdq", "\x66\x0f\x3a\x44\xc1\x00", 0, "pclmulqdq", CLASS_PLAIN},
    {"sha256rnds2", "\x0f\x38\xcb\xc1", 0, "sha", CLASS_PLAIN},
    {"adcx", "\x66\x0f\x38\xf6\xc1", 0, "adx", CLASS_PLAIN},
    {"clwb", "\x66\x0f\xae\x37", 0, "clwb", CLASS_PLAIN},
    {"clzero", "\x0f\x01\xfc", 0, "clzero", CLASS_PLAIN},
    {"extrq", "\x66\x0f\x79\xc1", 0, "sse4a", CLASS_PLAIN},
    {"serialize", "\x0f\x01\xe8", 0, "serialize", CLASS_PLAIN},
    {"rdpru", "\x0f\x01\xfd", 0, NULL, CLASS_PLAIN},
    {"rdpkru", "\x0f\x01\xee", 0, NULL, CLASS_PLAIN},
    {"wrpkru", "\x0f\x01\xef", 0, NULL, CLASS_PLAIN},
    {"tpause", "\x66\x0f\xae\xf1", 0, NULL, CLASS_PLAIN},
    {"umwait", "\xf2\x0f\xae\xf1", 0, NULL, CLASS_PLAIN},
    {"umonitor", "\xf3\x0f\xae\xf1", 0, NULL, CLASS_PLAIN},
    {"monitorx", "\x0f\x01\xfa", 0, NULL, CLASS_PLAIN},
    {"mwaitx", "\x0f\x01\xfb", 0, NULL, CLASS_PLAIN},
    {"enqcmd", "\xf2\x0f\x38\xf8\x07", 0, NULL, CLASS_PLAIN},
    {"senduipi", "\xf3\x0f\xc7\xf1", 0, NULL, CLASS_PLAIN},
    {"vmcall", "\x0f\x01\xc1", 0, NULL, CLASS_PLAIN},
    {"vmmcall", "\x0f\x01\xd9", 0, NULL, CLASS_PLAIN},
    {"enclu", "\x0f\x01\xd7", 0, NULL, CLASS_PLAIN},
    {"ptwrite", "\xf3\x0f\xae\xe1", 0, NULL, CLASS_PLAIN},
    {"endbr64", "\xf3\x0f\x1e\xfa", 1, "", CLASS_PLAIN},
    {"rdsspq", "\xf3\x48\x0f\x1e\xc8", 1, "", CLASS_PLAIN},
    {"incsspq", "\xf3\x48\x0f\xae\xe8", 1, "", CLASS_UNDEFINED},
    {"cldemote", "\x0f\x1c\x07", 1, "", CLASS_PLAIN},
    {"prefetchw", "\x0f\x0d\x0f", 1, "", CLASS_PLAIN},
    {"bndmk", "\xf3\x0f\x1b\x07", 1, "", CLASS_PLAIN},
    {"int1", "\xf1", 1, "", CLASS_PLAIN},
    {"syscall", "\x0f\x05", 1, "", CLASS_SYSCALL},
    {"rdtsc", "\x0f\x31", 1, "", CLASS_RECORDED},
    {"rdtscp", "\x0f\x01\xf9", 1, "", CLASS_RECORDED},
    {"cpuid", "\x0f\xa2", 1, "", CLASS_RECORDED},
    {"lsl", "\x0f\x03\xc1", 1, "", CLASS_RECORDED},
    {"lar", "\x0f\x02\xc1", 1, "", CLASS_RECORDED},
    {"verr", "\x0f\x00\xe1", 1, "", CLASS_RECORDED},
    {"xgetbv", "\x0f\x01\xd0", 3, "", CLASS_RECORDED},
    {"rdrand", "\x0f\xc7\xf1", 0, "rdrand", CLASS_RECORDED},
    {"rdseed", "\x0f\xc7\xf9", 0, "rdseed", CLASS_RECORDED},
    {"rdpid", "\xf3\x0f\xc7\xf9", 0, "rdpid", CLASS_RECORDED},
    {"xsave", "\x0f\xae\x27", 3, "", CLASS_PERFORMED},
    {"xsaveopt64", "\x48\x0f\xae\x37", 3, "", CLASS_PERFORMED},
    {"xsavec64", "\x48\x0f\xc7\x27", 3, "", CLASS_PERFORMED},
    {"xrstor", "\x0f\xae\x2f", 3, "", CLASS_PERFORMED},
    {"xsaves", "\x0f\xc7\x2f", 3, "", CLASS_GENERAL},
    {"fxsave64", "\x48\x0f\xae\x07", 1, "", CLASS_PERFORMED},
    {"fxrstor", "\x0f\xae\x0f", 1, "", CLASS_PERFORMED},
    {"fnstenv", "\xd9\x37", 1, "", CLASS_X87_STORE},
    {"fnsave", "\xdd\x37", 1, "", CLASS_X87_STORE},
    {"sgdt", "\x0f\x01\x07", 1, "", CLASS_PERFORMED},
    {"sidt", "\x0f\x01\x0f", 1, "", CLASS_PERFORMED},
    {"sldt", "\x0f\x00\xc0", 1, "", CLASS_PERFORMED},
    {"str", "\x0f\x00\xc8", 1, "", CLASS_PERFORMED},
    {"smsw", "\x0f\x01\xe0", 1, "", CLASS_PERFORMED},
    {"iretq", "\x48\xcf", 1, "", CLASS_PERFORMED},
    {"in", "\xec", 1, "", CLASS_GENERAL},
    {"rdpmc", "\x0f\x33", 1, "", CLASS_GENERAL},
    {"xbegin", "\xc7\xf8\x00\x00\x00\x00", 0, NULL, CLASS_UNDEFINED},
    {"sysenter", "\x0f\x34", 1, "", CLASS_REFUSED},
    {"wrgsbase", "\xf3\x0f\xae\xd9", 1, "", CLASS_REFUSED},
    {"tzcnt", "\xf3\x0f\xbc\xc1", 3, "", CLASS_BIT_SCAN},
    {"lzcnt", "\xf3\x0f\xbd\xc1", 3, "", CLASS_BIT_SCAN},
};

static void decode(const struct sample *s, ZydisDecodedInstruction *z)
{
    ZydisDecoder decoder;
    uint8_t bytes[16] = {0};
    memcpy(bytes, s->bytes, 8);
    assert_true(ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)));
    if (ZYAN_FAILED(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes, sizeof bytes, z)))
        fail_msg("%s does not decode", s->name);
}

static bool has(int level, const char *features, unsigned set)
{
    bool allowed[ZYDIS_ISA_SET_MAX_VALUE + 1];
    struct cpu cpu = guest(level, features);
    cpu_allowed(&cpu, allowed);
    return allowed[set];
}

static void test_instructions(void **state)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        ZydisDecodedInstruction z;
        decode(s, &z);
        if (cpu_insns[z.mnemonic].class != s->class)
            fail_msg("%s: class %d", s->name, cpu_insns[z.mnemonic].class);
        for (int level = 1; level <= CPU_LEVEL_MAX; level++)
            if (has(level, "", z.meta.isa_set) != (s->level && level >= s->level))
                fail_msg("%s at v%d", s->name, level);
        if (s->features && *s->features && !has(4, s->features, z.meta.isa_set))
            fail_msg("%s with %s", s->name, s->features);
    }
}

/* A trace that recorded no features: everything runs as the host has it. */
static void test_old(void **state)
{
    struct cpu cpu;
    bool allowed[ZYDIS_ISA_SET_MAX_VALUE + 1];
    cpu_init(&cpu, 2, cpu_level_features(2), true);
    cpu_allowed(&cpu, allowed);
    for (unsigned i = 0; i <= ZYDIS_ISA_SET_MAX_VALUE; i++)
        assert_true(allowed[i]);
    assert_int_equal(cpu.area_size, 832);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_level),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_ours),         cmocka_unit_test(test_choose),
        cmocka_unit_test(test_identity),     cmocka_unit_test(test_level_bits),
        cmocka_unit_test(test_xsave_leaves), cmocka_unit_test(test_store),
        cmocka_unit_test(test_initial),      cmocka_unit_test(test_pointers),
        cmocka_unit_test(test_load),         cmocka_unit_test(test_load_parts),
        cmocka_unit_test(test_header_rules), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_bad_frames),   cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
