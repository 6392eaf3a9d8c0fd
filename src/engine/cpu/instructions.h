/*
 * instructions.h: which instructions the guest's processor has, and which of them cannot simply be copied. Tables by what
 * the decoder says of an instruction: its instruction set, and its mnemonic.
 */
#ifndef CLIO_ENGINE_CPU_INSTRUCTIONS_H
#define CLIO_ENGINE_CPU_INSTRUCTIONS_H

#include <Zydis/Zydis.h>

#include "engine/cpu/cpu.h"

enum cpu_class {
    CLASS_PLAIN,
    CLASS_SYSCALL,
    CLASS_RECORDED,  /* its result comes from outside the program: enum trace_insn */
    CLASS_PERFORMED, /* by the engine: a function of the guest's state */
    CLASS_X87_STORE, /* stores the address of the last x87 instruction */
    CLASS_GENERAL,   /* raises #GP in user mode */
    CLASS_UNDEFINED, /* raises #UD */
    CLASS_SEGMENT,   /* mov, pop: may load a segment register */
    CLASS_INTERRUPT, /* int n */
    CLASS_BIT_SCAN,  /* tzcnt, lzcnt: bsf, bsr on processors that lack them */
    CLASS_CARRYLESS, /* vpclmulqdq, whose short form counts as AVX */
    CLASS_REFUSED,
};

struct cpu_insn {
    uint8_t class; /* enum cpu_class */
    uint8_t which; /* CLASS_RECORDED: enum trace_insn; CLASS_REFUSED: index of cpu_refused */
};
extern const struct cpu_insn cpu_insns[ZYDIS_MNEMONIC_MAX_VALUE + 1];
extern const char *const cpu_refused[];

/* For each instruction set whether the guest's processor has it. */
void cpu_allowed(const struct cpu *cpu, bool allowed[ZYDIS_ISA_SET_MAX_VALUE + 1]);

#endif
