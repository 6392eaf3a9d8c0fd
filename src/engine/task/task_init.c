/* task_init.c: see task_init.h. */
#include <asm/prctl.h>
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

extern const char stub_link[], stub_preempt[], stub_syscall[], stub_insn[], stub_miss[], stub_log_full[],
    stub_log_store[];

#define TASK_ADDRESS 0x70100000ull

/* Vector state that host code may clobber: everything XSAVE knows but AMX tiles, protection keys and
 * supervisor state. */
static uint64_t vector_mask(void)
{
    if (!engine.host.xcr0)
        die("this processor or kernel lacks XSAVE, which Clio needs");
    if (cpu_host_area(&engine.host) > TASK_XSAVE_MAX)
        die("this processor keeps the vector registers in more than %d bytes", TASK_XSAVE_MAX);
    return engine.host.xcr0 & CPU_KEPT;
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
