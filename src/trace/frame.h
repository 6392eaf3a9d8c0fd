/*
 * frame.h: frames, the self-checking pieces of which substream files consist.
 *
 *   file    [ struct frame_file_header, 64 bytes ][ frame ][ frame ] ...
 *   frame   [ struct frame_header, 88 bytes ][ stored_size bytes: the records, perhaps compressed ]
 *
 * Files are only ever appended to. A frame covers the ring positions [ring_from, ring_to) of one space and
 * holds all records of its substream from there; records never straddle frames. That makes every copy of a
 * record identifiable: a writer that takes over after a crash skips what lies below the last frame's ring_to,
 * and a reader that went on into the ring finds its place in frames written since by `first`, the ordinal of
 * a frame's first record.
 *
 * The events substream has a frame for every batch, even an empty one, so that its frames' ranges join
 * without holes, and its frames carry the totals of the space's other substreams; so a reader notices when
 * the end of a file is missing, and can find its place in data and maps after skipping event frames. Batches
 * end at event boundaries unless an event is larger than the ring; within a batch data and maps are written
 * before events, so an event in a file never refers to data that is not there.
 *
 * A file that ends inside a frame is a file being written, or one whose writer died: what precedes is good.
 * Anything else that does not check is damage and is reported by file, frame and offset. Sizes are bounded,
 * so that a hostile file can make a reader allocate no more than FRAME_RAW_MAX.
 */
#ifndef CLIO_TRACE_FRAME_H
#define CLIO_TRACE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clio/trace.h"

#define FRAME_FILE_MAGIC 0x4255534f494c43ull /* "CLIOSUB\0" */
#define FRAME_MAGIC      0x52464c43u         /* "CLFR" */

enum { FRAME_RAW_MAX = 16 << 20 };
enum frame_codec { FRAME_PLAIN = 0, FRAME_ZSTD = 1 };

struct frame_file_header {
    uint64_t magic;
    uint32_t version; /* TRACE_FORMAT_VERSION */
    uint32_t stream;  /* enum trace_stream */
    uint64_t features;
    uint32_t space; /* 0 for tasks */
    uint32_t zero;
    uint8_t identity[16]; /* the trace's */
    uint64_t zero2;
    uint64_t checksum; /* XXH64 of the 56 bytes before, seed 0 */
};
_Static_assert(sizeof(struct frame_file_header) == 64, "file header as documented");

struct frame_header {
    uint32_t magic;
    uint8_t stream;       /* enum trace_stream */
    uint8_t codec;        /* enum frame_codec */
    uint16_t header_size; /* sizeof this */
    uint32_t space;       /* whose records; 0 in tasks: the store's own */
    uint32_t records;     /* in this frame */
    uint64_t sequence;    /* frames before this one in the file */
    uint64_t first;       /* records of this space in this substream before this frame */
    uint64_t ring_from, ring_to;
    uint64_t data_after,
        maps_after;           /* events: REC_DATA and REC_MAP records of the space below ring_to. Else 0 */
    uint32_t raw_size;        /* of the records */
    uint32_t stored_size;     /* as they follow */
    uint64_t checksum;        /* XXH64 of the stored bytes, seed 0 */
    uint64_t header_checksum; /* XXH64 of the 80 bytes before, seed 0 */
};
_Static_assert(sizeof(struct frame_header) == 88, "frame header as documented");

/* ---- reading ---- */

enum frame_found {
    FRAME_ERROR, /* damage or a system error; *error says what */
    FRAME_FOUND,
    FRAME_NONE,    /* the file ends (or does not exist yet) exactly where the last frame ended */
    FRAME_PARTIAL, /* the file ends inside a frame or the file header */
};

/* A substream file being read. Zero-initialise `buffer`-like members through frame_file_open. */
struct frame_file {
    int dir;       /* borrowed: the trace directory */
    char name[48]; /* relative to dir, e.g. spaces/1/events */
    int fd;        /* -1 until the file exists */
    uint32_t stream, space;
    bool checked; /* the file header was found good */
    uint8_t identity[16];
    uint64_t offset;            /* of the next frame */
    uint64_t sequence;          /* its expected number */
    struct frame_header header; /* of the frame last found */
    uint64_t header_offset;     /* ... and where it lies */
    void *context;              /* decompression */
    uint8_t *stored;
    size_t stored_capacity;
};

void frame_file_open(struct frame_file *file, int dir, const char *name, uint32_t stream, uint32_t space,
                     const uint8_t identity[16]);
void frame_file_close(struct frame_file *file);
/*
 * Finds the next frame and moves past it, without reading its records. Checks all that can be checked without
 * them. The file may grow between calls.
 */
enum frame_found frame_file_next(struct frame_file *file, struct clio_error *error);
/*
 * Reads the records of the frame last found into *raw (grown by realloc; *capacity is its size) after
 * checking the checksum and that they are well-formed records of this substream. Returns false and fills
 * *error if not.
 */
bool frame_file_records(struct frame_file *file, uint8_t **raw, size_t *capacity, struct clio_error *error);

/* ---- writing ---- */

void frame_file_header_build(struct frame_file_header *header, uint32_t stream, uint32_t space,
                             const uint8_t identity[16]);

void frame_file_header_build(struct frame_file_header *header, uint32_t stream, uint32_t space,
                             const uint8_t identity[16]);

struct frame_writer { /* one for a process; holds the compressor */
    void *context;
    int level;
    uint8_t *buffer; /* header and stored bytes */
    size_t capacity;
};

bool frame_writer_open(struct frame_writer *writer, int level);
void frame_writer_close(struct frame_writer *writer);
/*
 * Completes `header` (magic, codec, sizes, checksum) for `raw`, raw_size bytes of records, and builds the
 * frame in writer->buffer. Returns its size, or 0 when there is no memory.
 */
size_t frame_build(struct frame_writer *writer, struct frame_header *header, const void *raw,
                   size_t raw_size);

#endif
