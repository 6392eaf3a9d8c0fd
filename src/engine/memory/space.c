/*
 * space.c: the guest's address space, as a sorted array of vmas and as mappings of the host at the same
 * addresses.
 *
 *     vmas    [ start end )[ start end )      [ start end )         sorted, disjoint, page aligned, not empty
 *                 a             b                  c
 *
 * Neighbours that could be one vma are one (mergeable). Every change first reserves room in the array, then
 * changes the host, then the array, so a failure leaves both as they were.
 *
 * Guest code is read and translated, never executed in place: a guest page with PROT_EXEC is readable at the
 * host and not executable, so a stray jump of ours faults.
 *
 * Free ranges are found from the top of the mmap area downwards, always the highest that fits. pick_from and
 * pick_hole remember that all gaps above pick_from are too small for more than pick_hole bytes; most searches
 * then begin where the last one ended.
 */
#include "engine/memory/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/host/raw.h"
#include "engine/memory/capture.h"
#include "engine/memory/replica.h"
#include "engine/memory/watch.h"

struct space guest_space;

/* ---- the array ---- */

/* Index of the first vma that ends above addr. */
static uint32_t index_above(const struct space *s, uint64_t addr)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->vmas[middle].end > addr)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct vma *space_at_or_above(const struct space *s, uint64_t addr)
{
    uint32_t i = index_above(s, addr);
    return i < s->count ? &s->vmas[i] : NULL;
}

struct vma *space_find(const struct space *s, uint64_t addr)
{
    struct vma *v = space_at_or_above(s, addr);
    return v && v->start <= addr ? v : NULL;
}

bool space_free(const struct space *s, uint64_t start, uint64_t len)
{
    const struct vma *v = space_at_or_above(s, start);
    return !v || v->start >= start + len;
}

bool space_allows(const struct space *s, uint64_t addr, uint64_t len, uint32_t prot)
{
    uint64_t end = addr + len;
    if (end < addr)
        return false;
    for (uint32_t i = index_above(s, addr); addr < end; i++) {
        if (i == s->count || s->vmas[i].start > addr || (s->vmas[i].prot & prot) != prot)
            return false;
        addr = s->vmas[i].end;
    }
    return true;
}

/* Where the next mapping below v may end. */
static uint64_t room_below(const struct vma *v)
{
    if (!v->growsdown)
        return v->start;
    return v->start > STACK_GUARD ? v->start - STACK_GUARD : 0;
}

bool space_roomy(const struct space *s, uint64_t start, uint64_t len)
{
    const struct vma *v = space_at_or_above(s, start);
    return !v || room_below(v) >= start + len;
}

static bool reserve(struct space *s, uint32_t more)
{
    if (s->count + more <= s->capacity)
        return true;
    uint32_t capacity = s->capacity ? s->capacity * 2 : 64;
    while (capacity < s->count + more)
        capacity *= 2;
    struct vma *vmas = realloc(s->vmas, capacity * sizeof *vmas);
    if (!vmas)
        return false;
    s->vmas = vmas;
    s->capacity = capacity;
    return true;
}

static bool has_offset(const struct vma *v)
{
    return v->file || v->shared;
}

static void move_start(struct vma *v, uint64_t start)
{
    if (has_offset(v))
        v->offset += start - v->start;
    v->start = start;
}

static bool mergeable(const struct vma *a, const struct vma *b)
{
    return a->end == b->start && a->prot == b->prot && a->shared == b->shared &&
           a->growsdown == b->growsdown && a->flags == b->flags && a->object == b->object &&
           a->file == b->file && (!has_offset(a) || a->offset + (a->end - a->start) == b->offset);
}

static void insert_at(struct space *s, uint32_t i, const struct vma *v)
{
    VERIFY(s->count < s->capacity, "vma array has no room for 0x%lx", (unsigned long)v->start);
    memmove(&s->vmas[i + 1], &s->vmas[i], (s->count - i) * sizeof *v);
    s->vmas[i] = *v;
    s->count++;
}

static void delete_range(struct space *s, uint32_t from, uint32_t to)
{
    memmove(&s->vmas[from], &s->vmas[to], (s->count - to) * sizeof *s->vmas);
    s->count -= to - from;
}

/* Makes addr a boundary between vmas where it lies inside one. Needs room for one more. */
static void split_at(struct space *s, uint64_t addr)
{
    uint32_t i = index_above(s, addr);
    if (i == s->count || s->vmas[i].start >= addr)
        return;
    struct vma upper = s->vmas[i];
    move_start(&upper, addr);
    s->vmas[i].end = addr;
    insert_at(s, i + 1, &upper);
}

/* Merges whatever can be merged in or at the borders of [start, end). */
static void merge_range(struct space *s, uint64_t start, uint64_t end)
{
    uint32_t i = index_above(s, start);
    uint32_t into = i ? i - 1 : 0;
    uint32_t next = into + 1;
    while (next < s->count && s->vmas[next].start <= end) {
        if (mergeable(&s->vmas[into], &s->vmas[next]))
            s->vmas[into].end = s->vmas[next].end;
        else
            s->vmas[++into] = s->vmas[next];
        next++;
    }
    if (into + 1 < next)
        delete_range(s, into + 1, next);
}

static void verify(const struct space *s)
{
#ifdef CLIO_VERIFY
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vma *v = &s->vmas[i];
        VERIFY(v->start < v->end && !((v->start | v->end) % PAGE_SIZE), "vma 0x%lx-0x%lx is malformed",
               (unsigned long)v->start, (unsigned long)v->end);
        VERIFY(!i || (s->vmas[i - 1].end <= v->start && !mergeable(&s->vmas[i - 1], v)),
               "vma at 0x%lx overlaps the one before or should be one with it", (unsigned long)v->start);
    }
#endif
}

/* A gap below `from` widened or appeared at addr: later searches must look at it. */
static void gap_appeared(struct space *s, uint64_t addr)
{
    const struct vma *v = space_at_or_above(s, addr);
    uint64_t high = v ? v->start : s->mmap_top;
    if (high > s->mmap_top)
        high = s->mmap_top;
    if (high > s->pick_from)
        s->pick_from = high;
}

/* Takes [start, end) out of the array. Needs room for two more. */
static void forget(struct space *s, uint64_t start, uint64_t end)
{
    split_at(s, start);
    split_at(s, end);
    uint32_t from = index_above(s, start), to = from;
    while (to < s->count && s->vmas[to].start < end)
        to++;
    delete_range(s, from, to);
}

/* Puts v into the array in place of what was there. Needs room for three more. */
static void replace(struct space *s, const struct vma *v)
{
    forget(s, v->start, v->end);
    insert_at(s, index_above(s, v->start), v);
    merge_range(s, v->start, v->end);
    verify(s);
}

/* ---- the host's mappings ---- */

/* Where guest mappings may lie. */
static const struct part {
    uint64_t low, high;
} parts[] = {{GUEST_LOW, HOST_LOW}, {HOST_HIGH, TABLES_LOW}, {TABLES_HIGH, IMAGE_LOW}, {IMAGE_HIGH, TOP_LOW}};
enum { PARTS = sizeof parts / sizeof *parts };

bool space_within(uint64_t start, uint64_t end)
{
    for (int i = 0; i < PARTS; i++)
        if (parts[i].low <= start && start <= end && end <= parts[i].high)
            return true;
    return false;
}

uint64_t space_piece(uint64_t start, uint64_t end, uint64_t *low)
{
    for (int i = 0; i < PARTS; i++) {
        uint64_t high = end < parts[i].high ? end : parts[i].high;
        *low = start > parts[i].low ? start : parts[i].low;
        if (*low < high)
            return high;
    }
    return 0;
}

bool space_legal(uint64_t start, uint64_t len)
{
    return len && !((start | len) % PAGE_SIZE) && space_within(start, start + len);
}

int space_host_prot(uint32_t prot)
{
    return (int)(prot & (PROT_READ | PROT_WRITE)) | (prot & PROT_EXEC ? PROT_READ : 0);
}

/* The first part of [*start, end) that is not the guest's, as [*start, return value). */
static uint64_t next_gap(const struct space *s, uint64_t *start, uint64_t end)
{
    const struct vma *v;
    while (*start < end && (v = space_find(s, *start)))
        *start = v->end;
    v = space_at_or_above(s, *start);
    return v && v->start < end ? v->start : end;
}

static void release_host(const struct space *s, uint64_t start, uint64_t end)
{
    for (uint64_t to; end > TABLES_HIGH && start < end; start = to)
        if ((to = next_gap(s, &start, end)) > start)
            raw2(SYS_munmap, start, to - start);
}

int space_reserve(const struct space *s, uint64_t start, uint64_t end)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    uint64_t at = start, to;
    for (; end > TABLES_HIGH && at < end; at = to) {
        to = next_gap(s, &at, end);
        int64_t r = to > at ? raw6(SYS_mmap, at, to - at, PROT_NONE, flags, (uint64_t)-1, 0) : 0;
        if (r < 0) {
            release_host(s, start, at);
            return (int)r;
        }
    }
    return 0;
}

static int host_map(const struct vma *v, int fd, int flags)
{
    bool shared = v->shared;
    if (engine.mode == ENGINE_REPLAY) {
        int replica = replica_fd(v->object);
        flags = MAP_NORESERVE;
        shared = shared && replica >= 0;
        fd = replica >= 0 ? replica : fd;
    }
    flags |= MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0);
    int64_t r = raw6(SYS_mmap, v->start, v->end - v->start, (uint64_t)space_host_prot(v->prot),
                     (uint64_t)flags, (uint64_t)fd, fd < 0 ? 0 : v->offset);
    return r < 0 ? (int)r : 0;
}

int space_host_map(const struct vma *v)
{
    return host_map(v, -1, 0);
}

int space_host_protect(const struct vma *v)
{
    return (int)raw3(SYS_mprotect, v->start, v->end - v->start, space_host_prot(v->prot));
}

/* Tells the translator that memory in the range goes away or changes: its code, and code whose other view it
 * is. */
static bool invalidate(const struct space *s, uint64_t start, uint64_t end)
{
    bool watched = watch_open(start, end);
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < end; i++) {
        const struct vma *v = &s->vmas[i];
        if (v->prot & PROT_EXEC)
            code_invalidate(v->start > start ? v->start : start, v->end < end ? v->end : end);
    }
    return watched;
}

/* From here on, pages of the mapping may differ from the file's. */
static void mark_dirty(struct vma *v)
{
    if (v->file && !v->shared && (v->prot & PROT_WRITE))
        v->flags |= VMA_DIRTY;
}

/* Code that shows the same memory as v, which can be written now, is to be translated anew and watched there,
 * too. */
static void writable_view(const struct space *s, const struct vma *v)
{
    for (uint32_t i = 0; v->object && v->shared && (v->prot & PROT_WRITE) && i < s->count; i++) {
        const struct vma *other = &s->vmas[i];
        if (other->object == v->object && (other->prot & PROT_EXEC) && other->start != v->start)
            code_invalidate(other->start, other->end);
    }
}

void space_object_changed(const struct space *s, uint16_t object, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; object && i < s->count; i++) {
        const struct vma *v = &s->vmas[i];
        if (v->object != object || !(v->prot & PROT_EXEC) || v->offset >= to)
            continue;
        uint64_t low = from > v->offset ? v->start + (from - v->offset) : v->start;
        uint64_t high = to - v->offset < v->end - v->start ? v->start + (to - v->offset) : v->end;
        if (low < high)
            code_invalidate(low, high);
    }
}

void space_content_changed(const struct space *s, uint64_t start, uint64_t end)
{
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < end; i++) {
        const struct vma *v = &s->vmas[i];
        uint64_t low = v->start > start ? v->start : start, high = v->end < end ? v->end : end;
        if (v->prot & PROT_EXEC)
            code_invalidate(low, high);
        if (v->shared)
            space_object_changed(s, v->object, v->offset + (low - v->start), v->offset + (high - v->start));
    }
}

void space_shared_with_others(struct space *s)
{
    s->shares_with_others = true;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].shared && (s->vmas[i].prot & PROT_EXEC))
            code_invalidate(s->vmas[i].start, s->vmas[i].end);
}

int space_map(struct space *s, const struct vma *v, int fd, int host_flags)
{
    uint64_t len = v->end - v->start;
    if (!space_legal(v->start, len) || !reserve(s, 3))
        return -ENOMEM;
    int error = space_reserve(s, v->start, v->end);
    if (error)
        return error;
    invalidate(s, v->start, v->end);
    error = host_map(v, fd, host_flags);
    if (error) {
        release_host(s, v->start, v->end);
        return error;
    }
    struct vma new = *v;
    mark_dirty(&new);
    replace(s, &new);
    if (v->prot & PROT_EXEC)
        code_mapped(&new);
    writable_view(s, &new);
    if (v->growsdown) {
        s->grow_from = s->grow_to ? 0 : s->mmap_top; /* below the first, the stack, nothing else is mapped */
        s->grow_to = s->grow_to > v->start ? s->grow_to : v->start;
    }
    LOG(map, "map 0x%lx-0x%lx prot %u %s %s", (unsigned long)v->start, (unsigned long)v->end, v->prot,
        v->shared ? "shared" : "private", v->file ? v->file->path : "anonymous");
    return 0;
}

int space_adopt(struct space *s, const struct vma *v)
{
    if (!space_legal(v->start, v->end - v->start) || !reserve(s, 3))
        return -ENOMEM;
    invalidate(s, v->start, v->end);
    replace(s, v);
    space_host_protect(v); /* closing a watch set it to that of what was there; fails for devices */
    if (v->prot & PROT_EXEC)
        code_mapped(v);
    writable_view(s, v);
    return 0;
}

/* Unmaps the parts of [start, end) that belong to the guest; the host's ranges are not touched. */
static int host_unmap(uint64_t start, uint64_t end)
{
    for (int i = 0; i < PARTS; i++) {
        uint64_t low = start > parts[i].low ? start : parts[i].low;
        uint64_t high = end < parts[i].high ? end : parts[i].high;
        int64_t r = low < high ? raw2(SYS_munmap, low, high - low) : 0;
        if (r < 0)
            return (int)r;
    }
    return 0;
}

int space_unmap(struct space *s, uint64_t start, uint64_t len)
{
    uint64_t end = start + len;
    if (((start | len) % PAGE_SIZE) || end < start)
        return -EINVAL;
    if (space_free(s, start, len))
        return 0;
    if (!reserve(s, 2))
        return -ENOMEM;
    invalidate(s, start, end);
    int error = host_unmap(start, end);
    if (error)
        return error;
    forget(s, start, end);
    gap_appeared(s, start);
    verify(s);
    LOG(map, "unmap 0x%lx-0x%lx", (unsigned long)start, (unsigned long)end);
    return 0;
}

int space_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot)
{
    uint64_t end = start + len;
    if (((start | len) % PAGE_SIZE) || end < start || !space_allows(s, start, len, 0) || !reserve(s, 2))
        return -ENOMEM;
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < end; i++)
        if (s->vmas[i].prot != prot)
            invalidate(s, s->vmas[i].start > start ? s->vmas[i].start : start,
                       s->vmas[i].end < end ? s->vmas[i].end : end);
    int64_t r = raw3(SYS_mprotect, start, len, space_host_prot(prot));
    watch_restore(start, end); /* after a failure, too: the kernel may have come half the way */
    if (r < 0)
        return (int)r;
    split_at(s, start);
    split_at(s, end);
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < end; i++) {
        s->vmas[i].prot = prot;
        mark_dirty(&s->vmas[i]);
    }
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < end; i++) {
        if (prot & PROT_EXEC)
            code_mapped(&s->vmas[i]);
        writable_view(s, &s->vmas[i]);
    }
    merge_range(s, start, end);
    verify(s);
    LOG(map, "protect 0x%lx-0x%lx prot %u", (unsigned long)start, (unsigned long)end, prot);
    return 0;
}

static int64_t host_mremap(uint64_t old, uint64_t old_len, uint64_t start, uint64_t len)
{
    return start == old ? raw4(SYS_mremap, old, old_len, len, 0)
                        : raw5(SYS_mremap, old, old_len, len, MREMAP_MAYMOVE | MREMAP_FIXED, start);
}

/*
 * The host may hold as several mappings what the guest has as one: private ones of replay merge by other
 * rules than shared ones of the recording, and pages that were watched may stay apart. A single page is
 * always one mapping, and a grown one grows at its last page.
 */
static int host_mremap_pages(uint64_t old, uint64_t old_len, uint64_t start, uint64_t len)
{
    uint64_t common = old_len < len ? old_len : len;
    for (uint64_t at = start == old ? common - PAGE_SIZE : 0; at < common; at += PAGE_SIZE) {
        uint64_t size = at + PAGE_SIZE == common ? len - at : PAGE_SIZE;
        int64_t r =
            start == old && size == PAGE_SIZE ? 0 : host_mremap(old + at, PAGE_SIZE, start + at, size);
        if (r < 0)
            return (int)r;
    }
    return old_len > common ? host_unmap(old + common, old + old_len) : 0;
}

int space_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len)
{
    const struct vma *source = space_find(s, old);
    if (!source || !old_len || source->end - old < old_len || old % PAGE_SIZE || old_len % PAGE_SIZE)
        return -EFAULT;
    if (start == old && len < old_len)
        return -EINVAL;
    if (start != old && start < old + old_len && old < start + len)
        return -EINVAL;
    if (start == old && len > old_len && !space_free(s, old + old_len, len - old_len))
        return -ENOMEM;
    if (!space_legal(start, len) || !reserve(s, 5))
        return -ENOMEM;
    struct vma moved = *space_find(s, old);
    move_start(&moved, old);
    moved.start = start;
    moved.end = start + len;
    if (start != old)
        invalidate(s, start, start + len);
    /* one that grows in place, too: watched pages are mappings of their own */
    bool split = invalidate(s, old, old + old_len);
    int64_t r = start == old ? 0 : space_reserve(s, start, start + len);
    if (!r)
        r = host_mremap(old, old_len, start, len);
    if (r == -EFAULT && (split || engine.mode == ENGINE_REPLAY))
        r = host_mremap_pages(old, old_len, start, len);
    if (r < 0)
        return (int)r;
    forget(s, old, old + old_len);
    replace(s, &moved);
    if (moved.prot & PROT_EXEC)
        code_mapped(&moved);
    writable_view(s, &moved);
    gap_appeared(s, old);
    LOG(map, "move 0x%lx+0x%lx to 0x%lx+0x%lx", (unsigned long)old, (unsigned long)old_len,
        (unsigned long)start, (unsigned long)len);
    return 0;
}

int space_move_keeping(struct space *s, uint64_t start, uint64_t old, uint64_t len)
{
    const struct vma *v = space_find(s, old);
    if (!v || v->end - old < len || !space_legal(start, len) || !reserve(s, 5))
        return -EFAULT;
    struct vma moved = *v;
    move_start(&moved, old);
    moved.start = start;
    moved.end = start + len;
    int64_t r = space_reserve(s, start, start + len);
    if (r)
        return (int)r;
    invalidate(s, start, start + len);
    invalidate(s, old, old + len);
    r = raw5(SYS_mremap, old, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, start);
    if (r < 0)
        return (int)r;
    replace(s, &moved);
    return 0;
}

int space_flag(struct space *s, uint64_t start, uint64_t len, uint8_t set, uint8_t clear)
{
    if (!reserve(s, 2))
        return -ENOMEM;
    split_at(s, start);
    split_at(s, start + len);
    for (uint32_t i = index_above(s, start); i < s->count && s->vmas[i].start < start + len; i++)
        s->vmas[i].flags = (uint8_t)((s->vmas[i].flags & ~clear) | set);
    merge_range(s, start, start + len);
    verify(s);
    return 0;
}

/* ---- growth ---- */

int space_extend(struct space *s, uint64_t start, uint64_t len)
{
    struct vma *v = space_find(s, start + len);
    if (!v || v->start != start + len || has_offset(v) || !space_legal(start, len) ||
        !space_free(s, start, len))
        return -EINVAL;
    struct vma part = *v;
    part.start = start;
    part.end = start + len;
    int error = host_map(&part, -1, MAP_NORESERVE);
    if (error)
        return error;
    if (s->grow_to == v->start)
        s->grow_to = start;
    v->start = start;
    merge_range(s, start, v->end);
    LOG(map, "grow 0x%lx-0x%lx", (unsigned long)start, (unsigned long)(start + len));
    return 0;
}

bool space_grow(struct space *s, uint64_t addr, uint64_t limit)
{
    uint64_t page = PAGE_DOWN(addr);
    uint32_t i = index_above(s, addr);
    if (i == s->count || s->vmas[i].start <= addr || !s->vmas[i].growsdown || page < GUEST_LOW ||
        s->vmas[i].end - page > limit)
        return false;
    const struct vma *below = i ? &s->vmas[i - 1] : NULL;
    if (below && !below->growsdown && below->prot && page - below->end < STACK_GUARD)
        return false;
    return !space_extend(s, page, s->vmas[i].start - page);
}

static int discard_part(const struct vma *part, bool removed)
{
    uint64_t len = part->end - part->start;
    if (!part->shared)
        return (int)raw3(SYS_madvise, part->start, len, MADV_DONTNEED);
    if (!removed)
        return 0;
    return replica_fd(part->object) >= 0 ? replica_remove(part->object, part->offset, part->offset + len)
                                         : host_map(part, -1, 0);
}

/*
 * Replay's half of madvise: private memory goes back to zeros or to the file. Shared memory keeps its
 * content, unless map->shared says that the content itself was removed.
 */
static int discard(struct space *s, const struct trace_map *map)
{
    uint64_t end = map->addr + map->len;
    space_content_changed(s, map->addr, end);
    for (uint32_t i = index_above(s, map->addr); i < s->count && s->vmas[i].start < end; i++) {
        struct vma part = s->vmas[i];
        if (part.start < map->addr)
            move_start(&part, map->addr);
        if (part.end > end)
            part.end = end;
        int error = discard_part(&part, map->shared);
        if (error)
            return error;
    }
    return 0;
}

static int apply_mapping(struct space *s, const struct trace_map *map, const char *path, int fd)
{
    struct vma v = {.start = map->addr,
                    .end = map->addr + map->len,
                    .prot = map->prot,
                    .shared = map->shared,
                    .object = map->rec.flags,
                    .offset = map->offset};
    int error = 0;
    if (map->op == MAP_OP_FILE) {
        v.file = file_known(map->file, map->aux, path);
        if (!v.file)
            return -ENOMEM;
        if (v.object)
            error = replica_map_file(s, &v, map->file, fd);
    } else if (v.object) {
        error = replica_map_memory(s, &v);
    }
    return error ? error : space_map(s, &v, v.file ? fd : -1, MAP_NORESERVE);
}

static int apply(struct space *s, const struct trace_map *map, const char *path, int fd)
{
    int error = 0;
    switch (map->op) {
    case MAP_OP_ANON:
    case MAP_OP_FILE:
        return apply_mapping(s, map, path, fd);
    case MAP_OP_UNMAP:
        return space_unmap(s, map->addr, map->len);
    case MAP_OP_PROTECT:
        if (map->prot & PROT_WRITE)
            error = replica_make_writable(s, map->addr, map->addr + map->len);
        return error ? error : space_protect(s, map->addr, map->len, map->prot);
    case MAP_OP_MOVE:
        return space_move(s, map->addr, map->len, map->offset, map->aux);
    case MAP_OP_DISCARD:
        return discard(s, map);
    case MAP_OP_GROW:
        return space_extend(s, map->addr, map->len);
    case MAP_OP_RESIZE:
        return replica_resize(s, map->rec.flags, map->aux);
    }
    return -EINVAL;
}

int space_apply(struct space *s, const struct trace_map *map, const char *path, int fd)
{
    int error = apply(s, map, path, fd);
    if (!error)
        replica_drop_unused(s);
    return error;
}

void space_clear(struct space *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vma *v = &s->vmas[i];
        if (v->prot & PROT_EXEC)
            code_invalidate(v->start, v->end);
        int error = host_unmap(v->start, v->end);
        if (error)
            BUG("cannot unmap guest memory 0x%lx-0x%lx: %s", (unsigned long)v->start, (unsigned long)v->end,
                strerror(-error));
    }
    free(s->vmas);
    free(s->exe);
    *s = (struct space){0};
    replica_drop_unused(s);
}

/* ---- free ranges ---- */

void space_set_mmap_top(struct space *s, uint64_t top)
{
    s->mmap_top = s->pick_from = top;
    s->pick_hole = 0;
}

/* The highest fit in the gap [low, high), or 0. */
static uint64_t fit(uint64_t low, uint64_t high, uint64_t len, uint64_t align)
{
    if (high < low || high - low < len)
        return 0;
    uint64_t at = (high - len) & ~(align - 1);
    return at >= low ? at : 0;
}

/*
 * Looks at the gaps of [low, high) from the top. *hole grows to the largest gap passed over; *stop is the
 * upper end of the gap that was taken.
 */
static uint64_t search_down(const struct space *s, uint64_t low, uint64_t high, uint64_t len, uint64_t align,
                            uint64_t *hole, uint64_t *stop)
{
    uint32_t i = high > low ? index_above(s, high - 1) : 0; /* the vma at or above the gap's upper end */
    if (i < s->count && room_below(&s->vmas[i]) < high)
        high = room_below(&s->vmas[i]);
    while (high > low) {
        uint64_t bottom = i && s->vmas[i - 1].end > low ? s->vmas[i - 1].end : low;
        uint64_t at = fit(bottom, high, len, align);
        if (at) {
            *stop = high;
            return at;
        }
        if (high > bottom && high - bottom > *hole)
            *hole = high - bottom;
        if (!i)
            break;
        high = room_below(&s->vmas[--i]);
    }
    return 0;
}

uint64_t space_pick_in(const struct space *s, uint64_t low, uint64_t high, uint64_t len, uint64_t align)
{
    uint64_t hole = 0, stop;
    return search_down(s, low, high, len, align, &hole, &stop);
}

uint64_t space_pick(struct space *s, uint64_t len, uint64_t align, uint64_t hint)
{
    if (hint && space_legal(hint, len) && !(hint % align) && space_roomy(s, hint, len))
        return hint;
    if (!s->mmap_top)
        space_set_mmap_top(s, GUEST_HIGH);
    if (len <= s->pick_hole)
        space_set_mmap_top(s, s->mmap_top);
    uint64_t stop = s->pick_from;
    uint64_t at = search_down(s, MMAP_LOW, s->pick_from, len, align, &s->pick_hole, &stop);
    if (at)
        s->pick_from = stop;
    return at ? at : space_pick_in(s, TABLES_HIGH, IMAGE_LOW, len, align);
}

bool space_shares_memory(const struct space *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].shared && (s->vmas[i].prot & PROT_WRITE))
            return true;
    return false;
}
