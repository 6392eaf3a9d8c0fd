/*
 * stack.h: the initial stack of a program: strings, auxiliary vector and pointers, as the kernel lays them
 * out.
 *
 *   stack_high - 8   zero
 *                    filename (AT_EXECFN)
 *                    environment strings          env_start .. env_end
 *                    argument strings             arg_start .. arg_end = env_start
 *                    "x86_64", 16 random bytes    (16-byte aligned below this)
 *                    auxiliary vector, 0, envp, 0, argv
 *   rsp              argc
 */
#ifndef CLIO_ENGINE_LOAD_STACK_H
#define CLIO_ENGINE_LOAD_STACK_H

#include "engine/load/program.h"

/* 0 or -E2BIG: the kernel's limits on argument and environment strings. */
int stack_check_size(const struct program *p, char **argv, char **envp);
/* Chooses where the stack of a fresh space ends, and lets the mmap area end below what RLIMIT_STACK lets it grow to. */
void stack_place(struct space *s);
/* Maps and fills the stack; *sp is the initial stack pointer. 0 or -errno. */
int stack_build(struct space *s, const struct program *p, char **argv, char **envp,
                const struct elf_place *image, const struct elf_place *interpreter, uint64_t *sp);
/* With --aslr a random number of `bits` bits, else 0. */
uint64_t stack_random_pages(int bits);

#endif
