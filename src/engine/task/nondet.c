/* nondet.c: see nondet.h. */
#include "engine/task/nondet.h"

#include <string.h>
#include <sys/syscall.h>

#include "base/error.h"
#include "engine/cpu/registers.h"
#include "engine/cpu/xsave.h"
#include "engine/event/event.h"
#include "engine/host/raw.h"
#include "engine/task/perform.h"
#include "engine/translate/decode.h"

/* ---- performing ---- */

/* The register that takes the result: all of it, or a part as wide as the operand. */
static enum { NO_REGISTER, WHOLE_REGISTER, WIDTH_OF_OPERAND } has_register(unsigned which)
{
    switch (which) {
    case INSN_RDRAND:
    case INSN_RDSEED:
        return WIDTH_OF_OPERAND;
    case INSN_RDPID:
    case INSN_LSL:
    case INSN_LAR:
        return WHOLE_REGISTER;
    default:
        return NO_REGISTER;
    }
}

static uint64_t *operand(struct task *t, const struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    bool reg = in->nondet == INSN_LSL || in->nondet == INSN_LAR;
    return &t->regs.gpr[reg ? z->raw.modrm.reg | (unsigned)z->raw.rex.R << 3
                            : z->raw.modrm.rm | (unsigned)z->raw.rex.B << 3];
}

static void set_rax_rdx(struct trace_ev_insn *out, uint64_t value)
{
    out->rax = (uint32_t)value;
    out->rdx = value >> 32;
}

/* A processor that lacks the instruction is helped by the kernel. */
static uint64_t kernel_random(unsigned char *carry)
{
    uint64_t value = 0;
    *carry = raw3(SYS_getrandom, &value, sizeof value, 0) == sizeof value;
    return value;
}

/* Value and carry of rdrand or rdseed of the operand's width. */
static uint64_t random_value(const struct insn *in, unsigned char *carry)
{
    enum { RDRAND = 1 << 30, RDSEED = 1 << 18 };
    uint64_t value;
    if (in->nondet == INSN_RDRAND && (engine.host.leaf[LEAF_1].c & RDRAND))
        __asm__ volatile("rdrand %0; setc %1" : "=r"(value), "=q"(*carry) : : "cc");
    else if (in->nondet == INSN_RDSEED && (engine.host.leaf[LEAF_7].b & RDSEED))
        __asm__ volatile("rdseed %0; setc %1" : "=r"(value), "=q"(*carry) : : "cc");
    else
        value = kernel_random(carry);
    return value;
}

/* lsl, lar, verr, verw: ZF, and for the first two what the whole register is afterwards. */
static void ask_selector(struct task *t, const struct insn *in, struct trace_ev_insn *out)
{
    uint16_t selector = 0;
    uint64_t value = 0;
    unsigned char zero = 0;
    perform_read_selector(t, in, &selector);
    switch (in->nondet) {
    case INSN_LSL:
        __asm__("lsl %k2, %k0; setz %1" : "+r"(value), "=q"(zero) : "r"((uint32_t)selector) : "cc");
        break;
    case INSN_LAR:
        __asm__("lar %k2, %k0; setz %1" : "+r"(value), "=q"(zero) : "r"((uint32_t)selector) : "cc");
        break;
    case INSN_VERR:
        __asm__("verr %w1; setz %0" : "=q"(zero) : "r"(selector) : "cc");
        break;
    default:
        __asm__("verw %w1; setz %0" : "=q"(zero) : "r"(selector) : "cc");
    }
    out->rflags = (out->rflags & ~0x40ull) | (uint64_t)zero << 6;
    if (in->nondet == INSN_VERR || in->nondet == INSN_VERW)
        return;
    out->rax = *operand(t, in);
    if (zero && in->z.operand_width == 16)
        memcpy(&out->rax, &value, 2);
    else if (zero)
        out->rax = value;
}

static void perform(struct task *t, const struct insn *in, struct trace_ev_insn *out)
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
        struct cpu_leaf r = cpu_id(&engine.cpu, (uint32_t)g[GPR_RAX], (uint32_t)g[GPR_RCX]);
        *out = (struct trace_ev_insn){r.a, r.b, r.c, r.d, t->regs.rflags};
        break;
    }
    case INSN_XGETBV: {
        uint64_t value;
        cpu_xgetbv(&engine.cpu, (uint32_t)g[GPR_RCX], &value);
        set_rax_rdx(out, value);
        break;
    }
    case INSN_LSL:
    case INSN_LAR:
    case INSN_VERR:
    case INSN_VERW:
        ask_selector(t, in, out);
        break;
    case INSN_X87_POINTERS:
        break;
    }
}

static void set_operand(struct task *t, const struct insn *in, uint64_t value)
{
    uint64_t *r = operand(t, in);
    if (has_register(in->nondet) != WIDTH_OF_OPERAND || in->z.operand_width == 64)
        *r = value;
    else if (in->z.operand_width == 16)
        *r = (*r & ~0xffffull) | (value & 0xffff);
    else
        *r = (uint32_t)value;
}

void nondet_apply(struct task *t, const struct insn *in, const struct trace_ev_insn *out)
{
    if (has_register(in->nondet) != NO_REGISTER) {
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

void nondet_record_pointers(struct task *t, uint64_t pc, const struct x87_pointers *p)
{
    if (!p->instruction && !p->operand && !p->opcode)
        return;
    struct trace_ev_insn out = {p->instruction, p->operand, p->opcode, 0, t->regs.rflags};
    struct event_head head = {EV_INSN, 0,         INSN_X87_POINTERS, pc, 0, regs_hash(&t->regs, pc),
                              &out,    sizeof out};
    event_publish(t, &head);
}
