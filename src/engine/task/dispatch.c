/*
 * dispatch.c: see dispatch.h. Every exit that may be an event goes to the client, which records or replays.
 */
#include "engine/task/dispatch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/guest/layout.h"
#include "engine/host/raw.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"
#include "engine/task/perform.h"
#include "engine/translate/decode.h"
#include "engine/translate/instrument.h"
#include "engine/translate/translate.h"

const struct run_client *run_client;

/* ---- faults ---- */

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
    run_client->call(t);
    return true;
}

/* The page is there, and only may not be executed: the processor tells the difference in its error code. */
static bool page_there(const struct vma *v, uint64_t addr)
{
    uint8_t resident = 0;
    return v->prot && !raw3(SYS_mincore, PAGE_DOWN(addr), PAGE_SIZE, &resident) && (resident & 1);
}

/* The guest jumped to memory that it may not execute, or that is a mapping beyond the end of its file. */
static void raise_fetch_fault(struct task *t, uint64_t pc)
{
    siginfo_t info;
    if (perform_vsyscall(t, pc))
        return;
    memset(&info, 0, sizeof info);
    uint64_t addr = fetch_fault_address(pc);
    t->regs.rip = pc;
    if (run_client->grow(addr))
        return;
    const struct vma *v = space_find(&guest_space, addr);
    bool beyond = v && (v->prot & 4);
    info.si_signo = beyond ? SIGBUS : SIGSEGV;
    info.si_code = beyond ? BUS_ADRERR : v ? SEGV_ACCERR : SEGV_MAPERR;
    info.si_addr = (void *)addr;
    memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
    t->fault.trap = 14;
    t->fault.error = (v && !beyond && page_there(v, addr)) || addr >> 63 ? 0x15 : 0x14;
    t->fault.cr2 = addr;
    if ((uint64_t)((int64_t)(pc << 16) >> 16) != pc) { /* not canonical: a general protection fault */
        info.si_code = SI_KERNEL;
        info.si_addr = NULL;
        memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
        t->fault.trap = 13;
        t->fault.error = t->fault.cr2 = 0;
    }
    t->regs.rip = pc;
    run_client->fault(t);
}

void dispatch_resume(struct task *t)
{
    struct block *b;
    while (!(b = translate_block(t->regs.rip, ENTRY_PLAIN)))
        raise_fetch_fault(t, t->regs.rip);
    LOG(block, "enter %lx", (unsigned long)t->regs.rip);
    t->resume = (uint64_t)(uintptr_t)cache_entry(b, ENTRY_PLAIN);
}

/* Enters again where the fault was, with everything as it was. */
static void resume_at_fault(struct task *t)
{
    memcpy(t->regs.gpr, t->fault.host_gprs, sizeof t->regs.gpr);
    t->resume = t->fault.host_pc;
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
            resume_at_fault(t);
            return;
        }
        uint8_t *code = translate_alone(t->regs.rip);
        if (!code)
            BUG("the instruction at 0x%lx wrote to its own page and cannot be fetched",
                (unsigned long)t->regs.rip);
        t->resume = (uint64_t)(uintptr_t)code;
        return;
    }
    if (info.si_signo == SIGSEGV && info.si_code == SEGV_MAPERR && run_client->grow((uint64_t)info.si_addr)) {
        resume_at_fault(t);
        return;
    }
    if (translate_options.instrument)
        instrument_fault(t);
    run_client->fault(t);
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

/* An indirect transfer to pc, which counts a tick. Returns the block there; NULL when it faulted. */
static struct block *jump(struct task *t, uint64_t pc, enum entry wanted)
{
    LOG(block, "indirect to %lx", (unsigned long)pc);
    struct block *b = translate_block(pc, wanted);
    if (b) {
        t->resume = (uint64_t)(uintptr_t)cache_entry(b, ENTRY_COUNTED);
        return b;
    }
    t->budget--;
    raise_fetch_fault(t, pc);
    dispatch_resume(t);
    return NULL;
}

void exit_miss(struct task *t)
{
    cache_stats.misses++;
    t->regs.gpr[GPR_RCX] = t->spill_rcx;
    struct block *b = jump(t, t->target, ENTRY_INDIRECT);
    if (b && !translate_options.single_block)
        cache_fill_indirect(b);
}

void exit_preempt(struct task *t)
{
    t->regs.rip = cache_block_by_number((uint32_t)t->exit_site)->pc;
    run_client->preempt(t);
    dispatch_resume(t);
}

/* ---- instructions ---- */

/* True when t->resume is set. */
static bool perform_here(struct task *t, const struct insn *in)
{
    switch (perform_insn(t, in)) {
    case PERFORMED:
        return false;
    case PERFORMED_JUMP:
        jump(t, t->regs.rip, ENTRY_COUNTED);
        return true;
    case PERFORMED_FAULT:
        run_client->fault(t);
        return false;
    }
    return false;
}

/* The instruction at pc, for which the cache was left. Those met last are kept, as long as their bytes are the same. */
static const struct insn *decoded(uint64_t pc)
{
    static struct insn kept[64];
    struct insn *in = &kept[pc % 64];
    uint8_t bytes[sizeof in->bytes];
    if (in->pc == pc && in->length && !guest_read(bytes, pc, in->length) &&
        !memcmp(bytes, in->bytes, in->length))
        return in;
    if (decode_insn(in, pc, decode_room(pc)) < 0)
        BUG("an instruction at 0x%lx vanished", (unsigned long)pc);
    return in;
}

/* A block has found that its instruction was changed. */
static void forget_stale(struct task *t)
{
    t->regs.gpr[GPR_RCX] = t->spill_rcx;
    t->regs.rip = t->exit_pc;
    code_invalidate(t->exit_pc, t->exit_pc + 1);
    dispatch_resume(t);
}

void exit_insn(struct task *t)
{
    if (t->exit_site & TRANSLATE_STALE) {
        forget_stale(t);
        return;
    }
    const struct insn *in = decoded(t->exit_pc);
    t->regs.rip = t->exit_pc;
    switch (in->kind) {
    case INSN_NONDET:
        if (perform_checks(t, in))
            run_client->insn(t, in);
        else
            run_client->fault(t);
        break;
    case INSN_PERFORMED:
        if (perform_here(t, in))
            return;
        break;
    case INSN_X87_STORE:
        perform_x87_store(t, in);
        break;
    default:
        event_unsupported("instruction at %#lx: %s", (unsigned long)in->pc,
                          in->refused ? in->refused : "changed under us");
    }
    dispatch_resume(t);
}

/* ---- system calls ---- */

void exit_syscall(struct task *t)
{
    t->regs.rip = t->exit_pc;
    run_client->syscall(t);
    watch_verify();
    dispatch_resume(t);
}
