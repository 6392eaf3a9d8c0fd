/*
 * nondet.c: see nondet.h.
 *
 * The guest sees a CPU of level x86-64-vN: cpuid's feature bits are those of the host cut down to the level,
 * so that a trace can move to any machine of that level. What a feature needs elsewhere (XCR0, the size of
 * the XSAVE area) is cut down with it. TSX, FSGSBASE, protection keys and shadow stacks are hidden at every
 * level.
 */
#include "engine/task/nondet.h"

#include <string.h>

#include "base/error.h"
#include "engine/cpu/registers.h"
#include "engine/event/event.h"
#include "engine/translate/decode.h"

struct leaf {
    uint32_t a, b, c, d;
};

static struct leaf ask_cpuid(uint32_t leaf, uint32_t sub)
{
    struct leaf r;
    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
    return r;
}

/* In a virtual machine every cpuid is an exit to the hypervisor, and each program start needs dozens: they
 * are kept. */
static struct leaf host_cpuid(uint32_t leaf, uint32_t sub)
{
    static struct {
        uint32_t leaf, sub;
        struct leaf result;
    } kept[128];
    static uint32_t count;
    for (uint32_t i = 0; i < count; i++)
        if (kept[i].leaf == leaf && kept[i].sub == sub)
            return kept[i].result;
    struct leaf r = ask_cpuid(leaf, sub);
    if (count < sizeof kept / sizeof kept[0]) {
        kept[count].leaf = leaf;
        kept[count].sub = sub;
        kept[count++].result = r;
    }
    return r;
}

#define B(n) (1u << (n))

/* Feature bits that appear at a level; bits of lower levels and of no level (crypto, hints) are always shown.
 */
enum {
    C1_V2 = (int)(B(0) | B(9) | B(13) | B(19) | B(20) | B(23)),   /* SSE3 SSSE3 CX16 SSE4.1 SSE4.2 POPCNT */
    C1_V3 = (int)(B(12) | B(22) | B(26) | B(27) | B(28) | B(29)), /* FMA MOVBE XSAVE OSXSAVE AVX F16C */
    B7_V3 = (int)(B(3) | B(5) | B(8)),                            /* BMI1 AVX2 BMI2 */
    B7_V4 = (int)(B(16) | B(17) | B(28) | B(30) | B(31)),         /* AVX-512 F DQ CD BW VL */
    C81_V3 = (int)B(5),                                           /* LZCNT */
};

static uint64_t visible_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint64_t host = (uint64_t)high << 32 | low;
    return host & (engine.cpu_level >= 4 ? 0xe7 : engine.cpu_level >= 3 ? 7 : 3);
}

static void mask_leaf1(struct leaf *r)
{
    uint32_t hidden = B(3) | B(31); /* MONITOR; the hypervisor's presence leads to leaves of its own */
    if (engine.cpu_level < 2)
        hidden |= (uint32_t)C1_V2;
    if (engine.cpu_level < 3)
        hidden |= (uint32_t)C1_V3;
    r->c &= ~hidden;
    r->b = (r->b & 0x0000ffff) | 1u << 16; /* one logical processor, APIC id 0 */
}

static void mask_leaf7(struct leaf *r, uint32_t sub)
{
    if (sub) {
        *r = (struct leaf){0};
        return;
    }
    const uint32_t shown_b = B(3) | B(5) | B(8) | B(9) | B(18) | B(19) | B(23) | B(24) |
                             B(29); /* + ERMS RDSEED ADX CLFLUSHOPT CLWB SHA */
    uint32_t b = shown_b | (engine.cpu_level >= 4 ? (uint32_t)B7_V4 : 0);
    if (engine.cpu_level < 3)
        b &= ~(uint32_t)B7_V3;
    r->a = 0;
    r->b &= b;
    r->c &=
        engine.cpu_level >= 3 ? B(8) | B(9) | B(10) | B(22) : B(8) | B(22); /* GFNI VAES VPCLMULQDQ RDPID */
    r->d &= B(4);                                                           /* fast short rep mov */
}

static void mask_leaf13(struct leaf *r, uint32_t sub)
{
    uint64_t xcr0 = visible_xcr0();
    uint32_t size = xcr0 & 0xe0 ? 2696 : xcr0 & 4 ? 832 : 576;
    if (engine.cpu_level < 3) {
        *r = (struct leaf){0};
    } else if (sub == 0) {
        *r = (struct leaf){(uint32_t)xcr0, size, size, 0};
    } else if (sub == 1) {
        r->a &= B(0) | B(1) | B(2); /* XSAVEOPT XSAVEC XGETBV(1) */
        r->b = size;
        r->c = r->d = 0;
    } else if (sub >= 32 || !(xcr0 >> sub & 1)) {
        *r = (struct leaf){0};
    }
}

static struct leaf guest_cpuid(uint32_t leaf, uint32_t sub)
{
    if (leaf >= 0x40000000 && leaf < 0x40010000)
        return (struct leaf){0};
    struct leaf r = host_cpuid(leaf, sub);
    switch (leaf) {
    case 0:
        if (r.a > 0x16)
            r.a = 0x16;
        break;
    case 1:
        mask_leaf1(&r);
        break;
    case 7:
        mask_leaf7(&r, sub);
        break;
    case 0xd:
        mask_leaf13(&r, sub);
        break;
    case 0x80000001:
        if (engine.cpu_level < 3)
            r.c &= ~(uint32_t)C81_V3;
        r.c &= ~(B(2) | B(11) | B(12) | B(15) | B(16) | B(21) |
                 B(29)); /* SVM XOP SKINIT LWP FMA4 TBM MONITORX */
        break;
    default:
        break;
    }
    return r;
}

/* ---- performing ---- */

static void set_rax_rdx(struct trace_ev_insn *out, uint64_t value)
{
    out->rax = (uint32_t)value;
    out->rdx = value >> 32;
}

/* Value and carry of rdrand or rdseed of the operand's width. */
static uint64_t random_value(const struct insn *in, unsigned char *carry)
{
    uint64_t value;
    if (in->nondet == INSN_RDRAND)
        __asm__ volatile("rdrand %0; setc %1" : "=r"(value), "=q"(*carry) : : "cc");
    else
        __asm__ volatile("rdseed %0; setc %1" : "=r"(value), "=q"(*carry) : : "cc");
    return value;
}

static void perform(const struct task *t, const struct insn *in, struct trace_ev_insn *out)
{
    const uint64_t *g = t->regs.gpr;
    uint32_t low, high, aux;
    unsigned char carry;
    *out = (struct trace_ev_insn){g[GPR_RAX], g[GPR_RBX], g[GPR_RCX], g[GPR_RDX], t->regs.rflags};
    switch ((enum trace_insn)in->nondet) {
    case INSN_RDTSC:
        __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
        set_rax_rdx(out, (uint64_t)high << 32 | low);
        break;
    case INSN_RDTSCP:
        __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(aux));
        set_rax_rdx(out, (uint64_t)high << 32 | low);
        out->rcx = aux;
        break;
    case INSN_RDPID:
        __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(aux));
        out->rax = aux;
        break;
    case INSN_RDRAND:
    case INSN_RDSEED:
        out->rax = random_value(in, &carry);
        out->rflags = (out->rflags & ~0x8d5ull) | carry;
        break;
    case INSN_CPUID: {
        struct leaf r = guest_cpuid((uint32_t)g[GPR_RAX], (uint32_t)g[GPR_RCX]);
        *out = (struct trace_ev_insn){r.a, r.b, r.c, r.d, t->regs.rflags};
        break;
    }
    case INSN_XGETBV:
        if ((uint32_t)g[GPR_RCX] == 0) {
            set_rax_rdx(out, visible_xcr0());
        } else {
            __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
            set_rax_rdx(out, ((uint64_t)high << 32 | low) & visible_xcr0());
        }
        break;
    }
}

/* rdrand, rdseed, rdpid: the register of ModRM.rm, with the width of the operand. */
static void set_operand(struct task *t, const struct insn *in, uint64_t value)
{
    uint64_t *r = &t->regs.gpr[in->z.raw.modrm.rm | (unsigned)in->z.raw.rex.B << 3];
    if (in->nondet == INSN_RDPID || in->z.operand_width == 64)
        *r = value;
    else if (in->z.operand_width == 16)
        *r = (*r & ~0xffffull) | (value & 0xffff);
    else
        *r = (uint32_t)value;
}

void nondet_apply(struct task *t, const struct insn *in, const struct trace_ev_insn *out)
{
    if (in->nondet == INSN_RDRAND || in->nondet == INSN_RDSEED || in->nondet == INSN_RDPID) {
        set_operand(t, in, out->rax);
    } else {
        t->regs.gpr[GPR_RAX] = out->rax;
        t->regs.gpr[GPR_RBX] = out->rbx;
        t->regs.gpr[GPR_RCX] = out->rcx;
        t->regs.gpr[GPR_RDX] = out->rdx;
    }
    t->regs.rflags = out->rflags;
    t->regs.rip += in->length;
}

void nondet_record(struct task *t, const struct insn *in)
{
    struct trace_ev_insn out;
    uint32_t hash = regs_hash(&t->regs, in->pc);
    perform(t, in, &out);
    struct event_head head = {EV_INSN, 0, in->nondet, in->pc, 0, hash, &out, sizeof out};
    event_publish(t, &head);
    nondet_apply(t, in, &out);
}
