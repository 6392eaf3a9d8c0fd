/* decode.c: see decode.h. */
#include "engine/translate/decode.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "engine/core/engine.h"

static ZydisDecoder decoder;

void decode_init(void)
{
    if (ZYAN_FAILED(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)))
        BUG("the Zydis library does not initialise");
}

uint64_t decode_room(uint64_t pc)
{
    const struct vma *v = space_find(&engine.space, pc);
    if (!v || !(v->prot & PROT_EXEC))
        return 0;
    uint64_t end = v->end;
    const struct vma *last = engine.space.vmas + engine.space.count;
    while (v + 1 < last && v[1].start == end && (v[1].prot & PROT_EXEC) && end - pc < 2 * PAGE_SIZE)
        end = (++v)->end;
    return end - pc;
}

static void classify_branch(struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    bool direct = z->raw.imm[0].size && z->raw.imm[0].is_relative;
    if (direct)
        in->target = in->pc + in->length + (uint64_t)z->raw.imm[0].value.s;
    switch (z->mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
        in->kind = direct ? INSN_JMP : INSN_JMP_IND;
        break;
    case ZYDIS_MNEMONIC_CALL:
        in->kind = direct ? INSN_CALL : INSN_CALL_IND;
        break;
    case ZYDIS_MNEMONIC_RET:
        in->kind = INSN_RET;
        in->pop = z->raw.imm[0].size ? (uint16_t)z->raw.imm[0].value.u : 0;
        break;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JRCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
        in->kind = INSN_LOOP;
        break;
    case ZYDIS_MNEMONIC_XBEGIN:
        in->kind = INSN_INVALID;
        break;
    default:
        in->kind = direct ? INSN_JCC : INSN_REFUSED;
        in->refused = "far control transfer";
    }
    if (z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) {
        in->kind = INSN_REFUSED;
        in->refused = "far control transfer";
    }
}

static void refuse(struct insn *in, const char *name)
{
    in->kind = INSN_REFUSED;
    in->refused = name;
}

static void nondet(struct insn *in, enum trace_insn which)
{
    in->kind = INSN_NONDET;
    in->nondet = which;
}

static void classify(struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    in->kind = INSN_PLAIN;
    if (z->meta.branch_type != ZYDIS_BRANCH_TYPE_NONE) {
        classify_branch(in);
        return;
    }
    switch (z->mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
        in->kind = INSN_SYSCALL;
        break;
    case ZYDIS_MNEMONIC_RDTSC:
        nondet(in, INSN_RDTSC);
        break;
    case ZYDIS_MNEMONIC_RDTSCP:
        nondet(in, INSN_RDTSCP);
        break;
    case ZYDIS_MNEMONIC_RDPID:
        nondet(in, INSN_RDPID);
        break;
    case ZYDIS_MNEMONIC_RDRAND:
        nondet(in, INSN_RDRAND);
        break;
    case ZYDIS_MNEMONIC_RDSEED:
        nondet(in, INSN_RDSEED);
        break;
    case ZYDIS_MNEMONIC_CPUID:
        nondet(in, INSN_CPUID);
        break;
    case ZYDIS_MNEMONIC_XGETBV:
        nondet(in, INSN_XGETBV);
        break;
    case ZYDIS_MNEMONIC_INT:
        refuse(in, "software interrupt (int n; a 32-bit system call?)");
        break;
    case ZYDIS_MNEMONIC_SYSENTER:
        refuse(in, "sysenter");
        break;
    case ZYDIS_MNEMONIC_RDGSBASE:
    case ZYDIS_MNEMONIC_WRGSBASE:
        refuse(in, "access to the gs base");
        break;
    case ZYDIS_MNEMONIC_XEND:
    case ZYDIS_MNEMONIC_XTEST:
        in->kind = INSN_INVALID;
        break;
    default:
        if (z->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS)
            refuse(in, "memory access through gs");
    }
}

int decode_insn(struct insn *in, uint64_t pc, uint64_t room)
{
    in->pc = pc;
    uint64_t n = room < sizeof in->bytes ? room : sizeof in->bytes;
    memcpy(in->bytes, (const void *)pc, n);
    ZyanStatus status = ZydisDecoderDecodeInstruction(&decoder, NULL, in->bytes, n, &in->z);
    if (ZYAN_FAILED(status)) {
        if (status == ZYDIS_STATUS_NO_MORE_DATA && n < 15)
            return -1;
        in->kind = INSN_INVALID;
        in->length = 1;
        in->rip_relative = false;
        return 0;
    }
    const ZydisDecodedInstruction *z = &in->z;
    in->length = z->length;
    in->rip_relative = (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) && z->raw.modrm.mod == 0 && z->raw.modrm.rm == 5;
    if (in->rip_relative)
        in->address = pc + in->length + (uint64_t)z->raw.disp.value;
    classify(in);
    return 0;
}

int decode_operands(const struct insn *in, ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT])
{
    ZydisDecodedInstruction z;
    return ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, in->bytes, in->length, &z, ops)) ? -1 : z.operand_count;
}

/* True when the flags Zydis calls modified may in fact be left alone (a shift by 0, a rep that does nothing). */
static bool writes_maybe(const struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    switch (z->mnemonic) {
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
        return z->opcode == 0xd2 || z->opcode == 0xd3 || z->opcode == 0xa5 || z->opcode == 0xad ||
               (z->raw.imm[0].size && (z->raw.imm[0].value.u & 0x1f) == 0);
    default:
        return z->attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
    }
}

enum { LIVE_DEPTH = 4, LIVE_INSNS = 24 };

static bool flags_live(uint64_t pc, uint32_t unknown, int depth)
{
    uint64_t room = decode_room(pc);
    struct insn in;
    for (int i = 0; i < LIVE_INSNS && unknown; i++) {
        if (!room || decode_insn(&in, pc, room) < 0)
            return true;
        if (in.kind == INSN_SYSCALL || in.kind == INSN_INVALID || in.kind == INSN_REFUSED)
            return true;
        const ZydisAccessedFlags *f = in.z.cpu_flags;
        if (f && (f->tested & unknown))
            return true;
        if (f && !writes_maybe(&in))
            unknown &= ~(f->modified | f->set_0 | f->set_1 | f->undefined);
        pc += in.length;
        room -= in.length;
        switch (in.kind) {
        case INSN_JMP:
        case INSN_CALL:
            if (!depth)
                return unknown != 0;
            return unknown && flags_live(in.target, unknown, depth - 1);
        case INSN_JCC:
        case INSN_LOOP:
            if (!depth)
                return unknown != 0;
            return unknown && (flags_live(in.target, unknown, depth - 1) || flags_live(pc, unknown, depth - 1));
        case INSN_RET:
        case INSN_JMP_IND:
        case INSN_CALL_IND:
            return unknown != 0;
        default:
            break;
        }
    }
    return unknown != 0;
}

bool decode_flags_live(uint64_t pc)
{
    return flags_live(pc, FLAGS_ALL, LIVE_DEPTH);
}
