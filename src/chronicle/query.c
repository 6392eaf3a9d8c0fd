/*
 * query.c: the public interface of chronicles: who wrote these bytes, last before or first after a moment.
 *
 * A moment becomes an ordinal: the number of writes before it (chunk table, then one chunk). For each key
 * that overlaps the asked range, the index gives the greatest ordinal below it, or the least not below it.
 * Each byte keeps the best one over all keys that cover it; runs of bytes with one ordinal are the answers,
 * and the story's chunk says what the write was.
 */
#include "clio/chronicle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "chronicle/database.h"

struct clio_chronicle {
    struct database db;
    struct clio_chronicle_info info;
    struct clio_crash crash;
    struct clio_module *modules;
    uint64_t *module_ordinals;
    char *strings; /* paths, terminated */
    struct clio_write *answers;
    size_t answers_room;
};

static struct clio_moment moment_of(const struct chron_clock *c)
{
    return (struct clio_moment){c->event, c->tick, c->step};
}

/* ---- opening ---- */

static bool load_meta(struct clio_chronicle *c)
{
    const uint8_t *p = c->db.meta;
    struct chron_meta m;
    memcpy(&m, p, sizeof m);
    /* Every path shrinks the blob by more than the byte its terminator needs. */
    char *text = c->strings = malloc(c->db.header.meta_size + 1);
    c->modules = calloc(m.nmodules + 1ull, sizeof *c->modules);
    c->module_ordinals = calloc(m.nmodules + 1ull, sizeof *c->module_ordinals);
    if (!text || !c->modules || !c->module_ordinals)
        return database_fault(&c->db, CLIO_FAULT_SYSTEM, ENOMEM, "no memory");
    p += sizeof m;
    c->info.trace = text;
    text = mempcpy(text, p, m.path_length);
    *text++ = 0;
    p += m.path_length;
    for (uint32_t i = 0; i < m.nmodules; i++) {
        struct chron_module stored;
        struct clio_module *module = &c->modules[i];
        memcpy(&stored, p, sizeof stored);
        p += sizeof stored;
        *module = (struct clio_module){
            .start = stored.start, .end = stored.end, .offset = stored.offset, .path = text};
        for (size_t j = 0; j < sizeof stored.hash; j++)
            sprintf(module->file + 2 * j, "%02x", stored.hash[j]);
        c->module_ordinals[i] = stored.ordinal;
        text = mempcpy(text, p, stored.path_length);
        *text++ = 0;
        p += stored.path_length;
    }
    c->info.modules = m.nmodules;
    c->crash = (struct clio_crash){.signo = m.signo,
                                   .code = m.code,
                                   .address = m.address,
                                   .moment = moment_of(&m.clock),
                                   .rip = m.rip,
                                   .rflags = m.rflags,
                                   .fs_base = m.fs_base,
                                   .gs_base = m.gs_base};
    memcpy(c->crash.gpr, m.gpr, sizeof m.gpr);
    return true;
}

struct clio_chronicle *clio_chronicle_open(const char *path, struct clio_error *error)
{
    struct clio_chronicle *c = calloc(1, sizeof *c);
    if (!c) {
        *error = (struct clio_error){.fault = CLIO_FAULT_SYSTEM, .code = ENOMEM, .text = "no memory"};
        return NULL;
    }
    if (!database_open(&c->db, path, error)) {
        free(c);
        return NULL;
    }
    const struct chron_header *h = &c->db.header;
    c->info = (struct clio_chronicle_info){.space = h->space,
                                           .version = h->version,
                                           .from = moment_of(&h->from),
                                           .to = moment_of(&h->to),
                                           .instructions = h->instructions,
                                           .blocks = h->executions,
                                           .writes = h->writes,
                                           .events = h->events,
                                           .file_size = h->file_size};
    if (load_meta(c))
        return c;
    clio_chronicle_close(c);
    return NULL;
}

void clio_chronicle_close(struct clio_chronicle *c)
{
    if (!c)
        return;
    database_close(&c->db);
    free(c->modules);
    free(c->module_ordinals);
    free(c->strings);
    free(c->answers);
    free(c);
}

const struct clio_chronicle_info *clio_chronicle_info(const struct clio_chronicle *c)
{
    return &c->info;
}

const struct clio_crash *clio_chronicle_crash(const struct clio_chronicle *c)
{
    return c->db.header.flags & CHRON_FLAG_CRASH ? &c->crash : NULL;
}

const struct clio_module *clio_chronicle_module(const struct clio_chronicle *c, uint64_t address,
                                                uint64_t ordinal)
{
    for (size_t i = c->info.modules; i-- > 0;) {
        const struct clio_module *m = &c->modules[i];
        if (c->module_ordinals[i] <= ordinal && address >= m->start && address < m->end)
            return m;
    }
    return NULL;
}

const struct clio_module *clio_chronicle_module_number(const struct clio_chronicle *c, size_t i)
{
    return i < c->info.modules ? &c->modules[i] : NULL;
}

/* ---- moments ---- */

/* Whether a write had happened in the state at clock m. */
static bool happened(const struct story_read_write *w, const struct chron_clock *m)
{
    int order = chron_clock_compare(&w->clock, m);
    return w->kind == STORY_STORE ? order < 0 : order <= 0;
}

/* The last chunk that begins at or before m, or DATABASE_NONE. */
static bool chunk_at(struct database *d, const struct chron_clock *m, uint64_t *found)
{
    uint64_t low = 0, high = database_count(d, TABLE_CHUNKS);
    while (low < high) {
        struct chron_chunk chunk;
        uint64_t middle = low + (high - low) / 2;
        if (!database_get(d, TABLE_CHUNKS, middle, &chunk))
            return false;
        if (chron_clock_compare(&chunk.clock, m) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low ? low - 1 : DATABASE_NONE;
    return true;
}

/* The number of writes that had happened at m. */
static bool ordinal_at(struct database *d, const struct chron_clock *m, uint64_t *ordinal)
{
    uint64_t number;
    const struct chunk_slot *slot;
    *ordinal = 0;
    if (!chunk_at(d, m, &number))
        return false;
    if (number == DATABASE_NONE)
        return true;
    if (!database_chunk(d, number, &slot))
        return false;
    uint32_t low = 0, high = slot->decoded.nwrites;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (happened(&slot->decoded.writes[middle], m))
            low = middle + 1;
        else
            high = middle;
    }
    *ordinal = slot->chunk.ordinal + low;
    return true;
}

/* As ordinal_at for a moment of the caller's, which must be in the interval; NULL: `otherwise`. */
static bool asked_ordinal(struct database *d, const struct clio_moment *m,
                          const struct chron_clock *otherwise, uint64_t *ordinal)
{
    const struct chron_header *h = &d->header;
    struct chron_clock clock = *otherwise;
    if (m)
        clock = (struct chron_clock){m->event, m->tick, m->step};
    if (chron_clock_compare(&clock, &h->from) >= 0 && chron_clock_compare(&clock, &h->to) <= 0)
        return ordinal_at(d, &clock, ordinal);
    return database_fault(
        d, CLIO_FAULT_ARGUMENT, 0,
        "moment %llu:%llu:%llu is outside of its interval, %llu:%llu:%llu to %llu:%llu:%llu",
        (unsigned long long)clock.event, (unsigned long long)clock.tick, (unsigned long long)clock.step,
        (unsigned long long)h->from.event, (unsigned long long)h->from.tick, (unsigned long long)h->from.step,
        (unsigned long long)h->to.event, (unsigned long long)h->to.tick, (unsigned long long)h->to.step);
}

/* ---- the index ---- */

static bool below(uint64_t key, uint64_t ordinal, uint64_t than_key, uint64_t than_ordinal)
{
    return key != than_key ? key < than_key : ordinal < than_ordinal;
}

/* The number of index blocks that begin below (key, ordinal). */
static bool blocks_below(struct database *d, uint64_t key, uint64_t ordinal, uint64_t *count)
{
    uint64_t low = 0, high = database_count(d, TABLE_INDEX);
    while (low < high) {
        struct chron_index record;
        uint64_t middle = low + (high - low) / 2;
        if (!database_get(d, TABLE_INDEX, middle, &record))
            return false;
        if (below(record.key, record.ordinal, key, ordinal))
            low = middle + 1;
        else
            high = middle;
    }
    *count = low;
    return true;
}

struct neighbours { /* of a position between pairs; ordinal DATABASE_NONE: there is none */
    struct database_pair before, after;
};

/* The last pair below (key, ordinal) and the first one not below it. */
static bool index_seek(struct database *d, uint64_t key, uint64_t ordinal, struct neighbours *n)
{
    uint64_t blocks;
    n->before = n->after = (struct database_pair){.ordinal = DATABASE_NONE};
    if (!blocks_below(d, key, ordinal, &blocks))
        return false;
    if (blocks) {
        const struct index_slot *b;
        if (!database_index(d, blocks - 1, &b))
            return false;
        uint32_t low = 0, high = b->count;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (below(b->pairs[middle].key, b->pairs[middle].ordinal, key, ordinal))
                low = middle + 1;
            else
                high = middle;
        }
        if (low)
            n->before = b->pairs[low - 1];
        if (low < b->count) {
            n->after = b->pairs[low];
            return true;
        }
    }
    if (blocks < database_count(d, TABLE_INDEX)) {
        struct chron_index record;
        if (!database_get(d, TABLE_INDEX, blocks, &record))
            return false;
        n->after = (struct database_pair){record.key, record.ordinal};
    }
    return true;
}

struct search {
    struct database *d;
    uint64_t address, length;
    uint64_t ordinal;
    bool first;     /* the least ordinal not below, else the greatest below */
    uint64_t *best; /* per byte, or DATABASE_NONE */
};

/* Lets the writes of one key, if any, take their bytes. */
static bool search_key(struct search *s, uint64_t key)
{
    struct neighbours n;
    if (!index_seek(s->d, key, s->ordinal, &n))
        return false;
    struct database_pair p = s->first ? n.after : n.before;
    if (p.ordinal == DATABASE_NONE || p.key != key)
        return true;
    if ((key & 127) > CODE_LARGEST)
        return database_fault(s->d, CLIO_FAULT_DAMAGED, 0, "the index has a key 0x%llx that cannot be",
                              (unsigned long long)key);
    uint64_t start, length;
    key_extent(key, &start, &length);
    uint64_t end = start + length < s->address + s->length ? start + length : s->address + s->length;
    for (uint64_t a = start > s->address ? start : s->address; a < end; a++) {
        uint64_t *best = &s->best[a - s->address];
        if (*best == DATABASE_NONE || (s->first ? p.ordinal < *best : p.ordinal > *best))
            *best = p.ordinal;
    }
    return true;
}

/* Pieces that hold the first byte but begin in an earlier granule: at most one of each size. */
static bool search_around(struct search *s)
{
    const uint64_t *codes = s->d->header.codes;
    for (unsigned code = CODE_PARTS; code <= CODE_LARGEST; code++) {
        uint64_t size = 16ull << (code - CODE_PARTS), start = s->address & ~(size - 1);
        if (codes[code >> 6] >> (code & 63) & 1 && start < (s->address & ~7ull) &&
            !search_key(s, key_of(start, code)))
            return false;
    }
    return true;
}

/* Keys that begin in one of the granules of the range. */
static bool search_inside(struct search *s)
{
    uint64_t key = key_of(s->address, 0), last = key_of(s->address + s->length - 1, 127);
    for (;;) {
        struct neighbours n;
        if (!index_seek(s->d, key, 0, &n))
            return false;
        if (n.after.ordinal == DATABASE_NONE || n.after.key > last)
            return true;
        if (!search_key(s, n.after.key))
            return false;
        key = n.after.key + 1;
    }
}

/* Fills best[0..length) with the ordinals of the writes asked for. */
static bool search(struct database *d, uint64_t address, uint64_t length, uint64_t ordinal, bool first,
                   uint64_t *best)
{
    struct search s = {d, address, length, ordinal, first, best};
    for (uint64_t i = 0; i < length; i++)
        best[i] = DATABASE_NONE;
    if (address >= CHRON_ADDRESS_END)
        return true;
    if (length > CHRON_ADDRESS_END - address)
        s.length = CHRON_ADDRESS_END - address;
    return search_around(&s) && search_inside(&s);
}

/* ---- what a write was ---- */

static bool write_at(struct database *d, uint64_t ordinal, const struct chunk_slot **slot,
                     const struct story_read_write **w)
{
    uint64_t low = 0, high = database_count(d, TABLE_CHUNKS);
    while (low < high) {
        struct chron_chunk chunk;
        uint64_t middle = low + (high - low) / 2;
        if (!database_get(d, TABLE_CHUNKS, middle, &chunk))
            return false;
        if (chunk.ordinal + chunk.writes <= ordinal)
            low = middle + 1;
        else
            high = middle;
    }
    if (!database_chunk(d, low, slot))
        return false;
    uint64_t i = ordinal - (*slot)->chunk.ordinal;
    if (i >= (*slot)->decoded.nwrites)
        return database_fault(d, CLIO_FAULT_DAMAGED, 0, "write %llu is not in its story chunk",
                              (unsigned long long)ordinal);
    *w = &(*slot)->decoded.writes[i];
    return true;
}

/* Bytes [address, address + n) as the write left them; the write covers them. */
static bool value_of(struct database *d, const struct chunk_slot *slot, const struct story_read_write *w,
                     uint64_t address, uint64_t n, uint8_t *to)
{
    uint64_t skip = address - w->address;
    if (w->length > CHRON_SHORT)
        return database_content(d, w->place + skip, to, n);
    memcpy(to, slot->decoded.values + w->place + skip, n);
    return true;
}

static bool covers(const struct story_read_write *w, uint64_t address, uint64_t length)
{
    return address >= w->address && length <= w->length && address - w->address <= w->length - length;
}

static bool describe_store(struct database *d, const struct story_read_write *w, struct clio_write *a)
{
    struct chron_static block;
    if (!database_get(d, TABLE_BLOCKS, w->source, &block))
        return false;
    a->kind = CLIO_WRITE_STORE;
    a->pc = block.pc;
    for (uint32_t i = 0; i < w->index; i++) {
        uint8_t length;
        if (!database_get(d, TABLE_LENGTHS, (uint64_t)block.lengths + i, &length))
            return false;
        a->pc += length;
    }
    a->before = a->moment;
    return true;
}

static void describe_event(const struct chunk_slot *slot, const struct story_read_write *w,
                           struct clio_write *a)
{
    const struct story_read_event *e = &slot->decoded.events[w->source];
    a->kind = w->kind == STORY_MEMORY ? CLIO_WRITE_EVENT
              : w->kind == STORY_MAP  ? CLIO_WRITE_MAP
                                      : CLIO_WRITE_UNMAP;
    a->before = moment_of(&e->before);
    a->pc = e->event.pc;
    a->event = e->event.number;
    a->event_kind = e->event.kind;
    a->event_nr = e->event.nr;
    a->event_flags = e->event.flags;
    a->result = (int64_t)e->event.result;
}

/* Fills in everything about write a->ordinal but the old value; address and length are set. */
static bool describe(struct database *d, struct clio_write *a)
{
    const struct chunk_slot *slot;
    const struct story_read_write *w;
    if (!write_at(d, a->ordinal, &slot, &w))
        return false;
    if (!covers(w, a->address, a->length))
        return database_fault(d, CLIO_FAULT_DAMAGED, 0,
                              "the index says that write %llu set 0x%llx, the story does not",
                              (unsigned long long)a->ordinal, (unsigned long long)a->address);
    a->moment = moment_of(&w->clock);
    a->write_address = w->address;
    a->write_length = w->length;
    if (w->kind == STORY_STORE) {
        if (!describe_store(d, w, a))
            return false;
    } else {
        describe_event(slot, w, a);
    }
    if (w->kind == STORY_MAP || w->kind == STORY_UNMAP)
        return true;
    a->value_length = a->length < CLIO_VALUE_MAX ? (uint32_t)a->length : CLIO_VALUE_MAX;
    return value_of(d, slot, w, a->address, a->value_length, a->value);
}

/* ---- answers ---- */

static struct clio_write *add_answer(struct clio_chronicle *c, size_t count)
{
    if (count == c->answers_room) {
        size_t room = count ? 2 * count : 16;
        struct clio_write *p = realloc(c->answers, room * sizeof *p);
        if (!p) {
            database_fault(&c->db, CLIO_FAULT_SYSTEM, ENOMEM, "no memory");
            return NULL;
        }
        c->answers = p;
        c->answers_room = room;
    }
    return &c->answers[count];
}

/*
 * Looking things up in order of ordinals decodes each story chunk once, however the answers lie in memory. A
 * look is one thing to be looked up: answer number `answer`, or what its byte number `byte` held before.
 */
struct look {
    uint64_t ordinal;
    uint32_t answer, byte;
};

static int by_ordinal(const void *a, const void *b)
{
    const struct look *x = a, *y = b;
    return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

static bool describe_all(struct clio_chronicle *c, struct look *looks, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (c->answers[i].ordinal != DATABASE_NONE)
            looks[n++] = (struct look){.ordinal = c->answers[i].ordinal, .answer = (uint32_t)i};
    qsort(looks, n, sizeof *looks, by_ordinal);
    for (size_t i = 0; i < n; i++)
        if (!describe(&c->db, &c->answers[looks[i].answer]))
            return false;
    return true;
}

/* The writers, before the answer's own, of the bytes in its value. */
static bool add_old_looks(struct clio_chronicle *c, uint32_t answer, struct look *looks, size_t *n)
{
    const struct clio_write *a = &c->answers[answer];
    uint64_t best[CLIO_VALUE_MAX];
    if (!search(&c->db, a->address, a->value_length, a->ordinal, false, best))
        return false;
    for (uint32_t i = 0; i < a->value_length; i++)
        if (best[i] != DATABASE_NONE)
            looks[(*n)++] = (struct look){.ordinal = best[i], .answer = answer, .byte = i};
    return true;
}

static bool fill_old(struct clio_chronicle *c, const struct look *look)
{
    const struct chunk_slot *slot;
    const struct story_read_write *w;
    struct clio_write *a = &c->answers[look->answer];
    uint64_t address = a->address + look->byte;
    if (!write_at(&c->db, look->ordinal, &slot, &w))
        return false;
    if (!covers(w, address, 1) || w->kind == STORY_MAP || w->kind == STORY_UNMAP)
        return true;
    a->old_known |= 1ull << look->byte;
    return value_of(&c->db, slot, w, address, 1, a->old + look->byte);
}

/* What the bytes held before: the values of their writers below the answer's ordinal. */
static bool describe_old(struct clio_chronicle *c, struct look *looks, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (c->answers[i].value_length && !add_old_looks(c, (uint32_t)i, looks, &n))
            return false;
    qsort(looks, n, sizeof *looks, by_ordinal);
    for (size_t i = 0; i < n; i++)
        if (!fill_old(c, &looks[i]))
            return false;
    return true;
}

/* Makes the answers from the ordinal of each byte. */
static bool collect(struct clio_chronicle *c, uint64_t address, uint64_t length, const uint64_t *best,
                    size_t *count)
{
    *count = 0;
    for (uint64_t i = 0, next; i < length; i = next) {
        for (next = i + 1; next < length && best[next] == best[i];)
            next++;
        struct clio_write *a = add_answer(c, *count);
        if (!a)
            return false;
        *a = (struct clio_write){.address = address + i, .length = next - i, .ordinal = best[i]};
        ++*count;
    }
    struct look *looks = malloc(length * sizeof *looks); /* one for each byte at most */
    if (!looks)
        return database_fault(&c->db, CLIO_FAULT_SYSTEM, ENOMEM, "no memory");
    bool ok = describe_all(c, looks, *count) && describe_old(c, looks, *count);
    free(looks);
    return ok;
}

static bool ask(struct clio_chronicle *c, uint64_t address, uint64_t length, bool first,
                const struct clio_moment *m, const struct clio_write **answers, size_t *count,
                struct clio_error *error)
{
    struct database *d = &c->db;
    uint64_t ordinal = 0;
    d->error = error;
    if (!length || length > CLIO_RANGE_MAX || address > UINT64_MAX - length)
        return database_fault(
            d, CLIO_FAULT_ARGUMENT, 0,
            "cannot ask about %llu bytes at 0x%llx: a range has 1 to %d bytes and ends below 2^64",
            (unsigned long long)length, (unsigned long long)address, CLIO_RANGE_MAX);
    if (!asked_ordinal(d, m, first ? &d->header.from : &d->header.to, &ordinal))
        return false;
    uint64_t *best = malloc(length * sizeof *best);
    if (!best)
        return database_fault(d, CLIO_FAULT_SYSTEM, ENOMEM, "no memory");
    bool ok = search(d, address, length, ordinal, first, best) && collect(c, address, length, best, count);
    free(best);
    *answers = c->answers;
    return ok;
}

bool clio_chronicle_last_write(struct clio_chronicle *c, uint64_t address, uint64_t length,
                               const struct clio_moment *before, const struct clio_write **answers,
                               size_t *count, struct clio_error *error)
{
    return ask(c, address, length, false, before, answers, count, error);
}

bool clio_chronicle_first_write(struct clio_chronicle *c, uint64_t address, uint64_t length,
                                const struct clio_moment *after, const struct clio_write **answers,
                                size_t *count, struct clio_error *error)
{
    return ask(c, address, length, true, after, answers, count, error);
}

bool clio_chronicle_verify(struct clio_chronicle *c, struct clio_error *error)
{
    struct database *d = &c->db;
    uint8_t record[sizeof(struct chron_chunk)];
    bool ok = true;
    d->error = error;
    for (int t = 0; ok && t < TABLE_COUNT; t++)
        for (uint64_t i = 0; ok && i < database_count(d, (enum chron_table)t); i++)
            ok = database_get(d, (enum chron_table)t, i, record);
    for (uint64_t i = 0; ok && i < database_count(d, TABLE_CHUNKS); i++) {
        const struct chunk_slot *slot;
        ok = database_chunk(d, i, &slot);
    }
    for (uint64_t i = 0; ok && i < database_count(d, TABLE_INDEX); i++) {
        const struct index_slot *slot;
        ok = database_index(d, i, &slot);
    }
    for (uint64_t i = 0; ok && i < database_count(d, TABLE_CONTENT); i++) {
        uint8_t byte;
        ok = database_content(d, i * CHRON_CONTENT_BLOCK, &byte, 1);
    }
    return ok;
}
