/*
 * nondet.h: instructions whose results come from outside the program: rdtsc, rdtscp, rdpid, rdrand, rdseed,
 * cpuid, xgetbv, lsl and its kin; and the address of the last x87 instruction, which processors keep differently.
 */
#ifndef CLIO_ENGINE_NONDET_H
#define CLIO_ENGINE_NONDET_H

#include "engine/guest/engine.h"
#include "trace/record.h"

struct insn;
struct x87_pointers;

/* Performs it as the guest's processor would, and publishes EV_INSN. */
void nondet_record(struct task *t, const struct insn *in);
/* Publishes what the instruction at pc has stored, unless it is all 0. */
void nondet_record_pointers(struct task *t, uint64_t pc, const struct x87_pointers *pointers);
/* Puts recorded results where the instruction puts them, and moves past it. */
void nondet_apply(struct task *t, const struct insn *in, const struct trace_ev_insn *out);

#endif
