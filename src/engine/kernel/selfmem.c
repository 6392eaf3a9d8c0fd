/*
 * selfmem.c: writing to /proc/self/mem, which changes memory as a debugger would: read-only and executable pages, too. The
 * kernel does it, for the guest's mappings only, a page at a time; what it wrote are the call's effects.
 *
 * files_id of such a descriptor holds the process and the space whose memory it is (FILE_MEMORY in files_class). A forked
 * child's is still its parent's, and after exec it is nobody's.
 */
#include "engine/kernel/selfmem.h"

#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/host/raw.h"
#include "engine/memory/change.h"
#include "engine/memory/space.h"
#include "engine/memory/watch.h"

int64_t selfmem_opened(int fd)
{
    if (fd >= FILE_TRACKED) {
        raw1(SYS_close, fd);
        event_note("writing to /proc/self/mem through a descriptor above %d cannot be recorded",
                   FILE_TRACKED);
        return -EACCES;
    }
    files_id[fd] = (struct file_id){(uint64_t)getpid(), engine.space_number};
    files_class[fd] = FILE_MEMORY;
    return fd;
}

/* One page's part. Bytes written, or -errno. */
static int64_t write_part(struct task *t, int fd, uint64_t from, uint64_t to, uint64_t n)
{
    struct space *s = &guest_space;
    if (space_free(s, to, 1))
        change_grow(s, to);
    const struct vma *v = space_find(s, to);
    if (!v || (v->shared && !(v->prot & PROT_WRITE)))
        return -EIO;
    if (!v->prot) {
        event_note("writing through /proc/self/mem to memory that nobody may access cannot be recorded");
        return -EIO;
    }
    watch_open(to, to + n);
    space_content_changed(s, to, to + n);
    int64_t r = raw4(SYS_pwrite64, fd, from, n, to);
    if (r > 0)
        effect_add(t, to, (uint64_t)r);
    return r;
}

/* Bytes written; fewer than asked when the next could not be, and then *error says why. */
static uint64_t write_piece(struct task *t, int fd, const struct iovec *piece, uint64_t to, int64_t *error)
{
    uint64_t from = (uint64_t)piece->iov_base, done = 0;
    while (done < piece->iov_len && !*error) {
        uint64_t at = to + done, n = PAGE_SIZE - at % PAGE_SIZE;
        if (n > piece->iov_len - done)
            n = piece->iov_len - done;
        int64_t r = write_part(t, fd, from + done, at, n);
        if (r > 0)
            done += (uint64_t)r;
        if (r < (int64_t)n)
            *error = r < 0 ? r : -EIO;
    }
    return done;
}

/* Where the call writes; *moves when that is the descriptor's position. */
static int64_t position(const struct sys_call *c, bool *moves)
{
    bool given =
        c->nr == SYS_pwrite64 || c->nr == SYS_pwritev || (c->nr == SYS_pwritev2 && c->args[3] != UINT64_MAX);
    *moves = !given;
    return given ? (int64_t)c->args[3] : raw3(SYS_lseek, (int)c->args[0], 0, SEEK_CUR);
}

static int64_t write_all(struct task *t, struct sys_call *c, int fd)
{
    static struct iovec pieces[IOV_MAX];
    bool vector = c->nr != SYS_write && c->nr != SYS_pwrite64, moves;
    uint64_t count = vector ? c->args[2] : 1, done = 0;
    int64_t start = position(c, &moves), error = 0;
    if (c->nr == SYS_pwritev2 && c->args[5])
        return -EOPNOTSUPP;
    if (count > IOV_MAX || (start < 0 && !moves))
        return -EINVAL;
    pieces[0] = (struct iovec){(void *)c->args[1], c->args[2]};
    if (vector && guest_read(pieces, c->args[1], count * sizeof pieces[0]))
        return -EFAULT;
    for (uint64_t i = 0; i < count && !error; i++)
        done += write_piece(t, fd, &pieces[i], (uint64_t)start + done, &error);
    if (moves && done)
        raw3(SYS_lseek, fd, start + (int64_t)done, SEEK_SET);
    return done ? (int64_t)done : error;
}

int64_t rec_memory_write(struct task *t, struct sys_call *c)
{
    int fd = (int)c->args[0];
    if (files_id[fd].dev != (uint64_t)getpid()) {
        event_note(
            "a process wrote to another one's memory by its descriptor of /proc/self/mem: it was refused");
        return c->result = -EIO;
    }
    if (files_id[fd].ino != engine.space_number)
        return c->result = 0;
    return c->result = write_all(t, c, fd);
}
