/*
 * event_reader.h: the events of one space, each with its effects and mapping changes. For replay, dump,
 * chronicle.
 *
 * Reads the substream files first and then what is still in the ring, without gap or repeat, of a trace that
 * is complete, cut, or growing. Decoded frames stay in memory; nothing is allocated for an event, except that
 * the bytes of an event that are spread over several records are put together in a buffer that is kept.
 */
#ifndef CLIO_TRACE_EVENT_READER_H
#define CLIO_TRACE_EVENT_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "clio/trace.h"
#include "trace/record.h"
#include "trace/ring.h"

struct trace_reader;

struct trace_item { /* an event; pointers are valid until the next call of trace_reader_next */
    const struct trace_event *event;
    uint64_t number;                    /* from 1 */
    const void *part;                   /* struct trace_ev_start etc. by kind, or NULL */
    const struct trace_effect *effects; /* event->neffects */
    const uint8_t
        *bytes; /* of all effects without EFF_ZERO, concatenated: walk it in step with the effects */
    uint64_t nbytes;
    const struct trace_map *const *maps; /* nmaps of them, to be applied in order before the effects */
    uint32_t nmaps;
};

/* The path of a map record (not terminated; map->pathlen bytes). */
static inline const char *trace_map_path(const struct trace_map *map)
{
    return (const char *)(map + 1);
}

/*
 * Finds the parts of an EV_ record that lie in the record itself, and checks that they do: fills *item but
 * for number, maps, and, without EVF_INLINE, bytes. Returns NULL, or what is wrong.
 */
const char *trace_event_split(const struct trace_record *record, struct trace_item *item);

/* The source stays the caller's and must outlive the reader. NULL with *error when there is no such space. */
struct trace_reader *trace_reader_open(struct clio_source *source, uint32_t space, struct clio_error *error);
void trace_reader_close(struct trace_reader *reader);
/*
 * The next event. CLIO_RECORD: *item is filled. CLIO_ERROR and CLIO_CUT_HERE: trace_reader_error says why. A
 * reader at CLIO_NOTHING_YET may be asked again at any rate; it does a few loads and one read of the file
 * size.
 */
enum clio_next trace_reader_next(struct trace_reader *reader, struct trace_item *item);
const struct clio_error *trace_reader_error(const struct trace_reader *reader);

/*
 * Positions before event `number` (1 to one past the last). Skips frames without decompressing them. Returns
 * false with trace_reader_error when the trace ends before it.
 */
bool trace_reader_seek(struct trace_reader *reader, uint64_t number);

/* How a space ended, as far as anybody knows. */
struct trace_reader_end {
    bool known;   /* a REC_END exists: why, status, text are its */
    uint32_t why; /* enum trace_end_why; 0 when not known */
    int32_t status;
    bool in_call; /* it died inside this system call */
    struct ring_call call;
    uint64_t ticks; /* from the last event to that call; else 0 */
    char text[600]; /* for people: "killed inside write(1, ...) after event 15", "exited with status 0" */
};
/* After CLIO_CLEAN_END or CLIO_CUT_HERE. */
void trace_reader_end(struct trace_reader *reader, struct trace_reader_end *end);

/* "write(0x1, 0x7f.., 0x5, ...)" of what a ring's call slot holds; "" when it is not active. Returns text. */
const char *trace_call_text(const struct ring_call *call, char *text, size_t size);

#endif
