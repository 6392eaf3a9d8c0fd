/*
 * slots.h: every ELF file has an address of its own, derived from its identity, so that a library lies at the
 * same place in every process and run and its translation can be kept. See the address map in guest/layout.h.
 */
#ifndef CLIO_ENGINE_LOAD_SLOTS_H
#define CLIO_ENGINE_LOAD_SLOTS_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

/* What decides where an ELF file may lie. */
struct slot_need {
    uint64_t span;  /* bytes from the first page of its PT_LOADs to the end of the last */
    uint64_t align; /* largest p_align, at least a page */
    uint64_t identity;
};

/* Reads the headers of fd. False when it is not a position-independent ELF file with sane PT_LOADs. */
bool slot_need(int fd, struct slot_need *need);

/*
 * Address for `need`: its slot, or the next free place after it, or the mmap area when it is too big; 0 when
 * there is no room at all. With engine.aslr the slot is random.
 */
uint64_t slot_pick(struct space *s, const struct slot_need *need);

#endif
