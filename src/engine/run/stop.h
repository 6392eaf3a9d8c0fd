/*
 * stop.h: replaying one space to a moment: which spaces lie on the way, where the chronicle's interval begins
 * and ends.
 *
 * Without a plan (clio replay) everything here does nothing.
 */
#ifndef CLIO_ENGINE_STOP_H
#define CLIO_ENGINE_STOP_H

#include "clio/trace.h"
#include "engine/guest/engine.h"
#include "trace/event_reader.h"
#include "trace/moment.h"

struct stop_interval {
    struct moment from, to;
    const char *out;   /* the database to build */
    const char *trace; /* path */
};

/* Sets the interval of `space` for which a chronicle is built. */
void stop_interval_set(uint32_t space, const struct stop_interval *interval);

/* The space to start with in order to get to `space`: its nearest ancestor with an image of its own. */
uint32_t stop_plan(struct clio_source *source, uint32_t space);
/* The child to become at this fork, or 0. */
uint32_t stop_becomes(uint32_t space, uint64_t event);

/* After event `done` was replayed and the next one (number next) is known: may shorten the budget. */
void stop_set_budget(struct task *t, uint64_t done, uint64_t next);
/*
 * The budget ran out. event_tick: at which the event to come preempts, or 0. True when nothing but the
 * interval wanted it; the guest goes on at the same pc.
 */
bool stop_reached(struct task *t, uint64_t event_tick);
/* An event is being replayed: its memory and mapping changes have been made. */
void stop_event(struct task *t, const struct trace_item *item);
/* The space's records end. */
void stop_at_end(void);

#endif
