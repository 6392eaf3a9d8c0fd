/*
 * tasks.c: see tasks.h.
 *
 * For each ring the tail is read before the substream and again after the ring's bytes were copied: whatever
 * lies below the first tail is in the substream by then, and if the second one has not passed the copy's
 * start, the copy is what was published. Records are counted for each space, so that a record met in the ring
 * and later in a frame is known by its ordinal.
 */
#include "trace/tasks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/fault.h"

void tasks_open(struct tasks *tasks, int dir, const uint8_t identity[16])
{
    *tasks = (struct tasks){.dir = dir};
    frame_file_open(&tasks->file, dir, "tasks", STREAM_TASKS, 0, identity);
}

void tasks_close(struct tasks *tasks)
{
    for (size_t i = 0; i < tasks->count; i++)
        free((void *)tasks->list[i]);
    for (size_t i = 0; i < tasks->nspaces; i++) {
        ring_view_close(&tasks->spaces[i]->ring);
        free(tasks->spaces[i]);
    }
    free(tasks->list);
    free(tasks->spaces);
    free(tasks->raw);
    free(tasks->ring_bytes);
    frame_file_close(&tasks->file);
}

/* ---- spaces, sorted by number ---- */

static size_t space_index(const struct tasks *tasks, uint32_t space)
{
    size_t low = 0, high = tasks->nspaces;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tasks->spaces[middle]->space < space)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct tasks_space *tasks_find(const struct tasks *tasks, uint32_t space)
{
    size_t i = space_index(tasks, space);
    return i < tasks->nspaces && tasks->spaces[i]->space == space ? tasks->spaces[i] : NULL;
}

static struct tasks_space *space_add(struct tasks *tasks, uint32_t space, struct clio_error *error)
{
    size_t i = space_index(tasks, space);
    if (i < tasks->nspaces && tasks->spaces[i]->space == space)
        return tasks->spaces[i];
    if (tasks->nspaces == tasks->spaces_capacity) {
        size_t n = tasks->spaces_capacity * 2 + 16;
        void *p = reallocarray(tasks->spaces, n, sizeof(void *));
        if (!p) {
            fault_system(error, ENOMEM, "reading tasks");
            return NULL;
        }
        tasks->spaces = p;
        tasks->spaces_capacity = n;
    }
    struct tasks_space *s = calloc(1, sizeof *s);
    if (!s) {
        fault_system(error, ENOMEM, "reading tasks");
        return NULL;
    }
    s->space = space;
    s->ring.fd = -1;
    memmove(tasks->spaces + i + 1, tasks->spaces + i, (tasks->nspaces - i) * sizeof(void *));
    tasks->spaces[i] = s;
    tasks->nspaces++;
    return s;
}

bool tasks_know(struct tasks *tasks, uint32_t space, struct clio_error *error)
{
    return space_add(tasks, space, error) != NULL;
}

/* ---- records ---- */

uint32_t tasks_record_space(const struct trace_record *record)
{
    switch (record->kind) {
    case REC_SPACE:
        return ((const struct trace_space *)record)->space;
    case REC_END:
        return ((const struct trace_end *)record)->space;
    case REC_NOTE:
        return ((const struct trace_note *)record)->space;
    }
    return 0;
}

const char *tasks_record_text(const struct trace_record *record, uint32_t *size)
{
    if (record->kind == REC_END) {
        *size = ((const struct trace_end *)record)->textlen;
        return (const char *)((const struct trace_end *)record + 1);
    }
    if (record->kind == REC_NOTE) {
        *size = ((const struct trace_note *)record)->textlen;
        return (const char *)((const struct trace_note *)record + 1);
    }
    return NULL;
}

/* Whether the record holds what its kind promises. */
static bool well_formed(const struct trace_record *r)
{
    uint32_t head = trace_head_size(r->kind), text = 0;
    if (r->size < head)
        return false;
    if (r->kind == REC_SPACE) {
        const struct trace_space *s = (const struct trace_space *)r;
        return (uint64_t)s->exelen + s->cmdlen <= r->size - head;
    }
    return !tasks_record_text(r, &text) || text <= r->size - head;
}

static bool list_add(struct tasks *tasks, const struct trace_record *r, struct clio_error *error)
{
    if (tasks->count == tasks->capacity) {
        size_t n = tasks->capacity * 2 + 64;
        void *p = reallocarray(tasks->list, n, sizeof(void *));
        if (!p)
            return fault_system(error, ENOMEM, "reading tasks");
        tasks->list = p;
        tasks->capacity = n;
    }
    struct trace_record *copy = malloc(r->size);
    if (!copy)
        return fault_system(error, ENOMEM, "reading tasks");
    memcpy(copy, r, r->size);
    tasks->list[tasks->count++] = copy;
    struct tasks_space *about = space_add(tasks, tasks_record_space(r), error);
    if (!about)
        return false;
    if (r->kind == REC_SPACE && !about->birth)
        about->birth = (const struct trace_space *)copy;
    if (r->kind == REC_END && !about->end)
        about->end = (const struct trace_end *)copy;
    return true;
}

/* Adds a record that came through `from`'s ring or frames. Unknown optional kinds count but are left out. */
static bool take(struct tasks *tasks, struct tasks_space *from, const struct trace_record *r,
                 const char *name, struct clio_error *error)
{
    from->records++;
    if (trace_stream_of(r->kind) != STREAM_TASKS)
        return true;
    if (!well_formed(r))
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s: a %s record of space %u is malformed", name,
                         clio_kind_name(r->kind), from->space);
    return list_add(tasks, r, error);
}

/* ---- the substream ---- */

static bool take_frame(struct tasks *tasks, struct clio_error *error)
{
    struct frame_header h = tasks->file.header;
    struct tasks_space *from = space_add(tasks, h.space, error);
    if (!from || !frame_file_records(&tasks->file, &tasks->raw, &tasks->raw_capacity, error))
        return false;
    uint64_t ordinal = h.first;
    for (uint32_t at = 0; at < h.raw_size; ordinal++) {
        const struct trace_record *r = (const struct trace_record *)(tasks->raw + at);
        if (ordinal > from->records)
            return fault_set(error, CLIO_FAULT_DAMAGED,
                             "tasks: records of space %u are missing before offset %llu", h.space,
                             (unsigned long long)tasks->file.header_offset);
        if (ordinal == from->records && !take(tasks, from, r, "tasks", error))
            return false;
        at += r->size;
    }
    if (h.ring_to > from->stored_to)
        from->stored_to = h.ring_to;
    return true;
}

static bool take_file(struct tasks *tasks, struct clio_error *error)
{
    enum frame_found found;
    while ((found = frame_file_next(&tasks->file, error)) == FRAME_FOUND)
        if (!take_frame(tasks, error))
            return false;
    return found != FRAME_ERROR;
}

/* ---- rings ---- */

static uint64_t latest_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t m = a > b ? a : b;
    return m > c ? m : c;
}

/* Adds the records of copied ring bytes; stops at what is no record (reading the space reports it). */
static bool take_ring_bytes(struct tasks *tasks, struct tasks_space *s, uint64_t size,
                            struct clio_error *error)
{
    for (uint64_t at = 0; at < size;) {
        const struct trace_record *r = (const struct trace_record *)(tasks->ring_bytes + at);
        if (r->size < sizeof *r || r->size % 8 || r->size > size - at)
            return true;
        if (trace_stream_of(r->kind) == STREAM_TASKS && !take(tasks, s, r, "rings", error))
            return false;
        at += r->size;
    }
    return true;
}

/* False when the store moved records since look_at_rings: the substream has to be read again. */
static bool take_ring(struct tasks *tasks, struct tasks_space *s)
{
    struct clio_error ignored;
    if (ring_view_open(&s->ring, tasks->dir, s->space, &ignored) != RING_OPEN)
        return false;
    uint64_t head = ring_view_head(&s->ring);
    uint64_t from = latest_of(s->tail, s->stored_to, s->scanned_to);
    if (from < head) {
        bool copied =
            ring_view_copy(&s->ring, from, head, &tasks->ring_bytes, &tasks->ring_capacity, &ignored);
        if (ring_view_tail(&s->ring) > from)
            return false;
        s->ring_over = !copied || !take_ring_bytes(tasks, s, head - from, &ignored);
        s->scanned_to = head;
    }
    if (s->end)
        s->ring_over = true;
    if (s->ring_over || !s->keep_open)
        ring_view_close(&s->ring);
    return true;
}

/* Makes a tasks_space for every ring in the directory. */
static bool find_rings(struct tasks *tasks, struct clio_error *error)
{
    int fd = openat(tasks->dir, "rings", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return errno == ENOENT || fault_system(error, errno, "reading the directory rings");
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        unsigned long space = strtoul(entry->d_name, &end, 10);
        if (*end == 0 && space > 0 && space <= UINT32_MAX && !space_add(tasks, (uint32_t)space, error)) {
            closedir(dir);
            return false;
        }
    }
    closedir(dir);
    return true;
}

enum { RINGS_OPEN = 64 }; /* at most that many are kept open */

/* Notes every ring's tail, before the substream is read. */
static void look_at_rings(struct tasks *tasks)
{
    struct clio_error ignored;
    int kept = 0;
    for (size_t i = 0; i < tasks->nspaces; i++) {
        struct tasks_space *s = tasks->spaces[i];
        s->looked = s->space && !s->ring_over &&
                    ring_view_open(&s->ring, tasks->dir, s->space, &ignored) == RING_OPEN;
        if (!s->looked)
            continue;
        s->tail = ring_view_tail(&s->ring);
        s->keep_open = kept++ < RINGS_OPEN;
        if (!s->keep_open)
            ring_view_close(&s->ring);
    }
}

/* False when the store moved records meanwhile. */
static bool take_rings(struct tasks *tasks)
{
    bool done = true;
    for (size_t i = 0; i < tasks->nspaces; i++)
        if (tasks->spaces[i]->looked && !take_ring(tasks, tasks->spaces[i]))
            done = false;
    return done;
}

enum { ROUNDS = 100 }; /* with a store that moves records as fast as we look */

bool tasks_refresh(struct tasks *tasks, struct clio_error *error)
{
    if (!find_rings(tasks, error))
        return false;
    for (int round = 0; round < ROUNDS; round++) {
        look_at_rings(tasks);
        if (!tasks->failed.fault)
            take_file(tasks, &tasks->failed);
        if (take_rings(tasks))
            break;
    }
    *error = tasks->failed;
    return !tasks->failed.fault;
}
