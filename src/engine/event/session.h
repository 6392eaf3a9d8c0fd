/*
 * session.h: this process as a producer of a recording: its ring, its lifeline, the end.
 */
#ifndef CLIO_ENGINE_SESSION_H
#define CLIO_ENGINE_SESSION_H

#include "engine/guest/engine.h"
#include "trace/record.h"

/* Maps rings/control of the trace. */
void session_init(void);
/* A number for a space that is about to begin. */
uint32_t session_new_space(void);
/*
 * Makes the ring of space `number` this process's own (the previous one is let go) and tells the store.
 * Afterwards the caller publishes REC_SPACE. Waits while the disk is full.
 */
void session_open_ring(uint32_t number);
/* A file in memory with these bytes, also for a guest whose files are limited in size (RLIMIT_FSIZE): its descriptor or
 * -errno. */
int session_make_memory(const void *bytes, uint32_t size);
/* A forked child lets its parent's ring go, so that nothing it says can end up there. */
void session_leave_ring(void);
/* REC_SPACE for the current space. */
void session_publish_space(uint32_t parent, uint64_t parent_event, enum trace_space_origin origin,
                           const char *exe, char *const *argv);
/* Arms the lifeline for this process: when the recorder dies, the kernel kills us. After every fork. */
void session_arm_lifeline(void);

#endif
