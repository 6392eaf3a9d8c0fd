/*
 * tasks.h: all REC_SPACE, REC_END and REC_NOTE records of a trace, from the substream `tasks` and from the
 * rings.
 *
 * The list only grows; a record is in it once. Records of one space are in their order of publication; those
 * of different spaces in the order in which they were found.
 */
#ifndef CLIO_TRACE_TASKS_H
#define CLIO_TRACE_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clio/trace.h"
#include "trace/frame.h"
#include "trace/record.h"
#include "trace/ring_view.h"

struct tasks_space { /* one for each space that has records or a ring; 0 for the store's own records */
    uint32_t space;
    struct ring_view ring;
    bool keep_open;      /* between looks; there may be more rings than descriptors */
    bool looked;         /* the ring was there and its tail was read */
    uint64_t tail;       /* ... at the last look */
    bool ring_over;      /* nothing will come from a ring any more */
    uint64_t stored_to;  /* ring position up to which frames were read */
    uint64_t scanned_to; /* ... and the ring itself */
    uint64_t records;    /* records in the list */
    const struct trace_space *birth;
    const struct trace_end *end;
};

struct tasks {
    int dir; /* borrowed */
    struct frame_file file;
    uint8_t *raw, *ring_bytes;
    size_t raw_capacity, ring_capacity;
    const struct trace_record **list; /* allocated copies */
    size_t count, capacity;
    struct tasks_space **spaces;
    size_t nspaces, spaces_capacity;
    struct clio_error failed; /* damage of the substream; reading it stopped there */
};

void tasks_open(struct tasks *tasks, int dir, const uint8_t identity[16]);
void tasks_close(struct tasks *tasks);
/*
 * Adds what is there since the last call. False with *error when the substream is damaged; what came before
 * the damage, and what is in the rings, is in the list all the same. A bad ring is left out: reading its
 * space reports it.
 */
bool tasks_refresh(struct tasks *tasks, struct clio_error *error);
/* Makes a space known without any record. */
bool tasks_know(struct tasks *tasks, uint32_t space, struct clio_error *error);
/* NULL when nothing is known of the space. */
const struct tasks_space *tasks_find(const struct tasks *tasks, uint32_t space);
/* The space a record is about. */
uint32_t tasks_record_space(const struct trace_record *record);
/* The text of REC_END and REC_NOTE, of *size bytes, not terminated; NULL for REC_SPACE. */
const char *tasks_record_text(const struct trace_record *record, uint32_t *size);

#endif
