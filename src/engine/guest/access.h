/*
 * access.h: guest memory as the host reaches it, and the one way in which a system call of the guest enters the kernel. FAST.
 *
 * Nothing that the guest names is trusted: every access tolerates faults (access.S, whose addresses the host's signal
 * handler knows).
 */
#ifndef CLIO_ENGINE_GUEST_ACCESS_H
#define CLIO_ENGINE_GUEST_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/guest/task.h"

struct task;
struct sys_call;

/* Copies n bytes with faults tolerated; returns the number of bytes NOT copied. FAST. */
size_t safe_copy(void *to, const void *from, size_t n);
/* Fault-tolerant reads of guest memory: 0 or -EFAULT. FAST. */
static inline int guest_read(void *to, uint64_t addr, size_t n)
{
    return safe_copy(to, (const void *)addr, n) ? -14 : 0;
}
static inline int guest_write(uint64_t addr, const void *from, size_t n)
{
    return safe_copy((void *)addr, from, n) ? -14 : 0;
}
/* Copies a NUL-terminated string; returns its length, -EFAULT, or -ENAMETOOLONG when it does not fit. FAST.
 */
int64_t guest_string(char *to, size_t size, uint64_t addr);

/*
 * Performs a system call for the guest with the kernel's mask as it is. Before entering the kernel and until it has returned, a signal that
 * the handler queued for the guest makes it return -EINTR, or (when the kernel would restart the call, or has
 * not yet begun it) sets c->restart. Sets c->result and returns it. FAST.
 */
int64_t task_syscall_enter(struct task *t, struct sys_call *c);
/*
 * The same for a call of the guest's own: while it lasts, the kernel also holds back those of SYNC_SIGNALS that the
 * guest blocks or ignores, and has those that wait in t->held, so that the call ends, waits and counts as it would
 * alone. FAST.
 */
int64_t task_syscall(struct task *t, struct sys_call *c);
/* Gives a signal that was taken for the guest back to the kernel, which must block it. FAST. */
void task_requeue(const struct task *t, const uint8_t siginfo[128]);
/* Keeps one of SYNC_SIGNALS in t->held; the same for all that are there; whether there are any; some no longer. FAST. */
void task_hold(struct task *t, const uint8_t siginfo[128]);
void task_give_back_held(struct task *t);
bool task_holds(const struct task *t);
void task_forget_held(struct task *t, uint64_t signals);

#endif
