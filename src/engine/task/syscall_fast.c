/*
 * syscall.c: the way of a system call that needs neither libc nor vector registers. FAST: see Makefile.
 *
 * Anything out of the ordinary (a signal waits, the row needs more, replay, logging, the next block is not
 * translated) is left to exit_syscall, which tells by task->called whether the call was already performed and
 * recorded.
 */
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/files.h"
#include "engine/kernel/table.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"
#include "engine/task/dispatch.h"
#include "engine/translate/cache.h"

void syscall_from_regs(struct task *t, struct sys_call *c)
{
    const uint64_t *g = t->regs.gpr;
    c->nr = (uint32_t)g[GPR_RAX];
    c->args[0] = g[GPR_RDI];
    c->args[1] = g[GPR_RSI];
    c->args[2] = g[GPR_RDX];
    c->args[3] = g[GPR_R10];
    c->args[4] = g[GPR_R8];
    c->args[5] = g[GPR_R9];
    c->result = 0;
    c->restart = false;
}

void syscall_to_regs(struct task *t, int64_t result)
{
    t->regs.gpr[GPR_RAX] = (uint64_t)result;
    t->regs.gpr[GPR_RCX] = t->regs.rip;
    t->regs.gpr[GPR_R11] = t->regs.rflags;
}

bool syscall_is_output(const struct sys_call *c)
{
    struct sys_call done = *c;
    done.result = 1;
    return sys_output_flags(&done);
}

void syscall_publish(struct task *t, const struct sys_call *c, uint32_t hash)
{
    uint16_t nr = c->nr < UINT16_MAX ? (uint16_t)c->nr : UINT16_MAX;
    struct event_head head = {
        EV_SYSCALL, (uint16_t)sys_output_flags(c), nr, t->call_pc, c->result, hash, NULL, 0};
    event_publish(t, &head);
    event_returned();
}

/* An argument that lies where a stack may have to grow first: see change_grow_arguments. */
static bool may_grow(const struct sys_call *c)
{
    uint64_t from = guest_space.grow_from, size = guest_space.grow_to - from;
    bool any = false;
    for (int i = 0; i < 6; i++)
        any |= c->args[i] - from < size;
    return any;
}

bool exit_syscall_fast(struct task *t)
{
    struct sys_call c;
    t->regs.rip = t->exit_pc;
    t->called = false;
    if (engine.slow_calls || t->pending || watch_count || t->user_dispatch)
        return false;
    __asm__ volatile("rdfsbase %0" : "=r"(t->regs.fs_base));
    t->call_pc = t->exit_pc - 2;
    syscall_from_regs(t, &c);
    if (may_grow(&c))
        return false;
    uint32_t hash = regs_hash(&t->regs, t->call_pc);
    event_entered(t, &c, t->call_pc, hash);
    bool turn = syscall_is_output(&c) && event_output_begin();
    if (!sys_record_fast(t, &c) || c.restart) {
        event_output_end(turn);
        return false;
    }
    t->too_much = !event_fits(t);
    if (t->too_much)
        return false;
    syscall_publish(t, &c, hash);
    event_output_end(turn);
    syscall_to_regs(t, c.result);
    struct block *b = t->pending ? NULL : cache_find(t->regs.rip);
    t->called = !b || files_stale.end || hostfd_near(c.result);
    if (t->called)
        return false;
    t->resume = (uint64_t)(uintptr_t)b->entries[ENTRY_PLAIN];
    return true;
}
