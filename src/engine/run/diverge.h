/* diverge.h: a divergence in words that a person can act on. */
#ifndef CLIO_ENGINE_DIVERGE_H
#define CLIO_ENGINE_DIVERGE_H

#include "engine/guest/engine.h"
#include "trace/event_reader.h"

struct observed { /* what the replayed guest did where the trace has its next event */
    uint16_t kind;
    uint64_t pc, ticks;
    uint32_t hash;
    uint16_t nr;
    bool has_nr;
    const uint8_t *siginfo; /* a fault, or NULL */
};

/* expected may be NULL. `done`: number of the last event that matched. */
void diverge_describe(char *text, size_t size, const struct task *t, const struct trace_item *expected,
                      const struct observed *o, uint64_t done);

/* "libc.so.6+0x1234" or "0x1234" for a guest address. Returns text. */
const char *diverge_place(char *text, size_t size, uint64_t pc);

#endif
