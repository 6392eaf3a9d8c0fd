/*
 * instrument.h: the code that an instrumented translation adds to log executions and stores
 * (chronicle/log.h).
 *
 * The added code keeps every guest register and the flags. It writes at task->log_pointer; a block's start
 * makes sure that there is room for everything the block can log, leaving the cache through stub_log_full
 * when there is not.
 */
#ifndef CLIO_TRANSLATE_INSTRUMENT_H
#define CLIO_TRANSLATE_INSTRUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/translate/cache.h"

struct insn;
struct task;

#define INSTRUMENT_LOG_LOW  0x70200000ull
#define INSTRUMENT_LOG_HIGH 0x70400000ull

/* The store of one instruction. Its address is in TASK_EA when it has run. */
struct write_site {
    enum {
        SITE_PLAIN,
        SITE_PUSH,  /* at rsp afterwards */
        SITE_REP,   /* from TASK_EA to rdi */
        SITE_MASK,  /* elements that a vector register selects */
        SITE_BELOW, /* the `size` bytes below TASK_EA (enter) */
    } kind;
    uint32_t size; /* bytes; SITE_REP: of one element */
    uint64_t pc;   /* SITE_MASK */
};

/* Where the log goes. */
struct chron_block;
struct instrument_sink {
    void (*flush)(struct task *t); /* takes all of the log and sets task->log_pointer back */
    /* a store of which only the host knows the extent, by instruction `index` of the block logged last */
    void (*range)(struct task *t, uint32_t index, uint64_t address, uint64_t size);
    void (*describe)(const struct chron_block *block);
};
extern struct instrument_sink instrument_sink;

/* Called by entry.S. */
void exit_log_full(struct task *t);
void exit_log_store(struct task *t);

/* Maps the log. The translator must start afresh (cache_flush) with translate_options.instrument set. */
void instrument_begin(struct task *t);

void instrument_block(struct code *c, struct block *b);
/* In a counted entry, after the count: the block's log entry will say that a tick led to it. */
void instrument_counted(struct code *c);
/* Emits what saves the address that `in` will write. False when it writes no memory. */
bool instrument_before(struct code *c, const struct insn *in, struct write_site *site);
void instrument_after(struct code *c, const struct write_site *site, uint32_t index);
/* The instruction at the guest's pc faulted: what a rep store did before that is logged. */
void instrument_fault(struct task *t);
/* Tells the builder about a new block. */
void instrument_describe(const struct block *b);

#endif
