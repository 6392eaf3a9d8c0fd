/*
 * crash.c: see crash.h.
 *
 * The engine's stderr is the guest's, so what it has to say goes into the trace (REC_END END_INTERNAL, which
 * `clio record` prints) and to the log descriptor, if there is one. In replay it goes to the hook of the
 * replayer.
 */
#include "engine/task/crash.h"

#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/event/event.h"
#include "engine/task/dispatch.h"
#include "engine/translate/translate.h"

static int report_fd = -1;
static bool ending;

void crash_end(const char *text)
{
    if (report_fd >= 0)
        dprintf(report_fd, "clio[%d]: %s\n", (int)getpid(), text);
    if (!ending) {
        ending = true;
        if (!engine.space_number && report_fd < 0)
            dprintf(2, "clio: %s\n", text); /* the guest has not begun */
        if (run_client)
            run_client->failed(text);
    }
    _exit(EXIT_ENVIRONMENT);
}

static void say(const char *text)
{
    if (!strncmp(text, "warning: ", 9))
        event_note("%s", text + 9);
    else
        crash_end(text);
}

void crash_init(int log_fd)
{
    report_fd = log_fd;
    error_set_hook(say);
}

void crash_host_fault(const siginfo_t *info, const ucontext_t *uc)
{
    char text[1024];
    const greg_t *g = uc->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)g[REG_RIP], guest_pc = 0, gprs[16];
    unsigned length;
    const struct task *t = engine.task;
    const char *where = "host code";
    if (cache_contains(pc))
        where = translate_state((struct task *)t, pc, &guest_pc, gprs, &length)
                    ? "the code cache outside any block"
                    : "the code cache";
    snprintf(text, sizeof text,
             "internal error: signal %d (code %d, address %p) in %s at %#lx; guest pc %#lx, last left at "
             "%#lx, event %lu",
             info->si_signo, info->si_code, info->si_addr, where, (unsigned long)pc,
             (unsigned long)(guest_pc ? guest_pc : t->regs.rip), (unsigned long)t->exit_pc,
             (unsigned long)(run_client ? run_client->events() : 0));
    if (report_fd >= 0) {
        void *frames[32];
        dprintf(report_fd, "clio[%d]: %s; rax %llx rcx %llx rdx %llx rsp %llx\n", (int)getpid(), text,
                g[REG_RAX], g[REG_RCX], g[REG_RDX], g[REG_RSP]);
        if (!cache_contains(pc))
            backtrace_symbols_fd(frames, backtrace(frames, 32), report_fd);
    }
    crash_end(text);
}
