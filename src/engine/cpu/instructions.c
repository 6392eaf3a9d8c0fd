/*
 * instructions.c: see instructions.h. An instruction set that is in no line here is at no level: it raises SIGILL.
 *
 * Hints count as plain instructions, for older processors take them for nops: endbr, rdssp, cldemote, prefetches, the bound
 * instructions of MPX, xacquire and xrelease.
 */
#include "engine/cpu/instructions.h"

#include "trace/record.h"

#define F(name)          CPU_BIT(CPU_##name)
#define ALWAYS           (1ull << 63)
#define WIDE             (F(AVX512F) | F(AVX512VL) | F(AVX512BW) | F(AVX512DQ) | F(AVX512CD))
#define SET(name, needs) [ZYDIS_ISA_SET_##name] = (needs)
#define SETS(name, needs)                                                                                    \
    [ZYDIS_ISA_SET_##name##_128] = WIDE | (needs), [ZYDIS_ISA_SET_##name##_256] = WIDE | (needs),            \
    [ZYDIS_ISA_SET_##name##_512] = WIDE | (needs)

static const uint64_t needs[ZYDIS_ISA_SET_MAX_VALUE + 1] = {
    SET(CLDEMOTE, ALWAYS),
    SET(CLFSH, ALWAYS),
    SET(CMOV, ALWAYS),
    SET(FAT_NOP, ALWAYS),
    SET(FCMOV, ALWAYS),
    SET(FXSAVE, ALWAYS),
    SET(FXSAVE64, ALWAYS),
    SET(I186, ALWAYS),
    SET(I286PROTECTED, ALWAYS),
    SET(I286REAL, ALWAYS),
    SET(I386, ALWAYS),
    SET(I486, ALWAYS),
    SET(I486REAL, ALWAYS),
    SET(I86, ALWAYS),
    SET(LONGMODE, ALWAYS),
    SET(MPX, ALWAYS),
    SET(PAUSE, ALWAYS),
    SET(PENTIUMMMX, ALWAYS),
    SET(PENTIUMREAL, ALWAYS),
    SET(PPRO, ALWAYS),
    SET(PREFETCHWT1, ALWAYS),
    SET(PREFETCH_NOP, ALWAYS),
    SET(RDPMC, ALWAYS),
    SET(RDTSCP, ALWAYS),
    SET(RDWRFSGS, ALWAYS),
    SET(SSE, ALWAYS),
    SET(SSE2, ALWAYS),
    SET(SSE2MMX, ALWAYS),
    SET(SSEMXCSR, ALWAYS),
    SET(SSE_PREFETCH, ALWAYS),
    SET(X87, ALWAYS),
    SET(CET, ALWAYS), /* its hints; the others are CLASS_UNDEFINED */

    SET(SSE3, F(SSE3)),
    SET(SSE3X87, F(SSE3)),
    SET(SSSE3, F(SSSE3)),
    SET(SSSE3MMX, F(SSSE3)),
    SET(SSE4, F(SSE4_1)),
    SET(SSE42, F(SSE4_2)),
    SET(CMPXCHG16B, F(CX16)),
    SET(LAHF, F(LAHF)),
    SET(POPCNT, F(POPCNT)),

    SET(AVX, F(AVX)),
    SET(AVX2, F(AVX2)),
    SET(AVX2GATHER, F(AVX2)),
    SET(BMI1, F(BMI1)),
    SET(BMI2, F(BMI2)),
    SET(F16C, F(F16C)),
    SET(FMA, F(FMA)),
    SET(LZCNT, F(LZCNT)),
    SET(MOVBE, F(MOVBE)),
    SET(XSAVE, F(XSAVE)),
    SET(XSAVEC, F(XSAVE)),
    SET(XSAVEOPT, F(XSAVE)),
    SET(XSAVES, F(XSAVE)),

    SETS(AVX512F, 0),
    SETS(AVX512BW, 0),
    SETS(AVX512CD, 0),
    SETS(AVX512DQ, 0),
    SET(AVX512F_128N, WIDE),
    SET(AVX512BW_128N, WIDE),
    SET(AVX512DQ_128N, WIDE),
    SET(AVX512F_SCALAR, WIDE),
    SET(AVX512DQ_SCALAR, WIDE),
    SET(AVX512F_KOP, WIDE),
    SET(AVX512BW_KOP, WIDE),
    SET(AVX512DQ_KOP, WIDE),

    SET(AES, F(AES)),
    SET(AVXAES, F(AVX) | F(AES)),
    SET(PCLMULQDQ, F(PCLMULQDQ)),
    SET(SHA, F(SHA)),
    SET(ADOX_ADCX, F(ADX)),
    SET(RDRAND, F(RDRAND)),
    SET(RDSEED, F(RDSEED)),
    SET(RDPID, F(RDPID)),
    SET(CLFLUSHOPT, F(CLFLUSHOPT)),
    SET(CLWB, F(CLWB)),
    SET(MOVDIR, F(MOVDIRI) | F(MOVDIR64B)),
    SET(SERIALIZE, F(SERIALIZE)),
    SET(CLZERO, F(CLZERO)),
    SET(SSE4A, F(SSE4A)),
    SET(GFNI, F(GFNI)),
    SET(AVX_GFNI, F(AVX) | F(GFNI)),
    SET(VAES, F(AVX2) | F(VAES)),
    SET(VPCLMULQDQ, F(AVX2) | F(VPCLMULQDQ)),
    SET(AVX_VNNI, F(AVX2) | F(AVX_VNNI)),
    SETS(AVX512_GFNI, F(GFNI)),
    SETS(AVX512_VAES, F(VAES)),
    SETS(AVX512_VPCLMULQDQ, F(VPCLMULQDQ)),
    SETS(AVX512_IFMA, F(AVX512_IFMA)),
    SETS(AVX512_VBMI, F(AVX512_VBMI)),
    SETS(AVX512_VBMI2, F(AVX512_VBMI2)),
    SETS(AVX512_VNNI, F(AVX512_VNNI)),
    SETS(AVX512_BITALG, F(AVX512_BITALG)),
    SETS(AVX512_VPOPCNTDQ, F(AVX512_VPOPCNTDQ)),
    SETS(AVX512_BF16, F(AVX512_BF16)),
    SETS(AVX512_FP16, F(AVX512_FP16)),
    SET(AVX512_FP16_128N, WIDE | F(AVX512_FP16)),
    SET(AVX512_FP16_SCALAR, WIDE | F(AVX512_FP16)),
};

void cpu_allowed(const struct cpu *cpu, bool allowed[ZYDIS_ISA_SET_MAX_VALUE + 1])
{
    for (unsigned i = 0; i <= ZYDIS_ISA_SET_MAX_VALUE; i++)
        allowed[i] = cpu->old || (needs[i] && !(needs[i] & ~ALWAYS & ~cpu->features));
}

#define INSN(name, kind)   [ZYDIS_MNEMONIC_##name] = {.class = CLASS_##kind}
#define RECORDED(name)     [ZYDIS_MNEMONIC_##name] = {.class = CLASS_RECORDED, .which = INSN_##name}
#define REFUSED(name, why) [ZYDIS_MNEMONIC_##name] = {.class = CLASS_REFUSED, .which = (why)}

enum { LOAD_GS, SYSENTER, GS_BASE };
const char *const cpu_refused[] = {
    [LOAD_GS] = "load of the gs selector", [SYSENTER] = "sysenter", [GS_BASE] = "access to the gs base"};

const struct cpu_insn cpu_insns[ZYDIS_MNEMONIC_MAX_VALUE + 1] = {
    INSN(SYSCALL, SYSCALL),
    RECORDED(RDTSC),
    RECORDED(RDTSCP),
    RECORDED(RDPID),
    RECORDED(RDRAND),
    RECORDED(RDSEED),
    RECORDED(CPUID),
    RECORDED(XGETBV),
    /* the segment of selector 0x7b tells the processor's number; others are the kernel's */
    RECORDED(LSL),
    RECORDED(LAR),
    RECORDED(VERR),
    RECORDED(VERW),

    INSN(XSAVE, PERFORMED),
    INSN(XSAVE64, PERFORMED),
    INSN(XSAVEC, PERFORMED),
    INSN(XSAVEC64, PERFORMED),
    INSN(XSAVEOPT, PERFORMED),
    INSN(XSAVEOPT64, PERFORMED),
    INSN(XRSTOR, PERFORMED),
    INSN(XRSTOR64, PERFORMED),
    INSN(FXSAVE, PERFORMED),
    INSN(FXSAVE64, PERFORMED),
    INSN(FXRSTOR, PERFORMED),
    INSN(FXRSTOR64, PERFORMED),
    INSN(FNSTENV, X87_STORE),
    INSN(FNSAVE, X87_STORE),

    /* the kernel's tables, which processors without UMIP show */
    INSN(SGDT, PERFORMED),
    INSN(SIDT, PERFORMED),
    INSN(SLDT, PERFORMED),
    INSN(STR, PERFORMED),
    INSN(SMSW, PERFORMED),

    INSN(IRET, PERFORMED),
    INSN(IRETD, PERFORMED),
    INSN(IRETQ, PERFORMED),

    INSN(XSAVES, GENERAL),
    INSN(XSAVES64, GENERAL),
    INSN(XRSTORS, GENERAL),
    INSN(XRSTORS64, GENERAL),
    /* where the kernel lets a program, these reach devices and counters */
    INSN(IN, GENERAL),
    INSN(INSB, GENERAL),
    INSN(INSW, GENERAL),
    INSN(INSD, GENERAL),
    INSN(OUT, GENERAL),
    INSN(OUTSB, GENERAL),
    INSN(OUTSW, GENERAL),
    INSN(OUTSD, GENERAL),
    INSN(CLI, GENERAL),
    INSN(STI, GENERAL),
    INSN(RDPMC, GENERAL),

    INSN(XBEGIN, UNDEFINED),
    INSN(XEND, UNDEFINED),
    INSN(XABORT, UNDEFINED),
    INSN(XTEST, UNDEFINED),
    INSN(INCSSPD, UNDEFINED),
    INSN(INCSSPQ, UNDEFINED),
    INSN(RSTORSSP, UNDEFINED),
    INSN(SAVEPREVSSP, UNDEFINED),
    INSN(SETSSBSY, UNDEFINED),
    INSN(CLRSSBSY, UNDEFINED),
    INSN(WRSSD, UNDEFINED),
    INSN(WRSSQ, UNDEFINED),
    INSN(WRUSSD, UNDEFINED),
    INSN(WRUSSQ, UNDEFINED),

    INSN(MOV, SEGMENT),
    INSN(POP, SEGMENT),
    INSN(INT, INTERRUPT),
    INSN(TZCNT, BIT_SCAN),
    INSN(LZCNT, BIT_SCAN),
    INSN(VPCLMULQDQ, CARRYLESS),
    REFUSED(LGS, LOAD_GS),
    REFUSED(SYSENTER, SYSENTER),
    REFUSED(RDGSBASE, GS_BASE),
    REFUSED(WRGSBASE, GS_BASE),
};
