/*
 * memory.c: see memory.h.
 *
 * Order of checks and errors follow mm/mmap.c, mprotect.c, mremap.c and madvise.c of Linux 6.x. What depends
 * on files and limits (EACCES, ENODEV, EAGAIN...) is left to the host's kernel, which gets the same call with
 * MAP_FIXED at the address chosen here. Execute permission is checked here, since the host's mappings never
 * have it.
 *
 * Content that would vanish when the kernel likes is made to vanish at once: MADV_FREE is MADV_DONTNEED.
 */
#include "engine/kernel/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/uio.h>
#include <linux/magic.h>
#include <linux/mman.h>
#include <linux/personality.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/host/raw.h"
#include "engine/kernel/mdwe.h"
#include "engine/memory/change.h"
#include "engine/memory/capture.h"
#include "engine/memory/objects.h"
#include "engine/load/personality.h"
#include "engine/load/slots.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

#define HUGE_PAGE     (2ull << 20)
#define MAP_HUGE_BITS ((int)((unsigned)MAP_HUGE_MASK << MAP_HUGE_SHIFT))

/* Flags that MAP_SHARED_VALIDATE accepts. */
enum {
    MAP_KNOWN = MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE | MAP_GROWSDOWN | MAP_LOCKED |
                MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK | MAP_HUGETLB | MAP_32BIT |
                MAP_HUGE_BITS
};
enum { PROT_ALL = PROT_READ | PROT_WRITE | PROT_EXEC };

int64_t memory_refuse_address(uint64_t addr, uint64_t len)
{
    if (addr < GUEST_LOW)
        return -EPERM; /* vm.mmap_min_addr */
    event_note("the program asked for memory at 0x%lx-0x%lx, which Clio cannot give it", (unsigned long)addr,
               (unsigned long)(addr + len));
    return -ENOMEM;
}

/* ---- mmap ---- */

/* A mapping being made. */
struct request {
    uint64_t addr, len, offset;
    uint32_t prot;
    int flags, fd; /* fd -1: anonymous */
    bool shared;
    uint64_t align;
    struct stat st; /* of fd */
};

bool memory_is_zero_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 5);
}

/* MAP_TYPE and the flags that depend on it. */
static int64_t check_type(struct request *r)
{
    switch (r->flags & MAP_TYPE) {
    case MAP_SHARED_VALIDATE:
        if (r->fd < 0)
            return -EINVAL;
        if (r->flags & ~(MAP_TYPE | MAP_KNOWN))
            return -EOPNOTSUPP; /* MAP_SYNC, too: as a file system without DAX */
        r->shared = true;
        break;
    case MAP_SHARED:
        r->shared = true;
        break;
    case MAP_PRIVATE:
        break;
    default:
        return -EINVAL;
    }
    if ((r->flags & MAP_GROWSDOWN) && r->fd < 0 && r->shared)
        return -EINVAL;
    return 0;
}

int64_t rec_personality(struct task *t, struct sys_call *c)
{
    return personality_change((uint32_t)c->args[0]);
}

bool memory_implies_exec(uint32_t prot)
{
    return (prot & PROT_READ) && personality_has(READ_IMPLIES_EXEC);
}

/* Nothing of these file systems runs, though statfs does not say so. */
static bool never_executable(uint64_t magic)
{
    return magic == PIPEFS_MAGIC || magic == SOCKFS_MAGIC || magic == ANON_INODE_FS_MAGIC ||
           magic == PROC_SUPER_MAGIC || magic == SYSFS_MAGIC;
}

static bool on_noexec(int fd)
{
    struct statfs fs;
    return !fstatfs(fd, &fs) && ((fs.f_flags & ST_NOEXEC) || never_executable((uint64_t)fs.f_type));
}

/* What the descriptor was opened for. */
static int64_t check_access(const struct request *r)
{
    int mode = r->fd < 0 ? O_RDWR : fcntl(r->fd, F_GETFL) & O_ACCMODE;
    if (mode == O_WRONLY || (mode == O_RDONLY && r->shared && (r->prot & PROT_WRITE)))
        return -EACCES;
    return 0;
}

/* Execute permission of file mappings. */
static int64_t check_exec(struct request *r, bool *noexec)
{
    *noexec = r->fd >= 0 && on_noexec(r->fd);
    if (!*noexec && memory_implies_exec(r->prot))
        r->prot |= PROT_EXEC;
    if (*noexec && (r->prot & PROT_EXEC))
        return -EPERM;
    return mdwe_denies(r->prot, r->prot) ? -EACCES : 0;
}

static uint64_t huge_size(int flags)
{
    int shift = (flags >> MAP_HUGE_SHIFT) & MAP_HUGE_MASK;
    return shift ? 1ull << shift : HUGE_PAGE;
}

static int64_t check_fixed(const struct space *s, const struct request *r)
{
    if (r->len > USER_END || r->addr > USER_END - r->len)
        return -ENOMEM;
    if (r->addr % PAGE_SIZE)
        return -EINVAL;
    if (!space_legal(r->addr, r->len))
        return memory_refuse_address(r->addr, r->len);
    if ((r->flags & MAP_FIXED_NOREPLACE) && !space_free(s, r->addr, r->len))
        return -EEXIST;
    return 0;
}

/* The first mapping that a dynamic linker makes of a library: at the library's slot, with room for the rest.
 */
static uint64_t pick_slot(struct space *s, const struct request *r)
{
    struct slot_need need;
    if (r->fd < 0 || r->shared || r->addr || r->offset || !S_ISREG(r->st.st_mode) || !slot_need(r->fd, &need))
        return 0;
    if (need.span < r->len)
        need.span = r->len;
    return slot_pick(s, &need);
}

/* The address that a hint means: huge pages round it up. */
static uint64_t hint_of(const struct request *r)
{
    uint64_t hint =
        (r->flags & MAP_HUGETLB) ? (r->addr + r->align - 1) & ~(r->align - 1) : PAGE_DOWN(r->addr);
    return hint && hint < GUEST_LOW ? GUEST_LOW : hint;
}

static uint64_t pick_address(struct space *s, const struct request *r)
{
    uint64_t hint = hint_of(r);
    if (r->flags & MAP_32BIT) {
        if (hint && hint + r->len <= 0x80000000ull && space_legal(hint, r->len) &&
            space_roomy(s, hint, r->len))
            return hint;
        uint64_t at = space_pick_in(s, SLOTS_HIGH, HOST_LOW, r->len, r->align);
        if (!at)
            at = space_pick_in(s, HOST_HIGH, 0x80000000ull, r->len, r->align);
        return at ? at : space_pick_in(s, GUEST_LOW, SLOTS_HIGH, r->len, r->align);
    }
    uint64_t at = pick_slot(s, r);
    return at ? at : space_pick(s, r->len, r->align, hint);
}

static int64_t choose_address(struct space *s, struct request *r)
{
    if (r->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
        return check_fixed(s, r);
    if (r->len > USER_END)
        return -ENOMEM;
    r->addr = pick_address(s, r);
    return r->addr ? 0 : -ENOMEM;
}

/* As change_map; a hint where the kernel has put something of the engine's is no longer followed. */
static int map_there(struct space *s, struct request *r, struct vma *v, int host_flags)
{
    int error = change_map(s, v, r->fd, host_flags);
    if (error != -EEXIST)
        return error;
    if (r->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
        return (int)memory_refuse_address(r->addr, r->len);
    r->addr = space_pick(s, r->len, r->align, 0);
    v->start = r->addr;
    v->end = r->addr + r->len;
    return r->addr ? change_map(s, v, r->fd, host_flags) : -ENOMEM;
}

static int64_t perform(struct space *s, struct request *r, bool noexec)
{
    struct vma v = {.start = r->addr,
                    .end = r->addr + r->len,
                    .prot = r->prot,
                    .shared = r->shared,
                    .growsdown = (r->flags & MAP_GROWSDOWN) && r->fd < 0 && !r->shared,
                    .flags = noexec ? VMA_NOEXEC : 0,
                    .offset = r->fd >= 0 ? r->offset : 0};
    if (r->fd >= 0)
        v.file = file_capture(r->fd, NULL);
    int host_flags =
        r->flags & (MAP_NORESERVE | MAP_POPULATE | MAP_LOCKED | MAP_HUGETLB | MAP_NONBLOCK | MAP_HUGE_BITS);
    if (r->fd >= 0)
        host_flags |= r->flags & MAP_GROWSDOWN; /* which the kernel refuses, in its turn */
    int error = map_there(s, r, &v, host_flags);
    if (error)
        return error;
    if (v.file && v.shared && (v.prot & PROT_WRITE))
        file_changes(v.file);
    if (r->fd >= 0 && r->shared && !S_ISREG(r->st.st_mode))
        event_note("a device or socket is mapped: what it writes to memory by itself is not recorded");
    return (int64_t)r->addr;
}

/* Length, flags and descriptor, in the kernel's order. */
static int64_t check_request(struct request *r)
{
    if (r->offset % PAGE_SIZE)
        return -EINVAL;
    if (r->fd >= 0 && (fstat(r->fd, &r->st) || (fcntl(r->fd, F_GETFL) & O_PATH)))
        return -EBADF;
    r->align = PAGE_SIZE;
    if (r->flags & MAP_HUGETLB) {
        if (r->fd >= 0)
            return -EINVAL;
        r->align = huge_size(r->flags);
        if (r->len > UINT64_MAX - r->align)
            return -ENOMEM;
        r->len = (r->len + r->align - 1) & ~(r->align - 1);
    }
    if (!r->len)
        return -EINVAL;
    r->len = PAGE_UP(r->len);
    return r->len ? 0 : -ENOMEM;
}

/* The zero device shows memory, private or shared, that is nobody's. */
static int64_t be_anonymous(struct request *r)
{
    r->fd = -1;
    r->offset = 0;
    return (r->flags & MAP_GROWSDOWN) ? -EINVAL : 0;
}

int64_t rec_mmap(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    struct request r = {.addr = c->args[0],
                        .len = c->args[1],
                        .prot = c->args[2] & PROT_ALL,
                        .flags = (int)c->args[3],
                        .fd = (int)c->args[4],
                        .offset = c->args[5]};
    if (r.flags & MAP_ANONYMOUS)
        r.fd = -1;
    else if (r.fd < 0)
        return r.offset % PAGE_SIZE ? -EINVAL : -EBADF;
    int64_t error = check_request(&r);
    if (error)
        return error;
    bool noexec = false, zero = r.fd >= 0 && memory_is_zero_device(&r.st);
    if ((r.fd < 0 || zero) && r.align == PAGE_SIZE && r.len % HUGE_PAGE == 0 && !r.addr)
        r.align = HUGE_PAGE;
    error = choose_address(s, &r);
    if (!error)
        error = check_type(&r);
    if (!error)
        error = check_access(&r);
    if (!error)
        error = check_exec(&r, &noexec);
    if (!error && zero)
        error = be_anonymous(&r);
    return error ? error : perform(s, &r, noexec);
}

int64_t rec_munmap(struct task *t, struct sys_call *c)
{
    uint64_t addr = c->args[0], len = c->args[1];
    if (addr % PAGE_SIZE || addr > 1ull << 47 || len > (1ull << 47) - addr || !PAGE_UP(len))
        return -EINVAL;
    return change_unmap(&guest_space, addr, PAGE_UP(len));
}

/* ---- mprotect ---- */

/* End of the mapped stretch that begins at start, at most end; start itself when nothing is mapped there. */
static uint64_t mapped_until(const struct space *s, uint64_t start, uint64_t end)
{
    const struct vma *v = space_find(s, start);
    while (v && v->end < end) {
        const struct vma *next = space_find(s, v->end);
        if (!next)
            return v->end;
        v = next;
    }
    return v ? end : start;
}

/* A writable shared mapping may have come to be. */
static void note_writable(const struct space *s, uint64_t start, uint64_t end)
{
    for (struct vma *v = space_at_or_above(s, start); v && v->start < end; v = space_at_or_above(s, v->end))
        if (v->shared && v->file) {
            file_changes(v->file);
            objects[v->object].changed = true;
        }
}

/* As the kernel, one mapping after the other, up to the first that refuses. */
static int64_t protect_each(struct space *s, uint64_t start, uint64_t end, uint32_t prot)
{
    while (start < end) {
        const struct vma *v = space_find(s, start);
        if (!v)
            return -ENOMEM;
        uint64_t stop = v->end < end ? v->end : end;
        if ((prot & PROT_EXEC) && (v->flags & VMA_NOEXEC))
            return -EACCES;
        uint32_t exec = memory_implies_exec(prot) && !(v->flags & VMA_NOEXEC) ? PROT_EXEC : 0;
        if (mdwe_denies(v->prot, prot | exec))
            return -EACCES;
        int error = change_protect(s, start, stop - start, prot | exec);
        if (error)
            return error;
        start = stop;
    }
    return 0;
}

/* Some of the range may not be executable. */
static bool any_noexec(const struct space *s, uint64_t start, uint64_t end, uint32_t prot)
{
    for (struct vma *v = space_at_or_above(s, start); v && v->start < end; v = space_at_or_above(s, v->end))
        if ((v->flags & VMA_NOEXEC) || mdwe_denies(v->prot, prot))
            return true;
    return false;
}

/* pkey: -1, or a key that cannot be right because none was ever allocated. */
static int64_t protect(const struct sys_call *c, int pkey)
{
    struct space *s = &guest_space;
    uint64_t start = c->args[0], len = c->args[1], prot = c->args[2];
    uint64_t grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
    prot &= ~(uint64_t)(PROT_GROWSDOWN | PROT_GROWSUP);
    if (grows == (PROT_GROWSDOWN | PROT_GROWSUP) || start % PAGE_SIZE)
        return -EINVAL;
    if (!len)
        return 0;
    len = PAGE_UP(len);
    uint64_t end = start + len;
    if (end <= start)
        return -ENOMEM;
    if ((prot & ~(uint64_t)(PROT_ALL | PROT_SEM)) || pkey != -1)
        return -EINVAL;
    prot &= PROT_ALL;
    if (grows) {
        struct vma *v = space_at_or_above(s, start);
        if (!v || v->start >= end || (grows == PROT_GROWSUP && v->start > start))
            return -ENOMEM;
        if (grows != PROT_GROWSDOWN || !v->growsdown)
            return -EINVAL;
        start = v->start;
    }
    uint64_t stop = mapped_until(s, start, end);
    if (stop == start)
        return -ENOMEM;
    int64_t error = -EACCES;
    if (!memory_implies_exec((uint32_t)prot) &&
        (!(prot & PROT_EXEC) || !any_noexec(s, start, stop, (uint32_t)prot)))
        error = change_protect(s, start, stop - start, (uint32_t)prot);
    if (error == -EACCES)
        error = protect_each(s, start, stop, (uint32_t)prot);
    if (prot & PROT_WRITE)
        note_writable(s, start, stop);
    return error ? error : stop < end ? -ENOMEM : 0;
}

int64_t rec_mprotect(struct task *t, struct sys_call *c)
{
    return protect(c, -1);
}

int64_t rec_pkey_mprotect(struct task *t, struct sys_call *c)
{
    return protect(c, (int)c->args[3]);
}

/* ---- mremap ---- */

struct remap {
    uint64_t old, old_len, len, target;
    uint64_t flags;
    struct vma v; /* of old */
};

/* old_len 0: a second mapping of shared memory. */
static int64_t remap_alias(struct space *s, const struct remap *m, uint64_t at)
{
    int64_t r = space_reserve(s, at, at + m->len);
    if (!r)
        r = raw5(SYS_mremap, m->old, 0, m->len, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    if (r < 0)
        return r;
    struct vma v = m->v;
    v.offset += m->old - v.start;
    v.start = at;
    v.end = at + m->len;
    return v.object ? change_alias(s, &v) : change_adopt(s, &v, "a second view of a device");
}

/* Private memory moves away and leaves empty memory behind. */
static int64_t remap_keeping(struct space *s, const struct remap *m, uint64_t at)
{
    if (m->v.file)
        return change_move_keeping(s, at, m->old, m->len);
    int error = change_move(s, at, m->len, m->old, m->old_len);
    if (error)
        return error;
    struct vma rest = m->v;
    rest.start = m->old;
    rest.end = m->old + m->old_len;
    error = change_map(s, &rest, -1, MAP_NORESERVE);
    if (error)
        event_note("mremap(MREMAP_DONTUNMAP) could not keep 0x%lx mapped: error %d", (unsigned long)m->old,
                   -error);
    return 0;
}

/* Shared memory that stays behind is the same memory: MREMAP_DONTUNMAP then is a second mapping. */
static int64_t remap_to(struct space *s, const struct remap *m, uint64_t at)
{
    bool keeps = m->flags & MREMAP_DONTUNMAP;
    int64_t error = !m->old_len || (keeps && m->v.shared) ? remap_alias(s, m, at)
                    : keeps                               ? remap_keeping(s, m, at)
                                                          : change_move(s, at, m->len, m->old, m->old_len);
    if (error == -EEXIST)
        return memory_refuse_address(at, m->len);
    return error < 0 ? error : (int64_t)at;
}

/* Where a mapping that may move goes, or an error. */
static int64_t remap_address(struct space *s, const struct remap *m)
{
    if (m->flags & MREMAP_FIXED)
        return space_legal(m->target, m->len) ? (int64_t)m->target : memory_refuse_address(m->target, m->len);
    uint64_t hint = m->flags & MREMAP_DONTUNMAP ? m->target : 0;
    uint64_t align = m->len % HUGE_PAGE || m->v.file || hint ? PAGE_SIZE : HUGE_PAGE;
    uint64_t at = space_pick(s, m->len, align, hint);
    return at ? (int64_t)at : -ENOMEM;
}

/* From Linux 6.17 on, several mappings may be moved at once where none changes its size. */
static bool kernel_moves_several(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    static int known;
    if (!known) {
        int64_t at = raw6(SYS_mmap, 0, 4 * PAGE_SIZE, PROT_NONE, flags, (uint64_t)-1, 0);
        raw3(SYS_mprotect, at, PAGE_SIZE, PROT_READ);
        uint64_t to = (uint64_t)at + 2 * PAGE_SIZE;
        known = raw5(SYS_mremap, at, 2 * PAGE_SIZE, 2 * PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) < 0 ? -1
                                                                                                          : 1;
        raw2(SYS_munmap, at, 4 * PAGE_SIZE);
    }
    return known > 0;
}

/* Moves one mapping after the other; gaps between them stay gaps. */
static int64_t remap_several(struct space *s, struct remap *m)
{
    uint64_t from = m->old, end = m->old + m->old_len, to = m->target;
    const struct vma *v = space_find(s, from);
    for (; v && v->start < end; v = space_at_or_above(s, from)) {
        m->v = *v;
        m->old = v->start > from ? v->start : from;
        m->target = to + (m->old - from);
        m->len = m->old_len = (v->end < end ? v->end : end) - m->old;
        from = m->old + m->len;
        to = m->target + m->len;
        int64_t at = remap_address(s, m);
        if (at >= 0)
            at = remap_to(s, m, (uint64_t)at);
        if (at < 0)
            return at;
        if (from >= end)
            break;
    }
    return 0;
}

/* What is wrong whatever is mapped. */
static int64_t check_remap(const struct remap *m)
{
    if (m->flags & ~(uint64_t)(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP))
        return -EINVAL;
    if (m->old % PAGE_SIZE || !m->len || m->len > USER_END)
        return -EINVAL;
    if (!(m->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
        return 0;
    if (m->target % PAGE_SIZE || m->target > USER_END - m->len || !(m->flags & MREMAP_MAYMOVE))
        return -EINVAL;
    if ((m->flags & MREMAP_DONTUNMAP) && m->old_len != m->len)
        return -EINVAL;
    return m->target < m->old + m->old_len && m->old < m->target + m->len ? -EINVAL : 0;
}

int64_t rec_mremap(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    struct remap m = {.old = c->args[0],
                      .old_len = PAGE_UP(c->args[1]),
                      .len = PAGE_UP(c->args[2]),
                      .flags = c->args[3],
                      .target = c->args[4]};
    int64_t at = check_remap(&m);
    if (at)
        return at;
    const struct vma *v = space_find(s, m.old);
    if (!v)
        return -EFAULT;
    m.v = *v;
    bool moves = m.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
    if (!moves && m.old_len && m.len <= m.old_len) {
        int64_t error = m.len < m.old_len ? change_unmap(s, m.old + m.len, m.old_len - m.len) : 0;
        return error ? error : (int64_t)m.old;
    }
    if (!m.old_len && !v->shared)
        return -EINVAL;
    if (v->end - m.old < m.old_len && (m.flags & MREMAP_FIXED) && m.old_len == m.len &&
        kernel_moves_several()) {
        uint64_t target = m.target;
        at = remap_several(s, &m);
        return at < 0 ? at : (int64_t)target;
    }
    if (v->end - m.old < (m.len < m.old_len ? m.len : m.old_len))
        return -EFAULT;
    if (m.len < m.old_len) {
        int error = change_unmap(s, m.old + m.len, m.old_len - m.len);
        if (error)
            return error;
        m.old_len = m.len;
        v = space_find(s, m.old);
    }
    bool at_end = m.old_len && v->end == m.old + m.old_len;
    if (!moves && at_end && space_legal(m.old, m.len) && space_free(s, v->end, m.len - m.old_len))
        return remap_to(s, &m, m.old);
    if (!(m.flags & MREMAP_MAYMOVE))
        return -ENOMEM;
    at = remap_address(s, &m);
    return at < 0 ? at : remap_to(s, &m, (uint64_t)at);
}

/* Shows other pages of what a shared mapping shows. */
int64_t rec_remap_file_pages(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    uint64_t start = PAGE_DOWN(c->args[0]), len = PAGE_DOWN(c->args[1]);
    const struct vma *v = space_find(s, start);
    if (c->args[2] || !len || start + len <= start || !v || !v->shared || !v->object || v->end - start < len)
        return -EINVAL;
    int64_t r = raw5(SYS_remap_file_pages, start, len, 0, c->args[3], c->args[4]);
    if (r < 0)
        return r;
    struct vma shown = *v;
    shown.start = start;
    shown.end = start + len;
    shown.offset = c->args[3] * PAGE_SIZE;
    return change_alias(s, &shown);
}

/* ---- brk ---- */

static bool brk_within_limit(const struct space *s, uint64_t brk)
{
    struct rlimit limit;
    return brk < BRK_HIGH && !(getrlimit(RLIMIT_DATA, &limit) == 0 && brk - s->brk_start > limit.rlim_cur);
}

int64_t rec_brk(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    uint64_t brk = c->args[0];
    if (brk < s->brk_start || !brk_within_limit(s, brk))
        return (int64_t)s->brk;
    uint64_t old_end = PAGE_UP(s->brk), end = PAGE_UP(brk);
    int error = 0;
    if (end < old_end) {
        error = change_unmap(s, end, old_end - end);
    } else if (end > old_end) {
        uint32_t prot = PROT_READ | PROT_WRITE | (memory_implies_exec(PROT_READ) ? PROT_EXEC : 0);
        struct vma v = {.start = old_end, .end = end, .prot = prot};
        error = space_free(s, old_end, end - old_end + PAGE_SIZE) ? change_map(s, &v, -1, 0) : -ENOMEM;
    }
    if (!error)
        s->brk = brk;
    return (int64_t)s->brk;
}

/* ---- madvise ---- */

/* What fork shall do with the range is remembered and done by memory_forked. */
static int64_t advise_fork(struct space *s, uint64_t start, uint64_t len, int advice)
{
    uint64_t end = start + len;
    for (struct vma *v = space_at_or_above(s, start); v && v->start < end; v = space_at_or_above(s, v->end))
        if (advice == MADV_WIPEONFORK && (v->file || v->shared))
            return -EINVAL;
    uint8_t set = advice == MADV_WIPEONFORK ? VMA_WIPE : advice == MADV_DONTFORK ? VMA_DROP : 0;
    uint8_t clear = advice == MADV_KEEPONFORK ? VMA_WIPE : advice == MADV_DOFORK ? VMA_DROP : 0;
    int error = space_flag(s, start, len, set, clear);
    return error ? error : mapped_until(s, start, end) < end ? -ENOMEM : 0;
}

/* MADV_FREE is for private anonymous memory. */
static bool can_free(const struct space *s, uint64_t start, uint64_t end)
{
    for (struct vma *v = space_at_or_above(s, start); v && v->start < end; v = space_at_or_above(s, v->end))
        if (v->file || v->shared)
            return false;
    return true;
}

/* The advice failed: where. The kernel goes from mapping to mapping, and those before have lost their
 * content. */
static uint64_t dropped_until(const struct space *s, uint64_t start, uint64_t end, int advice)
{
    const struct vma *v = space_at_or_above(s, start);
    for (; v && v->start < end; v = space_at_or_above(s, v->end)) {
        uint64_t from = v->start > start ? v->start : start, to = v->end < end ? v->end : end;
        if (raw3(SYS_madvise, from, to - from, advice))
            return from;
    }
    return end;
}

static int64_t advise(struct space *s, uint64_t start, uint64_t size, int advice)
{
    uint64_t len = PAGE_UP(size);
    if (advice == MADV_GUARD_INSTALL || advice == MADV_GUARD_REMOVE)
        return -EINVAL; /* as before Linux 6.13 */
    if (advice == MADV_HWPOISON || advice == MADV_SOFT_OFFLINE) {
        event_note("advice to poison memory was refused");
        return -EPERM;
    }
    if (start % PAGE_SIZE || (size && !len) || start + len < start)
        return -EINVAL;
    if (len && !space_within(start, start + len)) {
        int64_t unknown = raw3(SYS_madvise, start, 0, advice);
        return unknown ? unknown : -ENOMEM;
    }
    switch (advice) {
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
        return len ? advise_fork(s, start, len, advice) : 0;
    case MADV_FREE:
        if (!can_free(s, start, start + len))
            return -EINVAL;
        advice = MADV_DONTNEED;
        break;
    }
    if (advice == MADV_REMOVE || advice == MADV_POPULATE_WRITE)
        watch_open(start, start + len); /* for both ask whether it can be written */
    int64_t r = raw3(SYS_madvise, start, len, advice);
    if (advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED || advice == MADV_REMOVE) {
        uint64_t until = !r || r == -ENOMEM ? start + len : dropped_until(s, start, start + len, advice);
        if (until > start)
            change_discard(s, start, until - start, advice == MADV_REMOVE);
    }
    return r;
}

int64_t rec_madvise(struct task *t, struct sys_call *c)
{
    return advise(&guest_space, c->args[0], c->args[1], (int)c->args[2]);
}

/* Whether a pidfd that the kernel takes means this process: the number behind it, or one of the names for oneself. */
static bool pidfd_is_self(int fd)
{
    char name[48], line[128];
    int pid = 0;
    if (fd <= -10000)
        return true;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(name, "re");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "Pid: %d", &pid);
    if (f)
        fclose(f);
    return pid == getpid();
}

static bool discards(int advice)
{
    return advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED || advice == MADV_FREE ||
           advice == MADV_REMOVE;
}

/* To oneself, any advice may be given (from Linux 6.13 on): each range is as one call of madvise. */
int64_t rec_process_madvise(struct task *t, struct sys_call *c)
{
    static _Alignas(4096) uint8_t scratch[PAGE_SIZE];
    struct iovec v, own = {scratch, sizeof scratch};
    uint64_t count = c->args[2], done = 0;
    int advice = (int)c->args[3];
    int64_t r = raw5(SYS_process_madvise, c->args[0], &own, 0, advice, c->args[4]);
    if (r < 0 || !pidfd_is_self((int)c->args[0]))
        return r < 0 ? r : raw5(c->nr, c->args[0], c->args[1], count, advice, c->args[4]);
    if (count > IOV_MAX)
        return -EINVAL;
    if (discards(advice) && (r = raw5(SYS_process_madvise, c->args[0], &own, 1, MADV_DONTNEED, 0)) < 0)
        return r;
    for (uint64_t i = 0; i < count; i++)
        if (guest_read(&v, c->args[1] + i * sizeof v, sizeof v))
            return -EFAULT;
    for (uint64_t i = 0; i < count; i++) {
        if (guest_read(&v, c->args[1] + i * sizeof v, sizeof v))
            return -EFAULT;
        r = advise(&guest_space, (uint64_t)v.iov_base, v.iov_len, advice);
        if (r < 0)
            return done ? (int64_t)done : r;
        done += v.iov_len;
    }
    return (int64_t)done;
}

void memory_forked(struct task *t)
{
    struct space *s = &guest_space;
    for (uint64_t at = 0; space_at_or_above(s, at);) {
        struct vma v = *space_at_or_above(s, at);
        at = v.end;
        if (v.flags & VMA_DROP) {
            if (change_unmap(s, v.start, v.end - v.start))
                event_note("memory at 0x%lx that fork should drop stayed", (unsigned long)v.start);
        } else if (v.flags & VMA_WIPE) {
            if (raw3(SYS_madvise, v.start, v.end - v.start, MADV_DONTNEED))
                event_note("memory at 0x%lx that fork should wipe stayed", (unsigned long)v.start);
            else
                change_discard(s, v.start, v.end - v.start, false);
        }
    }
}

/* ---- calls that look at pages or pin them: as the kernel, but the host's pages are not there ---- */

static int64_t pass_range(const struct sys_call *c)
{
    uint64_t start = c->args[0], end = start + c->args[1];
    if (end >= start && c->args[1] && !space_within(PAGE_DOWN(start), PAGE_UP(end)))
        return -ENOMEM;
    return raw3(c->nr, start, c->args[1], c->args[2]);
}

int64_t rec_msync(struct task *t, struct sys_call *c)
{
    return pass_range(c);
}

int64_t rec_mlock(struct task *t, struct sys_call *c)
{
    return pass_range(c);
}

int64_t rec_mlock2(struct task *t, struct sys_call *c)
{
    return pass_range(c);
}

int64_t rec_munlock(struct task *t, struct sys_call *c)
{
    return pass_range(c);
}

int64_t rec_mincore(struct task *t, struct sys_call *c)
{
    int64_t r = pass_range(c);
    if (!r)
        effect_add(t, c->args[2], PAGE_UP(c->args[1]) / PAGE_SIZE);
    return r;
}

/*
 * Locking everything would lock the host's memory, too; whether pages are resident is nothing the guest can
 * tell but by time, so only the answer is given.
 */
int64_t rec_mlockall(struct task *t, struct sys_call *c)
{
    uint64_t flags = c->args[0];
    struct rlimit limit;
    if (!flags || flags & ~(uint64_t)(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) || flags == MCL_ONFAULT)
        return -EINVAL;
    return !getrlimit(RLIMIT_MEMLOCK, &limit) && !limit.rlim_cur && geteuid() ? -EPERM : 0;
}

int64_t rec_munlockall(struct task *t, struct sys_call *c)
{
    return 0;
}

/* ---- refused, as kernels that lack them ---- */

int64_t rec_mseal(struct task *t, struct sys_call *c)
{
    return -ENOSYS;
}
