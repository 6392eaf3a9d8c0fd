/*
 * serve.c: requests of engines and the recorder, and reports to the recorder. See store.h and protocol.h.
 *
 * Every request may come twice (its sender saw the store die in between), so each leaves the same state when
 * repeated.
 */
#include "store/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/packet.h"

enum { RETRY_MS = 200 };

static bool full(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* ---- reports ---- */

void report_flush(struct store *s)
{
    while (s->reports && s->report >= 0) {
        struct report *r = s->reports;
        int error =
            packet_send(s->report, &r->head, sizeof r->head, r->text, r->textlen, NULL, 0, MSG_DONTWAIT);
        if (error == -EAGAIN)
            return;
        if (error) {
            close(s->report);
            s->report = -1;
        }
        s->reports = r->next;
        free(r);
    }
}

void report_send(struct store *s, const struct store_report *head, const char *text)
{
    size_t n = strlen(text);
    struct report *r = s->report < 0 ? NULL : malloc(sizeof *r + n);
    if (!r)
        return;
    r->next = NULL;
    r->head = *head;
    r->textlen = n;
    memcpy(r->text, text, n);
    struct report **last = &s->reports;
    while (*last)
        last = &(*last)->next;
    *last = r;
    report_flush(s);
}

void store_note(struct store *s, uint32_t space, const char *text)
{
    struct {
        struct trace_note note;
        char text[2048];
    } record = {.note = {.space = space}};
    size_t n = strnlen(text, sizeof record.text - 8);
    memcpy(record.text, text, n);
    record.note.textlen = (uint32_t)n;
    record.note.rec = (struct trace_record){(uint32_t)(sizeof record.note + (n + 7) / 8 * 8), REC_NOTE, 0};
    record.note.seq = __atomic_fetch_add(&s->control->seq, 1, __ATOMIC_RELAXED);
    struct clio_error error;
    if (!trace_sink_task(s->sink, &record.note.rec, &error))
        LOG(store, "note \"%s\" is lost: %s", text, error.text);
    struct store_report head = {.op = REPORT_NOTE, .space = space};
    report_send(s, &head, text);
}

void store_disk_full(struct store *s, const char *what)
{
    s->retry_ms = now_ms() + RETRY_MS;
    if (s->disk_full)
        return;
    s->disk_full = true;
    __atomic_store_n(&s->control->disk_full, 1, __ATOMIC_RELEASE);
    LOG(store, "paused: %s", what);
    report_send(s, &(struct store_report){.op = REPORT_DISK_FULL}, what);
}

void store_disk_free(struct store *s)
{
    if (s->waiting || spaces_starved(s))
        return; /* small writes succeed; what waits is larger */
    s->disk_full = false;
    __atomic_store_n(&s->control->disk_full, 0, __ATOMIC_RELEASE);
    LOG(store, "resumed");
    report_send(s, &(struct store_report){.op = REPORT_RESUMED}, "");
}

/* ---- requests ---- */

static void reply(int to, const struct store_reply *r, int fd)
{
    if (to < 0)
        return;
    int error = packet_send(to, r, sizeof *r, NULL, 0, &fd, fd >= 0, MSG_DONTWAIT);
    if (error)
        LOG(store, "a reply was not taken: %s", strerror(-error));
}

/*
 * Answers a request for a file; returns -errno of a full disk, when nothing was answered. The file is closed
 * before: what ends with the last descriptor of an open file (a flock, an unlinked name) must end when the
 * guest closes its own.
 */
static int answer_file(struct store *s, const struct store_request *q, const char *path, int to, int *file)
{
    struct pool_file captured;
    int error = *file < 0 ? -EBADF : pool_capture(s->pool, *file, q->status == 1, &captured);
    if (full(error))
        return error;
    if (*file >= 0)
        close(*file);
    *file = -1;
    struct store_reply r = {.error = -error};
    if (!error) {
        char name[POOL_NAME_SIZE], text[PATH_MAX + 100];
        pool_name(name, captured.hash);
        LOG(file, "space %u: %s is %s, %llu bytes", q->space, path, name, (unsigned long long)captured.size);
        r.size = captured.size;
        memcpy(r.hash, captured.hash, sizeof r.hash);
        if (captured.changed) {
            snprintf(text, sizeof text,
                     "%s was being written while it was captured; replay sees the bytes read last", path);
            store_note(s, q->space, text);
        }
    } else {
        LOG(file, "space %u: %s: %s", q->space, path, strerror(-error));
    }
    reply(to, &r, -1);
    return 0;
}

static int answer_ring(struct store *s, const struct store_request *q, int to)
{
    int fd = spaces_make_ring(s, q->space);
    if (full(fd))
        return fd;
    struct store_reply r = {.error = fd < 0 ? -fd : 0, .size = RING_HEADER_SIZE + RING_CAPACITY};
    reply(to, &r, fd);
    if (fd >= 0)
        close(fd);
    return 0;
}

static int answer_memory(const struct store_request *q, int to)
{
    int fd = memfd_create("proc", MFD_CLOEXEC);
    int error = fd < 0 || ftruncate(fd, q->status) ? errno : 0;
    struct store_reply r = {.error = error, .size = (uint64_t)q->status};
    reply(to, &r, error ? -1 : fd);
    if (fd >= 0)
        close(fd);
    return 0;
}

static int answer(struct store *s, struct waiting *w)
{
    if (w->request.op == STORE_MAKE_MEMORY)
        return answer_memory(&w->request, w->reply);
    return w->request.op == STORE_FILE ? answer_file(s, &w->request, w->text, w->reply, &w->file)
                                       : answer_ring(s, &w->request, w->reply);
}

static void waiting_free(struct waiting *w)
{
    if (w->reply >= 0)
        close(w->reply);
    if (w->file >= 0)
        close(w->file);
    free(w);
}

/* Answers now, or when there is room on the disk. Takes the descriptors. */
static void answer_or_wait(struct store *s, const struct store_request *q, const char *text, int to, int file)
{
    struct waiting *w = malloc(sizeof *w + strlen(text) + 1);
    if (!w)
        die("no memory for a request");
    *w = (struct waiting){.request = *q, .reply = to, .file = file};
    strcpy(w->text, text);
    int error = answer(s, w);
    if (!error) {
        waiting_free(w);
        return;
    }
    struct waiting **last = &s->waiting;
    while (*last)
        last = &(*last)->next;
    *last = w;
    char what[PATH_MAX + 100];
    snprintf(what, sizeof what, "%s: %s", *text ? text : "a new ring", strerror(-error));
    store_disk_full(s, what);
}

bool serve_waiting(struct store *s)
{
    while (s->waiting) {
        struct waiting *w = s->waiting;
        if (answer(s, w)) {
            s->retry_ms = now_ms() + RETRY_MS;
            return false;
        }
        s->waiting = w->next;
        waiting_free(w);
    }
    return true;
}

/* True when process `pid` sees the same process numbers as we do. */
static bool same_pid_namespace(int pid)
{
    char path[48];
    struct stat ours, theirs;
    snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
    return stat("/proc/self/ns/pid", &ours) || stat(path, &theirs) ||
           (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev);
}

/* The pid of an announced space as we see it: the announced one, unless the announcer lives in a pid
 * namespace of its own; then the announcer itself is meant, whose number the kernel translated. */
static int announced_pid(const struct store_request *q, const struct packet *p)
{
    if (q->pid <= 0 || (p->pid && p->pid != q->pid && !same_pid_namespace(p->pid)))
        return p->pid;
    return q->pid;
}

static void hello(struct store *s, struct packet *p, int to)
{
    if (p->nfds > 1) {
        if (s->recorder >= 0)
            close(s->recorder);
        s->recorder = p->fds[1];
        p->fds[1] = -1;
    }
    reply(to, &(struct store_reply){0}, -1);
}

static void obey(struct store *s, const struct store_request *q, struct packet *p)
{
    int to = -1, file = -1, next = 0;
    if (q->wants_reply && p->nfds > next)
        to = p->fds[next++];
    switch (q->op) {
    case STORE_HELLO:
        hello(s, p, to);
        break;
    case STORE_SPACE:
        spaces_announce(s, q->space, announced_pid(q, p));
        break;
    case STORE_FILE:
        if (p->nfds > next)
            file = p->fds[next++];
        /* fall through */
    case STORE_MAKE_RING:
    case STORE_MAKE_MEMORY:
        p->nfds = 0; /* the request's from here on; any more descriptors were not asked for */
        answer_or_wait(s, q, p->text, to, file);
        break;
    case STORE_WAKE:
        break;
    case STORE_GOODBYE:
        s->goodbye = true;
        s->goodbye_ms = now_ms();
        reply(to, &(struct store_reply){0}, -1);
        break;
    case STORE_STOP:
        report_send(s, &(struct store_report){.op = REPORT_STOP}, "");
        reply(to, &(struct store_reply){.error = s->report < 0 ? ESRCH : 0}, -1);
        break;
    default:
        LOG(store, "request %u is unknown", q->op);
        reply(to, &(struct store_reply){.error = ENOSYS}, -1);
    }
}

bool serve_request(struct store *s, int client)
{
    struct store_request q;
    static struct packet p; /* 16 KiB */
    int got = packet_receive(client, &q, sizeof q, &p, MSG_DONTWAIT);
    if (got == -EAGAIN)
        return true;
    if (got == -EBADMSG) {
        LOG(store, "a request of wrong size was ignored");
        return true;
    }
    if (got <= 0)
        return false;
    if (q.textlen < p.textlen)
        p.text[q.textlen] = 0;
    obey(s, &q, &p);
    packet_close(&p);
    return true;
}
