/* event_reader.c: see event_reader.h. */
#include "trace/event_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/syscall_names.h"
#include "trace/fault.h"
#include "trace/source.h"
#include "trace/space_records.h"

enum { MAPS_MAX = 256 }; /* the count is a byte */

struct trace_reader {
    struct clio_source *source;
    uint32_t space;
    struct space_records records;
    uint64_t number; /* of the last event delivered */
    bool ended;      /* it was a last event */
    bool incomplete; /* the next event is there, but not all that it consumes */
    struct clio_error error;
    const struct trace_map *maps[MAPS_MAX];
    uint8_t *maps_copy, *bytes;
    size_t maps_capacity, bytes_capacity;
};

struct trace_reader *trace_reader_open(struct clio_source *source, uint32_t space, struct clio_error *error)
{
    struct clio_error later; /* damage in tasks does not keep anybody from the events */
    tasks_refresh(&source->tasks, &later);
    if (!source_has_space(source, space)) {
        fault_set(error, CLIO_FAULT_MISSING, "%s: no space %u", source->path, space);
        return NULL;
    }
    struct trace_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        fault_system(error, ENOMEM, "reading space %u", space);
        return NULL;
    }
    reader->source = source;
    reader->space = space;
    space_records_open(&reader->records, source->dir, space, source->header.identity);
    return reader;
}

void trace_reader_close(struct trace_reader *reader)
{
    if (!reader)
        return;
    space_records_close(&reader->records);
    free(reader->maps_copy);
    free(reader->bytes);
    free(reader);
}

const struct clio_error *trace_reader_error(const struct trace_reader *reader)
{
    return &reader->error;
}

/* ---- the parts of an event ---- */

static bool bad_event(struct trace_reader *reader, const char *what)
{
    return fault_set(&reader->error, CLIO_FAULT_DAMAGED, "%s: space %u, event %" PRIu64 ": %s",
                     reader->source->path, reader->space, reader->number + 1, what);
}

const char *trace_event_split(const struct trace_record *record, struct trace_item *item)
{
    const struct trace_event *event = (const struct trace_event *)record;
    uint32_t part = trace_part_size(record->kind);
    *item = (struct trace_item){.event = event};
    if (record->size < sizeof *event + part)
        return "shorter than its kind";
    uint64_t room = record->size - sizeof *event - part;
    if ((uint64_t)event->neffects * sizeof(struct trace_effect) > room)
        return "shorter than its effects";
    room -= event->neffects * sizeof(struct trace_effect);
    const uint8_t *at = (const uint8_t *)(event + 1);
    item->part = part ? at : NULL;
    item->effects = (const struct trace_effect *)(at + part);
    item->nmaps = record->flags >> EVF_NMAPS_SHIFT;
    for (uint32_t i = 0; i < event->neffects; i++)
        if (!(item->effects[i].flags & EFF_ZERO))
            item->nbytes += item->effects[i].len;
    if (!(record->flags & EVF_INLINE))
        return NULL;
    item->bytes = (const uint8_t *)(item->effects + event->neffects);
    return item->nbytes > room ? "shorter than its effects' bytes" : NULL;
}

static bool split_event(struct trace_reader *reader, const struct trace_record *record,
                        struct trace_item *item)
{
    const char *complaint = trace_event_split(record, item);
    if (complaint)
        return bad_event(reader, complaint);
    item->number = reader->number + 1;
    item->maps = reader->maps;
    return true;
}

static bool reserve(struct trace_reader *reader, uint8_t **buffer, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    uint8_t *p = realloc(*buffer, size * 2);
    if (!p)
        return fault_system(&reader->error, ENOMEM, "reading event %" PRIu64 " of space %u",
                            reader->number + 1, reader->space);
    *buffer = p;
    *capacity = size * 2;
    return true;
}

/* The bytes of a REC_DATA record. */
static bool data_bytes(struct trace_reader *reader, const struct trace_record *record, uint64_t limit,
                       uint64_t *size)
{
    uint32_t body = record->size - sizeof *record;
    if (record->flags > 7 || record->flags > body || body - record->flags > limit)
        return bad_event(reader, "its data does not fit its effects");
    *size = body - record->flags;
    return true;
}

/* Puts the bytes of several data records together; the first of them is shown. */
static enum clio_next join_data(struct trace_reader *reader, const struct trace_record *record,
                                struct trace_item *item)
{
    uint64_t done = 0, size = 0;
    for (;;) {
        if (!data_bytes(reader, record, item->nbytes - done, &size) ||
            !reserve(reader, &reader->bytes, &reader->bytes_capacity, done + size))
            return CLIO_ERROR;
        memcpy(reader->bytes + done, record + 1, size);
        done += size;
        space_records_take(&reader->records, STREAM_DATA);
        if (done == item->nbytes)
            break;
        enum clio_next next = space_records_part(&reader->records, STREAM_DATA, &record);
        if (next != CLIO_RECORD)
            return next;
    }
    item->bytes = reader->bytes;
    return CLIO_RECORD;
}

static enum clio_next find_data(struct trace_reader *reader, struct trace_item *item)
{
    const struct trace_record *record;
    uint64_t size = 0;
    enum clio_next next = space_records_part(&reader->records, STREAM_DATA, &record);
    if (next != CLIO_RECORD)
        return next;
    if (!data_bytes(reader, record, item->nbytes, &size))
        return CLIO_ERROR;
    if (size < item->nbytes)
        return join_data(reader, record, item);
    item->bytes = (const uint8_t *)(record + 1);
    space_records_take(&reader->records, STREAM_DATA);
    return CLIO_RECORD;
}

static bool check_map(struct trace_reader *reader, const struct trace_record *record)
{
    const struct trace_map *map = (const struct trace_map *)record;
    if (record->kind != REC_MAP || record->size < sizeof *map || map->pathlen > record->size - sizeof *map)
        return bad_event(reader, "a malformed map record");
    return true;
}

/* Copies the event's maps aside; for those that lie in two frames. */
static enum clio_next copy_maps(struct trace_reader *reader, struct trace_item *item)
{
    size_t offsets[MAPS_MAX], used = 0;
    for (uint32_t i = 0; i < item->nmaps; i++) {
        const struct trace_record *record;
        enum clio_next next = space_records_part(&reader->records, STREAM_MAPS, &record);
        if (next != CLIO_RECORD)
            return next;
        if (!check_map(reader, record) ||
            !reserve(reader, &reader->maps_copy, &reader->maps_capacity, used + record->size))
            return CLIO_ERROR;
        memcpy(reader->maps_copy + used, record, record->size);
        offsets[i] = used;
        used += record->size;
        space_records_take(&reader->records, STREAM_MAPS);
    }
    for (uint32_t i = 0; i < item->nmaps; i++)
        reader->maps[i] = (const struct trace_map *)(reader->maps_copy + offsets[i]);
    return CLIO_RECORD;
}

static enum clio_next find_maps(struct trace_reader *reader, struct trace_item *item)
{
    if (item->nmaps > 1)
        return copy_maps(reader, item);
    const struct trace_record *record;
    enum clio_next next = space_records_part(&reader->records, STREAM_MAPS, &record);
    if (next != CLIO_RECORD)
        return next;
    if (!check_map(reader, record))
        return CLIO_ERROR;
    reader->maps[0] = (const struct trace_map *)record;
    space_records_take(&reader->records, STREAM_MAPS);
    return CLIO_RECORD;
}

static enum clio_next find_parts(struct trace_reader *reader, struct trace_item *item)
{
    enum clio_next next = CLIO_RECORD;
    if (item->nmaps)
        next = find_maps(reader, item);
    if (next == CLIO_RECORD && item->nbytes && !(item->event->rec.flags & EVF_INLINE))
        next = find_data(reader, item);
    return next;
}

/* ---- the next event ---- */

/* The next record of the events substream, knowing what tasks says of the space's end. */
static enum clio_next next_record(struct trace_reader *reader, const struct trace_record **record)
{
    struct space_records *records = &reader->records;
    enum clio_next next = space_records_event(records, record);
    if (next != CLIO_NOTHING_YET)
        return next;
    struct clio_error ignored;
    tasks_refresh(&reader->source->tasks, &ignored);
    const struct tasks_space *s = tasks_find(&reader->source->tasks, reader->space);
    if (!s || !s->end)
        return CLIO_NOTHING_YET;
    records->last_look = true;
    return space_records_event(records, record);
}

/* Says in reader->error why there are no more events; records.error says where the files end. */
static enum clio_next cut(struct trace_reader *reader)
{
    struct trace_reader_end end;
    char place[sizeof reader->error.text];
    snprintf(place, sizeof place, "%s", reader->records.error.text);
    trace_reader_end(reader, &end);
    const struct tasks_space *s = tasks_find(&reader->source->tasks, reader->space);
    if (s && s->end && s->end->events > reader->number)
        fault_set(&reader->error, CLIO_FAULT_NONE,
                  "space %u: cut after event %" PRIu64 " of %" PRIu64 ": %s; the space %s", reader->space,
                  reader->number, s->end->events, place, end.text);
    else
        fault_set(&reader->error, CLIO_FAULT_NONE, "space %u: cut after event %" PRIu64 ": %s (%s)",
                  reader->space, reader->number, end.text, place);
    return CLIO_CUT_HERE;
}

static enum clio_next fail(struct trace_reader *reader)
{
    if (!reader->error.fault) {
        reader->error = reader->records.error;
        fault_set(&reader->error, reader->records.error.fault, "%s/%s", reader->source->path,
                  reader->records.error.text);
        reader->error.code = reader->records.error.code;
    }
    return CLIO_ERROR;
}

enum clio_next trace_reader_next(struct trace_reader *reader, struct trace_item *item)
{
    const struct trace_record *record;
    if (reader->ended)
        return CLIO_CLEAN_END;
    if (reader->error.fault)
        return CLIO_ERROR;
    if (reader->incomplete)
        return CLIO_CUT_HERE;
    enum clio_next next;
    do {
        next = next_record(reader, &record);
        if (next == CLIO_RECORD)
            space_records_take(&reader->records, STREAM_EVENTS);
    } while (next == CLIO_RECORD && trace_stream_of(record->kind) != STREAM_EVENTS);
    if (next == CLIO_RECORD) {
        next = split_event(reader, record, item) ? find_parts(reader, item) : CLIO_ERROR;
        reader->incomplete = next == CLIO_CUT_HERE;
    }
    if (next == CLIO_ERROR)
        return fail(reader);
    if (next == CLIO_CUT_HERE)
        return cut(reader);
    if (next == CLIO_RECORD) {
        reader->number++;
        reader->ended = trace_event_is_last(record);
    }
    return next;
}

bool trace_reader_seek(struct trace_reader *reader, uint64_t number)
{
    struct clio_source *source = reader->source;
    uint32_t space = reader->space;
    space_records_close(&reader->records);
    space_records_open(&reader->records, source->dir, space, source->header.identity);
    reader->ended = reader->incomplete = false;
    reader->error.fault = CLIO_FAULT_NONE;
    if (number == 0)
        return fault_set(&reader->error, CLIO_FAULT_ARGUMENT, "space %u: events are numbered from 1", space);
    if (!space_records_skip(&reader->records, number - 1)) {
        fail(reader);
        return false;
    }
    reader->number = reader->records.substreams[STREAM_EVENTS].next;
    while (reader->number + 1 < number) {
        struct trace_item item;
        enum clio_next next = trace_reader_next(reader, &item);
        if (next == CLIO_ERROR)
            return false;
        if (next != CLIO_RECORD)
            return fault_set(&reader->error, CLIO_FAULT_MISSING,
                             "space %u: no event %" PRIu64 ", the last one is %" PRIu64, space, number,
                             reader->number);
    }
    return true;
}

/* ---- the end ---- */

const char *trace_call_text(const struct ring_call *call, char *text, size_t size)
{
    const char *name = syscall_name(call->nr);
    char number[32];
    if (!call->active) {
        snprintf(text, size, "%s", "");
        return text;
    }
    snprintf(number, sizeof number, "system call %u", call->nr);
    snprintf(text, size,
             "%s(0x%" PRIx64 ", 0x%" PRIx64 ", 0x%" PRIx64 ", 0x%" PRIx64 ", 0x%" PRIx64 ", 0x%" PRIx64 ")",
             name ? name : number, call->args[0], call->args[1], call->args[2], call->args[3], call->args[4],
             call->args[5]);
    return text;
}

static void look_at_call(struct trace_reader *reader, struct trace_reader_end *end)
{
    struct ring_view view = {.fd = -1};
    struct clio_error ignored;
    if (ring_view_open(&view, reader->source->dir, reader->space, &ignored) != RING_OPEN)
        return;
    end->call = view.header->call;
    end->in_call = end->call.active == 1;
    end->ticks = end->in_call ? end->call.ticks : 0;
    ring_view_close(&view);
}

static void describe_end(struct trace_reader_end *end, const struct trace_end *record)
{
    char call[300], name[32];
    const char *inside = end->in_call ? " inside " : "";
    trace_call_text(&end->call, call, sizeof call);
    int textlen = record ? (int)record->textlen : 0;
    const char *text = record ? (const char *)(record + 1) : "";
    switch (end->why) {
    case END_EXIT:
        snprintf(end->text, sizeof end->text, "exited with status %d", end->status);
        break;
    case END_SIGNAL:
        snprintf(end->text, sizeof end->text, "was killed by %s", signal_name(end->status, name));
        break;
    case END_EXEC:
        if (end->status)
            snprintf(end->text, sizeof end->text, "executed a program: space %d", end->status);
        else
            snprintf(end->text, sizeof end->text, "executed a program that ran unrecorded");
        break;
    case 0:
        snprintf(end->text, sizeof end->text,
                 "was killed%s%s, and so were the recorder and the store: no end is recorded", inside, call);
        break;
    default:
        if (textlen)
            snprintf(end->text, sizeof end->text, "%.*s", textlen, text);
        else
            snprintf(end->text, sizeof end->text, "was killed%s%s", inside, call);
    }
}

void trace_reader_end(struct trace_reader *reader, struct trace_reader_end *end)
{
    struct clio_error ignored;
    *end = (struct trace_reader_end){0};
    tasks_refresh(&reader->source->tasks, &ignored);
    const struct tasks_space *s = tasks_find(&reader->source->tasks, reader->space);
    if (s && s->end) {
        end->known = true;
        end->why = s->end->why;
        end->status = s->end->status;
    }
    if (!reader->ended)
        look_at_call(reader, end);
    describe_end(end, s ? s->end : NULL);
    if (reader->ended && !end->known)
        snprintf(end->text, sizeof end->text, "ended with its last event; the record of its end is missing");
}
