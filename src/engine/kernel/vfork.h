/*
 * vfork.h: a child that has its parent's memory until it execs or ends. Recording.
 *
 * A child that shares its parent's memory would share the engine with it, so it gets a copy, and the parent
 * waits until the child execs or goes. The child then sends what it changed (pagediff.h); the parent puts it
 * into its own memory as effects of its event. That is what posix_spawn reports a failed exec through.
 */
#ifndef CLIO_ENGINE_KERNEL_VFORK_H
#define CLIO_ENGINE_KERNEL_VFORK_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"

struct vfork {  /* one fork under way */
    bool waits; /* it is a vfork; set by the caller */
    int pair[2];
};

/* Before the fork. 0 or -errno. */
int64_t vfork_begin(struct vfork *v);
/* In the child, first of all. */
void vfork_child(struct vfork *v);
/* In the parent; pid is the child's, or -errno. Returns when the child has given its memory back. */
void vfork_parent(struct vfork *v, struct task *t, int64_t pid);
/* The process is about to go or to exec: a parent that waits gets the memory that this child changed and goes
 * on. */
void vfork_leave(void);

#endif
