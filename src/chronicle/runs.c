/* runs.c: external merge sort of the index; see runs.h. */
#include "chronicle/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "chronicle/pairs.h"

enum { HASH_SIZE = 2 * RUNS_PAGES, BUFFER = 1 << 16, ORDINALS = 1 << 30 /* that fit a pair, with room */ };

int runs_init(struct runs *r, const char *directory)
{
    memset(r, 0, sizeof *r);
    r->limit = RUNS_PAIRS;
    r->pairs = malloc(RUNS_PAIRS * sizeof *r->pairs);
    r->spare = malloc(RUNS_PAIRS * sizeof *r->spare);
    r->hash = calloc(HASH_SIZE, sizeof *r->hash);
    r->pages = malloc(RUNS_PAGES * sizeof *r->pages);
    r->directory = strdup(directory);
    r->recent = calloc(RUNS_RECENT, sizeof *r->recent);
    return r->recent && r->pairs && r->spare && r->hash && r->pages && r->directory ? 0 : -ENOMEM;
}

void runs_free(struct runs *r)
{
    for (uint32_t i = 0; i < r->nruns; i++)
        close(r->runs[i].fd);
    free(r->pairs);
    free(r->spare);
    free(r->hash);
    free(r->recent);
    free(r->pages);
    free(r->runs);
    free(r->directory);
    memset(r, 0, sizeof *r);
}

/* ---- writing a run ---- */

/* An unnamed file; with a name for a moment where the file system has none without. */
static int temporary(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd < 0 ? -errno : fd;
    char name[4096];
    if (snprintf(name, sizeof name, "%s/.clio-run-XXXXXX", directory) >= (int)sizeof name)
        return -ENAMETOOLONG;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(name);
    return fd;
}

struct run_writer {
    int fd;
    struct pair state;
    uint8_t *at;
    uint8_t bytes[BUFFER];
};

static int run_flush(struct run_writer *w)
{
    const uint8_t *p = w->bytes;
    while (p < w->at) {
        ssize_t n = write(w->fd, p, (size_t)(w->at - p));
        if (n < 0 && errno != EINTR)
            return -errno;
        p += n > 0 ? n : 0;
    }
    w->at = w->bytes;
    return 0;
}

static inline int run_put(struct run_writer *w, uint64_t key, uint64_t ordinal)
{
    w->at = pair_put(w->at, &w->state, key, ordinal);
    return w->at > w->bytes + BUFFER - PAIR_BYTES_MAX ? run_flush(w) : 0;
}

static int run_put_callback(void *context, uint64_t key, uint64_t ordinal)
{
    return run_put(context, key, ordinal);
}

static int run_open(struct runs *r, struct run_writer **out)
{
    struct run_writer *w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    w->state = pair_start(0, 0);
    w->at = w->bytes;
    w->fd = temporary(r->directory);
    if (w->fd < 0) {
        int rc = w->fd;
        free(w);
        return rc;
    }
    *out = w;
    return 0;
}

/* Ends the run: appended to r->runs, or thrown away when rc is an error, which is returned. */
static int run_close(struct runs *r, struct run_writer *w, unsigned level, int rc)
{
    if (!rc)
        rc = run_flush(w);
    if (!rc && r->nruns == r->runs_room) {
        uint32_t room = r->runs_room ? 2 * r->runs_room : RUNS_FANOUT;
        struct run *p = realloc(r->runs, room * sizeof *p);
        rc = p ? 0 : -ENOMEM;
        if (p) {
            r->runs = p;
            r->runs_room = room;
        }
    }
    if (rc)
        close(w->fd);
    else
        r->runs[r->nruns++] = (struct run){.fd = w->fd, .level = level};
    free(w);
    return rc;
}

/* ---- merging ---- */

struct run_reader {
    int fd;
    uint32_t order; /* runs hold ascending ordinals in this order */
    uint64_t offset;
    struct pair state;
    const uint8_t *at, *end;
    uint8_t bytes[BUFFER];
};

/* Advances to the next pair: 1, 0 at the end, -errno. */
static int run_next(struct run_reader *r)
{
    if (r->end - r->at < PAIR_BYTES_MAX) {
        size_t left = (size_t)(r->end - r->at);
        memmove(r->bytes, r->at, left);
        ssize_t n;
        do
            n = pread(r->fd, r->bytes + left, BUFFER - left, (off_t)r->offset);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return -errno;
        r->offset += (uint64_t)n;
        r->at = r->bytes;
        r->end = r->bytes + left + n;
        if (r->at == r->end)
            return 0;
    }
    r->at = pair_get(r->at, r->end, &r->state);
    return r->at ? 1 : -EIO;
}

static bool before(const struct run_reader *a, const struct run_reader *b)
{
    return a->state.key != b->state.key ? a->state.key < b->state.key : a->order < b->order;
}

static void sift(struct run_reader **heap, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t least = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < n; c++)
            if (before(heap[c], heap[least]))
                least = c;
        if (least == i)
            return;
        struct run_reader *swap = heap[i];
        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

/* Emits the pairs of one key of the least reader. Returns as run_next for what comes after them. */
static int drain_key(struct run_reader *r, int (*emit)(void *, uint64_t, uint64_t), void *context)
{
    uint64_t key = r->state.key;
    int more;
    do {
        int rc = emit(context, key, r->state.ordinal);
        if (rc)
            return rc > 0 ? -rc : rc;
        more = run_next(r);
    } while (more > 0 && r->state.key == key);
    return more;
}

static int merge_readers(struct run_reader **heap, uint32_t n, int (*emit)(void *, uint64_t, uint64_t),
                         void *context)
{
    for (uint32_t i = n; i-- > 0;)
        sift(heap, n, i);
    while (n) {
        int more = drain_key(heap[0], emit, context);
        if (more < 0)
            return more;
        if (!more) {
            struct run_reader *done = heap[0];
            heap[0] = heap[--n];
            heap[n] = done;
        }
        sift(heap, n, 0);
    }
    return 0;
}

/* Merges runs [first, nruns) into emit. */
static int merge(struct runs *r, uint32_t first, int (*emit)(void *, uint64_t, uint64_t), void *context)
{
    uint32_t count = r->nruns - first, live = 0;
    int rc = 0;
    struct run_reader **heap = calloc(count + 1, sizeof *heap);
    if (!heap)
        return -ENOMEM;
    for (uint32_t i = 0; !rc && i < count; i++) {
        struct run_reader *reader = malloc(sizeof *reader);
        if (!reader) {
            rc = -ENOMEM;
            break;
        }
        *reader = (struct run_reader){.fd = r->runs[first + i].fd, .order = i};
        reader->at = reader->end = reader->bytes;
        heap[live++] = reader;
        rc = run_next(reader);
        if (!rc)
            free(heap[--live]); /* an empty run */
        rc = rc < 0 ? rc : 0;
    }
    if (!rc)
        rc = merge_readers(heap, live, emit, context);
    for (uint32_t i = 0; i < live; i++)
        free(heap[i]);
    free(heap);
    return rc;
}

/* While the last RUNS_FANOUT runs have one level: merges them into one of the next level. */
static int collapse(struct runs *r)
{
    while (r->nruns >= RUNS_FANOUT) {
        uint32_t first = r->nruns - RUNS_FANOUT;
        unsigned level = r->runs[r->nruns - 1].level;
        if (r->runs[first].level != level)
            return 0;
        struct run_writer *w;
        int rc = run_open(r, &w);
        if (rc)
            return rc;
        rc = merge(r, first, run_put_callback, w);
        if (!rc)
            rc = run_flush(w);
        if (rc)
            return run_close(r, w, level, rc);
        for (uint32_t i = first; i < r->nruns; i++)
            close(r->runs[i].fd);
        r->nruns = first;
        rc = run_close(r, w, level + 1, 0);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- sorting ---- */

static int by_page(const void *a, const void *b)
{
    const struct runs_page *x = a, *y = b;
    return x->page < y->page ? -1 : x->page > y->page;
}

/* rank[number] is the place of each page in ascending order. */
static int rank_pages(struct runs *r, uint32_t *rank)
{
    struct runs_page *order = malloc((r->npages + 1) * sizeof *order);
    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->npages; i++)
        order[i] = (struct runs_page){.page = r->pages[i], .number = i};
    qsort(order, r->npages, sizeof *order, by_page);
    for (uint32_t i = 0; i < r->npages; i++)
        rank[order[i].number] = i;
    free(order);
    return 0;
}

static void sum(uint32_t *counts, uint32_t n)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = counts[i];
        counts[i] = total;
        total += count;
    }
}

/* Sorts r->pairs by (page, granule, code), equal keys in order. `counts` has RUNS_PAGES entries. */
static void sort(struct runs *r, const uint32_t *rank, uint32_t *counts)
{
    uint32_t low[256] = {0}, high[256] = {0};
    uint64_t *a = r->pairs, *b = r->spare;
    memset(counts, 0, r->npages * sizeof *counts);
    for (uint32_t i = 0; i < r->count; i++) {
        low[a[i] >> 32 & 255]++;
        high[a[i] >> 40 & 255]++;
        counts[rank[a[i] >> 48]]++;
    }
    sum(low, 256);
    sum(high, 256);
    sum(counts, r->npages);
    for (uint32_t i = 0; i < r->count; i++)
        b[low[a[i] >> 32 & 255]++] = a[i];
    for (uint32_t i = 0; i < r->count; i++)
        a[high[b[i] >> 40 & 255]++] = b[i];
    for (uint32_t i = 0; i < r->count; i++)
        b[counts[rank[a[i] >> 48]]++] = a[i];
    r->pairs = b;
    r->spare = a;
}

static int spill_sorted(struct runs *r, uint32_t *rank, uint32_t *counts)
{
    int rc = rank_pages(r, rank);
    struct run_writer *w;
    if (!rc)
        rc = run_open(r, &w);
    if (rc)
        return rc;
    sort(r, rank, counts);
    for (uint32_t i = 0; !rc && i < r->count; i++) {
        uint64_t p = r->pairs[i];
        rc = run_put(w, r->pages[p >> 48] << 16 | (p >> 32 & 0xffff), r->base + (uint32_t)p);
    }
    return run_close(r, w, 0, rc);
}

/* Sorts and writes out what is in memory. */
static int spill(struct runs *r)
{
    if (!r->count)
        return 0;
    uint32_t *rank = malloc(RUNS_PAGES * sizeof *rank), *counts = malloc(RUNS_PAGES * sizeof *counts);
    int rc = rank && counts ? spill_sorted(r, rank, counts) : -ENOMEM;
    free(rank);
    free(counts);
    memset(r->hash, 0, HASH_SIZE * sizeof *r->hash);
    memset(r->recent, 0, RUNS_RECENT * sizeof *r->recent);
    r->count = r->npages = 0;
    return rc ? rc : collapse(r);
}

/* ---- collecting ---- */

/* The number of a page in this run. There is room for one more page. */
static uint32_t page_number(struct runs *r, uint64_t page)
{
    uint64_t h = page * 0x9e3779b97f4a7c15ull >> 40;
    for (;; h++) {
        struct runs_page *e = &r->hash[h % HASH_SIZE];
        if (e->used && e->page != page)
            continue;
        if (!e->used) {
            *e = (struct runs_page){.page = page, .number = r->npages, .used = 1};
            r->pages[r->npages++] = page;
        }
        r->recent[page % RUNS_RECENT] = *e;
        return e->number;
    }
}

static inline int add_piece(struct runs *r, uint64_t key, unsigned code, uint64_t ordinal)
{
    if (__builtin_expect(r->count == r->limit || r->npages == RUNS_PAGES || ordinal - r->base > ORDINALS,
                         0)) {
        int rc = spill(r);
        if (rc)
            return rc;
    }
    if (!r->count)
        r->base = ordinal;
    uint64_t page = key >> 16;
    const struct runs_page *recent = &r->recent[page % RUNS_RECENT];
    uint64_t number = recent->page == page && recent->used ? recent->number : page_number(r, page);
    r->codes[code >> 6] |= 1ull << (code & 63);
    r->pairs[r->count++] = number << 48 | (key & 0xffff) << 32 | (ordinal - r->base);
    return 0;
}

int runs_add(struct runs *r, uint64_t address, uint64_t length, uint64_t ordinal)
{
    if ((address & 7) + length <= 8) {
        unsigned code = code_of_part(address & 7, (unsigned)length);
        return add_piece(r, key_of(address, code), code, ordinal);
    }
    int rc = 0;
    while (!rc && length) {
        uint64_t size;
        unsigned code = piece_first(address, length, &size);
        rc = add_piece(r, key_of(address, code), code, ordinal);
        address += size;
        length -= size;
    }
    return rc;
}

int runs_finish(struct runs *r, int (*emit)(void *context, uint64_t key, uint64_t ordinal), void *context)
{
    int rc = spill(r);
    return rc ? rc : merge(r, 0, emit, context);
}
