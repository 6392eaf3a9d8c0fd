/* replay.c: see replay.h. */
#include "engine/run/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "clio/trace.h"
#include "engine/run/diverge.h"
#include "engine/task/dispatch.h"
#include "engine/event/event.h"
#include "engine/run/memcheck.h"
#include "engine/cpu/xsave.h"
#include "engine/task/nondet.h"
#include "engine/host/raw.h"
#include "engine/run/stop.h"
#include "engine/task/task_init.h"
#include "engine/kernel/prctl.h"
#include "engine/kernel/process.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/table.h"
#include "engine/memory/replica.h"
#include "engine/translate/cache.h"
#include "engine/translate/decode.h"
#include "engine/memory/watch.h"
#include "trace/event_reader.h"
#include "trace/header.h"
#include "protocol/replay_shared.h"

static struct replay_options options;
static struct clio_source *source;
static struct trace_reader *reader;
static struct trace_item next; /* the event to come, when have_next */
static bool have_next;
static uint32_t maps_applied; /* of the event to come: stacks have grown already */
static uint32_t unborn; /* no event is to come, but this child's fork was under way when the space was cut */
static uint64_t done;   /* number of the last event replayed */

static uint64_t last_event(void)
{
    return done;
}

/* ---- reports and the end ---- */

static void report(const char *text)
{
    struct replay_shared *s = options.shared;
    if (!s) {
        fprintf(stderr, "clio: %s\n", text);
        return;
    }
    if (!__atomic_exchange_n(&s->text_lock, 1, __ATOMIC_ACQ_REL))
        snprintf(s->text, sizeof s->text, "%s", text);
}

static void count(uint32_t *which)
{
    if (options.shared)
        __atomic_fetch_add(which, 1, __ATOMIC_RELAXED);
}

/* Waits for the replays of children, so that the whole tree has ended when the root has. */
static _Noreturn void leave(int status)
{
    while (wait(NULL) > 0 || errno == EINTR)
        continue;
    _exit(status);
}

static void abort_all(void)
{
    struct replay_shared *s = options.shared;
    if (!s)
        return;
    __atomic_store_n(&s->abort, 1, __ATOMIC_SEQ_CST);
    raw3(SYS_futex, &s->turn, FUTEX_WAKE, INT32_MAX);
}

void replay_fail(const char *format, ...)
{
    char text[4000], line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "space %u after event %lu: %s", engine.space_number, (unsigned long)done,
             text);
    report(line);
    if (options.shared)
        count(&options.shared->failed);
    abort_all();
    leave(EXIT_ENVIRONMENT);
}

static _Noreturn void diverged(struct task *t, const struct observed *o)
{
    char text[4096];
    diverge_describe(text, sizeof text, t, have_next ? &next : NULL, o, done);
    report(text);
    if (options.shared)
        count(&options.shared->diverged);
    abort_all();
    leave(EXIT_NOT_SO);
}

static _Noreturn void space_done(void)
{
    LOG(event, "space %u: replayed to its end, %lu events", engine.space_number, (unsigned long)done);
    stop_at_end();
    if (options.shared)
        count(&options.shared->spaces_done);
    leave(EXIT_DONE);
}

static _Noreturn void space_cut(void)
{
    LOG(event, "space %u: replayed up to the cut after event %lu", engine.space_number, (unsigned long)done);
    stop_at_end();
    if (options.shared)
        count(&options.shared->spaces_cut);
    leave(EXIT_DONE);
}

/* ---- events ---- */

/* A space that this one was forking when it was killed: the child lived, the parent's event did not. */
static uint32_t unborn_child(void)
{
    const struct clio_space_info *spaces;
    size_t n;
    struct clio_error error;
    if (!clio_source_spaces(source, &spaces, &n, &error))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (spaces[i].origin == CLIO_ORIGIN_FORK && spaces[i].parent == engine.space_number &&
            spaces[i].parent_event == done + 1)
            return spaces[i].space;
    return 0;
}

/* Loads the event to come; ends the replay where the trace ends. */
static void look_ahead(void)
{
    have_next = false;
    maps_applied = 0;
    unborn = 0;
    enum clio_next n;
    while ((n = trace_reader_next(reader, &next)) == CLIO_NOTHING_YET)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    if (n == CLIO_RECORD) {
        have_next = true;
        return;
    }
    if (n == CLIO_ERROR)
        replay_fail("%s", trace_reader_error(reader)->text);
    if (n == CLIO_CUT_HERE && done && (unborn = unborn_child()))
        return;
    if (n == CLIO_CUT_HERE)
        space_cut();
    space_done();
}

static bool is_preempting(const struct trace_event *e)
{
    return e->rec.kind == EV_SIGNAL && !(e->rec.flags & (EVF_ENTRY | EVF_EXIT | EVF_SYNC));
}

/* Sets the tick budget so that the guest leaves the cache where the event to come is due, if ticks decide. */
static void set_budget(struct task *t)
{
    task_reset_ticks(t);
    if (!have_next)
        return;
    if (is_preempting(next.event))
        t->budget = t->tick_base = (int64_t)next.event->ticks - 1;
    stop_set_budget(t, done, next.number);
}

/* Opens files/HASH, or -errno. */
static int open_content(const uint8_t hash[32])
{
    char name[4200];
    int n = snprintf(name, sizeof name, "%s/files/", clio_source_path(source));
    for (int i = 0; i < 32; i++)
        n += snprintf(name + n, 3, "%02x", hash[i]);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void apply_map(const struct trace_map *m)
{
    static const uint8_t none[32];
    char path[4096];
    bool captured = m->op == MAP_OP_FILE && memcmp(m->file, none, sizeof none);
    int fd = captured ? open_content(m->file) : -1;
    snprintf(path, sizeof path, "%.*s", (int)m->pathlen, trace_map_path(m));
    if (captured && fd < 0)
        replay_fail("cannot open the captured content of %s in the trace's files/: %s", path, strerror(-fd));
    int error = space_apply(&guest_space, m, m->pathlen ? path : NULL, fd);
    if (fd >= 0)
        close(fd);
    if (error)
        replay_fail("cannot repeat a mapping change at %#lx (%lu bytes): %s", (unsigned long)m->addr,
                    (unsigned long)m->len, strerror(-error));
}

static void apply_maps(void)
{
    for (; maps_applied < next.nmaps; maps_applied++)
        if (next.maps[maps_applied]->op != MAP_OP_CHECK)
            apply_map(next.maps[maps_applied]);
}

/* Growth by accesses of the guest comes before everything else of the event. */
static bool replay_grow(uint64_t addr)
{
    const struct trace_map *m = have_next && maps_applied < next.nmaps ? next.maps[maps_applied] : NULL;
    if (!m || m->op != MAP_OP_GROW || addr < m->addr || addr - m->addr >= m->len)
        return false;
    apply_map(m);
    maps_applied++;
    return true;
}

/*
 * Sets bytes of one page that the guest itself cannot write: a read-only view of a file that the program
 * wrote, or memory that was written through /proc/self/mem, or by a vfork child that then protected it. A page beyond
 * the end of the captured file, which was there because the file grew, becomes memory of its own.
 */
static bool store_in_view(const struct vma *v, uint64_t addr, const uint8_t *bytes, uint64_t len)
{
    uint64_t page = PAGE_DOWN(addr);
    bool done_so = !raw3(SYS_mprotect, page, PAGE_SIZE, PROT_READ | PROT_WRITE) &&
                   (!safe_copy((void *)addr, bytes, len) ||
                    (raw6(SYS_mmap, page, PAGE_SIZE, PROT_READ | PROT_WRITE,
                          MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0) == (int64_t)page &&
                     !safe_copy((void *)addr, bytes, len)));
    raw3(SYS_mprotect, page, PAGE_SIZE, space_host_prot(v->prot));
    return done_so;
}

/* Sets bytes of one page. */
static bool store_in_page(const struct vma *v, uint64_t addr, const uint8_t *bytes, uint64_t len)
{
    if (!safe_copy((void *)addr, bytes, len))
        return true;
    if (v->shared && replica_fd(v->object) >= 0)
        return !replica_store(&guest_space, v, addr, bytes, len);
    bool stored = (v->file || !v->shared) && store_in_view(v, addr, bytes, len);
    if (v->prot & PROT_EXEC)
        code_invalidate(addr, addr + len);
    return stored;
}

/* Sets bytes of one page's file; all mappings show them, except where the page is a private copy. */
static bool store_in_file(const struct vma *v, uint64_t addr, const uint8_t *bytes, uint64_t len)
{
    if (!v->object || replica_copied(v, addr))
        return store_in_page(v, addr, bytes, len);
    return !replica_store(&guest_space, v, addr, bytes, len);
}

/* Sets guest memory, a page at a time; bytes NULL: to zero. */
static bool store_pages(uint64_t addr, const uint8_t *bytes, uint64_t len, bool file)
{
    static const uint8_t zero_page[PAGE_SIZE];
    watch_open(addr, addr + len);
    for (uint64_t at = addr, n; at < addr + len; at += n) {
        const struct vma *v = space_find(&guest_space, at);
        const uint8_t *from = bytes ? bytes + (at - addr) : zero_page;
        n = PAGE_DOWN(at) + PAGE_SIZE - at;
        if (n > addr + len - at)
            n = addr + len - at;
        if (!v || !(file ? store_in_file(v, at, from, n) : store_in_page(v, at, from, n)))
            return false;
    }
    return true;
}

static void apply_effects(void)
{
    const uint8_t *bytes = next.bytes;
    for (uint32_t i = 0; i < next.event->neffects; i++) {
        const struct trace_effect *e = &next.effects[i];
        bool zero = e->flags & EFF_ZERO, file = e->flags & EFF_FILE;
        bool stored = !zero && !file && !safe_copy((void *)e->addr, bytes, e->len);
        if (!stored && !store_pages(e->addr, zero ? NULL : bytes, e->len, file))
            replay_fail("event %lu sets %u bytes at %#lx, which cannot be written",
                        (unsigned long)next.number, e->len, (unsigned long)e->addr);
        if (!zero)
            bytes += e->len;
    }
}

static void check_memory(void)
{
    char where[2000], text[2400];
    for (uint32_t i = 0; i < next.nmaps; i++) {
        if (next.maps[i]->op != MAP_OP_CHECK || memcheck_holds(next.maps[i], where, sizeof where))
            continue;
        snprintf(text, sizeof text,
                 "diverged: space %u, after event %lu memory differs from the recording's: %s",
                 engine.space_number, (unsigned long)next.number, where);
        report(text);
        if (options.shared)
            count(&options.shared->diverged);
        abort_all();
        leave(EXIT_NOT_SO);
    }
}

/* Everything about the event to come happens: memory changes, the count moves on. Registers are the caller's.
 */
static void consume(struct task *t)
{
    apply_maps();
    apply_effects();
    check_memory();
    done = next.number;
    if (options.shared)
        __atomic_fetch_add(&options.shared->events, 1, __ATOMIC_RELAXED);
    stop_event(t, &next);
}

static void check(struct task *t, const struct observed *o)
{
    if (!have_next)
        space_cut();
    const struct trace_event *e = next.event;
    if (o->kind != e->rec.kind || o->pc != e->pc || o->ticks != e->ticks || o->hash != e->hash ||
        (o->has_nr && o->nr != e->nr))
        diverged(t, o);
}

/* ---- output ---- */

static void emit(int fd, uint64_t addr, uint64_t len)
{
    const char *p = (const char *)addr;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EPIPE)
            return; /* nobody reads our output any more: not a divergence */
        if (n <= 0)
            replay_fail("writing the output: %s", strerror(errno));
        p += n;
        len -= (uint64_t)n;
    }
}

static void emit_iovecs(int fd, uint64_t addr, uint64_t count_, uint64_t total)
{
    for (uint64_t i = 0; i < count_ && total; i++) {
        struct iovec v;
        if (guest_read(&v, addr + i * sizeof v, sizeof v))
            return;
        uint64_t n = v.iov_len < total ? v.iov_len : total;
        emit(fd, (uint64_t)v.iov_base, n);
        total -= n;
    }
}

static void wait_for_turn(uint64_t seq)
{
    struct replay_shared *s = options.shared;
    for (;;) {
        uint32_t turn = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE);
        if (turn >= s->noutputs || s->outputs[turn] >= seq || __atomic_load_n(&s->abort, __ATOMIC_ACQUIRE))
            return;
        raw4(SYS_futex, &s->turn, FUTEX_WAIT, turn, (&(struct timespec){1, 0}));
    }
}

static void repeat_output(const struct sys_call *c)
{
    const struct trace_event *e = next.event;
    int fd = e->rec.flags & EVF_OUTPUT ? 1 : 2;
    if (!options.shared || !(e->rec.flags & (EVF_OUTPUT | EVF_OUTERR)) || e->result <= 0)
        return;
    wait_for_turn(e->seq);
    struct msghdr m;
    switch (c->nr) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_sendto:
        emit(fd, c->args[1], (uint64_t)e->result);
        break;
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_vmsplice:
        emit_iovecs(fd, c->args[1], c->args[2], (uint64_t)e->result);
        break;
    case SYS_sendmsg:
        if (!guest_read(&m, c->args[1], sizeof m))
            emit_iovecs(fd, (uint64_t)m.msg_iov, m.msg_iovlen, (uint64_t)e->result);
        break;
    default:
        break;
    }
    __atomic_fetch_add(&options.shared->turn, 1, __ATOMIC_ACQ_REL);
    raw3(SYS_futex, &options.shared->turn, FUTEX_WAKE, INT32_MAX);
}

/* ---- signals ---- */

/* The event to come is a signal that is due now: enter its handler, or end. */
static void take_signal(struct task *t)
{
    const struct trace_ev_signal *s = next.part;
    bool fatal = next.event->rec.flags & EVF_FATAL;
    consume(t);
    t->regs = s->regs;
    t->blocked = s->blocked;
    if (!fatal)
        task_initial_vectors(t);
    look_ahead(); /* ends the replay after a fatal one */
    set_budget(t);
}

/* Signals that came right after the event just replayed. */
static void take_exit_signals(struct task *t)
{
    while (have_next && next.event->rec.kind == EV_SIGNAL && (next.event->rec.flags & EVF_EXIT)) {
        check(t, &(struct observed){.kind = EV_SIGNAL,
                                    .pc = t->regs.rip,
                                    .ticks = 0,
                                    .hash = regs_hash(&t->regs, t->regs.rip)});
        take_signal(t);
    }
}

static void go_on(struct task *t)
{
    look_ahead();
    set_budget(t);
    take_exit_signals(t);
}

static void replay_preempt(struct task *t)
{
    if (stop_reached(t, have_next && is_preempting(next.event) ? next.event->ticks : 0))
        return;
    struct observed o = {EV_SIGNAL, t->regs.rip, task_ticks(t), regs_hash(&t->regs, t->regs.rip),
                         0,         false,       NULL};
    check(t, &o);
    if (!is_preempting(next.event))
        diverged(t, &o);
    take_signal(t);
    take_exit_signals(t);
}

static void replay_fault(struct task *t)
{
    struct observed o = {EV_SIGNAL, t->regs.rip, task_ticks(t),   regs_hash(&t->regs, t->regs.rip),
                         0,         false,       t->fault.siginfo};
    check(t, &o);
    if (!(next.event->rec.flags & EVF_SYNC))
        diverged(t, &o);
    take_signal(t);
    take_exit_signals(t);
}

/* ---- instructions and calls ---- */

/* The program had forbidden itself an instruction: prctl PR_SET_TSC and its like. */
static bool forbidden(void)
{
    return have_next && next.event->rec.kind == EV_SIGNAL && (next.event->rec.flags & EVF_SYNC);
}

static void replay_insn(struct task *t, const struct insn *in)
{
    if (forbidden()) {
        replay_fault(t);
        return;
    }
    check(t, &(struct observed){EV_INSN, in->pc, task_ticks(t), regs_hash(&t->regs, in->pc), in->nondet, true,
                                NULL});
    const struct trace_ev_insn out = *(const struct trace_ev_insn *)next.part;
    consume(t);
    nondet_apply(t, in, &out);
    go_on(t);
}

static bool x87_event_due(const struct task *t, uint64_t pc)
{
    const struct trace_event *e = next.event;
    return have_next && e->rec.kind == EV_INSN && e->nr == INSN_X87_POINTERS && e->pc == pc &&
           e->ticks == task_ticks(t);
}

/* Without an event they were all 0, whatever this processor keeps. */
static void replay_x87_before(struct task *t, uint64_t pc, struct x87_pointers *pointers)
{
    *pointers = (struct x87_pointers){0};
    if (!x87_event_due(t, pc))
        return;
    const struct trace_ev_insn *stored = next.part;
    *pointers = (struct x87_pointers){stored->rax, stored->rbx, (uint16_t)stored->rcx};
}

static void replay_x87_after(struct task *t, uint64_t pc, const struct x87_pointers *pointers)
{
    if (!x87_event_due(t, pc))
        return;
    check(t, &(struct observed){EV_INSN, pc, task_ticks(t), regs_hash(&t->regs, pc), INSN_X87_POINTERS, true,
                                NULL});
    consume(t);
    look_ahead();
    set_budget(t);
}

static void open_reader(uint32_t space)
{
    struct clio_error error;
    if (reader)
        trace_reader_close(reader);
    reader = trace_reader_open(source, space, &error);
    engine.space_number = space;
    done = 0;
    have_next = false;
    if (!reader && error.fault == CLIO_FAULT_MISSING)
        space_cut(); /* it was announced, and everybody was killed before it began */
    if (!reader)
        replay_fail("%s", error.text);
    look_ahead();
    if (next.event->rec.kind != EV_START)
        replay_fail("space %u does not begin with a start event", space);
}

/* Registers and memory of the space's first event. */
static void start_space(struct task *t)
{
    const struct trace_ev_start s = *(const struct trace_ev_start *)next.part;
    t->regs = s.regs;
    guest_space.brk_start = guest_space.brk = s.brk;
    consume(t);
    go_on(t);
}

static void reopen_source(void)
{
    struct clio_error error;
    source = clio_source_open(options.trace, &error);
    reader = NULL; /* the parent's; its memory is ours to leave alone */
    if (!source)
        replay_fail("%s", error.text);
}

/* pids of the recording and of the replays that stand for them, of this process's children */
static struct child {
    int recorded, pid;
} * children;
static uint32_t nchildren;

static void remember_child(int recorded, int pid)
{
    children = realloc(children, (nchildren + 1) * sizeof *children);
    if (!children)
        replay_fail("out of memory");
    children[nchildren++] = (struct child){recorded, pid};
}

/* The guest has seen its child end: let the child's replay end first, so there are never more replays than
 * there were processes. */
static void wait_like(const struct sys_call *c, int64_t result)
{
    int recorded = (int)result;
    if (c->nr == SYS_waitid &&
        (result || !c->args[2] || guest_read(&recorded, c->args[2] + offsetof(siginfo_t, si_pid), 4)))
        return;
    if ((c->nr != SYS_waitid && c->nr != SYS_wait4) || recorded <= 0)
        return;
    for (uint32_t i = 0; i < nchildren; i++)
        if (children[i].recorded == recorded) {
            waitpid(children[i].pid, NULL, 0);
            children[i] = children[--nchildren];
            return;
        }
}

/* A fork whose child shares no memory with us, whatever the guest's does. */
static pid_t fork_alone(void)
{
    int error = replica_fork_begin();
    pid_t pid = error ? -1 : fork();
    if (pid < 0)
        replay_fail("cannot fork: %s", strerror(error ? -error : errno));
    if (pid)
        replica_fork_parent();
    else if ((error = replica_fork_child(&guest_space)))
        replay_fail("cannot separate a child's shared memory from its parent's: %s", strerror(-error));
    return pid;
}

static void replay_fork(struct task *t)
{
    const struct trace_ev_fork f = *(const struct trace_ev_fork *)next.part;
    int recorded = (int)next.event->result;
    uint32_t becomes = stop_becomes(engine.space_number, next.number);
    for (; maps_applied < next.nmaps && next.maps[maps_applied]->op == MAP_OP_GROW; maps_applied++)
        apply_map(next.maps[maps_applied]); /* the call's arguments lay there, for the child, too */
    pid_t pid = becomes ? 0 : options.follow ? fork_alone() : -1;
    if (pid == 0) {
        nchildren = 0;
        reopen_source();
        syscall_to_regs(t, 0);
        open_reader(becomes ? becomes : f.child_space);
        start_space(t);
        return;
    }
    if (pid > 0)
        remember_child(recorded, pid);
    consume(t);
    syscall_to_regs(t, recorded);
    go_on(t);
}

/* The call in which the space was killed, when that was a fork whose child got to live. */
static void replay_unborn(struct task *t, const struct sys_call *c)
{
    bool forks = c->nr == SYS_fork || c->nr == SYS_vfork || c->nr == SYS_clone || c->nr == SYS_clone3;
    uint32_t becomes = stop_becomes(engine.space_number, done + 1);
    if (!forks || (!becomes && (!options.follow || fork_alone())))
        space_cut();
    uint32_t child = unborn;
    nchildren = 0;
    reopen_source();
    syscall_to_regs(t, 0);
    open_reader(becomes ? becomes : child);
    start_space(t);
}

static void replay_exec(struct task *t)
{
    const struct trace_ev_exec e = *(const struct trace_ev_exec *)next.part;
    uint32_t becomes = stop_becomes(engine.space_number, next.number);
    consume(t);
    if (!e.next_space || (!options.follow && !becomes)) {
        look_ahead();
        replay_fail("the space goes on after its exec event");
    }
    if (options.shared)
        count(&options.shared->spaces_done);
    cache_exec();
    space_clear(&guest_space);
    task_initial_vectors(t);
    open_reader(e.next_space);
    start_space(t);
}

static void replay_syscall(struct task *t)
{
    struct sys_call c;
    uint64_t pc = t->call_pc = t->exit_pc - 2;
    syscall_from_regs(t, &c);
    if (!have_next) {
        replay_unborn(t, &c);
        return;
    }
    const struct trace_event *e = next.event;
    struct observed o = {EV_SYSCALL,         pc,  task_ticks(t), regs_hash(&t->regs, pc), (uint16_t)c.nr,
                         c.nr <= UINT16_MAX, NULL};
    LOG(syscall, "event %lu: %u", (unsigned long)next.number, c.nr);
    if (e->rec.kind == EV_SIGNAL && (e->rec.flags & EVF_ENTRY)) {
        o.kind = EV_SIGNAL;
        o.has_nr = false;
        check(t, &o);
        t->regs.rip = pc;
        take_signal(t);
        take_exit_signals(t);
        return;
    }
    if (e->rec.kind == EV_FORK || e->rec.kind == EV_EXEC || e->rec.kind == EV_EXIT)
        o.kind = e->rec.kind;
    check(t, &o);
    switch (e->rec.kind) {
    case EV_FORK:
        replay_fork(t);
        return;
    case EV_EXEC:
        replay_exec(t);
        return;
    case EV_EXIT:
        consume(t);
        look_ahead();
        replay_fail("the space goes on after its exit event");
    default:
        break;
    }
    int64_t result = e->result;
    consume(t);
    repeat_output(&c);
    wait_like(&c, result);
    if (c.nr == SYS_rt_sigreturn) {
        both_rt_sigreturn(t, &c);
    } else {
        if (c.nr == SYS_brk)
            guest_space.brk = (uint64_t)result;
        if (c.nr == SYS_arch_prctl && !result)
            both_arch_prctl(t, &c);
        t->effects.count = 0;
        syscall_to_regs(t, result);
    }
    go_on(t);
}

/* ---- the client ---- */

static void replay_failed(const char *text)
{
    replay_fail("%s", text);
}

const struct run_client replay_client = {
    .syscall = replay_syscall,
    .call = replay_syscall,
    .insn = replay_insn,
    .x87_before = replay_x87_before,
    .x87_after = replay_x87_after,
    .preempt = replay_preempt,
    .grow = replay_grow,
    .fault = replay_fault,
    .failed = replay_failed,
    .events = last_event,
};

/* ---- begin ---- */

static uint32_t root_space(void)
{
    const struct clio_space_info *spaces;
    size_t n;
    struct clio_error error;
    if (!clio_source_spaces(source, &spaces, &n, &error))
        replay_fail("%s", error.text);
    for (size_t i = 0; i < n; i++)
        if (spaces[i].origin == CLIO_ORIGIN_ROOT)
            return spaces[i].space;
    replay_fail("the trace holds no process yet");
}

/* The guest gets the processor that it had, if this one can stand in for it. */
static void take_cpu(const struct clio_trace_info *info)
{
    bool old = !(info->features >> TRACE_FEATURE_CPU & 1);
    uint64_t features;
    char problem[CPU_NAMES_MAX + 100];
    int level = (int)info->cpu_level;
    if (!cpu_stands_in(level, info->cpu_features, &engine.host, &features, problem, sizeof problem))
        replay_fail("%s", problem);
    cpu_init(&engine.cpu, level, features, old);
    decode_use_cpu();
}

void replay_begin(struct task *t, const struct replay_options *o)
{
    struct clio_error error;
    options = *o;
    engine.slow_calls = true;
    signal(SIGPIPE, SIG_IGN); /* see emit */
    replica_open = open_content;
    source = clio_source_open(options.trace, &error);
    if (!source)
        replay_fail("%s", error.text);
    take_cpu(clio_source_info(source));
    task_initial_vectors(t);
    uint32_t first = options.space ? options.space : root_space();
    open_reader(stop_plan(source, first));
    start_space(t);
}
