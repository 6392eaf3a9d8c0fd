/* frame.c: see frame.h. */
#include "trace/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trace/fault.h"
#include "trace/lifeline.h"
#include "trace/record.h"

/* A frame that does not check may have been replaced by a store that took over: look again before calling it
 * bad. */
enum { RETRIES = 3, RETRY_NS = 2000000 };

static uint64_t file_header_sum(const struct frame_file_header *header)
{
    return XXH64(header, offsetof(struct frame_file_header, checksum), 0);
}

static uint64_t header_sum(const struct frame_header *header)
{
    return XXH64(header, offsetof(struct frame_header, header_checksum), 0);
}

/* ---- reading ---- */

void frame_file_open(struct frame_file *file, int dir, const char *name, uint32_t stream, uint32_t space,
                     const uint8_t identity[16])
{
    *file = (struct frame_file){.dir = dir, .fd = -1, .stream = stream, .space = space};
    snprintf(file->name, sizeof file->name, "%s", name);
    memcpy(file->identity, identity, 16);
}

void frame_file_close(struct frame_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    ZSTD_freeDCtx(file->context);
    free(file->stored);
    file->fd = -1;
    file->context = NULL;
    file->stored = NULL;
}

/* Reads up to `size` bytes at `offset`; returns how many there are, -1 with *error. */
static ssize_t read_at(struct frame_file *file, void *to, size_t size, uint64_t offset,
                       struct clio_error *error)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(file->fd, (char *)to + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            fault_system(error, errno, "reading %s at %" PRIu64, file->name, offset + done);
            return -1;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static bool check_file_header(const struct frame_file *file, const struct frame_file_header *header,
                              struct clio_error *error)
{
    if (header->magic != FRAME_FILE_MAGIC)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s: not a substream of a trace", file->name);
    if (header->version != TRACE_FORMAT_VERSION)
        return fault_set(error, CLIO_FAULT_VERSION, "%s: format version %u, this clio reads version %d",
                         file->name, header->version, TRACE_FORMAT_VERSION);
    if (header->checksum != file_header_sum(header))
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s: the file's header (offset 0) fails its checksum",
                         file->name);
    if ((uint32_t)header->features)
        return fault_set(error, CLIO_FAULT_VERSION, "%s: needs features 0x%x, which this clio lacks",
                         file->name, (uint32_t)header->features);
    if (header->stream != file->stream || header->space != file->space)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s: holds substream %u of space %u", file->name,
                         header->stream, header->space);
    if (memcmp(header->identity, file->identity, 16) != 0)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s: belongs to another trace", file->name);
    return true;
}

/* Opens the file and checks its header, if it is there. FRAME_FOUND when that is done. */
static enum frame_found open_file(struct frame_file *file, struct clio_error *error)
{
    if (file->checked)
        return FRAME_FOUND;
    if (file->fd < 0) {
        file->fd = openat(file->dir, file->name, O_RDONLY | O_CLOEXEC);
        if (file->fd < 0 && errno == ENOENT)
            return FRAME_NONE;
        if (file->fd < 0) {
            fault_system(error, errno, "opening %s", file->name);
            return FRAME_ERROR;
        }
    }
    struct frame_file_header header;
    ssize_t n = read_at(file, &header, sizeof header, 0, error);
    if (n < 0)
        return FRAME_ERROR;
    if (n < (ssize_t)sizeof header)
        return FRAME_PARTIAL;
    if (!check_file_header(file, &header, error))
        return FRAME_ERROR;
    file->checked = true;
    file->offset = sizeof header;
    return FRAME_FOUND;
}

static bool bad_frame(const struct frame_file *file, struct clio_error *error, uint64_t sequence,
                      uint64_t offset, const char *reason)
{
    return fault_set(error, CLIO_FAULT_DAMAGED, "%s: frame %" PRIu64 " at offset %" PRIu64 ": %s", file->name,
                     sequence, offset, reason);
}

/* What is wrong with a frame header, or NULL. */
static const char *header_complaint(const struct frame_file *file, const struct frame_header *h)
{
    if (h->magic != FRAME_MAGIC)
        return "no frame begins here";
    if (h->header_checksum != header_sum(h))
        return "the frame header fails its checksum";
    if (h->header_size != sizeof *h)
        return "unknown frame header size";
    if (h->stream != file->stream)
        return "holds another substream";
    if (file->stream != STREAM_TASKS && h->space != file->space)
        return "holds another space";
    if (h->sequence != file->sequence)
        return "out of sequence";
    if (h->codec > FRAME_ZSTD)
        return "unknown codec";
    if (h->raw_size > FRAME_RAW_MAX || h->stored_size > h->raw_size || h->raw_size % 8)
        return "impossible sizes";
    if (h->codec == FRAME_PLAIN && h->stored_size != h->raw_size)
        return "impossible sizes";
    if (h->ring_from > h->ring_to || h->records > h->raw_size / 8)
        return "impossible counts";
    return NULL;
}

/* FRAME_FOUND: *h is a good header and the whole frame is in the file. */
static enum frame_found read_header(struct frame_file *file, struct frame_header *h, struct clio_error *error)
{
    ssize_t n = read_at(file, h, sizeof *h, file->offset, error);
    if (n < 0)
        return FRAME_ERROR;
    if (n == 0)
        return FRAME_NONE;
    if (n < (ssize_t)sizeof *h)
        return FRAME_PARTIAL;
    const char *complaint = header_complaint(file, h);
    if (complaint) {
        bad_frame(file, error, file->sequence, file->offset, complaint);
        return FRAME_ERROR;
    }
    off_t size = lseek(file->fd, 0, SEEK_END);
    if (size < 0 || (uint64_t)size < file->offset + sizeof *h + h->stored_size)
        return FRAME_PARTIAL;
    return FRAME_FOUND;
}

/* Waits a little and returns true when the file may be another one afterwards. */
static bool worth_retrying(const struct frame_file *file)
{
    return trace_lifeline_held(file->dir) && nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL) == 0;
}

enum frame_found frame_file_next(struct frame_file *file, struct clio_error *error)
{
    enum frame_found found = open_file(file, error);
    if (found != FRAME_FOUND)
        return found;
    struct frame_header h;
    found = read_header(file, &h, error);
    for (int i = 0; i < RETRIES && found == FRAME_ERROR && worth_retrying(file); i++)
        found = read_header(file, &h, error);
    if (found != FRAME_FOUND)
        return found;
    file->header = h;
    file->header_offset = file->offset;
    file->offset += sizeof h + h.stored_size;
    file->sequence++;
    return FRAME_FOUND;
}

static bool grow(uint8_t **buffer, size_t *capacity, size_t size, struct clio_error *error)
{
    if (size <= *capacity)
        return true;
    uint8_t *p = realloc(*buffer, size);
    if (!p)
        return fault_system(error, ENOMEM, "reading a frame of %zu bytes", size);
    *buffer = p;
    *capacity = size;
    return true;
}

/* Whether raw holds whole records of the file's substream, as many as the header says. */
static bool check_records(const struct frame_file *file, const uint8_t *raw, struct clio_error *error)
{
    const struct frame_header *h = &file->header;
    uint32_t count = 0, at = 0;
    while (at < h->raw_size) {
        const struct trace_record *r = (const struct trace_record *)(raw + at);
        if (r->size < sizeof *r || r->size % 8 || r->size > h->raw_size - at)
            return bad_frame(file, error, h->sequence, file->header_offset,
                             "a record has an impossible size");
        int stream = trace_stream_of(r->kind);
        if (stream < 0 && !(r->kind & TRACE_OPTIONAL))
            return fault_set(error, CLIO_FAULT_VERSION,
                             "%s: frame %" PRIu64 " at offset %" PRIu64
                             ": record kind %u is required and this clio does not know it",
                             file->name, h->sequence, file->header_offset, r->kind);
        if (stream >= 0 && (uint32_t)stream != file->stream)
            return bad_frame(file, error, h->sequence, file->header_offset, "a record of another substream");
        at += r->size;
        count++;
    }
    if (count != h->records)
        return bad_frame(file, error, h->sequence, file->header_offset,
                         "another number of records than stated");
    return true;
}

/* Reads the stored bytes of the frame last found and checks them. */
static bool read_stored(struct frame_file *file, uint8_t *to, struct clio_error *error)
{
    const struct frame_header *h = &file->header;
    for (int i = 0;; i++) {
        ssize_t n = read_at(file, to, h->stored_size, file->header_offset + sizeof *h, error);
        if (n < 0)
            return false;
        if (n == (ssize_t)h->stored_size && XXH64(to, h->stored_size, 0) == h->checksum)
            return true;
        if (i == RETRIES || !worth_retrying(file))
            return bad_frame(file, error, h->sequence, file->header_offset,
                             "the records fail their checksum");
    }
}

static bool decompress(struct frame_file *file, uint8_t *raw, struct clio_error *error)
{
    const struct frame_header *h = &file->header;
    if (!file->context && !(file->context = ZSTD_createDCtx()))
        return fault_system(error, ENOMEM, "reading %s", file->name);
    size_t n = ZSTD_decompressDCtx(file->context, raw, h->raw_size, file->stored, h->stored_size);
    if (ZSTD_isError(n) || n != h->raw_size)
        return bad_frame(file, error, h->sequence, file->header_offset, "the records do not decompress");
    return true;
}

bool frame_file_records(struct frame_file *file, uint8_t **raw, size_t *capacity, struct clio_error *error)
{
    const struct frame_header *h = &file->header;
    if (!grow(raw, capacity, h->raw_size, error))
        return false;
    if (h->raw_size == 0)
        return h->records == 0 || bad_frame(file, error, h->sequence, file->header_offset,
                                            "another number of records than stated");
    if (h->codec == FRAME_PLAIN)
        return read_stored(file, *raw, error) && check_records(file, *raw, error);
    return grow(&file->stored, &file->stored_capacity, h->stored_size, error) &&
           read_stored(file, file->stored, error) && decompress(file, *raw, error) &&
           check_records(file, *raw, error);
}

/* ---- writing ---- */

enum { WORTH_COMPRESSING = 96 }; /* bytes */

void frame_file_header_build(struct frame_file_header *header, uint32_t stream, uint32_t space,
                             const uint8_t identity[16])
{
    *header = (struct frame_file_header){
        .magic = FRAME_FILE_MAGIC, .version = TRACE_FORMAT_VERSION, .stream = stream, .space = space};
    memcpy(header->identity, identity, 16);
    header->checksum = file_header_sum(header);
}

bool frame_writer_open(struct frame_writer *writer, int level)
{
    *writer = (struct frame_writer){.level = level, .context = ZSTD_createCCtx()};
    return writer->context != NULL;
}

void frame_writer_close(struct frame_writer *writer)
{
    ZSTD_freeCCtx(writer->context);
    free(writer->buffer);
    *writer = (struct frame_writer){0};
}

size_t frame_build(struct frame_writer *writer, struct frame_header *header, const void *raw, size_t raw_size)
{
    struct clio_error ignored;
    if (!grow(&writer->buffer, &writer->capacity, sizeof *header + ZSTD_compressBound(raw_size), &ignored))
        return 0;
    uint8_t *stored = writer->buffer + sizeof *header;
    size_t n = raw_size;
    if (raw_size >= WORTH_COMPRESSING)
        n = ZSTD_compressCCtx(writer->context, stored, writer->capacity - sizeof *header, raw, raw_size,
                              writer->level);
    if (ZSTD_isError(n) || n >= raw_size) {
        header->codec = FRAME_PLAIN;
        n = raw_size;
        if (raw_size)
            memcpy(stored, raw, raw_size);
    } else
        header->codec = FRAME_ZSTD;
    header->magic = FRAME_MAGIC;
    header->header_size = sizeof *header;
    header->raw_size = (uint32_t)raw_size;
    header->stored_size = (uint32_t)n;
    header->checksum = XXH64(stored, n, 0);
    header->header_checksum = header_sum(header);
    memcpy(writer->buffer, header, sizeof *header);
    return sizeof *header + n;
}
