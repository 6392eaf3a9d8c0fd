/*
 * dir_sink.h: writing a trace directory. Used by `clio record` (create) and by the store (append).
 *
 *   TRACE/                0700
 *     trace               identity and command, see header.h; written first
 *     tasks               substream: births, ends, notes
 *     spaces/N/{events,data,maps}
 *     files/              captured files, named by content hash
 *     rings/              control, and N for each space not yet moved
 *     lock                flock LOCK_EX by the store that writes
 *     lifeline            locked by whoever keeps the recording alive, see lifeline.h
 *     socket              of the store, while live
 *
 * The sink remembers for each substream of each space which ring positions are stored, and a sink opened on
 * an existing directory finds that out from the files, after cutting off an incomplete last frame. So
 * trace_sink_append may be repeated with a range that is stored in part: each record reaches its file once,
 * whenever and however often the store dies, the disk is full or a write fails half-way.
 *
 * Order for the store: append, then advance the ring's tail (release). When a space has ended and is drained,
 * it may unlink rings/N; for a space that was killed, cut it to its header instead (ftruncate to
 * RING_HEADER_SIZE), which keeps `call`, what the space was doing in the kernel.
 *
 * Nothing is synced before trace_sink_close: what was written survives the death of any process, not of the
 * machine.
 */
#ifndef CLIO_TRACE_DIR_SINK_H
#define CLIO_TRACE_DIR_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "clio/trace.h"
#include "trace/lifeline.h"
#include "trace/record.h"
#include "trace/ring.h"

/*
 * Creates the directory (which must not exist), its parts and the `trace` file. Returns a descriptor of the
 * directory (O_PATH is not set; close-on-exec), or -1 with *error. What was made is removed again on failure.
 */
int trace_dir_create(const char *path, const struct clio_trace_info *info, struct clio_error *error);
/* Fills identity (random), start time, host and kernel. The strings live until the next call. */
void trace_info_here(struct clio_trace_info *info);

struct trace_sink;

/*
 * Opens the directory for appending, after a check of its header. `dir` is borrowed. Does not take `lock`:
 * that is the store's. Returns NULL with *error.
 */
struct trace_sink *trace_sink_open(int dir, struct clio_error *error);

/*
 * Appends the records at ring positions [from, to) of a space. `data` is the ring's data area of `capacity`
 * bytes; to - from <= capacity <= FRAME_RAW_MAX. Calls of one space have from equal to the previous to, or
 * repeat. Returns false with *error: CLIO_FAULT_SYSTEM (code ENOSPC: disk full; repeat the call later),
 * CLIO_FAULT_DAMAGED (the ring holds what is no record: nothing was written; end the space with
 * END_INTERNAL).
 */
bool trace_sink_append(struct trace_sink *sink, uint32_t space, const uint8_t *data, uint64_t capacity,
                       uint64_t from, uint64_t to, struct clio_error *error);
/*
 * Appends a record of the store's own (REC_END of a killed space, REC_NOTE) to tasks. Not repeated by itself:
 * ask trace_sink_ended first.
 */
bool trace_sink_task(struct trace_sink *sink, const struct trace_record *record, struct clio_error *error);

/* The ring position up to which a space's substream is stored; 0: nothing yet. */
uint64_t trace_sink_stored(struct trace_sink *sink, uint32_t space, enum trace_stream stream);
/* Whether a REC_END of the space is stored. */
bool trace_sink_ended(const struct trace_sink *sink, uint32_t space);
/* Events of the space that are stored. */
uint64_t trace_sink_events(struct trace_sink *sink, uint32_t space);
/* The space is over: closes its files. */
void trace_sink_forget(struct trace_sink *sink, uint32_t space);

/* Syncs (when `sync`) and closes everything. */
bool trace_sink_close(struct trace_sink *sink, bool sync, struct clio_error *error);

#endif
