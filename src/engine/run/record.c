/* record.c: see record.h. The way of a call that needs no libc is in task/syscall_fast.c. */
#include "engine/run/record.h"

#include <sys/syscall.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/guest/layout.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/files.h"
#include "engine/kernel/prctl.h"
#include "engine/kernel/process.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/table.h"
#include "engine/kernel/vfork.h"
#include "engine/memory/change.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"
#include "engine/task/nondet.h"
#include "engine/translate/decode.h"

/* ---- system calls ---- */

/* The call's addresses name memory that it neither reads nor writes. */
static bool about_memory(uint32_t nr)
{
    switch (nr) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
    case SYS_madvise:
    case SYS_brk:
    case SYS_msync:
    case SYS_mlock:
    case SYS_mlock2:
    case SYS_munlock:
    case SYS_mbind:
    case SYS_remap_file_pages:
    case SYS_shmat:
    case SYS_shmdt:
        return true;
    default:
        return false;
    }
}

/* The call may write where addresses in memory say, not only behind its arguments. */
static bool writes_anywhere(const struct sys_row *row, uint32_t nr)
{
    if (!row || !row->name || (row->flags & ROW_VECTOR))
        return true;
    enum { GETXATTRAT = 464 };
    return nr == SYS_ioctl || nr == SYS_process_vm_writev || nr == GETXATTRAT || nr == SYS_keyctl;
}

/*
 * Pages with watched code would make the kernel refuse to write there. Opens those that the call might write
 * to, as its arguments look: behind every address, as far as the largest count could reach; all of them for
 * vectors.
 */
static void open_buffers(const struct sys_row *row, const struct sys_call *c)
{
    enum { STRUCT_MAX = 4096, ELEMENT_MAX = 64, COUNT_MAX = 1 << 20 };
    uint64_t reach = STRUCT_MAX;
    if (writes_anywhere(row, c->nr)) {
        watch_open(0, ~0ull);
        return;
    }
    if (row->flags & SYS_SEEN)
        return;
    for (int i = 0; i < 6; i++) {
        uint64_t n = (uint32_t)c->args[i];
        if (n < COUNT_MAX)
            n *= ELEMENT_MAX;
        if (n > reach && n <= INT32_MAX)
            reach = n;
    }
    for (int i = 0; i < 6; i++)
        if (c->args[i] >= GUEST_LOW && c->args[i] + reach > c->args[i])
            watch_open(c->args[i], c->args[i] + reach);
}

static int64_t perform(struct task *t, struct sys_call *c)
{
    const struct sys_row *row = c->nr < sys_table_count ? &sys_table[c->nr] : NULL;
    if (row && (row->flags & SYS_TEMPMASK))
        signals_note_temp_mask(t, c);
    if (!about_memory(c->nr)) {
        change_grow_arguments(&guest_space, c->args);
        if (watch_count)
            open_buffers(row, c);
    }
    if (row && (row->flags & SYS_BOTH))
        return row->both(t, c);
    return sys_record(t, c);
}

static void perform_and_record(struct task *t)
{
    struct sys_call c;
    t->call_pc = t->exit_pc - 2;
    syscall_from_regs(t, &c);
    uint32_t hash = regs_hash(&t->regs, t->call_pc);
    event_entered(t, &c, t->call_pc, hash);
    const char *name = sys_name(c.nr);
    LOG(syscall, "%s (%u) (%lx, %lx, %lx, %lx, %lx, %lx) at %lx", name ? name : "call", c.nr,
        (unsigned long)c.args[0], (unsigned long)c.args[1], (unsigned long)c.args[2],
        (unsigned long)c.args[3], (unsigned long)c.args[4], (unsigned long)c.args[5],
        (unsigned long)t->call_pc);
    bool turn = syscall_is_output(&c) && event_output_begin();
    c.result = perform(t, &c);
    t->temp_mask_set = false;
    LOG(syscall, "%s = %ld%s, %u effects", name ? name : "call", (long)c.result,
        c.restart ? " (to be restarted)" : "", t->effects.count);
    if (c.restart) {
        event_output_end(turn);
        event_returned();
        t->effects.count = 0; /* but stacks that have grown stay so */
        t->regs.rip = t->call_pc;
        signals_deliver_queued(t, EVF_ENTRY);
        return;
    }
    if (vfork_active())
        vfork_forward(t, &c);
    t->returned_from_handler = c.nr == SYS_rt_sigreturn;
    bool replaced = false;
    if (process_published())
        replaced = c.nr == SYS_execve || c.nr == SYS_execveat;
    else
        syscall_publish(t, &c, hash);
    event_output_end(turn);
    event_returned();
    if (!replaced && c.nr != SYS_rt_sigreturn)
        syscall_to_regs(t, c.result);
    signals_after_return(t);
}

static void forget_stale_code(void)
{
    struct files_stale stale = files_stale;
    files_stale = (struct files_stale){0, 0};
    if (stale.end)
        code_invalidate(stale.start, stale.end);
}

static void record_syscall(struct task *t)
{
    const enum prctl_dispatch to = prctl_dispatch(t);
    if (t->pending) {
        t->regs.rip = t->exit_pc - 2;
        signals_deliver_queued(t, EVF_ENTRY);
    } else if (to == DISPATCH_KERNEL) {
        perform_and_record(t);
    } else {
        signals_deliver_dispatch(t, to);
    }
}

static void record_exit(struct task *t)
{
    if (t->too_much)
        event_unsupported("one system call that sets very many separate pieces of memory");
    if (!t->called)
        record_syscall(t);
    t->called = false;
    hostfd_make_room((int64_t)t->regs.gpr[GPR_RAX]);
    forget_stale_code();
    if (t->pending && !(t->returned_from_handler && signals_queued_by_timer(t)))
        signals_deliver_queued(t, EVF_EXIT);
    t->returned_from_handler = false;
}

/* ---- the client ---- */

static void record_insn(struct task *t, const struct insn *in)
{
    if (prctl_forbids(in->nondet))
        signals_deliver_protection(t);
    else
        nondet_record(t, in);
}

static void record_preempt(struct task *t)
{
    if (!t->pending)
        BUG("the tick budget ran out at 0x%lx and no signal waits", (unsigned long)t->regs.rip);
    signals_deliver_queued(t, 0);
}

static void record_x87_before(struct task *t, uint64_t pc, struct x87_pointers *pointers)
{
}

static bool record_grow(uint64_t addr)
{
    return change_grow(&guest_space, addr);
}

static void record_failed(const char *text)
{
    if (engine.ring)
        event_end(END_INTERNAL, EXIT_ENVIRONMENT, text);
}

static uint64_t record_events(void)
{
    return engine.ring ? engine.ring->events : 0;
}

const struct run_client record_client = {
    .syscall = record_exit,
    .call = perform_and_record,
    .insn = record_insn,
    .x87_before = record_x87_before,
    .x87_after = nondet_record_pointers,
    .preempt = record_preempt,
    .grow = record_grow,
    .fault = signals_deliver_fault,
    .failed = record_failed,
    .events = record_events,
};
