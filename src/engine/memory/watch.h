/*
 * watch.h: notices writes to guest code that was translated.
 *
 * Invariant: a page from which valid translated code exists is never writable at the host, through any view
 * of this space, without that code being forgotten first or looking at its own bytes. VERIFY builds look (watch_verify).
 *
 * A page that the guest may write and from which code was translated is made read-only for the host. The
 * first store to it faults: its blocks are forgotten, the page becomes writable again, the store is repeated.
 * A store to the very page it comes from is repeated alone (translate_alone). System calls that write there
 * would fail with EFAULT, so pages of their buffers are opened before (watch_open). Other views of the same
 * shared memory in this space are watched along; stores by another process are not noticed, so that code in memory
 * shared with one looks at its own bytes, as that of busy pages does.
 *
 * Code of busy pages (watch_busy) looks at its own bytes each time it runs, and its page stays writable.
 *
 * Who changes the host's mapping of a range (memory/space.c) calls watch_open before where what lies there
 * goes away or moves, and watch_restore after where only the protection was set.
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
    bool (*holds)(uint64_t start, uint64_t end);  /* valid code of [start, end) exists; for VERIFY builds */
} watch_hooks;

extern uint32_t watch_count; /* pages watched */

/* Guest code [start, end) was translated. */
void watch_code(uint64_t start, uint64_t end);
/* A store to addr faulted. True when the page was watched: it is open now and its blocks are gone. */
bool watch_fault(uint64_t addr);
/*
 * True when stores have changed code of the page so often that the watch costs more than it is worth (data beside code, a
 * trampoline in the stack): its code is to be translated so that it looks at its own bytes, and not watched.
 */
bool watch_busy(uint64_t page);
/* The kernel may write [start, end): opens watched pages there. True when there were any. */
bool watch_open(uint64_t start, uint64_t end);
/* The host's protection of [start, end) was set to the guest's: watched pages there are read-only again. */
void watch_restore(uint64_t start, uint64_t end);
/* VERIFY builds: dies when the invariant does not hold. Reads /proc/self/maps. */
void watch_verify(void);

#endif
