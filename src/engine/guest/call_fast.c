/*
 * call_fast.c: the guest's system calls, and signals that go back to the kernel. See access.h.
 */
#include <signal.h>
#include <stdbool.h>

#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/raw.h"

/* siginfo_t begins with signo, errno, code. */
static bool to_task(const uint8_t siginfo[128])
{
    return ((const int32_t *)siginfo)[2] == SI_TKILL;
}

void task_requeue(const struct task *t, const uint8_t siginfo[128])
{
    const int signo = ((const int32_t *)siginfo)[0];
    if (to_task(siginfo))
        raw4(SYS_rt_tgsigqueueinfo, raw0(SYS_getpid), t->tid, signo, siginfo);
    else
        raw3(SYS_rt_sigqueueinfo, raw0(SYS_getpid), signo, siginfo);
}

void task_hold(struct task *t, const uint8_t siginfo[128])
{
    struct held_signals *h = &t->held[to_task(siginfo)];
    const int signo = ((const int32_t *)siginfo)[0];
    const uint64_t bit = 1ull << (signo - 1);
    if (h->set & bit)
        return; /* such signals do not queue: the first stays */
    h->set |= bit;
    copy_bytes(h->info[signo], siginfo, sizeof h->info[0]);
}

bool task_holds(const struct task *t)
{
    return t->held[0].set | t->held[1].set;
}

/* A handler may hold another one at any moment. */
static void forget(struct held_signals *h, uint64_t signals)
{
    __atomic_fetch_and(&h->set, ~signals, __ATOMIC_RELAXED);
}

void task_forget_held(struct task *t, uint64_t signals)
{
    forget(&t->held[0], signals);
    forget(&t->held[1], signals);
}

/*
 * Each is given back once: when a handler has run since they were blocked, it has unblocked them, and they are here again
 * at once.
 */
void task_give_back_held(struct task *t)
{
    uint8_t info[sizeof t->held[0].info[0]];
    for (int own = 0; own < 2; own++) {
        struct held_signals *h = &t->held[own];
        for (uint64_t left = h->set; left; left &= left - 1) {
            copy_bytes(info, h->info[__builtin_ctzll(left) + 1], sizeof info);
            forget(h, left & -left);
            task_requeue(t, info);
        }
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
