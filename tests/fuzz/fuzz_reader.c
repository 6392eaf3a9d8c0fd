/*
 * fuzz_reader [SECONDS [SEED]]: damages traces and reads them in every way there is.
 *
 * Some runs change bytes anywhere, cut or lengthen a file; others take a frame apart, change its header or
 * its records, and put it together again with right checksums, so that what lies behind the checksums is
 * reached, too. Whatever a reader, or a store that takes over, says of such a trace: it must not crash, hang
 * or touch memory that is not its own (run it under ASan: make SAN=1), and an error must have a text. Prints
 * `ok` with counts, or the run that failed.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <zstd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "../unit/trace_fixture.h"
#include "trace/moment.h"

enum { RING = 1 << 18, RUNS_OF_A_CHILD = 100, HANG_SECONDS = 60 };

static const char *const names[] = {"trace",         "tasks",   "spaces/1/events", "spaces/1/data",
                                    "spaces/1/maps", "rings/1", "spaces/2/events", "rings/2"};
enum { FILES = sizeof names / sizeof *names, FIRST_FRAMED = 1, LAST_FRAMED = 4 };

struct image {
    uint8_t *bytes;
    size_t size;
};

static struct fixture fixture;
static struct image images[FILES];

static struct shared { /* with the children */
    uint64_t run, events, records, errors, cuts, ends, opened, refused;
} * shared;

static uint64_t state;

static uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull >> 16;
}

static uint64_t below(uint64_t n)
{
    return n ? random_number() % n : 0;
}

static _Noreturn void stop(const char *what)
{
    printf("not ok fuzz_reader: run %llu: %s\n", (unsigned long long)shared->run, what);
    exit(1);
}

/* ---- the trace ---- */

static void make(void)
{
    struct clio_error error;
    struct producer p[2];
    fixture_open(&fixture);
    struct trace_sink *sink = trace_sink_open(fixture.dir, &error);
    for (uint32_t i = 0; i < 2; i++) {
        producer_open(&p[i], fixture.dir, i + 1, RING);
        producer_space(&p[i]);
        for (int batch = 0; batch < 3; batch++) {
            producer_events(&p[i], 35 - i * 30);
            if (batch < 2 && !drain(&p[i], sink, &error))
                stop(error.text);
        }
    }
    producer_exit(&p[0]);
    trace_sink_close(sink, false, &error);
    for (int i = 0; i < FILES; i++) {
        struct stat st;
        int fd = openat(fixture.dir, names[i], O_RDONLY);
        if (fd < 0 || fstat(fd, &st) < 0)
            stop(names[i]);
        images[i] = (struct image){malloc((size_t)st.st_size), (size_t)st.st_size};
        if (read(fd, images[i].bytes, images[i].size) != st.st_size)
            stop(names[i]);
        close(fd);
    }
    for (int i = 0; i < 2; i++)
        producer_close(&p[i]);
}

static void save(int i, const uint8_t *bytes, size_t size)
{
    int fd = openat(fixture.dir, names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        stop("writing the damaged trace");
    close(fd);
}

/* ---- damage ---- */

static void spoil(uint8_t *bytes, size_t size)
{
    static const uint64_t favourites[] = {0,          1,          7,          8,     0x7f, 0xff,
                                          0x7fffffff, 0xffffffff, 1ull << 32, ~0ull, ~7ull};
    for (uint64_t n = 1 + below(4); n && size; n--) {
        size_t at = below(size), width = 1ull << below(4);
        uint64_t value =
            below(3) ? favourites[below(sizeof favourites / sizeof *favourites)] : random_number();
        if (below(4) == 0)
            bytes[at] ^= (uint8_t)(1 << below(8));
        else {
            at -= at % width;
            memcpy(bytes + at, &value, width < size - at ? width : size - at);
        }
    }
}

static void damage_anywhere(int i)
{
    size_t size = images[i].size, extra = below(3) ? 0 : below(200);
    uint8_t *copy = calloc(1, size + extra + 1);
    memcpy(copy, images[i].bytes, size);
    size_t reach = strncmp(names[i], "rings", 5) == 0 && below(4) ? sizeof(struct ring_header) + 9000 : size;
    if (below(5))
        spoil(copy, reach);
    save(i, copy, below(4) ? size : below(2) ? size + extra : below(size + 1));
    free(copy);
}

/* Changes the header or the records of one frame and seals it again. */
static void damage_frame(int i)
{
    const struct image *image = &images[i];
    size_t at = sizeof(struct frame_file_header);
    uint64_t skip = below(3);
    struct frame_header h;
    for (;; skip--) {
        memcpy(&h, image->bytes + at, sizeof h);
        size_t next = at + sizeof h + h.stored_size;
        if (!skip || next >= image->size)
            break;
        at = next;
    }
    size_t room = h.raw_size + 64, rest = at + sizeof h + h.stored_size;
    uint8_t *raw = calloc(1, room), *out = malloc(image->size + sizeof h + ZSTD_compressBound(room));
    if (h.codec == FRAME_ZSTD)
        ZSTD_decompress(raw, room, image->bytes + at + sizeof h, h.stored_size);
    else
        memcpy(raw, image->bytes + at + sizeof h, h.stored_size);
    uint64_t what = below(3);
    if (what != 0)
        spoil(raw, h.raw_size);
    size_t n = h.raw_size;
    if (h.codec == FRAME_ZSTD)
        n = ZSTD_compress(out + at + sizeof h, ZSTD_compressBound(room), raw, h.raw_size, 1);
    else
        memcpy(out + at + sizeof h, raw, n);
    h.stored_size = (uint32_t)n;
    if (what != 1)
        spoil((uint8_t *)&h, sizeof h);
    h.checksum = XXH64(out + at + sizeof h, n, 0);
    h.header_checksum = XXH64(&h, offsetof(struct frame_header, header_checksum), 0);
    memcpy(out, image->bytes, at);
    memcpy(out + at, &h, sizeof h);
    memcpy(out + at + sizeof h + n, image->bytes + rest, image->size - rest);
    save(i, out, at + sizeof h + n + image->size - rest);
    free(raw);
    free(out);
}

/* ---- reading ---- */

static uint64_t sum;

static void touch(const void *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        sum += ((const uint8_t *)bytes)[i];
}

static void check(enum clio_next next, const struct clio_error *error)
{
    if ((next == CLIO_ERROR || next == CLIO_CUT_HERE) && !error->text[0])
        stop("an error without a text");
    shared->errors += next == CLIO_ERROR;
    shared->cuts += next == CLIO_CUT_HERE;
    shared->ends += next == CLIO_CLEAN_END;
}

static void read_events(struct clio_source *source, uint32_t space)
{
    struct clio_error error;
    struct trace_item item;
    struct trace_reader_end end;
    enum clio_next next;
    struct trace_reader *reader = trace_reader_open(source, space, &error);
    if (!reader)
        return;
    if (below(3) == 0)
        trace_reader_seek(reader, below(120));
    while ((next = trace_reader_next(reader, &item)) == CLIO_RECORD) {
        shared->events++;
        touch(item.event, item.event->rec.size);
        touch(item.effects, item.event->neffects * sizeof *item.effects);
        touch(item.part, trace_part_size(item.event->rec.kind));
        touch(item.bytes, item.nbytes);
        for (uint32_t i = 0; i < item.nmaps; i++) {
            touch(item.maps[i], sizeof *item.maps[i]);
            touch(trace_map_path(item.maps[i]), item.maps[i]->pathlen);
        }
    }
    check(next, trace_reader_error(reader));
    trace_reader_end(reader, &end);
    touch(end.text, strlen(end.text));
    trace_reader_close(reader);
}

static void read_stream(struct clio_source *source, uint32_t space)
{
    static const uint16_t some[] = {EV_SYSCALL, REC_DATA, REC_END};
    struct clio_error error = {0};
    const struct clio_record_head *record;
    enum clio_next next;
    bool all = below(2);
    struct clio_stream *stream =
        clio_stream_open(source, space, all ? NULL : some, all ? 0 : 1 + below(3), &error);
    if (!stream)
        return;
    while ((next = clio_stream_next(stream, &record, &error)) == CLIO_RECORD) {
        shared->records++;
        touch(record, record->size);
    }
    check(next, &error);
    clio_stream_close(stream);
}

static void read_spaces(struct clio_source *source)
{
    struct clio_error error;
    const struct clio_space_info *spaces;
    size_t count;
    clio_source_spaces(source, &spaces, &count, &error);
    for (size_t i = 0; i < count; i++) {
        for (int a = 0; a < spaces[i].argc; a++)
            touch(spaces[i].argv[a], strlen(spaces[i].argv[a]));
        touch(spaces[i].exe, strlen(spaces[i].exe));
        touch(spaces[i].end_text, strlen(spaces[i].end_text));
    }
}

/* A store that takes over. */
static void append(void)
{
    struct clio_error error = {0};
    struct trace_sink *sink = trace_sink_open(fixture.dir, &error);
    if (!sink) {
        if (!error.text[0])
            stop("a refusal without a text");
        return;
    }
    uint64_t from = trace_sink_stored(sink, 1, STREAM_EVENTS);
    const uint8_t *data = images[5].bytes + RING_HEADER_SIZE;
    trace_sink_append(sink, 1, data, RING, from, from + below(RING + 100) / 8 * 8, &error);
    trace_sink_close(sink, false, &error);
}

static void exercise(void)
{
    struct clio_error error = {0};
    struct moment m;
    struct clio_source *source = clio_source_open(fixture.path, &error);
    if (!source) {
        shared->refused++;
        check(CLIO_ERROR, &error);
        return;
    }
    shared->opened++;
    read_spaces(source);
    for (uint32_t space = 0; space < 3; space++) {
        if (space)
            read_events(source, space);
        read_stream(source, space);
    }
    moment_resolve(source, 1, (struct moment_ref){.kind = MOMENT_END, .ticks_before = below(300)}, &m,
                   &error);
    clio_source_close(source);
}

static void run(uint64_t number)
{
    state = number * 0x9e3779b97f4a7c15ull | 1;
    uint64_t touched = 0;
    for (uint64_t n = 1 + below(2); n; n--) {
        bool framed = below(2);
        int i = framed ? FIRST_FRAMED + (int)below(LAST_FRAMED - FIRST_FRAMED + 1) : (int)below(FILES);
        (framed ? damage_frame : damage_anywhere)(i);
        touched |= 1ull << i;
    }
    exercise();
    if (below(4) == 0) {
        append();
        exercise();
        touched = ~0ull;
    }
    for (int i = 0; i < FILES; i++)
        if (touched >> i & 1)
            save(i, images[i].bytes, images[i].size);
}

/* ---- many runs ---- */

/* Runs some in a child, so that one that crashes or hangs can be named. */
static void run_some(uint64_t first)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        stop("fork");
    if (child == 0) {
        alarm(HANG_SECONDS);
        for (uint64_t i = 0; i < RUNS_OF_A_CHILD; i++) {
            shared->run = first + i;
            run(first + i);
        }
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0)
        stop(WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
}

int main(int argc, char **argv)
{
    time_t limit = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, n = seed;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 3;
    make();
    do {
        run_some(n);
        n += RUNS_OF_A_CHILD;
    } while (time(NULL) < limit);
    fixture_close(&fixture);
    for (int i = 0; i < FILES; i++)
        free(images[i].bytes);
    printf("ok fuzz_reader: %llu runs from %llu: %llu refused, %llu events, %llu records, %llu errors, %llu "
           "cuts, %llu clean ends\n",
           (unsigned long long)(n - seed), (unsigned long long)seed, (unsigned long long)shared->refused,
           (unsigned long long)shared->events, (unsigned long long)shared->records,
           (unsigned long long)shared->errors, (unsigned long long)shared->cuts,
           (unsigned long long)shared->ends);
    return 0;
}
