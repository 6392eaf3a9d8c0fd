/*
 * replica.c: see replica.h.
 *
 * An object gets its replica at the first change. The mappings it has by then are made again over the
 * replica; pages of private ones that the guest has written to (pagemap: not a page of a file) are carried
 * over.
 */
#include "engine/memory/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/guest/access.h"
#include "engine/host/raw.h"
#include "engine/memory/objects.h"
#include "engine/memory/space.h"

enum { CHUNK = 1 << 16, LOWEST_FD = 100 };

#define PM_PRESENT (1ull << 63)
#define PM_SWAPPED (1ull << 62)
#define PM_FILE    (1ull << 61)

int (*replica_open)(const uint8_t hash[32]);

static struct replica {
    uint16_t object;
    int fd, clone;    /* clone: for a child being forked */
    uint8_t hash[32]; /* of the capture that was taken over last; 0 for memory */
} * replicas;
static uint32_t count, capacity;

static struct replica *find(uint16_t object)
{
    for (uint32_t i = 0; object && i < count; i++)
        if (replicas[i].object == object)
            return &replicas[i];
    return NULL;
}

int replica_fd(uint16_t object)
{
    const struct replica *r = find(object);
    return r ? r->fd : -1;
}

static const struct vma *view_of(const struct space *s, uint16_t object)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].object == object)
            return &s->vmas[i];
    return NULL;
}

/* ---- content ---- */

static int zero_range(int fd, uint64_t from, uint64_t to)
{
    return from < to
               ? (int)raw4(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from)
               : 0;
}

static int copy_bytes_of(int to, int from, uint64_t at, uint64_t end)
{
    static uint8_t ours[CHUNK], theirs[CHUNK];
    while (at < end) {
        size_t n = end - at < CHUNK ? end - at : CHUNK;
        ssize_t got = pread(from, theirs, n, (off_t)at);
        if (got <= 0)
            return got ? -errno : -EIO;
        if (pread(to, ours, (size_t)got, (off_t)at) != got || memcmp(ours, theirs, (size_t)got))
            if (pwrite(to, theirs, (size_t)got, (off_t)at) != got)
                return -errno;
        at += (uint64_t)got;
    }
    return 0;
}

/* Makes [at, end) of `to` what it is in `from`, as far as that reaches. Holes stay holes. */
static int copy_range(int to, int from, uint64_t at, uint64_t end)
{
    struct stat st;
    if (fstat(from, &st))
        return -errno;
    if (end > (uint64_t)st.st_size)
        end = (uint64_t)st.st_size;
    while (at < end) {
        off_t data = lseek(from, (off_t)at, SEEK_DATA);
        if (data < 0 || (uint64_t)data > end)
            data = (off_t)end;
        off_t hole = (uint64_t)data < end ? lseek(from, data, SEEK_HOLE) : data;
        if (hole < 0 || (uint64_t)hole > end)
            hole = (off_t)end;
        int error = zero_range(to, at, (uint64_t)data);
        if (!error)
            error = copy_bytes_of(to, from, (uint64_t)data, (uint64_t)hole);
        if (error)
            return error;
        at = (uint64_t)hole;
    }
    return 0;
}

static int new_memory(uint64_t size)
{
    int fd = memfd_create("replica", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD); /* never a standard descriptor */
    int error = high < 0 || ftruncate(high, (off_t)size) ? -errno : 0;
    close(fd);
    if (error && high >= 0)
        close(high);
    return error ? error : high;
}

static int take_range(const struct replica *r, int content, const struct vma *v)
{
    return copy_range(r->fd, content, v->offset, v->offset + (v->end - v->start));
}

/* ---- mappings ---- */

struct copies { /* pages of a private mapping that are not the object's */
    uint64_t *addr;
    uint8_t (*page)[PAGE_SIZE];
    uint32_t count, capacity;
};

static bool is_copy(uint64_t entry)
{
    return (entry & (PM_PRESENT | PM_SWAPPED)) && !(entry & PM_FILE);
}

static int save_page(struct copies *c, uint64_t addr)
{
    if (c->count == c->capacity) {
        uint32_t more = c->capacity ? 2 * c->capacity : 16;
        uint64_t *addrs = realloc(c->addr, more * sizeof *c->addr);
        if (addrs)
            c->addr = addrs;
        void *pages = addrs ? realloc(c->page, more * sizeof *c->page) : NULL;
        if (!pages)
            return -ENOMEM;
        c->page = pages;
        c->capacity = more;
    }
    int64_t error = raw3(SYS_mprotect, addr, PAGE_SIZE, PROT_READ);
    if (error)
        return (int)error;
    memcpy(c->page[c->count], (const void *)addr, PAGE_SIZE);
    c->addr[c->count++] = addr;
    return 0;
}

static int read_pagemap(uint64_t addr, uint64_t *entries, uint64_t pages)
{
    static int fd = -1;
    static int owner; /* a fork's child must not read its parent's */
    if (fd >= 0 && owner != getpid()) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        int low = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, LOWEST_FD);
        int error = fd < 0 ? -errno : 0;
        if (low >= 0)
            close(low);
        if (error)
            return error;
        owner = getpid();
    }
    ssize_t n = pread(fd, entries, pages * 8, (off_t)(addr / PAGE_SIZE * 8));
    return n == (ssize_t)(pages * 8) ? 0 : n < 0 ? -errno : -EIO;
}

static int save_copies(struct copies *c, const struct vma *v)
{
    static uint64_t entries[512];
    for (uint64_t addr = v->start; addr < v->end;) {
        uint64_t pages = (v->end - addr) / PAGE_SIZE < 512 ? (v->end - addr) / PAGE_SIZE : 512;
        int error = read_pagemap(addr, entries, pages);
        for (uint64_t i = 0; i < pages && !error; i++, addr += PAGE_SIZE)
            if (is_copy(entries[i]))
                error = save_page(c, addr);
        if (error)
            return error;
    }
    return 0;
}

static int restore_copies(const struct copies *c, const struct vma *v)
{
    for (uint32_t i = 0; i < c->count; i++) {
        int64_t error = raw3(SYS_mprotect, c->addr[i], PAGE_SIZE, PROT_READ | PROT_WRITE);
        if (error)
            return (int)error;
        /* a page beyond the end is gone in the recording, too */
        (void)safe_copy((void *)c->addr[i], c->page[i], PAGE_SIZE);
    }
    return c->count ? space_host_protect(v) : 0;
}

/* Maps v again over its object's replica. */
static int place(const struct vma *v)
{
    struct copies copies = {0};
    int error = v->shared ? 0 : save_copies(&copies, v);
    if (!error)
        error = space_host_map(v);
    if (!error)
        error = restore_copies(&copies, v);
    free(copies.addr);
    free(copies.page);
    return error;
}

static int place_all(const struct space *s, uint16_t object)
{
    space_object_changed(s, object, 0,
                         ~0ull); /* with the watch on its pages, which mapping them again would undo */
    for (uint32_t i = 0; i < s->count; i++) {
        int error = s->vmas[i].object == object ? place(&s->vmas[i]) : 0;
        if (error)
            return error;
    }
    return 0;
}

/* ---- birth and death ---- */

static void drop(struct replica *r)
{
    close(r->fd);
    objects[r->object].changed = false;
    *r = replicas[--count];
}

static struct replica *add(uint16_t object, uint64_t size, int *error)
{
    if (count == capacity) {
        uint32_t more = capacity ? 2 * capacity : 16;
        struct replica *wider = realloc(replicas, more * sizeof *replicas);
        if (!wider) {
            *error = -ENOMEM;
            return NULL;
        }
        replicas = wider;
        capacity = more;
    }
    int fd = new_memory(size);
    *error = fd < 0 ? fd : 0;
    if (fd < 0)
        return NULL;
    struct replica *r = &replicas[count++];
    *r = (struct replica){.object = object, .fd = fd, .clone = -1};
    objects[object].changed = true;
    LOG(map, "object %u has a replica of %lu bytes", object, (unsigned long)size);
    return r;
}

/* Gives the file that v shows a replica with the content that was captured. */
static int promote(const struct space *s, const struct vma *v)
{
    struct stat st;
    int error, content = replica_open(v->file->hash);
    if (content < 0)
        return content;
    if (fstat(content, &st)) {
        error = -errno;
        close(content);
        return error;
    }
    uint16_t object = v->object;
    struct replica *r = add(object, (uint64_t)st.st_size, &error);
    if (r)
        memcpy(r->hash, v->file->hash, sizeof r->hash);
    for (uint32_t i = 0; i < s->count && !error; i++)
        if (s->vmas[i].object == object)
            error = take_range(r, content, &s->vmas[i]);
    close(content);
    return error ? error : place_all(s, object);
}

void replica_drop_unused(const struct space *s)
{
    for (uint32_t i = 0; i < count;)
        if (view_of(s, replicas[i].object))
            i++;
        else
            drop(&replicas[i]);
}

/* ---- changes of the space ---- */

/* The file has been captured anew: v and, where that may differ, every other view show this content. */
static int take_over(const struct space *s, struct replica *r, const struct vma *v, const uint8_t hash[32],
                     int content, uint64_t size)
{
    struct stat st;
    if (fstat(r->fd, &st) || ((uint64_t)st.st_size != size && ftruncate(r->fd, (off_t)size)))
        return -errno;
    int error = take_range(r, content, v);
    if (!memcmp(r->hash, hash, sizeof r->hash))
        return error;
    for (uint32_t i = 0; i < s->count && !error; i++)
        if (s->vmas[i].object == v->object)
            error = take_range(r, content, &s->vmas[i]);
    memcpy(r->hash, hash, sizeof r->hash);
    space_object_changed(s, v->object, 0, ~0ull);
    return error;
}

int replica_map_file(const struct space *s, const struct vma *v, const uint8_t hash[32], int content)
{
    static const uint8_t none[32];
    struct stat st = {.st_size = 0};
    const struct vma *other = view_of(s, v->object);
    struct replica *r = find(v->object);
    bool as_it_is = !memcmp(hash, none, sizeof none);
    int error = 0;
    if (as_it_is && !other)
        return -EINVAL;
    if (!as_it_is && fstat(content, &st))
        return -errno;
    if (r && !other) {
        drop(r);
        r = NULL;
    }
    if (!r && !as_it_is && !(v->shared && (v->prot & PROT_WRITE)) &&
        (!other || !memcmp(other->file->hash, hash, sizeof none)))
        return 0;
    if (!r && other)
        error = promote(s, other);
    else if (!r)
        add(v->object, (uint64_t)st.st_size, &error);
    if (error || as_it_is)
        return error;
    return take_over(s, find(v->object), v, hash, content, (uint64_t)st.st_size);
}

int replica_map_memory(const struct space *s, const struct vma *v)
{
    int error = 0;
    struct replica *r = find(v->object);
    if (view_of(s, v->object))
        return r ? 0 : -EINVAL;
    if (r)
        drop(r);
    add(v->object, v->offset + (v->end - v->start), &error);
    return error;
}

int replica_make_writable(const struct space *s, uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vma *v = &s->vmas[i];
        if (v->start >= end || v->end <= start || !v->shared || !v->object || find(v->object))
            continue;
        int error = promote(s, v);
        if (error)
            return error;
    }
    return 0;
}

/* The object's replica, made if need be. */
static int replica_for(const struct space *s, const struct vma *v)
{
    int error = find(v->object) ? 0 : v->file ? promote(s, v) : -EINVAL;
    return error ? error : replica_fd(v->object);
}

int replica_resize(const struct space *s, uint16_t object, uint64_t size)
{
    const struct vma *v = view_of(s, object);
    if (!object || !v)
        return -EINVAL;
    int fd = replica_for(s, v);
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)size))
        return -errno;
    space_object_changed(s, object, PAGE_UP(size), ~0ull);
    return 0;
}

int replica_remove(uint16_t object, uint64_t offset, uint64_t end)
{
    return zero_range(replica_fd(object), offset, end);
}

/* ---- content changed by calls ---- */

bool replica_copied(const struct vma *v, uint64_t addr)
{
    uint64_t entry;
    return !v->shared && !read_pagemap(PAGE_DOWN(addr), &entry, 1) && is_copy(entry);
}

int replica_store(const struct space *s, const struct vma *v, uint64_t addr, const uint8_t *bytes,
                  uint64_t len)
{
    uint64_t offset = v->offset + (addr - v->start), page = PAGE_DOWN(offset);
    struct stat st;
    int fd = replica_for(s, v);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) || (PAGE_UP(st.st_size) < page + PAGE_SIZE && ftruncate(fd, (off_t)(offset + len))))
        return -errno;
    /* through a mapping: bytes behind the end of the file, in its last page, are memory like the others */
    uint8_t *p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
    if (p == MAP_FAILED)
        return -errno;
    if (bytes)
        memcpy(p + (offset - page), bytes, len);
    else
        memset(p + (offset - page), 0, len);
    munmap(p, PAGE_SIZE);
    space_object_changed(s, v->object, offset, offset + len);
    return 0;
}

/* ---- fork ---- */

int replica_fork_begin(void)
{
    for (uint32_t i = 0; i < count; i++) {
        struct replica *r = &replicas[i];
        struct stat st;
        if (fstat(r->fd, &st))
            return -errno;
        r->clone = new_memory((uint64_t)st.st_size);
        int error = r->clone < 0 ? r->clone : copy_range(r->clone, r->fd, 0, (uint64_t)st.st_size);
        if (error)
            return error;
    }
    return 0;
}

int replica_fork_child(const struct space *s)
{
    for (uint32_t i = 0; i < count; i++) {
        struct replica *r = &replicas[i];
        close(r->fd);
        r->fd = r->clone;
        r->clone = -1;
        int error = place_all(s, r->object);
        if (error)
            return error;
    }
    return 0;
}

void replica_fork_parent(void)
{
    for (uint32_t i = 0; i < count; i++) {
        close(replicas[i].clone);
        replicas[i].clone = -1;
    }
}
