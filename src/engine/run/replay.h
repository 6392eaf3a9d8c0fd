/*
 * replay.h: the guest's outside world, played back from a trace.
 *
 * Each exit that is an event is held against the next recorded one: kind, pc, ticks, call number and register
 * hash. The first that differs ends the replay of the space as diverged, with a report. Effects and mapping
 * changes are applied as recorded. fork forks the replayer, which goes on with the child's space in the
 * child.
 */
#ifndef CLIO_ENGINE_REPLAY_H
#define CLIO_ENGINE_REPLAY_H

#include "engine/guest/engine.h"
#include "engine/task/dispatch.h"

struct replay_shared;

struct replay_options {
    const char *trace;
    uint32_t space;               /* 0: the root */
    struct replay_shared *shared; /* or NULL: reports go to stderr, output nowhere */
    bool follow;                  /* fork replays of children and go on over exec; else stay with one space */
};

/* Opens the trace and puts the guest at the start of the space; ends the process when that cannot be. */
void replay_begin(struct task *t, const struct replay_options *options);

extern const struct run_client replay_client;

/* Reports a failure that is no divergence and ends this process's part of the replay. */
_Noreturn void replay_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
