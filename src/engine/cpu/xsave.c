/*
 * xsave.c: see xsave.h. The area: 512 bytes legacy (x87 at 0..23 and 32..159, MXCSR and its mask at 24..31, XMM at 160..415,
 * room for software at 464..511), a header of 64 bytes (XSTATE_BV, XCOMP_BV), then the other components, at their standard
 * offsets or, with bit 63 of XCOMP_BV, one behind the other.
 */
#include "engine/cpu/xsave.h"

#include <string.h>

enum {
    X87 = 1,
    SSE = 2,
    AVX = 4,
    MXCSR_AT = 24,
    X87_REGISTERS_AT = 32,
    XMM_AT = 160,
    SOFTWARE_AT = 464,
    MXCSR_INITIAL = 0x1f80,
    MXCSR_VALID = 0xffff,
    CONTROL_INITIAL = 0x37f
};
enum { MAGIC1 = 0x46505853, MAGIC2_SIZE = 4 };
#define COMPACT (1ull << 63)

static const uint16_t sizes[CPU_COMPONENTS] = {[2] = 256, [5] = 64, [6] = 512, [7] = 1024};
const struct cpu_layout xsave_guest_layout = {{[2] = 576, [5] = 1088, [6] = 1152, [7] = 1664}};

uint32_t xsave_component_size(unsigned component)
{
    return sizes[component];
}

uint32_t xsave_standard_size(uint64_t components)
{
    uint32_t size = XSAVE_EXTENDED;
    for (unsigned i = 2; i < CPU_COMPONENTS; i++)
        if (components >> i & 1)
            size = xsave_guest_layout.offset[i] + sizes[i];
    return size;
}

/* Where a component lies in an area that is compacted to `components`. None of them wants to be aligned. */
static uint32_t compact_offset(uint64_t components, unsigned component)
{
    uint32_t at = XSAVE_EXTENDED;
    for (unsigned i = 2; i < component; i++)
        if (components >> i & 1)
            at += sizes[i];
    return at;
}

uint32_t xsave_compact_size(uint64_t components)
{
    return compact_offset(components, CPU_COMPONENTS);
}

uint32_t cpu_host_area(const struct cpu_host *host)
{
    uint32_t size = XSAVE_EXTENDED;
    for (unsigned i = 2; i < CPU_COMPONENTS; i++)
        if ((host->xcr0 & CPU_KEPT) >> i & 1 && host->layout.offset[i] + sizes[i] > size)
            size = host->layout.offset[i] + sizes[i];
    return size;
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static void put32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint64_t in_use(const struct xsave_state *state)
{
    return get64(state->area + XSAVE_LEGACY);
}

static void set_in_use(const struct xsave_state *state, uint64_t components, bool used)
{
    uint64_t now = in_use(state);
    put64(state->area + XSAVE_LEGACY, used ? now | components : now & ~components);
}

void xsave_component(const struct xsave_state *state, unsigned component, void *to)
{
    bool used = in_use(state) >> component & 1;
    uint32_t at = component == 1 ? XMM_AT : state->layout->offset[component];
    uint32_t size = component == 1 ? 256 : sizes[component];
    if (used)
        memcpy(to, state->area + at, size);
    else
        memset(to, 0, size);
}

void xsave_initial(const struct xsave_state *state)
{
    const uint16_t control = CONTROL_INITIAL;
    memset(state->area, 0, XSAVE_EXTENDED);
    memcpy(state->area, &control, sizeof control);
    put32(state->area + MXCSR_AT, MXCSR_INITIAL);
}

struct x87_pointers xsave_x87_pointers(const struct xsave_state *state)
{
    struct x87_pointers p = {0};
    if (in_use(state) & X87) {
        p.instruction = get64(state->area + 8);
        p.operand = get64(state->area + 16);
        memcpy(&p.opcode, state->area + 6, sizeof p.opcode);
    }
    return p;
}

void xsave_set_x87_instruction(const struct xsave_state *state, uint64_t instruction)
{
    if (in_use(state) & X87)
        put64(state->area + 8, instruction);
}

/* ---- storing ---- */

static void add(struct xsave_image *image, uint32_t offset, uint32_t size)
{
    image->parts[image->count].offset = offset;
    image->parts[image->count++].size = size;
}

static void store_x87(const struct xsave_state *state, bool wide, const struct x87_pointers *p,
                      struct xsave_image *image)
{
    uint8_t *to = image->bytes;
    const uint16_t control = CONTROL_INITIAL;
    memset(to, 0, MXCSR_AT);
    memset(to + X87_REGISTERS_AT, 0, 128);
    memcpy(to, &control, sizeof control);
    if (in_use(state) & X87) {
        memcpy(to, state->area, 5); /* control, status, tags */
        memcpy(to + X87_REGISTERS_AT, state->area + X87_REGISTERS_AT, 128);
    }
    memcpy(to + 6, &p->opcode, sizeof p->opcode);
    put64(to + 8, wide ? p->instruction : (uint32_t)p->instruction); /* else, and a code segment of 0 */
    put64(to + 16, wide ? p->operand : (uint32_t)p->operand);
    add(image, 0, MXCSR_AT);
    add(image, X87_REGISTERS_AT, 128);
}

static void store_mxcsr(const struct xsave_state *state, struct xsave_image *image)
{
    put32(image->bytes + MXCSR_AT, get32(state->area + MXCSR_AT) & MXCSR_VALID);
    put32(image->bytes + MXCSR_AT + 4, MXCSR_VALID);
    add(image, MXCSR_AT, 8);
}

static void store_header(enum xsave_form form, uint64_t stored, uint64_t old, struct xsave_image *image)
{
    const uint64_t standard[] = {stored | (old & ~stored), 0}, compact[] = {stored, stored | COMPACT};
    bool compacted = form == FORM_COMPACT;
    memcpy(image->bytes + XSAVE_LEGACY, compacted ? compact : standard, 16);
    add(image, XSAVE_LEGACY, compacted ? 16 : 8);
}

void xsave_store(const struct cpu *cpu, const struct xsave_state *state, enum xsave_form form, uint64_t asked,
                 bool wide, uint64_t old, const struct x87_pointers *pointers, struct xsave_image *image)
{
    uint64_t stored = form == FORM_FXSAVE ? X87 | SSE : asked & cpu->xcr0;
    image->count = 0;
    if (stored & X87)
        store_x87(state, wide, pointers, image);
    if (stored & (form == FORM_STANDARD ? SSE | AVX : SSE))
        store_mxcsr(state, image);
    if (stored & SSE) {
        xsave_component(state, 1, image->bytes + XMM_AT);
        add(image, XMM_AT, 256);
    }
    if (form == FORM_FXSAVE)
        return;
    for (unsigned i = 2; i < CPU_COMPONENTS; i++) {
        if (!(stored >> i & 1))
            continue;
        uint32_t at = form == FORM_COMPACT ? compact_offset(stored, i) : xsave_guest_layout.offset[i];
        xsave_component(state, i, image->bytes + at);
        add(image, at, sizes[i]);
    }
    store_header(form, stored, old, image);
}

uint32_t xsave_reach(const struct cpu *cpu, enum xsave_form form, uint64_t asked)
{
    if (form == FORM_FXSAVE)
        return XSAVE_LEGACY;
    asked &= cpu->xcr0;
    return form == FORM_COMPACT ? xsave_compact_size(asked) : xsave_standard_size(asked);
}

/* ---- loading ---- */

static bool all_zero(const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i])
            return false;
    return true;
}

static bool good_header(const struct cpu *cpu, const uint8_t *header)
{
    uint64_t present = get64(header), form = get64(header + 8), known = cpu->xcr0;
    if (form & COMPACT)
        return !(form & ~COMPACT & ~known) && !(present & ~form) && all_zero(header + 16, 48);
    return !(present & ~known) && all_zero(header + 8, 16);
}

/* The instruction takes MXCSR from the area. */
static bool loads_mxcsr(bool fx, uint64_t asked, const uint8_t *header)
{
    if (fx)
        return true;
    if (get64(header + 8) & COMPACT)
        return asked & get64(header) & SSE;
    return asked & (SSE | AVX);
}

static uint32_t offset_in(const uint8_t *header, unsigned component)
{
    uint64_t form = get64(header + 8);
    return form & COMPACT ? compact_offset(form, component) : xsave_guest_layout.offset[component];
}

bool xsave_plan_load(const struct cpu *cpu, bool fx, uint64_t asked, struct xsave_image *image)
{
    const uint8_t *header = image->bytes + XSAVE_LEGACY;
    image->count = 0;
    if (!fx && !good_header(cpu, header))
        return false;
    asked &= cpu->xcr0;
    if (loads_mxcsr(fx, asked, header) && (get32(image->bytes + MXCSR_AT) & ~(uint32_t)MXCSR_VALID))
        return false;
    if (get64(header + 8) & COMPACT)
        asked &= get64(header + 8);
    for (unsigned i = 2; !fx && i < CPU_COMPONENTS;
         i++) /* also what then becomes initial: a processor looks there */
        if (asked >> i & 1)
            add(image, offset_in(header, i), sizes[i]);
    return true;
}

static void load_x87(const struct xsave_state *state, bool wide, const uint8_t *from)
{
    memcpy(state->area, from, 8);
    put64(state->area + 8, wide ? get64(from + 8) : get32(from + 8));
    put64(state->area + 16, wide ? get64(from + 16) : get32(from + 16));
    memcpy(state->area + X87_REGISTERS_AT, from + X87_REGISTERS_AT, 128);
    for (int i = 0; i < 8; i++) /* the upper 6 bytes of each register's room */
        memset(state->area + X87_REGISTERS_AT + 16 * i + 10, 0, 6);
}

void xsave_load(const struct cpu *cpu, const struct xsave_state *state, bool fx, uint64_t asked, bool wide,
                const struct xsave_image *image)
{
    const uint8_t *header = image->bytes + XSAVE_LEGACY;
    asked = fx ? X87 | SSE : asked & cpu->xcr0;
    uint64_t loaded = fx ? asked : asked & get64(header);
    if (loads_mxcsr(fx, asked, header))
        memcpy(state->area + MXCSR_AT, image->bytes + MXCSR_AT, 4);
    else if (asked & SSE)
        put32(state->area + MXCSR_AT, MXCSR_INITIAL);
    if (loaded & X87)
        load_x87(state, wide, image->bytes);
    if (loaded & SSE)
        memcpy(state->area + XMM_AT, image->bytes + XMM_AT, 256);
    for (unsigned i = 2; i < CPU_COMPONENTS; i++)
        if (loaded >> i & 1)
            memcpy(state->area + state->layout->offset[i], image->bytes + offset_in(header, i), sizes[i]);
    set_in_use(state, asked, false);
    set_in_use(state, loaded, true);
}

/* ---- signal frames ---- */

struct software { /* the kernel's struct _fpx_sw_bytes */
    uint32_t magic, extended;
    uint64_t features;
    uint32_t size, padding[7];
};

uint32_t xsave_frame_size(const struct cpu *cpu)
{
    return cpu->area_size + (cpu->xcr0 ? MAGIC2_SIZE : 0);
}

void xsave_frame_store(const struct cpu *cpu, const struct xsave_state *state,
                       const struct x87_pointers *pointers, struct xsave_image *image)
{
    memset(image->bytes, 0, sizeof image->bytes);
    xsave_store(cpu, state, cpu->xcr0 ? FORM_STANDARD : FORM_FXSAVE, cpu->xcr0, true, 0, pointers, image);
    if (!cpu->xcr0)
        return;
    const struct software software = {MAGIC1, cpu->area_size + MAGIC2_SIZE, cpu->xcr0, cpu->area_size, {0}};
    memcpy(image->bytes + SOFTWARE_AT, &software, sizeof software);
    put32(image->bytes + cpu->area_size, XSAVE_MAGIC2);
}

uint32_t xsave_frame_extended(const struct cpu *cpu, const uint8_t legacy[XSAVE_LEGACY])
{
    struct software s;
    memcpy(&s, legacy + SOFTWARE_AT, sizeof s);
    bool good = cpu->xcr0 && s.magic == MAGIC1 && s.size >= XSAVE_EXTENDED && s.size <= cpu->area_size &&
                s.extended >= s.size;
    return good ? s.size : 0;
}

bool xsave_frame_load(const struct cpu *cpu, const struct xsave_state *state, uint32_t size,
                      struct xsave_image *image)
{
    struct software s;
    memcpy(&s, image->bytes + SOFTWARE_AT, sizeof s);
    bool fx = size == XSAVE_LEGACY;
    uint64_t asked = fx ? cpu->xcr0 : s.features;
    if (!xsave_plan_load(cpu, fx, asked, image))
        return false;
    for (unsigned i = 0; i < image->count; i++)
        if (image->parts[i].offset + image->parts[i].size > size)
            return false;
    xsave_initial(state);
    xsave_load(cpu, state, fx, asked, true, image);
    return true;
}

void xsave_from_kernel(const struct xsave_state *state, uint32_t room, uint64_t kept, const uint8_t *frame)
{
    struct software s;
    memcpy(&s, frame + SOFTWARE_AT, sizeof s);
    bool extended = s.magic == MAGIC1;
    uint32_t size = extended ? s.size : XSAVE_LEGACY;
    uint64_t used = extended ? get64(frame + XSAVE_LEGACY) & kept : X87 | SSE;
    memcpy(state->area, frame, size < room ? size : room);
    memset(state->area + SOFTWARE_AT, 0, XSAVE_LEGACY - SOFTWARE_AT);
    memset(state->area + XSAVE_LEGACY, 0, XSAVE_HEADER);
    put64(state->area + XSAVE_LEGACY, used);
}
