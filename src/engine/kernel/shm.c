/* shm.c: System V shared memory: attached where the engine chooses, recorded as it is then. See memory.h. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "engine/host/raw.h"
#include "engine/kernel/memory.h"
#include "engine/memory/change.h"
#include "engine/memory/objects.h"
#include "engine/memory/space.h"

static int64_t shm_address(struct space *s, uint64_t addr, uint64_t len, uint64_t flags)
{
    if (!addr) {
        if (flags & SHM_REMAP)
            return -EINVAL;
        uint64_t at = space_pick(s, len, PAGE_SIZE, 0);
        return at ? (int64_t)at : -ENOMEM;
    }
    if (addr % SHMLBA) {
        if (!(flags & SHM_RND))
            return -EINVAL;
        addr &= ~(uint64_t)(SHMLBA - 1);
        if (!addr && (flags & SHM_REMAP))
            return -EINVAL;
    }
    if (!space_legal(addr, len))
        return memory_refuse_address(addr, len);
    return (flags & SHM_REMAP) || space_free(s, addr, len) ? (int64_t)addr : -EINVAL;
}

int64_t rec_shmat(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    int id = (int)c->args[0];
    uint64_t flags = c->args[2];
    struct shmid_ds info;
    int64_t r = raw3(SYS_shmctl, id, IPC_STAT, &info);
    if (r < 0)
        return r;
    uint64_t len = PAGE_UP(info.shm_segsz);
    int64_t at = shm_address(s, c->args[1], len, flags);
    if (at < 0)
        return at;
    if ((flags & SHM_REMAP) && space_reserve(s, (uint64_t)at, (uint64_t)at + len))
        return memory_refuse_address((uint64_t)at, len);
    r = raw3(SYS_shmat, id, at, (flags & ~(uint64_t)SHM_EXEC) & ~(uint64_t)SHM_RND);
    if (r < 0)
        return r;
    struct vma v = {.start = (uint64_t)at,
                    .end = (uint64_t)at + len,
                    .prot = PROT_READ | (flags & SHM_RDONLY ? 0 : PROT_WRITE) |
                            ((flags & SHM_EXEC) || memory_implies_exec(PROT_READ) ? PROT_EXEC : 0),
                    .shared = true,
                    .flags = VMA_SHM,
                    .object = object_of(s, OBJECT_DEV_SYSV, (uint64_t)id)};
    int error = change_adopt(s, &v, "System V shared memory");
    return error ? error : at;
}

int64_t rec_shmget(struct task *t, struct sys_call *c)
{
    return raw3(SYS_shmget, c->args[0], c->args[1], c->args[2]);
}

/* Bytes that a successful shmctl command writes. */
static uint64_t shmctl_output(uint64_t command)
{
    switch ((int)command) {
    case IPC_STAT:
    case SHM_STAT:
    case SHM_STAT_ANY:
        return sizeof(struct shmid_ds);
    case IPC_INFO:
        return sizeof(struct shminfo);
    case SHM_INFO:
        return sizeof(struct shm_info);
    }
    return 0;
}

int64_t rec_shmctl(struct task *t, struct sys_call *c)
{
    int64_t r = raw3(SYS_shmctl, c->args[0], c->args[1], c->args[2]);
    if (r >= 0)
        effect_add(t, c->args[2], shmctl_output(c->args[1]));
    return r;
}

/* The first mapping at or above `from` that is a piece of what was attached at addr (object 0: of anything). */
static struct vma *attached_piece(const struct space *s, uint64_t from, uint64_t addr, uint16_t object)
{
    struct vma *v = space_at_or_above(s, from);
    while (v && (!(v->flags & VMA_SHM) || v->offset != v->start - addr || (object && v->object != object)))
        v = space_at_or_above(s, v->end);
    return v;
}

/* Takes all pieces that mprotect and munmap have left; unmapping detaches. */
int64_t rec_shmdt(struct task *t, struct sys_call *c)
{
    struct space *s = &guest_space;
    uint64_t addr = c->args[0];
    struct vma *v = addr % PAGE_SIZE ? NULL : attached_piece(s, addr, addr, 0);
    if (!v)
        return -EINVAL;
    int64_t error = 0;
    uint16_t object = v->object;
    for (uint64_t end; v && !error; v = attached_piece(s, end, addr, object)) {
        end = v->end;
        error = change_unmap(s, v->start, v->end - v->start);
    }
    return error;
}
