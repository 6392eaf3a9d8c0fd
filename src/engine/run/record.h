/*
 * record.h: the guest's outside world as it is, recorded: system calls, nondeterministic instructions, signals become events.
 */
#ifndef CLIO_ENGINE_RUN_RECORD_H
#define CLIO_ENGINE_RUN_RECORD_H

#include "engine/task/dispatch.h"

extern const struct run_client record_client;

#endif
