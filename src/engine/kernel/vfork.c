/*
 * vfork.c: see vfork.h.
 *
 *   message: struct changed_range, then its bytes; end of file: the child is gone or has execed
 */
#include "engine/kernel/vfork.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "engine/event/event.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/pagediff.h"
#include "engine/memory/space.h"

struct changed_range {
    uint64_t addr, len;
};

static int vfork_pipe = -1; /* handle: this process is a vfork child whose parent waits */

static void write_all(int fd, const void *bytes, uint64_t n)
{
    for (const uint8_t *p = bytes; n;) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* the parent is gone: nobody wants it */
        p += done;
        n -= (uint64_t)done;
    }
}

static bool read_all(int fd, void *bytes, uint64_t n)
{
    for (uint8_t *p = bytes; n;) {
        ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        p += done;
        n -= (uint64_t)done;
    }
    return true;
}

static void send_range(void *context, uint64_t addr, uint64_t len)
{
    const struct changed_range r = {addr, len};
    const int *fd = context;
    write_all(*fd, &r, sizeof r);
    write_all(*fd, (const void *)addr, len);
}

void vfork_leave(void)
{
    if (vfork_pipe < 0)
        return;
    int handle = vfork_pipe, fd = hostfd(handle);
    vfork_pipe = -1;
    if (pagediff_changed(&guest_space, send_range, &fd))
        event_note("a vfork child's changes to its parent's memory could not be found");
    hostfd_drop(handle);
}

/* Takes over one page-multiple of the child's memory: only what differs becomes an effect. */
static void take_page(struct task *t, uint64_t addr, const uint8_t *bytes)
{
    const struct vma *v = space_find(&guest_space, addr);
    if (!v || !(v->prot & 2))
        return;
    const uint8_t *mine = (const uint8_t *)addr;
    for (uint64_t i = 0; i < PAGE_SIZE;) {
        if (mine[i] == bytes[i]) {
            i++;
            continue;
        }
        uint64_t end = i + 1, same = 0;
        for (uint64_t j = end; j < PAGE_SIZE && same < 32; j++)
            if (mine[j] == bytes[j]) {
                same++;
            } else {
                same = 0;
                end = j + 1;
            }
        memcpy((uint8_t *)addr + i, bytes + i, end - i);
        effect_add(t, addr + i, end - i);
        i = end;
    }
}

static void wait_for_child(struct task *t, int fd)
{
    struct changed_range r;
    static uint8_t page[4096];
    while (read_all(fd, &r, sizeof r))
        for (uint64_t done = 0; done < r.len; done += PAGE_SIZE) {
            if (!read_all(fd, page, PAGE_SIZE))
                return;
            take_page(t, r.addr + done, page);
        }
}

int64_t vfork_begin(struct vfork *v)
{
    if (vfork_pipe >= 0)
        event_note("a vfork child forked before it executed a program: memory it had changed before may not "
                   "reach its parent");
    return v->waits && pipe2(v->pair, O_CLOEXEC) ? -errno : 0;
}

void vfork_child(struct vfork *v)
{
    hostfd_drop(vfork_pipe); /* our parent's own wait is not ours */
    vfork_pipe = -1;
    if (v->waits) {
        close(v->pair[0]);
        vfork_pipe = hostfd_keep(v->pair[1]);
    }
}

void vfork_parent(struct vfork *v, struct task *t, int64_t pid)
{
    if (!v->waits)
        return;
    close(v->pair[1]);
    if (pid > 0)
        wait_for_child(t, v->pair[0]);
    close(v->pair[0]);
}
