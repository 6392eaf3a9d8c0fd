/* decode.c: see decode.h. */
#include "engine/translate/decode.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "engine/cpu/instructions.h"
#include "engine/guest/access.h"
#include "engine/guest/engine.h"
#include "engine/memory/space.h"

static ZydisDecoder decoder;
static bool allowed[ZYDIS_ISA_SET_MAX_VALUE + 1]; /* instruction sets of the guest's processor */

void decode_init(void)
{
    if (ZYAN_FAILED(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)))
        BUG("the Zydis library does not initialise");
}

void decode_use_cpu(void)
{
    cpu_allowed(&engine.cpu, allowed);
}

uint64_t decode_room(uint64_t pc)
{
    const struct vma *v = space_find(&guest_space, pc);
    if (!v || !(v->prot & PROT_EXEC))
        return 0;
    uint64_t end = v->end;
    const struct vma *last = guest_space.vmas + guest_space.count;
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
    case ZYDIS_MNEMONIC_XEND:
    case ZYDIS_MNEMONIC_XABORT:
        in->kind = INSN_INVALID;
        break;
    default:
        in->kind = direct ? INSN_JCC : INSN_REFUSED;
        in->refused = "unknown control transfer";
    }
    if (z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
        in->kind = INSN_PERFORMED;
}

static void refuse(struct insn *in, const char *name)
{
    in->kind = INSN_REFUSED;
    in->refused = name;
}

static bool loads_gs(const ZydisDecodedInstruction *z)
{
    if (z->opcode_map == ZYDIS_OPCODE_MAP_0F)
        return z->opcode == 0xa9; /* pop gs */
    return z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && z->opcode == 0x8e && z->raw.modrm.reg == 5;
}

/* What an instruction is that cannot simply be copied. */
static void classify_special(struct insn *in, const struct cpu_insn *special)
{
    const ZydisDecodedInstruction *z = &in->z;
    bool old = engine.cpu.old;
    switch ((enum cpu_class)special->class) {
    case CLASS_SYSCALL:
        in->kind = INSN_SYSCALL;
        break;
    case CLASS_RECORDED:
        if (old && special->which > INSN_XGETBV)
            break;
        in->kind = INSN_NONDET;
        in->nondet = special->which;
        break;
    case CLASS_PERFORMED:
        in->kind = INSN_PERFORMED;
        break;
    case CLASS_X87_STORE:
        in->kind = INSN_X87_STORE;
        break;
    case CLASS_GENERAL:
        in->kind = old ? INSN_PLAIN : INSN_GENERAL;
        break;
    case CLASS_UNDEFINED:
        in->kind = INSN_INVALID;
        break;
    case CLASS_SEGMENT:
        if (loads_gs(z))
            refuse(in, "load of the gs selector");
        break;
    case CLASS_INTERRUPT: /* others fault as they do alone */
        if (z->raw.imm[0].value.u == 0x80)
            refuse(in, "int 0x80, a 32-bit system call");
        break;
    case CLASS_CARRYLESS:
        if (!allowed[ZYDIS_ISA_SET_PCLMULQDQ])
            in->kind = INSN_INVALID;
        break;
    case CLASS_REFUSED:
        refuse(in, cpu_refused[special->which]);
        break;
    case CLASS_PLAIN:
    case CLASS_BIT_SCAN: /* there is it one */
        break;
    }
}

/* A segment prefix would matter to it. */
static bool reads_memory(const struct insn *in)
{
    switch (in->kind) {
    case INSN_PLAIN:
    case INSN_PERFORMED:
    case INSN_X87_STORE:
    case INSN_JMP_IND:
    case INSN_CALL_IND:
        return true;
    case INSN_NONDET:
        return in->nondet > INSN_XGETBV;
    default:
        return false;
    }
}

static void classify(struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    in->kind = INSN_PLAIN;
    if (!allowed[z->meta.isa_set]) {
        in->kind = INSN_INVALID;
        return;
    }
    const struct cpu_insn *special = &cpu_insns[z->mnemonic];
    if (z->meta.branch_type != ZYDIS_BRANCH_TYPE_NONE)
        classify_branch(in);
    else if (special->class)
        classify_special(in, special);
    if ((z->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) && reads_memory(in))
        refuse(in, "memory access through gs");
}

/*
 * lzcnt and tzcnt are bsr and bsf with a prefix that processors without them ignore. The prefix becomes one that all ignore,
 * or that is there already: with two different segment prefixes it matters which is last.
 */
static bool is_bit_scan(struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    if (allowed[z->meta.isa_set] || cpu_insns[z->mnemonic].class != CLASS_BIT_SCAN)
        return false;
    uint8_t ignored = z->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS ? 0x64 : 0x3e;
    for (unsigned i = 0; i < z->raw.prefix_count; i++)
        if (in->bytes[i] == 0xf3)
            in->bytes[i] = ignored;
    return true;
}

/*
 * Copies code; a mapped page may still be unreadable (a file that ends before it). Returns the bytes copied.
 * The page that was read last is read without ado until decode_restart.
 */
static uint64_t readable_page;

void decode_restart(void)
{
    readable_page = 0;
}

static uint64_t fetch(uint8_t *to, uint64_t pc, uint64_t n)
{
    if (PAGE_DOWN(pc) == readable_page && PAGE_DOWN(pc + n - 1) == readable_page) {
        memcpy(to, (const void *)pc, n);
        return n;
    }
    n -= safe_copy(to, (const void *)pc, n);
    if (n)
        readable_page = PAGE_DOWN(pc);
    return n;
}

int decode_insn(struct insn *in, uint64_t pc, uint64_t room)
{
    in->pc = pc;
    in->too_long = false;
    uint64_t n = fetch(in->bytes, pc, room < sizeof in->bytes ? room : sizeof in->bytes);
    ZyanStatus status = ZydisDecoderDecodeInstruction(&decoder, NULL, in->bytes, n, &in->z);
    if (ZYAN_SUCCESS(status) && is_bit_scan(in))
        status = ZydisDecoderDecodeInstruction(&decoder, NULL, in->bytes, n, &in->z);
    if (ZYAN_FAILED(status)) {
        if (status == ZYDIS_STATUS_NO_MORE_DATA && n < 15)
            return -1;
        in->kind = INSN_INVALID;
        in->too_long =
            status == ZYDIS_STATUS_INSTRUCTION_TOO_LONG || (status == ZYDIS_STATUS_NO_MORE_DATA && n >= 15);
        in->length = 1;
        in->rip_relative = false;
        return 0;
    }
    const ZydisDecodedInstruction *z = &in->z;
    in->length = z->length;
    in->rip_relative =
        (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) && z->raw.modrm.mod == 0 && z->raw.modrm.rm == 5;
    if (in->rip_relative)
        in->address = pc + in->length + (uint64_t)z->raw.disp.value;
    classify(in);
    return 0;
}

int decode_operands(const struct insn *in, ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT])
{
    ZydisDecodedInstruction z;
    return ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, in->bytes, in->length, &z, ops)) ? -1
                                                                                         : z.operand_count;
}

bool decode_transfers(const struct insn *in)
{
    if (in->kind != INSN_PERFORMED)
        return false;
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
        return true;
    default:
        return in->z.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
    }
}

/* True when the flags Zydis calls modified may in fact be left alone (a shift by 0, a rep that does nothing).
 */
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

/*
 * Flags that the instruction certainly writes. What the manuals leave undefined, processors often leave
 * alone, and then an earlier value shows through; only that logic operations clear AF holds for all of them.
 */
static uint32_t flags_written(const struct insn *in)
{
    const ZydisAccessedFlags *f = in->z.cpu_flags;
    if (!f || writes_maybe(in))
        return 0;
    uint32_t written = f->modified | f->set_0 | f->set_1;
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_OR:
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_TEST:
        return written | f->undefined;
    default:
        return written & ~f->undefined;
    }
}

enum { LIVE_DEPTH = 4, LIVE_INSNS = 24 };

/*
 * A block is forgotten when its page changes, not when another one does that was only looked at for its flags: code which
 * a program makes is looked at in the page `home` only.
 */
static bool stays(uint64_t pc, uint64_t home)
{
    const struct vma *v = pc - home < PAGE_SIZE ? NULL : space_find(&guest_space, pc);
    return !v || (v->file && !(v->prot & PROT_WRITE));
}

static bool flags_live(uint64_t pc, uint64_t home, uint32_t unknown, int depth)
{
    uint64_t room = decode_room(pc);
    struct insn in;
    for (int i = 0; i < LIVE_INSNS && unknown; i++) {
        if (!stays(pc, home) || !room || decode_insn(&in, pc, room) < 0)
            return true;
        if (in.kind == INSN_SYSCALL || in.kind == INSN_INVALID || in.kind == INSN_GENERAL ||
            in.kind == INSN_REFUSED || decode_transfers(&in))
            return true;
        const ZydisAccessedFlags *f = in.z.cpu_flags;
        if (f && (f->tested & unknown))
            return true;
        unknown &= ~flags_written(&in);
        pc += in.length;
        room -= in.length;
        switch (in.kind) {
        case INSN_JMP:
        case INSN_CALL:
            if (!depth)
                return unknown != 0;
            return unknown && flags_live(in.target, home, unknown, depth - 1);
        case INSN_JCC:
        case INSN_LOOP:
            if (!depth)
                return unknown != 0;
            return unknown && (flags_live(in.target, home, unknown, depth - 1) ||
                               flags_live(pc, home, unknown, depth - 1));
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
    decode_restart();
    return flags_live(pc, PAGE_DOWN(pc), FLAGS_ALL, LIVE_DEPTH);
}
