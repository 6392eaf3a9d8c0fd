/* database.c: checked access to a chronicle file; see database.h, and format.h for the bytes. */
#include "chronicle/database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include "chronicle/pairs.h"

enum { BLOB_MAX = 1 << 30, META_MAX = 1 << 30 };

static const uint32_t record_sizes[TABLE_COUNT] = {
    [TABLE_CHUNKS] = sizeof(struct chron_chunk), [TABLE_CONTENT] = sizeof(struct chron_content),
    [TABLE_INDEX] = sizeof(struct chron_index),  [TABLE_BLOCKS] = sizeof(struct chron_static),
    [TABLE_LENGTHS] = sizeof(uint8_t),           [TABLE_SLOTS] = sizeof(struct chron_slot)};
static const char *const table_names[TABLE_COUNT] = {[TABLE_CHUNKS] = "chunk",
                                                     [TABLE_CONTENT] = "content",
                                                     [TABLE_INDEX] = "index",
                                                     [TABLE_BLOCKS] = "block",
                                                     [TABLE_LENGTHS] = "instruction length",
                                                     [TABLE_SLOTS] = "store"};

bool database_fault(struct database *d, enum clio_fault fault, int code, const char *format, ...)
{
    va_list args;
    d->error->fault = fault;
    d->error->code = code;
    int n = snprintf(d->error->text, sizeof d->error->text, "chronicle %.700s: ", d->path);
    va_start(args, format);
    vsnprintf(d->error->text + n, sizeof d->error->text - (size_t)n, format, args);
    va_end(args);
    return false;
}

static bool no_memory(struct database *d)
{
    return database_fault(d, CLIO_FAULT_SYSTEM, ENOMEM, "no memory");
}

/* ---- bytes ---- */

static bool read_at(struct database *d, uint64_t offset, void *to, uint64_t n)
{
    uint8_t *p = to;
    while (n) {
        ssize_t done = pread(d->fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return database_fault(d, CLIO_FAULT_SYSTEM, errno, "cannot read at byte %llu: %s",
                                  (unsigned long long)offset, strerror(errno));
        if (!done)
            return database_fault(d, CLIO_FAULT_DAMAGED, 0, "cut short: ends at byte %llu",
                                  (unsigned long long)offset);
        p += done;
        offset += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return true;
}

/* Bytes [offset, offset + n) of the file, allocated, when their checksum holds. `what`, `i` name it. */
static uint8_t *read_checked(struct database *d, uint64_t offset, uint64_t n, uint64_t checksum,
                             const char *what, uint64_t i)
{
    if (offset > d->size || n > d->size - offset || n > BLOB_MAX) {
        database_fault(d, CLIO_FAULT_DAMAGED, 0, "%s %llu lies outside of the file", what,
                       (unsigned long long)i);
        return NULL;
    }
    uint8_t *p = malloc(n + 1);
    if (!p) {
        no_memory(d);
        return NULL;
    }
    if (!read_at(d, offset, p, n)) {
        free(p);
        return NULL;
    }
    if (XXH64(p, n, 0) == checksum)
        return p;
    database_fault(d, CLIO_FAULT_DAMAGED, 0, "%s %llu at byte %llu has a wrong checksum", what,
                   (unsigned long long)i, (unsigned long long)offset);
    free(p);
    return NULL;
}

/* Expands `stored` bytes at p to `raw` bytes, allocated. */
static uint8_t *expand(struct database *d, const uint8_t *p, uint32_t stored, uint32_t raw, const char *what,
                       uint64_t i)
{
    if (raw > BLOB_MAX || stored > raw) {
        database_fault(d, CLIO_FAULT_DAMAGED, 0, "%s %llu has impossible sizes", what, (unsigned long long)i);
        return NULL;
    }
    uint8_t *out = malloc(raw + 1ull);
    if (!out) {
        no_memory(d);
        return NULL;
    }
    if (stored == raw)
        return memcpy(out, p, raw);
    if (ZSTD_decompress(out, raw, p, stored) == raw)
        return out;
    database_fault(d, CLIO_FAULT_DAMAGED, 0, "%s %llu cannot be decompressed", what, (unsigned long long)i);
    free(out);
    return NULL;
}

static uint8_t *read_blob(struct database *d, uint64_t offset, uint64_t checksum, uint32_t stored,
                          uint32_t raw, const char *what, uint64_t i)
{
    uint8_t *packed = read_checked(d, offset, stored, checksum, what, i);
    uint8_t *out = packed ? expand(d, packed, stored, raw, what, i) : NULL;
    free(packed);
    return out;
}

/* ---- tables ---- */

/* Page number `number` of a table, checked. Valid until TABLE_PAGES pages of the table later. */
static const uint8_t *page_of(struct database *d, enum chron_table table, uint64_t number)
{
    uint64_t checksum, offset = d->header.tables[table].offset + number * CHRON_PAGE;
    struct page_slot **at = &d->pages[table][number % TABLE_PAGES], *slot = *at;
    if (slot && slot->offset == offset)
        return slot->bytes;
    if (!slot && !(slot = *at = malloc(sizeof *slot))) {
        no_memory(d);
        return NULL;
    }
    slot->offset = 0;
    if (!read_at(d, offset, slot->bytes, CHRON_PAGE))
        return NULL;
    memcpy(&checksum, slot->bytes + CHRON_PAGE_ROOM, 8);
    if (checksum != XXH64(slot->bytes, CHRON_PAGE_ROOM, offset)) {
        database_fault(d, CLIO_FAULT_DAMAGED, 0, "a page of the %s table at byte %llu has a wrong checksum",
                       table_names[table], (unsigned long long)offset);
        return NULL;
    }
    slot->offset = offset;
    return slot->bytes;
}

bool database_get(struct database *d, enum chron_table table, uint64_t i, void *record)
{
    const struct chron_section *s = &d->header.tables[table];
    if (i >= s->count)
        return database_fault(d, CLIO_FAULT_DAMAGED, 0, "refers to %s %llu of %llu", table_names[table],
                              (unsigned long long)i, (unsigned long long)s->count);
    uint64_t per_page = CHRON_PAGE_ROOM / s->record_size;
    const uint8_t *page = page_of(d, table, i / per_page);
    if (page)
        memcpy(record, page + i % per_page * s->record_size, s->record_size);
    return page;
}

/* ---- index blocks ---- */

static bool decode_pairs(struct database *d, uint64_t i, const struct chron_index *record, const uint8_t *p,
                         struct index_slot *slot)
{
    const uint8_t *end = p + record->raw;
    struct pair state = pair_start(record->key, record->ordinal);
    slot->pairs = malloc((record->raw + 1ull) * sizeof *slot->pairs);
    if (!slot->pairs)
        return no_memory(d);
    slot->count = 0;
    while (p && p < end) {
        p = pair_get(p, end, &state);
        slot->pairs[slot->count++] = (struct database_pair){state.key, state.ordinal};
    }
    if (p && slot->count)
        return true;
    return database_fault(d, CLIO_FAULT_DAMAGED, 0, "index block %llu cannot be decoded",
                          (unsigned long long)i);
}

bool database_index(struct database *d, uint64_t i, const struct index_slot **block)
{
    struct index_slot *slot = &d->index[i % INDEX_SLOTS];
    *block = slot;
    if (slot->number == i)
        return true;
    struct chron_index record;
    free(slot->pairs);
    *slot = (struct index_slot){.number = DATABASE_NONE};
    if (!database_get(d, TABLE_INDEX, i, &record))
        return false;
    uint8_t *bytes =
        read_blob(d, record.offset, record.checksum, record.stored, record.raw, "index block", i);
    bool ok = bytes && decode_pairs(d, i, &record, bytes, slot);
    free(bytes);
    if (ok)
        slot->number = i;
    return ok;
}

/* ---- story chunks ---- */

static int reader_block(void *context, uint32_t number, struct chron_static *out)
{
    struct database *d = context;
    d->reader_error = database_get(d, TABLE_BLOCKS, number, out) ? 0 : -EIO;
    return d->reader_error;
}

static int reader_slot(void *context, uint32_t slot, struct chron_slot *out)
{
    struct database *d = context;
    d->reader_error = database_get(d, TABLE_SLOTS, slot, out) ? 0 : -EIO;
    return d->reader_error;
}

static int reader_lengths(void *context, const struct chron_static *block, uint8_t *out)
{
    struct database *d = context;
    d->reader_error = 0;
    for (uint32_t i = 0; !d->reader_error && i < block->ninsns; i++)
        if (!database_get(d, TABLE_LENGTHS, (uint64_t)block->lengths + i, out + i))
            d->reader_error = -EIO;
    return d->reader_error;
}

static bool open_reader(struct database *d)
{
    struct story_reader *r = &d->reader;
    *r = (struct story_reader){.context = d,
                               .block = reader_block,
                               .slot = reader_slot,
                               .lengths = reader_lengths,
                               .nblocks = database_count(d, TABLE_BLOCKS),
                               .nslots = database_count(d, TABLE_SLOTS)};
    r->blocks = calloc(r->nblocks + 1, sizeof *r->blocks);
    r->stores = calloc(r->nslots + 1, sizeof *r->stores);
    return r->blocks && r->stores ? true : no_memory(d);
}

static bool decode_chunk(struct database *d, uint64_t i, struct chunk_slot *slot)
{
    struct chron_chunk *c = &slot->chunk;
    const uint8_t *streams[CHRON_STREAMS];
    uint8_t *raw[CHRON_STREAMS] = {0};
    uint64_t stored = 0, at = 0;
    for (int s = 0; s < CHRON_STREAMS; s++)
        stored += c->stored[s];
    uint8_t *packed = read_checked(d, c->offset, stored, c->checksum, "story chunk", i);
    bool ok = packed;
    for (int s = 0; ok && s < CHRON_STREAMS; s++) {
        streams[s] = raw[s] = expand(d, packed + at, c->stored[s], c->raw[s], "story chunk", i);
        at += c->stored[s];
        ok = raw[s];
    }
    if (ok) {
        d->reader_error = 0;
        int rc = story_decode(&d->reader, c, streams, &slot->decoded);
        ok = !rc;
        if (rc == -ENOMEM)
            no_memory(d);
        else if (rc && !d->reader_error)
            database_fault(d, CLIO_FAULT_DAMAGED, 0, "story chunk %llu cannot be decoded",
                           (unsigned long long)i);
    }
    for (int s = 0; s < CHRON_STREAMS; s++)
        free(raw[s]);
    free(packed);
    return ok;
}

bool database_chunk(struct database *d, uint64_t i, const struct chunk_slot **chunk)
{
    struct chunk_slot *slot = &d->chunks[0];
    for (int s = 0; s < CHUNK_SLOTS; s++) {
        if (d->chunks[s].number == i) {
            d->chunks[s].used = ++d->uses;
            *chunk = &d->chunks[s];
            return true;
        }
        if (d->chunks[s].used < slot->used)
            slot = &d->chunks[s];
    }
    slot->number = DATABASE_NONE;
    if (!database_get(d, TABLE_CHUNKS, i, &slot->chunk) || !decode_chunk(d, i, slot))
        return false;
    slot->number = i;
    slot->used = ++d->uses;
    *chunk = slot;
    return true;
}

/* ---- content ---- */

static bool content_block(struct database *d, uint64_t i, const struct content_slot **block)
{
    struct content_slot *slot = &d->content[i % CONTENT_SLOTS];
    *block = slot;
    if (slot->number == i)
        return true;
    struct chron_content record;
    free(slot->bytes);
    *slot = (struct content_slot){.number = DATABASE_NONE};
    if (!database_get(d, TABLE_CONTENT, i, &record))
        return false;
    slot->bytes = read_blob(d, record.offset, record.checksum, record.stored, record.raw, "content block", i);
    slot->size = record.raw;
    if (slot->bytes)
        slot->number = i;
    return slot->bytes;
}

bool database_content(struct database *d, uint64_t position, void *to, uint64_t n)
{
    uint8_t *p = to;
    while (n) {
        const struct content_slot *block;
        uint64_t from = position % CHRON_CONTENT_BLOCK;
        if (!content_block(d, position / CHRON_CONTENT_BLOCK, &block))
            return false;
        if (from >= block->size)
            return database_fault(d, CLIO_FAULT_DAMAGED, 0, "content block %llu is too short",
                                  (unsigned long long)(position / CHRON_CONTENT_BLOCK));
        uint64_t part = block->size - from < n ? block->size - from : n;
        memcpy(p, block->bytes + from, part);
        p += part;
        position += part;
        n -= part;
    }
    return true;
}

/* ---- opening ---- */

static bool check_header(struct database *d, const uint8_t *page)
{
    struct chron_header *h = &d->header;
    uint64_t checksum;
    memcpy(h, page, sizeof *h);
    memcpy(&checksum, page + CHRON_PAGE_ROOM, 8);
    if (memcmp(h->magic, CHRON_MAGIC, sizeof h->magic))
        return database_fault(d, CLIO_FAULT_DAMAGED, 0, "is not a chronicle");
    if (h->version != CHRON_VERSION)
        return database_fault(d, CLIO_FAULT_VERSION, 0,
                              "has format version %u; this program reads version %d", h->version,
                              CHRON_VERSION);
    if (checksum != XXH64(page, CHRON_PAGE_ROOM, 0))
        return database_fault(d, CLIO_FAULT_DAMAGED, 0, "the header has a wrong checksum");
    if (h->required)
        return database_fault(d, CLIO_FAULT_VERSION, 0, "needs features 0x%llx, which this program lacks",
                              (unsigned long long)h->required);
    if (h->file_size != d->size)
        return database_fault(d, CLIO_FAULT_DAMAGED, 0,
                              "has %llu bytes instead of %llu: cut short or overwritten",
                              (unsigned long long)d->size, (unsigned long long)h->file_size);
    return true;
}

static bool check_tables(struct database *d)
{
    for (int i = 0; i < TABLE_COUNT; i++) {
        const struct chron_section *s = &d->header.tables[i];
        bool fits = s->record_size == record_sizes[i] && s->count <= d->size && s->offset <= d->size;
        uint64_t per_page = CHRON_PAGE_ROOM / record_sizes[i];
        if (!fits || (s->count + per_page - 1) / per_page > (d->size - s->offset) / CHRON_PAGE)
            return database_fault(d, CLIO_FAULT_DAMAGED, 0, "the %s table does not fit the file",
                                  table_names[i]);
    }
    return true;
}

static bool check_meta(struct database *d)
{
    struct chron_meta m;
    uint64_t size = d->header.meta_size, at = sizeof m;
    d->meta = read_checked(d, d->header.meta_offset, size, d->header.meta_checksum, "meta block", 0);
    if (!d->meta)
        return false;
    bool ok = size >= sizeof m;
    if (ok) {
        memcpy(&m, d->meta, sizeof m);
        at += m.path_length;
        ok = at <= size;
    }
    for (uint32_t i = 0; ok && i < m.nmodules; i++) {
        struct chron_module module;
        ok = at <= size && size - at >= sizeof module;
        if (!ok)
            break;
        memcpy(&module, d->meta + at, sizeof module);
        at += sizeof module + module.path_length;
        ok = at <= size;
    }
    return ok && at == size ? true
                            : database_fault(d, CLIO_FAULT_DAMAGED, 0, "the meta block cannot be decoded");
}

static bool open_file(struct database *d)
{
    uint8_t page[CHRON_PAGE];
    struct stat st;
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
    if (d->fd < 0)
        return database_fault(d, errno == ENOENT ? CLIO_FAULT_MISSING : CLIO_FAULT_SYSTEM, errno,
                              "cannot open: %s", strerror(errno));
    if (fstat(d->fd, &st))
        return database_fault(d, CLIO_FAULT_SYSTEM, errno, "cannot examine: %s", strerror(errno));
    d->size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode))
        return database_fault(d, CLIO_FAULT_DAMAGED, 0, "is not a regular file");
    if (d->size >= CHRON_HEADER_SIZE)
        return read_at(d, 0, page, sizeof page) && check_header(d, page);
    char magic[sizeof CHRON_MAGIC - 1] = "";
    uint64_t n = d->size < sizeof magic ? d->size : sizeof magic;
    if (!read_at(d, 0, magic, n))
        return false;
    return n == sizeof magic && !memcmp(magic, CHRON_MAGIC, n)
               ? database_fault(d, CLIO_FAULT_DAMAGED, 0, "cut short: has only %llu bytes",
                                (unsigned long long)d->size)
               : database_fault(d, CLIO_FAULT_DAMAGED, 0, "is not a chronicle");
}

bool database_open(struct database *d, const char *path, struct clio_error *error)
{
    memset(d, 0, sizeof *d);
    d->fd = -1;
    d->error = error;
    for (int i = 0; i < INDEX_SLOTS; i++)
        d->index[i].number = DATABASE_NONE;
    for (int i = 0; i < CHUNK_SLOTS; i++)
        d->chunks[i].number = DATABASE_NONE;
    for (int i = 0; i < CONTENT_SLOTS; i++)
        d->content[i].number = DATABASE_NONE;
    d->path = strdup(path);
    if (!d->path) {
        *error = (struct clio_error){.fault = CLIO_FAULT_SYSTEM, .code = ENOMEM, .text = "no memory"};
        return false;
    }
    if (open_file(d) && check_tables(d) && check_meta(d) && open_reader(d))
        return true;
    database_close(d);
    return false;
}

void database_close(struct database *d)
{
    if (d->fd >= 0)
        close(d->fd);
    for (int i = 0; i < INDEX_SLOTS; i++)
        free(d->index[i].pairs);
    for (int i = 0; i < CHUNK_SLOTS; i++)
        story_decoded_free(&d->chunks[i].decoded);
    for (int i = 0; i < CONTENT_SLOTS; i++)
        free(d->content[i].bytes);
    free(d->reader.blocks);
    free(d->reader.stores);
    for (int t = 0; t < TABLE_COUNT; t++)
        for (int i = 0; i < TABLE_PAGES; i++)
            free(d->pages[t][i]);
    free(d->meta);
    free(d->path);
}
