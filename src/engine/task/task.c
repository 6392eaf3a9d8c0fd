/* task.c: the task: where it lies, its registers' save area, and the proof that assembly knows its layout. */
#include <asm/prctl.h>
#include <cpuid.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/error.h"
#include "engine/event/event.h"
#include "engine/guest/layout.h"
#include "engine/host/raw.h"
#include "engine/task/task_init.h"
#include "engine/translate/cache.h"

#define AT(field, offset) _Static_assert(offsetof(struct task, field) == (offset), #field)
AT(self, TASK_SELF);
AT(budget, TASK_BUDGET);
AT(spill_rcx, TASK_SPILL_RCX);
AT(target, TASK_TARGET);
AT(spill_rax, TASK_SPILL_RAX);
AT(exit_pc, TASK_EXIT_PC);
AT(exit_site, TASK_EXIT_SITE);
AT(resume, TASK_RESUME);
AT(host_rsp, TASK_HOST_RSP);
AT(host_fs, TASK_HOST_FS);
AT(log_pointer, TASK_LOG_POINTER);
AT(pending, TASK_PENDING);
AT(stub_link, TASK_STUB_LINK);
AT(stub_preempt, TASK_STUB_PREEMPT);
AT(stub_syscall, TASK_STUB_SYSCALL);
AT(stub_insn, TASK_STUB_INSN);
AT(stub_miss, TASK_STUB_MISS);
AT(stub_log_full, TASK_STUB_LOG_FULL);
AT(effective, TASK_EA);
AT(tick_base, TASK_TICK_BASE);
AT(xsave_mask, TASK_XSAVE_MASK);
AT(log_spill, TASK_LOG_SPILL);
AT(log_flags, TASK_LOG_FLAGS);
AT(stub_log_store, TASK_STUB_LOG_STORE);
AT(second, TASK_SECOND);
AT(miss_flags, TASK_MISS_FLAGS);
AT(miss_entry, TASK_MISS_ENTRY);
AT(regs, TASK_REGS);
AT(regs.rip, TASK_RIP);
AT(regs.rflags, TASK_RFLAGS);
AT(regs.fs_base, TASK_FS);
AT(xsave, TASK_XSAVE);
_Static_assert(offsetof(struct sys_call, nr) == CALL_NR && offsetof(struct sys_call, args) == CALL_ARGS &&
                   offsetof(struct sys_call, result) == CALL_RESULT &&
                   offsetof(struct sys_call, restart) == CALL_RESTART,
               "struct sys_call as entry.S knows it");

extern const char stub_link[], stub_preempt[], stub_syscall[], stub_insn[], stub_miss[], stub_log_full[],
    stub_log_store[];

struct engine engine;

#define TASK_ADDRESS 0x70100000ull

/* Vector state that host code may clobber: everything XSAVE knows but AMX tiles, protection keys and
 * supervisor state. */
static uint64_t vector_mask(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        die("this processor or kernel lacks XSAVE, which Clio needs");
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (((uint64_t)d << 32) | a) & 0xe7;
}

static uint64_t address_of(const char *label)
{
    return (uint64_t)(uintptr_t)label;
}

struct task *task_init(void)
{
    const int hwcap2_fsgsbase = 2;
    if (!(getauxval(AT_HWCAP2) & hwcap2_fsgsbase))
        die("this processor or kernel lacks the FSGSBASE instructions, which Clio needs (Linux 5.9, Ivy "
            "Bridge or Zen)");
    struct task *t = mmap((void *)TASK_ADDRESS, PAGE_UP(sizeof *t), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (t != (void *)TASK_ADDRESS)
        die("cannot reserve memory at 0x%llx for the task", TASK_ADDRESS);
    t->self = t;
    t->xsave_mask = vector_mask();
    t->stub_link = address_of(stub_link);
    t->stub_preempt = address_of(stub_preempt);
    t->stub_syscall = address_of(stub_syscall);
    t->stub_insn = address_of(stub_insn);
    t->stub_miss = address_of(stub_miss);
    t->stub_log_full = address_of(stub_log_full);
    t->stub_log_store = address_of(stub_log_store);
    t->second = SECOND_TABLE;
    t->tid = (int)raw0(SYS_gettid);
    __asm__ volatile("rdfsbase %0" : "=r"(t->host_fs));
    __asm__ volatile("wrgsbase %0" : : "r"(t));
    task_reset_ticks(t);
    engine.task = t;
    return t;
}

void task_initial_vectors(struct task *t)
{
    const uint16_t control = 0x37f;
    const uint32_t mxcsr = 0x1f80;
    memset(t->xsave, 0, 512 + 64);
    memcpy(t->xsave, &control, 2);
    memcpy(t->xsave + 24, &mxcsr, 4);
}
