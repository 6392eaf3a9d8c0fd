/*
 * cache.h: the code cache: blocks, the links between them, and the table of indirect targets.
 *
 * There are two caches, each a struct cache at a constant address and a range of code:
 *
 *   shared  one for all processes of a recording (or of a replay): code of ELF files at their slots or at the
 *           address they are linked to, which is the same in every process; what one process translates, the
 *           others find. It only grows.
 *   own     this process's: everything else, and everything when the process must not share (cache_unshare).
 *
 *   code range: [ hot code: bodies and entries, growing up -> ... <- exit stubs, growing down ]
 *
 * A block is the translation of a guest basic block. It can be entered in three ways, each made when first
 * wanted:
 *
 *   plain     falls into the body; for transfers that are strictly forward
 *   counted   counts a tick, then plain; for transfers that are not
 *   indirect  checks that task->target is this block's pc, restores rcx, then counted; for the indirect table
 *
 * A link is one patchable branch of a block to another: it points to its exit stub until the target exists.
 *
 * The indirect table (INDIRECT_TABLE, indexed by the low 16 bits of the guest pc; each process's own) holds
 * the indirect entry of some block with that index, or the miss routine; the entry itself verifies, so a
 * colliding slot is only slow. Behind it is a second table with another index and the whole pc in each entry
 * (stub_miss in task/entry.S).
 *
 * Sharing. The registry says which file's content a range of slots stands for; a process that maps anything
 * else there stops sharing. Writers hold the lock; a killed writer leaves nothing but unreachable code,
 * because a block is published by the last store. Readers take no lock. Branches are patched by one aligned
 * store while others may run them, so the bytes patched never straddle a cache line, and shared code never
 * points into a process's own, nor into another world (see struct cache_module).
 *
 * Everything here runs in the host with no guest code on the way (a task outside the cache re-enters by pc).
 */
#ifndef CLIO_TRANSLATE_CACHE_H
#define CLIO_TRANSLATE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/translate/emit.h"

#define INDIRECT_TABLE 0x70000000ull
enum { INDIRECT_SLOTS = 65536, BLOCK_INSNS_MAX = 64 };

#define SECOND_TABLE 0x22f000000000ull
enum { SECOND_SLOTS = 65536 };
struct second_entry {
    uint64_t pc;    /* 0: none */
    uint8_t *entry; /* the block's indirect entry */
};

#define SHARED_CODE_LOW  0x60000000ull
#define SHARED_CODE_HIGH 0x69000000ull
#define OWN_CODE_LOW     0x69000000ull
#define OWN_CODE_HIGH    0x70000000ull
#define SHARED_CACHE     0x220000000000ull /* above everything of the guest, below everything of the host */
#define OWN_CACHE        0x228000000000ull

enum entry { ENTRY_PLAIN, ENTRY_COUNTED, ENTRY_INDIRECT, ENTRY_KINDS };

/* Where an instruction's code lies in its block, and which guest register it holds in a slot meanwhile. */
struct insn_place {
    uint16_t offset; /* from the body's start */
    uint8_t length;  /* guest bytes */
    uint8_t spilled; /* 0: none; else SPILL_ bits | register */
};
enum {
    SPILL_IN_RCX = 0x40 /* rcx is in TASK_SPILL_RCX */,
    SPILL_IN_RAX = 0x80 /* low 4 bits: register in TASK_SPILL_RAX */
};

enum link_kind {
    LINK_DIRECT,
    LINK_INLINE, /* an indirect branch's inline cache */
    LINK_FALL,   /* the target was placed over the jump: its body starts where the jump did */
};

struct block;

struct link {
    uint8_t *site;   /* its rel32 */
    uint8_t *stub;   /* where it points while unlinked */
    uint8_t *guess;  /* LINK_INLINE: the imm32 of the comparison; `site` then is the hit's jump */
    uint8_t *gate;   /* LINK_INLINE: the 5-byte jump to the stub, a nop once a guess was made */
    uint64_t target; /* LINK_DIRECT: guest pc */
    struct block *from, *to;
    struct link *next, *previous; /* in to->incoming */
    uint8_t kind, entry;
    uint32_t number; /* what its stub stores in task->exit_site */
};

struct block {
    uint64_t pc;
    uint8_t *body; /* start of the body: the plain entry */
    uint8_t *body_end;
    uint8_t *entries[ENTRY_KINDS]; /* NULL where not made */
    uint32_t number;
    uint32_t guest_length;
    uint16_t ninsns;
    uint16_t world;  /* as cache_module.world */
    bool flags_live; /* arithmetic flags may be live at entry */
    bool valid;
    bool checked; /* of one instruction, whose bytes it looks at first */
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

enum {
    CACHE_HASH = 1 << 17,
    CACHE_PAGES = 4096,
    CACHE_BLOCKS = 1 << 20,
    CACHE_LINKS = 1 << 21,
    CACHE_PLACES = 1 << 24,
    CACHE_RANGES = 1 << 21,
    CACHE_MODULES = 4096,
};
#define BLOCK_SHARED 0x20000000u /* in the numbers of blocks and links of the shared cache */

/*
 * Shared: what lies at [start, end) in every process that shares. Programs linked to a fixed address overlap;
 * each is a world of its own (not 0), and a process sees one of them. Code at slots is world 0.
 */
struct cache_module {
    uint64_t start, end, offset;
    uint8_t hash[32];
    uint16_t world;
};

struct cache {
    bool shared;
    uint8_t *low, *high; /* code range */
    uint8_t *hot, *cold; /* free code is [hot, cold) */
    uint8_t *miss;       /* the miss routine */
    uint32_t nblocks, nlinks, nplaces, nranges, nmodules;
    struct block *hash[CACHE_HASH];
    struct block *pages[CACHE_PAGES]; /* own: chains by page, for invalidation */
    struct cache_module modules[CACHE_MODULES];
    struct block blocks[CACHE_BLOCKS]; /* these four are sparse: only what is used takes memory */
    struct link links[CACHE_LINKS];
    struct insn_place places[CACHE_PLACES];
    struct code_range ranges[CACHE_RANGES];
};

#define cache_shared ((struct cache *)SHARED_CACHE)
#define cache_own    ((struct cache *)OWN_CACHE)

enum { CACHE_ACTIVE_MAX = 256 };
struct cache_active { /* guest ranges whose code is the shared cache's, in this process */
    bool on;
    uint32_t count;
    struct {
        uint64_t start, end;
        uint16_t world;
    } range[CACHE_ACTIVE_MAX];
};
extern struct cache_active cache_active; /* lookup_fast.c */

void cache_init(bool share);
struct cache_where {
    struct cache *cache;
    uint16_t world;
};
/* Where code of guest pc is kept. FAST. */
struct cache_where cache_where(uint64_t pc);
/* The valid block at pc, or NULL. FAST. */
struct block *cache_find(uint64_t pc);
struct block *cache_find_at(struct cache_where where, uint64_t pc);
struct block **cache_chain(struct cache *c, uint64_t pc);
/* The block's entry of that kind, made now if it does not exist. */
uint8_t *cache_entry(struct block *b, enum entry kind);
void cache_fill_indirect(struct block *b);
/* Points the link at `to` where that is allowed. */
void cache_link(struct link *l, struct block *to);
struct link *cache_link_by_number(uint32_t number);
struct block *cache_block_by_number(uint32_t number);
bool cache_contains(uint64_t host_pc);
/* The run of hot code that holds host_pc, or NULL. Async-signal-safe while guest code was interrupted. */
const struct code_range *cache_range(uint64_t host_pc);
/* True when some valid block starts at pc; looks at all of them. For VERIFY builds. */
bool cache_lost(uint64_t pc);
/* True when valid code of [start, end) exists, or may in the shared cache; looks at all blocks. For VERIFY
 * builds. */
bool cache_holds(uint64_t start, uint64_t end);
/* Forgets the process's blocks that hold guest code of [start, end), and that it is shared. */
void cache_invalidate_range(uint64_t start, uint64_t end);
/* Forgets the process's own code; blocks and links from before, which had another generation, must not be
 * used. */
void cache_flush(void);
extern uint64_t cache_generation;
/* Nothing of the guest is left (exec): starts afresh, sharing again. */
void cache_exec(void);
/* This process uses its own code only from now on. */
void cache_unshare(const char *why);
/* True when translation of another block might not fit. */
bool cache_full(const struct cache *c);
/* False, after a while, when somebody holds the lock and stands still (a stopped process). */
bool cache_lock(struct cache *c);
void cache_unlock(struct cache *c);

/* --- for the translator; the cache is locked --- */
struct block *cache_new_block(struct cache_where where, uint64_t pc);
struct link *cache_new_link(struct cache *c, struct block *b, enum link_kind kind, uint64_t target,
                            enum entry entry);
void cache_add(struct cache *c, struct block *b);
void cache_drop_unfinished(struct cache *c, struct block *b);
void cache_note_range(struct cache *c, uint8_t *start, struct block *b, uint8_t entry);
struct insn_place *cache_places(struct cache *c, const struct insn_place *from, uint32_t n);
/* A new exit stub: exit_site = number; jmp gs:[slot]. */
uint8_t *cache_stub(struct cache *c, uint32_t slot, uint32_t number);
void cache_emit_counted(struct cache *cache, struct code *c, struct block *b);
void cache_emit_indirect_check(struct cache *cache, struct code *c, struct block *b);
/* Nops, so that 4 bytes at p + ahead can be patched by one store. */
void cache_align_patch(struct code *c, unsigned ahead);

/* statistics for `--log xlate` and the bench */
struct cache_stats {
    uint64_t blocks, insns, links, misses, exits;
};
extern struct cache_stats cache_stats;

#endif
