/*
 * perform.h: instructions that the engine performs for the guest, outside the cache: the XSAVE family, what shows the
 * kernel's tables, transfers by iret and far pointers.
 */
#ifndef CLIO_ENGINE_PERFORM_H
#define CLIO_ENGINE_PERFORM_H

#include "engine/guest/task.h"

struct insn;

enum performed {
    PERFORMED,      /* regs.rip is behind it */
    PERFORMED_JUMP, /* regs.rip is where it went; counts a tick */
    PERFORMED_FAULT /* t->fault says how it failed; nothing of the guest's registers has changed */
};

enum performed perform_insn(struct task *t, const struct insn *in);
/* fnstenv and fnsave have just run in the cache: mends the pointers in what they have stored. */
void perform_x87_store(struct task *t, const struct insn *in);

/* False when a nondeterministic instruction faults instead of having a result: t->fault is set. */
bool perform_checks(struct task *t, const struct insn *in);
/* The 16 bits of a register or memory operand; false: t->fault is set. */
bool perform_read_selector(struct task *t, const struct insn *in, uint16_t *value);

#endif
