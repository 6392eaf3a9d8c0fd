/*
 * vfork.h: a child that has its parent's memory until it execs or ends. Recording.
 *
 * A child that shared its parent's memory would share the engine with it, so it gets a copy, and what it does to
 * the copy is done to the parent's memory, too, as part of the parent's vfork event. Changes of mappings go to
 * the parent, which waits, as they happen. Changed bytes (pagediff.h) go when the child execs or ends, or before
 * it forks in its turn. For a child that is killed, its keeper sends them: a process that shares the child's
 * memory and descriptors and sleeps until the kernel says, as it does at the end of a thread, that the child has
 * let go of its memory.
 */
#ifndef CLIO_ENGINE_KERNEL_VFORK_H
#define CLIO_ENGINE_KERNEL_VFORK_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"
#include "engine/kernel/sharedcopy.h"

struct vfork {  /* one fork under way */
    bool waits; /* it is a vfork; set by the caller */
    bool shares_table, killed;
    int keeper;
    int ends[2]; /* handles: the parent's, the child's */
    struct shared_copy shared;
};

/* Before any fork. 0 or -errno. */
int64_t vfork_begin(struct vfork *v);
/* In the child, first of all, with all signals blocked. */
void vfork_child(struct vfork *v);
/*
 * In the parent, with all signals blocked that can wait; pid is the child's, or -errno. Returns when the child
 * has given its memory back.
 */
void vfork_parent(struct vfork *v, struct task *t, int64_t pid);
/* In the parent, when its event is published. */
void vfork_done(void);

/* True in a child whose parent waits. */
bool vfork_active(void);
/* The call c has changed mappings, which are in the event being built: so do those of a parent that waits. */
void vfork_forward(struct task *t, const struct sys_call *c);
/* The process is about to go or to exec: a parent that waits has all changes then and goes on. */
void vfork_leave(void);

/* What the kernel sets to 0 when the process lets go of memory that others have, too; 0: nothing. */
void vfork_set_clear_tid(uint64_t addr);

/* wait4 and waitid for children of every kind, of which the keeper is one. FAST. */
bool slow_wait4(const struct sys_call *c);
bool slow_waitid(const struct sys_call *c);
int64_t rec_wait(struct task *t, struct sys_call *c);

extern int vfork_keeper; /* its pid, or 0 */

#endif
