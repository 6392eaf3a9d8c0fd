/* watch.c: see watch.h. */
#include "engine/translate/watch.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/engine.h"
#include "engine/translate/cache.h"

uint32_t watch_count;
static uint64_t *watched; /* page addresses, unordered: few programs have any */
static uint32_t capacity;

static int64_t find(uint64_t page)
{
    for (uint32_t i = 0; i < watch_count; i++)
        if (watched[i] == page)
            return i;
    return -1;
}

static void drop(uint32_t i)
{
    watched[i] = watched[--watch_count];
}

static void watch_page(uint64_t page)
{
    const struct vma *v = space_find(&engine.space, page);
    if (!v || !(v->prot & PROT_WRITE) || find(page) >= 0)
        return;
    if (watch_count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        watched = realloc(watched, capacity * sizeof *watched);
        if (!watched)
            die("out of memory for the list of watched pages");
    }
    if (mprotect((void *)page, PAGE_SIZE, PROT_READ))
        BUG("cannot protect guest page 0x%lx", (unsigned long)page);
    watched[watch_count++] = page;
    LOG(xlate, "watching code page %lx", (unsigned long)page);
}

void watch_code(uint64_t start, uint64_t end)
{
    for (uint64_t page = PAGE_DOWN(start); page < end; page += PAGE_SIZE)
        watch_page(page);
}

static void open_page(uint32_t i)
{
    uint64_t page = watched[i];
    drop(i);
    const struct vma *v = space_find(&engine.space, page);
    if (v && mprotect((void *)page, PAGE_SIZE, (int)(v->prot & ~(uint32_t)PROT_EXEC)))
        BUG("cannot open guest page 0x%lx", (unsigned long)page);
    cache_invalidate_range(page, page + PAGE_SIZE);
    LOG(xlate, "code page %lx is written", (unsigned long)page);
}

bool watch_fault(uint64_t addr)
{
    int64_t i = find(PAGE_DOWN(addr));
    if (i < 0)
        return false;
    open_page((uint32_t)i);
    return true;
}

void watch_open(uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < watch_count;)
        if (watched[i] >= PAGE_DOWN(start) && watched[i] < end)
            open_page(i);
        else
            i++;
}

void watch_forget(uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < watch_count;)
        if (watched[i] >= start && watched[i] < end)
            drop(i);
        else
            i++;
}

void code_invalidate(uint64_t start, uint64_t end)
{
    watch_forget(start, end);
    cache_invalidate_range(start, end);
}
