/*
 * objects.h: what mappings show. An object is a file, or a piece of shared memory, that at least one mapping
 * of the space shows; its number (1 to OBJECTS_MAX - 1) is in the vmas and in the trace (struct trace_map). A
 * number belongs to the object as long as something shows it, and may then be given to another. Recording
 * only; what replay makes of the numbers is in replica.h.
 */
#ifndef CLIO_ENGINE_LOAD_OBJECTS_H
#define CLIO_ENGINE_LOAD_OBJECTS_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

enum { OBJECTS_MAX = 65536 };
#define OBJECT_DEV_SYSV ~0ull /* `dev` of System V shared memory; its `ino` is the identifier */

struct object {
    uint64_t dev, ino; /* 0, 0: anonymous */
    uint64_t size;     /* of a file, as the trace knows it */
    bool changed; /* a file's content may differ from that captured at its last mapping: see objects_differ */
};
/* By number. Readable in FAST code. */
extern struct object objects[OBJECTS_MAX];

/* The number of the object with this identity: that of a vma which shows it, or one not in use. */
uint16_t object_of(const struct space *s, uint64_t dev, uint64_t ino);
/* A number for memory that nothing else shows yet. */
uint16_t object_new(const struct space *s);

/*
 * True when pages of v that come into view (grown, made readable, no longer covered by a private copy) may
 * differ from what replay shows there, so that their bytes must be recorded.
 */
static inline bool objects_differ(const struct vma *v)
{
    return v->file && v->object && objects[v->object].changed;
}

#endif
