/*
 * pagediff.h: which guest pages a process has written since it was forked.
 *
 * fork shares every private page; whoever writes first gets a copy of its own. So a private page that this
 * process alone maps, and that is not a page of a file, was written or made since the fork, as long as the
 * other process of the fork still lives and has not written it itself: /proc/self/pagemap tells. (Linux 4.2
 * and later; no privileges.)
 */
#ifndef CLIO_ENGINE_KERNEL_PAGEDIFF_H
#define CLIO_ENGINE_KERNEL_PAGEDIFF_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

/*
 * Calls emit for each range of private guest memory that this process may have changed since it was forked;
 * ascending, whole pages, adjacent ones joined, never across two mappings. May report pages that were not
 * changed, never misses one that was. Must not be called after the process on the other side of the fork is
 * gone. Returns 0 or -errno when pagemap cannot be read; then nothing is known.
 */
int pagediff_changed(const struct space *s, void (*emit)(void *ctx, uint64_t addr, uint64_t len), void *ctx);

#endif
