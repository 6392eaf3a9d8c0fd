/*
 * fuzz_chronicle [SECONDS [SEED]]: damages chronicles in ways that checksums do not catch, and asks them.
 *
 * A chronicle of a random log is taken apart; bytes of the header, of a table's records, of the meta blob, or
 * of an expanded story chunk or index block are changed; then it is put together again with right checksums.
 * Whatever the reader says, it must not crash, hang or touch memory that is not its own (run it under ASan:
 * make SAN=1), and errors must name the file. Prints `ok` with counts, or the seed of the run that failed.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include "../unit/chronicle_model.h"
#include "clio/chronicle.h"

enum { ROOM = 4 << 20 /* how much a damaged file may grow */ };

static char path[64];
static uint8_t *good, *work;
static size_t good_size, work_size;
static struct model model;
static uint64_t opened, refused, answered;

static _Noreturn void stop(const char *what)
{
    printf("not ok fuzz_chronicle: %s\n", what);
    unlink(path);
    exit(1);
}

static void make(uint64_t seed)
{
    struct stat st;
    model_make(&model, seed, 1 + seed % 20, 20 + seed % 300);
    int fd = model_build(&model, path) ? -1 : open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        stop("cannot build a chronicle");
    good_size = (size_t)st.st_size;
    good = realloc(good, good_size);
    work = realloc(work, good_size + ROOM);
    if (read(fd, good, good_size) != st.st_size)
        stop("cannot read a chronicle");
    close(fd);
}

/* Changes some of n bytes. */
static void spoil(uint8_t *p, size_t n)
{
    static const uint8_t favourites[] = {0, 1, 0x7f, 0x80, 0xff};
    for (uint64_t i = 1 + model_below(&model, 4); n && i; i--) {
        uint8_t *at = p + model_below(&model, n);
        *at = model_below(&model, 2) ? favourites[model_below(&model, sizeof favourites)]
                                     : (uint8_t)model_random(&model);
    }
}

static void seal_page(uint64_t offset, uint64_t seed)
{
    uint64_t sum = XXH64(work + offset, CHRON_PAGE_ROOM, seed);
    memcpy(work + offset + CHRON_PAGE_ROOM, &sum, 8);
}

static struct chron_header *header(void)
{
    return (struct chron_header *)work;
}

/* Where record i of a table is, unaligned, and, in *page, where its page begins. */
static uint8_t *record(enum chron_table table, uint64_t i, uint64_t *page)
{
    const struct chron_section *s = &header()->tables[table];
    uint64_t per_page = CHRON_PAGE_ROOM / s->record_size;
    *page = s->offset + i / per_page * CHRON_PAGE;
    return work + *page + i % per_page * s->record_size;
}

static void spoil_table(void)
{
    enum chron_table table = (enum chron_table)model_below(&model, TABLE_COUNT);
    uint64_t count = header()->tables[table].count, page;
    if (!count)
        return;
    uint8_t *r = record(table, model_below(&model, count), &page);
    spoil(r, header()->tables[table].record_size);
    seal_page(page, page);
}

static void spoil_header(void)
{
    spoil(work + 16, sizeof(struct chron_header) - 16);
    header()->required = 0;
    header()->file_size = work_size;
}

static void spoil_meta(void)
{
    struct chron_header *h = header();
    spoil(work + h->meta_offset, model_below(&model, 2) ? 8 : h->meta_size);
    h->meta_checksum = XXH64(work + h->meta_offset, h->meta_size, 0);
}

/* Appends the expanded bytes of a blob, spoiled. Returns their place. */
static uint64_t append(uint64_t offset, uint32_t stored, uint32_t raw, bool change)
{
    uint64_t at = work_size;
    if (work_size + raw > good_size + ROOM)
        stop("the expanded blob is too large");
    if (stored == raw)
        memcpy(work + at, work + offset, raw);
    else if (ZSTD_decompress(work + at, raw, work + offset, stored) != raw)
        stop("a blob cannot be expanded");
    if (change)
        spoil(work + at, raw);
    work_size += raw;
    return at;
}

static void spoil_chunk(void)
{
    uint64_t page, count = header()->tables[TABLE_CHUNKS].count;
    struct chron_chunk c;
    uint8_t *at = record(TABLE_CHUNKS, model_below(&model, count), &page);
    memcpy(&c, at, sizeof c);
    uint64_t from = c.offset, stream = model_below(&model, CHRON_STREAMS), first = work_size;
    for (unsigned s = 0; s < CHRON_STREAMS; s++) {
        append(from, c.stored[s], c.raw[s], s == stream);
        from += c.stored[s];
        c.stored[s] = c.raw[s];
    }
    c.offset = first;
    c.checksum = XXH64(work + first, work_size - first, 0);
    memcpy(at, &c, sizeof c);
    seal_page(page, page);
}

static void spoil_index(void)
{
    uint64_t page, count = header()->tables[TABLE_INDEX].count;
    struct chron_index r;
    if (!count)
        return;
    uint8_t *at = record(TABLE_INDEX, model_below(&model, count), &page);
    memcpy(&r, at, sizeof r);
    r.offset = append(r.offset, r.stored, r.raw, true);
    r.stored = r.raw;
    r.checksum = XXH64(work + r.offset, r.raw, 0);
    memcpy(at, &r, sizeof r);
    seal_page(page, page);
}

static void damage(void)
{
    static void (*const ways[])(void) = {spoil_table, spoil_meta, spoil_chunk, spoil_chunk, spoil_index};
    memcpy(work, good, good_size);
    work_size = good_size;
    ways[model_below(&model, sizeof ways / sizeof *ways)]();
    header()->file_size = work_size;
    if (model_below(&model, 10) == 0)
        spoil_header();
    seal_page(0, 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, work, work_size) != (ssize_t)work_size)
        stop("cannot write the damaged chronicle");
    close(fd);
}

static void check_error(const struct clio_error *error)
{
    if (error->fault == CLIO_FAULT_NONE || !strstr(error->text, path))
        stop("an error does not name the file");
    refused++;
}

static void ask(struct clio_chronicle *c)
{
    for (int i = 0; i < 10; i++) {
        const struct model_write *w = &model.writes[model_below(&model, model.nwrites)];
        struct clio_moment m = {w->clock.event, w->clock.tick, w->clock.step};
        uint64_t length = 1 + model_below(&model, 200);
        const struct clio_write *answers;
        struct clio_error error = {0};
        size_t n;
        bool ok =
            model_below(&model, 2)
                ? clio_chronicle_last_write(c, w->address, length, i & 1 ? &m : NULL, &answers, &n, &error)
                : clio_chronicle_first_write(c, w->address, length, i & 1 ? &m : NULL, &answers, &n, &error);
        if (ok)
            answered++;
        else
            check_error(&error);
        for (size_t j = 0; ok && j < n; j++)
            clio_chronicle_module(c, answers[j].pc, answers[j].ordinal);
    }
}

static void run(void)
{
    struct clio_error error = {0};
    damage();
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    if (!c) {
        check_error(&error);
        return;
    }
    opened++;
    ask(c);
    if (!clio_chronicle_verify(c, &error))
        check_error(&error);
    clio_chronicle_close(c);
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 5);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) | 1, runs = 0;
    snprintf(path, sizeof path, "/tmp/fuzz_chronicle.%d", (int)getpid());
    printf("# seed %llu\n", (unsigned long long)seed);
    for (fflush(stdout); time(NULL) < end; seed += 2) {
        make(seed);
        for (int i = 0; model.nwrites && i < 200; i++, runs++)
            run();
        model_free(&model);
    }
    unlink(path);
    printf("ok fuzz_chronicle: %llu files, %llu opened, %llu answers, %llu refusals\n",
           (unsigned long long)runs, (unsigned long long)opened, (unsigned long long)answered,
           (unsigned long long)refused);
    return 0;
}
