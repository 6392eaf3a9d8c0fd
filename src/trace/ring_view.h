/*
 * ring_view.h: looking at a ring without being its consumer, while its processes live and after they died.
 *
 * Only the header page is mapped; records are read with pread, so that a ring file that was cut short is an
 * error and never a SIGBUS.
 */
#ifndef CLIO_TRACE_RING_VIEW_H
#define CLIO_TRACE_RING_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "clio/trace.h"
#include "trace/ring.h"

struct ring_view {
    int fd; /* -1: not open */
    uint32_t space;
    const struct ring_header *header;
    uint64_t capacity;
};

enum ring_found {
    RING_BAD,    /* *error says why */
    RING_OPEN,   /* the view may be used */
    RING_ABSENT, /* no such ring: not there yet, or moved and removed; or its process died while making it */
};

/* Opens rings/<space>; does nothing when the view is open already. A zeroed view with fd -1 is a closed one.
 */
enum ring_found ring_view_open(struct ring_view *view, int dir, uint32_t space, struct clio_error *error);
void ring_view_close(struct ring_view *view);

static inline uint64_t ring_view_tail(const struct ring_view *view)
{
    return __atomic_load_n(&view->header->tail, __ATOMIC_ACQUIRE);
}
static inline uint64_t ring_view_head(const struct ring_view *view)
{
    return __atomic_load_n(&view->header->head, __ATOMIC_ACQUIRE);
}

/*
 * Copies the bytes at positions [from, to), from <= to <= head, into *bytes (grown by realloc). The caller
 * checks afterwards that the tail is not above from. False with *error.
 */
bool ring_view_copy(const struct ring_view *view, uint64_t from, uint64_t to, uint8_t **bytes,
                    size_t *capacity, struct clio_error *error);

#endif
