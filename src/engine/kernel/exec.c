/*
 * exec.c: execve inside the process: the guest is torn down and the new image loaded, with the kernel's
 * semantics.
 *
 * What the kernel would do to the process is done by hand: close-on-exec descriptors are closed, handlers
 * reset, timers deleted, the name and the memory descriptor's fields (for ps and /proc) set. Programs that
 * only the kernel can run (set-uid, 32-bit) get a real execve and leave the recording, which a note says.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/event/event.h"
#include "engine/event/session.h"
#include "engine/host/disposition.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/files.h"
#include "engine/kernel/prctl.h"
#include "engine/kernel/process.h"
#include "engine/kernel/procview.h"
#include "engine/kernel/running.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/vfork.h"
#include "engine/load/personality.h"
#include "engine/load/program.h"
#include "engine/translate/cache.h"

enum { ARGUMENTS_MAX = 6 << 20, ONE_ARGUMENT_MAX = 128 << 10 };

/* ---- arguments ---- */

struct strings { /* a NULL-terminated vector of copies */
    char **v;
    uint32_t count;
};

static void free_strings(struct strings *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->v[i]);
    free(s->v);
}

static int64_t append_string(struct strings *s, uint64_t addr, uint64_t *total)
{
    static char room[ONE_ARGUMENT_MAX + 1];
    int64_t n = guest_string(room, sizeof room, addr);
    if (n < 0)
        return n == -ENAMETOOLONG ? -E2BIG : n;
    *total += (uint64_t)n + 1 + 8;
    if (*total > ARGUMENTS_MAX)
        return -E2BIG;
    if ((s->count & (s->count + 1)) == 0) {
        char **v = realloc(s->v, (2 * (size_t)s->count + 2) * sizeof *v);
        if (!v)
            return -ENOMEM;
        s->v = v;
    }
    char *copy = strdup(room);
    if (!copy)
        return -ENOMEM;
    s->v[s->count++] = copy;
    return 0;
}

static int64_t read_strings(struct strings *s, uint64_t vector, uint64_t *total)
{
    *s = (struct strings){calloc(2, sizeof(char *)), 0};
    if (!s->v)
        return -ENOMEM;
    for (uint64_t at = vector; vector; at += 8) {
        uint64_t addr;
        if (guest_read(&addr, at, 8))
            return -EFAULT;
        if (!addr)
            break;
        int64_t error = append_string(s, addr, total);
        if (error)
            return error;
    }
    s->v[s->count] = NULL;
    return 0;
}

/* ---- what the kernel does to the process ---- */

static void close_on_exec(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d) { /* no /proc: try them all */
        for (int fd = 0; fd < FILE_TRACKED; fd++)
            if (!hostfd_is(fd) && (fcntl(fd, F_GETFD) & FD_CLOEXEC))
                close(fd);
        return;
    }
    int doomed[256];
    int n;
    do { /* closing while reading the directory is not reliable: collect first */
        n = 0;
        rewinddir(d);
        for (struct dirent *e; (e = readdir(d)) && n < 256;) {
            int fd = atoi(e->d_name), flags;
            if (e->d_name[0] == '.' || fd == dirfd(d) || hostfd_is(fd))
                continue;
            flags = fcntl(fd, F_GETFD);
            if (flags >= 0 && (flags & FD_CLOEXEC))
                doomed[n++] = fd;
        }
        for (int i = 0; i < n; i++)
            close(doomed[i]);
    } while (n == 256);
    closedir(d);
}

static void delete_timers(void)
{
    char text[4096];
    int fd = open("/proc/self/timers", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n;
    while ((n = read(fd, text, sizeof text - 1)) > 0) {
        text[n] = 0;
        for (const char *p = text; (p = strstr(p, "ID: ")); p += 4)
            raw1(SYS_timer_delete, atoi(p + 4));
        lseek(fd, 0, SEEK_SET);
    }
    close(fd);
}

/* ps and /proc see the guest's command; best effort, for it needs CONFIG_CHECKPOINT_RESTORE. */
static void describe_process(const struct space *s, const char *filename)
{
    const char *base = strrchr(filename, '/');
    char name[16] = {0};
    strncpy(name, base ? base + 1 : filename, 15);
    raw2(SYS_prctl, PR_SET_NAME, name);
    uint64_t host_break = (uint64_t)(uintptr_t)sbrk(0); /* libc's malloc lives off the real one */
    struct prctl_mm_map m = {
        .start_code = GUEST_LOW,
        .end_code = GUEST_LOW + 1,
        .start_data = GUEST_LOW,
        .end_data = GUEST_LOW + 1,
        .start_brk = host_break,
        .brk = host_break,
        .start_stack = s->arg_start,
        .arg_start = s->arg_start,
        .arg_end = s->arg_end,
        .env_start = s->env_start,
        .env_end = s->env_end,
        .auxv = (void *)s->auxv,
        .auxv_size = s->auxv_size,
        .exe_fd = (uint32_t)-1,
    };
    const struct vma *code = NULL;
    for (uint32_t i = 0; i < s->count && !code; i++)
        if (s->vmas[i].file && (s->vmas[i].prot & 4))
            code = &s->vmas[i];
    if (code) {
        m.start_code = m.start_data = code->start;
        m.end_code = m.end_data = code->end;
    }
    int64_t error = raw5(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &m, sizeof m, 0);
    if (error)
        LOG(process, "PR_SET_MM_MAP: %s", strerror((int)-error));
}

static void reset_process(struct task *t)
{
    hostfd_unshare();
    files_exec();
    close_on_exec();
    delete_timers();
    signals_exec(t);
    prctl_exec(t);
    vfork_set_clear_tid(0);
    raw2(SYS_set_robust_list, 0, 24);
}

/* ---- the new image ---- */

/* Loads p into an empty space whose ring is open, and publishes EV_START. */
static void start_program(struct task *t, struct program *p, char **argv, char **envp)
{
    memset(&t->regs, 0, sizeof t->regs);
    personality_exec();
    int error = program_load(&guest_space, p, argv, envp, &t->regs);
    if (error) {
        t->effects.count = t->maps_used = t->maps_count = 0;
        char text[256];
        snprintf(text, sizeof text, "%.150s could not be loaded: %s", p->path, strerror(-error));
        event_end(END_INTERNAL, EXIT_ENVIRONMENT, text);
        raw2(SYS_kill, raw0(SYS_getpid), SIGKILL);
    }
    running_set(p->fd);
    p->fd = -1;
    describe_process(&guest_space, p->filename);
    task_initial_vectors(t);
    t->regs.rflags = 0x202;
    struct trace_ev_start own = {.regs = t->regs, .brk = guest_space.brk};
    struct event_head head = {EV_START, 0,         0, t->regs.rip, 0, regs_hash(&t->regs, t->regs.rip),
                              &own,     sizeof own};
    task_reset_ticks(t);
    event_publish(t, &head);
}

static void publish_exec(struct task *t, const struct sys_call *c, uint32_t next)
{
    const struct trace_ev_exec own = {.next_space = next};
    struct event_head head = {EV_EXEC, 0,         (uint16_t)c->nr, t->call_pc, 0, engine.ring->call.hash,
                              &own,    sizeof own};
    event_publish(t, &head);
    event_end(END_EXEC, (int)next, NULL);
    vfork_leave();
}

static struct rlimit saved_limit; /* of descriptors, during an exec */

static _Noreturn void leave_recording(struct task *t, struct sys_call *c, const struct program *p,
                                      char **argv, char **envp)
{
    event_note("%s runs unrecorded: %s", p->path ? p->path : p->filename, p->why);
    publish_exec(t, c, 0);
    for (int signo = 1; signo <= 31; signo++)
        if ((SYNC_SIGNALS >> (signo - 1) & 1))
            signal(signo, SIG_DFL);
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, &t->blocked, 0, 8);
    hostfd_limit_restore(&saved_limit);
    personality_leave();
    if (c->nr == SYS_execveat)
        raw5(SYS_execveat, c->args[0], c->args[1], argv, envp, c->args[4]);
    else
        raw3(SYS_execve, c->args[0], argv, envp);
    _exit(127);
}

static void replace(struct task *t, struct sys_call *c, struct program *p, char **argv, char **envp)
{
    uint32_t old = engine.space_number, next = session_new_space();
    uint64_t event = engine.ring->events + 1;
    publish_exec(t, c, next);
    LOG(process, "space %u becomes space %u: %s", old, next, p->path);
    fcntl(p->fd, F_SETFD, 0); /* these two outlive close_on_exec */
    if (p->interpreter_fd >= 0)
        fcntl(p->interpreter_fd, F_SETFD, 0);
    reset_process(t);
    cache_exec();
    space_clear(&guest_space);
    session_open_ring(next);
    session_publish_space(old, event, SPACE_EXEC, p->path, argv);
    start_program(t, p, argv, envp);
    process_has_published();
}

/* As program_check, where /proc/self/exe is the guest's program. */
static int64_t check_program(struct program *p, int dirfd, const char *path, int flags, char **argv,
                             char **envp)
{
    const char *real = procview_exe_path(dirfd, path);
    int64_t error = program_check(p, real == path ? dirfd : AT_FDCWD, real, flags, argv, envp);
    if (!error && real != path) {
        free(p->filename);
        p->filename = strdup(path);
    }
    return error;
}

static int64_t exec_within_limits(struct task *t, struct sys_call *c, int dirfd, uint64_t path_addr,
                                  uint64_t argv_addr, uint64_t envp_addr, int flags)
{
    static char path[4096];
    struct strings argv = {0}, envp = {0};
    uint64_t total = 0;
    struct program p;
    int64_t error = guest_string(path, sizeof path, path_addr);
    if (error >= 0)
        error = read_strings(&argv, argv_addr, &total);
    if (!error)
        error = read_strings(&envp, envp_addr, &total);
    if (!error)
        error = check_program(&p, dirfd, path, flags, argv.v, envp.v);
    if (!error) {
        if (p.kind == PROGRAM_UNRECORDED)
            leave_recording(t, c, &p, argv.v, envp.v);
        replace(t, c, &p, argv.v, envp.v);
        program_free(&p);
    }
    free_strings(&argv);
    free_strings(&envp);
    return error;
}

static int64_t do_exec(struct task *t, struct sys_call *c, int dirfd, uint64_t path, uint64_t argv,
                       uint64_t envp, int flags)
{
    hostfd_limit_raise(&saved_limit);
    int64_t result = exec_within_limits(t, c, dirfd, path, argv, envp, flags);
    hostfd_limit_restore(&saved_limit);
    return result;
}

int64_t both_execve(struct task *t, struct sys_call *c)
{
    return do_exec(t, c, AT_FDCWD, c->args[0], c->args[1], c->args[2], 0);
}

int64_t both_execveat(struct task *t, struct sys_call *c)
{
    return do_exec(t, c, (int)c->args[0], c->args[1], c->args[2], c->args[3], (int)c->args[4]);
}

void process_begin(struct task *t, const char *path, char **argv, char **envp)
{
    struct program p;
    uint32_t number = session_new_space();
    session_open_ring(number);
    engine.control->program = getpid();
    personality_begin();
    int error = program_check(&p, AT_FDCWD, path, 0, argv, envp);
    if (error)
        die("cannot execute %s: %s", path, strerror(-error));
    if (p.kind == PROGRAM_UNRECORDED)
        die("%s cannot be recorded: %s", path, p.why);
    session_publish_space(0, 0, SPACE_ROOT, p.path, argv);
    start_program(t, &p, argv, envp);
    program_free(&p);
}
