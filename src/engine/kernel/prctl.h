/*
 * prctl.h: prctl and arch_prctl: what a program sets about itself. What would act on the engine is kept here instead.
 */
#ifndef CLIO_ENGINE_KERNEL_PRCTL_H
#define CLIO_ENGINE_KERNEL_PRCTL_H

#include <stdbool.h>

#include "engine/guest/task.h"

int64_t rec_prctl(struct task *t, struct sys_call *c);
/* Record and replay: registers. */
int64_t both_arch_prctl(struct task *t, struct sys_call *c);

/* Recording: the program has asked for SIGSEGV at this nondeterministic instruction (enum trace_insn). */
bool prctl_forbids(unsigned insn);

/* What PR_SET_SYSCALL_USER_DISPATCH says about the call that ends at t->exit_pc. */
enum prctl_dispatch { DISPATCH_KERNEL, DISPATCH_SIGNAL, DISPATCH_BAD_SELECTOR, DISPATCH_BAD_VALUE };
enum prctl_dispatch prctl_dispatch(const struct task *t);

/* What a successful exec, and being a forked child, does to the settings. */
void prctl_exec(struct task *t);
void prctl_forked(struct task *t);

#endif
