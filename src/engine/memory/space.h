/*
 * space.h: the guest's address space: its mappings, for those who read them and for those who change them
 * (the loader, the memory system calls, replay).
 *
 * Everything here keeps two things equal: the host's mappings inside the guest's ranges and the sorted array
 * of vmas. A function that fails has changed neither. One caller at a time.
 */
#ifndef CLIO_ENGINE_LOAD_SPACE_H
#define CLIO_ENGINE_LOAD_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/guest/layout.h"
#include "trace/record.h"

struct file_ref { /* an open-ended identity of a mapped file; shared by vmas, never freed before exec */
    uint64_t dev, ino, size, mtime_ns, ctime_ns;
    uint8_t hash[32]; /* content as captured by the store */
    char path[];      /* as the guest would see it in /proc/self/maps */
};

enum vma_flag {
    VMA_WIPE = 1,   /* MADV_WIPEONFORK: zero in a forked child */
    VMA_DROP = 2,   /* MADV_DONTFORK: absent in a forked child */
    VMA_NOEXEC = 4, /* a file on a mount without exec: may never become executable */
    VMA_SHM = 8,    /* System V shared memory */
    VMA_DIRTY = 16, /* a private file mapping that was writable at some time: its content may differ from the
                       file's */
};

struct vma { /* sorted by start, never overlapping, page aligned */
    uint64_t start, end;
    uint32_t prot;
    bool shared;
    bool growsdown;              /* MAP_GROWSDOWN: the stack and its like (space_grow) */
    uint8_t flags;               /* enum vma_flag */
    uint16_t object;             /* what it shows, see memory/objects.h; 0: memory of its own */
    uint64_t offset;             /* in file */
    const struct file_ref *file; /* NULL: anonymous */
};

struct space {
    struct vma *vmas; /* sorted array */
    uint32_t count, capacity;
    uint64_t brk_start, brk; /* current break, not rounded */
    uint64_t stack_low, stack_high;
    uint64_t arg_start, arg_end, env_start, env_end; /* as in /proc/self/cmdline and environ */
    uint8_t auxv[512];
    uint32_t auxv_size;
    char *exe;                     /* absolute path of the guest's executable, for /proc/self/exe */
    uint64_t mmap_top;             /* space_pick allocates downwards from here */
    bool shares_with_others;       /* since a fork, shared memory may be changed by another process */
    uint64_t grow_from, grow_to;   /* accesses between these may make a mapping grow; few others lie there */
    uint64_t pick_from, pick_hole; /* every gap between pick_from and mmap_top is at most pick_hole bytes */
};

/* The vma holding addr, or the first one above it, or NULL. */
struct vma *space_at_or_above(const struct space *s, uint64_t addr);
/* The vma holding addr or NULL. */
struct vma *space_find(const struct space *s, uint64_t addr);
/* True when [addr, addr+len) is mapped with all of prot. */
bool space_allows(const struct space *s, uint64_t addr, uint64_t len, uint32_t prot);
/*
 * Applies one change to the host's mappings and to the vmas; used by record and by replay. fd is the file for
 * MAP_OP_FILE (the guest's own when recording, the captured copy or -1 when replaying). Calls code_invalidate
 * for executable ranges that go away or change. Returns 0 or -errno with nothing changed.
 */
int space_apply(struct space *s, const struct trace_map *map, const char *path, int fd);
/* Removes every guest mapping (exec, end). */
void space_clear(struct space *s);

/* The address space of the guest that this process hosts. */
extern struct space guest_space;

/* code invalidation (translate/): guest code in [start, end) changed or went away */
void code_invalidate(uint64_t start, uint64_t end);
/* executable guest memory appeared; after it has */
void code_mapped(const struct vma *v);

/* Bytes [from, to) of what the object is, or the content of [start, end) in memory, changes without a store
 * of the guest: code in any view of it is forgotten. */
void space_object_changed(const struct space *s, uint16_t object, uint64_t from, uint64_t to);
void space_content_changed(const struct space *s, uint64_t start, uint64_t end);

/* True when [start, end) lies inside one of the ranges that are the guest's. */
bool space_within(uint64_t start, uint64_t end);
/* The first piece of [start, end) that is the guest's: its end, with its start in *low; 0 for none. */
uint64_t space_piece(uint64_t start, uint64_t end, uint64_t *low);
/* True when [start, start+len) may hold guest mappings: page aligned, not empty, inside the guest's ranges.
 */
bool space_legal(uint64_t start, uint64_t len);
/* True when no vma intersects [start, start+len), nor begins so close above that it could not grow. */
bool space_roomy(const struct space *s, uint64_t start, uint64_t len);
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
/* What the host gives a guest page with prot: guest code is never executed in place. */
int space_host_prot(uint32_t prot);
/* Gives v's pages at the host the protection that v says. 0 or -errno. */
int space_host_protect(const struct vma *v);
/* All of [start, start+len) must be mapped. */
int space_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot);
/*
 * Moves or grows [old, old+old_len), which lies in one vma, to [start, start+len). start == old grows in
 * place; otherwise the destination replaces what is there and must not overlap the source.
 */
int space_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len);
/* The pages of [old, old+len), which lies in one vma, go to start; that stays mapped, as if fresh. */
int space_move_keeping(struct space *s, uint64_t start, uint64_t old, uint64_t len);
/*
 * Before the host maps something at [start, end) by itself: reserves what is not the guest's where the kernel may have put
 * something of the engine's. -EEXIST when it has.
 */
int space_reserve(const struct space *s, uint64_t start, uint64_t end);
/* What lies below a mapping that grows is no place for others, and its growth ends so far above others. */
#define STACK_GUARD (256 * PAGE_SIZE)
/*
 * An access to addr, where nothing is mapped: grows the mapping above down to there if it is of that kind, as the kernel
 * does, to a size of `limit` bytes at most. True when it has. For signal handlers, too.
 */
bool space_grow(struct space *s, uint64_t addr, uint64_t limit);
/* Adds the len bytes below the mapping that begins at start + len to it. 0 or -errno. */
int space_extend(struct space *s, uint64_t start, uint64_t len);
/* A fork has made another process that has our shared memory: code there is no longer as it was found. */
void space_shared_with_others(struct space *s);
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
