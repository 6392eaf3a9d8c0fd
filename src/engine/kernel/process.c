/* process.c: the end of a process and the thread's small change. See process.h. */
#include "engine/kernel/process.h"

#include "base/log.h"
#include "engine/event/event.h"
#include "engine/event/session.h"
#include "engine/guest/access.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/vfork.h"
#include "engine/translate/cache.h"

static bool published;

bool process_published(void)
{
    bool was = published;
    published = false;
    return was;
}

void process_has_published(void)
{
    published = true;
}

/* ---- exit ---- */

static _Noreturn void do_exit(struct task *t, struct sys_call *c)
{
    int status = (int)c->args[0] & 0xff;
    struct event_head head = {EV_EXIT, 0, (uint16_t)c->nr, t->call_pc, status, engine.ring->call.hash,
                              NULL,    0};
    event_publish(t, &head);
    LOG(xlate, "%lu blocks of %lu instructions translated, %lu links, %lu link exits, %lu indirect misses",
        cache_stats.blocks, cache_stats.insns, cache_stats.links, cache_stats.exits, cache_stats.misses);
    event_end(END_EXIT, status, NULL);
    vfork_leave();
    hostfd_leave();
    for (;;)
        raw1(SYS_exit_group, c->args[0]);
}

int64_t both_exit(struct task *t, struct sys_call *c)
{
    do_exit(t, c);
}

int64_t both_exit_group(struct task *t, struct sys_call *c)
{
    do_exit(t, c);
}

/* ---- the thread ---- */

/* Not the kernel's business: nobody but a parent in vfork has the memory, too (vfork.h). */
int64_t rec_set_tid_address(struct task *t, struct sys_call *c)
{
    vfork_set_clear_tid(c->args[0]);
    return t->tid;
}

int64_t rec_set_robust_list(struct task *t, struct sys_call *c)
{
    return task_syscall(t, c);
}
