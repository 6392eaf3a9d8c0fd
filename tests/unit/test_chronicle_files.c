/*
 * Chronicle files that must not be believed, and builders that fail: every byte flipped, every length, other
 * versions, logs that break a rule, a builder that is killed or has no room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmocka.h>

#include "chronicle_model.h"
#include "clio/chronicle.h"

static char directory[64], path[96];
static struct model model;
static uint8_t *file;
static size_t file_size;

static void save(const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static int setup(void **state)
{
    snprintf(directory, sizeof directory, "/tmp/test_chronicle_files.%d", (int)getpid());
    snprintf(path, sizeof path, "%s/db", directory);
    if (mkdir(directory, 0700))
        return -1;
    model_make(&model, 5, 4, 12);
    if (model_build(&model, path))
        return -1;
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        return -1;
    file_size = (size_t)st.st_size;
    file = malloc(file_size);
    ssize_t n = read(fd, file, file_size);
    close(fd);
    return n == st.st_size ? 0 : -1;
}

static int teardown(void **state)
{
    unlink(path);
    free(file);
    model_free(&model);
    return rmdir(directory);
}

/* Answers must be right or refused. */
static bool right_or_refused(void)
{
    struct clio_error error = {0};
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    bool refused = !c;
    if (c) {
        const struct clio_write *answers;
        size_t n;
        for (uint64_t i = 0; !refused && i < model.nwrites; i++) {
            const struct model_write *w = &model.writes[i];
            refused = !clio_chronicle_last_write(c, w->address, 1, NULL, &answers, &n, &error);
            const struct model_write *right = model_last(&model, w->address, model.nwrites);
            if (!refused)
                assert_int_equal(answers[0].ordinal, right - model.writes);
        }
        refused |= !clio_chronicle_verify(c, &error);
        clio_chronicle_close(c);
    }
    if (refused) {
        assert_int_not_equal(error.fault, CLIO_FAULT_NONE);
        assert_non_null(strstr(error.text, path));
    }
    return refused;
}

static void every_byte_flipped(void **state)
{
    save(file, file_size);
    assert_false(right_or_refused());
    for (size_t i = 0; i < file_size; i++) {
        int fd = open(path, O_WRONLY);
        uint8_t bad = file[i] ^ (uint8_t)(1 << i % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)i), 1);
        if (!right_or_refused())
            fail_msg("byte %zu of %zu can be flipped unseen", i, file_size);
        assert_int_equal(pwrite(fd, &file[i], 1, (off_t)i), 1);
        close(fd);
    }
}

static void every_length(void **state)
{
    for (size_t n = 0; n < file_size; n += n < 8192 ? 1 : 37) {
        save(file, n);
        struct clio_error error;
        assert_null(clio_chronicle_open(path, &error));
        assert_int_equal(error.fault, CLIO_FAULT_DAMAGED);
        assert_non_null(strstr(error.text, n < 8 ? "not a chronicle" : n < 4096 ? "cut short" : "cut short"));
    }
}

static void expect_open_error(enum clio_fault fault, const char *text)
{
    struct clio_error error;
    assert_null(clio_chronicle_open(path, &error));
    assert_int_equal(error.fault, fault);
    if (!strstr(error.text, text))
        fail_msg("'%s' lacks '%s'", error.text, text);
}

/* Changes the header, with a right checksum. */
static void save_header(const struct chron_header *h)
{
    uint8_t page[CHRON_PAGE];
    memcpy(page, file, sizeof page);
    memcpy(page, h, sizeof *h);
    uint64_t sum = XXH64(page, CHRON_PAGE_ROOM, 0);
    memcpy(page + CHRON_PAGE_ROOM, &sum, 8);
    save(file, file_size);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, page, sizeof page, 0), sizeof page);
    close(fd);
}

static void other_files(void **state)
{
    struct chron_header h;
    static const char text[5000] = "#!/bin/sh\necho no chronicle\n";
    unlink(path);
    expect_open_error(CLIO_FAULT_MISSING, "cannot open");
    save(text, sizeof text);
    expect_open_error(CLIO_FAULT_DAMAGED, "is not a chronicle");
    memcpy(&h, file, sizeof h);
    h.version = 2;
    save_header(&h);
    expect_open_error(CLIO_FAULT_VERSION, "format version 2");
    h.version = CHRON_VERSION;
    h.required = 4;
    save_header(&h);
    expect_open_error(CLIO_FAULT_VERSION, "needs features 0x4");
    h.required = 0;
    h.optional = 4;
    save_header(&h);
    assert_false(right_or_refused());
    h.tables[TABLE_INDEX].count = UINT64_MAX / 8;
    save_header(&h);
    expect_open_error(CLIO_FAULT_DAMAGED, "does not fit");
}

static void wrong_questions(void **state)
{
    struct clio_error error;
    const struct clio_write *a;
    size_t n;
    save(file, file_size);
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    assert_non_null(c);
    struct clio_moment late = {model.clock.event + 1, 0, 0};
    assert_false(clio_chronicle_last_write(c, 0x1000, 1, &late, &a, &n, &error));
    assert_int_equal(error.fault, CLIO_FAULT_ARGUMENT);
    assert_non_null(strstr(error.text, "outside"));
    assert_false(clio_chronicle_last_write(c, 0x1000, 0, NULL, &a, &n, &error));
    assert_false(clio_chronicle_first_write(c, 0x1000, CLIO_RANGE_MAX + 1, NULL, &a, &n, &error));
    assert_true(clio_chronicle_last_write(c, UINT64_MAX - 20, 16, NULL, &a, &n, &error));
    assert_int_equal(a[0].kind, CLIO_WRITE_NONE);
    assert_true(clio_chronicle_last_write(c, CHRON_ADDRESS_END - 8, 16, NULL, &a, &n, &error));
    clio_chronicle_close(c);
}

static int entries(void)
{
    DIR *d = opendir(directory);
    int n = -2;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void broken_logs(void **state)
{
    static const uint16_t lengths[] = {3, 4};
    struct chron_block block = {.number = 0, .pc = 0x1000, .ninsns = 2, .lengths = lengths};
    static const struct {
        uint64_t words[8];
        uint64_t count;
    } logs[] = {
        {{(uint64_t)LOG_BLOCK << 56}, 1},                                           /* no clock */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0}, 2},                                   /* cut */
        {{9ull << 56}, 1},                                                          /* unknown */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0, 0, (uint64_t)LOG_BLOCK << 56 | 1}, 4}, /* undescribed */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0, 0, (uint64_t)LOG_WRITE << 56 | 8ull << 40, 0x1000, 1},
         6}, /* no block */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0, 0, (uint64_t)LOG_BLOCK << 56,
          (uint64_t)LOG_WRITE << 56 | 8ull << 40 | 2, 1, 1},
         7}, /* no such instruction */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0, 0, (uint64_t)LOG_BLOCK << 56,
          (uint64_t)LOG_WRITE << 56 | 65ull << 40, 1, 1},
         7}, /* too long */
        {{(uint64_t)LOG_MOMENT << 56 | 1, 0, 0, (uint64_t)LOG_BLOCK << 56,
          (uint64_t)LOG_WRITE << 56 | 8ull << 40, 1ull << 60, 1},
         7}, /* no address */
        {{(uint64_t)LOG_MOMENT << 56 | 2, 0, 0, (uint64_t)LOG_EVENT << 56 | 2, 0, 0, 0, 0},
         8}, /* back in time */
        {{(uint64_t)LOG_EVENT << 56 | 2, 0, 0, 0, UINT64_MAX}, 5},
        {{(uint64_t)LOG_EVENT << 56 | 2, 0, 0, 0, 1, 0x1000, 3ull << 56}, 7},
    };
    unlink(path);
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        struct chron_builder *b;
        uint64_t moment[3] = {1, 0, 0};
        assert_int_equal(chron_build_open(&b, path, "/", 1), 0);
        assert_int_equal(chron_build_block(b, &block), 0);
        assert_int_equal(chron_build_log(b, logs[i].words, logs[i].count), -EINVAL);
        assert_true(strlen(chron_build_error(b)) > 10);
        assert_int_equal(chron_build_close(b, moment, moment), -EINVAL);
        assert_int_equal(entries(), 0);
    }
}

static void unwritable_places(void **state)
{
    struct chron_builder *b;
    assert_int_equal(chron_build_open(&b, "/nonexistent/db", "/", 1), -ENOENT);
    assert_non_null(strstr(chron_build_error(NULL), "/nonexistent/db"));
    assert_int_equal(chron_build_open(&b, "/tmp", "/", 1), -EEXIST);
    assert_non_null(strstr(chron_build_error(NULL), "no regular file"));
}

/* A child builds; killed at some moment it leaves the database or nothing. */
static void killed_builder(void **state)
{
    struct model big;
    unlink(path);
    model_make(&big, 77, 50, 6000);
    int built = 0, absent = 0;
    for (int i = 0; i < 25; i++) {
        pid_t pid = fork();
        if (!pid)
            _exit(model_build(&big, path) != 0);
        usleep((useconds_t)(i * i * 300));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct clio_error error;
        struct clio_chronicle *c = clio_chronicle_open(path, &error);
        if (c) {
            assert_true(clio_chronicle_verify(c, &error));
            clio_chronicle_close(c);
            unlink(path);
            built++;
        } else {
            assert_int_equal(error.fault, CLIO_FAULT_MISSING);
            absent++;
        }
        assert_int_equal(entries(), 0);
    }
    print_message("%d built, %d absent\n", built, absent);
    assert_true(absent > 0);
    model_free(&big);
}

static void no_room(void **state)
{
    struct model big;
    model_make(&big, 78, 50, 3000);
    pid_t pid = fork();
    if (!pid) {
        struct rlimit limit = {20000, 20000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        int rc = model_build(&big, path);
        bool named =
            strstr(chron_build_error(NULL), path) && strstr(chron_build_error(NULL), "File too large");
        _exit(rc == -EFBIG && named ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(entries(), 0);
    model_free(&big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_flipped), cmocka_unit_test(every_length),
        cmocka_unit_test(other_files),        cmocka_unit_test(wrong_questions),
        cmocka_unit_test(broken_logs),        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(killed_builder),     cmocka_unit_test(no_room)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
