/* vfork_fast.c: whether a wait could see a keeper. FAST: see vfork.h. */
#include <linux/wait.h>

#include "engine/kernel/vfork.h"

int vfork_keeper;

bool slow_wait4(const struct sys_call *c)
{
    return vfork_keeper && (c->args[2] & (__WALL | __WCLONE));
}

bool slow_waitid(const struct sys_call *c)
{
    return vfork_keeper && (c->args[3] & (__WALL | __WCLONE));
}
