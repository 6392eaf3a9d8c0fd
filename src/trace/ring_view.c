/* ring_view.c: see ring_view.h. */
#include "trace/ring_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/fault.h"
#include "trace/frame.h"
#include "trace/lifeline.h"
#include "trace/record.h"

/* What is wrong with the header of a ring that was initialised, if anything. */
static bool check_header(const struct ring_view *view, struct clio_error *error)
{
    const struct ring_header *h = view->header;
    if (h->magic != RING_MAGIC)
        return fault_set(error, CLIO_FAULT_DAMAGED, "rings/%u: not a ring", view->space);
    if (h->version != TRACE_FORMAT_VERSION)
        return fault_set(error, CLIO_FAULT_VERSION, "rings/%u: format version %u, this clio reads version %d",
                         view->space, h->version, TRACE_FORMAT_VERSION);
    uint64_t tail = ring_view_tail(view), head = ring_view_head(view);
    if (h->header_size != RING_HEADER_SIZE || h->space != view->space || view->capacity == 0 ||
        view->capacity > FRAME_RAW_MAX || view->capacity % 8 || tail > head || tail % 8 || head % 8)
        return fault_set(error, CLIO_FAULT_DAMAGED, "rings/%u: its header cannot be right", view->space);
    return true;
}

static enum ring_found map_header(struct ring_view *view, int dir, struct clio_error *error)
{
    struct stat st;
    if (fstat(view->fd, &st) < 0) {
        fault_system(error, errno, "reading rings/%u", view->space);
        return RING_BAD;
    }
    if (st.st_size < RING_HEADER_SIZE) {
        if (st.st_size == 0 || trace_lifeline_held(dir))
            return RING_ABSENT;
        fault_set(error, CLIO_FAULT_DAMAGED, "rings/%u: cut short, %lld bytes", view->space,
                  (long long)st.st_size);
        return RING_BAD;
    }
    void *page = mmap(NULL, RING_HEADER_SIZE, PROT_READ, MAP_SHARED, view->fd, 0);
    if (page == MAP_FAILED) {
        fault_system(error, errno, "mapping rings/%u", view->space);
        return RING_BAD;
    }
    view->header = page;
    if (__atomic_load_n(&view->header->magic, __ATOMIC_ACQUIRE) == 0)
        return RING_ABSENT;
    view->capacity = view->header->capacity;
    return check_header(view, error) ? RING_OPEN : RING_BAD;
}

enum ring_found ring_view_open(struct ring_view *view, int dir, uint32_t space, struct clio_error *error)
{
    if (view->fd >= 0)
        return RING_OPEN;
    char name[32];
    snprintf(name, sizeof name, "rings/%u", space);
    *view = (struct ring_view){.space = space};
    view->fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (view->fd < 0 && errno == ENOENT)
        return RING_ABSENT;
    if (view->fd < 0) {
        fault_system(error, errno, "opening %s", name);
        return RING_BAD;
    }
    enum ring_found found = map_header(view, dir, error);
    if (found != RING_OPEN)
        ring_view_close(view);
    return found;
}

void ring_view_close(struct ring_view *view)
{
    if (view->header)
        munmap((void *)view->header, RING_HEADER_SIZE);
    if (view->fd >= 0)
        close(view->fd);
    *view = (struct ring_view){.fd = -1};
}

static bool read_piece(const struct ring_view *view, uint8_t *to, uint64_t size, uint64_t offset,
                       struct clio_error *error)
{
    while (size) {
        ssize_t n = pread(view->fd, to, size, (off_t)(RING_HEADER_SIZE + offset));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fault_system(error, errno, "reading rings/%u", view->space);
        if (n == 0)
            return fault_set(error, CLIO_FAULT_DAMAGED,
                             "rings/%u: cut short at offset %" PRIu64 ", before the end of its records",
                             view->space, RING_HEADER_SIZE + offset);
        to += n;
        offset += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return true;
}

bool ring_view_copy(const struct ring_view *view, uint64_t from, uint64_t to, uint8_t **bytes,
                    size_t *capacity, struct clio_error *error)
{
    if (to - from > view->capacity)
        return fault_set(error, CLIO_FAULT_DAMAGED,
                         "rings/%u: positions %" PRIu64 "..%" PRIu64 " exceed its size", view->space, from,
                         to);
    if (to - from > *capacity) {
        uint8_t *p = realloc(*bytes, to - from);
        if (!p)
            return fault_system(error, ENOMEM, "reading rings/%u", view->space);
        *bytes = p;
        *capacity = to - from;
    }
    uint64_t offset = from % view->capacity;
    uint64_t first = view->capacity - offset < to - from ? view->capacity - offset : to - from;
    return read_piece(view, *bytes, first, offset, error) &&
           read_piece(view, *bytes + first, to - from - first, 0, error);
}
