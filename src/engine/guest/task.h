/*
 * task.h: a guest thread, and its start as generated code and entry.S see it, through gs.
 *
 * Offsets used by assembly are macros, checked against the struct by _Static_assert in task.c.
 */
#ifndef CLIO_ENGINE_TASK_H
#define CLIO_ENGINE_TASK_H

#define TASK_SELF           0x00
#define TASK_BUDGET         0x08
#define TASK_SPILL_RCX      0x10
#define TASK_TARGET         0x18
#define TASK_SPILL_RAX      0x20
#define TASK_EXIT_PC        0x30
#define TASK_EXIT_SITE      0x38
#define TASK_RESUME         0x40
#define TASK_HOST_RSP       0x48
#define TASK_HOST_FS        0x50
#define TASK_LOG_POINTER    0x58
#define TASK_PENDING        0x68
#define TASK_STUB_LINK      0x70
#define TASK_STUB_PREEMPT   0x78
#define TASK_STUB_SYSCALL   0x80
#define TASK_STUB_INSN      0x88
#define TASK_STUB_MISS      0x90
#define TASK_STUB_LOG_FULL  0x98
#define TASK_EA             0xa0 /* effective addresses of an instrumented instruction, two of them */
#define TASK_TICK_BASE      0xb0
#define TASK_XSAVE_MASK     0xb8
#define TASK_LOG_SPILL      0xc0 /* two registers of instrumentation code */
#define TASK_LOG_FLAGS      0xd0
#define TASK_STUB_LOG_STORE 0xd8
#define TASK_SECOND         0xe0 /* the second table of indirect targets */
#define TASK_MISS_FLAGS     0xe8
#define TASK_MISS_ENTRY     0xf0
#define TASK_REGS           0x100 /* struct trace_regs: gpr[16], rip, rflags, fs_base, gs_base */
#define TASK_RIP            0x180
#define TASK_RFLAGS         0x188
#define TASK_FS             0x190
#define TASK_XSAVE          0x200

/* struct sys_call */
#define CALL_NR      0
#define CALL_ARGS    8
#define CALL_RESULT  56
#define CALL_RESTART 64

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stdint.h>

#include "trace/record.h"

enum { TASK_XSAVE_MAX = 4096, SIGNAL_SYNC_MAX = 11 /* the highest of SYNC_SIGNALS */ };

struct effects { /* memory the kernel set during one event; grows; bytes are copied at event_commit */
    struct trace_effect *v;
    uint32_t count, capacity;
};

struct sys_call { /* one system call in flight */
    uint32_t nr;
    uint64_t args[6];
    int64_t result;
    bool restart; /* interrupted before it did anything, to be restarted after the signal's handler */
};

/* Its start is known to generated code and entry.S by the offsets above. */
struct task {
    struct task *self;
    int64_t
        budget; /* ticks left before the guest must leave the cache; generated code counts it down past 0 */
    uint64_t spill_rcx, target, spill_rax, room_28;
    uint64_t exit_pc;   /* guest pc at which the cache was left */
    uint64_t exit_site; /* why: a translator's handle */
    uint64_t resume;    /* code cache address at which to enter again */
    uint64_t host_rsp, host_fs;
    uint64_t log_pointer, room_60; /* chronicle log */
    uint64_t pending;              /* not 0: a signal waits for the guest */
    uint64_t stub_link, stub_preempt, stub_syscall, stub_insn, stub_miss, stub_log_full;
    uint64_t effective[2];
    int64_t tick_base; /* ticks since the last event = tick_base - budget, always */
    uint64_t xsave_mask;
    uint64_t log_spill[2], log_flags;
    uint64_t stub_log_store;
    uint64_t second, miss_flags, miss_entry;
    uint64_t room[1];
    struct trace_regs regs; /* valid while host code runs */
    uint64_t room2[12];
    _Alignas(64) uint8_t xsave[TASK_XSAVE_MAX]; /* guest vector state, valid in slow paths */

    /* below: host side only */
    struct effects effects;
    uint8_t *maps; /* REC_MAP records of the event being built */
    uint32_t maps_used, maps_capacity, maps_count;
    int tid;
    uint64_t blocked;      /* guest's signal mask as it believes it to be */
    uint64_t call_pc;      /* its instruction */
    bool too_much;         /* it has performed a call with more effects than one event holds */
    bool called;           /* the fast path has performed and recorded it; it is finished but for signals */
    struct queued_signal { /* one signal taken from the kernel for the guest, while pending is not 0 */
        uint8_t siginfo[128];
        bool in_call; /* it ended a call whose temp_mask was in force */
    } queued;
    struct guest_fault { /* why the cache was left by stub_fault */
        uint8_t siginfo[128];
        uint64_t host_pc, host_gprs[16]; /* as the host had them: see insn_place.spilled */
        uint64_t error, trap, cr2;       /* as in the kernel's struct sigcontext */
    } fault, copy_fault;                 /* copy_fault: of the last safe_copy that failed */
    struct shown_fault {                 /* of the guest's last fault: every signal frame shows them */
        uint64_t error, trap, cr2;
    } shown;
    uint64_t ignored;     /* SYNC_SIGNALS that the guest ignores */
    struct held_signals { /* SYNC_SIGNALS that were sent and wait here: see signals.h */
        uint64_t set;
        uint8_t info[SIGNAL_SYNC_MAX + 1][128];
    } held[2];                  /* sent to the process; to this task */
    bool user_dispatch;         /* calls may be the program's own to answer: kernel/prctl.h */
    bool returned_from_handler; /* the call that has just returned was rt_sigreturn */
    bool bad_return;            /* and its frame was bad: SIGSEGV is due */
    bool temp_mask_set;         /* temp_mask is in force while the call in flight sleeps */
    uint64_t temp_mask;
    uint64_t altstack[3]; /* sp, flags, size: stack_t */
};

/* Vector state as a program or a signal handler begins with it. */
void task_initial_vectors(struct task *t);
#endif
#endif
