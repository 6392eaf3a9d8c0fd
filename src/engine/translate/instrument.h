/*
 * instrument.h: the code that an instrumented translation adds to log executions and stores (chronicle/log.h).
 *
 * The added code keeps every guest register and the flags. It writes at task->log_pointer; a block's start makes sure
 * that there is room for everything the block can log, leaving the cache through stub_log_full when there is not.
 */
#ifndef CLIO_TRANSLATE_INSTRUMENT_H
#define CLIO_TRANSLATE_INSTRUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/translate/cache.h"

struct insn;

/* How the store of one instruction is found: its address is in TASK_EA when it has run. */
struct write_site {
    uint32_t size; /* bytes; 0: a rep string store, from TASK_EA to rdi (direction by the flag) */
    bool runtime;  /* size known only by running it: logged by the host */
};

void instrument_block(struct code *c, struct block *b);
/* Emits what saves the address that `in` will write. False when it writes no memory. */
bool instrument_before(struct code *c, const struct insn *in, struct write_site *site);
void instrument_after(struct code *c, const struct write_site *site, uint32_t index);
/* Tells the builder about a new block. */
void instrument_describe(const struct block *b);

#endif
