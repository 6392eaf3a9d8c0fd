/* slots.c: see slots.h. */
#include "engine/load/slots.h"

#include <linux/personality.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/load/elf.h"
#include "engine/load/personality.h"
#include "engine/memory/space.h"

enum { SLOT_ALIGN = 0x10000 };
#define SLOT_SPAN_MAX  0x10000000ull /* larger files would crowd out the others */
#define SLOT_ALIGN_MAX 0x10000000ull

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash ^= value;
    hash *= 0xff51afd7ed558ccdull;
    return hash ^ hash >> 32;
}

bool slot_need(int fd, struct slot_need *need)
{
    struct elf_image image;
    struct stat st;
    if (elf_peek(fd, &image) || fstat(fd, &st))
        return false;
    bool fine = image.header.e_type == ET_DYN && elf_span(&image, &need->span, &need->align);
    elf_free(&image);
    uint64_t hash = mix(0x436c696f, st.st_dev);
    hash = mix(hash, st.st_ino);
    hash = mix(hash, (uint64_t)st.st_size);
    hash = mix(hash, (uint64_t)st.st_mtim.tv_sec);
    need->identity = mix(hash, (uint64_t)st.st_mtim.tv_nsec);
    return fine;
}

/* The first free multiple of align in [from, to). */
static uint64_t probe(const struct space *s, uint64_t from, uint64_t to, uint64_t span, uint64_t align)
{
    for (uint64_t at = (from + align - 1) & ~(align - 1); at + span <= to;) {
        const struct vma *v = space_at_or_above(s, at);
        if (!v || v->start >= at + span)
            return at;
        at = (v->end + align - 1) & ~(align - 1);
    }
    return 0;
}

uint64_t slot_pick(struct space *s, const struct slot_need *need)
{
    uint64_t align = need->align > SLOT_ALIGN ? need->align : SLOT_ALIGN;
    uint64_t place = need->identity;
    if (engine.aslr && !personality_has(ADDR_NO_RANDOMIZE) &&
        getrandom(&place, sizeof place, 0) != sizeof place)
        place = need->identity;
    uint64_t at = 0;
    if (need->span <= SLOT_SPAN_MAX && align <= SLOT_ALIGN_MAX) {
        uint64_t start = SLOTS_LOW + place % ((SLOTS_HIGH - SLOTS_LOW) / SLOT_ALIGN) * SLOT_ALIGN;
        at = probe(s, start, SLOTS_HIGH, need->span, align);
        if (!at)
            at = probe(s, SLOTS_LOW, SLOTS_HIGH, need->span, align);
    }
    return at ? at : space_pick(s, need->span, align, 0);
}
