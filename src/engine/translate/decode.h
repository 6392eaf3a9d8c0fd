/*
 * decode.h: one guest instruction, decoded by Zydis and classified for the translator; and flag liveness.
 */
#ifndef CLIO_TRANSLATE_DECODE_H
#define CLIO_TRANSLATE_DECODE_H

#include <stdbool.h>
#include <stdint.h>
#include <Zydis/Zydis.h>

enum insn_class {
    INSN_PLAIN, /* copied, perhaps with its RIP-relative operand moved */
    INSN_JMP,   /* direct */
    INSN_JCC,   /* 70..7f, 0f 80..8f */
    INSN_LOOP,  /* loop, loope, loopne, jrcxz, jecxz */
    INSN_CALL,  /* direct */
    INSN_RET,   /* c3, c2 imm16 */
    INSN_JMP_IND,
    INSN_CALL_IND,
    INSN_SYSCALL,
    INSN_NONDET,    /* rdtsc and the like: enum trace_insn in `nondet` */
    INSN_PERFORMED, /* by the engine (task/perform.c), outside the cache */
    INSN_X87_STORE, /* copied; then the engine mends the pointers that it has stored */
    INSN_GENERAL,   /* raises a general protection fault */
    INSN_REFUSED,   /* an instruction Clio does not support; name in `refused` */
    INSN_INVALID,   /* undecodable, or made undefined by the CPU level: raises SIGILL */
};

struct insn {
    ZydisDecodedInstruction z;
    uint64_t pc;
    uint8_t bytes[16];
    uint8_t length;
    enum insn_class kind;
    uint64_t target; /* JMP, JCC, LOOP, CALL */
    uint8_t nondet;
    uint16_t pop; /* RET: extra bytes popped */
    bool rip_relative;
    uint64_t address; /* rip_relative: the operand's address */
    const char *refused;
    bool too_long; /* INVALID: more than 15 bytes */
};

enum { FLAGS_ALL = 0x8d5 }; /* CF PF AF ZF SF OF */

void decode_init(void);
/* engine.cpu is set: instructions are those of this processor. */
void decode_use_cpu(void);

/*
 * Decodes the instruction at guest pc, of which `room` bytes may be read (mapped and executable). Returns 0,
 * or -1 when the instruction runs past `room` (the fetch faults there). An undecodable one is INSN_INVALID of
 * length 1.
 */
int decode_insn(struct insn *in, uint64_t pc, uint64_t room);

/* It is PERFORMED and goes on elsewhere: iret, far jumps, calls and returns. */
bool decode_transfers(const struct insn *in);

/* The operands of a decoded instruction. Returns how many, or -1. */
int decode_operands(const struct insn *in, ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT]);

/* True when some of the arithmetic flags may be read before they are written, from guest pc on. Conservative.
 */
bool decode_flags_live(uint64_t pc);

/* Guest memory may have changed since: forgets which page was found readable. */
void decode_restart(void);

/* Bytes of executable guest memory from pc on; 0 when pc may not be executed. */
uint64_t decode_room(uint64_t pc);

#endif
