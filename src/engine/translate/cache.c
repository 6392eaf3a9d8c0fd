/* cache.c: see cache.h. */
#include "engine/translate/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/engine.h"
#include "engine/translate/decode.h"
#include "engine/translate/instrument.h"
#include "engine/translate/translate.h"

enum { CHUNK = 1024, CHUNKS_MAX = 4096, PAGE_HASH = 4096, ROOM_NEEDED = 64 * 1024 };

struct code cache_hot;
static uint8_t *cold;
uint8_t *cache_miss;
struct cache_stats cache_stats;

/* Blocks and links live in chunks that never move, so numbers and pointers both stay good until a flush. */
static struct block *block_chunks[CHUNKS_MAX];
static struct link *link_chunks[CHUNKS_MAX];
static uint32_t nblocks, nlinks;

static struct block *pages[PAGE_HASH];
static struct code_range *ranges;
static uint32_t nranges, ranges_capacity;

/* bump arena for insn_place arrays */
static struct arena {
    struct arena *next;
    size_t used;
    uint8_t bytes[1 << 16];
} *arena;

static void *const indirect_table = (void *)INDIRECT_TABLE;

static void map_fixed(uint64_t start, uint64_t end, int prot)
{
    void *p = mmap((void *)start, end - start, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (p != (void *)start)
        die("cannot reserve memory at 0x%lx for the code cache", (unsigned long)start);
}

static void reset_table(void)
{
    void **slot = indirect_table;
    for (int i = 0; i < INDIRECT_SLOTS; i++)
        if (slot[i] != cache_miss)
            slot[i] = cache_miss;
}

static void start_code(void)
{
    cache_hot.p = (uint8_t *)CACHE_LOW;
    cold = (uint8_t *)CACHE_HIGH;
    cache_miss = cache_hot.p;
    emit_jmp_slot(&cache_hot, TASK_STUB_MISS);
    cache_hot.p = (uint8_t *)(((uintptr_t)cache_hot.p + 63) & ~63ull);
}

void cache_init(void)
{
    map_fixed(CACHE_LOW, CACHE_HIGH, PROT_READ | PROT_WRITE | PROT_EXEC);
    map_fixed(INDIRECT_TABLE, INDIRECT_TABLE + INDIRECT_SLOTS * 8, PROT_READ | PROT_WRITE);
    start_code();
    reset_table();
}

bool cache_contains(uint64_t host_pc)
{
    return host_pc >= CACHE_LOW && host_pc < CACHE_HIGH;
}

bool cache_full(void)
{
    return cold - cache_hot.p < ROOM_NEEDED || nblocks >= (uint32_t)CHUNK * CHUNKS_MAX - 1 ||
           nlinks >= (uint32_t)CHUNK * CHUNKS_MAX - BLOCK_INSNS_MAX;
}

struct block *cache_block_by_number(uint32_t number)
{
    return &block_chunks[number / CHUNK][number % CHUNK];
}

struct link *cache_link_by_number(uint32_t number)
{
    return &link_chunks[number / CHUNK][number % CHUNK];
}

static void *chunk_slot(void **chunk, size_t size)
{
    if (!*chunk)
        *chunk = malloc(size * CHUNK);
    if (!*chunk)
        die("out of memory for the translator's tables");
    return *chunk;
}

struct block *cache_new_block(uint64_t pc)
{
    chunk_slot((void **)&block_chunks[nblocks / CHUNK], sizeof(struct block));
    struct block *b = cache_block_by_number(nblocks);
    memset(b, 0, sizeof *b);
    b->pc = pc;
    b->number = nblocks++;
    b->first_link = nlinks;
    b->body = cache_hot.p;
    return b;
}

void cache_drop_unfinished(struct block *b)
{
    cache_hot.p = b->body;
    nlinks = b->first_link;
    nblocks--;
}

uint8_t *cache_stub(uint32_t slot, uint32_t number)
{
    struct code c = {cold - 24};
    cold = c.p;
    emit_set_slot(&c, TASK_EXIT_SITE, number);
    emit_jmp_slot(&c, slot);
    return cold;
}

struct link *cache_new_link(struct block *b, enum link_kind kind, uint64_t target, enum entry entry)
{
    chunk_slot((void **)&link_chunks[nlinks / CHUNK], sizeof(struct link));
    struct link *l = cache_link_by_number(nlinks);
    memset(l, 0, sizeof *l);
    l->number = nlinks++;
    l->from = b;
    l->kind = kind;
    l->entry = entry;
    l->target = target;
    l->stub = cache_stub(TASK_STUB_LINK, l->number);
    b->nlinks++;
    return l;
}

struct insn_place *cache_places(const struct insn_place *from, uint32_t n)
{
    size_t size = n * sizeof *from;
    if (!arena || arena->used + size > sizeof arena->bytes) {
        struct arena *a = malloc(sizeof *a);
        if (!a)
            die("out of memory for the translator's tables");
        a->next = arena;
        a->used = 0;
        arena = a;
    }
    void *p = arena->bytes + arena->used;
    arena->used += size;
    memcpy(p, from, size);
    return p;
}

void cache_note_range(uint8_t *start, struct block *b, uint8_t entry)
{
    if (nranges == ranges_capacity) {
        ranges_capacity = ranges_capacity ? 2 * ranges_capacity : 4096;
        ranges = realloc(ranges, ranges_capacity * sizeof *ranges);
        if (!ranges)
            die("out of memory for the translator's tables");
    }
    /* a block placed over its predecessor's last jump starts inside that range: order still holds */
    ranges[nranges++] = (struct code_range){start, b, entry};
}

const struct code_range *cache_range(uint64_t host_pc)
{
    if (!nranges || host_pc < (uintptr_t)ranges[0].start || host_pc >= (uintptr_t)cache_hot.p)
        return NULL;
    uint32_t low = 0, high = nranges;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)ranges[middle].start <= host_pc)
            low = middle;
        else
            high = middle;
    }
    return &ranges[low];
}

static uint32_t page_hash(uint64_t page)
{
    return (uint32_t)((page * 0x9e3779b97f4a7c15ull) >> 52);
}

/* Which of a block's two chains serves the page. */
static int page_side(const struct block *b, uint64_t page)
{
    return b->pc / PAGE_SIZE == page ? 0 : 1;
}

void cache_add(struct block *b)
{
    struct block **head = cache_chain(b->pc);
    b->hash_next = *head;
    *head = b;
    uint64_t first = b->pc / PAGE_SIZE, last = (b->pc + b->guest_length - 1) / PAGE_SIZE;
    for (uint64_t page = first; page <= last; page++) {
        struct block **page_head = &pages[page_hash(page)];
        b->page_next[page_side(b, page)] = *page_head;
        /* the low bit tells which side's `next` continues this chain */
        *page_head = (struct block *)((uintptr_t)b | (uintptr_t)page_side(b, page));
    }
    b->valid = true;
    cache_stats.blocks++;
    cache_stats.insns += b->ninsns;
}

void cache_emit_counted(struct code *c, struct block *b)
{
    uint8_t *stub = cache_stub(TASK_STUB_PREEMPT, b->number);
    if (!b->flags_live) {
        emit8(c, 0x65); /* sub qword gs:[budget], 1 */
        emit8(c, 0x48);
        emit8(c, 0x83);
        emit_gs_modrm(c, 5, TASK_BUDGET);
        emit8(c, 1);
        emit_jcc(c, 8, stub); /* js */
        if (translate_options.instrument)
            instrument_counted(c);
        return;
    }
    /* The phases of this sequence are known to host signals: preempt_live_phase in core/hostsig.c. */
    emit_store_slot(c, TASK_SPILL_RCX, GPR_RCX); /*  0 */
    emit_load_slot(c, GPR_RCX, TASK_BUDGET);     /*  9 */
    emit_lea_add(c, GPR_RCX, -1);                /* 18 */
    emit_store_slot(c, TASK_BUDGET, GPR_RCX);    /* 25 */
    emit_lea_add(c, GPR_RCX, 1);                 /* 34 */
    emit8(c, 0xe3);                              /* 41: jrcxz over the next two */
    emit8(c, 11);
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
    emit8(c, 0xeb);
    emit8(c, 14);
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
    emit_jmp(c, stub);
    if (translate_options.instrument)
        instrument_counted(c);
}

void cache_emit_indirect_check(struct code *c, struct block *b)
{
    bool near = (int64_t)b->pc == (int32_t)b->pc;
    if (near && !b->flags_live) {
        emit8(c, 0x65); /* cmp qword gs:[target], imm32 */
        emit8(c, 0x48);
        emit8(c, 0x81);
        emit_gs_modrm(c, 7, TASK_TARGET);
        emit32(c, (uint32_t)b->pc);
        emit_jcc(c, 5, cache_miss);
    } else {
        emit_load_slot(c, GPR_RCX, TASK_TARGET);
        if (near) {
            emit_lea_add(c, GPR_RCX, -(int32_t)b->pc);
        } else {
            emit_store_slot(c, TASK_SPILL_RAX, GPR_RAX);
            emit_mov_imm(c, GPR_RAX, -b->pc);
            emit_bytes(c, "\x48\x8d\x0c\x01", 4); /* lea rcx, [rcx+rax] */
            emit_load_slot(c, GPR_RAX, TASK_SPILL_RAX);
        }
        emit8(c, 0xe3); /* jrcxz over the jump */
        emit8(c, 5);
        emit_jmp(c, cache_miss);
    }
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
}

uint8_t *cache_entry(struct block *b, enum entry kind)
{
    if (b->entries[kind])
        return b->entries[kind];
    uint8_t *start = cache_hot.p;
    if (kind == ENTRY_INDIRECT) {
        cache_note_range(start, b, ENTRY_INDIRECT);
        cache_emit_indirect_check(&cache_hot, b);
    }
    if (kind == ENTRY_INDIRECT && b->entries[ENTRY_COUNTED]) {
        emit_jmp(&cache_hot, b->entries[ENTRY_COUNTED]);
    } else {
        cache_note_range(cache_hot.p, b, ENTRY_COUNTED);
        b->entries[ENTRY_COUNTED] = cache_hot.p;
        cache_emit_counted(&cache_hot, b);
        emit_jmp(&cache_hot, b->entries[ENTRY_PLAIN]);
    }
    b->entries[kind] = start;
    return start;
}

void cache_fill_indirect(struct block *b)
{
    void **slot = indirect_table;
    slot[b->pc % INDIRECT_SLOTS] = cache_entry(b, ENTRY_INDIRECT);
}

static void make_gate(struct link *l, bool open)
{
    if (open) {
        memcpy(l->gate, "\x0f\x1f\x44\x00\x00", 5);
    } else {
        l->gate[0] = 0xe9;
        emit_patch_rel32(l->gate + 1, l->stub);
    }
}

void cache_link(struct link *l, struct block *to)
{
    if (l->kind == LINK_INLINE) {
        int32_t guess = -(int32_t)to->pc;
        memcpy(l->guess, &guess, 4);
        make_gate(l, true);
    }
    if (l->kind != LINK_FALL)
        emit_patch_rel32(l->site, cache_entry(to, l->entry));
    l->to = to;
    l->previous = NULL;
    l->next = to->incoming;
    if (l->next)
        l->next->previous = l;
    to->incoming = l;
    cache_stats.links++;
}

static void detach(struct link *l)
{
    if (l->previous)
        l->previous->next = l->next;
    else
        l->to->incoming = l->next;
    if (l->next)
        l->next->previous = l->previous;
    l->to = NULL;
}

static void unlink_incoming(struct link *l)
{
    if (l->kind == LINK_INLINE) {
        memset(l->guess, 0, 4);
        make_gate(l, false);
    }
    if (l->kind == LINK_FALL) { /* the target lies where the jump was; it is dead, so the jump can return */
        l->kind = LINK_DIRECT;
        l->site[-1] = 0xe9;
    }
    emit_patch_rel32(l->site, l->stub);
    detach(l);
}

static void remove_from_chain(struct block **head, struct block *b)
{
    while (*head != b)
        head = &(*head)->hash_next;
    *head = b->hash_next;
}

static void remove_from_page(struct block *b, uint64_t page)
{
    struct block **at = &pages[page_hash(page)];
    for (;;) {
        struct block *found = (struct block *)((uintptr_t)*at & ~1ull);
        int side = (int)((uintptr_t)*at & 1);
        if (found == b && side == page_side(b, page)) {
            *at = b->page_next[side];
            return;
        }
        at = &found->page_next[side];
    }
}

static void invalidate(struct block *b)
{
    while (b->incoming)
        unlink_incoming(b->incoming);
    for (uint32_t i = 0; i < b->nlinks; i++) {
        struct link *l = cache_link_by_number(b->first_link + i);
        if (l->to)
            detach(l); /* the block's own code is never entered again */
    }
    void **slot = indirect_table;
    if (slot[b->pc % INDIRECT_SLOTS] == b->entries[ENTRY_INDIRECT])
        slot[b->pc % INDIRECT_SLOTS] = cache_miss;
    remove_from_chain(cache_chain(b->pc), b);
    uint64_t first = b->pc / PAGE_SIZE, last = (b->pc + b->guest_length - 1) / PAGE_SIZE;
    for (uint64_t page = first; page <= last; page++)
        remove_from_page(b, page);
    b->valid = false;
    cache_stats.invalidations++;
}

static void invalidate_page(uint64_t page, uint64_t start, uint64_t end)
{
    struct block *next;
    for (struct block *at = pages[page_hash(page)]; at; at = next) {
        struct block *b = (struct block *)((uintptr_t)at & ~1ull);
        next = b->page_next[(uintptr_t)at & 1];
        if (b->pc < end && b->pc + b->guest_length > start) {
            /* the next one may be the same block's other page */
            if (((uintptr_t)next & ~1ull) == (uintptr_t)b)
                next = b->page_next[(uintptr_t)next & 1];
            invalidate(b);
        }
    }
}

void cache_invalidate_range(uint64_t start, uint64_t end)
{
    if (end - start > PAGE_SIZE * PAGE_HASH) {
        for (uint32_t i = 0; i < nblocks; i++) {
            struct block *b = cache_block_by_number(i);
            if (b->valid && b->pc < end && b->pc + b->guest_length > start)
                invalidate(b);
        }
        return;
    }
    for (uint64_t page = start / PAGE_SIZE; page * PAGE_SIZE < end; page++)
        invalidate_page(page, start, end);
}

bool cache_lost(uint64_t pc)
{
    for (uint32_t i = 0; i < nblocks; i++) {
        const struct block *b = cache_block_by_number(i);
        if (b->valid && b->pc == pc)
            return true;
    }
    return false;
}

void cache_flush(void)
{
    LOG(xlate, "flush: %u blocks, %zu bytes of code", nblocks, (size_t)(cache_hot.p - (uint8_t *)CACHE_LOW));
    nblocks = nlinks = nranges = 0;
    memset(cache_hash, 0, sizeof cache_hash);
    memset(pages, 0, sizeof pages);
    while (arena) {
        struct arena *next = arena->next;
        free(arena);
        arena = next;
    }
    madvise((void *)CACHE_LOW, CACHE_HIGH - CACHE_LOW, MADV_DONTNEED);
    start_code();
    reset_table();
    cache_stats.flushes++;
}
