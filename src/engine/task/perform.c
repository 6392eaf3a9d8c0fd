/*
 * perform.c: see perform.h. Memory is reached as the instruction would reach it, and a fault there is the guest's, with the
 * kernel's words for it. What was stored before it stays stored, as on a processor.
 */
#include "engine/task/perform.h"

#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "engine/cpu/registers.h"
#include "engine/cpu/xsave.h"
#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/guest/engine.h"
#include "engine/task/dispatch.h"
#include "engine/translate/decode.h"
#include "engine/translate/instrument.h"
#include "engine/translate/translate.h"

enum { TRAP_GENERAL = 13, CODE_64 = 0x33, CODE_32 = 0x23, STACK = 0x2b };

/* ---- faults ---- */

static enum performed memory_fault(struct task *t)
{
    memcpy(t->fault.siginfo, t->copy_fault.siginfo, sizeof t->fault.siginfo);
    t->fault.error = t->copy_fault.error;
    t->fault.trap = t->copy_fault.trap;
    t->fault.cr2 = t->copy_fault.cr2;
    return PERFORMED_FAULT;
}

static enum performed general_fault(struct task *t, uint64_t error)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SI_KERNEL;
    memcpy(t->fault.siginfo, &info, sizeof t->fault.siginfo);
    t->fault.trap = TRAP_GENERAL;
    t->fault.error = error;
    t->fault.cr2 = 0;
    return PERFORMED_FAULT;
}

static enum performed done(struct task *t, const struct insn *in)
{
    t->regs.rip = in->pc + in->length;
    return PERFORMED;
}

/* ---- memory ---- */

static bool in_memory(const struct insn *in)
{
    return in->z.raw.modrm.mod != 3;
}

/* Address of the memory operand. */
static uint64_t address_of(const struct task *t, const struct insn *in)
{
    const uint64_t *g = t->regs.gpr;
    const ZydisDecodedInstruction *z = &in->z;
    enum { WITH_SIB = 4, NO_BASE = 5 };
    uint64_t address = (uint64_t)z->raw.disp.value;
    if (in->rip_relative) {
        address = in->address;
    } else if (z->raw.modrm.rm == WITH_SIB) {
        unsigned index = z->raw.sib.index | (unsigned)z->raw.rex.X << 3;
        if (z->raw.sib.base != NO_BASE || z->raw.modrm.mod)
            address += g[z->raw.sib.base | (unsigned)z->raw.rex.B << 3];
        if (index != GPR_RSP)
            address += g[index] << z->raw.sib.scale;
    } else {
        address += g[z->raw.modrm.rm | (unsigned)z->raw.rex.B << 3];
    }
    if (z->address_width == 32)
        address = (uint32_t)address;
    return z->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS ? address + t->regs.fs_base : address;
}

/*
 * Copies to or from the guest's memory, as far as that is there: the guest's stack grows for it. Returns the number of bytes
 * that were not copied; t->copy_fault says why.
 */
static uint64_t copy(struct task *t, void *to, const void *from, uint64_t n)
{
    uint64_t left;
    while ((left = safe_copy(to, from, n))) {
        siginfo_t info;
        memcpy(&info, t->copy_fault.siginfo, sizeof info);
        if (info.si_signo != SIGSEGV || info.si_code != SEGV_MAPERR ||
            !run_client->grow((uint64_t)(uintptr_t)info.si_addr))
            break;
        to = (uint8_t *)to + (n - left);
        from = (const uint8_t *)from + (n - left);
        n = left;
    }
    return left;
}

static bool load(struct task *t, void *to, uint64_t address, uint64_t n)
{
    return !copy(t, to, (const void *)address, n);
}

/* The chronicle learns of a store. The instruction is the last of its block. */
static void log_store(struct task *t, uint64_t address, uint64_t n)
{
    if (translate_options.instrument && n)
        instrument_sink.range(t, cache_block_by_number((uint32_t)t->exit_site)->ninsns - 1u, address, n);
}

static bool store(struct task *t, uint64_t address, const void *bytes, uint64_t n)
{
    uint64_t left = copy(t, (void *)address, bytes, n);
    log_store(t, address, n - left);
    return !left;
}

bool perform_checks(struct task *t, const struct insn *in)
{
    uint64_t value;
    uint16_t selector;
    switch (in->nondet) {
    case INSN_XGETBV:
        if (engine.cpu.old || cpu_xgetbv(&engine.cpu, (uint32_t)t->regs.gpr[GPR_RCX], &value))
            return true;
        general_fault(t, 0);
        return false;
    case INSN_LSL:
    case INSN_LAR:
    case INSN_VERR:
    case INSN_VERW:
        return perform_read_selector(t, in, &selector);
    default:
        return true;
    }
}

bool perform_read_selector(struct task *t, const struct insn *in, uint16_t *value)
{
    if (!in_memory(in)) {
        *value = (uint16_t)t->regs.gpr[in->z.raw.modrm.rm | (unsigned)in->z.raw.rex.B << 3];
        return true;
    }
    if (load(t, value, address_of(t, in), sizeof *value))
        return true;
    memory_fault(t);
    return false;
}

/* ---- the kernel's tables ---- */

static enum performed store_table(struct task *t, const struct insn *in, uint64_t base)
{
    uint8_t descriptor[10] = {0};
    memcpy(descriptor + 2, &base, sizeof base);
    uint64_t address = address_of(t, in);
    return store(t, address, descriptor, sizeof descriptor) ? done(t, in) : memory_fault(t);
}

/* A register keeps what lies above the operand's width, also where a processor would clear it: so does Linux. */
static enum performed store_word(struct task *t, const struct insn *in, uint64_t value)
{
    if (in_memory(in))
        return store(t, address_of(t, in), &value, 2) ? done(t, in) : memory_fault(t);
    memcpy(&t->regs.gpr[in->z.raw.modrm.rm | (unsigned)in->z.raw.rex.B << 3], &value,
           in->z.operand_width / 8u);
    return done(t, in);
}

/* ---- XSAVE and its kin ---- */

static struct xsave_state state_of(struct task *t)
{
    return (struct xsave_state){t->xsave, &engine.host.layout};
}

static bool is_wide(const struct insn *in)
{
    return in->z.raw.rex.W;
}

static uint64_t asked_for(const struct task *t)
{
    return (uint32_t)t->regs.gpr[GPR_RAX] | t->regs.gpr[GPR_RDX] << 32;
}

/*
 * Processors look at the end of an area before they store, and then at its beginning, so that nothing is stored of what faults.
 * An area lies in two pages at most.
 */
static bool writable(struct task *t, uint64_t address, uint64_t size)
{
    for (int i = 0; i < 2; i++) {
        uint64_t at = i ? address : address + size - 1;
        uint8_t byte = 0;
        load(t, &byte, at, 1); /* if it fails, so does the write, and says so */
        if (copy(t, (void *)at, &byte, 1))
            return false;
    }
    return true;
}

static bool load_backwards(struct task *t, uint8_t *to, uint64_t address, uint64_t size)
{
    return load(t, to + size - 1, address + size - 1, 1) && load(t, to, address, size);
}

static enum performed xsave(struct task *t, const struct insn *in, enum xsave_form form)
{
    static struct xsave_image image;
    uint64_t address = address_of(t, in), old = 0, asked = asked_for(t);
    if (address & (form == FORM_FXSAVE ? 15 : 63))
        return general_fault(t, 0);
    struct x87_pointers pointers = {0};
    if (form == FORM_FXSAVE || (asked & engine.cpu.xcr0 & 1)) {
        pointers = translate_x87_pointers(t);
        run_client->x87_before(t, in->pc, &pointers);
    }
    bool stored = writable(t, address, xsave_reach(&engine.cpu, form, asked));
    if (stored && form == FORM_STANDARD)
        stored = load(t, &old, address + XSAVE_LEGACY, sizeof old);
    struct xsave_state state = state_of(t);
    xsave_store(&engine.cpu, &state, form, asked, is_wide(in), old, &pointers, &image);
    for (unsigned i = 0; stored && i < image.count; i++)
        stored = store(t, address + image.parts[i].offset, image.bytes + image.parts[i].offset,
                       image.parts[i].size);
    run_client->x87_after(t, in->pc, &pointers);
    return stored ? done(t, in) : memory_fault(t);
}

static enum performed xrstor(struct task *t, const struct insn *in, bool fx)
{
    static struct xsave_image image;
    uint64_t address = address_of(t, in), asked = asked_for(t);
    if (address & (fx ? 15 : 63))
        return general_fault(t, 0);
    const uint64_t form_at = XSAVE_LEGACY + 8,
                   first = fx ? XSAVE_LEGACY - 1 : form_at; /* what is read first */
    if (!load(t, image.bytes + first, address + first, 1) ||
        !load(t, image.bytes, address, fx ? XSAVE_LEGACY : XSAVE_EXTENDED))
        return memory_fault(t);
    if (!xsave_plan_load(&engine.cpu, fx, asked, &image))
        return general_fault(t, 0);
    for (unsigned i = image.count; i-- > 0;)
        if (!load_backwards(t, image.bytes + image.parts[i].offset, address + image.parts[i].offset,
                            image.parts[i].size))
            return memory_fault(t);
    struct xsave_state state = state_of(t);
    xsave_load(&engine.cpu, &state, fx, asked, is_wide(in), &image);
    return done(t, in);
}

void perform_x87_store(struct task *t, const struct insn *in)
{
    bool narrow = in->z.operand_width == 16;
    uint64_t address = address_of(t, in);
    uint32_t words[4]; /* instruction, opcode and segment, operand, segment */
    uint16_t halves[4];
    void *at = narrow ? (void *)halves : words;
    uint64_t from = address + (narrow ? 6 : 12), size = narrow ? sizeof halves : sizeof words;
    if (guest_read(at, from, size))
        BUG("what an x87 instruction has stored at 0x%lx cannot be read", (unsigned long)from);
    struct x87_pointers p = narrow ? (struct x87_pointers){halves[0], halves[2], 0}
                                   : (struct x87_pointers){words[0], words[2], words[1] >> 16 & 0x7ff};
    if (narrow) /* of which half is lost; after fnsave, which resets it, all */
        p.instruction = translate_x87_pointers(t).instruction;
    else if (cache_contains(p.instruction))
        p.instruction = translate_pc(p.instruction);
    run_client->x87_before(t, in->pc, &p);
    memset(words, 0, sizeof words);
    words[0] = (uint32_t)p.instruction;
    words[1] = (uint32_t)p.opcode << 16;
    words[2] = (uint32_t)p.operand;
    halves[0] = (uint16_t)p.instruction;
    halves[1] = 0;
    halves[2] = (uint16_t)p.operand;
    halves[3] = 0;
    if (guest_write(from, at, size))
        BUG("what an x87 instruction has stored at 0x%lx cannot be mended", (unsigned long)from);
    log_store(t, address, from + size - address + (in->z.mnemonic == ZYDIS_MNEMONIC_FNSAVE ? 80 : 0));
    run_client->x87_after(t, in->pc, &p);
    t->regs.rip = in->pc + in->length;
}

/* ---- transfers ---- */

/* What iret and popf of a program may change; TF is refused where it strikes. */
#define USER_FLAGS 0x254dd5ull

static bool read_word(struct task *t, uint64_t address, unsigned size, uint64_t *value)
{
    *value = 0;
    if (load(t, value, address, size))
        return true;
    memory_fault(t);
    return false;
}

static bool canonical(uint64_t address)
{
    return (uint64_t)((int64_t)(address << 16) >> 16) == address;
}

/* The selector of a program's code or stack; others of its own cannot be. */
static bool good_selectors(struct task *t, uint64_t code, uint64_t stack, uint64_t *error)
{
    if ((code & 0xffff) == CODE_32)
        event_unsupported("instruction at %#lx: far control transfer to 32-bit code",
                          (unsigned long)t->regs.rip);
    *error = (code & 0xffff) != CODE_64 ? code & 0xfffc : stack & 0xfffc;
    return (code & 0xffff) == CODE_64 && (stack & 0xffff) == STACK;
}

static enum performed iret(struct task *t, const struct insn *in)
{
    unsigned size = in->z.operand_width / 8u;
    uint64_t words[5], error, *g = t->regs.gpr; /* rip, cs, rflags, rsp, ss */
    for (unsigned i = 0; i < 5; i++)
        if (!read_word(t, g[GPR_RSP] + (uint64_t)i * size, size, &words[i]))
            return PERFORMED_FAULT;
    if (!good_selectors(t, words[1], words[4], &error))
        return general_fault(t, error);
    if (!canonical(words[0]))
        return general_fault(t, 0);
    uint64_t flags = size == 2 ? USER_FLAGS & 0xffff : USER_FLAGS;
    t->regs.rflags = (t->regs.rflags & ~flags) | (words[2] & flags);
    t->regs.rip = words[0];
    g[GPR_RSP] = words[3];
    return PERFORMED_JUMP;
}

static enum performed far_return(struct task *t, const struct insn *in)
{
    unsigned size = in->z.operand_width / 8u;
    uint64_t rsp = t->regs.gpr[GPR_RSP], rip, code, error;
    if (!read_word(t, rsp, size, &rip) || !read_word(t, rsp + size, size, &code))
        return PERFORMED_FAULT;
    if (!good_selectors(t, code, STACK, &error))
        return general_fault(t, error);
    if (!canonical(rip))
        return general_fault(t, 0);
    t->regs.rip = rip;
    t->regs.gpr[GPR_RSP] = rsp + 2ull * size + (in->z.raw.imm[0].size ? in->z.raw.imm[0].value.u : 0);
    return PERFORMED_JUMP;
}

/* jmp and call through a pointer in memory: offset of the operand's width, selector */
static enum performed far_pointer(struct task *t, const struct insn *in)
{
    unsigned size = in->z.operand_width / 8u;
    uint64_t address = address_of(t, in), rip, code, error;
    if (!read_word(t, address, size, &rip) || !read_word(t, address + size, 2, &code))
        return PERFORMED_FAULT;
    if (!good_selectors(t, code, STACK, &error))
        return general_fault(t, error);
    if (!canonical(rip))
        return general_fault(t, 0);
    if (in->z.mnemonic == ZYDIS_MNEMONIC_CALL) {
        uint64_t frame[2] = {in->pc + in->length, CODE_64}, rsp = t->regs.gpr[GPR_RSP];
        for (unsigned i = 2; i-- > 0;)
            if (!store(t, rsp -= size, &frame[i], size))
                return memory_fault(t);
        t->regs.gpr[GPR_RSP] = rsp;
    }
    t->regs.rip = rip;
    return PERFORMED_JUMP;
}

enum performed perform_insn(struct task *t, const struct insn *in)
{
    switch (in->z.mnemonic) {
    case ZYDIS_MNEMONIC_XSAVE:
    case ZYDIS_MNEMONIC_XSAVE64:
    case ZYDIS_MNEMONIC_XSAVEOPT:
    case ZYDIS_MNEMONIC_XSAVEOPT64:
        return xsave(t, in, FORM_STANDARD);
    case ZYDIS_MNEMONIC_XSAVEC:
    case ZYDIS_MNEMONIC_XSAVEC64:
        return xsave(t, in, FORM_COMPACT);
    case ZYDIS_MNEMONIC_FXSAVE:
    case ZYDIS_MNEMONIC_FXSAVE64:
        return xsave(t, in, FORM_FXSAVE);
    case ZYDIS_MNEMONIC_XRSTOR:
    case ZYDIS_MNEMONIC_XRSTOR64:
        return xrstor(t, in, false);
    case ZYDIS_MNEMONIC_FXRSTOR:
    case ZYDIS_MNEMONIC_FXRSTOR64:
        return xrstor(t, in, true);
    case ZYDIS_MNEMONIC_SGDT:
        return store_table(t, in, CPU_GDT_BASE);
    case ZYDIS_MNEMONIC_SIDT:
        return store_table(t, in, CPU_IDT_BASE);
    case ZYDIS_MNEMONIC_SLDT:
        return store_word(t, in, 0);
    case ZYDIS_MNEMONIC_STR:
        return store_word(t, in, CPU_TASK);
    case ZYDIS_MNEMONIC_SMSW:
        return store_word(t, in, CPU_CR0);
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
        return iret(t, in);
    case ZYDIS_MNEMONIC_RET:
        return far_return(t, in);
    case ZYDIS_MNEMONIC_JMP:
    case ZYDIS_MNEMONIC_CALL:
        return far_pointer(t, in);
    default:
        BUG("the instruction at 0x%lx cannot be performed", (unsigned long)in->pc);
    }
}
