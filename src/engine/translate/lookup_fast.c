/* lookup.c: finding translated code. FAST: see Makefile. */
#include "engine/guest/engine.h"
#include "engine/guest/layout.h"
#include "engine/translate/cache.h"

struct cache_active cache_active;

static inline uint32_t hash_of(uint64_t pc)
{
    return (uint32_t)((pc ^ pc >> 17) * 0x9e3779b1u) >> 15;
}

struct block *cache_find_at(struct cache_where where, uint64_t pc)
{
    struct block *b = __atomic_load_n(&where.cache->hash[hash_of(pc)], __ATOMIC_ACQUIRE);
    while (b && (b->pc != pc || b->world != where.world))
        b = b->hash_next;
    return b;
}

struct cache_where cache_where(uint64_t pc)
{
    if (pc < SHARED_HIGH)
        for (uint32_t i = 0; i < cache_active.count; i++)
            if (pc >= cache_active.range[i].start && pc < cache_active.range[i].end)
                return (struct cache_where){cache_shared, cache_active.range[i].world};
    return (struct cache_where){cache_own, 0};
}

struct block *cache_find(uint64_t pc)
{
    return cache_find_at(cache_where(pc), pc);
}

struct block **cache_chain(struct cache *c, uint64_t pc)
{
    return &c->hash[hash_of(pc)];
}
