/*
 * space_records.h: the records of one space, substream by substream, from its files and its ring.
 *
 * The events substream leads: space_records_event shows the next EV_ record; the data and map records it
 * consumes are then at the front of the other two substreams. Each substream is read to the end of its file,
 * then from a copy of the ring's bytes, then, if the file has grown, from there again; `next`, the ordinal of
 * the next record, tells what was seen. A copy of the ring is good when the tail, read after copying, has not
 * passed the place up to which the events file was read; otherwise the file has grown and is read first.
 */
#ifndef CLIO_TRACE_SPACE_RECORDS_H
#define CLIO_TRACE_SPACE_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "clio/trace.h"
#include "trace/frame.h"
#include "trace/record.h"
#include "trace/ring_view.h"

struct space_substream {
    struct frame_file file;
    bool in_frame;           /* the frame last found is not read yet */
    const uint8_t *at, *end; /* unread records, in raw or in tail */
    uint64_t next;           /* ordinal of the record at `at` */
    uint8_t *raw;
    size_t raw_capacity;
    uint8_t *tail; /* this substream's records of the last copy of the ring */
    size_t tail_size, tail_capacity;
    uint64_t tail_first, tail_records;
    bool from_tail; /* `at` points into tail */
    bool partial;   /* the file ended inside a frame when last looked at */
};

struct space_place { /* a ring position and the records below it */
    uint64_t position;
    uint64_t records[STREAM_COUNT];
};

struct space_records {
    int dir; /* borrowed */
    uint32_t space;
    struct space_substream substreams[STREAM_COUNT]; /* not STREAM_TASKS */
    struct ring_view ring;
    bool last_look;             /* no more will be published: what is found from now on is all */
    uint64_t seen_tail;         /* the ring's, before the events file was last read to its end */
    struct space_place file_to; /* up to which the events file was read */
    struct space_place ring_to; /* up to which the ring was copied */
    uint8_t *ring_bytes;
    size_t ring_capacity;
    struct clio_error error;
};

void space_records_open(struct space_records *records, int dir, uint32_t space, const uint8_t identity[16]);
void space_records_close(struct space_records *records);

/*
 * The next record of the events substream, without taking it. CLIO_RECORD, CLIO_NOTHING_YET (the recording
 * lives), CLIO_CUT_HERE (nobody lives and there is no more), or CLIO_ERROR; the last two with records->error.
 * A caller that knows that the space has ended sets last_look and asks again.
 */
enum clio_next space_records_event(struct space_records *records, const struct trace_record **record);
/*
 * The next record of data or maps, without taking it; only for what the event shown consumes. CLIO_RECORD, or
 * CLIO_CUT_HERE (the file ends before it), or CLIO_ERROR.
 */
enum clio_next space_records_part(struct space_records *records, enum trace_stream stream,
                                  const struct trace_record **record);
/* Takes the record last shown in the substream. It stays valid until another one is shown there. */
void space_records_take(struct space_records *records, enum trace_stream stream);
/*
 * Skips towards the record of the events substream with this ordinal (from 0) and what it consumes, with
 * whole frames left unread; stops at the start of its frame or at the end of the file. Only before the first
 * event was shown. False with records->error.
 */
bool space_records_skip(struct space_records *records, uint64_t ordinal);

#endif
