/*
 * change.h: changes of the guest's address space as part of the event being recorded.
 *
 * Each function changes space s (load/space.h) and then tells the trace what replay has to apply (event_map),
 * and where that does not give the same bytes, the bytes (effect_add). 0 or -errno; a failed change is not in
 * the trace. Recording only.
 */
#ifndef CLIO_ENGINE_LOAD_CHANGE_H
#define CLIO_ENGINE_LOAD_CHANGE_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

/*
 * As space_map. fd >= 0 without v->file is a mapping whose content the store cannot keep (a device): the
 * trace gets the bytes it has at this moment, a note names it, and replay sees private memory.
 */
int change_map(struct space *s, const struct vma *v, int fd, int host_flags);
/* As space_adopt, for memory at v that lies outside the trace: recorded as change_map does without a file. */
int change_adopt(struct space *s, const struct vma *v, const char *what);
/* As space_adopt, for a second view at v of an object that the space shows already. */
int change_alias(struct space *s, const struct vma *v);
/* An access of the guest to addr, where nothing is mapped: true when a mapping has grown down to it. For signal handlers,
 * too. */
bool change_grow(struct space *s, uint64_t addr);
/* The same where another process has grown it: a mapping like others, for replay sees no access here. */
bool change_grow_like(struct space *s, uint64_t addr);
/* As change_grow, tried for every argument of a call that looks as if it needed that, before the kernel sees it. */
void change_grow_arguments(struct space *s, const uint64_t args[6]);
int change_unmap(struct space *s, uint64_t start, uint64_t len);
int change_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot);
int change_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len);
/* As space_move_keeping, of a private mapping of a file. */
int change_move_keeping(struct space *s, uint64_t start, uint64_t old, uint64_t len);
/* The guest dropped the range's content; the host has done it already. removed: from shared memory, too. */
void change_discard(struct space *s, uint64_t start, uint64_t len, bool removed);

#endif
