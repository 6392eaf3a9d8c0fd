/*
 * hostsig.c: see hostsig.h.
 *
 * A handler starts with whatever fs base the interrupted code had: in guest code, generated code and FAST
 * code that is the guest's. So the first thing is to switch to the host's and the last to switch back.
 *
 * Where the interrupted pc is decides:
 *
 *   code cache                  fault: guest state is rebuilt and the handler returns to stub_fault;
 *                               other signal: queued, and the tick budget is spent, so that the guest leaves
 *                               the cache at the next counted entry
 *   reenter_begin..entry_end    on the way into the cache: as in the cache
 *   stub_miss..miss_end         between two pieces of the cache: as in the cache
 *   task_syscall_check..insn    the call has not happened (or is to be restarted): goes on at
 *                               task_syscall_restart
 *   task_syscall_done           one of SYNC_SIGNALS that the guest ignores ended a call with a mask of its own:
 *                               goes on at task_syscall_again
 *   safe_copy_insn              fault on guest memory: goes on at safe_copy_fault
 *   elsewhere                   fault: ours, reported and fatal; other signal: queued
 *
 * One signal is queued at a time: everything else stays blocked in the kernel until it was delivered.
 */
#include "engine/task/hostsig.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/error.h"
#include "engine/cpu/xsave.h"
#include "engine/task/crash.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/disposition.h"
#include "engine/host/raw.h"
#include "engine/translate/translate.h"
#include "engine/memory/change.h"
#include "engine/memory/watch.h"

extern const char reenter_begin[], entry_end[], safe_copy_insn[], safe_copy_fault[], task_syscall_again[],
    task_syscall_check[], task_syscall_insn[], task_syscall_done[], task_syscall_restart[], stub_fault[],
    stub_miss[], miss_end[], __executable_start[], etext[];

enum {
    ALTSTACK_SIZE = 128 * 1024,
    HOST_FLAGS_OFF = 0x40500, /* AC, DF, TF: the guest's, and poison for the host */
};

static struct task *current(void)
{
    struct task *t;
    __asm__ volatile("movq %%gs:0, %0" : "=r"(t));
    return t;
}

static uint64_t get_fs(void)
{
    uint64_t fs;
    __asm__ volatile("rdfsbase %0" : "=r"(fs));
    return fs;
}

static void set_fs(uint64_t fs)
{
    __asm__ volatile("wrfsbase %0" : : "r"(fs) : "memory");
}

/* Where gregs holds rax rcx rdx rbx rsp rbp rsi rdi r8..r15. */
static const int greg_of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/* ---- spending the budget ---- */

/*
 * The flag-free counter (cache_emit_counted) is not one instruction: while it holds the budget in rcx, the
 * register is spent, too. Offsets of its instructions: 0 spill, 9 load, 18 lea -1, 25 store, 34 lea +1, 41
 * jrcxz.
 */
static void spend_in_sequence(uint64_t pc, greg_t *rcx)
{
    const struct code_range *r = cache_range(pc);
    if (!r || r->entry != ENTRY_COUNTED || !r->block->flags_live)
        return;
    uint64_t offset = pc - (uintptr_t)r->start;
    if (offset == 18)
        *rcx = 0;
    else if (offset == 25)
        *rcx = -1;
}

static void spend_budget(struct task *t)
{
    t->tick_base -= t->budget;
    t->budget = 0;
}

/* ---- faults ---- */

static void note_fault(struct guest_fault *f, const siginfo_t *info, const ucontext_t *uc)
{
    const greg_t *g = uc->uc_mcontext.gregs;
    f->error = (uint64_t)g[REG_ERR];
    f->trap = (uint64_t)g[REG_TRAPNO];
    f->cr2 = (uint64_t)g[REG_CR2];
    memcpy(f->siginfo, info, sizeof f->siginfo);
}

/* Guest state as of the faulting instruction into the task. False when host_pc is no guest instruction. */
static bool rebuild_guest(struct task *t, const siginfo_t *info, ucontext_t *uc, uint64_t guest_fs)
{
    greg_t *g = uc->uc_mcontext.gregs;
    uint64_t host_pc = (uint64_t)g[REG_RIP];
    bool trap = info->si_signo == SIGTRAP; /* reported after the instruction (int3) */
    uint64_t gprs[16], pc;
    for (int i = 0; i < 16; i++)
        gprs[i] = (uint64_t)g[greg_of[i]];
    memcpy(t->fault.host_gprs, gprs, sizeof gprs);
    unsigned length;
    if (translate_state(t, trap ? host_pc - 1 : host_pc, &pc, gprs, &length))
        return false;
    memcpy(t->regs.gpr, gprs, sizeof gprs);
    t->regs.rip = trap ? pc + length : pc;
    t->regs.rflags = (uint64_t)g[REG_EFL];
    t->regs.fs_base = guest_fs;
    t->fault.host_pc = host_pc;
    note_fault(&t->fault, info, uc);
    if (info->si_signo == SIGFPE || info->si_signo == SIGILL) /* there, si_addr is the instruction */
        memcpy(t->fault.siginfo + offsetof(siginfo_t, si_addr), &pc, 8);
    if (trap && info->si_code != SI_KERNEL) /* int1: the next one */
        memcpy(t->fault.siginfo + offsetof(siginfo_t, si_addr), &t->regs.rip, 8);
    xsave_from_kernel(&(struct xsave_state){t->xsave, &engine.host.layout}, sizeof t->xsave, t->xsave_mask,
                      (const uint8_t *)uc->uc_mcontext.fpregs);
    return true;
}

static bool is_sync(int signo)
{
    return SYNC_SIGNALS >> (signo - 1) & 1;
}

/* pc follows a system call instruction of ours: the signal was sent, for no instruction ends in a fault
 * behind itself. */
static bool after_host_call(uint64_t pc)
{
    bool ours = pc > (uint64_t)(uintptr_t)__executable_start + 2 && pc < (uint64_t)(uintptr_t)etext;
    return ours && !memcmp((const void *)(pc - 2), "\x0f\x05", 2);
}

/* Raised by the instruction at pc. A process can send itself any code that a fault has, which then comes with
 * its call. */
static bool is_fault(const siginfo_t *info, uint64_t pc)
{
    return is_sync(info->si_signo) && info->si_code > 0 && !after_host_call(pc);
}

/* Returns the fs base to continue with. */
static uint64_t on_fault(struct task *t, siginfo_t *info, ucontext_t *uc, uint64_t fs)
{
    greg_t *g = uc->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)g[REG_RIP];
    if (pc == (uint64_t)(uintptr_t)safe_copy_insn) {
        uint64_t addr = (uint64_t)(uintptr_t)info->si_addr;
        if (!watch_fault(addr) && !(engine.mode == ENGINE_RECORD && change_grow(&guest_space, addr))) {
            note_fault(&t->copy_fault, info, uc);
            g[REG_RIP] = (greg_t)(uintptr_t)safe_copy_fault;
        }
        return fs;
    }
    if (info->si_signo == SIGTRAP && info->si_code == TRAP_TRACE)
        event_unsupported("a program that single-steps itself (EFLAGS.TF)");
    if (!cache_contains(pc) || !rebuild_guest(t, info, uc, fs))
        crash_host_fault(info, uc);
    g[REG_RIP] = (greg_t)(uintptr_t)stub_fault;
    g[REG_EFL] &= ~(greg_t)HOST_FLAGS_OFF;
    g[REG_RSP] = (greg_t)t->host_rsp;
    return t->host_fs;
}

/* ---- signals for the guest ---- */

/* The call in flight was ended by this signal while its mask for the time of the call was in force. */
static bool ended_call(const struct task *t, int signo, const greg_t *g)
{
    return t->temp_mask_set && !(t->temp_mask >> (signo - 1) & 1) &&
           (uint64_t)g[REG_RIP] == (uint64_t)(uintptr_t)task_syscall_done && g[REG_RAX] == -EINTR;
}

/* One of SYNC_SIGNALS was sent and the guest is not to have it: true. It waits in the task, or is forgotten.
 */
static bool keep_sync(struct task *t, const siginfo_t *info, uint64_t blocked)
{
    const uint64_t bit = 1ull << (info->si_signo - 1);
    if (!is_sync(info->si_signo) || !(t->pending || ((blocked | t->ignored) & bit)))
        return false;
    if ((blocked & bit) || !(t->ignored & bit))
        task_hold(t, (const uint8_t *)info);
    return true;
}

static void on_async(struct task *t, const siginfo_t *info, ucontext_t *uc)
{
    greg_t *g = uc->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)g[REG_RIP];
    bool in_call = ended_call(t, info->si_signo, g);
    if (keep_sync(t, info, in_call ? t->temp_mask : t->blocked)) {
        if (in_call && !t->pending) /* it is ignored: the kernel would have gone on waiting */
            g[REG_RIP] = (greg_t)(uintptr_t)task_syscall_again;
        return;
    }
    memcpy(t->queued.siginfo, info, sizeof t->queued.siginfo);
    t->queued.in_call = in_call;
    uint64_t all = ~SYNC_SIGNALS;
    memcpy(&uc->uc_sigmask, &all, 8);
    t->pending = 1;
    if (pc >= (uint64_t)(uintptr_t)task_syscall_check && pc <= (uint64_t)(uintptr_t)task_syscall_insn) {
        g[REG_EFL] &= ~(greg_t)HOST_FLAGS_OFF;
        g[REG_RIP] = (greg_t)(uintptr_t)task_syscall_restart;
        return;
    }
    bool reentering = (pc >= (uint64_t)(uintptr_t)reenter_begin && pc < (uint64_t)(uintptr_t)entry_end) ||
                      (pc >= (uint64_t)(uintptr_t)stub_miss && pc < (uint64_t)(uintptr_t)miss_end);
    if (!reentering && !cache_contains(pc))
        return;
    spend_in_sequence(pc, &g[REG_RCX]);
    spend_budget(t);
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
    __asm__ volatile("pushfq\n\tandq $~0x40000, (%%rsp)\n\tpopfq" : : : "cc", "memory"); /* the guest's AC */
    struct task *t = current();
    uint64_t fs = get_fs();
    set_fs(t->host_fs);
    if (is_fault(info, (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]))
        fs = on_fault(t, info, context, fs);
    else
        on_async(t, info, context);
    set_fs(fs);
}

/* ---- setting up ---- */

void hostsig_init(void)
{
    void *stack = mmap(NULL, ALTSTACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t ss = {.ss_sp = stack, .ss_size = ALTSTACK_SIZE};
    if (stack == MAP_FAILED || sigaltstack(&ss, NULL))
        die("cannot set up a stack for signal handlers");
    disposition_handler = on_signal;
    for (int signo = 1; signo <= 31; signo++)
        if (is_sync(signo))
            disposition_default(signo, 0);
}
