/*
 * instrument.c: see instrument.h.
 *
 * All added code keeps the flags: it adds with lea, tests with jrcxz, and keeps rax and rcx in
 * TASK_LOG_SPILL. The log buffer lies at a constant address, so its limit is a constant, too.
 *
 * A store is logged after the instruction: its address is computed before (TASK_EA; the operand's registers
 * may be overwritten by it), its bytes are read back after. Stores whose extent only running shows (rep
 * strings), and odd sizes, are logged by the host (exit_log_store).
 */
#include "engine/translate/instrument.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "chronicle/log.h"
#include "engine/cpu/registers.h"
#include "engine/cpu/xsave.h"
#include "engine/guest/engine.h"
#include "engine/guest/task.h"
#include "engine/translate/decode.h"
#include "engine/translate/translate.h"

enum { BLOCK_WORDS_MAX = 1 + BLOCK_INSNS_MAX * 10 };

struct instrument_sink instrument_sink;

static uint64_t next_number; /* of blocks in the chronicle */

void instrument_begin(struct task *t)
{
    uint64_t size = INSTRUMENT_LOG_HIGH - INSTRUMENT_LOG_LOW;
    void *p = mmap((void *)INSTRUMENT_LOG_LOW, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != (void *)INSTRUMENT_LOG_LOW)
        die("cannot reserve memory for the chronicle's log");
    t->log_pointer = INSTRUMENT_LOG_LOW;
    t->log_flags = (uint64_t)LOG_BLOCK << LOG_KIND_SHIFT;
    next_number = 0;
}

/* ---- pieces of code ---- */

static void save_two(struct code *c)
{
    emit_store_slot(c, TASK_LOG_SPILL, GPR_RAX);
    emit_store_slot(c, TASK_LOG_SPILL + 8, GPR_RCX);
}

static void restore_two(struct code *c)
{
    emit_load_slot(c, GPR_RAX, TASK_LOG_SPILL);
    emit_load_slot(c, GPR_RCX, TASK_LOG_SPILL + 8);
}

/* mov [rcx + disp8], rax */
static void emit_put(struct code *c, int disp)
{
    emit_bytes(c, "\x48\x89\x41", 3);
    emit8(c, (unsigned)disp & 0xff);
}

/* lea dst, [base + index*scale + disp] of 64-bit registers; base or index may be -1 */
static void emit_lea(struct code *c, unsigned dst, int base, int index, unsigned scale, int32_t disp,
                     bool narrow)
{
    unsigned rex = (narrow ? 0x40 : 0x48) | (dst >> 3) << 2;
    unsigned b = base < 0 ? 5 : (unsigned)base, i = index < 0 ? 4 : (unsigned)index;
    rex |= (i >> 3) << 1 | (base < 0 ? 0 : b >> 3);
    emit8(c, rex);
    emit8(c, 0x8d);
    emit8(c, (base < 0 ? 0x00 : 0x80) | (dst & 7) << 3 | 4);
    unsigned log2 = scale == 8 ? 3 : scale == 4 ? 2 : scale == 2 ? 1 : 0;
    emit8(c, log2 << 6 | (i & 7) << 3 | (b & 7));
    emit32(c, (uint32_t)disp);
}

/* ---- blocks ---- */

void instrument_block(struct code *c, struct block *b)
{
    save_two(c);
    emit_load_slot(c, GPR_RCX, TASK_LOG_POINTER);
    emit_lea_add(c, GPR_RCX, -(int32_t)(INSTRUMENT_LOG_HIGH - 8 * BLOCK_WORDS_MAX));
    emit_store_slot(c, TASK_EA, GPR_RCX); /* upper half: 0 when the rest might not suffice, else -1 */
    emit8(c, 0x65);
    emit8(c, 0x8b); /* mov ecx, gs:[TASK_EA + 4] */
    emit_gs_modrm(c, GPR_RCX, TASK_EA + 4);
    emit8(c, 0xe3);
    emit8(c, 2);
    emit8(c, 0xeb);
    uint8_t *over = c->p;
    emit8(c, 0);
    restore_two(c);
    emit_set_slot(c, TASK_EXIT_SITE, b->number);
    emit_jmp_slot(c, TASK_STUB_LOG_FULL);
    *over = (uint8_t)(c->p - over - 1);
    emit_load_slot(c, GPR_RCX, TASK_LOG_POINTER);
    emit_load_slot(c, GPR_RAX, TASK_LOG_FLAGS);
    emit_lea_add(c, GPR_RAX, (int32_t)next_number);
    emit_put(c, 0);
    emit8(c, 0x65); /* mov dword gs:[log_flags + 4], block without tick */
    emit8(c, 0xc7);
    emit_gs_modrm(c, 0, TASK_LOG_FLAGS + 4);
    emit32(c, (uint32_t)LOG_BLOCK << 24);
    emit_lea_add(c, GPR_RCX, 8);
    emit_store_slot(c, TASK_LOG_POINTER, GPR_RCX);
    restore_two(c);
}

void instrument_counted(struct code *c)
{
    emit8(c, 0x65); /* mov dword gs:[log_flags + 4], block with tick */
    emit8(c, 0xc7);
    emit_gs_modrm(c, 0, TASK_LOG_FLAGS + 4);
    emit32(c, (uint32_t)((((uint64_t)LOG_BLOCK << LOG_KIND_SHIFT) | LOG_BLOCK_TICK) >> 32));
}

void instrument_describe(const struct block *b)
{
    uint16_t lengths[BLOCK_INSNS_MAX];
    for (uint32_t i = 0; i < b->ninsns; i++)
        lengths[i] = b->places[i].length;
    instrument_sink.describe(&(struct chron_block){next_number++, b->pc, b->ninsns, lengths});
}

/* ---- stores ---- */

static int register_number(ZydisRegister r)
{
    if (r == ZYDIS_REGISTER_NONE)
        return -1;
    return ZydisRegisterGetId(r);
}

/* TASK_EA := address of the operand */
static void emit_address(struct code *c, const struct insn *in, const ZydisDecodedOperand *o)
{
    if (in->rip_relative && o->mem.base == ZYDIS_REGISTER_RIP) {
        emit_set_slot(c, TASK_EA, in->address);
        return;
    }
    bool narrow =
        ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64,
                              o->mem.base != ZYDIS_REGISTER_NONE ? o->mem.base : o->mem.index) == 32;
    save_two(c);
    int64_t disp = o->mem.disp.has_displacement ? o->mem.disp.value : 0;
    if (in->z.mnemonic == ZYDIS_MNEMONIC_POP && o->mem.base == ZYDIS_REGISTER_RSP)
        disp += o->size / 8; /* counted from rsp after the pop */
    if (o->mem.base == ZYDIS_REGISTER_NONE && o->mem.index == ZYDIS_REGISTER_NONE)
        emit_mov_imm(c, GPR_RAX, (uint64_t)disp);
    else
        emit_lea(c, GPR_RAX, register_number(o->mem.base), register_number(o->mem.index), o->mem.scale,
                 (int32_t)disp, narrow);
    if (o->mem.segment == ZYDIS_REGISTER_FS) {
        emit_bytes(c, "\xf3\x48\x0f\xae\xc1", 5); /* rdfsbase rcx */
        emit_bytes(c, "\x48\x8d\x04\x08", 4);     /* lea rax, [rax+rcx] */
    }
    emit_store_slot(c, TASK_EA, GPR_RAX);
    restore_two(c);
}

/* bts, btr, btc with a register as bit offset: the byte that holds the bit. */
static void emit_bit_address(struct code *c, const struct insn *in, const ZydisDecodedOperand *o,
                             const ZydisDecodedOperand *bit)
{
    emit_address(c, in, o);
    save_two(c);
    int r = register_number(bit->reg.value);
    if (bit->size == 64) { /* mov rcx, r */
        emit8(c, 0x48 | (unsigned)(r >> 3) << 2);
        emit8(c, 0x89);
        emit8(c, 0xc0 | (unsigned)(r & 7) << 3 | GPR_RCX);
    } else { /* movsxd rcx, r32; movsx rcx, r16 */
        emit8(c, 0x48 | (unsigned)(r >> 3));
        if (bit->size == 16)
            emit8(c, 0x0f);
        emit8(c, bit->size == 16 ? 0xbf : 0x63);
        emit8(c, 0xc0 | GPR_RCX << 3 | (unsigned)(r & 7));
    }
    emit_bytes(c, "\x9f\x0f\x90\xc0", 4); /* lahf; seto al */
    emit_bytes(c, "\x48\xc1\xf9\x03", 4); /* sar rcx, 3 */
    emit_bytes(c, "\x04\x7f\x9e", 3);     /* add al, 127; sahf */
    emit_load_slot(c, GPR_RAX, TASK_EA);
    emit_bytes(c, "\x48\x8d\x04\x08", 4); /* lea rax, [rax+rcx] */
    emit_store_slot(c, TASK_EA, GPR_RAX);
    restore_two(c);
}

static const ZydisDecodedOperand *written_memory(const ZydisDecodedOperand *ops, int count)
{
    for (int i = 0; i < count; i++)
        if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[i].mem.type == ZYDIS_MEMOP_TYPE_MEM &&
            (ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            return &ops[i];
    return NULL;
}

static bool is_push(const struct insn *in)
{
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_PUSH:
    case ZYDIS_MNEMONIC_PUSHF:
    case ZYDIS_MNEMONIC_PUSHFQ:
    case ZYDIS_MNEMONIC_CALL:
        return true;
    default:
        return false;
    }
}

static bool is_string(const struct insn *in)
{
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSQ:
        return true;
    case ZYDIS_MNEMONIC_MOVSD: /* the string one, not the SSE one */
        return in->z.opcode == 0xa5 && in->z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT;
    default:
        return false;
    }
}

/* Bytes of the elements of a masked store; 0 for other instructions. */
static uint32_t masked_element(const struct insn *in)
{
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
        return 4;
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ:
        return 8;
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
        return 1;
    default:
        return 0;
    }
}

static bool has_opmask(const struct insn *in)
{
    return in->z.avx.mask.reg > ZYDIS_REGISTER_K0 && in->z.avx.mask.reg <= ZYDIS_REGISTER_K7;
}

static bool is_rep(const struct insn *in)
{
    return in->z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
}

static bool is_bit_store(const struct insn *in)
{
    return in->z.mnemonic == ZYDIS_MNEMONIC_BTS || in->z.mnemonic == ZYDIS_MNEMONIC_BTR ||
           in->z.mnemonic == ZYDIS_MNEMONIC_BTC;
}

bool instrument_before(struct code *c, const struct insn *in, struct write_site *site)
{
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
    const ZydisDecodedOperand *o;
    if (in->kind != INSN_PLAIN && in->kind != INSN_CALL && in->kind != INSN_CALL_IND)
        return false;
    if (in->z.meta.category == ZYDIS_CATEGORY_SCATTER)
        die("the program scatters a vector's elements over memory at 0x%lx, and a chronicle cannot tell "
            "where to",
            (unsigned long)in->pc);
    if (!(o = written_memory(ops, decode_operands(in, ops))))
        return false;
    *site = (struct write_site){.size = o->size / 8u};
    if (in->z.mnemonic == ZYDIS_MNEMONIC_ENTER) {
        site->kind = SITE_BELOW;
        site->size = 8 * (1 + ((uint32_t)in->z.raw.imm[1].value.u & 31));
        emit_store_slot(c, TASK_EA, GPR_RSP);
    } else if (is_push(in)) {
        site->kind = SITE_PUSH;
        if (in->kind != INSN_PLAIN)
            site->size = 8;
    } else if (is_string(in)) {
        site->kind = is_rep(in) ? SITE_REP : SITE_PLAIN;
        emit_store_slot(c, TASK_EA, GPR_RDI);
    } else if (masked_element(in) || has_opmask(in)) {
        site->kind = SITE_MASK;
        site->pc = in->pc;
        emit_address(c, in, o);
    } else if (is_bit_store(in) && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
        site->size = 1;
        emit_bit_address(c, in, o, &ops[1]);
    } else {
        emit_address(c, in, o);
    }
    return true;
}

/* rcx: log pointer, TASK_EA: address. Copies `size` bytes behind the two head words. */
static void emit_copy_value(struct code *c, uint32_t size)
{
    for (uint32_t done = 0; done < size; done += 8) {
        emit_load_slot(c, GPR_RAX, TASK_EA);
        switch (size - done) {
        case 1:
            emit_bytes(c, "\x0f\xb6\x00", 3); /* movzx eax, byte [rax] */
            break;
        case 2:
            emit_bytes(c, "\x0f\xb7\x00", 3); /* movzx eax, word [rax] */
            break;
        case 4:
            emit_bytes(c, "\x8b\x00", 2); /* mov eax, [rax] */
            break;
        default:
            emit_bytes(c, "\x48\x8b\x40", 3); /* mov rax, [rax + done] */
            emit8(c, done);
        }
        emit_put(c, (int)(16 + done));
    }
}

static void emit_log_by_host(struct code *c, const struct write_site *site, uint32_t index)
{
    emit_set_slot(c, TASK_EXIT_SITE, (uint64_t)site->kind << 24 | index);
    emit_set_slot(c, TASK_EA + 8, site->kind == SITE_MASK ? site->pc : site->size);
    /* the code address after this: set_slot of a small constant is 13 bytes, the jump 8 */
    emit_set_slot(c, TASK_EXIT_PC, (uint64_t)(uintptr_t)c->p + 13 + 8);
    emit_jmp_slot(c, TASK_STUB_LOG_STORE);
}

void instrument_after(struct code *c, const struct write_site *site, uint32_t index)
{
    uint32_t size = site->size;
    if (site->kind == SITE_PUSH)
        emit_store_slot(c, TASK_EA, GPR_RSP);
    bool simple = size == 1 || size == 2 || size == 4 || (size && size <= 64 && size % 8 == 0);
    if (site->kind == SITE_REP || site->kind == SITE_MASK || site->kind == SITE_BELOW || !simple) {
        emit_log_by_host(c, site, index);
        return;
    }
    save_two(c);
    emit_load_slot(c, GPR_RCX, TASK_LOG_POINTER);
    emit_mov_imm(c, GPR_RAX, (uint64_t)LOG_WRITE << LOG_KIND_SHIFT | (uint64_t)size << 40 | index);
    emit_put(c, 0);
    emit_load_slot(c, GPR_RAX, TASK_EA);
    emit_put(c, 8);
    emit_copy_value(c, size);
    emit_lea_add(c, GPR_RCX, (int32_t)(16 + ((size + 7) & ~7u)));
    emit_store_slot(c, TASK_LOG_POINTER, GPR_RCX);
    restore_two(c);
}

/* ---- the host's side ---- */

void exit_log_full(struct task *t)
{
    instrument_sink.flush(t);
    t->resume = (uint64_t)(uintptr_t)cache_block_by_number((uint32_t)t->exit_site)->entries[ENTRY_PLAIN];
}

/* A rep store of elements of `size` bytes went from `address` to rdi. */
static void log_rep(struct task *t, uint32_t index, uint64_t address, uint64_t size)
{
    uint64_t end = t->regs.gpr[GPR_RDI];
    if (end < address) /* downwards: rdi stands one element below the lowest one stored */
        instrument_sink.range(t, index, end + size, address - end);
    else
        instrument_sink.range(t, index, address, end - address);
}

/* The 32 bytes of a vector register in the saved state; parts in their initial state are zero. */
static void read_vector(const struct task *t, unsigned number, uint8_t value[32])
{
    const struct xsave_state state = {(uint8_t *)(uintptr_t)t->xsave, &engine.host.layout};
    uint8_t low[256], high[256];
    xsave_component(&state, 1, low);
    xsave_component(&state, 2, high);
    memcpy(value, low + 16ul * number, 16);
    memcpy(value + 16, high + 16ul * number, 16);
}

/* One bit for each element that the vector mask of an AVX store selects. */
static uint64_t vector_mask(const struct task *t, const ZydisDecodedOperand *mask, uint32_t element)
{
    uint8_t bytes[32];
    uint64_t bits = 0;
    read_vector(t, (unsigned)ZydisRegisterGetId(mask->reg.value), bytes);
    for (uint32_t i = 0; i < mask->size / 8u / element; i++)
        bits |= (uint64_t)(bytes[(i + 1) * element - 1] >> 7) << i;
    return bits;
}

/* The same of an AVX-512 store. A compressing one stores the selected elements one behind the other. */
static uint64_t opmask(const struct task *t, const struct insn *in, uint32_t count)
{
    const struct xsave_state state = {(uint8_t *)(uintptr_t)t->xsave, &engine.host.layout};
    uint64_t k[8], all = count < 64 ? (1ull << count) - 1 : ~0ull;
    xsave_component(&state, 5, k);
    uint64_t bits = k[ZydisRegisterGetId(in->z.avx.mask.reg)] & all;
    if (in->z.meta.category != ZYDIS_CATEGORY_COMPRESS)
        return bits;
    int n = __builtin_popcountll(bits);
    return n < 64 ? (1ull << n) - 1 : ~0ull;
}

/* Logs each run of selected elements. */
static void log_masked(struct task *t, uint32_t index, uint64_t address, uint64_t pc)
{
    struct insn in;
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
    int n = decode_insn(&in, pc, decode_room(pc)) ? -1 : decode_operands(&in, ops);
    const ZydisDecodedOperand *m = written_memory(ops, n);
    if (!m)
        BUG("the masked store at 0x%lx vanished", (unsigned long)pc);
    uint32_t element = masked_element(&in), total = ops[1].size / 8u;
    uint64_t bits;
    if (element) {
        bits = vector_mask(t, &ops[1], element);
    } else {
        element = m->element_size / 8u;
        total = m->size / 8u;
        bits = opmask(t, &in, total / element);
    }
    for (uint32_t from = 0, to; from < total; from = to + element) {
        for (to = from; to < total && (bits >> to / element & 1);)
            to += element;
        if (to > from)
            instrument_sink.range(t, index, address + from, to - from);
    }
}

void instrument_fault(struct task *t)
{
    struct insn in;
    uint64_t pc = t->regs.rip;
    if (decode_insn(&in, pc, decode_room(pc)) || in.kind != INSN_PLAIN || !is_string(&in) || !is_rep(&in))
        return;
    log_rep(t, translate_index(t->fault.host_pc), t->effective[0],
            in.z.opcode & 1 ? in.z.operand_width / 8u : 1);
}

void exit_log_store(struct task *t)
{
    uint32_t index = (uint32_t)t->exit_site & 0xffffff;
    switch (t->exit_site >> 24) {
    case SITE_REP:
        log_rep(t, index, t->effective[0], t->effective[1]);
        break;
    case SITE_BELOW:
        instrument_sink.range(t, index, t->effective[0] - t->effective[1], t->effective[1]);
        break;
    case SITE_MASK:
        log_masked(t, index, t->effective[0], t->effective[1]);
        break;
    default:
        instrument_sink.range(t, index, t->effective[0], t->effective[1]);
    }
    t->resume = t->exit_pc;
}
