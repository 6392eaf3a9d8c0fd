/*
 * share.c: see cache.h for what is shared and why that is safe.
 *
 * The memory is a memfd, mapped at the same addresses by the first engine process and inherited by all
 * others; it lives as long as any of them and touches no disk.
 */
#include "engine/translate/share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/guest/engine.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/memory/space.h"
#include "engine/translate/cache.h"
#include "engine/translate/translate.h"

static bool available;
static int lock_handle = -1; /* the memfd, as hostfd_keep has it */

static bool map_part(int fd, uint64_t at, uint64_t size, uint64_t offset, int prot)
{
    return mmap((void *)at, size, prot, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd,
                (off_t)offset) == (void *)at;
}

void share_init(void)
{
    const uint64_t state = PAGE_UP(sizeof(struct cache)), code = SHARED_CODE_HIGH - SHARED_CODE_LOW;
    struct rlimit size;
    if (!getrlimit(RLIMIT_FSIZE, &size) && size.rlim_cur < state + code)
        return; /* trying would cost a SIGXFSZ */
    int fd = memfd_create("clio code", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(state + code)) ||
        !map_part(fd, SHARED_CACHE, state, 0, PROT_READ | PROT_WRITE) ||
        !map_part(fd, SHARED_CODE_LOW, code, state, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        LOG(xlate, "no shared code cache: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    lock_handle = hostfd_keep(fd);
    if (lock_handle < 0) {
        close(fd);
        return;
    }
    cache_shared->shared = true;
    cache_start(cache_shared, SHARED_CODE_LOW, SHARED_CODE_HIGH);
    available = cache_active.on = true;
}

/* ---- the lock: a POSIX file lock, which the kernel lets go when its holder dies, in whatever namespace ----
 */

static bool set_lock(short type)
{
    const struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return !raw3(SYS_fcntl, hostfd(lock_handle), F_SETLK, &lock);
}

bool cache_lock(struct cache *c)
{
    enum { TRIES = 300, SPINS = 50 };
    const struct timespec pause = {0, 1000000};
    if (!c->shared)
        return true;
    for (int i = 0; i < TRIES + SPINS; i++) {
        if (set_lock(F_WRLCK))
            return true;
        if (i < SPINS)
            raw0(SYS_sched_yield);
        else
            raw2(SYS_nanosleep, &pause, 0);
    }
    return false;
}

void cache_unlock(struct cache *c)
{
    if (c->shared)
        set_lock(F_UNLCK);
}

/* ---- which code is shared ---- */

void cache_unshare(const char *why)
{
    if (!cache_active.on)
        return;
    LOG(xlate, "process %d uses its own code only: %s", (int)getpid(), why);
    translate_forget_code();
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
    return m->start == v->start && m->end == v->end && m->offset == v->offset && v->file &&
           !memcmp(m->hash, v->file->hash, 32);
}

static bool is_zero(const uint8_t hash[32])
{
    static const uint8_t zero[32];
    return !memcmp(hash, zero, 32);
}

/* A file's unchanging code at its slot or at a fixed address below. */
static bool shareable(const struct vma *v)
{
    return v->file && !v->shared && !(v->prot & PROT_WRITE) && !(v->flags & VMA_DIRTY) &&
           v->end <= SHARED_HIGH && !is_zero(v->file->hash);
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
    if (!cache_lock(c))
        return false;
    if (c->nmodules < CACHE_MODULES && claim_of(v, world) == CLAIM_NONE) {
        struct cache_module *m = &c->modules[c->nmodules];
        *m = (struct cache_module){.start = v->start,
                                   .end = v->end,
                                   .offset = v->offset,
                                   .world = v->start < SLOTS_LOW ? (uint16_t)(c->nmodules + 1) : 0};
        memcpy(m->hash, v->file->hash, 32);
        __atomic_store_n(&c->nmodules, c->nmodules + 1, __ATOMIC_RELEASE);
    }
    cache_unlock(c);
    return claim_of(v, world) == CLAIM_OURS;
}

void share_mapped(const struct vma *v)
{
    if (!cache_active.on || !(v->prot & PROT_EXEC) || v->start >= SHARED_HIGH)
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

/*
 * Inline caches of other modules may lead into code that goes away, and what comes back may have been
 * changed: a process whose shared code changes in any way shares no longer. (exec starts afresh: cache_exec
 * comes before.)
 */
void share_forget(uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < cache_active.count; i++)
        if (cache_active.range[i].start < end && start < cache_active.range[i].end) {
            cache_unshare("code of a file changed or went away");
            return;
        }
}

void cache_exec(void)
{
    cache_active.count = 0;
    cache_active.on = available;
    cache_flush();
}
