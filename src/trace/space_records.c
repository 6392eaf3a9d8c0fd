/* space_records.c: see space_records.h. */
#include "trace/space_records.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/fault.h"
#include "trace/lifeline.h"

static const char *const names[STREAM_COUNT] = {NULL, "events", "data", "maps"};

void space_records_open(struct space_records *r, int dir, uint32_t space, const uint8_t identity[16])
{
    *r = (struct space_records){.dir = dir, .space = space, .ring.fd = -1};
    for (uint32_t stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++) {
        char name[48];
        snprintf(name, sizeof name, "spaces/%u/%s", space, names[stream]);
        frame_file_open(&r->substreams[stream].file, dir, name, stream, space, identity);
    }
}

void space_records_close(struct space_records *r)
{
    for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++) {
        frame_file_close(&r->substreams[stream].file);
        free(r->substreams[stream].raw);
        free(r->substreams[stream].tail);
    }
    ring_view_close(&r->ring);
    free(r->ring_bytes);
}

/* ---- frames ---- */

/* Moves past records that were seen. The bytes were checked to be whole records. */
static void skip_seen(struct space_substream *s, uint64_t first)
{
    for (; first < s->next && s->at < s->end; first++)
        s->at += ((const struct trace_record *)s->at)->size;
}

/* Ranges of the events frames must join, ordinals must go on in all substreams. */
static bool check_joins(struct space_records *r, const struct space_substream *s, uint64_t expected)
{
    const struct frame_header *h = &s->file.header;
    if (h->first == expected && (s->file.stream != STREAM_EVENTS || h->ring_from == r->file_to.position))
        return true;
    return fault_set(&r->error, CLIO_FAULT_DAMAGED,
                     "%s: frame %" PRIu64 " at offset %" PRIu64 ": does not continue the frame before it",
                     s->file.name, h->sequence, s->file.header_offset);
}

static void note_frame(struct space_records *r, const struct frame_header *h)
{
    r->file_to.position = h->ring_to;
    r->file_to.records[STREAM_EVENTS] = h->first + h->records;
    r->file_to.records[STREAM_DATA] = h->data_after;
    r->file_to.records[STREAM_MAPS] = h->maps_after;
}

static enum frame_found find_frame(struct space_records *r, struct space_substream *s)
{
    const struct frame_header *h = &s->file.header;
    uint64_t expected = s->file.sequence ? h->first + h->records : 0;
    enum frame_found found = frame_file_next(&s->file, &r->error);
    s->partial = found == FRAME_PARTIAL;
    if (found != FRAME_FOUND)
        return found;
    if (!check_joins(r, s, expected))
        return FRAME_ERROR;
    if (s->file.stream == STREAM_EVENTS)
        note_frame(r, h);
    return FRAME_FOUND;
}

/* Makes the unseen records of the next frame that has some the current ones. */
static enum frame_found refill_from_file(struct space_records *r, struct space_substream *s)
{
    const struct frame_header *h = &s->file.header;
    while (!s->in_frame || h->first + h->records <= s->next) {
        enum frame_found found = find_frame(r, s);
        if (found != FRAME_FOUND)
            return found;
        s->in_frame = true;
    }
    s->in_frame = false;
    if (!frame_file_records(&s->file, &s->raw, &s->raw_capacity, &r->error))
        return FRAME_ERROR;
    s->from_tail = false;
    s->at = s->raw;
    s->end = s->raw + h->raw_size;
    skip_seen(s, h->first);
    return FRAME_FOUND;
}

static bool refill_from_tail(struct space_substream *s)
{
    if (s->next < s->tail_first || s->next >= s->tail_first + s->tail_records)
        return false;
    s->from_tail = true;
    s->at = s->tail;
    s->end = s->tail + s->tail_size;
    skip_seen(s, s->tail_first);
    return true;
}

/* ---- the ring ---- */

static bool tail_add(struct space_records *r, struct space_substream *s, const struct trace_record *record)
{
    if (s->tail_size + record->size > s->tail_capacity) {
        size_t capacity = (s->tail_size + record->size) * 2;
        uint8_t *p = realloc(s->tail, capacity);
        if (!p)
            return fault_system(&r->error, ENOMEM, "reading rings/%u", r->space);
        s->tail = p;
        s->tail_capacity = capacity;
    }
    memcpy(s->tail + s->tail_size, record, record->size);
    s->tail_size += record->size;
    s->tail_records++;
    return true;
}

static void tails_clear(struct space_records *r, const struct space_place *from)
{
    for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++) {
        struct space_substream *s = &r->substreams[stream];
        if (s->from_tail)
            s->at = s->end = NULL;
        s->tail_size = s->tail_records = 0;
        s->tail_first = from->records[stream];
    }
}

/* Sorts copied bytes of the ring into the substreams' tails. */
static bool sort_ring_bytes(struct space_records *r, const struct space_place *from, uint64_t head)
{
    tails_clear(r, from);
    uint64_t size = head - from->position;
    for (uint64_t at = 0; at < size;) {
        const struct trace_record *record = (const struct trace_record *)(r->ring_bytes + at);
        int stream = trace_stream_of(record->kind);
        if (record->size < sizeof *record || record->size % 8 || record->size > size - at ||
            (stream < 0 && record->kind != REC_PAD))
            return fault_set(&r->error, CLIO_FAULT_DAMAGED,
                             "rings/%u: position %" PRIu64 ": no record (size %u, kind %u)", r->space,
                             from->position + at, record->size, record->kind);
        if (stream > STREAM_TASKS && !tail_add(r, &r->substreams[stream], record))
            return false;
        at += record->size;
    }
    r->ring_to.position = head;
    for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++)
        r->ring_to.records[stream] = r->substreams[stream].tail_first + r->substreams[stream].tail_records;
    return true;
}

/* Where copying may begin: behind what was copied before, unless some of that is still unseen. */
static struct space_place copy_start(const struct space_records *r)
{
    if (r->ring_to.position <= r->file_to.position)
        return r->file_to;
    for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++)
        if (r->substreams[stream].next < r->ring_to.records[stream])
            return r->file_to;
    return r->ring_to;
}

enum look { LOOK_ERROR, LOOK_RECORDS, LOOK_AGAIN, LOOK_NOTHING, LOOK_ABSENT, LOOK_HOLE };

/* True when the store has moved records that the events file, as read so far, does not have. */
static bool tail_passed(struct space_records *r)
{
    uint64_t tail = ring_view_tail(&r->ring);
    if (tail <= r->file_to.position)
        return false;
    r->seen_tail = tail;
    return true;
}

/* Whether there may be events below `head` that were not shown; certain once the ring was copied up to there.
 */
static bool unseen_events(const struct space_records *r, uint64_t head)
{
    return r->ring_to.position != head ||
           r->substreams[STREAM_EVENTS].next < r->ring_to.records[STREAM_EVENTS];
}

/*
 * Looks into the ring after the events file was read to its end. LOOK_AGAIN: the file has grown, read it
 * first. LOOK_HOLE: the ring has given away positions that the file does not have.
 */
static enum look look_into_ring(struct space_records *r)
{
    enum ring_found found = ring_view_open(&r->ring, r->dir, r->space, &r->error);
    if (found != RING_OPEN)
        return found == RING_BAD ? LOOK_ERROR : LOOK_ABSENT;
    if (r->seen_tail > r->file_to.position)
        return LOOK_HOLE;
    struct space_place from = copy_start(r);
    uint64_t head = ring_view_head(&r->ring);
    if (tail_passed(r))
        return LOOK_AGAIN;
    if (head <= from.position || !unseen_events(r, head))
        return LOOK_NOTHING;
    bool copied = ring_view_copy(&r->ring, from.position, head, &r->ring_bytes, &r->ring_capacity, &r->error);
    if (tail_passed(r))
        return LOOK_AGAIN;
    if (!copied || !sort_ring_bytes(r, &from, head))
        return LOOK_ERROR;
    return unseen_events(r, head) ? LOOK_RECORDS : LOOK_NOTHING;
}

/* ---- the interface ---- */

/* Says how the substream's file ends; `what` continues its name. */
static enum clio_next cut(struct space_records *r, const struct space_substream *s, const char *what)
{
    const struct frame_file *file = &s->file;
    if (s->partial)
        fault_set(&r->error, CLIO_FAULT_NONE, "%s %s inside frame %" PRIu64 ", at offset %" PRIu64,
                  file->name, what, file->sequence, file->offset);
    else
        fault_set(&r->error, CLIO_FAULT_NONE, "%s %s after frame %" PRIu64 ", at offset %" PRIu64, file->name,
                  what, file->sequence, file->offset);
    return CLIO_CUT_HERE;
}

enum clio_next space_records_event(struct space_records *r, const struct trace_record **record)
{
    struct space_substream *s = &r->substreams[STREAM_EVENTS];
    bool absent = false;
    while (s->at == s->end) {
        if (r->error.fault)
            return CLIO_ERROR;
        enum frame_found found = refill_from_file(r, s);
        if (found == FRAME_ERROR)
            return CLIO_ERROR;
        if (found == FRAME_FOUND || refill_from_tail(s))
            continue;
        switch (look_into_ring(r)) {
        case LOOK_ERROR:
            return CLIO_ERROR;
        case LOOK_HOLE:
            return cut(r, s, "lacks frames: it ends");
        case LOOK_RECORDS:
        case LOOK_AGAIN:
            continue;
        case LOOK_ABSENT:
            if (!absent) { /* it may have been moved and removed since the file was read */
                absent = true;
                continue;
            }
            break;
        case LOOK_NOTHING:
            break;
        }
        if (r->last_look)
            return cut(r, s, "ends");
        if (trace_lifeline_held(r->dir))
            return CLIO_NOTHING_YET;
        r->last_look = true;
    }
    *record = (const struct trace_record *)s->at;
    return CLIO_RECORD;
}

enum clio_next space_records_part(struct space_records *r, enum trace_stream stream,
                                  const struct trace_record **record)
{
    struct space_substream *s = &r->substreams[stream];
    while (s->at == s->end) {
        enum frame_found found = r->error.fault ? FRAME_ERROR : refill_from_file(r, s);
        if (found == FRAME_ERROR)
            return CLIO_ERROR;
        if (found != FRAME_FOUND && !refill_from_tail(s))
            return cut(r, s, "lacks what the next event needs: it ends");
    }
    *record = (const struct trace_record *)s->at;
    return CLIO_RECORD;
}

void space_records_take(struct space_records *r, enum trace_stream stream)
{
    struct space_substream *s = &r->substreams[stream];
    s->at += ((const struct trace_record *)s->at)->size;
    s->next++;
}

bool space_records_skip(struct space_records *r, uint64_t ordinal)
{
    struct space_substream *s = &r->substreams[STREAM_EVENTS];
    for (;;) {
        for (int stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++)
            r->substreams[stream].next = r->file_to.records[stream];
        enum frame_found found = find_frame(r, s);
        if (found != FRAME_FOUND)
            return found != FRAME_ERROR;
        if (s->file.header.first + s->file.header.records > ordinal) {
            s->in_frame = true;
            return true;
        }
    }
}
