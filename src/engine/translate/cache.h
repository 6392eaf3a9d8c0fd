/*
 * cache.h: the code cache: blocks, the links between them, and the table of indirect targets.
 *
 *   CACHE_LOW                                                          CACHE_HIGH
 *   [ hot code: bodies and entries, growing up -> ... <- exit stubs, growing down ]
 *
 * A block is the translation of a guest basic block. It can be entered in three ways, each made when first wanted:
 *   plain     falls into the body; for transfers that are strictly forward
 *   counted   counts a tick, then plain; for transfers that are not
 *   indirect  checks that task->target is this block's pc, restores rcx, then counted; for the indirect table
 * A link is one patchable branch of a block to another: it points to its exit stub until the target exists.
 *
 * The indirect table (INDIRECT_TABLE, indexed by the low 16 bits of the guest pc) holds the indirect entry of some block
 * with that index, or the miss routine; the entry itself verifies, so a stale or colliding slot is only slow.
 *
 * Everything here runs in the host with no guest code on the way (a task outside the cache re-enters by pc).
 */
#ifndef CLIO_TRANSLATE_CACHE_H
#define CLIO_TRANSLATE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/translate/emit.h"

#define INDIRECT_TABLE 0x70000000ull
enum { INDIRECT_SLOTS = 65536, BLOCK_INSNS_MAX = 64 };

enum entry { ENTRY_PLAIN, ENTRY_COUNTED, ENTRY_INDIRECT, ENTRY_KINDS };

/* Where an instruction's code lies in its block, and which guest register it holds in a slot meanwhile. */
struct insn_place {
    uint16_t offset; /* from the body's start */
    uint8_t length;  /* guest bytes */
    uint8_t spilled; /* 0: none; else SPILL_ bits | register */
};
enum { SPILL_IN_RCX = 0x40 /* rcx is in TASK_SPILL_RCX */, SPILL_IN_RAX = 0x80 /* low 4 bits: register in TASK_SPILL_RAX */ };

enum link_kind {
    LINK_DIRECT,
    LINK_INLINE, /* an indirect branch's inline cache */
    LINK_FALL,   /* the target was placed over the jump: its body starts where the jump did */
};

struct block;

struct link {
    uint8_t *site;       /* its rel32 */
    uint8_t *stub;       /* where it points while unlinked */
    uint8_t *guess;      /* LINK_INLINE: the imm32 of the comparison; `site` then is the hit's jump */
    uint8_t *gate;       /* LINK_INLINE: the 5-byte jump to the stub, a nop once a guess was made */
    uint64_t target;     /* LINK_DIRECT: guest pc */
    struct block *from, *to;
    struct link *next, *previous; /* in to->incoming */
    uint8_t kind, entry;
    uint32_t number;     /* what its stub stores in task->exit_site */
};

struct block {
    uint64_t pc;
    uint8_t *body;                /* start of the body: the plain entry */
    uint8_t *body_end;
    uint8_t *entries[ENTRY_KINDS]; /* NULL where not made */
    uint32_t number;
    uint32_t guest_length;
    uint16_t ninsns;
    bool flags_live; /* arithmetic flags may be live at entry */
    bool valid;
    uint16_t nlinks;
    uint32_t first_link;
    struct insn_place *places;
    struct link *incoming;
    struct block *hash_next;
    struct block *page_next[2]; /* chains of its first and last page */
};

/* One contiguous run of hot code and whose it is; sorted by address. */
struct code_range {
    uint8_t *start;
    struct block *block;
    uint8_t entry; /* ENTRY_KINDS: the body; else the prologue of that entry */
};

enum { CACHE_HASH_SIZE = 1 << 16 };
extern struct block *cache_hash[CACHE_HASH_SIZE]; /* fast/lookup.c */

static inline struct block **cache_chain(uint64_t pc)
{
    return &cache_hash[(uint32_t)((pc ^ pc >> 16) * 0x9e3779b1u) >> 16];
}

void cache_init(void);
/* The valid block at pc, or NULL. FAST. */
struct block *cache_find(uint64_t pc);
/* The block's entry of that kind, made now if it does not exist. */
uint8_t *cache_entry(struct block *b, enum entry kind);
void cache_fill_indirect(struct block *b);
void cache_link(struct link *l, struct block *to);
struct link *cache_link_by_number(uint32_t number);
struct block *cache_block_by_number(uint32_t number);
bool cache_contains(uint64_t host_pc);
/* The run of hot code that holds host_pc, or NULL. Async-signal-safe while guest code was interrupted. */
const struct code_range *cache_range(uint64_t host_pc);
/* True when some valid block starts at pc; looks at all of them. For VERIFY builds. */
bool cache_lost(uint64_t pc);
/* Forgets the blocks that hold guest code of [start, end). */
void cache_invalidate_range(uint64_t start, uint64_t end);
/* Forgets all code; blocks must not be used afterwards. */
void cache_flush(void);
/* True when translation of another block might not fit. */
bool cache_full(void);

/* --- for the translator --- */
struct block *cache_new_block(uint64_t pc);
struct link *cache_new_link(struct block *b, enum link_kind kind, uint64_t target, enum entry entry);
void cache_add(struct block *b);
void cache_drop_unfinished(struct block *b);
void cache_note_range(uint8_t *start, struct block *b, uint8_t entry);
struct insn_place *cache_places(const struct insn_place *from, uint32_t n);
extern struct code cache_hot;
uint8_t *cache_stub(uint32_t slot, uint32_t number); /* a new exit stub: exit_site = number; jmp gs:[slot] */
void cache_emit_counted(struct code *c, struct block *b);
void cache_emit_indirect_check(struct code *c, struct block *b);
extern uint8_t *cache_miss; /* the shared miss routine */

/* statistics for `--log xlate` and the bench */
struct cache_stats {
    uint64_t blocks, insns, flushes, invalidations, links, misses, exits;
};
extern struct cache_stats cache_stats;

#endif
