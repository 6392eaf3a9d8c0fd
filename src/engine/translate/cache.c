/* cache.c: see cache.h. Sharing between processes is in share.c. */
#include "engine/translate/cache.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/cpu/registers.h"
#include "engine/guest/engine.h"
#include "engine/guest/layout.h"
#include "engine/guest/task.h"
#include "engine/translate/instrument.h"
#include "engine/translate/share.h"
#include "engine/translate/translate.h"

enum { ROOM_NEEDED = 128 * 1024, STUB_SIZE = 24 };

struct cache_stats cache_stats;
uint64_t cache_generation;

static void **const indirect_table = (void **)INDIRECT_TABLE;
static struct second_entry *const second_table = (struct second_entry *)SECOND_TABLE;
static uint16_t filled[INDIRECT_SLOTS]; /* slots of the table that were ever filled, for wiping */
static uint32_t nfilled;

static void map_fixed(uint64_t start, uint64_t end, int prot)
{
    void *p = mmap((void *)start, end - start, prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (p != (void *)start)
        die("cannot reserve memory at 0x%lx for the code cache", (unsigned long)start);
}

void cache_start(struct cache *c, uint64_t low, uint64_t high)
{
    c->low = c->hot = (uint8_t *)low;
    c->high = c->cold = (uint8_t *)high;
    struct code code = {c->hot};
    c->miss = c->hot;
    emit_jmp_slot(&code, TASK_STUB_MISS);
    c->hot = (uint8_t *)(((uintptr_t)code.p + 63) & ~63ull);
}

void cache_init(bool share)
{
    map_fixed(OWN_CODE_LOW, OWN_CODE_HIGH, PROT_READ | PROT_WRITE | PROT_EXEC);
    map_fixed(OWN_CACHE, OWN_CACHE + sizeof(struct cache), PROT_READ | PROT_WRITE);
    map_fixed(SECOND_TABLE, SECOND_TABLE + SECOND_SLOTS * sizeof(struct second_entry),
              PROT_READ | PROT_WRITE);
    map_fixed(INDIRECT_TABLE, INDIRECT_TABLE + INDIRECT_SLOTS * 8, PROT_READ | PROT_WRITE);
    cache_start(cache_own, OWN_CODE_LOW, OWN_CODE_HIGH);
    for (int i = 0; i < INDIRECT_SLOTS; i++)
        indirect_table[i] = cache_own->miss;
    if (share)
        share_init();
}

bool cache_contains(uint64_t host_pc)
{
    return host_pc >= CACHE_LOW && host_pc < CACHE_HIGH;
}

static struct cache *cache_at(uint64_t host_pc)
{
    return host_pc < SHARED_CODE_HIGH ? cache_shared : cache_own;
}

static struct cache *cache_holding(const struct block *b)
{
    return b->number & BLOCK_SHARED ? cache_shared : cache_own;
}

bool cache_full(const struct cache *c)
{
    return c->cold - c->hot < ROOM_NEEDED || c->nblocks > CACHE_BLOCKS - 64 ||
           c->nlinks > CACHE_LINKS - 1024 || c->nplaces > CACHE_PLACES - 4096 ||
           c->nranges > CACHE_RANGES - 64;
}

/* ---- blocks and links ---- */

static struct cache *cache_by_number(uint32_t number)
{
    return number & BLOCK_SHARED ? cache_shared : cache_own;
}

struct block *cache_block_by_number(uint32_t number)
{
    return &cache_by_number(number)->blocks[number & ~BLOCK_SHARED];
}

struct link *cache_link_by_number(uint32_t number)
{
    return &cache_by_number(number)->links[number & ~BLOCK_SHARED];
}

struct block *cache_new_block(struct cache_where where, uint64_t pc)
{
    struct cache *c = where.cache;
    struct block *b = &c->blocks[c->nblocks];
    memset(b, 0, sizeof *b);
    b->pc = pc;
    b->world = where.world;
    b->number = c->nblocks++ | (c->shared ? BLOCK_SHARED : 0);
    b->first_link = c->nlinks | (c->shared ? BLOCK_SHARED : 0);
    return b;
}

void cache_drop_unfinished(struct cache *c, struct block *b)
{
    c->nlinks = b->first_link & ~BLOCK_SHARED;
    c->nblocks--;
}

uint8_t *cache_stub(struct cache *c, uint32_t slot, uint32_t number)
{
    struct code code = {c->cold - STUB_SIZE};
    c->cold = code.p;
    emit_set_slot(&code, TASK_EXIT_SITE, number);
    emit_jmp_slot(&code, slot);
    return c->cold;
}

struct link *cache_new_link(struct cache *c, struct block *b, enum link_kind kind, uint64_t target,
                            enum entry entry)
{
    struct link *l = &c->links[c->nlinks];
    memset(l, 0, sizeof *l);
    l->number = c->nlinks++ | (c->shared ? BLOCK_SHARED : 0);
    l->from = b;
    l->kind = kind;
    l->entry = entry;
    l->target = target;
    l->stub = cache_stub(c, TASK_STUB_LINK, l->number);
    b->nlinks++;
    return l;
}

struct insn_place *cache_places(struct cache *c, const struct insn_place *from, uint32_t n)
{
    struct insn_place *p = &c->places[c->nplaces];
    memcpy(p, from, n * sizeof *p);
    c->nplaces += n;
    return p;
}

void cache_note_range(struct cache *c, uint8_t *start, struct block *b, uint8_t entry)
{
    c->ranges[c->nranges] = (struct code_range){start, b, entry};
    __atomic_store_n(&c->nranges, c->nranges + 1, __ATOMIC_RELEASE);
}

const struct code_range *cache_range(uint64_t host_pc)
{
    const struct cache *c = cache_at(host_pc);
    if (c->shared && !cache_active.on)
        return NULL;
    uint32_t low = 0, high = __atomic_load_n(&c->nranges, __ATOMIC_ACQUIRE);
    if (!high || host_pc < (uintptr_t)c->ranges[0].start || host_pc >= (uintptr_t)c->high)
        return NULL;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)c->ranges[middle].start <= host_pc)
            low = middle;
        else
            high = middle;
    }
    return &c->ranges[low];
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

static void add_to_pages(struct cache *c, struct block *b)
{
    uint64_t first = b->pc / PAGE_SIZE, last = (b->pc + b->guest_length - 1) / PAGE_SIZE;
    for (uint64_t page = first; page <= last; page++) {
        struct block **head = &c->pages[page_hash(page)];
        b->page_next[page_side(b, page)] = *head;
        /* the low bit tells which side's `next` continues this chain */
        *head = (struct block *)((uintptr_t)b | (uintptr_t)page_side(b, page));
    }
}

void cache_add(struct cache *c, struct block *b)
{
    if (!c->shared)
        add_to_pages(c, b);
    b->valid = true;
    struct block **head = cache_chain(c, b->pc);
    b->hash_next = *head;
    __atomic_store_n(head, b, __ATOMIC_RELEASE);
    cache_stats.blocks++;
    cache_stats.insns += b->ninsns;
}

/* ---- entries ---- */

void cache_emit_counted(struct cache *cache, struct code *c, struct block *b)
{
    uint8_t *stub = cache_stub(cache, TASK_STUB_PREEMPT, b->number);
    if (!b->flags_live) {
        emit8(c, 0x65); /* sub qword gs:[budget], 1 */
        emit8(c, 0x48);
        emit8(c, 0x83);
        emit_gs_modrm(c, 5, TASK_BUDGET);
        emit8(c, 1);
        emit_jcc(c, 8, stub); /* js */
    } else {
        /* The phases of this sequence are known to host signals: spend_in_sequence in task/hostsig.c. */
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
    }
    if (translate_options.instrument)
        instrument_counted(c);
}

/* Without touching the flags: who comes here by a slot that another block shares may need them. */
void cache_emit_indirect_check(struct cache *cache, struct code *c, struct block *b)
{
    emit_load_slot(c, GPR_RCX, TASK_TARGET);
    if ((int64_t)b->pc == (int32_t)b->pc) {
        emit_lea_add(c, GPR_RCX, -(int32_t)b->pc);
    } else {
        emit_store_slot(c, TASK_SPILL_RAX, GPR_RAX);
        emit_mov_imm(c, GPR_RAX, -b->pc);
        emit_bytes(c, "\x48\x8d\x0c\x01", 4); /* lea rcx, [rcx+rax] */
        emit_load_slot(c, GPR_RAX, TASK_SPILL_RAX);
    }
    emit8(c, 0xe3); /* jrcxz over the jump */
    emit8(c, 5);
    emit_jmp(c, cache->miss);
    emit_load_slot(c, GPR_RCX, TASK_SPILL_RCX);
}

static void make_entry(struct cache *cache, struct block *b, enum entry kind)
{
    struct code c = {cache->hot};
    uint8_t *start = c.p, *counted = NULL;
    if (kind == ENTRY_INDIRECT)
        cache_emit_indirect_check(cache, &c, b);
    if (b->entries[ENTRY_COUNTED]) {
        emit_jmp(&c, b->entries[ENTRY_COUNTED]);
    } else {
        counted = c.p;
        cache_emit_counted(cache, &c, b);
        emit_jmp(&c, b->entries[ENTRY_PLAIN]);
    }
    cache->hot = c.p;
    if (kind == ENTRY_INDIRECT)
        cache_note_range(cache, start, b, ENTRY_INDIRECT);
    if (counted)
        cache_note_range(cache, counted, b, ENTRY_COUNTED);
    if (counted)
        __atomic_store_n(&b->entries[ENTRY_COUNTED], counted, __ATOMIC_RELEASE);
    __atomic_store_n(&b->entries[kind], start, __ATOMIC_RELEASE);
}

/* The shared cache cannot be written: an entry of this process's own in front of the shared body. */
static uint8_t *make_private_entry(struct block *b)
{
    cache_unshare("the shared cache stays locked");
    struct code c = {cache_own->hot};
    uint8_t *start = c.p;
    cache_emit_counted(cache_own, &c, b);
    emit_jmp(&c, b->entries[ENTRY_PLAIN]);
    cache_own->hot = c.p;
    cache_note_range(cache_own, start, b, ENTRY_COUNTED);
    return start;
}

uint8_t *cache_entry(struct block *b, enum entry kind)
{
    uint8_t *entry = __atomic_load_n(&b->entries[kind], __ATOMIC_ACQUIRE);
    if (entry)
        return entry;
    struct cache *c = cache_holding(b);
    if (!cache_lock(c))
        return make_private_entry(b);
    if (!b->entries[kind])
        make_entry(c, b, kind);
    cache_unlock(c);
    return b->entries[kind];
}

static bool second_used;

static struct second_entry *second_of(uint64_t pc)
{
    return &second_table[(pc ^ pc >> 16) & (SECOND_SLOTS - 1)];
}

static void wipe_second(void)
{
    if (second_used)
        madvise(second_table, SECOND_SLOTS * sizeof *second_table, MADV_DONTNEED);
    second_used = false;
}

void cache_fill_indirect(struct block *b)
{
    uint16_t i = (uint16_t)b->pc;
    uint8_t *entry = cache_entry(b, ENTRY_INDIRECT);
    if (entry != b->entries[ENTRY_INDIRECT])
        return; /* the shared cache stays locked: not for the tables */
    if (indirect_table[i] == cache_own->miss)
        filled[nfilled++] = i;
    indirect_table[i] = entry;
    *second_of(b->pc) = (struct second_entry){b->pc, indirect_table[i]};
    second_used = true;
}

static void empty_slot(uint16_t i)
{
    indirect_table[i] = cache_own->miss;
}

static void wipe_table(void)
{
    wipe_second();
    while (nfilled)
        empty_slot(filled[--nfilled]);
}

/* ---- links ---- */

void cache_align_patch(struct code *c, unsigned ahead)
{
    static const uint8_t nops[][3] = {{0x90}, {0x66, 0x90}, {0x0f, 0x1f, 0x00}};
    unsigned in_line = (unsigned)((uintptr_t)c->p + ahead) & 63;
    if (in_line > 60)
        emit_bytes(c, nops[64 - in_line - 1], 64 - in_line);
}

static void patch_rel32(uint8_t *site, const uint8_t *target)
{
    __atomic_store_n((uint32_t *)site, (uint32_t)(target - (site + 4)), __ATOMIC_RELEASE);
}

/* The gate leads to the stub until the branch's first target is known, then to what follows it. */
static void open_gate(struct link *l)
{
    patch_rel32(l->gate + 1, l->gate + 5);
}

/* Whether `from` may point to `to` for good: whoever runs the one must see the other. */
static bool may_link(const struct block *from, const struct block *to)
{
    if (!(from->number & BLOCK_SHARED))
        return true;
    return (to->number & BLOCK_SHARED) && (!to->world || to->world == from->world);
}

static void link_inline(struct link *l, struct block *to)
{
    struct cache *c = cache_holding(l->from);
    bool near = (int64_t)to->pc == (int32_t)to->pc;
    bool may = near && may_link(l->from, to);
    uint8_t *entry = may ? cache_entry(to, l->entry) : NULL;
    if (!cache_lock(c))
        return;
    may = may && entry == to->entries[l->entry];
    if (!l->to && may) {
        patch_rel32(l->site, entry);
        __atomic_store_n((uint32_t *)l->guess, (uint32_t)-to->pc, __ATOMIC_RELEASE);
        l->to = to;
    }
    open_gate(l);
    cache_unlock(c);
}

static void remember_incoming(struct link *l, struct block *to)
{
    l->previous = NULL;
    l->next = to->incoming;
    if (l->next)
        l->next->previous = l;
    to->incoming = l;
}

void cache_link(struct link *l, struct block *to)
{
    if (l->kind == LINK_INLINE) {
        bool was = l->to;
        link_inline(l, to);
        if (was || l->to != to)
            return;
    } else {
        if (!may_link(l->from, to))
            return;
        uint8_t *entry = cache_entry(to, l->entry);
        if (entry != to->entries[l->entry])
            return;
        if (l->kind != LINK_FALL)
            patch_rel32(l->site, entry);
        l->to = to;
    }
    if (!(to->number & BLOCK_SHARED))
        remember_incoming(l, to);
    cache_stats.links++;
}

/* ---- forgetting: only the process's own code ---- */

static void detach(struct link *l)
{
    if (!(l->to->number & BLOCK_SHARED)) {
        if (l->previous)
            l->previous->next = l->next;
        else
            l->to->incoming = l->next;
        if (l->next)
            l->next->previous = l->previous;
    }
    l->to = NULL;
}

static void unlink_incoming(struct link *l)
{
    if (l->kind == LINK_INLINE) {
        memset(l->guess, 0, 4);
        patch_rel32(l->gate + 1, l->stub);
    }
    if (l->kind == LINK_FALL) { /* the target lies where the jump was; it is dead, so the jump can return */
        l->kind = LINK_DIRECT;
        l->site[-1] = 0xe9;
    }
    patch_rel32(l->site, l->stub);
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
    struct block **at = &cache_own->pages[page_hash(page)];
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
        if (!l->to)
            continue;
        detach(l);
        /* Nobody enters the block again; but one that logs may still be running to its end. */
        if (translate_options.instrument)
            patch_rel32(l->site, l->stub);
    }
    uint16_t slot = (uint16_t)b->pc;
    if (b->entries[ENTRY_INDIRECT] && indirect_table[slot] == b->entries[ENTRY_INDIRECT])
        empty_slot(slot); /* stays listed in `filled` */
    if (second_of(b->pc)->pc == b->pc)
        second_of(b->pc)->pc = 0;
    remove_from_chain(cache_chain(cache_own, b->pc), b);
    uint64_t first = b->pc / PAGE_SIZE, last = (b->pc + b->guest_length - 1) / PAGE_SIZE;
    for (uint64_t page = first; page <= last; page++)
        remove_from_page(b, page);
    b->valid = false;
}

static void invalidate_page(uint64_t page, uint64_t start, uint64_t end)
{
    struct block *next;
    for (struct block *at = cache_own->pages[page_hash(page)]; at; at = next) {
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

static void invalidate_own(uint64_t start, uint64_t end)
{
    struct cache *c = cache_own;
    if (end - start > PAGE_SIZE * CACHE_PAGES) {
        for (uint32_t i = 0; i < c->nblocks; i++) {
            struct block *b = &c->blocks[i];
            if (b->valid && b->pc < end && b->pc + b->guest_length > start)
                invalidate(b);
        }
        return;
    }
    for (uint64_t page = start / PAGE_SIZE; page * PAGE_SIZE < end; page++)
        invalidate_page(page, start, end);
}

void cache_invalidate_range(uint64_t start, uint64_t end)
{
    if (cache_own->nblocks)
        invalidate_own(start, end);
    share_forget(start, end);
}

bool cache_holds(uint64_t start, uint64_t end)
{
    const struct cache *c = cache_own;
    for (uint32_t i = 0; i < c->nblocks; i++) {
        const struct block *b = &c->blocks[i];
        if (b->valid && !b->checked && b->pc < end && b->pc + b->guest_length > start)
            return true;
    }
    for (uint32_t i = 0; i < cache_active.count; i++)
        if (cache_active.range[i].start < end && start < cache_active.range[i].end)
            return true;
    return false;
}

bool cache_lost(uint64_t pc)
{
    const struct cache *c = cache_where(pc).cache;
    for (uint32_t i = 0; i < c->nblocks; i++)
        if (c->blocks[i].valid && c->blocks[i].pc == pc && !c->shared)
            return true;
    return false;
}

void cache_flush(void)
{
    struct cache *c = cache_own;
    wipe_table();
    if (!c->nblocks)
        return;
    translate_forget_code();
    LOG(xlate, "flush: %u blocks, %zu bytes of code", c->nblocks, (size_t)(c->hot - c->low));
    madvise((void *)OWN_CACHE, sizeof *c, MADV_DONTNEED);
    madvise((void *)OWN_CODE_LOW, OWN_CODE_HIGH - OWN_CODE_LOW, MADV_DONTNEED);
    cache_start(c, OWN_CODE_LOW, OWN_CODE_HIGH);
    cache_generation++;
}
