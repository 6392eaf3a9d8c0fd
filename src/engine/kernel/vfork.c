/*
 * vfork.c: see vfork.h.
 *
 * Child and keeper talk to the parent by messages on a socket that keeps their bounds:
 *
 *   PAGES addr   bytes of whole pages            MAP    struct trace_map, path; with a file, its descriptor
 *   BREAK addr   the program's break             KEEPER addr   the keeper's process number
 *   DONE addr    nothing more will come, as the end of file says, too; addr 1: the keeper says so
 *
 * The keeper runs on memory that may have been left in any state, so it uses system calls and its own stack only,
 * and learns from the kernel what is mapped. The parent applies what fits its own mappings.
 */
#include "engine/kernel/vfork.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/memory.h"
#include "engine/kernel/pagediff.h"
#include "engine/kernel/table.h"
#include "engine/memory/capture.h"
#include "engine/memory/change.h"
#include "engine/memory/watch.h"

enum { PAGES_AT_ONCE = 15, ROOM = PAGES_AT_ONCE * 4096 };

enum message_kind { PAGES = 1, MAP, BREAK, KEEPER, DONE };

struct message {
    uint64_t kind, addr;
};

static int uplink = -1; /* handle: this process is a vfork child whose parent waits */
static uint64_t sent_break;
static uint64_t clear_tid;

bool vfork_active(void)
{
    return uplink >= 0;
}

void vfork_set_clear_tid(uint64_t addr)
{
    clear_tid = addr;
}

/* ---- sending: child and keeper; raw system calls only ---- */

/* fd: a descriptor that goes along, or -1. 0 or -errno; a parent that is gone wants nothing. */
static int64_t send_message(enum message_kind kind, uint64_t addr, const void *bytes, uint64_t size, int fd)
{
    struct message head = {kind, addr};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, size}};
    struct {
        struct cmsghdr head;
        int fd, padding;
    } control = {{CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}, fd, 0};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
    }
    int64_t n;
    do
        n = raw3(SYS_sendmsg, hostfd(uplink), &m, MSG_NOSIGNAL);
    while (n == -EINTR);
    return n < 0 ? n : 0;
}

static void send_range(void *ctx, uint64_t addr, uint64_t len)
{
    for (uint64_t done = 0, n; done < len; done += n) {
        n = len - done < ROOM ? len - done : ROOM;
        uint64_t at = addr + done;
        if (send_message(PAGES, at, (const void *)at, n, -1) != -EFAULT)
            continue;
        raw3(SYS_mprotect, at, n, PROT_READ); /* changed and then hidden */
        send_message(PAGES, at, (const void *)at, n, -1);
        raw3(SYS_mprotect, at, n, PROT_NONE);
    }
}

/* ---- the keeper ---- */

static uint32_t child_lives; /* cleared by the kernel when the child lets go of its memory */

struct reader { /* of /proc/self/maps */
    int fd;
    uint32_t at, end;
    char buffer[1024];
};

static int next_char(struct reader *r)
{
    if (r->at == r->end) {
        int64_t n = raw3(SYS_read, r->fd, r->buffer, sizeof r->buffer);
        if (n <= 0)
            return -1;
        r->at = 0;
        r->end = (uint32_t)n;
    }
    return r->buffer[r->at++];
}

/* A hexadecimal number; *after is the character that follows it. */
static uint64_t next_number(struct reader *r, int *after)
{
    uint64_t n = 0;
    int c;
    while ((c = next_char(r)) >= 0)
        if (c >= '0' && c <= '9')
            n = n * 16 + (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            n = n * 16 + (uint64_t)(c - 'a' + 10);
        else
            break;
    *after = c;
    return n;
}

/* The next private mapping. False at the end. */
static bool next_mapping(struct reader *r, uint64_t *start, uint64_t *end)
{
    for (;;) {
        int c, kind = 0;
        *start = next_number(r, &c);
        *end = next_number(r, &c);
        for (int i = 0; i < 4; i++)
            kind = next_char(r);
        while (c >= 0 && c != '\n')
            c = next_char(r);
        if (c < 0)
            return false;
        if (kind == 'p')
            return true;
    }
}

static void send_all_changes(void)
{
    struct reader r = {.fd = (int)raw3(SYS_open, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0)};
    uint64_t start, end, low;
    while (r.fd >= 0 && next_mapping(&r, &start, &end))
        for (uint64_t high; (high = space_piece(start, end, &low)); start = high) {
            struct vma v = {.start = low, .end = high};
            const struct space one = {.vmas = &v, .count = 1};
            pagediff_changed(&one, send_range, NULL);
        }
    send_message(DONE, 1, NULL, 0, -1);
}

static _Noreturn void be_keeper(void)
{
    raw0(SYS_setsid); /* signals to the child's group are not for us */
    for (uint32_t seen; (seen = __atomic_load_n(&child_lives, __ATOMIC_SEQ_CST));)
        raw4(SYS_futex, &child_lives, FUTEX_WAIT, seen, 0);
    send_all_changes();
    for (;;)
        raw1(SYS_exit_group, 0);
}

/* clone with a stack of its own, on which the new process runs fn. */
static int64_t clone_to(uint64_t flags, void *stack, void (*fn)(void))
{
    register uint64_t r10 __asm__("r10") = 0;
    register uint64_t r8 __asm__("r8") = 0;
    int64_t result;
    __asm__ volatile("syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t"
                     "call *%[fn]\n"
                     "1:"
                     : "=a"(result)
                     : "a"((uint64_t)SYS_clone), "D"(flags), "S"(stack), "d"(0ull), "r"(r10),
                       "r"(r8), [fn] "b"(fn)
                     : "rcx", "r11", "memory");
    return result;
}

static void start_keeper(void)
{
    static uint8_t stack[16384] __attribute__((aligned(16)));
    if (raw0(SYS_getpid) == 1) /* its number would be another process's: see docs/limits.md */
        return;
    child_lives = (uint32_t)raw1(SYS_set_tid_address, &child_lives);
    int64_t pid = clone_to(CLONE_VM | CLONE_FILES | CLONE_UNTRACED, stack + sizeof stack, be_keeper);
    if (pid < 0) {
        event_note("a vfork child has no keeper: if it is killed, its parent does not see what it changed");
        return;
    }
    vfork_keeper = (int)pid;
    send_message(KEEPER, (uint64_t)pid, NULL, 0, -1);
}

static void dismiss_keeper(void)
{
    if (!vfork_keeper)
        return;
    raw2(SYS_kill, vfork_keeper, SIGKILL);
    while (raw4(SYS_wait4, vfork_keeper, 0, __WCLONE, 0) == -EINTR)
        ;
    vfork_keeper = 0;
    raw1(SYS_set_tid_address, 0);
}

int64_t rec_wait(struct task *t, struct sys_call *c)
{
    dismiss_keeper();
    return sys_generic(t, c, &sys_table[c->nr]);
}

/* ---- the child ---- */

static void send_break(void)
{
    if (guest_space.brk != sent_break)
        send_message(BREAK, guest_space.brk, NULL, 0, -1);
    sent_break = guest_space.brk;
}

/* The descriptor that a mapping's file has in the call that made it. */
static int mapped_fd(const struct trace_map *m, const struct sys_call *c)
{
    struct stat st;
    bool file = m->op == MAP_OP_FILE;
    if (m->op != MAP_OP_ANON && !file)
        return -1;
    int fd = c->nr == SYS_mmap && !(c->args[3] & MAP_ANONYMOUS) ? (int)c->args[4] : -1;
    if (!file && fd >= 0 && !fstat(fd, &st) && memory_is_zero_device(&st))
        fd = -1;
    if ((file && fd < 0) || (!file && (m->shared || fd >= 0)))
        event_unsupported("a vfork child that maps shared memory or a device");
    return fd;
}

void vfork_forward(struct task *t, const struct sys_call *c)
{
    for (uint32_t at = 0; at < t->maps_used;) {
        const struct trace_map *m = (const struct trace_map *)(t->maps + at);
        if (m->op != MAP_OP_CHECK && m->op != MAP_OP_RESIZE)
            send_message(MAP, 0, m, m->rec.size, mapped_fd(m, c));
        at += m->rec.size;
    }
    send_break();
}

static void send_changes(void)
{
    if (pagediff_changed(&guest_space, send_range, NULL))
        event_note("a vfork child's changes to its parent's memory could not be found");
}

int64_t vfork_begin(struct vfork *v)
{
    int pair[2];
    if (uplink >= 0)
        send_changes(); /* of pages that are shared with the new process from now on */
    if (!v->waits)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -errno;
    v->ends[0] = hostfd_keep(pair[0]);
    v->ends[1] = hostfd_keep(pair[1]);
    if (v->ends[0] >= 0 && v->ends[1] >= 0) {
        shared_copy_take(&v->shared, "a vfork child");
        return 0;
    }
    for (int i = 0; i < 2; i++)
        if (v->ends[i] >= 0)
            hostfd_drop(v->ends[i]);
        else
            close(pair[i]);
    return -EMFILE;
}

void vfork_child(struct vfork *v)
{
    hostfd_drop(uplink); /* our parent's own wait is not ours */
    uplink = -1;
    vfork_keeper = 0;
    clear_tid = 0;
    if (!v->waits)
        return;
    hostfd_drop(v->ends[0]);
    uplink = v->ends[1];
    sent_break = guest_space.brk;
    start_keeper();
}

void vfork_leave(void)
{
    const uint32_t zero = 0;
    if (uplink < 0)
        return;
    if (clear_tid)
        guest_write(clear_tid, &zero, sizeof zero);
    send_changes();
    send_message(DONE, 0, NULL, 0, -1);
    dismiss_keeper();
    hostfd_drop(uplink);
    uplink = -1;
    clear_tid = 0;
}

/* ---- the parent: bytes ---- */

/* Only what differs becomes an effect; differences less than JOIN apart become one. */
static void copy_differences(struct task *t, uint64_t addr, const uint8_t *bytes)
{
    enum { JOIN = 32 };
    uint8_t *mine = (uint8_t *)addr;
    for (uint64_t i = 0, end; i < PAGE_SIZE; i = end) {
        end = i + 1;
        if (mine[i] == bytes[i])
            continue;
        for (uint64_t j = end; j < PAGE_SIZE && j - end < JOIN; j++)
            if (mine[j] != bytes[j])
                end = j + 1;
        memcpy(mine + i, bytes + i, end - i);
        effect_add(t, addr + i, end - i);
    }
}

static void take_page(struct task *t, uint64_t addr, const uint8_t *bytes)
{
    const struct vma *v = space_find(&guest_space, addr);
    if (!v && change_grow_like(&guest_space, addr)) /* a stack, which grew after the child's last event */
        v = space_find(&guest_space, addr);
    if (!v || v->shared)
        return;
    watch_open(addr, addr + PAGE_SIZE);
    if (v->prot & PROT_EXEC)
        code_invalidate(addr, addr + PAGE_SIZE);
    bool writable = v->prot & PROT_WRITE;
    if (!writable)
        raw3(SYS_mprotect, addr, PAGE_SIZE, PROT_READ | PROT_WRITE);
    copy_differences(t, addr, bytes);
    if (!writable)
        raw3(SYS_mprotect, addr, PAGE_SIZE, space_host_prot(v->prot));
}

/* ---- the parent: mappings ---- */

/* What was changed in [old, old + len) is at `start` now. */
static void move_effects(struct task *t, uint64_t old, uint64_t len, uint64_t start)
{
    uint32_t count = t->effects.count;
    for (uint32_t i = 0; i < count; i++) {
        struct trace_effect e = t->effects.v[i];
        uint64_t end = e.addr + e.len, low = e.addr > old ? e.addr : old,
                 high = end < old + len ? end : old + len;
        if (low >= high)
            continue;
        t->effects.v[i].addr = low - old + start;
        t->effects.v[i].len = (uint32_t)(high - low);
        if (e.addr < low)
            effect_add(t, e.addr, low - e.addr);
        if (high < end)
            effect_add(t, high, end - high);
    }
}

/* Bytes of memory that is not there any more are nobody's. */
static void drop_lost_effects(struct task *t)
{
    uint32_t count = t->effects.count;
    for (uint32_t i = 0; i < count;) {
        struct trace_effect *e = &t->effects.v[i];
        const struct vma *v = space_at_or_above(&guest_space, e->addr);
        uint64_t end = e->addr + e->len, low = v && v->start > e->addr ? v->start : e->addr;
        if (!v || low >= end) {
            *e = t->effects.v[--count];
            t->effects.v[count] = t->effects.v[--t->effects.count];
            continue;
        }
        uint64_t high = v->end < end ? v->end : end;
        e->addr = low;
        e->len = (uint32_t)(high - low);
        if (high < end) { /* the rest is looked at in its turn */
            effect_add(t, high, end - high);
            count = t->effects.count;
        }
        i++;
    }
}

/* Files that the child has mapped to write to: what they hold when it has ended. */
enum { FRESH_MAX = 64 };
static struct {
    uint64_t start, end;
} fresh[FRESH_MAX];
static int nfresh;

static void note_fresh(uint64_t start, uint64_t end)
{
    if (nfresh == FRESH_MAX)
        event_unsupported("a vfork child that maps more than %d files for shared writing", FRESH_MAX);
    fresh[nfresh].start = start;
    fresh[nfresh++].end = end;
}

static void record_fresh(struct task *t)
{
    for (; nfresh; nfresh--)
        for (const struct vma *v = space_at_or_above(&guest_space, fresh[nfresh - 1].start);
             v && v->start < fresh[nfresh - 1].end; v = space_at_or_above(&guest_space, v->end))
            if (v->shared && v->file)
                effect_add_file(t, v->start, v->end);
}

static int take_file(const struct trace_map *m, int fd)
{
    struct statvfs fs;
    struct vma v = {.start = m->addr,
                    .end = m->addr + m->len,
                    .prot = m->prot,
                    .shared = m->shared,
                    .offset = m->offset,
                    .file = file_capture(fd, NULL)};
    if (!v.file)
        return -errno;
    if (!fstatvfs(fd, &fs) && (fs.f_flag & ST_NOEXEC))
        v.flags |= VMA_NOEXEC;
    int error = change_map(&guest_space, &v, fd, 0);
    if (!error && v.shared && (v.prot & PROT_WRITE)) {
        file_changes(v.file);
        note_fresh(v.start, v.end);
    }
    return error;
}

static int take_discard(const struct trace_map *m)
{
    for (const struct vma *v = space_at_or_above(&guest_space, m->addr); v && v->start < m->addr + m->len;
         v = space_at_or_above(&guest_space, v->end)) {
        uint64_t low = v->start > m->addr ? v->start : m->addr;
        uint64_t high = v->end < m->addr + m->len ? v->end : m->addr + m->len;
        if (!v->shared)
            raw3(SYS_madvise, low, high - low, MADV_DONTNEED);
    }
    change_discard(&guest_space, m->addr, m->len, m->shared);
    return 0;
}

static int take_map(struct task *t, const struct trace_map *m, int fd)
{
    struct space *s = &guest_space;
    const struct vma v = {.start = m->addr, .end = m->addr + m->len, .prot = m->prot};
    switch (m->op) {
    case MAP_OP_ANON:
        return change_map(s, &v, -1, MAP_NORESERVE);
    case MAP_OP_FILE:
        return take_file(m, fd);
    case MAP_OP_UNMAP:
        return change_unmap(s, m->addr, m->len);
    case MAP_OP_PROTECT:
        return change_protect(s, m->addr, m->len, m->prot);
    case MAP_OP_MOVE:
        move_effects(t, m->offset, m->aux, m->addr);
        return change_move(s, m->addr, m->len, m->offset, m->aux);
    case MAP_OP_DISCARD:
        return take_discard(m);
    case MAP_OP_GROW:
        change_grow_like(s, m->addr); /* unless bytes came from there and it has grown already */
        return 0;
    }
    return -EINVAL;
}

/* ---- the parent: waiting ---- */

static union {
    struct {
        struct message head;
        uint8_t bytes[ROOM];
    } m;
    uint64_t align;
} received;

/* True: a message of *size bytes is in `received`, and *fd came along or is -1. */
static bool receive(int socket, uint64_t *size, int *fd)
{
    struct {
        struct cmsghdr head;
        int fd, padding;
    } control = {{0}, -1, 0};
    struct iovec part = {&received, sizeof received};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int64_t n;
    do
        n = raw3(SYS_recvmsg, socket, &m, MSG_CMSG_CLOEXEC);
    while (n == -EINTR);
    *fd = m.msg_controllen && control.head.cmsg_type == SCM_RIGHTS ? control.fd : -1;
    *size = (uint64_t)n;
    return n >= (int64_t)sizeof(struct message);
}

static bool is_gone(int pid)
{
    siginfo_t info = {0};
    if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL))
        return info.si_pid == pid;
    return kill(pid, 0) && errno == ESRCH; /* it is nobody's, or its sibling's */
}

/*
 * The child was killed. Where this process adopts its orphans (PR_SET_CHILD_SUBREAPER) the keeper is one of
 * them, and the program is not to see it. Signals are blocked, so that SIGCHLD tells of the child, which ended
 * first.
 */
static void bury(int pid, int keeper)
{
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL) && errno == EINTR)
        ;
    while (keeper && wait4(keeper, NULL, __WALL, NULL) < 0 && errno == EINTR)
        ;
}

static bool take_message(struct task *t, struct vfork *v, uint64_t size, int fd)
{
    const struct message *m = &received.m.head;
    int error = 0;
    uint64_t n = size - sizeof *m;
    switch (m->kind) {
    case PAGES:
        for (uint64_t at = 0; at + PAGE_SIZE <= n; at += PAGE_SIZE)
            take_page(t, m->addr + at, received.m.bytes + at);
        break;
    case MAP:
        error = take_map(t, (const struct trace_map *)received.m.bytes, fd);
        if (uplink >= 0 && !error) /* our parent waits, too */
            send_message(MAP, 0, received.m.bytes, n, fd);
        break;
    case BREAK:
        guest_space.brk = m->addr;
        break;
    case KEEPER:
        v->keeper = (int)m->addr;
        break;
    case DONE:
        v->killed = m->addr;
        return false;
    }
    if (fd >= 0)
        close(fd);
    if (error)
        event_unsupported("a vfork child's change of memory that its parent cannot make: %s",
                          strerror(-error));
    return true;
}

/*
 * With a table that both share, the socket does not end with the child: the parent has that end, too. Then a child
 * that is gone and silent for as long as its keeper could need says that all is said.
 */
static void wait_for_child(struct vfork *v, struct task *t, int pid)
{
    enum { SILENCE = 5, WHILE_MS = 100 };
    int socket = hostfd(v->ends[0]), fd, silent = 0;
    uint64_t size;
    for (;;) {
        struct pollfd p = {socket, POLLIN, 0};
        if (v->shares_table && !poll(&p, 1, WHILE_MS)) {
            silent = is_gone(pid) ? silent + 1 : 0;
            if (silent == SILENCE)
                return;
            continue;
        }
        if (!receive(socket, &size, &fd) || !take_message(t, v, size, fd))
            return;
    }
}

/* ---- the parent: memory that it may not read itself ---- */

enum { OPENED_MAX = 64 };

static struct opened {
    uint64_t start, len;
} opened[OPENED_MAX];
static int nopened;

/* Changed and then hidden: to be read all the same when the event is published. */
static void open_hidden(struct task *t)
{
    for (uint32_t i = 0; i < t->effects.count; i++) {
        uint64_t start = PAGE_DOWN(t->effects.v[i].addr),
                 end = PAGE_UP(t->effects.v[i].addr + t->effects.v[i].len);
        const struct vma *v = space_find(&guest_space, start);
        if (!v || v->prot)
            continue;
        if (nopened == OPENED_MAX)
            event_unsupported("a vfork child that hides more than %d pieces of memory", OPENED_MAX);
        raw3(SYS_mprotect, start, end - start, PROT_READ);
        opened[nopened++] = (struct opened){start, end - start};
    }
}

void vfork_done(void)
{
    while (nopened) {
        nopened--;
        raw3(SYS_mprotect, opened[nopened].start, opened[nopened].len, PROT_NONE);
    }
}

void vfork_parent(struct vfork *v, struct task *t, int64_t pid)
{
    if (!v->waits)
        return;
    hostfd_drop(v->ends[1]);
    if (pid > 0)
        wait_for_child(v, t, (int)pid);
    if (v->killed)
        bury((int)pid, v->keeper);
    hostfd_drop(v->ends[0]);
    shared_copy_compare(&v->shared, t);
    record_fresh(t);
    drop_lost_effects(t);
    open_hidden(t);
}
