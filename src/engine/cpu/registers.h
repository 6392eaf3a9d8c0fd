/*
 * registers.h: the general registers by number, in the order of the machine's encoding: indices of struct trace_regs.gpr.
 */
#ifndef CLIO_ENGINE_CPU_REGISTERS_H
#define CLIO_ENGINE_CPU_REGISTERS_H

enum {
    GPR_RAX,
    GPR_RCX,
    GPR_RDX,
    GPR_RBX,
    GPR_RSP,
    GPR_RBP,
    GPR_RSI,
    GPR_RDI,
    GPR_R8,
    GPR_R9,
    GPR_R10,
    GPR_R11,
    GPR_R12,
    GPR_R13,
    GPR_R14,
    GPR_R15
};

#endif
