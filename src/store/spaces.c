/*
 * spaces.c: from rings into substreams. See store.h.
 *
 * A ring is found by its announcement (STORE_SPACE), by control->spaces, which counts the numbers given out,
 * and on takeover and at the end by listing TRACE/rings. It is over when its REC_END is published and
 * everything is moved: then rings/N is removed, or cut to its header when the process was killed (the header
 * says in which call).
 *
 * Records stay in the ring until there are many of them, somebody waits, or they are a second old: readers
 * find them there as well, and large frames compress better.
 *
 * A process is known by the pid in its announcement. The pid in a ring's header is one of the producer's own
 * pid namespace, so on takeover it is believed only when that process has the ring mapped.
 */
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "trace/event_reader.h"
#include "trace/frame.h"

enum {
    DRAIN_BYTES = RING_CAPACITY / 4, /* moved at once when a ring holds so much */
    PRESSING_BYTES = RING_CAPACITY / 2,
    FLUSH_MS = 1000,    /* no record waits longer */
    MISSING_MS = 30000, /* a number whose ring does not appear is looked for no longer, except at the end */
    STARVED_MS = 500,   /* ... and whose ring does not come for so long may lack room on the disk */
    DEATH_MS = 30,      /* between a process's death and its REC_END: shows whether the recorder died, too */
};

static uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- processes ---- */

static void process_close(struct space *sp)
{
    if (sp->pidfd >= 0)
        close(sp->pidfd);
    sp->pidfd = -1;
}

static void process_gone(struct space *sp)
{
    if (!sp->dead)
        LOG(store, "space %u: process %d is gone", sp->number, sp->pid);
    process_close(sp);
    if (!sp->dead)
        sp->dead_ms = now_ms();
    sp->dead = true;
}

static void process_open(struct space *sp, int pid)
{
    if (pid <= 0 || pid == sp->pid)
        return;
    process_close(sp);
    sp->pid = pid;
    sp->dead = false;
    sp->pidfd = pidfd_open(pid, 0);
    if (sp->pidfd < 0 && errno == ESRCH)
        process_gone(sp);
}

static bool process_lives(const struct space *sp)
{
    if (sp->dead || sp->pid <= 0)
        return false;
    if (sp->pidfd < 0)
        return kill(sp->pid, 0) == 0 || errno != ESRCH;
    struct pollfd p = {sp->pidfd, POLLIN, 0};
    return poll(&p, 1, 0) == 0;
}

void spaces_died(struct store *s, int pidfd)
{
    for (size_t i = 0; i < s->nspaces; i++)
        if (s->spaces[i].pidfd == pidfd)
            process_gone(&s->spaces[i]);
}

bool spaces_alive(struct store *s, bool all)
{
    bool any = false;
    for (size_t i = 0; i < s->nspaces; i++) {
        struct space *sp = &s->spaces[i];
        if (sp->pid > 0 && !sp->dead && (all || sp->pidfd < 0) && !process_lives(sp))
            process_gone(sp);
        any |= sp->pid > 0 && !sp->dead;
    }
    return any;
}

/* Whether process `pid` has the file of inode `ino` and name "/rings/N" mapped. */
static bool process_maps_ring(int pid, uint32_t number, uint64_t ino)
{
    char path[64], want[64], line[PATH_MAX + 200];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    snprintf(want, sizeof want, "/rings/%u\n", number);
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned long long line_ino = 0;
        size_t n = strlen(line), w = strlen(want);
        found = n > w && !strcmp(line + n - w, want) &&
                sscanf(line, "%*s %*s %*s %*s %llu", &line_ino) == 1 && line_ino == ino;
    }
    if (f)
        fclose(f);
    return found;
}

/* ---- finding rings ---- */

enum found { RING_FOUND, RING_LATER, RING_OVER };

static enum found map_ring(struct store *s, uint32_t number, struct ring_header **ring, uint64_t *ino)
{
    char name[16];
    struct stat st;
    snprintf(name, sizeof name, "%u", number);
    int fd = openat(s->rings, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return RING_LATER;
    if (fstat(fd, &st) || st.st_size == 0) {
        close(fd);
        return RING_LATER;
    }
    if (st.st_size == RING_HEADER_SIZE) { /* killed, and all of it moved */
        close(fd);
        return RING_OVER;
    }
    struct ring_header *r = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (r == MAP_FAILED)
        return RING_LATER;
    if (__atomic_load_n(&r->magic, __ATOMIC_ACQUIRE) == RING_MAGIC && r->version == TRACE_FORMAT_VERSION &&
        r->header_size == RING_HEADER_SIZE && r->capacity <= FRAME_RAW_MAX && r->capacity % 8 == 0 &&
        r->capacity && r->space == number && (uint64_t)st.st_size >= RING_HEADER_SIZE + r->capacity) {
        *ring = r;
        *ino = st.st_ino;
        return RING_FOUND;
    }
    munmap(r, (size_t)st.st_size);
    return RING_LATER;
}

static struct space *find_space(struct store *s, uint32_t number)
{
    for (size_t i = s->nspaces; i-- > 0;)
        if (s->spaces[i].number == number)
            return &s->spaces[i];
    return NULL;
}

static enum found adopt(struct store *s, uint32_t number, int pid, bool ask_kernel)
{
    struct ring_header *ring;
    uint64_t ino;
    enum found found = map_ring(s, number, &ring, &ino);
    if (found != RING_FOUND)
        return found;
    if (!pid && ask_kernel && ring->pid > 0 && process_maps_ring(ring->pid, number, ino))
        pid = ring->pid;
    s->spaces = grow_array(s->spaces, s->nspaces, &s->spaces_capacity, sizeof *s->spaces);
    struct space *sp = &s->spaces[s->nspaces++];
    *sp = (struct space){.number = number, .pidfd = -1, .ring = ring};
    sp->data = (uint8_t *)ring + RING_HEADER_SIZE;
    sp->since_ms = now_ms();
    process_open(sp, pid);
    LOG(store, "space %u: ring found, process %d, %llu bytes", number, pid,
        (unsigned long long)(ring->head - ring->tail));
    return RING_FOUND;
}

static struct missing *find_missing(struct store *s, uint32_t number)
{
    for (size_t i = 0; i < s->nmissing; i++)
        if (s->missing[i].number == number)
            return &s->missing[i];
    return NULL;
}

static void add_missing(struct store *s, uint32_t number, int pid)
{
    s->missing = grow_array(s->missing, s->nmissing, &s->missing_capacity, sizeof *s->missing);
    s->missing[s->nmissing++] = (struct missing){number, pid, now_ms()};
}

static void see_counter(struct store *s)
{
    uint32_t given = __atomic_load_n(&s->control->spaces, __ATOMIC_ACQUIRE);
    while (s->spaces_seen < given)
        add_missing(s, ++s->spaces_seen, 0);
}

void spaces_announce(struct store *s, uint32_t number, int pid)
{
    see_counter(s);
    struct space *sp = find_space(s, number);
    struct missing *m = find_missing(s, number);
    if (sp)
        process_open(sp, pid);
    else if (m)
        m->pid = pid;
    else
        add_missing(s, number, pid);
}

uint32_t spaces_starved(const struct store *s)
{
    struct statvfs fs;
    if (s->nmissing == 0 || now_ms() - s->missing[0].since_ms < STARVED_MS || fstatvfs(s->rings, &fs) ||
        fs.f_bavail * fs.f_frsize > RING_HEADER_SIZE + RING_CAPACITY)
        return 0;
    return s->missing[0].number;
}

static void look_for_missing(struct store *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->nmissing; i++) {
        struct missing m = s->missing[i];
        if (adopt(s, m.number, m.pid, false) == RING_LATER && m.since_ms + MISSING_MS > now_ms())
            s->missing[kept++] = m;
    }
    s->nmissing = kept;
    uint32_t starved = spaces_starved(s);
    if (starved) {
        char text[64];
        snprintf(text, sizeof text, "making rings/%u: %s", starved, strerror(ENOSPC));
        s->missing[0].since_ms = now_ms() - STARVED_MS; /* not given up while it cannot come */
        store_disk_full(s, text);
    }
}

void spaces_find_all(struct store *s)
{
    int fd = openat(s->rings, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        unsigned long number = strtoul(e->d_name, &end, 10);
        if (*end || number == 0 || number > UINT32_MAX || find_space(s, (uint32_t)number))
            continue;
        struct missing *m = find_missing(s, (uint32_t)number);
        if (adopt(s, (uint32_t)number, m ? m->pid : 0, true) != RING_LATER && m)
            *m = s->missing[--s->nmissing];
    }
    closedir(d);
    see_counter(s);
    size_t kept = 0;
    for (size_t i = 0; i < s->nmissing; i++)
        if (!find_space(s, s->missing[i].number))
            s->missing[kept++] = s->missing[i];
    s->nmissing = kept;
}

int spaces_make_ring(struct store *s, uint32_t number)
{
    char name[16], temp[24];
    snprintf(name, sizeof name, "%u", number);
    snprintf(temp, sizeof temp, ".%u", number);
    int fd = openat(s->rings, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        return fd; /* a repeated request */
    fd = openat(s->rings, temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int error = posix_fallocate(fd, 0, RING_HEADER_SIZE + RING_CAPACITY);
    struct ring_header head = {.magic = RING_MAGIC,
                               .version = TRACE_FORMAT_VERSION,
                               .header_size = RING_HEADER_SIZE,
                               .capacity = RING_CAPACITY,
                               .space = number,
                               .state = RING_RUNNING};
    if (!error && pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
        error = ENOSPC;
    if (!error && renameat(s->rings, temp, s->rings, name))
        error = errno;
    if (error) {
        unlinkat(s->rings, temp, 0);
        close(fd);
        return -error;
    }
    return fd;
}

/* ---- draining ---- */

static uint64_t head_of(const struct space *sp)
{
    return __atomic_load_n(&sp->ring->head, __ATOMIC_ACQUIRE);
}

static void report_record(struct store *s, struct space *sp, const struct trace_record *record)
{
    char text[2048];
    struct store_report head = {.op = REPORT_NOTE, .space = sp->number, .pid = sp->ring->pid};
    const char *from;
    uint32_t len, fixed;
    if (record->kind == REC_NOTE) {
        const struct trace_note *note = (const struct trace_note *)record;
        fixed = sizeof *note;
        from = (const char *)(note + 1);
        len = note->textlen;
    } else {
        const struct trace_end *end = (const struct trace_end *)record;
        fixed = sizeof *end;
        from = (const char *)(end + 1);
        len = end->textlen;
        head.op = REPORT_END;
        head.why = end->why;
        head.status = end->status;
    }
    if (record->size < fixed || len > record->size - fixed)
        return;
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), from);
    report_send(s, &head, text);
}

/* Tells the recorder of notes and ends in [from, to), which the sink has accepted, so the records are
 * well-formed. */
static void report_records(struct store *s, struct space *sp, uint64_t from, uint64_t to)
{
    while (from < to) {
        const struct trace_record *r = (const void *)(sp->data + from % sp->ring->capacity);
        if (r->kind == REC_NOTE || r->kind == REC_END)
            report_record(s, sp, r);
        from += r->size;
    }
}

static void wake_producer(struct ring_header *ring)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ring->producer_waits, __ATOMIC_RELAXED)) {
        __atomic_store_n(&ring->producer_waits, 0, __ATOMIC_RELEASE);
        syscall(SYS_futex, &ring->producer_waits, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

/* What the ring holds is no sequence of records: its process cannot be trusted with it any longer. */
static void condemn(struct store *s, struct space *sp, const char *why)
{
    char text[1200];
    snprintf(text, sizeof text, "rings/%u is damaged: %s", sp->number, why);
    store_note(s, sp->number, text);
    if (!sp->dead && sp->pidfd >= 0)
        pidfd_send_signal(sp->pidfd, SIGKILL, NULL, 0);
    struct trace_end end = {.rec = {sizeof end, REC_END, 0},
                            .space = sp->number,
                            .why = END_INTERNAL,
                            .seq = __atomic_fetch_add(&s->control->seq, 1, __ATOMIC_RELAXED),
                            .time_ns = realtime_ns(),
                            .events = trace_sink_events(s->sink, sp->number)};
    struct clio_error error;
    uint32_t room = (uint32_t)((strlen(text) + 7) & ~7ull);
    struct {
        struct trace_end end;
        char text[1208];
    } record = {end, ""};
    memcpy(record.text, text, strlen(text));
    record.end.textlen = (uint32_t)strlen(text);
    record.end.rec.size += room;
    if (!trace_sink_ended(s->sink, sp->number) && !trace_sink_task(s->sink, &record.end.rec, &error))
        LOG(store, "space %u: %s", sp->number, error.text);
    struct store_report head = {REPORT_END, sp->number, sp->ring->pid, END_INTERNAL, 0, 0};
    report_send(s, &head, text);
}

enum drained { DRAIN_DONE, DRAIN_FULL, DRAIN_DAMAGED };

static enum drained drain(struct store *s, struct space *sp)
{
    struct ring_header *ring = sp->ring;
    uint64_t tail = ring->tail, head = head_of(sp), capacity = ring->capacity;
    struct clio_error error;
    if (head == tail) {
        wake_producer(ring);
        return DRAIN_DONE;
    }
    if (head - tail > capacity) {
        condemn(s, sp, "its head lies beyond its capacity");
        return DRAIN_DAMAGED;
    }
    if (!trace_sink_append(s->sink, sp->number, sp->data, capacity, tail, head, &error)) {
        if (error.fault == CLIO_FAULT_DAMAGED) {
            condemn(s, sp, error.text);
            return DRAIN_DAMAGED;
        }
        store_disk_full(s, error.text);
        return DRAIN_FULL;
    }
    report_records(s, sp, tail, head);
    __atomic_store_n(&ring->tail, head, __ATOMIC_RELEASE);
    wake_producer(ring);
    sp->since_ms = now_ms();
    if (s->disk_full)
        store_disk_free(s);
    return DRAIN_DONE;
}

/* ---- ending ---- */

static bool has_ended(const struct space *sp)
{
    return __atomic_load_n(&sp->ring->state, __ATOMIC_ACQUIRE) == RING_ENDED;
}

/* Publishes REC_END in the place of a dead producer; the ring is drained, so there is room. */
static void publish_end(struct store *s, struct space *sp)
{
    struct ring_header *ring = sp->ring;
    char call[300] = "", text[512];
    bool by_recorder = s->recorder_dead || __atomic_load_n(&s->control->stop, __ATOMIC_ACQUIRE);
    if (ring->call.active)
        trace_call_text(&ring->call, call, sizeof call);
    int n = snprintf(text, sizeof text, "%s%s%s",
                     s->recorder_dead ? "clio record died"
                     : by_recorder    ? "the recording was ended"
                                      : "killed",
                     *call ? " inside " : "", call);
    struct trace_end end = {.rec = {(uint32_t)(sizeof end + ((uint32_t)n + 7) / 8 * 8), REC_END, 0},
                            .space = sp->number,
                            .why = by_recorder ? END_RECORDER : END_KILLED,
                            .textlen = (uint32_t)n,
                            .seq = __atomic_fetch_add(&s->control->seq, 1, __ATOMIC_RELAXED),
                            .time_ns = realtime_ns(),
                            .events = ring->events};
    uint64_t head = ring->head, at = head % ring->capacity;
    if (at + end.rec.size > ring->capacity) {
        struct trace_record pad = {(uint32_t)(ring->capacity - at), REC_PAD, 0};
        memcpy(sp->data + at, &pad, sizeof pad);
        head += pad.size;
        at = 0;
    }
    memset(sp->data + at, 0, end.rec.size);
    memcpy(sp->data + at, &end, sizeof end);
    memcpy(sp->data + at + sizeof end, text, (size_t)n);
    __atomic_store_n(&ring->head, head + end.rec.size, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->state, RING_ENDED, __ATOMIC_RELEASE);
    sp->ended_by_store = true;
    LOG(store, "space %u: %s", sp->number, text);
}

static bool due(const struct space *sp, uint64_t now)
{
    uint64_t used = head_of(sp) - sp->ring->tail;
    return __atomic_load_n(&sp->ring->producer_waits, __ATOMIC_RELAXED) ||
           (used && (used >= DRAIN_BYTES || sp->dead || has_ended(sp) || now - sp->since_ms >= FLUSH_MS));
}

static void unmap(struct space *sp)
{
    munmap(sp->ring, RING_HEADER_SIZE + sp->ring->capacity);
    process_close(sp);
}

static void close_space(struct store *s, struct space *sp)
{
    bool killed = sp->ended_by_store;
    char name[16];
    snprintf(name, sizeof name, "%u", sp->number);
    unmap(sp);
    int fd = killed ? openat(s->rings, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0 || ftruncate(fd, RING_HEADER_SIZE))
        unlinkat(s->rings, name, 0);
    if (fd >= 0)
        close(fd);
    trace_sink_forget(s->sink, sp->number);
}

/* True when the process will write no more: known to be gone for long enough, or the whole recording is over.
 */
static bool silent(const struct store *s, const struct space *sp, uint64_t now)
{
    bool over = s->goodbye || (s->recorder_dead && s->nclients == 0);
    if (sp->dead)
        return over || now - sp->dead_ms >= DEATH_MS;
    return over && sp->pid <= 0;
}

/* One space's turn; false when the space is over and its slot free. */
static bool space_turn(struct store *s, struct space *sp, bool all, uint64_t now, bool *active)
{
    uint64_t head = head_of(sp);
    if (head != sp->seen_head) {
        *active = true;
        if (sp->seen_head == sp->ring->tail)
            sp->since_ms = now;
        sp->seen_head = head;
    }
    if (s->disk_full && now < s->retry_ms)
        return true;
    bool ended = has_ended(sp), quiet = silent(s, sp, now);
    enum drained drained = all || quiet || due(sp, now) ? drain(s, sp) : DRAIN_DONE;
    if (drained == DRAIN_DAMAGED) {
        unmap(sp);
        trace_sink_forget(s->sink, sp->number);
        return false;
    }
    if (drained == DRAIN_FULL)
        return true;
    if (!ended && quiet && head_of(sp) == sp->ring->tail) {
        publish_end(s, sp);
        if (drain(s, sp) != DRAIN_DONE)
            return true;
        ended = true;
    }
    if (!ended || head_of(sp) != sp->ring->tail)
        return true;
    close_space(s, sp);
    return false;
}

bool spaces_turn(struct store *s, bool all)
{
    uint64_t now = now_ms();
    bool active = false;
    see_counter(s);
    look_for_missing(s);
    for (size_t i = 0; i < s->nspaces;) {
        if (space_turn(s, &s->spaces[i], all, now, &active))
            i++;
        else
            s->spaces[i] = s->spaces[--s->nspaces];
    }
    return active;
}

bool spaces_pressing(const struct store *s)
{
    if (s->disk_full)
        return false;
    for (size_t i = 0; i < s->nspaces; i++) {
        const struct space *sp = &s->spaces[i];
        if (head_of(sp) - sp->ring->tail >= PRESSING_BYTES ||
            __atomic_load_n(&sp->ring->producer_waits, __ATOMIC_RELAXED))
            return true;
    }
    return __atomic_load_n(&s->control->spaces, __ATOMIC_ACQUIRE) != s->spaces_seen;
}
