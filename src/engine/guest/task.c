/* task.c: see task.h; the proof that assembly knows the layout of struct task. */
#include "engine/cpu/xsave.h"
#include "engine/guest/task.h"

#include <stddef.h>
#include <string.h>

#include "engine/guest/engine.h"

struct engine engine;

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

void task_initial_vectors(struct task *t)
{
    xsave_initial(&(struct xsave_state){t->xsave, &engine.host.layout});
}
