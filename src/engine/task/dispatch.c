/*
 * dispatch.c: see dispatch.h. Record and replay part here: every exit that is an event goes to one or the
 * other.
 */
#include "engine/task/dispatch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/guest/layout.h"
#include "engine/host/raw.h"
#include "engine/kernel/files.h"
#include "engine/kernel/process.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/table.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"
#include "engine/run/replay.h"
#include "engine/task/nondet.h"
#include "engine/translate/decode.h"
#include "engine/translate/instrument.h"
#include "engine/translate/translate.h"

/* ---- faults ---- */

static void perform_and_record(struct task *t);

static void deliver_fault(struct task *t)
{
    if (engine.mode == ENGINE_REPLAY)
        replay_fault(t);
    else
        signals_deliver_fault(t);
}

/* The first byte of an instruction at pc that cannot be fetched. */
static uint64_t fetch_fault_address(uint64_t pc)
{
    uint8_t bytes[16];
    uint64_t room = decode_room(pc);
    if (room > sizeof bytes)
        room = sizeof bytes;
    return pc + (room - safe_copy(bytes, (const void *)pc, room));
}

/*
 * The vsyscall page, where old static programs call three functions at fixed addresses: each is its system
 * call, returning to the caller. 0: pc is none of them.
 */
static uint32_t vsyscall_number(uint64_t pc)
{
    switch (pc) {
    case 0xffffffffff600000:
        return SYS_gettimeofday;
    case 0xffffffffff600400:
        return SYS_time;
    case 0xffffffffff600800:
        return SYS_getcpu;
    default:
        return 0;
    }
}

static bool perform_vsyscall(struct task *t, uint64_t pc)
{
    uint64_t caller;
    uint32_t nr = vsyscall_number(pc);
    if (!nr || guest_read(&caller, t->regs.gpr[GPR_RSP], 8))
        return false;
    t->regs.gpr[GPR_RSP] += 8;
    t->regs.gpr[GPR_RAX] = nr;
    t->exit_pc = t->regs.rip = caller;
    if (engine.mode == ENGINE_REPLAY)
        replay_syscall(t);
    else
        perform_and_record(t);
    return true;
}

/* The guest jumped to memory that it may not execute, or that is a mapping beyond the end of its file. */
static void raise_fetch_fault(struct task *t, uint64_t pc)
{
    siginfo_t info;
    if (perform_vsyscall(t, pc))
        return;
    memset(&info, 0, sizeof info);
    uint64_t addr = fetch_fault_address(pc);
    const struct vma *v = space_find(&guest_space, addr);
    bool beyond = v && (v->prot & 4);
    info.si_signo = beyond ? SIGBUS : SIGSEGV;
    info.si_code = beyond ? BUS_ADRERR : v ? SEGV_ACCERR : SEGV_MAPERR;
    info.si_addr = (void *)addr;
    memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
    t->fault.trap = 14;
    t->fault.error = (v && !beyond) || addr >> 63 ? 0x15 : 0x14;
    t->fault.cr2 = addr;
    if ((uint64_t)((int64_t)(pc << 16) >> 16) != pc) { /* not canonical: a general protection fault */
        info.si_code = SI_KERNEL;
        info.si_addr = NULL;
        memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
        t->fault.trap = 13;
        t->fault.error = t->fault.cr2 = 0;
    }
    t->regs.rip = pc;
    deliver_fault(t);
}

void dispatch_resume(struct task *t)
{
    struct block *b;
    while (!(b = translate_block(t->regs.rip, ENTRY_PLAIN)))
        raise_fetch_fault(t, t->regs.rip);
    LOG(block, "enter %lx", (unsigned long)t->regs.rip);
    t->resume = (uint64_t)(uintptr_t)cache_entry(b, ENTRY_PLAIN);
}

void exit_fault(struct task *t)
{
    siginfo_t info;
    memcpy(&info, t->fault.siginfo, sizeof info);
    LOG(signal, "fault: signal %d code %d at %lx, address %p", info.si_signo, info.si_code,
        (unsigned long)t->regs.rip, info.si_addr);
    if (info.si_signo == SIGSEGV && (t->fault.error & 2) && watch_fault((uint64_t)info.si_addr)) {
        if (translate_options.instrument) {
            /* The log counts whole blocks, so this one, of a single instruction, runs to its end. */
            memcpy(t->regs.gpr, t->fault.host_gprs, sizeof t->regs.gpr);
            t->resume = t->fault.host_pc;
            return;
        }
        uint8_t *code = translate_alone(t->regs.rip);
        if (!code)
            BUG("the instruction at 0x%lx wrote to its own page and cannot be fetched",
                (unsigned long)t->regs.rip);
        t->resume = (uint64_t)(uintptr_t)code;
        return;
    }
    if (translate_options.instrument)
        instrument_fault(t);
    deliver_fault(t);
    dispatch_resume(t);
}

/* ---- transfers ---- */

void exit_link(struct task *t)
{
    struct link *l = cache_link_by_number((uint32_t)t->exit_site);
    uint64_t pc;
    cache_stats.exits++;
    if (l->kind == LINK_INLINE)
        t->regs.gpr[GPR_RCX] = t->spill_rcx;
    uint8_t *code = translate_follow_link(t, l->number, &pc);
    LOG(block, "link to %lx", (unsigned long)pc);
    if (code) {
        t->resume = (uint64_t)(uintptr_t)code;
        return;
    }
    if (l->entry != ENTRY_PLAIN)
        t->budget--; /* the transfer itself happened */
    raise_fetch_fault(t, pc);
    dispatch_resume(t);
}

void exit_miss(struct task *t)
{
    cache_stats.misses++;
    t->regs.gpr[GPR_RCX] = t->spill_rcx;
    uint64_t pc = t->target;
    LOG(block, "indirect to %lx", (unsigned long)pc);
    struct block *b = translate_block(pc, ENTRY_INDIRECT);
    if (!b) {
        t->budget--;
        raise_fetch_fault(t, pc);
        dispatch_resume(t);
        return;
    }
    if (!translate_options.single_block)
        cache_fill_indirect(b);
    t->resume = (uint64_t)(uintptr_t)cache_entry(b, ENTRY_COUNTED);
}

void exit_preempt(struct task *t)
{
    t->regs.rip = cache_block_by_number((uint32_t)t->exit_site)->pc;
    if (engine.mode == ENGINE_REPLAY)
        replay_preempt(t);
    else if (t->pending)
        signals_deliver_queued(t, 0);
    else
        BUG("the tick budget ran out at 0x%lx and no signal waits", (unsigned long)t->regs.rip);
    dispatch_resume(t);
}

/* ---- instructions ---- */

void exit_insn(struct task *t)
{
    struct insn in;
    t->regs.rip = t->exit_pc;
    if (decode_insn(&in, t->exit_pc, decode_room(t->exit_pc)) < 0)
        BUG("an instruction at 0x%lx vanished", (unsigned long)t->exit_pc);
    if (in.kind != INSN_NONDET)
        event_unsupported("instruction at %#lx: %s", (unsigned long)in.pc,
                          in.refused ? in.refused : "changed under us");
    if (engine.mode == ENGINE_REPLAY)
        replay_insn(t, &in);
    else
        nondet_record(t, &in);
    dispatch_resume(t);
}

/* ---- system calls ---- */

/*
 * Pages with watched code would make the kernel refuse to write there. Opens those that the call might write
 * to, as its arguments look: behind every address, as far as the largest count could reach; all of them for
 * vectors.
 */
static void open_buffers(const struct sys_call *c)
{
    enum { STRUCT_MAX = 4096, ELEMENT_MAX = 64, COUNT_MAX = 1 << 20 };
    uint64_t reach = STRUCT_MAX;
    switch (c->nr) {
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_process_vm_readv:
    case SYS_vmsplice:
    case SYS_io_getevents:
    case SYS_ioctl:
        watch_open(0, GUEST_HIGH);
        return;
    }
    for (int i = 0; i < 6; i++) {
        uint64_t n = (uint32_t)c->args[i];
        if (n < COUNT_MAX)
            n *= ELEMENT_MAX;
        if (n > reach && n <= INT32_MAX)
            reach = n;
    }
    for (int i = 0; i < 6; i++)
        if (c->args[i] >= GUEST_LOW && c->args[i] < GUEST_HIGH)
            watch_open(c->args[i], c->args[i] + reach);
}

static int64_t perform(struct task *t, struct sys_call *c)
{
    const struct sys_row *row = c->nr < sys_table_count ? &sys_table[c->nr] : NULL;
    if (row && (row->flags & SYS_TEMPMASK))
        signals_note_temp_mask(t, c);
    if (watch_count)
        open_buffers(c);
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
    LOG(syscall, "%s = %ld%s, %u effects", name ? name : "call", (long)c.result,
        c.restart ? " (to be restarted)" : "", t->effects.count);
    if (c.restart) {
        event_output_end(turn);
        t->temp_mask_set = false; /* it was never in force */
        event_returned();
        t->effects.count = t->maps_used = t->maps_count = 0;
        t->regs.rip = t->call_pc;
        signals_deliver_queued(t, EVF_ENTRY);
        return;
    }
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
    if (!t->pending)
        t->temp_mask_set = false;
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
    if (t->pending) {
        t->regs.rip = t->exit_pc - 2;
        signals_deliver_queued(t, EVF_ENTRY);
    } else {
        perform_and_record(t);
    }
}

void exit_syscall(struct task *t)
{
    t->regs.rip = t->exit_pc;
    if (engine.mode == ENGINE_REPLAY) {
        replay_syscall(t);
    } else {
        if (!t->called)
            record_syscall(t);
        t->called = false;
        forget_stale_code();
        if (t->pending && !(t->returned_from_handler && signals_queued_by_timer(t)))
            signals_deliver_queued(t, EVF_EXIT);
        t->returned_from_handler = false;
    }
    dispatch_resume(t);
}
