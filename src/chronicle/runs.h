/*
 * runs.h: sorts the pairs (key, ordinal) of all writes with bounded memory.
 *
 * Pairs are collected in an array; a full array is sorted (radix sort by page, granule and code; stable, so
 * ordinals stay ascending) and spilled as a run into an unnamed temporary file beside the output. RUNS_FANOUT
 * runs of one level are merged into one of the next. At the end all runs are merged into the callback.
 */
#ifndef CLIO_CHRONICLE_RUNS_H
#define CLIO_CHRONICLE_RUNS_H

#include <stdint.h>

enum { RUNS_FANOUT = 64, RUNS_PAIRS = 1 << 21, RUNS_PAGES = 1 << 16, RUNS_RECENT = 1024 };

struct run {
    int fd;
    unsigned level;
};

struct runs {
    uint64_t *pairs, *spare; /* page number in `pages` << 48 | granule << 39 | code << 32 | ordinal - base */
    uint32_t count;
    uint64_t base;
    struct runs_page {
        uint64_t page;
        uint32_t number, used;
    } * hash; /* open addressing, 2 * RUNS_PAGES entries */
    uint64_t *pages;
    uint32_t npages;
    struct runs_page *recent; /* RUNS_RECENT entries in front of hash, by the lowest bits of the page */
    uint64_t codes[2];        /* bit c: code c occurs */
    struct run *runs;
    uint32_t nruns, runs_room;
    char *directory;
    uint32_t limit; /* pairs in memory; RUNS_PAIRS, less in tests */
};

/* directory: where temporary files go; copied. 0 or -errno. */
int runs_init(struct runs *r, const char *directory);
void runs_free(struct runs *r);
/* The write with this ordinal (never less than the last one) set [address, address + length). 0 or -errno. */
int runs_add(struct runs *r, uint64_t address, uint64_t length, uint64_t ordinal);
/* Calls emit for every pair in ascending order until it returns not 0. 0, -errno, or what emit returned. */
int runs_finish(struct runs *r, int (*emit)(void *context, uint64_t key, uint64_t ordinal), void *context);

#endif
