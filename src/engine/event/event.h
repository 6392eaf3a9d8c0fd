/*
 * event.h: builds events and publishes them in the space's ring.
 *
 * An event is built up in the task (effects, maps) and then published with one call. All of this is FAST
 * (general registers only, raw system calls) except what says otherwise.
 */
#ifndef CLIO_ENGINE_EVENT_H
#define CLIO_ENGINE_EVENT_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"
#include "trace/regs_hash.h"

/* Ticks are counted down from here after every event, in record and in replay alike, so that even dead flags
 * agree. */
#define BUDGET_FULL (1ll << 62)

static inline uint64_t task_ticks(const struct task *t)
{
    return (uint64_t)(t->tick_base - t->budget);
}

static inline void task_reset_ticks(struct task *t)
{
    t->budget = t->tick_base = BUDGET_FULL;
}

/* ---- building ---- */

void effects_grow(struct effects *e);
/* Adds guest memory [addr, addr+len) to the event being built (t->effects). FAST. len 0 is ignored. */
void effect_add(struct task *t, uint64_t addr, uint64_t len);
/* The same for those pages of [addr, end) that can be read, as EFF_FILE: the file shown there has changed.
 * FAST. */
void effect_add_file(struct task *t, uint64_t addr, uint64_t end);
/* Adds MAP_OP_RESIZE: the file that is the object has `size` bytes. FAST. */
void event_resize(struct task *t, uint16_t object, uint64_t size);
/* Adds one change of the address space to the event being built. Not FAST. path may be NULL. */
void event_map(struct task *t, const struct trace_map *map, const char *path);
/* A warning for people: into the trace, printed by `clio record` at the end. Each distinct text once per
 * process. */
void event_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the space naming a missing feature: REC_END END_UNSUPPORTED, and the process with status 3. */
_Noreturn void event_unsupported(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Makes a long list of effects short enough for one event, by joining neighbours; memory between them is covered where
 * event_may_cover says that the guest can write all of it. False: there are too many still, and the event cannot be
 * recorded. FAST.
 */
bool event_fits(struct task *t);
extern bool (*event_may_cover)(uint64_t from, uint64_t to); /* FAST */

/* ---- publishing ---- */

struct event_head { /* what an event says besides its effects and maps */
    uint16_t kind, flags, nr;
    uint64_t pc;
    int64_t result;
    uint32_t hash;
    const void *own; /* the kind's own part */
    uint32_t own_size;
};

/* Room, zeroed, for a REC_MAP record of `size` bytes (multiple of 8) of the event being built. At most 255
 * fit one event. */
struct trace_map *event_map_room(struct task *t, uint32_t size);

/* When set, called first by event_publish, with everything in the event that the guest will see. May use
 * libc. */
extern void (*event_before_publish)(struct task *t);

/* Publishes the event with the task's effects and maps, forgets those, and starts the tick count anew. */
void event_publish(struct task *t, const struct event_head *head);

/* Says in the ring that the guest is inside a call, for whoever finds it dead; and that it is not. */
void event_entered(struct task *t, const struct sys_call *c, uint64_t pc, uint32_t hash);
void event_returned(void);

/*
 * Around a call that writes to the recording's stdout or stderr, until its event is published: so that the
 * sequence numbers of such events are in the order of the writes. Waits for another process's turn, but not
 * for long: one that blocks in its write (or died there) is not waited for. Returns whether the turn was
 * taken.
 */
bool event_output_begin(void);
void event_output_end(bool taken);

/* A record of the tasks substream; body of `size` bytes, multiple of 8. */
void event_record(const struct trace_record *record);

/* REC_END. Not FAST. */
void event_end(enum trace_end_why why, int status, const char *text);

#endif
