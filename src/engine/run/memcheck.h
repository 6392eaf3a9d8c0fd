/*
 * memcheck.h: on request (clio record --check-memory), events carry hashes of the guest's memory, which
 * replay compares.
 *
 * What replay must keep is: after every event, guest memory is as it was in the recording. Register hashes
 * show a violation when the guest has looked at it; these hashes show it at the event after which it first is
 * there. They cost a pass over all resident memory at every event: for finding out what was not recorded, not
 * for daily use.
 */
#ifndef CLIO_ENGINE_CORE_MEMCHECK_H
#define CLIO_ENGINE_CORE_MEMCHECK_H

#include <stddef.h>

#include "engine/guest/engine.h"
#include "trace/record.h"

/* Turns it on for a recording: every `every`th event is to have a MAP_OP_CHECK. engine.slow_calls must be
 * set. */
void memcheck_record(uint32_t every);

/* Replay: true when memory is as map says; otherwise text names the mappings that differ. */
bool memcheck_holds(const struct trace_map *map, char *text, size_t size);

#endif
