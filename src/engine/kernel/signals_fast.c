/* signals_fast.c: masks for the time of a call. See signals.h. */
#include <signal.h>

#include "engine/guest/access.h"
#include "engine/host/raw.h"
#include "engine/kernel/signals.h"

/* Where the call's mask is in guest memory; 0: it has none. */
static uint64_t temp_mask_at(const struct sys_call *c)
{
    uint64_t pair[2];
    switch (c->nr) {
    case SYS_rt_sigsuspend:
        return c->args[0];
    case SYS_ppoll:
        return c->args[3];
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
        return c->args[4];
    case SYS_pselect6:
        return c->args[5] && !guest_read(pair, c->args[5], sizeof pair) ? pair[0] : 0;
    }
    return 0;
}

void signals_note_temp_mask(struct task *t, const struct sys_call *c)
{
    const uint64_t never = 1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1);
    uint64_t at = temp_mask_at(c);
    t->temp_mask_set = at && !guest_read(&t->temp_mask, at, 8);
    t->temp_mask &= ~never;
}
