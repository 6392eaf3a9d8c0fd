/*
 * test_trace_damage.c: traces that were cut anywhere, have flipped bits, or are of another version: whatever
 * was read before is right, what follows is named, and nothing crashes.
 */
#include "trace_fixture.h"

#include <inttypes.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { RING = 1 << 18, EVENTS = 105 };

static const char *const names[] = {"trace",         "tasks",         "spaces/1/events",
                                    "spaces/1/data", "spaces/1/maps", "rings/1"};
enum { FILES = sizeof names / sizeof *names };

/* A dead trace: events in three batches of frames, the last ones and the end in the ring. */
static void make_trace(struct fixture *f)
{
    struct producer p;
    struct clio_error error;
    fixture_open(f);
    producer_open(&p, f->dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f->dir, &error);
    producer_space(&p);
    for (int i = 0; i < 3; i++) {
        producer_events(&p, 33);
        assert_true(drain(&p, sink, &error));
    }
    producer_events(&p, 5);
    producer_exit(&p);
    trace_sink_close(sink, false, &error);
    producer_close(&p);
}

static uint8_t *load(const struct fixture *f, const char *name, size_t *size)
{
    struct stat st;
    int fd = openat(f->dir, name, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t *bytes = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    *size = (size_t)st.st_size;
    close(fd);
    return bytes;
}

static void save(const struct fixture *f, const char *name, const void *bytes, size_t size)
{
    int fd = openat(f->dir, name, O_WRONLY | O_TRUNC | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

/* Everything a reader can do with the trace; only the events' correctness is asserted. */
static enum clio_next exercise(const struct fixture *f, uint64_t *events, struct clio_error *error)
{
    enum clio_next next = read_all(f->path, 1, events, error);
    struct clio_error later;
    struct clio_source *source = clio_source_open(f->path, &later);
    if (!source)
        return next;
    const struct clio_space_info *spaces;
    size_t count;
    clio_source_spaces(source, &spaces, &count, &later);
    for (uint32_t space = 0; space < 2; space++) {
        struct clio_stream *stream = clio_stream_open(source, space, NULL, 0, &later);
        const struct clio_record_head *record;
        while (stream && clio_stream_next(stream, &record, &later) == CLIO_RECORD)
            ;
        clio_stream_close(stream);
    }
    clio_source_close(source);
    return next;
}

static void test_truncated(void **state)
{
    (void)state;
    struct fixture f;
    make_trace(&f);
    for (int file = 0; file < FILES; file++) {
        size_t size;
        uint8_t *bytes = load(&f, names[file], &size);
        bool ring = file == FILES - 1;
        uint64_t last = 0;
        for (size_t cut = 0; cut < size; cut += ring && cut >= 8192 ? 4099 : ring ? 61 : 1) {
            struct clio_error error = {0};
            uint64_t events;
            save(&f, names[file], bytes, cut);
            enum clio_next next = exercise(&f, &events, &error);
            assert_int_not_equal(next, CLIO_NOTHING_YET);
            if (file == 0) {
                assert_int_equal(next, CLIO_ERROR);
                assert_non_null(strstr(error.text, "/trace"));
                assert_int_equal(events, 0);
            } else if (file == 1) /* births and ends only */
                assert_int_equal(next, CLIO_CLEAN_END);
            else if (ring)
                assert_true(events >= 99 && (next != CLIO_CLEAN_END || events == EVENTS));
            else {
                assert_int_equal(next, CLIO_CUT_HERE);
                assert_non_null(strstr(error.text, names[file]));
                assert_true(events >= last && events < EVENTS);
                last = events;
            }
        }
        if (file > 1 && !ring)
            assert_true(last >= 66);
        save(&f, names[file], bytes, size);
        free(bytes);
    }
    struct clio_error error;
    uint64_t events;
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_CLEAN_END);
    assert_int_equal(events, EVENTS);
    fixture_close(&f);
}

static void test_flipped(void **state)
{
    (void)state;
    struct fixture f;
    make_trace(&f);
    for (int file = 0; file < FILES - 1; file++) {
        size_t size;
        uint8_t *bytes = load(&f, names[file], &size);
        for (size_t at = 0; at < size; at += file ? 1 + (size > 2000) * 12 : 1) {
            struct clio_error error = {0};
            uint64_t events;
            uint8_t bit = (uint8_t)(1 << at % 8);
            bytes[at] ^= bit;
            save(&f, names[file], bytes, size);
            enum clio_next next = exercise(&f, &events, &error);
            bytes[at] ^= bit;
            if (file == 1) {
                assert_int_equal(next, CLIO_CLEAN_END);
                continue;
            }
            assert_int_equal(next, CLIO_ERROR);
            assert_non_null(strstr(error.text, names[file]));
            assert_true(events < EVENTS);
            if (file > 1 && at >= 64) {
                assert_non_null(strstr(error.text, "frame"));
                assert_non_null(strstr(error.text, "offset"));
            }
        }
        save(&f, names[file], bytes, size);
        free(bytes);
    }
    fixture_close(&f);
}

/* The first batch is read although the second one is bad. */
static void test_before_damage(void **state)
{
    (void)state;
    struct fixture f;
    struct clio_error error;
    uint64_t events;
    size_t size;
    make_trace(&f);
    uint8_t *bytes = load(&f, names[2], &size);
    const struct frame_header *first = (const struct frame_header *)(bytes + 64);
    size_t second = 64 + sizeof *first + first->stored_size;
    bytes[second + sizeof *first + 5] ^= 1;
    save(&f, names[2], bytes, size);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_int_equal(events, 33);
    char expected[100];
    snprintf(expected, sizeof expected, "spaces/1/events: frame 1 at offset %zu: the records fail", second);
    assert_non_null(strstr(error.text, expected));
    free(bytes);
    fixture_close(&f);
}

/* Replaces the `trace` file by a text with a right checksum. */
static void seal(const struct fixture *f, const char *text)
{
    char all[4000];
    snprintf(all, sizeof all, "%schecksum: %016" PRIx64 "\n", text, (uint64_t)XXH64(text, strlen(text), 0));
    save(f, "trace", all, strlen(all));
}

static void test_versions(void **state)
{
    (void)state;
    struct fixture f;
    struct clio_error error;
    uint64_t events;
    make_trace(&f);
    static const char id[] = "identity: 00112233-4455-6677-8899-aabbccddeeff\n";
    char text[1000];
    save(&f, "trace", "clio trace 2\nnobody knows what follows\n", 39);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_int_equal(error.fault, CLIO_FAULT_VERSION);
    assert_non_null(strstr(error.text, "format version 2, this clio reads version 1"));
    snprintf(text, sizeof text, "clio trace 1\n%sfeature: 5 threads\n", id);
    seal(&f, text);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_int_equal(error.fault, CLIO_FAULT_VERSION);
    assert_non_null(strstr(error.text, "needs feature 5 threads"));
    snprintf(text, sizeof text, "clio trace 1\n%sfeature: 40 colours\nmood: good\n", id);
    seal(&f, text);
    struct clio_source *source = clio_source_open(f.path, &error);
    assert_non_null(source);
    assert_true(clio_source_info(source)->features == 1ull << 40);
    clio_source_close(source);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_non_null(strstr(error.text, "belongs to another trace"));
    seal(&f, "clio trace 1\nhost: x\n");
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_non_null(strstr(error.text, "no identity"));
    fixture_close(&f);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    fixture_open(&f);
    unlinkat(f.dir, "trace", 0);
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_ERROR);
    assert_int_equal(error.fault, CLIO_FAULT_MISSING);
    fixture_close(&f);
}

/* A sealed frame with records that are not what they should be. */
static void write_frame(const struct fixture *f, const void *records, uint32_t size, uint32_t count)
{
    struct clio_error error;
    struct frame_writer writer;
    struct frame_file_header head;
    struct trace_header header;
    assert_true(trace_header_read(&header, f->dir, f->path, &error));
    assert_true(frame_writer_open(&writer, 1));
    frame_file_header_build(&head, STREAM_EVENTS, 1, header.identity);
    struct frame_header h = {.stream = STREAM_EVENTS, .space = 1, .records = count, .ring_to = 4096};
    size_t n = frame_build(&writer, &h, records, size);
    uint8_t *all = malloc(sizeof head + n);
    memcpy(all, &head, sizeof head);
    memcpy(all + sizeof head, writer.buffer, n);
    mkdirat(f->dir, "spaces/1", 0700);
    save(f, "spaces/1/events", all, sizeof head + n);
    free(all);
    frame_writer_close(&writer);
    trace_header_free(&header);
}

static void test_records(void **state)
{
    (void)state;
    struct fixture f;
    struct clio_error error;
    struct trace_item item;
    struct {
        struct trace_event e;
        struct trace_effect effect;
    } r = {.e = {.rec = {sizeof r, EV_SYSCALL, EVF_INLINE}, .seq = 1, .neffects = 1}};
    static const struct {
        uint32_t size;
        uint16_t kind;
        uint32_t len, neffects, count;
        enum clio_next next;
        const char *text;
    } cases[] = {
        {sizeof r, EV_SYSCALL, 0, 1, 1, CLIO_RECORD, ""},
        {sizeof r, EV_SYSCALL, 1, 1, 1, CLIO_ERROR, "shorter than its effects' bytes"},
        {sizeof r, EV_SYSCALL, 0, 2, 1, CLIO_ERROR, "shorter than its effects"},
        {sizeof r, EV_START, 0, 1, 1, CLIO_ERROR, "shorter than its kind"},
        {sizeof r, EV_SYSCALL, 0, 1, 2, CLIO_ERROR, "another number of records"},
        {4, EV_SYSCALL, 0, 1, 1, CLIO_ERROR, "impossible size"},
        {sizeof r + 8, EV_SYSCALL, 0, 1, 1, CLIO_ERROR, "impossible size"},
        {sizeof r, REC_MAP, 0, 1, 1, CLIO_ERROR, "another substream"},
        {sizeof r, 20, 0, 1, 1, CLIO_ERROR, "record kind 20 is required"},
        {sizeof r, 0x8014, 0, 1, 1, CLIO_CUT_HERE, ""},
    };
    fixture_open(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r.e.rec.size = cases[i].size;
        r.e.rec.kind = cases[i].kind;
        r.effect.len = cases[i].len;
        r.e.neffects = (uint16_t)cases[i].neffects;
        write_frame(&f, &r, sizeof r, cases[i].count);
        struct clio_source *source = clio_source_open(f.path, &error);
        struct trace_reader *reader = trace_reader_open(source, 1, &error);
        assert_int_equal(trace_reader_next(reader, &item), cases[i].next);
        if (cases[i].next == CLIO_ERROR)
            assert_non_null(strstr(trace_reader_error(reader)->text, cases[i].text));
        trace_reader_close(reader);
        clio_source_close(source);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),     cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_before_damage), cmocka_unit_test(test_versions),
        cmocka_unit_test(test_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
