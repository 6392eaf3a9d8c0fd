/*
 * entry.S: the ways into the code cache and out of it, and the few routines whose instructions signal handlers know.
 *
 * Generated code leaves by `jmp gs:[TASK_STUB_...]` with the guest's registers in place. A stub saves them in the task,
 * moves to the host's stack (TASK_HOST_RSP, 16-byte aligned) and calls a C function with the task; that function leaves in
 * TASK_RESUME the code address to go on at. rbx holds the task throughout.
 *
 * Slow stubs also save the guest's vector state and switch fs to libc's. stub_syscall first tries a function
 * compiled for general registers only, which runs with the guest's fs and vectors.
 */
#include "engine/guest/task.h"

#define SECOND_MASK 0xffff /* as in translate/cache.h */
#define GPR(n) (TASK_REGS + 8 * (n))

    .macro SAVE_REGS
    movq %rax, %gs:GPR(0)
    movq %rcx, %gs:GPR(1)
    movq %rdx, %gs:GPR(2)
    movq %rbx, %gs:GPR(3)
    movq %rsp, %gs:GPR(4)
    movq %rbp, %gs:GPR(5)
    movq %rsi, %gs:GPR(6)
    movq %rdi, %gs:GPR(7)
    movq %r8, %gs:GPR(8)
    movq %r9, %gs:GPR(9)
    movq %r10, %gs:GPR(10)
    movq %r11, %gs:GPR(11)
    movq %r12, %gs:GPR(12)
    movq %r13, %gs:GPR(13)
    movq %r14, %gs:GPR(14)
    movq %r15, %gs:GPR(15)
    movq %gs:TASK_HOST_RSP, %rsp
    pushfq
    popq %gs:TASK_RFLAGS
    testb $0x04, %gs:TASK_RFLAGS+2 /* the guest's AC flag is not for the host */
    jz 90f
    pushq $0x202
    popfq
90: cld
    movq %gs:TASK_SELF, %rbx
    .endm

    .macro SAVE_VECTORS
    rdfsbase %rax
    movq %rax, TASK_FS(%rbx)
    movq TASK_HOST_FS(%rbx), %rax
    wrfsbase %rax
    movl TASK_XSAVE_MASK(%rbx), %eax
    movl TASK_XSAVE_MASK+4(%rbx), %edx
    xsave64 TASK_XSAVE(%rbx)
    ldmxcsr default_mxcsr(%rip)
    .endm

    .macro SLOW_STUB name, function
    .globl \name
    .type \name, @function
\name:
    SAVE_REGS
    SAVE_VECTORS
    movq %rbx, %rdi
    call \function
    jmp reenter_slow
    .endm

    .text
    .globl entry_begin
entry_begin:
    SLOW_STUB stub_link, exit_link
    SLOW_STUB stub_preempt, exit_preempt
    SLOW_STUB stub_insn, exit_insn

/*
 * An indirect jump whose slot of the first table held another block. The second table (struct second_entry, 16 bytes,
 * indexed by SECOND_INDEX) is asked before the host is. rcx is in TASK_SPILL_RCX. A signal handler treats this stretch
 * like the code cache.
 */
    .globl stub_miss, miss_end
stub_miss:
    movq %rax, %gs:TASK_SPILL_RAX
    lahf
    seto %al
    movq %rax, %gs:TASK_MISS_FLAGS
    movq %gs:TASK_TARGET, %rcx
    movq %rcx, %rax
    shrq $16, %rax
    xorq %rcx, %rax
    andl $SECOND_MASK, %eax
    shll $4, %eax
    addq %gs:TASK_SECOND, %rax
    cmpq %rcx, (%rax)
    jne 1f
    movq 8(%rax), %rcx
    jrcxz 1f /* an empty entry and a jump to address 0 */
    movq %rcx, %gs:TASK_MISS_ENTRY
    movq %gs:TASK_MISS_FLAGS, %rax
    addb $127, %al
    sahf
    movq %gs:TASK_SPILL_RAX, %rax
    jmpq *%gs:TASK_MISS_ENTRY
1:  movq %gs:TASK_MISS_FLAGS, %rax
    addb $127, %al
    sahf
    movq %gs:TASK_SPILL_RAX, %rax
miss_end:
    SLOW_STUB stub_miss_slow, exit_miss
    SLOW_STUB stub_log_full, exit_log_full
    SLOW_STUB stub_log_store, exit_log_store

    .globl stub_syscall
stub_syscall:
    SAVE_REGS
    movq %rbx, %rdi
    call exit_syscall_fast
    testl %eax, %eax
    jnz reenter_fast
    SAVE_VECTORS
    movq %rbx, %rdi
    call exit_syscall
    jmp reenter_slow

/* A host signal handler has put the guest's state into the task and returned here. */
    .globl stub_fault
stub_fault:
    movq %gs:TASK_SELF, %rbx
    movq TASK_HOST_RSP(%rbx), %rsp
    cld
    ldmxcsr default_mxcsr(%rip)
    movq %rbx, %rdi
    call exit_fault
    jmp reenter_slow

/* void engine_enter(struct task *): leaves the C world for good; the stack below this frame is the stubs'. */
    .globl engine_enter
engine_enter:
    movq %rdi, %rbx
    andq $-64, %rsp
    movq %rsp, TASK_HOST_RSP(%rbx)

    /* From `reenter_begin` on, a signal handler spends the budget itself; before it, pending is seen here. */
    .globl reenter_begin, reenter_slow
reenter_slow:
reenter_begin:
    movl TASK_XSAVE_MASK(%rbx), %eax
    movl TASK_XSAVE_MASK+4(%rbx), %edx
    xrstor64 TASK_XSAVE(%rbx)
    movq TASK_FS(%rbx), %rax
    wrfsbase %rax
reenter_fast:
    cmpq $0, TASK_PENDING(%rbx)
    je 1f
    xorl %eax, %eax
    xchgq %rax, TASK_BUDGET(%rbx)
    subq %rax, TASK_TICK_BASE(%rbx)
1:  pushq TASK_RFLAGS(%rbx)
    popfq
    movq %gs:GPR(0), %rax
    movq %gs:GPR(1), %rcx
    movq %gs:GPR(2), %rdx
    movq %gs:GPR(3), %rbx
    movq %gs:GPR(5), %rbp
    movq %gs:GPR(6), %rsi
    movq %gs:GPR(7), %rdi
    movq %gs:GPR(8), %r8
    movq %gs:GPR(9), %r9
    movq %gs:GPR(10), %r10
    movq %gs:GPR(11), %r11
    movq %gs:GPR(12), %r12
    movq %gs:GPR(13), %r13
    movq %gs:GPR(14), %r14
    movq %gs:GPR(15), %r15
    movq %gs:GPR(4), %rsp
    jmpq *%gs:TASK_RESUME
    .globl entry_end
entry_end:

    .section .rodata
    .balign 4
default_mxcsr:
    .long 0x1f80

    .section .note.GNU-stack, "", @progbits
