/*
 * watch.h: notices writes to guest code that was translated.
 *
 * A page that the guest may write and from which code was translated is made read-only for the host. The
 * first store to it faults: its blocks are forgotten, the page becomes writable again, the store is repeated.
 * A store to the very page it comes from is repeated alone (translate_alone). System calls that write there
 * would fail with EFAULT, so pages of their buffers are opened before (watch_open). Other views of the same
 * shared file in this space are watched along; stores by another process are not noticed (docs/limits.md).
 */
#ifndef CLIO_TRANSLATE_WATCH_H
#define CLIO_TRANSLATE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct vma;

/* What the translator does; set by it before the first mapping. */
extern struct watch_hooks {
    void (*forget)(uint64_t start, uint64_t end); /* code of [start, end) may not be run any more */
    void (*mapped)(const struct vma *v);          /* executable memory appeared */
} watch_hooks;

extern uint32_t watch_count; /* pages watched */

/* Guest code [start, end) was translated. */
void watch_code(uint64_t start, uint64_t end);
/* A store to addr faulted. True when the page was watched: it is open now and its blocks are gone. */
bool watch_fault(uint64_t addr);
/* The kernel may write [start, end): opens watched pages there. */
void watch_open(uint64_t start, uint64_t end);

#endif
