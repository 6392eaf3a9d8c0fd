/*
 * cpuid.c: what the guest's CPUID answers: a fixed table per level and features. See cpu.h.
 *
 * The identity is a made-up one that shows libraries which know processors by name the generation of the level: Nehalem for
 * v1 and v2, Haswell for v3, Skylake for v4. One logical processor; caches of common sizes, for libraries that derive block
 * sizes from them. TSX, FSGSBASE, protection keys, shadow stacks and the hypervisor's leaves are at no level.
 */
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/features.h"
#include "engine/cpu/xsave.h"

enum {
    MAX_BASIC = 0xd,
    SSE2_EDX = 0x078bfbff, /* FPU to SSE2: what every x86-64 has */
    ERMS = 1 << 9,
    EXT1_EDX = 1 << 11 | 1 << 20 | 1 << 27 | 1 << 29, /* SYSCALL NX RDTSCP LM */
    PREFETCHW = 1 << 8,
    OSXSAVE = 1 << 27,
    INVARIANT_TSC = 1 << 8
};
#define MAX_EXTENDED 0x80000008u

static const uint32_t signatures[CPU_LEVEL_MAX + 1] = {0, 0x106a5, 0x106a5, 0x306c3, 0x50654};

static struct cpu_leaf vendor(uint32_t max)
{
    static const char name[] = "GenuineIntel";
    struct cpu_leaf r = {.a = max};
    memcpy(&r.b, name, 4);
    memcpy(&r.d, name + 4, 4);
    memcpy(&r.c, name + 8, 4);
    return r;
}

/* The bits of all features that lie in this leaf. */
static struct cpu_leaf features_in(const struct cpu *cpu, enum cpu_leaf_id id)
{
    struct cpu_leaf r = {0};
    for (int i = 0; i < CPU_FEATURES; i++)
        if (cpu_rows[i].leaf == id && (cpu->features & CPU_BIT(i)))
            *cpu_register(&r, cpu_rows[i].reg) |= 1u << cpu_rows[i].bit;
    return r;
}

static struct cpu_leaf leaf_1(const struct cpu *cpu)
{
    struct cpu_leaf r = features_in(cpu, LEAF_1);
    r.a = signatures[cpu->level];
    r.b = 8 << 8 | 1 << 16; /* CLFLUSH of 64 bytes; one logical processor */
    r.c |= cpu->xcr0 ? OSXSAVE : 0;
    r.d = SSE2_EDX;
    return r;
}

static struct cpu_leaf cache(uint32_t type, uint32_t level, uint32_t ways, uint32_t sets, uint32_t how)
{
    const uint32_t self_initialising = 1 << 8, line = 64;
    return (struct cpu_leaf){type | level << 5 | self_initialising, (ways - 1) << 22 | (line - 1), sets - 1,
                             how};
}

static struct cpu_leaf leaf_4(uint32_t sub)
{
    enum { DATA = 1, CODE, UNIFIED, INCLUSIVE = 6 };
    switch (sub) {
    case 0:
        return cache(DATA, 1, 8, 64, 0); /* 32 KiB */
    case 1:
        return cache(CODE, 1, 8, 64, 0);
    case 2:
        return cache(UNIFIED, 2, 8, 512, 0); /* 256 KiB */
    case 3:
        return cache(UNIFIED, 3, 16, 8192, INCLUSIVE); /* 8 MiB */
    default:
        return (struct cpu_leaf){0};
    }
}

static struct cpu_leaf leaf_7(const struct cpu *cpu, uint32_t sub)
{
    struct cpu_leaf r = {0};
    if (sub == 0) {
        r = features_in(cpu, LEAF_7);
        r.a = 1;
        r.b |= cpu->level >= 3 ? ERMS : 0;
    } else if (sub == 1) {
        r = features_in(cpu, LEAF_7_1);
    }
    return r;
}

static struct cpu_leaf leaf_b(uint32_t sub)
{
    static const struct cpu_leaf levels[] = {{0, 1, 0x100, 0}, {0, 1, 0x201, 0}}; /* thread, core */
    return sub < 2 ? levels[sub] : (struct cpu_leaf){.c = sub & 0xff};
}

static struct cpu_leaf leaf_d(const struct cpu *cpu, uint32_t sub)
{
    enum { XSAVEOPT_XSAVEC_XGETBV1_XSAVES = 15 };
    if (!cpu->xcr0)
        return (struct cpu_leaf){0};
    if (sub == 0)
        return (struct cpu_leaf){(uint32_t)cpu->xcr0, cpu->area_size, cpu->area_size, 0};
    if (sub == 1)
        return (struct cpu_leaf){XSAVEOPT_XSAVEC_XGETBV1_XSAVES, xsave_compact_size(cpu->xcr0), 0, 0};
    if (sub < CPU_COMPONENTS && (cpu->xcr0 >> sub & 1))
        return (struct cpu_leaf){xsave_component_size(sub), xsave_guest_layout.offset[sub], 0, 0};
    return (struct cpu_leaf){0};
}

static struct cpu_leaf brand(const struct cpu *cpu, uint32_t part)
{
    char text[48] = "Clio x86-64-v0 guest";
    struct cpu_leaf r;
    text[13] = (char)('0' + cpu->level);
    memcpy(&r, text + 16 * part, sizeof r);
    return r;
}

static struct cpu_leaf extended(const struct cpu *cpu, uint32_t leaf)
{
    struct cpu_leaf r = {0};
    switch (leaf) {
    case 0x80000000:
        r.a = MAX_EXTENDED;
        break;
    case 0x80000001:
        r = features_in(cpu, LEAF_EXT1);
        r.c |= cpu->level >= 3 ? PREFETCHW : 0;
        r.d = EXT1_EDX;
        break;
    case 0x80000002:
    case 0x80000003:
    case 0x80000004:
        return brand(cpu, leaf - 0x80000002);
    case 0x80000006:
        r.c = 256 << 16 | 6 << 12 | 64; /* second-level cache: KiB, 8 ways, line */
        break;
    case 0x80000007:
        r.d = INVARIANT_TSC;
        break;
    case 0x80000008:
        r = features_in(cpu, LEAF_EXT8);
        r.a = 48 << 8 | 46; /* bits of addresses: linear, physical */
        break;
    }
    return r;
}

struct cpu_leaf cpu_id(const struct cpu *cpu, uint32_t leaf, uint32_t sub)
{
    switch (leaf) {
    case 0:
        return vendor(MAX_BASIC);
    case 1:
        return leaf_1(cpu);
    case 2:
        return (struct cpu_leaf){0x00feff01, 0xf0, 0, 0}; /* caches: see leaf 4; prefetch of 64 bytes */
    case 4:
        return leaf_4(sub);
    case 7:
        return leaf_7(cpu, sub);
    case 0xb:
        return leaf_b(sub);
    case 0xd:
        return leaf_d(cpu, sub);
    default:
        return extended(cpu, leaf);
    }
}

uint32_t cpu_hwcap(void)
{
    return SSE2_EDX;
}

bool cpu_xgetbv(const struct cpu *cpu, uint32_t which, uint64_t *value)
{
    *value =
        cpu->xcr0; /* 1: which of them are in use. All are: what the host's bookkeeping says differs between runs */
    return which <= 1;
}

uint32_t cpu_minimal_stack(const struct cpu *cpu)
{
    const uint32_t other_parts = 927, magic = 4; /* the kernel's siginfo, ucontext and padding, at most */
    return (other_parts + cpu->area_size + (cpu->xcr0 ? magic : 0) + 15) & ~15u;
}

void cpu_init(struct cpu *cpu, int level, uint64_t features, bool old)
{
    *cpu = (struct cpu){.level = level, .features = features, .old = old};
    if (level >= 3 || old)
        cpu->xcr0 = level >= 4 ? CPU_KEPT : 7;
    cpu->area_size = cpu->xcr0 ? xsave_standard_size(cpu->xcr0) : 512;
}
