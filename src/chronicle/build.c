/*
 * build.c: builds a chronicle file from the log of a replay; see log.h (input), format.h and story.h
 * (output).
 *
 * Everything is consumed as it comes: block executions and writes go into the story's current chunk, long
 * values into the current content block, pieces of written ranges into runs (runs.h). Full chunks and blocks
 * are compressed and appended to the file. At the end the runs are merged into index blocks, tables and
 * header are written, the file is synced and takes its name. Memory is bounded but for the tables (about
 * 1 byte for 100 writes) and the static description of blocks.
 */
#include "chronicle/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include "chronicle/pairs.h"
#include "chronicle/runs.h"
#include "chronicle/story.h"
#include "trace/record.h"

enum {
    CHUNK_WRITES = 1 << 16,
    CHUNK_EXECUTIONS = 1 << 18,
    INDEX_BLOCK = 16 * 1024,
    OUTPUT_BUFFER = 1 << 20,
    LEVEL = 1, /* of zstd */
    NAME_ATTEMPTS = 100
};

struct table { /* records of one kind, in memory until the end */
    uint8_t *records;
    uint64_t count, room;
    uint32_t size;
};

struct chron_builder {
    int error; /* of the first call that failed */
    char error_text[PATH_MAX + 256];
    char *path, *directory, *trace_path;
    char part[PATH_MAX]; /* name of the unfinished file; empty: it has none */
    int fd;
    uint8_t *buffer; /* of output; buffered bytes belong at offset - buffered */
    size_t buffered;
    uint64_t offset;

    struct story_writer story;
    struct runs runs;
    struct table tables[TABLE_COUNT];
    struct table modules; /* struct chron_module; paths follow in module_paths */
    struct table module_paths;
    struct chron_meta meta;
    struct chron_header header;

    bool started;             /* the clock is set */
    struct chron_clock clock; /* its step: where the current block began */
    uint64_t next_step;
    uint32_t block;           /* current, or STORY_NONE right after an event */
    uint64_t ordinal;         /* writes so far */
    struct chron_chunk chunk; /* the one being filled */
    uint64_t *lengths;        /* of effects of the event at hand */
    uint64_t lengths_room;

    uint8_t *content; /* the content block being filled */
    uint32_t content_used;
    uint64_t content_total;

    uint8_t index[INDEX_BLOCK + PAIR_BYTES_MAX]; /* the index block being filled */
    uint8_t *index_at;
    struct pair index_state;
    struct chron_index index_first;

    ZSTD_CCtx *zstd;
    uint8_t *packed; /* output of compression */
    size_t packed_room;
};

static char last_error[PATH_MAX + 256];

__attribute__((format(printf, 3, 4))) static int fail(struct chron_builder *b, int error, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    if (!b->error) {
        b->error = error;
        vsnprintf(b->error_text, sizeof b->error_text, format, args);
    }
    va_end(args);
    return b->error;
}

static int no_memory(struct chron_builder *b)
{
    return fail(b, -ENOMEM, "no memory to build chronicle %s", b->path);
}

const char *chron_build_error(const struct chron_builder *b)
{
    return b ? b->error_text : last_error;
}

/* ---- output ---- */

static int put_all(struct chron_builder *b, const uint8_t *p, size_t n, uint64_t offset)
{
    while (n) {
        ssize_t done = pwrite(b->fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            int error = done ? errno : EIO;
            return fail(b, -error, "cannot write chronicle %s: %s", b->path, strerror(error));
        }
        p += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

static int flush(struct chron_builder *b)
{
    int rc = put_all(b, b->buffer, b->buffered, b->offset - b->buffered);
    b->buffered = 0;
    return rc;
}

static int output(struct chron_builder *b, const void *bytes, size_t n)
{
    int rc = 0;
    if (b->buffered + n > OUTPUT_BUFFER)
        rc = flush(b);
    if (rc)
        return rc;
    if (n > OUTPUT_BUFFER) {
        rc = put_all(b, bytes, n, b->offset);
    } else {
        memcpy(b->buffer + b->buffered, bytes, n);
        b->buffered += n;
    }
    b->offset += n;
    return rc;
}

/* Compresses n bytes at p. *stored is their length at *out, n when they did not shrink (then *out is p). */
static int pack(struct chron_builder *b, const uint8_t *p, size_t n, const uint8_t **out, uint32_t *stored)
{
    if (n > UINT32_MAX / 2)
        return fail(b, -EFBIG, "a part of chronicle %s has %zu bytes: too large", b->path, n);
    if (b->packed_room < n) {
        free(b->packed);
        b->packed = malloc(n);
        b->packed_room = b->packed ? n : 0;
        if (!b->packed)
            return no_memory(b);
    }
    size_t size = n ? ZSTD_compressCCtx(b->zstd, b->packed, n, p, n, LEVEL) : 0;
    bool shrunk = n && !ZSTD_isError(size) && size < n;
    *out = shrunk ? b->packed : p;
    *stored = (uint32_t)(shrunk ? size : n);
    return 0;
}

static int table_add(struct chron_builder *b, struct table *t, const void *record)
{
    if (t->count == t->room) {
        uint64_t room = t->room ? 2 * t->room : 1024;
        uint8_t *p = realloc(t->records, room * t->size);
        if (!p)
            return no_memory(b);
        t->records = p;
        t->room = room;
    }
    memcpy(t->records + t->count++ * t->size, record, t->size);
    return 0;
}

/* ---- opening ---- */

static int open_part(struct chron_builder *b)
{
    char link[64];
    b->fd = open(b->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (b->fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", b->fd);
        if (!access(link, F_OK))
            return 0;
        close(b->fd);
    }
    int n = snprintf(b->part, sizeof b->part, "%s.%d.part", b->path, (int)getpid());
    if (n >= (int)sizeof b->part) {
        b->part[0] = 0;
        return fail(b, -ENAMETOOLONG, "cannot create chronicle %s: name too long", b->path);
    }
    b->fd = open(b->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (b->fd >= 0)
        return 0;
    int error = errno;
    b->part[0] = 0;
    return fail(b, -error, "cannot create chronicle %s: %s", b->path, strerror(error));
}

/* xxh64 of the file TRACE/trace, or 0. */
static uint64_t identity_of(const char *trace_path)
{
    char name[PATH_MAX], bytes[65536];
    if (snprintf(name, sizeof name, "%s/trace", trace_path) >= (int)sizeof name)
        return 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    return n > 0 ? XXH64(bytes, (size_t)n, 0) : 0;
}

static int set_paths(struct chron_builder *b, const char *path, const char *trace_path)
{
    char *absolute = realpath(trace_path, NULL);
    b->path = strdup(path);
    b->directory = strdup(path);
    b->trace_path = absolute ? absolute : strdup(trace_path);
    if (!b->path || !b->directory || !b->trace_path)
        return no_memory(b);
    char *slash = strrchr(b->directory, '/');
    if (!slash)
        strcpy(b->directory, *path ? "." : "");
    else
        slash[slash == b->directory] = 0;
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return fail(b, -EEXIST, "cannot create chronicle %s: it exists and is no regular file", path);
    return 0;
}

static int allocate(struct chron_builder *b)
{
    static const uint32_t sizes[TABLE_COUNT] = {
        [TABLE_CHUNKS] = sizeof(struct chron_chunk), [TABLE_CONTENT] = sizeof(struct chron_content),
        [TABLE_INDEX] = sizeof(struct chron_index),  [TABLE_BLOCKS] = sizeof(struct chron_static),
        [TABLE_LENGTHS] = sizeof(uint8_t),           [TABLE_SLOTS] = sizeof(struct chron_slot)};
    for (int i = 0; i < TABLE_COUNT; i++)
        b->tables[i].size = sizes[i];
    b->modules.size = sizeof(struct chron_module);
    b->module_paths.size = 1;
    b->buffer = malloc(OUTPUT_BUFFER);
    b->content = malloc(CHRON_CONTENT_BLOCK);
    b->zstd = ZSTD_createCCtx();
    int rc = runs_init(&b->runs, b->directory);
    if (!rc)
        rc = story_writer_init(&b->story);
    return rc || !b->buffer || !b->content || !b->zstd ? no_memory(b) : 0;
}

int chron_build_open(struct chron_builder **out, const char *path, const char *trace_path, uint32_t space)
{
    struct chron_builder *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) {
        snprintf(last_error, sizeof last_error, "no memory to build chronicle %s", path);
        return -ENOMEM;
    }
    b->fd = -1;
    b->block = STORY_NONE;
    b->index_at = b->index;
    b->offset = CHRON_HEADER_SIZE;
    b->header.space = space;
    b->header.trace_identity = identity_of(trace_path);
    int rc = set_paths(b, path, trace_path);
    if (!rc)
        rc = allocate(b);
    if (!rc)
        rc = open_part(b);
    if (rc)
        chron_build_abandon(b);
    else
        *out = b;
    return rc;
}

static void release(struct chron_builder *b)
{
    memcpy(last_error, b->error_text, sizeof last_error);
    if (b->fd >= 0)
        close(b->fd);
    if (b->part[0])
        unlink(b->part);
    for (int i = 0; i < TABLE_COUNT; i++)
        free(b->tables[i].records);
    free(b->modules.records);
    free(b->module_paths.records);
    story_writer_free(&b->story);
    runs_free(&b->runs);
    ZSTD_freeCCtx(b->zstd);
    free(b->buffer);
    free(b->content);
    free(b->packed);
    free(b->lengths);
    free(b->path);
    free(b->directory);
    free(b->trace_path);
    free(b);
}

void chron_build_abandon(struct chron_builder *b)
{
    if (b)
        release(b);
}

/* ---- static parts ---- */

int chron_build_block(struct chron_builder *b, const struct chron_block *block)
{
    struct table *lengths = &b->tables[TABLE_LENGTHS], *blocks = &b->tables[TABLE_BLOCKS];
    if (b->error)
        return b->error;
    if (block->number != b->story.nblocks || block->number >= STORY_NONE >> 1 || !block->ninsns ||
        block->ninsns > UINT16_MAX || lengths->count + block->ninsns > UINT32_MAX)
        return fail(b, -EINVAL, "block %llu of %u instructions described after %llu blocks",
                    (unsigned long long)block->number, block->ninsns, (unsigned long long)b->story.nblocks);
    struct chron_static record = {
        .pc = block->pc, .lengths = (uint32_t)lengths->count, .ninsns = block->ninsns};
    int rc = table_add(b, blocks, &record);
    for (uint32_t i = 0; !rc && i < block->ninsns; i++) {
        uint8_t length = (uint8_t)block->lengths[i];
        if (!length || block->lengths[i] > 15)
            return fail(b, -EINVAL, "instruction %u of block %llu has %u bytes", i,
                        (unsigned long long)block->number, block->lengths[i]);
        rc = table_add(b, lengths, &length);
    }
    if (!rc && story_add_block(&b->story, block->ninsns))
        rc = no_memory(b);
    return rc;
}

int chron_build_module(struct chron_builder *b, uint64_t start, uint64_t end, uint64_t offset,
                       const char *path, const uint8_t hash[32])
{
    if (b->error)
        return b->error;
    struct chron_module m = {.start = start,
                             .end = end,
                             .offset = offset,
                             .ordinal = b->ordinal,
                             .path_length = (uint32_t)strlen(path)};
    memcpy(m.hash, hash, sizeof m.hash);
    int rc = table_add(b, &b->modules, &m);
    for (const char *p = path; !rc && *p; p++)
        rc = table_add(b, &b->module_paths, p);
    return rc;
}

int chron_build_crash(struct chron_builder *b, const struct chron_crash *crash)
{
    if (b->error)
        return b->error;
    struct chron_meta *m = &b->meta;
    m->signo = crash->signo;
    m->code = crash->code;
    m->address = crash->address;
    m->clock = (struct chron_clock){crash->event, crash->tick, crash->step};
    memcpy(m->gpr, crash->regs.gpr, sizeof m->gpr);
    m->rip = crash->regs.rip;
    m->rflags = crash->regs.rflags;
    m->fs_base = crash->regs.fs_base;
    m->gs_base = crash->regs.gs_base;
    b->header.flags |= CHRON_FLAG_CRASH;
    return 0;
}

/* ---- long values ---- */

static int end_content_block(struct chron_builder *b)
{
    if (!b->content_used)
        return 0;
    const uint8_t *bytes;
    struct chron_content record = {.offset = b->offset, .raw = b->content_used};
    int rc = pack(b, b->content, b->content_used, &bytes, &record.stored);
    if (rc)
        return rc;
    record.checksum = XXH64(bytes, record.stored, 0);
    b->content_used = 0;
    rc = output(b, bytes, record.stored);
    return rc ? rc : table_add(b, &b->tables[TABLE_CONTENT], &record);
}

static int add_content(struct chron_builder *b, const uint8_t *bytes, uint64_t n)
{
    int rc = 0;
    b->content_total += n;
    while (!rc && n) {
        uint64_t part = CHRON_CONTENT_BLOCK - b->content_used;
        part = part < n ? part : n;
        memcpy(b->content + b->content_used, bytes, part);
        b->content_used += (uint32_t)part;
        bytes += part;
        n -= part;
        if (b->content_used == CHRON_CONTENT_BLOCK)
            rc = end_content_block(b);
    }
    return rc;
}

/* ---- the story ---- */

static void begin_chunk(struct chron_builder *b, const struct chron_clock *clock)
{
    story_restart(&b->story);
    b->chunk = (struct chron_chunk){.ordinal = b->ordinal, .content = b->content_total, .clock = *clock};
}

static int end_chunk(struct chron_builder *b)
{
    struct chron_chunk *c = &b->chunk;
    struct story_writer *w = &b->story;
    if (story_cut(w))
        return no_memory(b);
    c->offset = b->offset;
    c->writes = w->writes;
    c->executions = w->executions;
    XXH64_state_t sum;
    XXH64_reset(&sum, 0);
    int rc = 0;
    for (int i = 0; !rc && i < CHRON_STREAMS; i++) {
        const uint8_t *bytes;
        c->raw[i] = (uint32_t)(w->at[i] - w->start[i]);
        rc = pack(b, w->start[i], (size_t)(w->at[i] - w->start[i]), &bytes, &c->stored[i]);
        if (rc)
            return rc;
        XXH64_update(&sum, bytes, c->stored[i]);
        rc = output(b, bytes, c->stored[i]);
    }
    c->checksum = XXH64_digest(&sum);
    return rc ? rc : table_add(b, &b->tables[TABLE_CHUNKS], c);
}

static inline int index_write(struct chron_builder *b, uint64_t address, uint64_t length)
{
    if (!length || length > CHRON_ADDRESS_END || address > CHRON_ADDRESS_END - length)
        return fail(b, -EINVAL, "a write of %llu bytes at 0x%llx is outside of every address space",
                    (unsigned long long)length, (unsigned long long)address);
    int rc = runs_add(&b->runs, address, length, b->ordinal++);
    return rc ? fail(b, rc, "cannot sort the index of chronicle %s: %s", b->path, strerror(-rc)) : 0;
}

/* Counts the block that is over; `ran` of its instructions were run. */
static void leave_block(struct chron_builder *b, uint32_t ran)
{
    b->header.instructions += ran;
    b->block = STORY_NONE;
}

static inline int on_block(struct chron_builder *b, uint64_t word)
{
    uint64_t number = word & (LOG_BLOCK_TICK - 1);
    bool tick = word & LOG_BLOCK_TICK;
    if (__builtin_expect(!b->started || number >= b->story.nblocks, 0))
        return fail(b, -EINVAL,
                    b->started ? "the log runs block %llu, which was not described"
                               : "the log begins with block %llu, not with a moment or an event",
                    (unsigned long long)number);
    if (b->block != STORY_NONE)
        leave_block(b, b->story.blocks[b->block].ninsns);
    if (__builtin_expect(b->story.writes >= CHUNK_WRITES || b->story.executions >= CHUNK_EXECUTIONS, 0)) {
        struct chron_clock clock = b->clock;
        clock.step = b->next_step;
        int rc = end_chunk(b);
        if (rc)
            return rc;
        begin_chunk(b, &clock);
    }
    b->clock.tick += tick;
    b->clock.step = tick ? 0 : b->next_step;
    b->next_step = b->clock.step + b->story.blocks[number].ninsns;
    b->block = (uint32_t)number;
    b->header.executions++;
    return story_block(&b->story, (uint32_t)number, tick) ? no_memory(b) : 0;
}

static inline int on_store(struct chron_builder *b, uint64_t index, unsigned size, uint64_t address,
                           uint64_t length, const uint64_t *bytes)
{
    if (__builtin_expect(b->block == STORY_NONE || index >= b->story.blocks[b->block].ninsns, 0))
        return fail(b, -EINVAL, "the log has a write by instruction %llu of no block that has it",
                    (unsigned long long)index);
    int rc = index_write(b, address, length);
    if (!rc && length > CHRON_SHORT)
        rc = add_content(b, (const uint8_t *)bytes, length);
    if (!rc && story_write(&b->story, (unsigned)index, size, address, length, bytes))
        rc = no_memory(b);
    return rc;
}

static int on_effect(struct chron_builder *b, uint64_t address, uint64_t length, unsigned kind,
                     const uint64_t *bytes)
{
    int rc = index_write(b, address, length);
    if (!rc && !kind && length > CHRON_SHORT)
        rc = add_content(b, (const uint8_t *)bytes, length);
    const void *inside = kind || length > CHRON_SHORT ? NULL : bytes;
    if (!rc && story_effect(&b->story, address, length, inside))
        rc = no_memory(b);
    return rc;
}

/* Words of `bytes` bytes of payload. */
static uint64_t padded(uint64_t bytes)
{
    return bytes / 8 + !!(bytes % 8);
}

static int broken(struct chron_builder *b, const char *what)
{
    return fail(b, -EINVAL, "the log breaks off or is wrong in %s", what);
}

enum { EVENT_WORDS = 5 };

/* Reads an effect at p[0..n): returns its words or 0. */
static uint64_t effect_words(const uint64_t *p, uint64_t n, uint64_t *length, unsigned *kind)
{
    if (n < 2 || p[1] >> 56 > 2)
        return 0;
    *kind = (unsigned)(p[1] >> 56);
    *length = p[1] & ~(255ull << 56);
    uint64_t words = 2 + (*kind ? 0 : padded(*length));
    return words <= n ? words : 0;
}

/* Fills b->lengths with the effects that are not empty. Returns the words of the whole event, or 0. */
static uint64_t scan_effects(struct chron_builder *b, const uint64_t *p, uint64_t n, uint64_t *count)
{
    uint64_t at = EVENT_WORDS;
    *count = 0;
    for (uint64_t i = 0; i < p[4]; i++) {
        uint64_t length = 0;
        unsigned kind = 0;
        uint64_t words = effect_words(p + at, n - at, &length, &kind);
        if (!words)
            return 0;
        if (length)
            b->lengths[(*count)++] = length << 2 | kind;
        at += words;
    }
    return at;
}

/* How many instructions of the current block ran before the event. */
static uint32_t ran_before(struct chron_builder *b, const struct story_event *e)
{
    const struct chron_static *s = (const struct chron_static *)b->tables[TABLE_BLOCKS].records + b->block;
    if (e->kind == EV_SIGNAL && !(e->flags & EVF_SYNC))
        return s->ninsns;
    return story_index_of(s->pc, b->tables[TABLE_LENGTHS].records + s->lengths, s->ninsns, e->pc);
}

static int run_effects(struct chron_builder *b, const uint64_t *p, uint64_t n)
{
    int rc = 0;
    uint64_t at = EVENT_WORDS, length = 0;
    unsigned kind = 0;
    for (uint64_t i = 0; !rc && i < p[4]; i++) {
        uint64_t words = effect_words(p + at, n - at, &length, &kind);
        if (length)
            rc = on_effect(b, p[at], length, kind, p + at + 2);
        at += words;
    }
    return rc;
}

/* Returns the entry's words or -errno. */
static int64_t on_event(struct chron_builder *b, const uint64_t *p, uint64_t n)
{
    if (n < EVENT_WORDS || p[4] > n)
        return broken(b, "an event");
    if (p[4] > b->lengths_room) {
        free(b->lengths);
        b->lengths_room = 2 * p[4];
        b->lengths = malloc(b->lengths_room * sizeof *b->lengths);
        if (!b->lengths) {
            b->lengths_room = 0;
            return no_memory(b);
        }
    }
    struct story_event e = {.number = p[0] & ((1ull << LOG_KIND_SHIFT) - 1),
                            .pc = p[1],
                            .kind = p[2] >> 32 & 0xffff,
                            .nr = (uint32_t)p[2],
                            .flags = (uint32_t)(p[2] >> 48),
                            .result = p[3]};
    uint64_t words = scan_effects(b, p, n, &e.neffects);
    if (!words)
        return broken(b, "the effects of an event");
    if (b->started && e.number <= b->clock.event)
        return fail(b, -EINVAL, "the log has event %llu after event %llu", (unsigned long long)e.number,
                    (unsigned long long)b->clock.event);
    if (b->block != STORY_NONE)
        leave_block(b, ran_before(b, &e));
    struct chron_clock clock = {.event = e.number};
    if (!b->started)
        begin_chunk(b, &clock);
    if (story_event(&b->story, b->started ? b->clock.event : e.number, &e, b->lengths))
        return no_memory(b);
    b->started = true;
    b->clock = clock;
    b->next_step = 0;
    b->header.events++;
    int rc = run_effects(b, p, n);
    return rc ? rc : (int64_t)words;
}

static int on_moment(struct chron_builder *b, const uint64_t *p)
{
    struct chron_clock clock = {p[0] & ((1ull << LOG_KIND_SHIFT) - 1), p[1], p[2]}, at = b->clock;
    bool inside = b->block != STORY_NONE && clock.event == at.event && clock.tick == at.tick;
    uint64_t limit = inside ? b->next_step : 0;
    if (b->started && (chron_clock_compare(&clock, &at) < 0 || (inside && clock.step > limit)))
        return fail(b, -EINVAL, "the log sets the clock to %llu:%llu:%llu at %llu:%llu:%llu",
                    (unsigned long long)clock.event, (unsigned long long)clock.tick,
                    (unsigned long long)clock.step, (unsigned long long)at.event, (unsigned long long)at.tick,
                    (unsigned long long)at.step);
    if (b->block != STORY_NONE)
        leave_block(b, inside ? (uint32_t)(clock.step - at.step) : b->story.blocks[b->block].ninsns);
    if (!b->started)
        begin_chunk(b, &clock);
    else if (story_moment(&b->story, &clock))
        return no_memory(b);
    b->started = true;
    b->clock = clock;
    b->next_step = clock.step;
    return 0;
}

/* Consumes a LOG_WRITE at p[0..n): its words or -errno. */
static inline int64_t on_write(struct chron_builder *b, const uint64_t *p, uint64_t n)
{
    uint64_t size = p[0] >> 40 & 0xffff, words = 2 + (size + 7) / 8;
    if (__builtin_expect(!size || size > CHRON_SHORT || words > n, 0))
        return broken(b, "a write");
    int rc = on_store(b, p[0] & UINT32_MAX, (unsigned)size, p[1], size, p + 2);
    return rc ? rc : (int64_t)words;
}

static int64_t on_range(struct chron_builder *b, const uint64_t *p, uint64_t n)
{
    if (n < 3 || padded(p[2]) > n - 3)
        return broken(b, "a range");
    int rc = p[2] ? on_store(b, p[0] & UINT32_MAX, 0, p[1], p[2], p + 3) : 0;
    return rc ? rc : (int64_t)(3 + padded(p[2]));
}

/* Consumes one of the rarer entries. */
static __attribute__((noinline)) int64_t on_other(struct chron_builder *b, const uint64_t *p, uint64_t n)
{
    switch (p[0] >> LOG_KIND_SHIFT) {
    case LOG_RANGE:
        return on_range(b, p, n);
    case LOG_EVENT:
        return on_event(b, p, n);
    case LOG_MOMENT:
        return n < 3 ? broken(b, "a moment") : on_moment(b, p) ?: 3;
    default:
        return fail(b, -EINVAL, "the log has an entry of unknown kind %llu",
                    (unsigned long long)(p[0] >> LOG_KIND_SHIFT));
    }
}

int chron_build_log(struct chron_builder *b, const uint64_t *words, uint64_t count)
{
    if (b->error)
        return b->error;
    while (count) {
        uint64_t kind = words[0] >> LOG_KIND_SHIFT;
        int64_t n;
        if (kind == LOG_WRITE)
            n = on_write(b, words, count);
        else if (kind == LOG_BLOCK)
            n = on_block(b, words[0]) ?: 1;
        else
            n = on_other(b, words, count);
        if (__builtin_expect(n < 0, 0))
            return (int)n;
        words += n;
        count -= (uint64_t)n;
    }
    return 0;
}

/* ---- closing ---- */

static int end_index_block(struct chron_builder *b)
{
    uint32_t n = (uint32_t)(b->index_at - b->index);
    struct chron_index *record = &b->index_first;
    const uint8_t *bytes;
    if (!n)
        return 0;
    record->offset = b->offset;
    record->raw = n;
    int rc = pack(b, b->index, n, &bytes, &record->stored);
    if (rc)
        return rc;
    record->checksum = XXH64(bytes, record->stored, 0);
    b->index_at = b->index;
    rc = output(b, bytes, record->stored);
    return rc ? rc : table_add(b, &b->tables[TABLE_INDEX], record);
}

static int add_pair(void *context, uint64_t key, uint64_t ordinal)
{
    struct chron_builder *b = context;
    if (b->index_at == b->index) {
        b->index_first = (struct chron_index){.key = key, .ordinal = ordinal};
        b->index_state = pair_start(key, ordinal);
    }
    b->index_at = pair_put(b->index_at, &b->index_state, key, ordinal);
    return b->index_at >= b->index + INDEX_BLOCK ? end_index_block(b) : 0;
}

/* Moves the static stores of all blocks into their table, in block order. */
static int collect_slots(struct chron_builder *b)
{
    struct chron_static *records = (struct chron_static *)b->tables[TABLE_BLOCKS].records;
    struct table *slots = &b->tables[TABLE_SLOTS];
    int rc = 0;
    for (uint64_t i = 0; !rc && i < b->story.nblocks; i++) {
        const struct story_block *block = &b->story.blocks[i];
        records[i].slots = (uint32_t)slots->count;
        records[i].nslots = block->nslots;
        for (uint32_t j = 0; !rc && j < block->nslots; j++)
            rc = table_add(b, slots, &b->story.stores[block->slots + j].fixed);
    }
    return rc;
}

static int write_table(struct chron_builder *b, const struct table *t, struct chron_section *section)
{
    uint8_t page[CHRON_PAGE];
    uint64_t per_page = CHRON_PAGE_ROOM / t->size;
    *section = (struct chron_section){.offset = b->offset, .count = t->count, .record_size = t->size};
    int rc = 0;
    for (uint64_t i = 0; !rc && i < t->count; i += per_page) {
        uint64_t n = t->count - i < per_page ? t->count - i : per_page;
        memset(page, 0, sizeof page);
        memcpy(page, t->records + i * t->size, n * t->size);
        uint64_t checksum = XXH64(page, CHRON_PAGE_ROOM, b->offset);
        memcpy(page + CHRON_PAGE_ROOM, &checksum, 8);
        rc = output(b, page, sizeof page);
    }
    return rc;
}

static int write_meta(struct chron_builder *b)
{
    const struct chron_module *modules = (const struct chron_module *)b->modules.records;
    b->meta.path_length = (uint32_t)strlen(b->trace_path);
    b->meta.nmodules = (uint32_t)b->modules.count;
    uint64_t size =
        sizeof b->meta + b->meta.path_length + b->modules.count * sizeof *modules + b->module_paths.count;
    uint8_t *blob = malloc(size), *at = blob;
    if (!blob)
        return no_memory(b);
    at = mempcpy(at, &b->meta, sizeof b->meta);
    at = mempcpy(at, b->trace_path, b->meta.path_length);
    const uint8_t *path = b->module_paths.records;
    for (uint64_t i = 0; i < b->modules.count; i++) {
        at = mempcpy(at, &modules[i], sizeof *modules);
        at = mempcpy(at, path, modules[i].path_length);
        path += modules[i].path_length;
    }
    b->header.meta_offset = b->offset;
    b->header.meta_size = size;
    b->header.meta_checksum = XXH64(blob, size, 0);
    int rc = output(b, blob, size);
    free(blob);
    return rc;
}

static int write_header(struct chron_builder *b)
{
    uint8_t page[CHRON_PAGE] = {0};
    struct chron_header *h = &b->header;
    memcpy(h->magic, CHRON_MAGIC, sizeof h->magic);
    h->version = CHRON_VERSION;
    h->header_size = CHRON_HEADER_SIZE;
    h->file_size = b->offset;
    h->writes = b->ordinal;
    h->content = b->content_total;
    memcpy(h->codes, b->runs.codes, sizeof h->codes);
    memcpy(page, h, sizeof *h);
    uint64_t checksum = XXH64(page, CHRON_PAGE_ROOM, 0);
    memcpy(page + CHRON_PAGE_ROOM, &checksum, 8);
    return put_all(b, page, sizeof page, 0);
}

/* Writes everything that is still in memory. */
static int finish(struct chron_builder *b)
{
    if (b->block != STORY_NONE)
        leave_block(b, b->story.blocks[b->block].ninsns);
    int rc = b->started ? end_chunk(b) : 0;
    if (!rc)
        rc = end_content_block(b);
    if (!rc) {
        rc = runs_finish(&b->runs, add_pair, b);
        if (rc)
            fail(b, rc, "cannot sort the index of chronicle %s: %s", b->path, strerror(-rc));
    }
    if (!rc)
        rc = end_index_block(b);
    if (!rc)
        rc = collect_slots(b);
    if (!rc)
        rc = write_meta(b);
    for (int i = 0; !rc && i < TABLE_COUNT; i++)
        rc = write_table(b, &b->tables[i], &b->header.tables[i]);
    if (!rc)
        rc = flush(b);
    return rc ? rc : write_header(b);
}

/* Gives a file without a name the name b->part. */
static int name_part(struct chron_builder *b)
{
    char link[64];
    if (b->part[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", b->fd);
    for (int i = 0; i < NAME_ATTEMPTS; i++) {
        int n = snprintf(b->part, sizeof b->part, "%s.%d-%d.part", b->path, (int)getpid(), i);
        errno = ENAMETOOLONG;
        if (n < (int)sizeof b->part && !linkat(AT_FDCWD, link, AT_FDCWD, b->part, AT_SYMLINK_FOLLOW))
            return 0;
        if (errno != EEXIST)
            break;
    }
    int error = errno;
    b->part[0] = 0;
    return fail(b, -error, "cannot name chronicle %s: %s", b->path, strerror(error));
}

/* Makes the file durable under its name. */
static int publish(struct chron_builder *b)
{
    if (fsync(b->fd))
        return fail(b, -errno, "cannot sync chronicle %s: %s", b->path, strerror(errno));
    int rc = name_part(b);
    if (rc)
        return rc;
    if (rename(b->part, b->path))
        return fail(b, -errno, "cannot rename %s to %s: %s", b->part, b->path, strerror(errno));
    b->part[0] = 0;
    int directory = open(b->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
        rc = fsync(directory) && errno != EINVAL ? -errno : 0;
        close(directory);
    }
    return rc ? fail(b, rc, "cannot sync directory %s: %s", b->directory, strerror(-rc)) : 0;
}

int chron_build_close(struct chron_builder *b, const uint64_t from[3], const uint64_t to[3])
{
    b->header.from = (struct chron_clock){from[0], from[1], from[2]};
    b->header.to = (struct chron_clock){to[0], to[1], to[2]};
    int rc = b->error;
    if (!rc && chron_clock_compare(&b->header.from, &b->header.to) > 0)
        rc = fail(b, -EINVAL, "chronicle %s would end before it begins", b->path);
    if (!rc)
        rc = finish(b);
    if (!rc)
        rc = publish(b);
    release(b);
    return rc;
}
