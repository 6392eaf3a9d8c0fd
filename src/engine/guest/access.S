/*
 * access.S: the two routines whose instructions the host's signal handler knows by address: a copy that tolerates faults,
 * and the system call instruction of the guest's calls.
 */
#include "engine/guest/task.h"

    .text
/* size_t safe_copy(void *to, const void *from, size_t n): see access.h */
    .globl safe_copy, safe_copy_insn, safe_copy_fault
    .type safe_copy, @function
safe_copy:
    movq %rdx, %rcx
safe_copy_insn:
    rep movsb
safe_copy_fault:
    movq %rcx, %rax
    ret

/*
 * int64_t task_syscall_enter(struct task *t, struct sys_call *c): see access.h. A handler that queued a signal while
 * the pc was in [task_syscall_check, task_syscall_insn] goes on at task_syscall_restart. At task_syscall_insn the
 * kernel has either not begun or wants to begin again; at task_syscall_done it has just returned, and one that was ended
 * for nothing goes on at task_syscall_again.
 */
    .globl task_syscall_enter, task_syscall_again, task_syscall_check, task_syscall_insn, task_syscall_done, task_syscall_restart
    .type task_syscall_enter, @function
task_syscall_enter:
    pushq %rbx
    pushq %r12
    movq %rdi, %rbx
    movq %rsi, %r12
    movb $0, CALL_RESTART(%r12)
    movq CALL_ARGS+0(%r12), %rdi
    movq CALL_ARGS+8(%r12), %rsi
    movq CALL_ARGS+16(%r12), %rdx
    movq CALL_ARGS+24(%r12), %r10
    movq CALL_ARGS+32(%r12), %r8
    movq CALL_ARGS+40(%r12), %r9
task_syscall_again:
    movl CALL_NR(%r12), %eax
task_syscall_check:
    cmpq $0, TASK_PENDING(%rbx)
    jne task_syscall_restart
task_syscall_insn:
    syscall
task_syscall_done:
    movq %rax, CALL_RESULT(%r12)
    popq %r12
    popq %rbx
    ret
task_syscall_restart:
    movb $1, CALL_RESTART(%r12)
    movq $-4, %rax
    movq %rax, CALL_RESULT(%r12)
    popq %r12
    popq %rbx
    ret

    .section .note.GNU-stack, "", @progbits
