/* features.h: the table of features as this room's files see it. */
#ifndef CLIO_ENGINE_CPU_FEATURES_H
#define CLIO_ENGINE_CPU_FEATURES_H

#include "engine/cpu/cpu.h"

enum cpu_reg { REG_A, REG_B, REG_C, REG_D };
enum { BYDEFAULT = 1, OURS = 2 };

struct cpu_row {
    const char *name;
    uint8_t level, least;
    uint8_t leaf, reg, bit; /* of CPUID */
    uint8_t xcr0;           /* components that the host's kernel must have switched on */
    uint8_t flags;
};
extern const struct cpu_row cpu_rows[CPU_FEATURES];

uint32_t *cpu_register(struct cpu_leaf *leaf, enum cpu_reg reg);

#endif
