/*
 * dispatch.h: what happens when the guest leaves the code cache. The exit_ functions are called by entry.S.
 */
#ifndef CLIO_ENGINE_DISPATCH_H
#define CLIO_ENGINE_DISPATCH_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"

void exit_link(struct task *t);
void exit_preempt(struct task *t);
void exit_insn(struct task *t);
void exit_miss(struct task *t);
void exit_log_full(struct task *t);
void exit_log_store(struct task *t);
void exit_syscall(struct task *t);
void exit_fault(struct task *t);
/* FAST. False: exit_syscall must go on. */
bool exit_syscall_fast(struct task *t);

/* FAST (syscall_fast.c) */
void syscall_from_regs(struct task *t, struct sys_call *c);
void syscall_to_regs(struct task *t, int64_t result);
/* The call would write to the recording's stdout or stderr. FAST. */
bool syscall_is_output(const struct sys_call *c);
void syscall_publish(struct task *t, const struct sys_call *c, uint32_t hash);

/* Sets task->resume to the translation of the guest's pc; a pc that cannot be executed raises the guest's
 * SIGSEGV. */
void dispatch_resume(struct task *t);

/* Enters the guest; never returns (entry.S). */
_Noreturn void engine_enter(struct task *t);

#endif
