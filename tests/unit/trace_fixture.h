/*
 * trace_fixture.h: for tests of src/trace: a made-up space whose event n has contents that follow from n, a
 * ring to publish it through, and a check that an event read is the event written.
 */
#ifndef CLIO_TESTS_TRACE_FIXTURE_H
#define CLIO_TESTS_TRACE_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "trace/dir_sink.h"
#include "trace/event_reader.h"
#include "trace/frame.h"
#include "trace/header.h"
#include "trace/record.h"
#include "trace/ring.h"

struct fixture {
    char path[256];
    int dir;
};

static inline int fixture_unlink(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void fixture_remove(const char *path)
{
    nftw(path, fixture_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void fixture_open(struct fixture *f)
{
    static int number;
    const char *base = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/clio-unit-%d-%d", base ? base : "/tmp", (int)getpid(), number++);
    fixture_remove(f->path);
    struct clio_trace_info info = {
        .cpu_level = 3, .argc = 2, .argv = (const char *const[]){"made-up", "a%b\nc"}};
    struct clio_error error;
    trace_info_here(&info);
    f->dir = trace_dir_create(f->path, &info, &error);
    assert_true(f->dir >= 0);
}

static inline void fixture_close(struct fixture *f)
{
    close(f->dir);
    fixture_remove(f->path);
}

/* ---- the producer ---- */

struct producer {
    uint32_t space;
    uint64_t events;
    struct ring_header *ring;
    uint8_t *data;
    uint64_t filled; /* positions filled, perhaps not yet published */
};

static inline void producer_open(struct producer *p, int dir, uint32_t space, uint64_t capacity)
{
    char name[32];
    snprintf(name, sizeof name, "rings/%u", space);
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(RING_HEADER_SIZE + capacity)), 0);
    void *map = mmap(NULL, RING_HEADER_SIZE + capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    *p = (struct producer){.space = space, .ring = map, .data = (uint8_t *)map + RING_HEADER_SIZE};
    *p->ring = (struct ring_header){.version = TRACE_FORMAT_VERSION,
                                    .header_size = RING_HEADER_SIZE,
                                    .capacity = capacity,
                                    .space = space,
                                    .pid = getpid(),
                                    .state = RING_RUNNING};
    __atomic_store_n(&p->ring->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

static inline void producer_close(struct producer *p)
{
    munmap(p->ring, RING_HEADER_SIZE + p->ring->capacity);
}

static inline uint64_t producer_room(const struct producer *p)
{
    return p->ring->capacity - (p->filled - __atomic_load_n(&p->ring->tail, __ATOMIC_ACQUIRE));
}

static inline void *producer_put(struct producer *p, const void *record)
{
    uint32_t size = ((const struct trace_record *)record)->size;
    uint64_t capacity = p->ring->capacity, rest = capacity - p->filled % capacity;
    if (rest < size) {
        while (producer_room(p) < rest)
            usleep(100);
        struct trace_record pad = {(uint32_t)rest, REC_PAD, 0};
        memcpy(p->data + p->filled % capacity, &pad, sizeof pad);
        p->filled += rest;
    }
    while (producer_room(p) < size)
        usleep(100);
    void *to = p->data + p->filled % capacity;
    memcpy(to, record, size);
    p->filled += size;
    return to;
}

static inline void producer_publish(struct producer *p)
{
    __atomic_store_n(&p->ring->events, p->events, __ATOMIC_RELAXED);
    __atomic_store_n(&p->ring->head, p->filled, __ATOMIC_RELEASE);
}

/* ---- contents ---- */

enum { FIXTURE_LARGE = 70000 };

static inline uint32_t event_effects(uint64_t n)
{
    return n % 501 == 0 ? 3 : (uint32_t)(n % 3);
}
static inline uint32_t event_effect_len(uint64_t n, uint32_t i)
{
    if (n % 501 == 0)
        return i == 1 ? FIXTURE_LARGE : 13;
    return n % 17 == 0 ? 300 + i : (uint32_t)(n % 20) + i;
}
static inline uint32_t event_effect_flags(uint64_t n, uint32_t i)
{
    return n % 7 == 0 && i == 0 ? EFF_ZERO : 0;
}
static inline uint8_t event_byte(uint64_t n, uint32_t i, uint32_t at)
{
    return (uint8_t)(n * 7 + i * 3 + at);
}
static inline uint32_t event_maps(uint64_t n)
{
    return n % 97 == 0 ? 3 : n % 31 == 0;
}
static inline uint64_t event_ticks(uint64_t n)
{
    return n % 5;
}

static inline void producer_space(struct producer *p)
{
    struct {
        struct trace_space s;
        char text[24];
    } r = {.s = {.rec = {sizeof r, REC_SPACE, 0},
                 .space = p->space,
                 .origin = SPACE_ROOT,
                 .pid = 100 + (int)p->space,
                 .cpu_level = 3,
                 .exelen = 7,
                 .cmdlen = 10},
           .text = "/bin/mumu\0-a\0-bb"};
    memcpy(r.text, "/bin/mumu\0-a\0-bb", 17);
    producer_put(p, &r);
    producer_publish(p);
}

static inline void put_event_maps(struct producer *p, uint64_t n)
{
    for (uint32_t i = 0; i < event_maps(n); i++) {
        struct {
            struct trace_map m;
            char path[8];
        } r = {.m = {.rec = {sizeof r, REC_MAP, 0}, .op = MAP_OP_FILE, .pathlen = 5, .addr = n, .len = i}};
        memcpy(r.path, "/path", 5);
        producer_put(p, &r);
    }
}

/* Bytes as REC_DATA records, the large ones in several. */
static inline void put_event_data(struct producer *p, const uint8_t *bytes, uint32_t size)
{
    static uint8_t buffer[FIXTURE_LARGE + 1000];
    uint32_t piece = size > 1000 ? 30001 : size;
    for (uint32_t at = 0; at < size; at += piece) {
        uint32_t length = size - at < piece ? size - at : piece;
        uint32_t body = (length + 7) & ~7u;
        struct trace_record r = {(uint32_t)sizeof r + body, REC_DATA, (uint16_t)(body - length)};
        memcpy(buffer, &r, sizeof r);
        memcpy(buffer + sizeof r, bytes + at, length);
        producer_put(p, buffer);
    }
}

/* Writes the next event, of a given kind, without publishing it. */
static inline void producer_event(struct producer *p, uint16_t kind)
{
    static uint8_t bytes[FIXTURE_LARGE + 4000], record[4000];
    uint64_t n = p->events + 1;
    uint32_t count = event_effects(n), used = 0, part = trace_part_size(kind);
    memset(record, 0, sizeof record);
    struct trace_event *e = (struct trace_event *)record;
    struct trace_effect *effects = (struct trace_effect *)(record + sizeof *e + part);
    for (uint32_t i = 0; i < count; i++) {
        effects[i] = (struct trace_effect){n * 16 + i, event_effect_len(n, i), event_effect_flags(n, i)};
        if (effects[i].flags & EFF_ZERO)
            continue;
        for (uint32_t at = 0; at < effects[i].len; at++)
            bytes[used++] = event_byte(n, i, at);
    }
    bool inside = n % 17 != 0 && n % 501 != 0;
    uint32_t size = (uint32_t)(sizeof *e + part + count * sizeof *effects);
    if (inside) {
        memcpy(record + size, bytes, used);
        size = (size + used + 7) & ~7u;
    } else
        put_event_data(p, bytes, used);
    put_event_maps(p, n);
    e->rec = (struct trace_record){size, kind,
                                   (uint16_t)((inside ? EVF_INLINE : 0) | event_maps(n) << EVF_NMAPS_SHIFT)};
    e->seq = n;
    e->ticks = event_ticks(n);
    e->pc = n * 3;
    e->result = (int64_t)n;
    e->nr = (uint16_t)(n % 300);
    e->neffects = (uint16_t)count;
    producer_put(p, e);
    p->events = n;
}

static inline void producer_events(struct producer *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        producer_event(p, p->events ? EV_SYSCALL : EV_START);
        producer_publish(p);
    }
}

static inline void producer_end(struct producer *p, uint32_t why, int32_t status)
{
    struct trace_end end = {.rec = {sizeof end, REC_END, 0},
                            .space = p->space,
                            .why = why,
                            .status = status,
                            .events = p->events};
    producer_put(p, &end);
    p->ring->state = RING_ENDED;
    producer_publish(p);
}

static inline void producer_exit(struct producer *p)
{
    producer_event(p, EV_EXIT);
    producer_publish(p);
    producer_end(p, END_EXIT, 0);
}

/* The same as the store does: append, then advance the tail. */
static inline bool drain(struct producer *p, struct trace_sink *sink, struct clio_error *error)
{
    uint64_t from = p->ring->tail, to = __atomic_load_n(&p->ring->head, __ATOMIC_ACQUIRE);
    if (!trace_sink_append(sink, p->space, p->data, p->ring->capacity, from, to, error))
        return false;
    __atomic_store_n(&p->ring->tail, to, __ATOMIC_RELEASE);
    return true;
}

/* Whether an event read is event n; false on the first difference. */
static inline bool is_event(const struct trace_item *item, uint64_t n)
{
    const struct trace_event *e = item->event;
    if (item->number != n || e->seq != n || e->pc != n * 3 || e->ticks != event_ticks(n) ||
        e->neffects != event_effects(n) || item->nmaps != event_maps(n))
        return false;
    const uint8_t *bytes = item->bytes;
    for (uint32_t i = 0; i < e->neffects; i++) {
        const struct trace_effect *f = &item->effects[i];
        if (f->addr != n * 16 + i || f->len != event_effect_len(n, i) || f->flags != event_effect_flags(n, i))
            return false;
        for (uint32_t at = 0; !(f->flags & EFF_ZERO) && at < f->len; at++)
            if (*bytes++ != event_byte(n, i, at))
                return false;
    }
    for (uint32_t i = 0; i < item->nmaps; i++)
        if (item->maps[i]->addr != n || item->maps[i]->len != i || item->maps[i]->pathlen != 5 ||
            memcmp(trace_map_path(item->maps[i]), "/path", 5) != 0)
            return false;
    return true;
}

/* Records in the tasks stream: births, ends and notes. */
static inline size_t source_tasks(struct clio_source *source)
{
    struct clio_error error;
    const struct clio_record_head *record;
    struct clio_stream *stream = clio_stream_open(source, 0, NULL, 0, &error);
    size_t count = 0;
    while (clio_stream_next(stream, &record, &error) == CLIO_RECORD)
        count++;
    clio_stream_close(stream);
    return count;
}

/* Reads a space to where it stops; every event must be right. Returns how it stops, *events the number read.
 */
static inline enum clio_next read_all(const char *path, uint32_t space, uint64_t *events,
                                      struct clio_error *error)
{
    *events = 0;
    struct clio_source *source = clio_source_open(path, error);
    if (!source)
        return CLIO_ERROR;
    struct trace_reader *reader = trace_reader_open(source, space, error);
    struct trace_item item;
    enum clio_next next = CLIO_ERROR;
    while (reader && (next = trace_reader_next(reader, &item)) == CLIO_RECORD)
        if (!is_event(&item, ++*events))
            fail_msg("event %llu is not what was written", (unsigned long long)*events);
    if (reader)
        *error = *trace_reader_error(reader);
    trace_reader_close(reader);
    clio_source_close(source);
    return next;
}

#endif
