/*
 * signals.h: the guest's signals: dispositions, masks, frames.
 *
 * The guest's mask is kept in the kernel (less the signals that instructions raise), so the kernel's own
 * choices stay right; dispositions are kept here, with one host handler in the kernel for everything the
 * guest handles or would die of. A signal reaches the guest as an EV_SIGNAL at a recorded moment.
 *
 * Signals that instructions raise can be sent, too. The kernel cannot keep those back that the guest blocks,
 * so they wait in t->held, and in the kernel while the guest is inside a call (guest/call_fast.c):
 * sigpending, sigwait and signalfd see them.
 */
#ifndef CLIO_ENGINE_KERNEL_SIGNALS_H
#define CLIO_ENGINE_KERNEL_SIGNALS_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"
#include "engine/kernel/prctl.h"

int64_t rec_rt_sigaction(struct task *t, struct sys_call *c);
int64_t rec_rt_sigprocmask(struct task *t, struct sys_call *c);
int64_t rec_sigaltstack(struct task *t, struct sys_call *c);
int64_t rec_rt_sigsuspend(struct task *t, struct sys_call *c);
int64_t both_rt_sigreturn(struct task *t, struct sys_call *c);

/* Recording: takes over the dispositions and mask that the process was started with. */
void signals_begin(struct task *t);
/* Which signals are ignored and which have a handler. */
void signals_sets(uint64_t *ignored, uint64_t *caught);
/* Recording: in a forked child, whose place among processes may be another. */
void signals_forked(struct task *t);
/* CLONE_CLEAR_SIGHAND: what is not ignored has its default action. */
void signals_clear_handlers(struct task *t);
/* What a successful exec does to dispositions and the alternate stack. */
void signals_exec(struct task *t);

/*
 * Recording: delivers t->queued at t->regs.rip, and all that can be delivered after it, as the kernel does
 * before the program goes on. `flags` of the first: EVF_ENTRY, EVF_EXIT or 0 (after a counted tick). A timer
 * whose signals come faster than they are delivered here has one of them; t->pending says that another waits.
 */
void signals_deliver_queued(struct task *t, uint16_t flags);
/*
 * The queued signal is a timer's. One that comes while its handler returns is delivered at the next tick, not
 * at once: or a timer faster than a recorded handler would keep the program from ever going on.
 */
bool signals_queued_by_timer(const struct task *t);
/* Recording: the instruction at t->regs.rip raised t->fault. */
void signals_deliver_fault(struct task *t);
/* Recording: the instruction at t->regs.rip is one that the program has forbidden itself. */
void signals_deliver_protection(struct task *t);
/* Recording: the call that ends at t->exit_pc is not the kernel's to perform. */
void signals_deliver_dispatch(struct task *t, enum prctl_dispatch why);
/* Recording: after rt_sigreturn, whose frame may have been bad. */
void signals_after_return(struct task *t);
/* Before a SYS_TEMPMASK call: remembers the mask that it installs while it sleeps. FAST (signals_fast.c). */
void signals_note_temp_mask(struct task *t, const struct sys_call *c);
/* Ends the process as killed by signo: REC_END, then the kernel's default action, without a core file. */
_Noreturn void signals_die(int signo);

#endif
