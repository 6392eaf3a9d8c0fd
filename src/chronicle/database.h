/*
 * database.h: a chronicle file opened for reading: checked access to its tables and blobs.
 *
 * Nothing read is trusted: every record comes from a page whose checksum held, every blob is checked against
 * its record, sizes and offsets against the file. Functions that can fail return false and fill `error`.
 */
#ifndef CLIO_CHRONICLE_DATABASE_H
#define CLIO_CHRONICLE_DATABASE_H

#include <stdbool.h>

#include "chronicle/story.h"
#include "clio/chronicle.h"

enum { TABLE_PAGES = 64, INDEX_SLOTS = 32, CHUNK_SLOTS = 4, CONTENT_SLOTS = 8 };
#define DATABASE_NONE UINT64_MAX

struct database_pair {
    uint64_t key, ordinal;
};

struct database {
    int fd;
    char *path;
    uint64_t size;
    struct chron_header header;
    uint8_t *meta;
    struct clio_error *error; /* of the call at hand */

    struct page_slot {
        uint64_t offset; /* 0: empty */
        uint8_t bytes[CHRON_PAGE];
    } * pages[TABLE_COUNT][TABLE_PAGES]; /* by page number; NULL: not used yet */
    struct index_slot {
        uint64_t number; /* of the block, or DATABASE_NONE */
        struct database_pair *pairs;
        uint32_t count;
    } index[INDEX_SLOTS];
    struct chunk_slot {
        uint64_t number;
        struct chron_chunk chunk;
        struct story_decoded decoded;
        uint64_t used; /* time of last use */
    } chunks[CHUNK_SLOTS];
    struct content_slot {
        uint64_t number;
        uint8_t *bytes;
        uint32_t size;
    } content[CONTENT_SLOTS];
    uint64_t uses;
    struct story_reader reader;
    int reader_error; /* a callback of reader failed: *error is filled */
};

bool database_open(struct database *d, const char *path, struct clio_error *error);
void database_close(struct database *d);

/* Fills *d->error; returns false. */
bool database_fault(struct database *d, enum clio_fault fault, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static inline uint64_t database_count(const struct database *d, enum chron_table table)
{
    return d->header.tables[table].count;
}
/* Copies record i of a table. */
bool database_get(struct database *d, enum chron_table table, uint64_t i, void *record);

/* Index block i, decoded. Valid until INDEX_SLOTS more are read. */
bool database_index(struct database *d, uint64_t i, const struct index_slot **block);
/* Story chunk i, decoded. Valid until CHUNK_SLOTS - 1 others are read. */
bool database_chunk(struct database *d, uint64_t i, const struct chunk_slot **chunk);
/* n bytes of the content, all of which exist, to `to`. */
bool database_content(struct database *d, uint64_t position, void *to, uint64_t n);

#endif
