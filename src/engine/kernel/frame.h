/*
 * frame.h: signal frames on the guest's stack and the alternate stack, as the kernel lays them out and takes
 * them back.
 */
#ifndef CLIO_ENGINE_KERNEL_FRAME_H
#define CLIO_ENGINE_KERNEL_FRAME_H

#include "engine/guest/task.h"

struct signal_action { /* the kernel's struct sigaction */
    uint64_t handler, flags, restorer, mask;
};

/*
 * Builds the frame of signo on the guest's stack and enters the handler in t->regs. saved_mask is what
 * sigreturn brings back. False when the stack cannot take the frame: registers are as before. Adds to the
 * event being built what it wrote, either way.
 */
bool frame_push(struct task *t, int signo, const struct signal_action *a, const uint8_t siginfo[128],
                uint64_t saved_mask);

/* The mask in the frame that rt_sigreturn is about to take. False: it cannot be read. */
bool frame_mask(const struct task *t, uint64_t *mask);

/*
 * Takes registers, vector state and alternate stack back from the frame. False when the frame is bad: as much
 * of it as the kernel would have taken is in the task, t->shown says what the processor would have said, and
 * SIGSEGV is due.
 */
bool frame_return(struct task *t);

/* The task leaves its alternate stack without sigreturn: exec. */
void altstack_exec(struct task *t);

#endif
