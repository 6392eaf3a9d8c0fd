/*
 * xsave.c: see xsave.h. The area: 512 bytes legacy (x87 at 0..23 and 32..159, MXCSR at 24..31, XMM at
 * 160..415), then a header of 64 bytes (XSTATE_BV at 512, XCOMP_BV at 520), then the other components, at
 * their standard offsets or, with bit 63 of XCOMP_BV, one behind the other.
 */
#include "engine/cpu/xsave.h"

#include <cpuid.h>
#include <string.h>

#include "engine/cpu/registers.h"
#include "engine/guest/access.h"
#include "engine/guest/task.h"

enum { HEADER = 512, EXTENDED = 576, COMPONENTS = 32 };

static struct component {
    uint32_t size, offset;
    bool aligned;
} components[COMPONENTS]; /* from 2 on, as CPUID leaf 0DH tells */

static uint64_t host_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static void ask_components(void)
{
    for (unsigned i = 2; i < COMPONENTS; i++) {
        unsigned a, b, c, d;
        if (!__get_cpuid_count(0xd, i, &a, &b, &c, &d))
            return;
        components[i] = (struct component){a, b, c & 2};
    }
}

/* Offset of a component in an area whose XCOMP_BV is `compact` (0: standard form). */
static uint64_t offset_of(unsigned component, uint64_t compact)
{
    uint64_t at = EXTENDED;
    if (!compact)
        return components[component].offset;
    for (unsigned i = 2; i <= component; i++) {
        if (!(compact >> i & 1))
            continue;
        if (components[i].aligned)
            at = (at + 63) & ~63ull;
        if (i < component)
            at += components[i].size;
    }
    return at;
}

static void clear(uint64_t at, uint64_t n)
{
    static const uint8_t zero[512];
    for (; n; n -= n < sizeof zero ? n : sizeof zero) {
        guest_write(at, zero, n < sizeof zero ? n : sizeof zero);
        at += sizeof zero;
    }
}

static void write_initial(uint64_t area, unsigned component, uint64_t compact)
{
    const uint16_t control = 0x37f;
    switch (component) {
    case 0:
        clear(area, 24);
        clear(area + 32, 128);
        guest_write(area, &control, sizeof control);
        break;
    case 1:
        clear(area + 160, 256);
        break;
    default:
        clear(area + offset_of(component, compact), components[component].size);
    }
}

void xsave_normalize(struct task *t, uint64_t area)
{
    uint64_t header[2];
    uint64_t asked = (uint32_t)t->regs.gpr[GPR_RAX] | t->regs.gpr[GPR_RDX] << 32;
    asked &= host_xcr0() & (engine.cpu_level >= 4 ? 0xe7 : 7);
    if (!components[2].size)
        ask_components();
    if (guest_read(header, area + HEADER, sizeof header))
        return; /* the instruction would have faulted */
    uint64_t compact = header[1] >> 63 ? header[1] : 0;
    for (unsigned i = 0; i < COMPONENTS; i++)
        if (asked & ~header[0] & 1ull << i)
            write_initial(area, i, compact);
    if (asked & 6) /* MXCSR and its mask: XSAVEC writes them only when SSE or AVX is in use */
        guest_write(area + 24, t->xsave + 24, 8);
    header[0] |= asked;
    guest_write(area + HEADER, header, sizeof header[0]);
}
