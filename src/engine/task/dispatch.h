/*
 * dispatch.h: what happens when the guest leaves the code cache. The exit_ functions are called by entry.S.
 */
#ifndef CLIO_ENGINE_DISPATCH_H
#define CLIO_ENGINE_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "engine/guest/task.h"

struct task;
struct insn;
struct sys_call;
struct x87_pointers;

void exit_link(struct task *t);
void exit_preempt(struct task *t);
void exit_insn(struct task *t);
void exit_miss(struct task *t);
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

/*
 * Who runs the guest: run/record.c or run/replay.c. Each function gets the task with its registers complete
 * and leaves in regs.rip where the guest goes on; it does not return when the space ends.
 */
struct run_client {
    void (*syscall)(struct task *t); /* at a system call instruction that ends at t->exit_pc, with the signals
                                        around it */
    void (*call)(struct task *t);    /* the call alone */
    void (*insn)(struct task *t, const struct insn *in); /* a nondeterministic instruction */
    /* The instruction at pc is about to store these: what it did in the recording takes their place; then, it has. */
    void (*x87_before)(struct task *t, uint64_t pc, struct x87_pointers *pointers);
    void (*x87_after)(struct task *t, uint64_t pc, const struct x87_pointers *pointers);
    void (*preempt)(struct task *t);  /* the tick budget is spent */
    bool (*grow)(uint64_t addr);      /* nothing is mapped at addr: true when a stack has grown there */
    void (*fault)(struct task *t);    /* t->fault was raised by the instruction at t->regs.rip */
    void (*failed)(const char *text); /* the engine itself failed: reports it; the process ends afterwards */
    uint64_t (*events)(void);         /* number of the last event, for reports */
};
extern const struct run_client *run_client;

/* Sets task->resume to the translation of the guest's pc; a pc that cannot be executed raises the guest's
 * SIGSEGV. */
void dispatch_resume(struct task *t);

/* Enters the guest; never returns (entry.S). */
_Noreturn void engine_enter(struct task *t);

#endif
