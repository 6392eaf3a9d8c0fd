/*
 * engine.h: one engine process hosts one guest process, which has one task until threads arrive.
 *
 * While guest code runs, gs points to the task and fs belongs to the guest; while host code runs gs still points to the
 * task and fs is libc's, except in the fast path (files named *_fast.c, compiled with -mgeneral-regs-only, see Makefile
 * FAST), which runs with the guest's fs and vector registers and so may not call libc, use TLS, floating point or any
 * function that is not marked FAST.
 */
#ifndef CLIO_ENGINE_GUEST_ENGINE_H
#define CLIO_ENGINE_GUEST_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/cpu/cpu.h"
#include "trace/ring.h"

struct task;

enum engine_mode { ENGINE_RECORD, ENGINE_REPLAY };

struct engine {
    enum engine_mode mode;
    struct task *task;
    int trace_dir; /* handle (host/hostfd.h) of the trace directory */
    int store;     /* handle of the connection to the store */
    struct ring_control *control;
    struct ring_header *ring;
    uint32_t space_number;
    struct cpu cpu;       /* the guest's processor */
    struct cpu_host host; /* what it runs on */
    bool aslr;
    bool slow_calls; /* every system call goes through exit_syscall: replay, logging */
};
extern struct engine engine;

#endif
