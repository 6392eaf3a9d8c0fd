/* features.c: the table of features, and sets of them as a user or a trace names them. See cpu.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/features.h"

#define AVX    CPU_BIT(CPU_AVX)
#define AVX512 CPU_BIT(CPU_AVX512F)

/*
 * level: of which the feature is part; 0: optional. least: the lowest level that can have it. BYDEFAULT: a guest has it
 * unless told otherwise, where the host does. OURS: Clio performs it or records its results, a host need not have it.
 */
const struct cpu_row cpu_rows[CPU_FEATURES] = {
    [CPU_SSE3] = {"sse3", 2, 2, LEAF_1, REG_C, 0, 0, 0},
    [CPU_SSSE3] = {"ssse3", 2, 2, LEAF_1, REG_C, 9, 0, 0},
    [CPU_CX16] = {"cx16", 2, 2, LEAF_1, REG_C, 13, 0, 0},
    [CPU_SSE4_1] = {"sse4.1", 2, 2, LEAF_1, REG_C, 19, 0, 0},
    [CPU_SSE4_2] = {"sse4.2", 2, 2, LEAF_1, REG_C, 20, 0, 0},
    [CPU_POPCNT] = {"popcnt", 2, 2, LEAF_1, REG_C, 23, 0, 0},
    [CPU_LAHF] = {"lahf", 2, 2, LEAF_EXT1, REG_C, 0, 0, 0},
    [CPU_FMA] = {"fma", 3, 3, LEAF_1, REG_C, 12, 4, 0},
    [CPU_MOVBE] = {"movbe", 3, 3, LEAF_1, REG_C, 22, 0, 0},
    [CPU_XSAVE] = {"xsave", 3, 3, LEAF_1, REG_C, 26, 0, 0},
    [CPU_AVX] = {"avx", 3, 3, LEAF_1, REG_C, 28, 4, 0},
    [CPU_F16C] = {"f16c", 3, 3, LEAF_1, REG_C, 29, 4, 0},
    [CPU_BMI1] = {"bmi1", 3, 3, LEAF_7, REG_B, 3, 0, 0},
    [CPU_AVX2] = {"avx2", 3, 3, LEAF_7, REG_B, 5, 4, 0},
    [CPU_BMI2] = {"bmi2", 3, 3, LEAF_7, REG_B, 8, 0, 0},
    [CPU_LZCNT] = {"lzcnt", 3, 3, LEAF_EXT1, REG_C, 5, 0, 0},
    [CPU_AVX512F] = {"avx512f", 4, 4, LEAF_7, REG_B, 16, 0xe4, 0},
    [CPU_AVX512DQ] = {"avx512dq", 4, 4, LEAF_7, REG_B, 17, 0xe4, 0},
    [CPU_AVX512CD] = {"avx512cd", 4, 4, LEAF_7, REG_B, 28, 0xe4, 0},
    [CPU_AVX512BW] = {"avx512bw", 4, 4, LEAF_7, REG_B, 30, 0xe4, 0},
    [CPU_AVX512VL] = {"avx512vl", 4, 4, LEAF_7, REG_B, 31, 0xe4, 0},
    [CPU_AES] = {"aes", 0, 1, LEAF_1, REG_C, 25, 0, BYDEFAULT},
    [CPU_PCLMULQDQ] = {"pclmulqdq", 0, 1, LEAF_1, REG_C, 1, 0, BYDEFAULT},
    [CPU_RDRAND] = {"rdrand", 0, 1, LEAF_1, REG_C, 30, 0, BYDEFAULT | OURS},
    [CPU_RDSEED] = {"rdseed", 0, 1, LEAF_7, REG_B, 18, 0, BYDEFAULT | OURS},
    [CPU_RDPID] = {"rdpid", 0, 1, LEAF_7, REG_C, 22, 0, BYDEFAULT | OURS},
    [CPU_SHA] = {"sha", 0, 1, LEAF_7, REG_B, 29, 0, 0},
    [CPU_ADX] = {"adx", 0, 1, LEAF_7, REG_B, 19, 0, 0},
    [CPU_CLFLUSHOPT] = {"clflushopt", 0, 1, LEAF_7, REG_B, 23, 0, 0},
    [CPU_CLWB] = {"clwb", 0, 1, LEAF_7, REG_B, 24, 0, 0},
    [CPU_MOVDIRI] = {"movdiri", 0, 1, LEAF_7, REG_C, 27, 0, 0},
    [CPU_MOVDIR64B] = {"movdir64b", 0, 1, LEAF_7, REG_C, 28, 0, 0},
    [CPU_SERIALIZE] = {"serialize", 0, 1, LEAF_7, REG_D, 14, 0, 0},
    [CPU_CLZERO] = {"clzero", 0, 1, LEAF_EXT8, REG_B, 0, 0, 0},
    [CPU_SSE4A] = {"sse4a", 0, 1, LEAF_EXT1, REG_C, 6, 0, 0},
    [CPU_GFNI] = {"gfni", 0, 2, LEAF_7, REG_C, 8, 0, 0},
    [CPU_VAES] = {"vaes", 0, 3, LEAF_7, REG_C, 9, 4, 0},
    [CPU_VPCLMULQDQ] = {"vpclmulqdq", 0, 3, LEAF_7, REG_C, 10, 4, 0},
    [CPU_AVX_VNNI] = {"avx_vnni", 0, 3, LEAF_7_1, REG_A, 4, 4, 0},
    [CPU_AVX512_IFMA] = {"avx512_ifma", 0, 4, LEAF_7, REG_B, 21, 0xe4, 0},
    [CPU_AVX512_VBMI] = {"avx512_vbmi", 0, 4, LEAF_7, REG_C, 1, 0xe4, 0},
    [CPU_AVX512_VBMI2] = {"avx512_vbmi2", 0, 4, LEAF_7, REG_C, 6, 0xe4, 0},
    [CPU_AVX512_VNNI] = {"avx512_vnni", 0, 4, LEAF_7, REG_C, 11, 0xe4, 0},
    [CPU_AVX512_BITALG] = {"avx512_bitalg", 0, 4, LEAF_7, REG_C, 12, 0xe4, 0},
    [CPU_AVX512_VPOPCNTDQ] = {"avx512_vpopcntdq", 0, 4, LEAF_7, REG_C, 14, 0xe4, 0},
    [CPU_AVX512_BF16] = {"avx512_bf16", 0, 4, LEAF_7_1, REG_A, 5, 0xe4, 0},
    [CPU_AVX512_FP16] = {"avx512_fp16", 0, 4, LEAF_7, REG_D, 23, 0xe4, 0},
};

const char *cpu_feature_name(enum cpu_feature feature)
{
    return cpu_rows[feature].name;
}

uint32_t *cpu_register(struct cpu_leaf *leaf, enum cpu_reg reg)
{
    uint32_t *const registers[] = {&leaf->a, &leaf->b, &leaf->c, &leaf->d};
    return registers[reg];
}

static bool host_has(const struct cpu_host *host, const struct cpu_row *r)
{
    struct cpu_leaf leaf = host->leaf[r->leaf];
    return (r->flags & OURS) ||
           ((*cpu_register(&leaf, r->reg) >> r->bit & 1) && (host->xcr0 & r->xcr0) == r->xcr0);
}

uint64_t cpu_host_features(const struct cpu_host *host)
{
    uint64_t set = 0;
    for (int i = 0; i < CPU_FEATURES; i++)
        if (host_has(host, &cpu_rows[i]))
            set |= CPU_BIT(i);
    return host->xcr0 ? set : set & ~CPU_BIT(CPU_XSAVE);
}

uint64_t cpu_missing(uint64_t features, const struct cpu_host *host)
{
    return features & ~cpu_host_features(host);
}

uint64_t cpu_level_features(int level)
{
    uint64_t set = 0;
    for (int i = 0; i < CPU_FEATURES; i++)
        if (cpu_rows[i].level && cpu_rows[i].level <= level)
            set |= CPU_BIT(i);
    return set;
}

uint64_t cpu_default_features(int level, const struct cpu_host *host)
{
    uint64_t set = 0;
    for (int i = 0; i < CPU_FEATURES; i++)
        if ((cpu_rows[i].flags & BYDEFAULT) && cpu_rows[i].least <= level)
            set |= CPU_BIT(i);
    return level < 2 ? 0 : set & cpu_host_features(host);
}

int cpu_best_level(const struct cpu_host *host)
{
    int level = CPU_LEVEL_DEFAULT_MAX;
    while (level > 1 && cpu_missing(cpu_level_features(level), host))
        level--;
    return level;
}

/* ---- names ---- */

static int find(const char *name, size_t length)
{
    for (int i = 0; i < CPU_FEATURES; i++)
        if (strlen(cpu_rows[i].name) == length && !memcmp(cpu_rows[i].name, name, length))
            return i;
    return -1;
}

void cpu_names(uint64_t features, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < CPU_FEATURES; i++)
        if (features & CPU_BIT(i) && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "", cpu_rows[i].name);
}

bool cpu_names_parse(const char *text, uint64_t *features, char *unknown, size_t size)
{
    *features = 0;
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        int i = find(text, n);
        if (i < 0) {
            snprintf(unknown, size, "%.*s", (int)n, text);
            return false;
        }
        *features |= CPU_BIT(i);
    }
    return true;
}

__attribute__((format(printf, 3, 4))) static bool wrong(char *problem, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(problem, size, format, args);
    va_end(args);
    return false;
}

/* +NAME or -NAME */
static bool choose_one(const char *word, size_t n, struct cpu_choice *c, char *problem, size_t size)
{
    int i = find(word + 1, n - 1);
    if (i < 0)
        return wrong(problem, size, "%.*s is no feature that Clio knows", (int)n - 1, word + 1);
    const struct cpu_row *r = &cpu_rows[i];
    if (r->level)
        return wrong(problem, size, "%s is part of level v%d", r->name, r->level);
    if (*word == '+' && r->least > c->level)
        return wrong(problem, size, "%s needs level v%d", r->name, r->least);
    if (*word == '-') {
        c->features &= ~CPU_BIT(i);
    } else {
        c->features |= CPU_BIT(i);
        c->asked |= CPU_BIT(i);
    }
    return true;
}

bool cpu_choose(const char *text, const struct cpu_host *host, struct cpu_choice *c, char *problem,
                size_t size)
{
    text += *text == 'v';
    if (*text < '1' || *text > '0' + CPU_LEVEL_MAX || (text[1] && text[1] != '+' && text[1] != '-'))
        return wrong(problem, size, "the levels are v1, v2, v3 and v4; +NAME and -NAME may follow");
    c->level = *text - '0';
    c->asked = cpu_level_features(c->level);
    c->features = c->asked | cpu_default_features(c->level, host);
    for (text++; *text;) {
        size_t n = 1 + strcspn(text + 1, "+-");
        if (!choose_one(text, n, c, problem, size))
            return false;
        text += n;
    }
    return true;
}

bool cpu_stands_in(int level, const char *names, const struct cpu_host *host, uint64_t *features,
                   char *problem, size_t size)
{
    char unknown[64], missing[CPU_NAMES_MAX];
    *features = 0;
    if (level < 1 || level > CPU_LEVEL_MAX)
        return wrong(problem, size, "the guest's processor is of level %d, which this clio does not know",
                     level);
    if (names && !cpu_names_parse(names, features, unknown, sizeof unknown))
        return wrong(problem, size, "the guest's processor has %s, which this clio does not know", unknown);
    *features |= cpu_level_features(level);
    cpu_names(cpu_missing(*features, host), missing, sizeof missing);
    return !*missing || wrong(problem, size, "the guest's processor is x86-64-v%d; this machine's lacks %s",
                              level, missing);
}
