/*
 * translate.h: guest code to code cache, and back from a code address to precise guest state.
 */
#ifndef CLIO_TRANSLATE_TRANSLATE_H
#define CLIO_TRANSLATE_TRANSLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/cpu/xsave.h"
#include "engine/translate/cache.h"

struct task;

struct translate_options {
    bool single_block;              /* never link: every block ends in the dispatcher */
    uint64_t alone_low, alone_high; /* guest code in this range is translated one instruction a block */
    bool instrument;                /* log executions and writes for a chronicle */
};
extern struct translate_options translate_options;

/* In task->exit_site: the instruction at exit_pc is no longer what was translated; rcx is in its slot. */
#define TRANSLATE_STALE 0x80000000u

void translate_init(void);

/* The valid block at guest pc, translated if needed. NULL: pc cannot be executed (fetch fault). */
struct block *translate_block(uint64_t pc, enum entry first_wanted);

/*
 * Handles a link's exit: finds or makes its target and links it. Returns the code address to go on at, or 0
 * when the target cannot be executed (*pc tells which).
 */
uint8_t *translate_follow_link(struct task *t, uint32_t link_number, uint64_t *pc);

/*
 * Maps a host pc inside the cache, where the guest was interrupted by a fault, to the guest pc of the
 * instruction and restores into gprs (as the host had them) registers held in slots; *length is the
 * instruction's. Returns 0, or -1 when it is in no block.
 */
int translate_state(struct task *t, uint64_t host_pc, uint64_t *guest_pc, uint64_t *gprs, unsigned *length);
/* The guest instruction that a code address belongs to; 0: none (any more). */
uint64_t translate_pc(uint64_t host_pc);
/* What an instruction at regs.rip would store of the last x87 instruction: with the guest's address of it. */
struct x87_pointers translate_x87_pointers(const struct task *t);
/* Code addresses lose their meaning: the address of the last x87 instruction becomes the guest's. */
void translate_forget_code(void);
/* Index in its block of the instruction at a host pc that translate_state knows. */
uint32_t translate_index(uint64_t host_pc);

/* The guest instruction at pc runs alone in a block that does not watch its own page (it writes to it). */
uint8_t *translate_alone(uint64_t pc);

/* Exactly the first `limit` instructions at pc, then an exit with exit_pc set (for stopping at a step). */
uint8_t *translate_steps(uint64_t pc, uint32_t limit);

#endif
