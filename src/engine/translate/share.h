/* share.h: the cache shared by the processes of a recording; see cache.h. */
#ifndef CLIO_TRANSLATE_SHARE_H
#define CLIO_TRANSLATE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct cache;
struct vma;

/* Maps the memory of the shared cache, which children inherit. Without it, everything is a process's own. */
void share_init(void);
/* Executable memory appeared: its code may be the shared cache's. */
void share_mapped(const struct vma *v);
/* Code of [start, end) changed or went away. */
void share_forget(uint64_t start, uint64_t end);
/* A fresh, empty cache over a code range (cache.c). */
void cache_start(struct cache *c, uint64_t low, uint64_t high);

#endif
