/* disposition.c: see disposition.h. */
#include "engine/host/disposition.h"

#include "engine/host/raw.h"

void (*disposition_handler)(int signo, siginfo_t *info, void *context);

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    uint64_t flags;
    void (*restorer)(void);
    uint64_t mask;
};

__asm__(".text\n.type signal_restorer,@function\nsignal_restorer: movl $15, %eax\nsyscall\n");
extern void signal_restorer(void);

enum { OF_CHILDREN = SA_NOCLDSTOP | SA_NOCLDWAIT };

static void set_action(int signo, uint64_t flags)
{
    struct kernel_action a = {disposition_handler,
                              flags | SA_SIGINFO | SA_ONSTACK | 0x04000000 /* SA_RESTORER */, signal_restorer,
                              ~0ull};
    raw4(SYS_rt_sigaction, signo, &a, 0, 8);
}

void disposition_catch(int signo, bool restart, uint64_t other_flags)
{
    set_action(signo, (restart ? SA_RESTART : 0) | (other_flags & OF_CHILDREN));
}

static bool is_sync(int signo)
{
    return SYNC_SIGNALS >> (signo - 1) & 1;
}

static void set_plain(int signo, uint64_t handler, uint64_t flags)
{
    struct kernel_action a = {.handler = (void (*)(int, siginfo_t *, void *))handler,
                              .flags = flags & OF_CHILDREN};
    if (is_sync(signo))
        set_action(signo, SA_RESTART);
    else
        raw4(SYS_rt_sigaction, signo, &a, 0, 8);
}

void disposition_default(int signo, uint64_t other_flags)
{
    set_plain(signo, 0, other_flags);
}

void disposition_ignore(int signo, uint64_t other_flags)
{
    set_plain(signo, 1, other_flags);
}

void disposition_mask(uint64_t blocked)
{
    uint64_t mask = blocked & ~SYNC_SIGNALS;
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
}
