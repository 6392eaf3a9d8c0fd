/*
 * sharedcopy.h: what others, or the kernel, write into writable shared mappings while this process waits.
 *
 * Such memory is not copied by fork, so it is copied before and compared after, as far as it is not too large.
 */
#ifndef CLIO_ENGINE_KERNEL_SHAREDCOPY_H
#define CLIO_ENGINE_KERNEL_SHAREDCOPY_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"

struct shared_copy {
    struct shared_piece {
        uint64_t start, len;
        uint8_t *bytes;
    } * pieces;
    uint32_t count;
};

/* Copies the guest's writable shared mappings. A note says so when they are too large; `who` may change them. */
void shared_copy_take(struct shared_copy *c, const char *who);
/* Adds what has changed since to the event's effects, where it is still mapped, and frees the copy. */
void shared_copy_compare(struct shared_copy *c, struct task *t);

/* Adds the parts of [addr, addr+len) that differ from old, a multiple of 8 bytes, to the event's effects. */
void add_differences(struct task *t, uint64_t addr, const uint8_t *old, uint64_t len);

#endif
