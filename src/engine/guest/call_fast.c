/*
 * call_fast.c: the guest's system calls, and signals that go back to the kernel. See access.h.
 */
#include <signal.h>

#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/raw.h"

void task_requeue(const struct task *t, const uint8_t siginfo[128])
{
    const int32_t *words = (const int32_t *)siginfo; /* signo, errno, code */
    const int signo = words[0];
    if (words[2] == SI_TKILL)
        raw4(SYS_rt_tgsigqueueinfo, raw0(SYS_getpid), t->tid, signo, siginfo);
    else
        raw3(SYS_rt_sigqueueinfo, raw0(SYS_getpid), signo, siginfo);
}

void task_give_back_held(struct task *t)
{
    while (t->held) {
        int signo = __builtin_ctzll(t->held) + 1;
        t->held &= t->held - 1;
        task_requeue(t, t->held_info[signo]);
    }
}

int64_t task_syscall(struct task *t, struct sys_call *c)
{
    const uint64_t shy = (t->blocked | t->ignored) & SYNC_SIGNALS;
    if (!shy)
        return task_syscall_enter(t, c);
    raw4(SYS_rt_sigprocmask, SIG_BLOCK, &shy, 0, 8);
    task_give_back_held(t);
    int64_t result = task_syscall_enter(t, c);
    raw4(SYS_rt_sigprocmask, SIG_UNBLOCK, &shy, 0, 8);
    return result;
}
