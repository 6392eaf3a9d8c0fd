/*
 * limits.c: resource limits of the guest that mean something else to the engine.
 *
 * RLIMIT_AS and RLIMIT_DATA count the engine's memory with the guest's, so a guest that lowers them would end
 * at once. They are kept here, inherited by fork and exec, reported as set, and not enforced; a note says so.
 * The soft limit of descriptors is the kernel's, too, and ours move out of the guest's range when it changes;
 * the hard one is only kept here, because once lowered it could not be raised for the engine's own needs.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/kernel/limits.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/memory/space.h"

static struct kept {
    bool set;
    struct rlimit value;
} kept_as, kept_data, kept_files;

static struct kept *kept_limit(uint32_t resource)
{
    switch (resource) {
    case RLIMIT_AS:
        return &kept_as;
    case RLIMIT_DATA:
        return &kept_data;
    case RLIMIT_NOFILE:
        return &kept_files;
    default:
        return NULL;
    }
}

/* The kernel's soft limit of descriptors follows the guest's. */
static int64_t limit_files(const struct rlimit *new)
{
    struct rlimit real;
    int64_t error = raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &real);
    if (error)
        return error;
    real.rlim_cur = new->rlim_cur;
    if (real.rlim_max < new->rlim_cur)
        real.rlim_max = new->rlim_max;
    error = raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &real, 0);
    if (!error)
        hostfd_settle();
    return error;
}

static int64_t current(uint32_t resource, struct rlimit *value)
{
    const struct kept *k = kept_limit(resource);
    if (!k->set)
        return raw4(SYS_prlimit64, 0, resource, 0, value);
    *value = k->value;
    return 0;
}

int limits_current(uint32_t resource, struct rlimit *value)
{
    return (int)current(resource, value);
}

/* Either address may be 0. */
static int64_t keep(struct task *t, uint32_t resource, uint64_t new_at, uint64_t old_at)
{
    struct kept *k = kept_limit(resource);
    struct rlimit new, old;
    int64_t error = current(resource, &old);
    if (error)
        return error;
    if (new_at) {
        if (guest_read(&new, new_at, sizeof new))
            return -EFAULT;
        if (new.rlim_cur > new.rlim_max)
            return -EINVAL;
        if (new.rlim_max > old.rlim_max && geteuid())
            return -EPERM;
        if (resource == RLIMIT_NOFILE && (error = limit_files(&new)))
            return error;
        if (resource != RLIMIT_NOFILE && new.rlim_cur != RLIM_INFINITY)
            event_note("the program's limit on its memory is not enforced");
        k->value = new;
        k->set = true;
    }
    if (!old_at)
        return 0;
    if (!space_allows(&guest_space, old_at, sizeof old, 2) || guest_write(old_at, &old, sizeof old))
        return -EFAULT;
    effect_add(t, old_at, sizeof old);
    return 0;
}

int64_t rec_getrlimit(struct task *t, struct sys_call *c)
{
    return c->result = keep(t, (uint32_t)c->args[0], 0, c->args[1]);
}

int64_t rec_setrlimit(struct task *t, struct sys_call *c)
{
    uint32_t resource = (uint32_t)c->args[0];
    if (kept_limit(resource))
        return c->result = c->args[1] ? keep(t, resource, c->args[1], 0) : -EFAULT;
    return sys_generic(t, c, &sys_table[c->nr]);
}

int64_t rec_prlimit64(struct task *t, struct sys_call *c)
{
    uint32_t resource = (uint32_t)c->args[1];
    bool own = !(int32_t)c->args[0] || (int32_t)c->args[0] == getpid();
    if (own && kept_limit(resource))
        return c->result = keep(t, resource, c->args[2], c->args[3]);
    return sys_generic(t, c, &sys_table[c->nr]);
}
