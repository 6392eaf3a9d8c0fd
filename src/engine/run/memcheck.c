/*
 * memcheck.c: see memcheck.h.
 *
 * The hash of a range is the sum of the hashes of its pages, each seeded with its address. Pages that are all
 * zero count as absent, since which untouched pages exist depends on the host; so do pages that cannot be
 * read.
 */
#include "engine/run/memcheck.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/guest/layout.h"
#include "engine/host/raw.h"
#include "engine/memory/space.h"

enum { BATCH = 512, RANGES_MAX = 2000 };
#define LARGEST (1ull << 30) /* mappings beyond are left out: address space that nobody fills */

#define PM_THERE (3ull << 62) /* present or swapped, in /proc/self/pagemap */

static uint64_t page_hash(uint64_t addr)
{
    static uint8_t page[PAGE_SIZE];
    if (safe_copy(page, (const void *)addr, sizeof page))
        return 0;
    if (!page[0] && !memcmp(page, page + 1, sizeof page - 1))
        return 0;
    return XXH64(page, sizeof page, addr);
}

/* What of v lies in [start, end). Untouched pages of private memory are not looked at: that would make them.
 */
static uint64_t part_hash(const struct vma *v, uint64_t start, uint64_t end, int pagemap)
{
    static uint64_t entries[BATCH];
    uint64_t hash = 0, low = v->start > start ? v->start : start, high = v->end < end ? v->end : end;
    bool all = v->file || v->shared;
    for (uint64_t at = low; at < high;) {
        uint64_t pages = (high - at) / PAGE_SIZE < BATCH ? (high - at) / PAGE_SIZE : BATCH;
        bool known =
            !all && raw4(SYS_pread64, pagemap, entries, pages * 8, at / PAGE_SIZE * 8) == (int64_t)pages * 8;
        for (uint64_t i = 0; i < pages; i++, at += PAGE_SIZE)
            if (!known || (entries[i] & PM_THERE))
                hash += page_hash(at);
    }
    return hash;
}

static uint64_t range_hash(uint64_t start, uint64_t end, int pagemap)
{
    uint64_t hash = 0;
    for (const struct vma *v = space_at_or_above(&guest_space, start); v && v->start < end;
         v = space_at_or_above(&guest_space, v->end))
        if (v->prot)
            hash += part_hash(v, start, end, pagemap);
    return hash;
}

static int open_pagemap(void)
{
    return (int)raw3(SYS_open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
}

static void close_pagemap(int fd)
{
    if (fd >= 0)
        raw1(SYS_close, fd);
}

/* ---- recording ---- */

static uint32_t wanted_every;

static void add_check(struct task *t)
{
    static struct trace_check ranges[RANGES_MAX];
    uint32_t n = 0;
    if (engine.ring->events % wanted_every || t->maps_count == 255)
        return;
    int pagemap = open_pagemap();
    for (uint32_t i = 0; i < guest_space.count && n < RANGES_MAX; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->prot && v->end - v->start <= LARGEST)
            ranges[n++] = (struct trace_check){v->start, v->end, range_hash(v->start, v->end, pagemap)};
    }
    close_pagemap(pagemap);
    uint32_t size = n * (uint32_t)sizeof *ranges;
    struct trace_map *m = event_map_room(t, (uint32_t)sizeof *m + size);
    m->rec = (struct trace_record){(uint32_t)sizeof *m + size, REC_MAP, 0};
    m->op = MAP_OP_CHECK;
    m->pathlen = (uint16_t)size;
    memcpy(m + 1, ranges, size);
}

void memcheck_record(uint32_t every)
{
    wanted_every = every;
    event_before_publish = add_check;
}

/* ---- replay ---- */

bool memcheck_holds(const struct trace_map *map, char *text, size_t size)
{
    enum { SHOWN = 8 };
    uint32_t differ = 0;
    size_t used = 0;
    const struct trace_check *c = (const struct trace_check *)(map + 1);
    int pagemap = open_pagemap();
    for (uint32_t i = 0; i < map->pathlen / sizeof *c; i++, c++) {
        if (range_hash(c->start, c->end, pagemap) == c->hash)
            continue;
        const struct vma *v = space_at_or_above(&guest_space, c->start);
        if (differ++ < SHOWN && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s0x%lx-0x%lx (%s)", differ > 1 ? ", " : "",
                                     (unsigned long)c->start, (unsigned long)c->end,
                                     !v || v->start >= c->end ? "not mapped"
                                     : v->file                ? v->file->path
                                     : v->growsdown           ? "stack"
                                                              : "anonymous");
    }
    close_pagemap(pagemap);
    return !differ;
}
