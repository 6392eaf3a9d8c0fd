/*
 * share.c: see cache.h for what is shared and why that is safe.
 *
 * The memory is a memfd, mapped at the same addresses by the first engine process and inherited by all others; it
 * lives as long as any of them and touches no disk.
 */
#include "engine/translate/share.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/engine.h"
#include "engine/core/raw.h"
#include "engine/translate/cache.h"

static bool available;

static bool map_part(int fd, uint64_t at, uint64_t size, uint64_t offset, int prot)
{
    return mmap((void *)at, size, prot, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, (off_t)offset) == (void *)at;
}

void share_init(void)
{
    const uint64_t state = PAGE_UP(sizeof(struct cache)), code = SHARED_CODE_HIGH - SHARED_CODE_LOW;
    int fd = memfd_create("clio code", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(state + code)) ||
        !map_part(fd, SHARED_CACHE, state, 0, PROT_READ | PROT_WRITE) ||
        !map_part(fd, SHARED_CODE_LOW, code, state, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        LOG(xlate, "no shared code cache: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    close(fd);
    cache_shared->shared = true;
    cache_start(cache_shared, SHARED_CODE_LOW, SHARED_CODE_HIGH);
    available = cache_active.on = true;
}

/* ---- the lock ---- */

void cache_lock(struct cache *c)
{
    if (!c->shared)
        return;
    uint32_t me = (uint32_t)raw0(SYS_getpid), holder = 0;
    for (unsigned tries = 1; !__atomic_compare_exchange_n(&c->lock, &holder, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); tries++) {
        if (tries % 64 == 0 && raw2(SYS_kill, holder, 0) == -ESRCH)
            __atomic_compare_exchange_n(&c->lock, &holder, 0, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
        if (tries % 16 == 0)
            sched_yield();
        __builtin_ia32_pause();
        holder = 0;
    }
}

void cache_unlock(struct cache *c)
{
    if (c->shared)
        __atomic_store_n(&c->lock, 0, __ATOMIC_RELEASE);
}

/* ---- which code is shared ---- */

void cache_unshare(const char *why)
{
    if (!cache_active.on)
        return;
    LOG(xlate, "process %d uses its own code only: %s", (int)getpid(), why);
    cache_active.on = false;
    cache_active.count = 0;
    cache_flush();
}

static bool overlaps(const struct cache_module *m, const struct vma *v)
{
    return m->start < v->end && v->start < m->end;
}

static bool same(const struct cache_module *m, const struct vma *v)
{
    return m->start == v->start && m->end == v->end && m->offset == v->offset && v->file && !memcmp(m->hash, v->file->hash, 32);
}

static bool is_zero(const uint8_t hash[32])
{
    static const uint8_t zero[32];
    return !memcmp(hash, zero, 32);
}

/* A file's unchanging code at its slot or at a fixed address below. */
static bool shareable(const struct vma *v)
{
    return v->file && !v->shared && !(v->prot & PROT_WRITE) && v->end <= SLOTS_HIGH && !is_zero(v->file->hash);
}

enum claim { CLAIM_NONE, CLAIM_OURS, CLAIM_OTHER };

/* What the registry says of v; *world when it is ours. */
static enum claim claim_of(const struct vma *v, uint16_t *world)
{
    const struct cache *c = cache_shared;
    uint32_t n = __atomic_load_n(&c->nmodules, __ATOMIC_ACQUIRE);
    enum claim claim = CLAIM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct cache_module *m = &c->modules[i];
        if (!overlaps(m, v))
            continue;
        *world = m->world;
        if (same(m, v))
            return CLAIM_OURS;
        if (!m->world)
            claim = CLAIM_OTHER;
    }
    return claim;
}

static bool add_claim(const struct vma *v, uint16_t *world)
{
    struct cache *c = cache_shared;
    cache_lock(c);
    if (c->nmodules < CACHE_MODULES && claim_of(v, world) == CLAIM_NONE) {
        struct cache_module *m = &c->modules[c->nmodules];
        *m = (struct cache_module){.start = v->start, .end = v->end, .offset = v->offset,
                                   .world = v->start < SLOTS_LOW ? (uint16_t)(c->nmodules + 1) : 0};
        memcpy(m->hash, v->file->hash, 32);
        __atomic_store_n(&c->nmodules, c->nmodules + 1, __ATOMIC_RELEASE);
    }
    cache_unlock(c);
    return claim_of(v, world) == CLAIM_OURS;
}

void code_mapped(const struct vma *v)
{
    if (!cache_active.on || !(v->prot & PROT_EXEC) || v->start >= SLOTS_HIGH)
        return;
    uint16_t world = 0;
    enum claim claim = claim_of(v, &world);
    bool may = shareable(v) && cache_active.count < CACHE_ACTIVE_MAX;
    if (claim == CLAIM_OTHER || (claim == CLAIM_OURS && !may)) {
        cache_unshare("other code is mapped where the shared cache has a file's");
        return;
    }
    if (!may || (claim == CLAIM_NONE && !add_claim(v, &world)))
        return;
    for (uint32_t i = 0; i < cache_active.count; i++)
        if (cache_active.range[i].start == v->start)
            return;
    cache_active.range[cache_active.count].start = v->start;
    cache_active.range[cache_active.count].end = v->end;
    cache_active.range[cache_active.count].world = world;
    cache_active.count++;
}

bool share_forget(uint64_t start, uint64_t end)
{
    bool any = false;
    for (uint32_t i = 0; i < cache_active.count;) {
        uint64_t low = cache_active.range[i].start, high = cache_active.range[i].end;
        if (low >= end || start >= high) {
            i++;
            continue;
        }
        if (low < start || high > end) {
            cache_unshare("a part of a file's code changed");
            return false;
        }
        cache_active.range[i] = cache_active.range[--cache_active.count];
        any = true;
    }
    return any;
}

void cache_exec(void)
{
    cache_active.count = 0;
    cache_active.on = available;
    cache_flush();
}
