/*
 * cpu.h: the guest's processor. It is a function of a level (x86-64-v1 to v4) and of named features alone, so it is the same
 * on every host; what the host has only decides whether it can run. Nothing else in the engine asks the host's CPU.
 *
 * A trace records the level and the features. The contract for people is docs/cpu.md.
 */
#ifndef CLIO_ENGINE_CPU_H
#define CLIO_ENGINE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the table in features.c. A set of them is a mask. */
enum cpu_feature {
    CPU_SSE3,
    CPU_SSSE3,
    CPU_CX16,
    CPU_SSE4_1,
    CPU_SSE4_2,
    CPU_POPCNT,
    CPU_LAHF,
    CPU_FMA,
    CPU_MOVBE,
    CPU_XSAVE,
    CPU_AVX,
    CPU_F16C,
    CPU_BMI1,
    CPU_AVX2,
    CPU_BMI2,
    CPU_LZCNT,
    CPU_AVX512F,
    CPU_AVX512DQ,
    CPU_AVX512CD,
    CPU_AVX512BW,
    CPU_AVX512VL,
    CPU_AES,
    CPU_PCLMULQDQ,
    CPU_RDRAND,
    CPU_RDSEED,
    CPU_RDPID,
    CPU_SHA,
    CPU_ADX,
    CPU_CLFLUSHOPT,
    CPU_CLWB,
    CPU_MOVDIRI,
    CPU_MOVDIR64B,
    CPU_SERIALIZE,
    CPU_CLZERO,
    CPU_SSE4A,
    CPU_GFNI,
    CPU_VAES,
    CPU_VPCLMULQDQ,
    CPU_AVX_VNNI,
    CPU_AVX512_IFMA,
    CPU_AVX512_VBMI,
    CPU_AVX512_VBMI2,
    CPU_AVX512_VNNI,
    CPU_AVX512_BITALG,
    CPU_AVX512_VPOPCNTDQ,
    CPU_AVX512_BF16,
    CPU_AVX512_FP16,
    CPU_FEATURES
};
#define CPU_BIT(feature) (1ull << (feature))

enum { CPU_NAMES_MAX = 600 /* of all features' names */ };
enum { CPU_LEVEL_MAX = 4, CPU_LEVEL_DEFAULT_MAX = 3 };

/* ---- the host ---- */

struct cpu_leaf {
    uint32_t a, b, c, d;
};

enum cpu_leaf_id { LEAF_1, LEAF_7, LEAF_7_1, LEAF_EXT1, LEAF_EXT8, LEAF_COUNT }; /* where feature bits are */

enum { CPU_COMPONENTS = 8 }; /* of the XSAVE area that Clio keeps for a guest: 0 to 7 */
#define CPU_KEPT 0xe7ull     /* x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM */

/* Offsets of components 2 to 7 in the standard form. */
struct cpu_layout {
    uint32_t offset[CPU_COMPONENTS];
};

struct cpu_host {
    struct cpu_leaf leaf[LEAF_COUNT];
    uint64_t xcr0; /* 0: no XSAVE */
    struct cpu_layout layout;
};

/* Describes the processor that this runs on. CLIO_TEST_HOST_CPU=LEVEL[+FEATURE...] in the environment hides all its other
 * features; it cannot add any. */
void cpu_host_ask(struct cpu_host *host);
/* Bytes of an area in standard form with the components of CPU_KEPT that the host has. */
uint32_t cpu_host_area(const struct cpu_host *host);
/* The features that the guest could be given here. */
uint64_t cpu_host_features(const struct cpu_host *host);

/* ---- levels and features ---- */

const char *cpu_feature_name(enum cpu_feature feature);
/* What a level consists of. */
uint64_t cpu_level_features(int level);
/* Optional features a guest of this level gets where nothing else was asked for. */
uint64_t cpu_default_features(int level, const struct cpu_host *host);
/* Features of `features` that need the host, and that it lacks. */
uint64_t cpu_missing(uint64_t features, const struct cpu_host *host);
/* The highest level up to CPU_LEVEL_DEFAULT_MAX that the host has. */
int cpu_best_level(const struct cpu_host *host);

struct cpu_choice {
    int level;
    uint64_t features; /* those of the level included */
    uint64_t asked;    /* of them by name */
};
/*
 * A user's words: vN, then +NAME or -NAME for optional features. False with what is wrong in `problem`, which a user can
 * understand.
 */
bool cpu_choose(const char *text, const struct cpu_host *host, struct cpu_choice *choice, char *problem,
                size_t size);
/* Optional features of a set as names with commas, and back; false when a name is not known (then in `unknown`). */
void cpu_names(uint64_t features, char *text, size_t size);
bool cpu_names_parse(const char *text, uint64_t *features, char *unknown, size_t size);

/*
 * Whether the host can stand in for a recorded guest's processor: *features is what that had. names: of its optional features;
 * NULL: the trace recorded none. False with `problem`, for a user.
 */
bool cpu_stands_in(int level, const char *names, const struct cpu_host *host, uint64_t *features,
                   char *problem, size_t size);

/* ---- the guest's processor ---- */

struct cpu {
    int level;
    uint64_t features;
    bool old; /* a trace that recorded no features: instructions run as the host has them, as they did then */
    uint64_t xcr0;      /* 0: without XSAVE */
    uint32_t area_size; /* of the XSAVE area in standard form; 512 without XSAVE */
};

/* A guest of that level and features; old: see struct cpu. */
void cpu_init(struct cpu *cpu, int level, uint64_t features, bool old);

/* What the guest's CPUID answers. */
struct cpu_leaf cpu_id(const struct cpu *cpu, uint32_t leaf, uint32_t sub);
/* cpuid(1).edx, which is AT_HWCAP. */
uint32_t cpu_hwcap(void);
/* XGETBV: false when it raises #GP. */
bool cpu_xgetbv(const struct cpu *cpu, uint32_t which, uint64_t *value);
/* Smallest stack for a signal's frame, as the kernel tells it (AT_MINSIGSTKSZ). */
uint32_t cpu_minimal_stack(const struct cpu *cpu);

/* What SGDT, SIDT, SLDT, STR and SMSW answer: as Linux does for processors with UMIP. */
#define CPU_GDT_BASE 0xfffffffffffe0000ull
#define CPU_IDT_BASE 0xffffffffffff0000ull
#define CPU_CR0      0x80050033ull
#define CPU_TASK     0x40ull

#endif
