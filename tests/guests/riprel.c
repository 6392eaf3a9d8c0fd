/* RIP-relative operands of every kind of instruction. */
// VARIANTS: o2 nopie staticpie
// NEEDS: avx2 bmi2
// FLAGS: -mavx2 -mbmi2
#include "guest.h"

asm(".data\n .balign 32\n"
    "rip_data: .quad 0x1122334455667788, 0x99aabbccddeeff00, 3, 4\n"
    "rip_word: .quad 5\n rip_target: .quad rip_landing\n rip_function: .quad rip_leaf\n rip_float: .double "
    "2.5\n"
    "rip_bits: .quad 0, 0\n rip_far: .space 65536\n rip_last: .quad 99\n .globl rip_word, rip_data\n"
    ".text\n"
    "rip_leaf: lea 1(%rdi), %rax\n ret\n"
    "rip_all: push %rbx\n push %rbp\n xor %ebx, %ebx\n" /* rbx counts what is right */
    "mov rip_data(%rip), %rax\n cmp rip_data(%rip), %rax\n jne 1f\n inc %ebx\n1:\n"
    "cmpb $0x88, rip_data(%rip)\n jne 1f\n inc %ebx\n1:\n"       /* imm8 after the displacement */
    "cmpw $0x7788, rip_data(%rip)\n jne 1f\n inc %ebx\n1:\n"     /* imm16 */
    "cmpl $0x55667788, rip_data(%rip)\n jne 1f\n inc %ebx\n1:\n" /* imm32 */
    "imul $10, rip_word(%rip), %rcx\n cmp $50, %rcx\n jne 1f\n inc %ebx\n1:\n"
    "imul $100000, rip_word(%rip), %rcx\n cmp $500000, %rcx\n jne 1f\n inc %ebx\n1:\n"
    "lea rip_data(%rip), %rdx\n mov 8(%rdx), %rcx\n cmp %rcx, rip_data+8(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "movq $7, rip_word(%rip)\n addq $3, rip_word(%rip)\n lock incq rip_word(%rip)\n cmpq $11, "
    "rip_word(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "mov $20, %eax\n xchg %rax, rip_word(%rip)\n cmp $11, %rax\n jne 1f\n inc %ebx\n1:\n"
    "mov $20, %eax\n mov $21, %ecx\n lock cmpxchg %rcx, rip_word(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "push rip_word(%rip)\n pop %rax\n cmp $21, %rax\n jne 1f\n inc %ebx\n1:\n"
    "push $5\n pop rip_word(%rip)\n cmpq $5, rip_word(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "mov $41, %edi\n call *rip_function(%rip)\n cmp $42, %rax\n jne 1f\n inc %ebx\n1:\n"
    "jmp *rip_target(%rip)\n ud2\n rip_landing: inc %ebx\n"
    "movsd rip_float(%rip), %xmm0\n addsd rip_float(%rip), %xmm0\n cvttsd2si %xmm0, %eax\n cmp $5, %eax\n "
    "jne 1f\n inc %ebx\n1:\n"
    "vmovdqa rip_data(%rip), %ymm1\n vpcmpeqq rip_data(%rip), %ymm1, %ymm2\n vpmovmskb %ymm2, %eax\n cmp "
    "$-1, %eax\n jne 1f\n inc %ebx\n1:\n"
    "vpshufd $0, rip_data(%rip), %xmm3\n vmovd %xmm3, %eax\n cmp $0x55667788, %eax\n jne 1f\n inc %ebx\n1:\n" /* imm8 after VEX */
    "pshufd $0xe, rip_data(%rip), %xmm3\n movq %xmm3, %rax\n cmp rip_data+8(%rip), %rax\n jne 1f\n inc "
    "%ebx\n1:\n"
    "rorx $8, rip_data(%rip), %rax\n cmp rip_data(%rip), %rax\n je 1f\n inc %ebx\n1:\n"
    "btsq $9, rip_bits(%rip)\n cmpq $512, rip_bits(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "mov $70, %eax\n bts %rax, rip_bits(%rip)\n cmpq $64, rip_bits+8(%rip)\n jne 1f\n inc %ebx\n1:\n" /* bit
                                                                                                         offset
                                                                                                         beyond
                                                                                                         the
                                                                                                         operand
                                                                                                       */
    "shlq $3, rip_word(%rip)\n mov $2, %cl\n sarq %cl, rip_word(%rip)\n cmpq $10, rip_word(%rip)\n jne 1f\n "
    "inc %ebx\n1:\n"
    "mov $-1, %rax\n shld $4, %rax, rip_word(%rip)\n cmpq $175, rip_word(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "testl $15, rip_word(%rip)\n jz 1f\n inc %ebx\n1:\n"
    "negq rip_word(%rip)\n notq rip_word(%rip)\n cmpq $174, rip_word(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "mov $1000, %eax\n xor %edx, %edx\n divq rip_word(%rip)\n cmp $5, %eax\n jne 1f\n inc %ebx\n1:\n"
    "movzbl rip_data(%rip), %eax\n cmp $0x88, %eax\n jne 1f\n inc %ebx\n1:\n"
    "movslq rip_data+4(%rip), %rax\n cmp $0x11223344, %rax\n jne 1f\n inc %ebx\n1:\n"
    "cmpq $99, rip_last(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "stmxcsr rip_bits(%rip)\n ldmxcsr rip_bits(%rip)\n fldl rip_float(%rip)\n fistpl rip_bits(%rip)\n cmpl "
    "$2, rip_bits(%rip)\n jne 1f\n inc %ebx\n1:\n"
    "lea (%rip), %rax\n2: lea 2b(%rip), %rcx\n cmp %rax, %rcx\n jne 1f\n inc %ebx\n1:\n"
    "mov %rbx, %rbp\n lea -100(%rsp), %rax\n cmpxchg16b_test: lea rip_data(%rip), %rax\n"
    "mov rip_data(%rip), %rax\n mov rip_data+8(%rip), %rdx\n mov $1, %ebx\n mov $2, %ecx\n"
    "lock cmpxchg16b rip_data(%rip)\n jne 1f\n inc %rbp\n1: cmpq $1, rip_data(%rip)\n jne 1f\n inc %rbp\n1:\n"
    "mov %rbp, %rax\n pop %rbp\n pop %rbx\n ret\n");
int rip_all(void);

int main(void)
{
    is(rip_all(), 33, "RIP-relative operands of 33 kinds");
    return finish();
}
