/*
 * process.h: birth, change and end of guest processes.
 */
#ifndef CLIO_ENGINE_KERNEL_PROCESS_H
#define CLIO_ENGINE_KERNEL_PROCESS_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"

/* Recording. These publish their own events (EV_FORK, EV_EXEC, EV_EXIT) where they succeed; see
 * process_published. */
int64_t both_fork(struct task *t, struct sys_call *c);
int64_t both_vfork(struct task *t, struct sys_call *c);
int64_t both_clone(struct task *t, struct sys_call *c);
int64_t both_clone3(struct task *t, struct sys_call *c);
int64_t both_execve(struct task *t, struct sys_call *c);
int64_t both_execveat(struct task *t, struct sys_call *c);
int64_t both_exit(struct task *t, struct sys_call *c);
int64_t both_exit_group(struct task *t, struct sys_call *c);

/*
 * The parent as the guest shall see it, of the one that the kernel names: the recorder stands for whoever started the
 * recording and for init, which would adopt orphans. FAST.
 */
int process_parent(int parent);
void after_getppid(struct task *t, struct sys_call *c);

int64_t rec_set_tid_address(struct task *t, struct sys_call *c);
int64_t rec_set_robust_list(struct task *t, struct sys_call *c);

/* True once after a call that has published its event itself (or moved to another space). */
bool process_published(void);
void process_has_published(void);

/* Recording: the first program of the recording; argv and envp are host memory. Ends the process when it
 * cannot start. */
void process_begin(struct task *t, const char *path, char **argv, char **envp);

#endif
