/*
 * translate.c: translates one basic block.
 *
 * Most instructions are copied. Rewritten are: control transfers; RIP-relative operands (the displacement,
 * or, out of its reach, through a scratch register); system calls and nondeterministic instructions (they
 * leave the cache with exit_pc set to the next instruction).
 *
 * A transfer counts a tick when it is indirect or its target is not above the address of the transferring
 * instruction. That is part of the trace format.
 *
 * An indirect transfer leaves rcx in TASK_SPILL_RCX and the target in TASK_TARGET and jumps through the
 * indirect table; the entry it reaches restores rcx. Its operand is read before anything is changed, so a
 * fault there is precise.
 */
#include "engine/translate/translate.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/guest/engine.h"
#include "engine/guest/task.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"
#include "engine/translate/decode.h"
#include "engine/translate/instrument.h"
#include "engine/translate/share.h"

struct translate_options translate_options;

/* Code at pc may change without our notice, or so often that it is not worth noticing. */
static bool unwatched(uint64_t pc)
{
    if (watch_busy(PAGE_DOWN(pc)))
        return true;
    const struct vma *v = guest_space.shares_with_others ? space_find(&guest_space, pc) : NULL;
    return v && v->shared;
}

/* Instructions that a block at pc may have: one in the range of --alone, which is how a bad translation is
 * cornered. */
static uint32_t translate_limit(uint64_t pc)
{
    if (translate_options.instrument) { /* code that may change under us is logged by the instruction */
        const struct vma *v = space_find(&guest_space, pc);
        if (v && (v->prot & PROT_WRITE))
            return 1;
    } else if (unwatched(pc))
        return 1;
    return pc >= translate_options.alone_low && pc < translate_options.alone_high ? 1 : BLOCK_INSNS_MAX;
}

struct xlate { /* one translation under way */
    struct cache *cache;
    struct cache_where where; /* of the first block: all of a run are there */
    struct code c;
    struct block *b;
    struct insn in;
    struct insn_place places[BLOCK_INSNS_MAX];
    uint32_t n;
    bool ended;
    uint64_t fall; /* the block ends by going on at this pc, and no jump was emitted for that; 0: no */
    const struct write_site *site; /* instrumented: the store of `in`, not yet logged */
};

void translate_init(void)
{
    watch_hooks = (struct watch_hooks){cache_invalidate_range, share_mapped, cache_holds};
    decode_init();
    cache_init(!translate_options.single_block && !translate_options.alone_high);
}

/* ---- pieces ---- */

static void emit_link(struct xlate *x, uint64_t target, enum entry entry)
{
    struct link *l = cache_new_link(x->cache, x->b, LINK_DIRECT, target, entry);
    l->site = x->c.p;
    emit_rel32(&x->c, l->stub);
    struct block *to = translate_options.single_block ? NULL : cache_find(target);
    if (to && to->entries[entry])
        cache_link(l, to);
}

static enum entry entry_for(uint64_t source, uint64_t target)
{
    return target > source ? ENTRY_PLAIN : ENTRY_COUNTED;
}

static void emit_jmp_link(struct xlate *x, uint64_t target, enum entry entry)
{
    cache_align_patch(&x->c, 1);
    emit8(&x->c, 0xe9);
    emit_link(x, target, entry);
}

/* The block goes on at pc: right behind it, or by a jump. */
static void emit_fall(struct xlate *x, uint64_t pc)
{
    if (x->cache->shared)
        x->fall = pc;
    else
        emit_jmp_link(x, pc, ENTRY_PLAIN);
}

static void emit_indirect_jump(struct code *c)
{
    emit_bytes(c, "\x0f\xb7\xc9", 3); /* movzx ecx, cx */
    emit_bytes(c, "\xff\x24\xcd", 3); /* jmp [rcx*8 + table] */
    emit32(c, (uint32_t)INDIRECT_TABLE);
}

static bool reaches(const struct code *c, uint64_t address)
{
    int64_t distance = (int64_t)(address - (uint64_t)(uintptr_t)c->p);
    return distance > INT32_MIN + 64 && distance < INT32_MAX - 64;
}

/* Copies the instruction; its RIP-relative displacement is moved along. */
static void emit_copy(struct code *c, const struct insn *in)
{
    uint8_t *start = c->p;
    emit_bytes(c, in->bytes, in->length);
    if (in->rip_relative)
        emit_patch_rel32(start + in->z.raw.disp.offset,
                         (const uint8_t *)in->address - (in->length - in->z.raw.disp.offset - 4));
}

/*
 * A register that the instruction neither reads nor writes and that needs no REX.B as a base with disp32.
 * With a RIP-relative operand, rsi, rdi and rbp are never implicit ones. VEX.vvvv may be stored inverted;
 * both readings are taken as used.
 */
static unsigned scratch_register(const struct insn *in)
{
    static const unsigned candidates[] = {GPR_RSI, GPR_RDI, GPR_RBP, GPR_RBX};
    const ZydisDecodedInstruction *z = &in->z;
    unsigned v = GPR_RAX;
    if (z->attributes & ZYDIS_ATTRIB_HAS_VEX)
        v = z->raw.vex.vvvv & 15u;
    else if (z->attributes & ZYDIS_ATTRIB_HAS_EVEX)
        v = z->raw.evex.vvvv & 15u;
    for (unsigned i = 0;; i++) {
        unsigned r = candidates[i];
        if (r != (z->raw.modrm.reg & 7u) && r != v && r != (v ^ 15))
            return r;
    }
}

/* Clears the bit that would extend the base register. Both REX.B and the inverted VEX/EVEX.B are meant. */
static void clear_base_extension(uint8_t *bytes, const struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    if (z->attributes & ZYDIS_ATTRIB_HAS_REX)
        bytes[z->raw.rex.offset] &= 0xfe;
    else if ((z->attributes & ZYDIS_ATTRIB_HAS_VEX) && z->raw.vex.size == 3)
        bytes[z->raw.vex.offset + 1] |= 0x20;
    else if (z->attributes & ZYDIS_ATTRIB_HAS_EVEX)
        bytes[z->raw.evex.offset + 1] |= 0x20;
}

/* mod=00 rm=101 becomes mod=10 rm=scratch: the length stays, the displacement becomes 0. */
static uint8_t emit_through_scratch(struct code *c, const struct insn *in)
{
    unsigned scratch = scratch_register(in);
    emit_store_slot(c, TASK_SPILL_RAX, scratch);
    emit_mov_imm(c, scratch, in->address);
    uint8_t *at = c->p;
    emit_bytes(c, in->bytes, in->length);
    at[in->z.raw.modrm.offset] = (uint8_t)((at[in->z.raw.modrm.offset] & 0x38) | 0x80 | scratch);
    memset(at + in->z.raw.disp.offset, 0, 4);
    clear_base_extension(at, in);
    emit_load_slot(c, scratch, TASK_SPILL_RAX);
    return (uint8_t)(SPILL_IN_RAX | scratch);
}

static uint8_t emit_plain(struct code *c, const struct insn *in)
{
    if (in->rip_relative && !reaches(c, in->address))
        return emit_through_scratch(c, in);
    emit_copy(c, in);
    return 0;
}

/* mov rcx, <operand of the indirect jmp or call>; rcx is already spilled and still holds its value */
static void emit_load_target(struct code *c, const struct insn *in)
{
    const ZydisDecodedInstruction *z = &in->z;
    if (in->rip_relative && !reaches(c, in->address)) {
        emit_mov_imm(c, GPR_RCX, in->address);
        emit_bytes(c, "\x48\x8b\x09", 3);
        return;
    }
    for (unsigned i = 0; i < z->raw.prefix_count; i++) { /* segment and address size stay */
        uint8_t prefix = z->raw.prefixes[i].value;
        if (prefix == 0x64 || prefix == 0x67)
            emit8(c, prefix);
    }
    emit8(c, 0x48 | z->raw.rex.X << 1 | z->raw.rex.B);
    emit8(c, 0x8b);
    uint8_t *modrm = c->p;
    emit_bytes(c, in->bytes + z->raw.modrm.offset, in->length - z->raw.modrm.offset);
    *modrm = (uint8_t)((*modrm & 0xc7) | GPR_RCX << 3);
    if (in->rip_relative)
        emit_patch_rel32(c->p - 4, (const uint8_t *)in->address);
}

/* ---- control transfers ---- */

static void emit_ret(struct xlate *x)
{
    struct code *c = &x->c;
    emit_store_slot(c, TASK_SPILL_RCX, GPR_RCX);
    emit8(c, 0x59); /* pop rcx */
    if (x->in.pop) {
        emit_bytes(c, "\x48\x8d\xa4\x24", 4); /* lea rsp, [rsp + pop] */
        emit32(c, x->in.pop);
    }
    emit_store_slot(c, TASK_TARGET, GPR_RCX);
    emit_indirect_jump(c);
}

/* A table jump (jmp [table + reg*8], jmp reg) has many targets; a call or a jump through a fixed cell mostly
 * one. */
static bool wants_inline_cache(const struct insn *in)
{
    return in->kind == INSN_CALL_IND || in->rip_relative;
}

static void emit_inline_cache(struct xlate *x)
{
    struct code *c = &x->c;
    struct link *l = cache_new_link(x->cache, x->b, LINK_INLINE, 0, ENTRY_COUNTED);
    cache_align_patch(c, 3);
    emit_lea_add(c, GPR_RCX, 0);
    l->guess = c->p - 4;
    emit8(c, 0xe3); /* jrcxz hit */
    uint8_t *hit = c->p;
    emit8(c, 0);
    cache_align_patch(c, 1);
    l->gate = c->p;
    emit_jmp(c, l->stub);
    emit_load_slot(c, GPR_RCX, TASK_TARGET);
    emit_indirect_jump(c);
    *hit = (uint8_t)(c->p - hit - 1);
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
    cache_align_patch(c, 1);
    emit8(c, 0xe9);
    l->site = c->p;
    emit_rel32(c, l->stub);
}

/* Logs the store that the current instruction has just made. */
static void finish_write(struct xlate *x)
{
    if (x->site)
        instrument_after(&x->c, x->site, x->n);
    x->site = NULL;
}

static void emit_indirect(struct xlate *x)
{
    struct code *c = &x->c;
    emit_store_slot(c, TASK_SPILL_RCX, GPR_RCX);
    emit_load_target(c, &x->in);
    if (x->in.kind == INSN_CALL_IND) {
        emit_push_pc(c, x->in.pc + x->in.length);
        finish_write(x);
    }
    emit_store_slot(c, TASK_TARGET, GPR_RCX);
    if (wants_inline_cache(&x->in) && !translate_options.single_block)
        emit_inline_cache(x);
    else
        emit_indirect_jump(c);
}

static void emit_loop(struct xlate *x)
{
    struct code *c = &x->c;
    uint64_t next = x->in.pc + x->in.length;
    emit_bytes(c, x->in.bytes, x->in.length - 1u); /* prefix and opcode; then rel8 over the first jump */
    uint8_t *taken = c->p;
    emit8(c, 0);
    emit_jmp_link(x, next, ENTRY_PLAIN);
    *taken = (uint8_t)(c->p - taken - 1);
    emit_jmp_link(x, x->in.target, entry_for(x->in.pc, x->in.target));
}

static void emit_leave(struct xlate *x, uint32_t slot, uint64_t exit_pc, uint64_t site)
{
    emit_set_slot(&x->c, TASK_EXIT_PC, exit_pc);
    emit_set_slot(&x->c, TASK_EXIT_SITE, site);
    emit_jmp_slot(&x->c, slot);
}

/* Emits the instruction and, if it ends the block, what follows. Returns what it holds in slots (insn_place).
 */
static uint8_t emit_insn(struct xlate *x)
{
    const struct insn *in = &x->in;
    uint64_t next = in->pc + in->length;
    x->ended = in->kind != INSN_PLAIN;
    switch (in->kind) {
    case INSN_PLAIN:
        return emit_plain(&x->c, in);
    case INSN_JMP:
        emit_jmp_link(x, in->target, entry_for(in->pc, in->target));
        return 0;
    case INSN_JCC:
        cache_align_patch(&x->c, 2);
        emit8(&x->c, 0x0f);
        emit8(&x->c, 0x80 | (in->z.opcode & 0xf));
        emit_link(x, in->target, entry_for(in->pc, in->target));
        emit_fall(x, next);
        return 0;
    case INSN_LOOP:
        emit_loop(x);
        return 0;
    case INSN_CALL:
        emit_push_pc(&x->c, next);
        finish_write(x);
        emit_jmp_link(x, in->target, entry_for(in->pc, in->target));
        return 0;
    case INSN_RET:
        emit_ret(x);
        return SPILL_IN_RCX;
    case INSN_JMP_IND:
    case INSN_CALL_IND:
        emit_indirect(x);
        return SPILL_IN_RCX;
    case INSN_SYSCALL:
        emit_leave(x, TASK_STUB_SYSCALL, next, 0);
        return 0;
    case INSN_NONDET:
    case INSN_PERFORMED:
    case INSN_REFUSED:
        emit_leave(x, TASK_STUB_INSN, in->pc, x->b->number);
        return 0;
    case INSN_X87_STORE: {
        uint8_t spilled = emit_plain(&x->c, in);
        emit_leave(x, TASK_STUB_INSN, in->pc, x->b->number);
        return spilled;
    }
    case INSN_GENERAL: /* hlt raises it; with room for a jump if the block dies */
        emit_bytes(&x->c, "\xf4\xf4\xf4\xf4\xf4\xf4", 6);
        return 0;
    case INSN_INVALID:
        /* SIGILL or, for one that is too long, SIGSEGV here */
        emit_bytes(&x->c, in->too_long ? "\xf4\xf4\xf4\xf4\xf4\xf4" : "\x0f\x0b\x0f\x0b\x0f\x0b", 6);
        return 0;
    }
    return 0;
}

/* ---- blocks ---- */

static void emit_entries(struct xlate *x, enum entry wanted)
{
    struct block *b = x->b;
    uint8_t *start = x->c.p;
    if (wanted == ENTRY_INDIRECT) {
        b->entries[ENTRY_INDIRECT] = start;
        cache_emit_indirect_check(x->cache, &x->c, b);
    }
    if (wanted != ENTRY_PLAIN) {
        b->entries[ENTRY_COUNTED] = x->c.p;
        cache_emit_counted(x->cache, &x->c, b);
    }
    b->body = b->entries[ENTRY_PLAIN] = x->c.p;
}

static void note_ranges(struct cache *c, struct block *b)
{
    if (b->entries[ENTRY_INDIRECT])
        cache_note_range(c, b->entries[ENTRY_INDIRECT], b, ENTRY_INDIRECT);
    if (b->entries[ENTRY_COUNTED])
        cache_note_range(c, b->entries[ENTRY_COUNTED], b, ENTRY_COUNTED);
    cache_note_range(c, b->body, b, ENTRY_KINDS);
}

/* Leaves the cache when the instruction's bytes in memory are not those of x->in, without touching a flag. */
static void emit_check(struct xlate *x)
{
    struct code *c = &x->c;
    const struct insn *in = &x->in;
    emit_store_slot(c, TASK_SPILL_RCX, GPR_RCX);
    for (unsigned at = 0, size; at < in->length; at += size) {
        uint32_t expected = 0;
        size = in->length - at >= 4 ? 4 : in->length - at >= 2 ? 2 : 1;
        memcpy(&expected, in->bytes + at, size);
        emit_mov_imm(c, GPR_RCX, in->pc + at);
        emit_bytes(c,
                   size == 4   ? "\x8b\x09"
                   : size == 2 ? "\x0f\xb7\x09"
                               : "\x0f\xb6\x09",
                   size == 4 ? 2 : 3);
        emit_bytes(c, "\x8d\x89", 2); /* lea ecx, [rcx - expected] */
        emit32(c, -expected);
        emit8(c, 0xe3); /* jrcxz over the exit */
        uint8_t *same = c->p;
        emit8(c, 0);
        emit_leave(x, TASK_STUB_INSN, in->pc, x->b->number | TRANSLATE_STALE);
        *same = (uint8_t)(c->p - same - 1);
    }
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
}

/* Translates instructions into x until the block ends, `limit` is reached or the next one cannot be fetched.
 */
static void translate_insns(struct xlate *x, uint64_t pc, uint64_t room, uint32_t limit)
{
    uint64_t start = pc;
    bool instrument = translate_options.instrument;
    if (instrument)
        instrument_block(&x->c, x->b);
    while (!x->ended && x->n < limit) {
        if (decode_insn(&x->in, pc, room) < 0)
            break;
        struct write_site site;
        if (x->b->checked)
            emit_check(x);
        uint16_t offset = (uint16_t)(x->c.p - x->b->body);
        x->site = instrument && instrument_before(&x->c, &x->in, &site) ? &site : NULL;
        x->places[x->n] = (struct insn_place){offset, x->in.length, emit_insn(x)};
        finish_write(x);
        x->n++;
        pc += x->in.length;
        room -= x->in.length;
    }
    x->b->guest_length = (uint32_t)(pc - start);
    x->b->ninsns = (uint16_t)x->n;
}

/* Translates the block at pc behind x->c without publishing it. NULL: not even one instruction can be fetched
 * whole. */
static struct block *translate_one(struct xlate *x, uint64_t pc, uint64_t room, enum entry wanted,
                                   uint32_t limit)
{
    struct block *b = x->b = cache_new_block(x->where, pc);
    x->n = 0;
    x->ended = false;
    x->fall = 0;
    b->checked = !translate_options.instrument && limit == 1 && !x->cache->shared && unwatched(pc);
    b->flags_live =
        b->checked || decode_flags_live(pc); /* which looks at instructions that are not looked at again */
    uint8_t *start = x->c.p;
    emit_entries(x, wanted);
    translate_insns(x, pc, room, limit);
    if (!x->n) {
        x->c.p = start;
        cache_drop_unfinished(x->cache, b);
        return NULL;
    }
    if (!x->ended)
        emit_fall(x, pc + b->guest_length);
    b->body_end = x->c.p;
    b->places = cache_places(x->cache, x->places, x->n);
    LOG(xlate, "block %x at %lx: %u instructions, %zu bytes at %p%s", b->number, (unsigned long)pc, b->ninsns,
        (size_t)(b->body_end - b->body), (void *)b->body, b->flags_live ? ", flags live" : "");
    return b;
}

enum { RUN_BLOCKS = 4 }; /* blocks of the shared cache that are laid out one behind the other at most */

static bool same_place(struct cache_where a, struct cache_where b)
{
    return a.cache == b.cache && a.world == b.world;
}

/*
 * Shared code cannot be moved together later, so what a block falls into is translated right behind it,
 * unless it exists. Returns the number of blocks.
 */
static uint32_t translate_run(struct xlate *x, struct block *blocks[RUN_BLOCKS])
{
    uint32_t n = 1;
    while (x->fall) {
        uint64_t pc = x->fall, room = decode_room(pc);
        struct block *b = NULL;
        if (n < RUN_BLOCKS && room && same_place(cache_where(pc), x->where) && !cache_find(pc)) {
            struct block *last = x->b;
            b = translate_one(x, pc, room, ENTRY_PLAIN, translate_limit(pc));
            x->b = b ? b : last;
        }
        if (!b) {
            emit_jmp_link(x, pc, ENTRY_PLAIN);
            x->b->body_end = x->c.p;
            break;
        }
        blocks[n++] = b;
    }
    return n;
}

/* publish: in the table of blocks; else only for whoever gets it. */
static struct block *translate_new(uint64_t pc, uint64_t room, enum entry wanted, uint32_t limit,
                                   bool publish)
{
    static struct xlate x;
    struct block *blocks[RUN_BLOCKS];
    x.where = publish ? cache_where(pc) : (struct cache_where){cache_own, 0};
    struct cache *c = x.cache = x.where.cache;
    x.c.p = c->hot;
    if (!(blocks[0] = translate_one(&x, pc, room, wanted, limit)))
        return NULL;
    uint32_t n = translate_run(&x, blocks);
    c->hot = x.c.p;
    for (uint32_t i = 0; i < n; i++)
        note_ranges(c, blocks[i]);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = blocks[i];
        if (publish && !b->checked)
            watch_code(b->pc, b->pc + b->guest_length);
        if (translate_options.instrument)
            instrument_describe(b);
        if (publish)
            cache_add(c, b);
    }
    return blocks[0];
}

struct block *translate_block(uint64_t pc, enum entry first_wanted)
{
    struct cache *c = cache_where(pc).cache;
    struct block *b = cache_find(pc);
    if (b)
        return b;
    VERIFY(!cache_lost(pc), "a block at 0x%lx is valid but cannot be found", (unsigned long)pc);
    uint64_t room = decode_room(pc);
    if (!room)
        return NULL;
    if (cache_full(c)) {
        if (c->shared)
            cache_unshare("the shared cache is full");
        else
            cache_flush();
        c = cache_own;
    }
    if (!cache_lock(c)) {
        cache_unshare("the shared cache stays locked");
        c = cache_own;
    }
    b = cache_find(pc);
    if (!b)
        b = translate_new(pc, room, first_wanted, translate_limit(pc), true);
    cache_unlock(c);
    return b;
}

/*
 * True when the target of an unlinked fall-through can be placed over the jump: the jump is the last thing
 * emitted. The block keeps 5 bytes before it, for a jump may come back to its own start (unlink_incoming).
 */
static bool at_the_end(const struct link *l)
{
    const uint8_t *end = cache_own->hot;
    return !translate_options.instrument && !(l->number & BLOCK_SHARED) && l->kind == LINK_DIRECT &&
           l->entry == ENTRY_PLAIN && l->site + 4 == end && l->site - 1 >= l->from->body + 5 &&
           l->from->body_end == end && cache_where(l->target).cache == cache_own;
}

static struct block *place_over(struct link *l)
{
    uint8_t *end = cache_own->hot;
    if (cache_full(cache_own))
        return translate_block(l->target, ENTRY_PLAIN);
    cache_own->hot = l->site - 1;
    struct block *b = translate_block(l->target, ENTRY_PLAIN);
    if (!b) {
        cache_own->hot = end;
        l->site[-1] = 0xe9; /* the attempt may have written here */
        emit_patch_rel32(l->site, l->stub);
        return NULL;
    }
    l->kind = LINK_FALL;
    l->from->body_end = l->site - 1;
    return b;
}

uint8_t *translate_follow_link(struct task *t, uint32_t link_number, uint64_t *pc)
{
    struct link *l = cache_link_by_number(link_number);
    enum entry entry = l->entry;
    uint64_t generation = cache_generation;
    *pc = l->kind == LINK_INLINE ? t->target : l->target;
    struct block *b = cache_find(*pc);
    if (!b)
        b = at_the_end(l) && !translate_options.single_block ? place_over(l) : translate_block(*pc, entry);
    if (!b)
        return NULL;
    if (!translate_options.single_block && generation == cache_generation)
        cache_link(l, b);
    return cache_entry(b, entry);
}

uint8_t *translate_alone(uint64_t pc)
{
    return translate_steps(pc, 1);
}

uint8_t *translate_steps(uint64_t pc, uint32_t limit)
{
    uint64_t room = decode_room(pc);
    if (!room)
        return NULL;
    if (cache_full(cache_own))
        cache_flush();
    struct block *b = translate_new(pc, room, ENTRY_PLAIN, limit, false);
    return b ? b->entries[ENTRY_PLAIN] : NULL;
}

/* ---- back to guest state ---- */

uint32_t translate_index(uint64_t host_pc)
{
    const struct code_range *r = cache_range(host_pc);
    uint64_t offset = host_pc - (uintptr_t)r->block->body;
    uint32_t i = 0;
    while (i + 1u < r->block->ninsns && r->block->places[i + 1].offset <= offset)
        i++;
    return i;
}

static uint64_t pc_at(const struct block *b, uint32_t index)
{
    uint64_t pc = b->pc;
    for (uint32_t i = 0; i < index; i++)
        pc += b->places[i].length;
    return pc;
}

uint64_t translate_pc(uint64_t host_pc)
{
    const struct code_range *r = cache_contains(host_pc) ? cache_range(host_pc) : NULL;
    if (!r)
        return 0;
    return r->entry == ENTRY_KINDS ? pc_at(r->block, translate_index(host_pc)) : r->block->pc;
}

/* An address in the cache becomes the guest's; one that the guest has loaded itself is left alone. */
struct x87_pointers translate_x87_pointers(const struct task *t)
{
    const struct xsave_state state = {(uint8_t *)(uintptr_t)t->xsave, &engine.host.layout};
    struct x87_pointers p = xsave_x87_pointers(&state);
    if (cache_contains(p.instruction))
        p.instruction = translate_pc(p.instruction);
    return p;
}

void translate_forget_code(void)
{
    struct task *t = engine.task;
    xsave_set_x87_instruction(&(struct xsave_state){t->xsave, &engine.host.layout},
                              translate_x87_pointers(t).instruction);
}

int translate_state(struct task *t, uint64_t host_pc, uint64_t *guest_pc, uint64_t *gprs, unsigned *length)
{
    const struct code_range *r = cache_range(host_pc);
    if (!r)
        return -1;
    const struct block *b = r->block;
    *guest_pc = b->pc;
    *length = b->places[0].length;
    if (r->entry != ENTRY_KINDS)
        return 0;
    uint32_t index = translate_index(host_pc);
    *guest_pc = pc_at(b, index);
    *length = b->places[index].length;
    uint8_t spilled = b->places[index].spilled;
    if (spilled & SPILL_IN_RCX)
        gprs[GPR_RCX] = t->spill_rcx;
    if (spilled & SPILL_IN_RAX)
        gprs[spilled & 15] = t->spill_rax;
    return 0;
}
