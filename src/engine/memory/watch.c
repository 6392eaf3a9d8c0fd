/* watch.c: see watch.h. */
#include "engine/memory/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/guest/engine.h"
#include "engine/memory/objects.h"
#include "engine/memory/space.h"

/* A page made read-only because a store to it changes the code at `code`: itself, or another view of the same
 * memory. */
struct watched {
    uint64_t page, code;
};

struct watch_hooks watch_hooks;
uint32_t watch_count;
static struct watched *watched; /* unordered: few programs have any */
static uint32_t capacity;

static int64_t find(uint64_t page)
{
    for (uint32_t i = 0; i < watch_count; i++)
        if (watched[i].page == page)
            return i;
    return -1;
}

static void watch_page(uint64_t page, uint64_t code)
{
    for (uint32_t i = 0; i < watch_count; i++)
        if (watched[i].page == page && watched[i].code == code)
            return;
    if (watch_count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        watched = realloc(watched, capacity * sizeof *watched);
        if (!watched)
            die("out of memory for the list of watched pages");
    }
    if (mprotect((void *)page, PAGE_SIZE, PROT_READ))
        BUG("cannot protect guest page 0x%lx", (unsigned long)page);
    watched[watch_count++] = (struct watched){page, code};
    LOG(xlate, "watching page %lx for code at %lx", (unsigned long)page, (unsigned long)code);
}

/* Writable views, elsewhere in this space, of the shared memory that the code page shows. */
static void watch_views(const struct vma *code_vma, uint64_t code)
{
    uint64_t offset = code - code_vma->start + code_vma->offset;
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (!v->shared || !v->object || v->object != code_vma->object || !(v->prot & PROT_WRITE) ||
            offset < v->offset || offset - v->offset >= v->end - v->start)
            continue;
        watch_page(v->start + (offset - v->offset), code);
    }
}

void watch_code(uint64_t start, uint64_t end)
{
    for (uint64_t page = PAGE_DOWN(start); page < end; page += PAGE_SIZE) {
        const struct vma *v = space_find(&guest_space, page);
        if (v && (v->prot & PROT_WRITE))
            watch_page(page, page);
        if (v && (v->shared || objects_differ(v)))
            watch_views(v, page);
    }
}

/* The page as the guest has it, or as that without writing. */
static int protect_page(uint64_t page, bool writable)
{
    const struct vma *v = space_find(&guest_space, page);
    int prot = v ? space_host_prot(v->prot) : PROT_NONE;
    return v ? mprotect((void *)page, PAGE_SIZE, writable ? prot : prot & ~PROT_WRITE) : 0;
}

static void drop(uint32_t i)
{
    uint64_t page = watched[i].page;
    watched[i] = watched[--watch_count];
    if (find(page) < 0)
        protect_page(page, true); /* fails where the mapping is going */
}

static void open_code(uint64_t code)
{
    for (uint32_t i = 0; i < watch_count;)
        if (watched[i].code == code)
            drop(i);
        else
            i++;
    watch_hooks.forget(code, code + PAGE_SIZE);
    LOG(xlate, "code page %lx is written", (unsigned long)code);
}

enum { BUSY_FAULTS = 1000, HEAT_SLOTS = 256 };

static struct heat { /* by the page of the code */
    uint64_t page;
    uint32_t faults;
} heat[HEAT_SLOTS];

static struct heat *heat_of(uint64_t page)
{
    return &heat[page / PAGE_SIZE % HEAT_SLOTS];
}

static void warm(uint64_t page)
{
    struct heat *h = heat_of(page);
    if (h->page != page)
        *h = (struct heat){.page = page};
    if (++h->faults == BUSY_FAULTS)
        LOG(xlate, "code page %lx is written often", (unsigned long)page);
}

bool watch_busy(uint64_t page)
{
    return heat_of(page)->page == page && heat_of(page)->faults >= BUSY_FAULTS;
}

bool watch_fault(uint64_t addr)
{
    int64_t i = find(PAGE_DOWN(addr));
    if (i < 0)
        return false;
    for (; i >= 0; i = find(PAGE_DOWN(addr))) {
        warm(watched[i].code);
        open_code(watched[i].code);
    }
    return true;
}

bool watch_open(uint64_t start, uint64_t end)
{
    bool any = false;
    for (uint32_t i = 0; i < watch_count;)
        if (watched[i].page >= PAGE_DOWN(start) && watched[i].page < end) {
            open_code(watched[i].code);
            any = true;
            i = 0;
        } else {
            i++;
        }
    return any;
}

void watch_restore(uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < watch_count; i++)
        if (watched[i].page >= start && watched[i].page < end && protect_page(watched[i].page, false))
            BUG("cannot protect guest page 0x%lx", (unsigned long)watched[i].page);
}

void code_invalidate(uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < watch_count;)
        if (watched[i].code >= start && watched[i].code < end)
            drop(i);
        else
            i++;
    watch_hooks.forget(start, end);
}

void code_mapped(const struct vma *v)
{
    watch_hooks.mapped(v);
}

#ifdef CLIO_VERIFY

/* The host can write [start, end) of v: code of other views of the same memory, and of these pages, must be
 * gone. */
static void verify_part(const struct vma *v, uint64_t start, uint64_t end)
{
    VERIFY(!(v->prot & PROT_EXEC) || !watch_hooks.holds(start, end),
           "code at 0x%lx-0x%lx lies in writable memory", (unsigned long)start, (unsigned long)end);
    uint64_t from = v->offset + (start - v->start), to = v->offset + (end - v->start);
    for (uint32_t i = 0; v->shared && v->object && i < guest_space.count; i++) {
        const struct vma *o = &guest_space.vmas[i];
        uint64_t low = o->offset > from ? o->offset : from, high = o->offset + (o->end - o->start);
        high = high < to ? high : to;
        VERIFY(o->object != v->object || !(o->prot & PROT_EXEC) || low >= high ||
                   !watch_hooks.holds(o->start + (low - o->offset), o->start + (high - o->offset)),
               "code at 0x%lx is writable at 0x%lx", (unsigned long)(o->start + (low - o->offset)),
               (unsigned long)(start + (low - from)));
    }
}

static void verify_mapping(uint64_t start, uint64_t end)
{
    for (const struct vma *v = space_at_or_above(&guest_space, start); v && v->start < end;
         v = space_at_or_above(&guest_space, v->end))
        verify_part(v, v->start > start ? v->start : start, v->end < end ? v->end : end);
}

/* Every call after which there are watched pages, and one in so many of the others, for reading the maps is
 * slow. */
void watch_verify(void)
{
    enum { ONE_IN = 16 };
    static unsigned calls;
    if (!watch_count && ++calls % ONE_IN)
        return;
    FILE *f = fopen("/proc/self/maps", "re");
    char line[8192], writable;
    unsigned long start, end;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %*1s%c", &start, &end, &writable) == 3 && writable == 'w')
            verify_mapping(start, end);
    if (f)
        fclose(f);
}

#else

void watch_verify(void)
{
}

#endif
