/* personality.c: see personality.h. */
#include "engine/load/personality.h"

#include <linux/personality.h>

#include "engine/event/event.h"
#include "engine/host/raw.h"

/* What would change the engine's own mappings. */
#define OF_MEMORY                                                                                            \
    (ADDR_NO_RANDOMIZE | FDPIC_FUNCPTRS | MMAP_PAGE_ZERO | ADDR_COMPAT_LAYOUT | READ_IMPLIES_EXEC |          \
     ADDR_LIMIT_32BIT | ADDR_LIMIT_3GB)

static uint32_t value; /* the guest's */

void personality_begin(void)
{
    int64_t now = raw1(SYS_personality, 0xffffffff);
    value = now < 0 ? 0 : (uint32_t)now;
    if (value & OF_MEMORY)
        raw1(SYS_personality, value & ~(uint32_t)OF_MEMORY);
}

/* The kernel is asked in full first, for it may refuse (a seccomp filter). */
int64_t personality_change(uint32_t to)
{
    uint32_t old = value;
    if (to == 0xffffffff)
        return old;
    int64_t r = raw1(SYS_personality, to);
    if (r < 0)
        return r;
    raw1(SYS_personality, to & ~(uint32_t)OF_MEMORY);
    value = to;
    return old;
}

bool personality_has(uint32_t bit)
{
    return value & bit;
}

void personality_exec(void)
{
    value &= ~(uint32_t)READ_IMPLIES_EXEC;
    if (value & MMAP_PAGE_ZERO)
        event_note("the personality MMAP_PAGE_ZERO is not honoured: the program has nothing at address 0");
    if (value & ADDR_COMPAT_LAYOUT)
        event_note("the personality ADDR_COMPAT_LAYOUT is not honoured: mappings go from the top downwards");
}

void personality_leave(void)
{
    raw1(SYS_personality, value);
}
