/*
 * stream.c: streams of raw records, the public consumer interface; see clio/trace.h.
 *
 * The order is that of publication: for each event its map and data records, then the event itself; the
 * space's birth first, notes where their sequence number puts them (or, found late, as soon as they are
 * found), its end last.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clio/trace.h"
#include "trace/event_reader.h"
#include "trace/fault.h"
#include "trace/source.h"
#include "trace/space_records.h"

struct clio_stream {
    struct clio_source *source;
    uint32_t space; /* 0: tasks only */
    bool all;
    uint16_t *kinds;
    size_t nkinds;
    bool wants_data, wants_maps, wants_events;
    struct space_records records;
    size_t next_task;                 /* index in source->tasks.list */
    const struct trace_record *event; /* taken from the substream, not yet delivered */
    uint64_t data_left;               /* bytes of data records that it still consumes */
    uint32_t maps_left;
    uint64_t number;     /* of the event last taken */
    enum clio_next over; /* not CLIO_RECORD: how the events ended */
    struct clio_error error;
};

static bool wants(const struct clio_stream *stream, uint16_t kind)
{
    for (size_t i = 0; i < stream->nkinds; i++)
        if (stream->kinds[i] == kind)
            return true;
    return stream->all;
}

static void note_subscription(struct clio_stream *stream)
{
    stream->wants_data = wants(stream, REC_DATA);
    stream->wants_maps = wants(stream, REC_MAP);
    stream->wants_events = stream->all || stream->wants_data || stream->wants_maps;
    for (size_t i = 0; i < stream->nkinds; i++)
        if (trace_stream_of(stream->kinds[i]) == STREAM_EVENTS)
            stream->wants_events = true;
}

struct clio_stream *clio_stream_open(struct clio_source *source, uint32_t space, const uint16_t *kinds,
                                     size_t count, struct clio_error *error)
{
    struct clio_error later; /* damage in tasks is reported when the stream gets there */
    tasks_refresh(&source->tasks, &later);
    if (space && !source_has_space(source, space)) {
        fault_set(error, CLIO_FAULT_MISSING, "%s: no space %u", source->path, space);
        return NULL;
    }
    struct clio_stream *stream = calloc(1, sizeof *stream);
    uint16_t *copy = calloc(count + 1, sizeof *copy);
    if (!stream || !copy) {
        free(stream);
        free(copy);
        fault_system(error, ENOMEM, "opening a stream");
        return NULL;
    }
    if (kinds)
        memcpy(copy, kinds, count * sizeof *copy);
    *stream =
        (struct clio_stream){.source = source, .space = space, .all = !kinds, .kinds = copy, .nkinds = count};
    if (!kinds)
        stream->nkinds = 0;
    note_subscription(stream);
    stream->over = space && stream->wants_events ? CLIO_RECORD : CLIO_CLEAN_END;
    space_records_open(&stream->records, source->dir, space, source->header.identity);
    return stream;
}

void clio_stream_close(struct clio_stream *stream)
{
    if (!stream)
        return;
    space_records_close(&stream->records);
    free(stream->kinds);
    free(stream);
}

/* ---- tasks ---- */

static uint64_t task_seq(const struct trace_record *record)
{
    if (record->kind == REC_NOTE)
        return ((const struct trace_note *)record)->seq;
    return record->kind == REC_SPACE ? 0 : UINT64_MAX;
}

/* The next subscribed record of tasks that comes before an event with sequence number `seq`, or NULL. */
static const struct trace_record *next_task(struct clio_stream *stream, uint64_t seq)
{
    const struct tasks *tasks = &stream->source->tasks;
    for (; stream->next_task < tasks->count; stream->next_task++) {
        const struct trace_record *record = tasks->list[stream->next_task];
        if (stream->space && tasks_record_space(record) != stream->space)
            continue;
        if (task_seq(record) > seq)
            return NULL;
        if (wants(stream, record->kind)) {
            stream->next_task++;
            return record;
        }
    }
    return NULL;
}

/* ---- events ---- */

/* Takes the next event and works out what it consumes. */
static enum clio_next take_event(struct clio_stream *stream)
{
    enum clio_next next = space_records_event(&stream->records, &stream->event);
    if (next != CLIO_RECORD) {
        stream->event = NULL;
        return next;
    }
    space_records_take(&stream->records, STREAM_EVENTS);
    stream->data_left = stream->maps_left = 0;
    if (trace_stream_of(stream->event->kind) != STREAM_EVENTS)
        return CLIO_RECORD;
    stream->number++;
    struct trace_item item;
    const char *complaint = trace_event_split(stream->event, &item);
    if (complaint) {
        fault_set(&stream->records.error, CLIO_FAULT_DAMAGED, "spaces/%u/events: event %" PRIu64 ": %s",
                  stream->space, stream->number, complaint);
        stream->event = NULL;
        return CLIO_ERROR;
    }
    stream->maps_left = item.nmaps;
    stream->data_left = item.bytes ? 0 : item.nbytes;
    return CLIO_RECORD;
}

/* Delivers the next map or data record that the event consumes. CLIO_NOTHING_YET: there are no more. */
static enum clio_next next_part(struct clio_stream *stream, const struct trace_record **record)
{
    enum trace_stream which = STREAM_MAPS;
    if (stream->maps_left && stream->wants_maps)
        stream->maps_left--;
    else if (stream->data_left && stream->wants_data)
        which = STREAM_DATA;
    else
        return CLIO_NOTHING_YET;
    enum clio_next next = space_records_part(&stream->records, which, record);
    if (next != CLIO_RECORD)
        return next;
    if (which == STREAM_DATA) {
        uint64_t bytes = (*record)->size - sizeof **record - (*record)->flags;
        stream->data_left -= bytes < stream->data_left ? bytes : stream->data_left;
    }
    space_records_take(&stream->records, which);
    return CLIO_RECORD;
}

/* The next subscribed record of the events and what they consume, or of a note before them. */
static enum clio_next next_of_events(struct clio_stream *stream, const struct trace_record **record)
{
    for (;;) {
        if (!stream->event) {
            enum clio_next next = take_event(stream);
            if (next != CLIO_RECORD)
                return next;
        }
        uint64_t seq = trace_stream_of(stream->event->kind) == STREAM_EVENTS
                           ? ((const struct trace_event *)stream->event)->seq
                           : 0;
        if ((*record = next_task(stream, seq)))
            return CLIO_RECORD;
        enum clio_next next = next_part(stream, record);
        if (next != CLIO_NOTHING_YET)
            return next;
        const struct trace_record *event = stream->event;
        stream->event = NULL;
        if (trace_event_is_last(event))
            stream->over = CLIO_CLEAN_END;
        if (wants(stream, event->kind)) {
            *record = event;
            return CLIO_RECORD;
        }
        if (stream->over != CLIO_RECORD)
            return stream->over;
    }
}

/* How the stream ends when the events gave `next` and are not to be asked again. */
static enum clio_next ending(struct clio_stream *stream, const struct trace_record **record)
{
    if ((*record = next_task(stream, UINT64_MAX)))
        return CLIO_RECORD;
    if (stream->source->tasks.failed.fault) {
        stream->error = stream->source->tasks.failed;
        return CLIO_ERROR;
    }
    if (stream->space == 0 && clio_source_live(stream->source))
        return CLIO_NOTHING_YET;
    return stream->over;
}

static enum clio_next next_record(struct clio_stream *stream, const struct trace_record **record)
{
    struct clio_error later;
    if (stream->over == CLIO_RECORD) {
        enum clio_next next = next_of_events(stream, record);
        if (next == CLIO_RECORD)
            return next;
        if (next == CLIO_NOTHING_YET) {
            tasks_refresh(&stream->source->tasks, &later);
            const struct tasks_space *s = tasks_find(&stream->source->tasks, stream->space);
            if (!s || !s->end || stream->records.last_look)
                return next;
            stream->records.last_look = true;
            return next_record(stream, record);
        }
        stream->over = next;
        stream->error = stream->records.error;
    }
    tasks_refresh(&stream->source->tasks, &later);
    return ending(stream, record);
}

enum clio_next clio_stream_next(struct clio_stream *stream, const struct clio_record_head **record,
                                struct clio_error *error)
{
    const struct trace_record *found = NULL;
    enum clio_next next = next_record(stream, &found);
    *record = next == CLIO_RECORD ? (const struct clio_record_head *)found : NULL;
    if (next == CLIO_ERROR || next == CLIO_CUT_HERE) {
        fault_set(error, stream->error.fault, "%s/%s", stream->source->path, stream->error.text);
        error->code = stream->error.code;
    }
    return next;
}

uint64_t clio_stream_event(const struct clio_stream *stream)
{
    return stream->number;
}
