/*
 * pagediff.c: see pagediff.h. pagemap has 8 bytes for each page of the address space; of those used here:
 *
 *     bit 63  present      bit 62  swapped      bit 61  page of a file or of shared memory
 *     bit 56  mapped by this process only (for a swapped page: not known)
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/pagediff.h"

enum { BATCH = 4096 };

#define PM_PRESENT   (1ull << 63)
#define PM_SWAPPED   (1ull << 62)
#define PM_FILE      (1ull << 61)
#define PM_EXCLUSIVE (1ull << 56)

struct run {
    void (*emit)(void *ctx, uint64_t addr, uint64_t len);
    void *ctx;
    uint64_t start, end;
};

static void flush(struct run *r)
{
    if (r->end > r->start)
        r->emit(r->ctx, r->start, r->end - r->start);
    r->start = r->end = 0;
}

static void add_page(struct run *r, uint64_t addr)
{
    if (r->end != addr) {
        flush(r);
        r->start = addr;
    }
    r->end = addr + PAGE_SIZE;
}

static bool changed(uint64_t entry)
{
    if (entry & PM_SWAPPED)
        return !(entry & PM_FILE);
    return (entry & PM_PRESENT) && (entry & PM_EXCLUSIVE) && !(entry & PM_FILE);
}

static int scan(int pagemap, const struct vma *v, struct run *r)
{
    static uint64_t entries[BATCH];
    for (uint64_t addr = v->start; addr < v->end;) {
        uint64_t pages = (v->end - addr) / PAGE_SIZE;
        if (pages > BATCH)
            pages = BATCH;
        ssize_t n = raw4(SYS_pread64, pagemap, entries, pages * 8, addr / PAGE_SIZE * 8);
        if (n < 0)
            return (int)n;
        if (n < 8)
            return -EIO;
        for (ssize_t i = 0; i < n / 8; i++, addr += PAGE_SIZE)
            if (changed(entries[i]))
                add_page(r, addr);
    }
    flush(r);
    return 0;
}

int pagediff_changed(const struct space *s, void (*emit)(void *ctx, uint64_t addr, uint64_t len), void *ctx)
{
    struct run r = {.emit = emit, .ctx = ctx};
    struct rlimit limit;
    hostfd_limit_raise(&limit); /* the guest's descriptors may be used up */
    int pagemap = (int)raw3(SYS_open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    hostfd_limit_restore(&limit);
    if (pagemap < 0)
        return pagemap;
    int error = 0;
    for (uint32_t i = 0; i < s->count && !error; i++)
        if (!s->vmas[i].shared)
            error = scan(pagemap, &s->vmas[i], &r);
    raw1(SYS_close, pagemap);
    return error;
}
