/*
 * space.h: the guest's mappings for those who change them: the loader and the memory system calls. Readers
 * and replay use the part of it in core/engine.h.
 *
 * Everything here keeps two things equal: the host's mappings inside the guest's ranges and the sorted array
 * of vmas. A function that fails has changed neither. One caller at a time.
 */
#ifndef CLIO_ENGINE_LOAD_SPACE_H
#define CLIO_ENGINE_LOAD_SPACE_H

#include "engine/core/engine.h"

/* True when [start, end) lies inside one of the ranges that are the guest's. */
bool space_within(uint64_t start, uint64_t end);
/* True when [start, start+len) may hold guest mappings: page aligned, not empty, inside the guest's ranges.
 */
bool space_legal(uint64_t start, uint64_t len);
/* True when no vma intersects [start, start+len). */
bool space_free(const struct space *s, uint64_t start, uint64_t len);

/*
 * Maps v->start..v->end as v says, replacing what is there. fd: the file, or -1 for anonymous memory.
 * host_flags: MAP_ flags for the host beyond the type and MAP_FIXED (MAP_NORESERVE, MAP_POPULATE, MAP_LOCKED,
 * MAP_HUGETLB...). In replay nothing but v counts, and what it shows is private or the object's replica
 * (replica.h). 0 or -errno; -ENOMEM for a range that is not legal.
 */
int space_map(struct space *s, const struct vma *v, int fd, int host_flags);
/* Inserts v, whose memory the caller has already placed at the host (shmat); replaces what the array held
 * there. */
int space_adopt(struct space *s, const struct vma *v);
int space_unmap(struct space *s, uint64_t start, uint64_t len);
/* Replay: maps v, which is in the array, anew at the host because its object has another replica. 0 or
 * -errno. */
int space_host_map(const struct vma *v);
/* Gives v's pages at the host the protection that v says. 0 or -errno. */
int space_host_protect(const struct vma *v);
/* All of [start, start+len) must be mapped. */
int space_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot);
/*
 * Moves or grows [old, old+old_len), which lies in one vma, to [start, start+len). start == old grows in
 * place; otherwise the destination replaces what is there and must not overlap the source.
 */
int space_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len);
/* Sets and clears vma flags of the mapped parts of the range. */
int space_flag(struct space *s, uint64_t start, uint64_t len, uint8_t set, uint8_t clear);

/*
 * A free range of len bytes (page multiple) at a multiple of align (power of two, at least a page): at hint
 * (page aligned, 0 for none) when that is legal and free, else the highest one in the mmap area. 0 when there
 * is none.
 */
uint64_t space_pick(struct space *s, uint64_t len, uint64_t align, uint64_t hint);
/* The highest free range inside [low, high), or 0. */
uint64_t space_pick_in(const struct space *s, uint64_t low, uint64_t high, uint64_t len, uint64_t align);
/* Sets where the mmap area ends for a fresh space. */
void space_set_mmap_top(struct space *s, uint64_t top);

/* True when the space has writable memory that a forked child would share. */
bool space_shares_memory(const struct space *s);

#endif
