/*
 * dir_sink.c: see dir_sink.h.
 *
 * An append sorts the batch's records into one run of bytes for each substream and writes these as frames in
 * the order data, maps, events, tasks; see frame.h for why. A frame that could not be written whole is cut
 * off again and leaves the substream as it was, so the next append, which covers the same positions, repeats
 * it and skips what the other substreams hold already.
 */
#include "trace/dir_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/fault.h"
#include "trace/frame.h"
#include "trace/header.h"

enum { SPACES_MAX = 1 << 24 };
enum { SINK_LEVEL = -1 }; /* of zstd: see docs/trace-format.md for what the levels cost */

static const int write_order[STREAM_COUNT] = {STREAM_DATA, STREAM_MAPS, STREAM_EVENTS, STREAM_TASKS};

struct sink_file { /* a substream file at its end */
    int fd;        /* -1: not open */
    bool found;    /* offset and sequence are known */
    uint64_t offset, sequence;
};

struct sink_space {
    uint32_t number;
    bool recovered; /* the fields below are what the files say */
    bool ended;
    struct sink_file files[STREAM_COUNT]; /* not STREAM_TASKS */
    uint64_t ring_to[STREAM_COUNT];       /* positions below are stored */
    uint64_t records[STREAM_COUNT];       /* records stored */
    uint64_t data_after, maps_after;      /* REC_DATA and REC_MAP records below ring_to[STREAM_EVENTS] */
};

struct run { /* a batch's records of one substream */
    uint8_t *bytes;
    size_t size, capacity;
    uint32_t count;
};

struct trace_sink {
    int dir;
    int lifeline;
    uint8_t identity[16];
    struct sink_file tasks;
    uint64_t own_records;       /* in tasks, with space 0 */
    struct sink_space **spaces; /* by number; NULL where not yet seen */
    uint32_t nspaces;
    struct run runs[STREAM_COUNT];
    uint64_t data_in_batch, maps_in_batch; /* from positions that the events substream lacks */
    struct frame_writer writer;
};

static const char *file_name(int stream, uint32_t space, char name[48])
{
    static const char *const names[STREAM_COUNT] = {NULL, "events", "data", "maps"};
    if (stream == STREAM_TASKS)
        return "tasks";
    snprintf(name, 48, "spaces/%u/%s", space, names[stream]);
    return name;
}

/* ---- spaces ---- */

static struct sink_space *space_slot(struct trace_sink *sink, uint32_t number, struct clio_error *error)
{
    if (number > SPACES_MAX) {
        fault_set(error, CLIO_FAULT_DAMAGED, "space number %u is impossible", number);
        return NULL;
    }
    if (number >= sink->nspaces) {
        uint32_t n = number + 64;
        struct sink_space **p = reallocarray(sink->spaces, n, sizeof(void *));
        if (!p) {
            fault_system(error, ENOMEM, "space %u", number);
            return NULL;
        }
        memset(p + sink->nspaces, 0, (n - sink->nspaces) * sizeof(void *));
        sink->spaces = p;
        sink->nspaces = n;
    }
    if (!sink->spaces[number]) {
        struct sink_space *s = calloc(1, sizeof *s);
        if (!s) {
            fault_system(error, ENOMEM, "space %u", number);
            return NULL;
        }
        s->number = number;
        for (int i = 0; i < STREAM_COUNT; i++)
            s->files[i].fd = -1;
        sink->spaces[number] = s;
    }
    return sink->spaces[number];
}

/* ---- finding out what is stored ---- */

/* Notes the end of the file after its frames were walked; cuts an incomplete frame off. */
static bool found_end(struct trace_sink *sink, const struct frame_file *file, enum frame_found found,
                      struct sink_file *end, struct clio_error *error)
{
    end->offset = file->checked ? file->offset : 0;
    end->sequence = file->sequence;
    end->found = true;
    if (found == FRAME_NONE)
        return true;
    int fd = openat(sink->dir, file->name, O_WRONLY | O_CLOEXEC);
    bool cut = fd >= 0 && ftruncate(fd, (off_t)end->offset) == 0;
    int code = errno;
    if (fd >= 0)
        close(fd);
    return cut || fault_system(error, code, "cutting an incomplete frame off %s", file->name);
}

static void recover_frame(struct sink_space *s, int stream, const struct frame_header *h)
{
    s->ring_to[stream] = h->ring_to;
    s->records[stream] = h->first + h->records;
    if (stream == STREAM_EVENTS) {
        s->data_after = h->data_after;
        s->maps_after = h->maps_after;
    }
}

static bool recover_substream(struct trace_sink *sink, struct sink_space *s, int stream,
                              struct clio_error *error)
{
    char name[48];
    struct frame_file file;
    frame_file_open(&file, sink->dir, file_name(stream, s->number, name), (uint32_t)stream, s->number,
                    sink->identity);
    enum frame_found found;
    while ((found = frame_file_next(&file, error)) == FRAME_FOUND)
        recover_frame(s, stream, &file.header);
    bool good = found != FRAME_ERROR && found_end(sink, &file, found, &s->files[stream], error);
    frame_file_close(&file);
    return good;
}

static struct sink_space *space_get(struct trace_sink *sink, uint32_t number, struct clio_error *error)
{
    struct sink_space *s = space_slot(sink, number, error);
    if (!s || s->recovered)
        return s;
    for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++)
        if (!recover_substream(sink, s, stream, error))
            return NULL;
    s->recovered = true;
    return s;
}

static bool recover_task_records(struct trace_sink *sink, const uint8_t *raw, uint32_t size,
                                 struct clio_error *error)
{
    for (uint32_t at = 0; at < size;) {
        const struct trace_record *r = (const struct trace_record *)(raw + at);
        if (r->kind == REC_END && r->size >= sizeof(struct trace_end)) {
            struct sink_space *s = space_slot(sink, ((const struct trace_end *)r)->space, error);
            if (!s)
                return false;
            s->ended = true;
        }
        at += r->size;
    }
    return true;
}

static bool recover_tasks(struct trace_sink *sink, struct clio_error *error)
{
    struct frame_file file;
    uint8_t *raw = NULL;
    size_t capacity = 0;
    enum frame_found found;
    frame_file_open(&file, sink->dir, "tasks", STREAM_TASKS, 0, sink->identity);
    while ((found = frame_file_next(&file, error)) == FRAME_FOUND) {
        const struct frame_header *h = &file.header;
        struct sink_space *s = space_slot(sink, h->space, error);
        if (!s || !frame_file_records(&file, &raw, &capacity, error) ||
            !recover_task_records(sink, raw, h->raw_size, error)) {
            found = FRAME_ERROR;
            break;
        }
        recover_frame(s, STREAM_TASKS, h);
        if (h->space == 0)
            sink->own_records = h->first + h->records;
    }
    bool good = found != FRAME_ERROR && found_end(sink, &file, found, &sink->tasks, error);
    frame_file_close(&file);
    free(raw);
    return good;
}

struct trace_sink *trace_sink_open(int dir, struct clio_error *error)
{
    struct trace_header header;
    if (!trace_header_read(&header, dir, ".", error))
        return NULL;
    struct trace_sink *sink = calloc(1, sizeof *sink);
    if (!sink || !frame_writer_open(&sink->writer, SINK_LEVEL)) {
        fault_system(error, ENOMEM, "opening the trace");
        free(sink);
        trace_header_free(&header);
        return NULL;
    }
    sink->dir = dir;
    sink->tasks.fd = -1;
    memcpy(sink->identity, header.identity, 16);
    trace_header_free(&header);
    sink->lifeline = trace_lifeline_hold(dir);
    if (sink->lifeline < 0)
        fault_system(error, errno, "locking lifeline");
    if (sink->lifeline >= 0 && recover_tasks(sink, error))
        return sink;
    trace_sink_close(sink, false, &(struct clio_error){0});
    return NULL;
}

/* ---- sorting a batch ---- */

static bool run_add(struct run *run, const uint8_t *bytes, size_t size, struct clio_error *error)
{
    if (run->size + size > run->capacity) {
        size_t capacity = (run->size + size) * 2;
        uint8_t *p = realloc(run->bytes, capacity);
        if (!p)
            return fault_system(error, ENOMEM, "sorting a batch of records");
        run->bytes = p;
        run->capacity = capacity;
    }
    memcpy(run->bytes + run->size, bytes, size);
    run->size += size;
    return true;
}

struct span { /* neighbouring records of one substream, to be copied at once */
    const uint8_t *begin;
    size_t size;
    int stream;
};

static bool span_flush(struct trace_sink *sink, struct span *span, struct clio_error *error)
{
    size_t size = span->size;
    span->size = 0;
    return size == 0 || run_add(&sink->runs[span->stream], span->begin, size, error);
}

static bool bad_ring(uint32_t space, uint64_t position, uint32_t size, uint16_t kind,
                     struct clio_error *error)
{
    return fault_set(error, CLIO_FAULT_DAMAGED,
                     "rings/%u: position %" PRIu64 ": no record (size %u, kind %u)", space, position, size,
                     kind);
}

/*
 * Sorts the records at [from, to) into sink->runs, leaving out what is stored. Sizes are read once: the ring
 * is shared with the guest's process, and bytes that change under us must not lead us astray.
 */
static bool sort_batch(struct trace_sink *sink, struct sink_space *s, const uint8_t *data, uint64_t capacity,
                       uint64_t from, uint64_t to, struct clio_error *error)
{
    struct span span = {0};
    sink->data_in_batch = sink->maps_in_batch = 0;
    for (int i = 0; i < STREAM_COUNT; i++)
        sink->runs[i].size = sink->runs[i].count = 0;
    for (uint64_t p = from; p < to;) {
        uint64_t offset = p % capacity;
        const uint8_t *at = data + offset;
        uint64_t limit = capacity - offset < to - p ? capacity - offset : to - p;
        struct trace_record r;
        uint64_t head = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
        memcpy(&r, &head, sizeof r);
        int stream = trace_stream_of(r.kind);
        if (r.size < sizeof r || r.size % 8 || r.size > limit || (stream < 0 && r.kind != REC_PAD))
            return bad_ring(s->number, p, r.size, r.kind, error);
        if (p >= s->ring_to[STREAM_EVENTS]) {
            sink->data_in_batch += stream == STREAM_DATA;
            sink->maps_in_batch += stream == STREAM_MAPS;
        }
        if (stream >= 0 && p >= s->ring_to[stream]) {
            if (stream != span.stream || span.begin + span.size != at) {
                if (!span_flush(sink, &span, error))
                    return false;
                span.stream = stream;
                span.begin = at;
            }
            span.size += r.size;
            sink->runs[stream].count++;
        }
        p += r.size;
    }
    return span_flush(sink, &span, error);
}

/* ---- writing ---- */

static bool write_all(int fd, const void *bytes, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

/* Writes at the file's end; on failure the file is as before. */
static bool append_bytes(struct sink_file *file, const char *name, const void *bytes, size_t size,
                         struct clio_error *error)
{
    if (write_all(file->fd, bytes, size, file->offset)) {
        file->offset += size;
        return true;
    }
    int code = errno;
    if (ftruncate(file->fd, (off_t)file->offset) < 0)
        return fault_system(error, errno, "writing %s failed (%s), and so did cutting it back", name,
                            strerror(code));
    return fault_system(error, code, "writing %s", name);
}

static bool make_space_dir(struct trace_sink *sink, uint32_t space, struct clio_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "spaces/%u", space);
    if (mkdirat(sink->dir, name, 0700) < 0 && errno != EEXIST)
        return fault_system(error, errno, "creating %s", name);
    return true;
}

static bool open_sink_file(struct trace_sink *sink, struct sink_file *file, int stream, uint32_t space,
                           struct clio_error *error)
{
    char buffer[48];
    const char *name = file_name(stream, space, buffer);
    if (file->fd < 0) {
        if (stream != STREAM_TASKS && file->offset == 0 && !make_space_dir(sink, space, error))
            return false;
        file->fd = openat(sink->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file->fd < 0)
            return fault_system(error, errno, "opening %s", name);
    }
    if (file->offset)
        return true;
    struct frame_file_header header;
    frame_file_header_build(&header, (uint32_t)stream, stream == STREAM_TASKS ? 0 : space, sink->identity);
    return append_bytes(file, name, &header, sizeof header, error);
}

static bool write_frame(struct trace_sink *sink, struct sink_file *file, struct frame_header *header,
                        const void *raw, size_t size, struct clio_error *error)
{
    char buffer[48];
    if (!open_sink_file(sink, file, header->stream, header->space, error))
        return false;
    header->sequence = file->sequence;
    size_t n = frame_build(&sink->writer, header, raw, size);
    if (n == 0)
        return fault_system(error, ENOMEM, "compressing a frame of %zu bytes", size);
    if (!append_bytes(file, file_name(header->stream, header->space, buffer), sink->writer.buffer, n, error))
        return false;
    file->sequence++;
    return true;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool write_run(struct trace_sink *sink, struct sink_space *s, int stream, uint64_t from, uint64_t to,
                      struct clio_error *error)
{
    struct run *run = &sink->runs[stream];
    bool needed = run->count || (stream == STREAM_EVENTS && to > s->ring_to[stream]);
    if (!needed)
        return true;
    struct frame_header h = {.stream = (uint8_t)stream,
                             .space = s->number,
                             .records = run->count,
                             .first = s->records[stream],
                             .ring_from = later(from, s->ring_to[stream]),
                             .ring_to = to};
    if (stream == STREAM_EVENTS) {
        h.data_after = s->data_after + sink->data_in_batch;
        h.maps_after = s->maps_after + sink->maps_in_batch;
    }
    struct sink_file *file = stream == STREAM_TASKS ? &sink->tasks : &s->files[stream];
    if (!write_frame(sink, file, &h, run->bytes, run->size, error))
        return false;
    recover_frame(s, stream, &h);
    return true;
}

static void note_end(struct trace_sink *sink, struct sink_space *s)
{
    const struct run *run = &sink->runs[STREAM_TASKS];
    for (size_t at = 0; at < run->size;) {
        const struct trace_record *r = (const struct trace_record *)(run->bytes + at);
        if (r->size < sizeof *r)
            break; /* changed in the ring after it was checked; readers will find the frame bad */
        if (r->kind == REC_END)
            s->ended = true;
        at += r->size;
    }
}

bool trace_sink_append(struct trace_sink *sink, uint32_t space, const uint8_t *data, uint64_t capacity,
                       uint64_t from, uint64_t to, struct clio_error *error)
{
    struct sink_space *s = space_get(sink, space, error);
    if (!s)
        return false;
    if (space == 0 || from > to || to - from > capacity || capacity > FRAME_RAW_MAX || capacity % 8 ||
        from % 8)
        return fault_set(error, CLIO_FAULT_DAMAGED, "rings/%u: impossible positions %" PRIu64 "..%" PRIu64,
                         space, from, to);
    if (from > s->ring_to[STREAM_EVENTS])
        return fault_set(error, CLIO_FAULT_DAMAGED,
                         "spaces/%u/events: ends at ring position %" PRIu64 ", the ring begins at %" PRIu64,
                         space, s->ring_to[STREAM_EVENTS], from);
    if (!sort_batch(sink, s, data, capacity, from, to, error))
        return false;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (!write_run(sink, s, write_order[i], from, to, error))
            return false;
    note_end(sink, s);
    return true;
}

bool trace_sink_task(struct trace_sink *sink, const struct trace_record *record, struct clio_error *error)
{
    struct frame_header h = {.stream = STREAM_TASKS, .records = 1, .first = sink->own_records};
    if (!write_frame(sink, &sink->tasks, &h, record, record->size, error))
        return false;
    sink->own_records++;
    if (record->kind == REC_END) {
        struct sink_space *s = space_slot(sink, ((const struct trace_end *)record)->space, error);
        if (!s)
            return false;
        s->ended = true;
    }
    return true;
}

/* ---- asking ---- */

uint64_t trace_sink_stored(struct trace_sink *sink, uint32_t space, enum trace_stream stream)
{
    struct clio_error ignored;
    const struct sink_space *s = space_get(sink, space, &ignored);
    return s ? s->ring_to[stream] : 0;
}

bool trace_sink_ended(const struct trace_sink *sink, uint32_t space)
{
    return space < sink->nspaces && sink->spaces[space] && sink->spaces[space]->ended;
}

uint64_t trace_sink_events(struct trace_sink *sink, uint32_t space)
{
    struct clio_error ignored;
    const struct sink_space *s = space_get(sink, space, &ignored);
    return s ? s->records[STREAM_EVENTS] : 0;
}

void trace_sink_forget(struct trace_sink *sink, uint32_t space)
{
    if (space >= sink->nspaces || !sink->spaces[space])
        return;
    struct sink_space *s = sink->spaces[space];
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (s->files[i].fd >= 0)
            close(s->files[i].fd);
        s->files[i].fd = -1;
    }
}

bool trace_sink_close(struct trace_sink *sink, bool sync, struct clio_error *error)
{
    bool good = !sync || syncfs(sink->dir) == 0 || fault_system(error, errno, "syncing the trace to disk");
    for (uint32_t i = 0; i < sink->nspaces; i++) {
        trace_sink_forget(sink, i);
        free(sink->spaces[i]);
    }
    free(sink->spaces);
    for (int i = 0; i < STREAM_COUNT; i++)
        free(sink->runs[i].bytes);
    frame_writer_close(&sink->writer);
    if (sink->tasks.fd >= 0)
        close(sink->tasks.fd);
    if (sink->lifeline >= 0)
        close(sink->lifeline);
    free(sink);
    return good;
}
