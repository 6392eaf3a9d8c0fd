/*
 * regs_hash.h: the hash of a guest's registers that every event carries (docs/trace-format.md). Part of the
 * format: replay computes it again and stops where it differs. Usable in code compiled for general registers
 * only.
 */
#ifndef CLIO_TRACE_REGS_HASH_H
#define CLIO_TRACE_REGS_HASH_H

#include "trace/record.h"

/* Of the general registers, the fs base and pc, where the event happens (regs->rip is not looked at). */
static inline uint32_t regs_hash(const struct trace_regs *regs, uint64_t pc)
{
    const uint64_t k = 0x9e3779b97f4a7c15ull;
    uint64_t lane[4] = {pc, regs->fs_base, 1, 2};
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 4; j++) {
            lane[j] = (lane[j] ^ regs->gpr[i + j]) * k;
            lane[j] ^= lane[j] >> 29;
        }
    uint64_t h = (lane[0] + 3 * lane[1]) * k;
    h ^= h >> 32;
    h = (h + lane[2] + 5 * lane[3]) * k;
    return (uint32_t)(h >> 32);
}

#endif
