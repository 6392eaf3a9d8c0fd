/*
 * replica.h: what stands in replay for the objects of the recording (memory/objects.h).
 *
 * Most mapped files never change while they are mapped, and replay maps their captured content privately. An
 * object that does change (it is mapped for shared writing, written by a call, resized, or shared memory) has
 * a replica instead: a memfd, which every mapping of the object in this space shows, shared or private as in
 * the recording. Then stores through one view appear in the others, discarded private pages show what the
 * file holds, and pages beyond its end are SIGBUS, by the same kernel code as when recording.
 *
 * Invariant: of a replica, every byte that a mapping shows is as it was in the recording after the same
 * event. Bytes that nothing shows may be old; a mapping that brings them into view brings their content.
 *
 * Functions return 0 or -errno. An object of number 0 is none.
 */
#ifndef CLIO_ENGINE_LOAD_REPLICA_H
#define CLIO_ENGINE_LOAD_REPLICA_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

/* Opens files/HASH for reading, or -errno. To be set before the first mapping is replayed. */
extern int (*replica_open)(const uint8_t hash[32]);

/* The replica of the object, or -1. */
int replica_fd(uint16_t object);

/* The file mapping v is about to be made; `content`: its captured file, or -1 when `hash` is zero. */
int replica_map_file(const struct space *s, const struct vma *v, const uint8_t hash[32], int content);
/* Likewise for shared memory. */
int replica_map_memory(const struct space *s, const struct vma *v);
/* Shared mappings in the range are about to become writable. */
int replica_make_writable(const struct space *s, uint64_t start, uint64_t end);
int replica_resize(const struct space *s, uint16_t object, uint64_t size);
/* Zeroes [offset, end) of shared memory. */
int replica_remove(uint16_t object, uint64_t offset, uint64_t end);
/* The file shown at [addr, addr+len), which lies in one page of v, got these bytes (NULL: zeros). */
int replica_store(const struct space *s, const struct vma *v, uint64_t addr, const uint8_t *bytes,
                  uint64_t len);
/* True when the page at addr of the private mapping v is a copy, so that v does not show the object there. */
bool replica_copied(const struct vma *v, uint64_t addr);
/* Forgets replicas that no mapping of s shows any more. */
void replica_drop_unused(const struct space *s);

/*
 * Around fork of a replay, whose child must not share memory with it: before in the parent, then one of the
 * other two in each.
 */
int replica_fork_begin(void);
int replica_fork_child(const struct space *s);
void replica_fork_parent(void);

#endif
