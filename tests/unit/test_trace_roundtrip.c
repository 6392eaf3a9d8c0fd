/* test_trace_roundtrip.c: what goes through a ring and a sink comes back, from files, ring, or both. */
#include "trace_fixture.h"

#include <sys/resource.h>

#include "trace/moment.h"

enum { RING = 1 << 18 };

static void check_read(const struct fixture *f, uint64_t expected, enum clio_next how)
{
    struct clio_error error;
    uint64_t events;
    assert_int_equal(read_all(f->path, 1, &events, &error), how);
    assert_int_equal(events, expected);
}

static void test_files_and_ring(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    assert_non_null(sink);
    producer_space(&p);
    producer_events(&p, 400);
    check_read(&f, 400, CLIO_NOTHING_YET); /* all in the ring, and the sink lives */
    assert_true(drain(&p, sink, &error));
    check_read(&f, 400, CLIO_NOTHING_YET); /* all in files */
    producer_events(&p, 300);
    check_read(&f, 700, CLIO_NOTHING_YET); /* both */
    for (int i = 0; i < 20; i++) {
        producer_events(&p, 311);
        assert_true(drain(&p, sink, &error));
    }
    producer_exit(&p);
    check_read(&f, 6921, CLIO_CLEAN_END);
    assert_true(trace_sink_close(sink, false, &error)); /* the store dies with the end in the ring */
    check_read(&f, 6921, CLIO_CLEAN_END);
    producer_close(&p);
    fixture_close(&f);
}

static void test_killed(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    uint64_t events;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    producer_space(&p);
    producer_events(&p, 20);
    p.ring->call = (struct ring_call){.active = 1, .nr = 1, .args = {1, 2, 3}};
    assert_int_equal(read_all(f.path, 1, &events, &error), CLIO_CUT_HERE);
    assert_int_equal(events, 20);
    assert_non_null(strstr(error.text, "inside write(0x1, 0x2, 0x3"));
    assert_non_null(strstr(error.text, "after event 20"));
    producer_close(&p);
    fixture_close(&f);
}

/* An event whose data was published ahead of it, and then the end of the world. */
static void test_orphans(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    producer_space(&p);
    producer_events(&p, 16);
    uint8_t bytes[9000] = {1};
    put_event_data(&p, bytes, sizeof bytes);
    producer_publish(&p);
    check_read(&f, 16, CLIO_NOTHING_YET);
    assert_true(drain(&p, sink, &error));
    check_read(&f, 16, CLIO_NOTHING_YET);
    trace_sink_close(sink, false, &error);
    check_read(&f, 16, CLIO_CUT_HERE);
    producer_close(&p);
    fixture_close(&f);
}

static void test_seek(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    struct trace_item item;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    producer_space(&p);
    for (int i = 0; i < 30; i++) {
        producer_events(&p, 101);
        if (i < 28)
            assert_true(drain(&p, sink, &error));
    }
    struct clio_source *source = clio_source_open(f.path, &error);
    struct trace_reader *reader = trace_reader_open(source, 1, &error);
    for (uint64_t n = 1; n <= 3030; n += 97) {
        assert_true(trace_reader_seek(reader, n));
        assert_int_equal(trace_reader_next(reader, &item), CLIO_RECORD);
        assert_true(is_event(&item, n));
        if (n < 3030) {
            assert_int_equal(trace_reader_next(reader, &item), CLIO_RECORD);
            assert_true(is_event(&item, n + 1));
        }
    }
    assert_true(trace_reader_seek(reader, 3031));
    assert_int_equal(trace_reader_next(reader, &item), CLIO_NOTHING_YET);
    assert_false(trace_reader_seek(reader, 3032));
    assert_false(trace_reader_seek(reader, 0));
    trace_reader_close(reader);
    clio_source_close(source);
    trace_sink_close(sink, false, &error);
    producer_close(&p);
    fixture_close(&f);
}

/* All records of a stream, in order, are those that went into the ring. */
static void test_stream(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    producer_space(&p);
    producer_events(&p, 500);
    drain(&p, sink, &error);
    producer_events(&p, 100);
    producer_exit(&p);
    struct clio_source *source = clio_source_open(f.path, &error);
    struct clio_stream *stream = clio_stream_open(source, 1, NULL, 0, &error);
    assert_non_null(stream);
    uint64_t count[64] = {0}, events = 0;
    const struct clio_record_head *record;
    enum clio_next next;
    uint16_t last = 0;
    while ((next = clio_stream_next(stream, &record, &error)) == CLIO_RECORD) {
        count[record->kind]++;
        if (trace_stream_of(record->kind) == STREAM_EVENTS)
            assert_int_equal(((const struct trace_event *)record)->seq, ++events);
        if (count[REC_SPACE] + count[EV_START] + count[EV_SYSCALL] == 1)
            assert_int_equal(record->kind, REC_SPACE);
        last = record->kind;
    }
    assert_int_equal(next, CLIO_CLEAN_END);
    assert_int_equal(last, REC_END);
    uint64_t maps = 0, data = 0;
    for (uint64_t n = 1; n <= 601; n++) {
        maps += event_maps(n);
        data += n % 501 == 0 ? 3 : n % 17 == 0 && event_effects(n) > (n % 7 == 0) ? 1 : 0;
    }
    assert_int_equal(count[EV_START], 1);
    assert_int_equal(count[EV_SYSCALL], 599);
    assert_int_equal(count[EV_EXIT], 1);
    assert_int_equal(count[REC_MAP], maps);
    assert_int_equal(count[REC_DATA], data);
    clio_stream_close(stream);
    uint16_t only = REC_MAP;
    stream = clio_stream_open(source, 1, &only, 1, &error);
    uint64_t got = 0;
    while ((next = clio_stream_next(stream, &record, &error)) == CLIO_RECORD) {
        assert_int_equal(record->kind, REC_MAP);
        got++;
    }
    assert_int_equal(got, maps);
    clio_stream_close(stream);
    clio_source_close(source);
    trace_sink_close(sink, false, &error);
    producer_close(&p);
    fixture_close(&f);
}

static void test_spaces(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p[3];
    struct clio_error error;
    fixture_open(&f);
    struct trace_sink *sink = trace_sink_open(f.dir, &error);
    for (uint32_t i = 0; i < 3; i++) {
        producer_open(&p[i], f.dir, i + 1, RING);
        producer_space(&p[i]);
        producer_events(&p[i], 5 + i);
    }
    drain(&p[0], sink, &error);
    producer_exit(&p[0]);
    drain(&p[0], sink, &error);
    assert_true(trace_sink_ended(sink, 1));
    producer_end(&p[1], END_SIGNAL, 11);
    struct clio_source *source = clio_source_open(f.path, &error);
    const struct clio_space_info *spaces;
    size_t count;
    for (int round = 0; round < 2; round++) {
        assert_true(clio_source_spaces(source, &spaces, &count, &error));
        assert_int_equal(count, 3);
        assert_int_equal(spaces[0].end, CLIO_END_EXIT);
        assert_int_equal(spaces[0].events, 6);
        assert_int_equal(spaces[1].end, CLIO_END_SIGNAL);
        assert_int_equal(spaces[1].status, 11);
        assert_int_equal(spaces[2].end, CLIO_END_NONE);
        assert_int_equal(spaces[2].events, 7);
        assert_int_equal(spaces[2].pid, 103);
        assert_string_equal(spaces[2].exe, "/bin/mu");
        assert_int_equal(spaces[2].argc, 3);
        assert_string_equal(spaces[2].argv[2], "-bb");
    }
    const struct clio_trace_info *info = clio_source_info(source);
    assert_int_equal(info->argc, 2);
    assert_string_equal(info->argv[1], "a%b\nc");
    assert_true(clio_source_live(source));
    trace_sink_close(sink, true, &error);
    assert_false(clio_source_live(source));
    clio_source_close(source);
    for (int i = 0; i < 3; i++)
        producer_close(&p[i]);
    fixture_close(&f);
}

/* More dead spaces than descriptors. */
static void test_many_rings(void **state)
{
    (void)state;
    enum { SPACES = 300 };
    struct fixture f;
    struct clio_error error;
    struct rlimit limit, usual;
    fixture_open(&f);
    for (uint32_t i = 1; i <= SPACES; i++) {
        struct producer p;
        producer_open(&p, f.dir, i, 1 << 14);
        producer_space(&p);
        producer_events(&p, 10);
        if (i % 2)
            producer_end(&p, END_KILLED, 0);
        producer_close(&p);
    }
    getrlimit(RLIMIT_NOFILE, &usual);
    limit = usual;
    limit.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &limit);
    const struct clio_space_info *spaces;
    size_t count;
    struct clio_source *source = clio_source_open(f.path, &error);
    for (int round = 0; round < 2; round++) {
        assert_true(clio_source_spaces(source, &spaces, &count, &error));
        assert_int_equal(count, SPACES);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(spaces[i].origin, CLIO_ORIGIN_ROOT);
            assert_int_equal(spaces[i].end, (i + 1) % 2 ? CLIO_END_KILLED : CLIO_END_NONE);
            assert_int_equal(spaces[i].events, 10);
        }
    }
    clio_source_close(source);
    setrlimit(RLIMIT_NOFILE, &usual);
    fixture_close(&f);
}

static void test_resolve(void **state)
{
    (void)state;
    struct fixture f;
    struct producer p;
    struct clio_error error;
    struct moment m;
    struct moment_ref ref;
    fixture_open(&f);
    producer_open(&p, f.dir, 1, RING);
    producer_space(&p);
    producer_events(&p, 9);
    producer_exit(&p); /* event 10; ticks before 8, 9, 10: 3, 4, 0 */
    struct clio_source *source = clio_source_open(f.path, &error);
    const struct {
        const char *text;
        struct moment m;
    } good[] = {{"start", {1, 0, 0}}, {"end", {10, 0, 0}},      {"end-1", {8, 3, 0}}, {"end-4", {8, 0, 0}},
                {"end-5", {7, 2, 0}}, {"end-99999", {1, 0, 0}}, {"3:4:5", {3, 4, 5}}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(moment_ref_parse(good[i].text, &ref));
        assert_true(moment_resolve(source, 1, ref, &m, &error));
        assert_int_equal(moment_compare(m, good[i].m), 0);
    }
    assert_true(moment_ref_parse("11", &ref));
    assert_false(moment_resolve(source, 1, ref, &m, &error));
    assert_non_null(strstr(error.text, "1 to 10"));
    assert_true(moment_ref_parse("crash", &ref));
    assert_false(moment_resolve(source, 1, ref, &m, &error));
    assert_non_null(strstr(error.text, "exited with status 0"));
    clio_source_close(source);
    producer_close(&p);
    fixture_close(&f);
}

static void test_moment_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      ":",
                                      "1:",
                                      "1::2",
                                      "1:2:3:4",
                                      "1:2:3:",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "end-",
                                      "end+1",
                                      "endd",
                                      "end-1x",
                                      "Crash",
                                      "18446744073709551616",
                                      "1:99999999999999999999"};
    static const char *const good[] = {"0", "1523", "1523:7", "1523:0:2", "18446744073709551615:1:2"};
    struct moment m;
    struct moment_ref ref;
    char text[MOMENT_TEXT];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(moment_ref_parse(bad[i], &ref));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(moment_parse(good[i], &m));
        assert_string_equal(moment_print(m, text), good[i]);
    }
    assert_true(moment_compare((struct moment){1, 2, 3}, (struct moment){1, 2, 4}) < 0);
    assert_true(moment_compare((struct moment){2, 0, 0}, (struct moment){1, 9, 9}) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_and_ring), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_orphans),        cmocka_unit_test(test_seek),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_many_rings),     cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_moment_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
