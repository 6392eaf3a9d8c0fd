/*
 * nondet.h: instructions whose results come from outside the program: rdtsc, rdtscp, rdpid, rdrand, rdseed,
 * cpuid, xgetbv.
 */
#ifndef CLIO_ENGINE_NONDET_H
#define CLIO_ENGINE_NONDET_H

#include "engine/guest/engine.h"
#include "trace/record.h"

struct insn;

/* Performs it for the guest as a CPU of engine.cpu_level would, and publishes EV_INSN. */
void nondet_record(struct task *t, const struct insn *in);
/* Puts recorded results where the instruction puts them, and moves past it. */
void nondet_apply(struct task *t, const struct insn *in, const struct trace_ev_insn *out);

#endif
