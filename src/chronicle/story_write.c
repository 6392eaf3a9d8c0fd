/* story_write.c: encodes the log into chunks; see story.h for the format. */
#include "chronicle/story.h"

#include <errno.h>
#include <stdlib.h>

enum { STREAM_ROOM = 1 << 16, ENTRY_MAX = 128 /* bytes that one write adds to a stream at most */ };

int story_writer_init(struct story_writer *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < CHRON_STREAMS; i++) {
        w->start[i] = malloc(STREAM_ROOM);
        if (!w->start[i])
            return -ENOMEM;
        w->limit[i] = w->start[i] + STREAM_ROOM;
    }
    story_restart(w);
    return 0;
}

void story_writer_free(struct story_writer *w)
{
    for (int i = 0; i < CHRON_STREAMS; i++)
        free(w->start[i]);
    free(w->blocks);
    free(w->stores);
}

void story_restart(struct story_writer *w)
{
    for (int i = 0; i < CHRON_STREAMS; i++)
        w->at[i] = w->start[i];
    memset(&w->shared, 0, sizeof w->shared);
    w->chunk++;
    w->shared.chunk = w->chunk;
    w->previous = w->current = STORY_NONE;
    w->writes = w->executions = 0;
    w->last_address = 0;
}

/* Makes room for `bytes` more in a stream. */
static int widen(struct story_writer *w, int stream, size_t bytes)
{
    size_t used = (size_t)(w->at[stream] - w->start[stream]);
    size_t room = (size_t)(w->limit[stream] - w->start[stream]);
    while (room - used < bytes)
        room *= 2;
    uint8_t *p = realloc(w->start[stream], room);
    if (!p)
        return -ENOMEM;
    w->start[stream] = p;
    w->at[stream] = p + used;
    w->limit[stream] = p + room;
    return 0;
}

static inline int reserve(struct story_writer *w, int stream, size_t bytes)
{
    if (__builtin_expect((size_t)(w->limit[stream] - w->at[stream]) >= bytes, 1))
        return 0;
    return widen(w, stream, bytes);
}

static inline void flow(struct story_writer *w, uint64_t value)
{
    w->at[STREAM_FLOW] = varint_put(w->at[STREAM_FLOW], value);
}

int story_add_block(struct story_writer *w, uint32_t ninsns)
{
    if (w->nblocks == w->blocks_room) {
        uint64_t room = w->blocks_room ? 2 * w->blocks_room : 4096;
        struct story_block *p = realloc(w->blocks, room * sizeof *p);
        if (!p)
            return -ENOMEM;
        w->blocks = p;
        w->blocks_room = room;
    }
    w->blocks[w->nblocks++] = (struct story_block){.ninsns = ninsns};
    return 0;
}

static inline struct story_block *block_at(struct story_writer *w, uint32_t number)
{
    struct story_block *b = &w->blocks[number];
    if (b->chunk != w->chunk) {
        b->chunk = w->chunk;
        b->next = b->count = STORY_NONE;
    }
    return b;
}

static void flush_hits(struct story_writer *w)
{
    if (w->hits)
        flow(w, w->hits << 2 | FLOW_HITS);
    w->hits = 0;
}

/* Writes down the execution that is over. */
static int end_execution(struct story_writer *w)
{
    if (w->current == STORY_NONE)
        return 0;
    int rc = reserve(w, STREAM_FLOW, ENTRY_MAX);
    if (rc)
        return rc;
    struct story_block *b = block_at(w, w->current);
    uint32_t predicted = STORY_NONE;
    if (w->previous != STORY_NONE) {
        struct story_block *previous = block_at(w, w->previous);
        predicted = previous->next;
        previous->next = w->symbol;
    }
    if (predicted == w->symbol && b->count == w->count) {
        w->hits++;
    } else {
        flush_hits(w);
        bool counted = b->count != w->count;
        flow(w, (uint64_t)w->symbol << 2 | (counted ? FLOW_BLOCK_COUNT : FLOW_BLOCK));
        if (counted)
            flow(w, w->count);
        b->count = w->count;
    }
    w->previous = w->current;
    w->current = STORY_NONE;
    w->executions++;
    return 0;
}

int story_block(struct story_writer *w, uint32_t number, bool tick)
{
    int rc = end_execution(w);
    const struct story_block *b = &w->blocks[number];
    __builtin_prefetch(&w->stores[b->slots], 1);
    __builtin_prefetch(&w->blocks[b->next >> 1], 1); /* likely the next one; a wild address does no harm */
    w->current = number;
    w->symbol = number << 1 | tick;
    w->count = 0;
    return rc;
}

/* Gives the block room for one more static store. */
static int grow_slots(struct story_writer *w, struct story_block *b)
{
    uint32_t room = b->room ? 2u * b->room : 2;
    if (w->nslots + room > UINT32_MAX)
        return -EOVERFLOW;
    if (w->nslots + room > w->slots_room) {
        uint64_t all = w->slots_room ? 2 * w->slots_room : 16384;
        struct story_store *stores = realloc(w->stores, all * sizeof *stores);
        if (!stores)
            return -ENOMEM;
        w->stores = stores;
        w->slots_room = all;
    }
    if (b->nslots)
        memcpy(w->stores + w->nslots, w->stores + b->slots, b->nslots * sizeof *w->stores);
    b->slots = (uint32_t)w->nslots;
    b->room = (uint16_t)room;
    w->nslots += room;
    return 0;
}

/* The state of the execution's next store; *explicit when it is not the block's static one. */
static inline struct story_store *store_for(struct story_writer *w, unsigned index, unsigned size,
                                            bool *explicit)
{
    struct story_block *b = &w->blocks[w->current];
    uint32_t j = w->count;
    *explicit = true;
    if (j >= STORY_SLOTS_MAX)
        return &w->shared;
    if (j == b->nslots) {
        if (j == b->room && grow_slots(w, b))
            return NULL;
        w->stores[b->slots + j] =
            (struct story_store){.fixed = {.index = (uint16_t)index, .size = (uint8_t)size}};
        b->nslots++;
    }
    struct story_store *s = &w->stores[b->slots + j];
    *explicit = s->fixed.index != index || s->fixed.size != size;
    if (s->chunk != w->chunk)
        *s = (struct story_store){.chunk = w->chunk, .fixed = s->fixed};
    return s;
}

static inline bool fits(uint64_t difference, int bits)
{
    return difference + (1ull << (bits - 1)) < 1ull << bits;
}

/* Appends the n lowest bytes of a word. Stores all 8: there is room, and the next entry overwrites. */
static inline void append(struct story_writer *w, int stream, uint64_t word, unsigned n)
{
    memcpy(w->at[stream], &word, 8);
    w->at[stream] += n;
}

static unsigned put_address(struct story_writer *w, struct story_store *s, uint64_t address)
{
    uint64_t change = address - s->address, beside = address - w->last_address;
    s->address = address;
    w->last_address = address;
    if (change == s->change)
        return ADDRESS_STRIDE;
    s->change = change;
    if (fits(change, 8)) {
        append(w, STREAM_ADDRESS, change, 1);
        return ADDRESS_NEAR;
    }
    if (fits(beside, 8)) {
        append(w, STREAM_ADDRESS, beside, 1);
        return ADDRESS_BESIDE;
    }
    if (fits(change, 16)) {
        append(w, STREAM_ADDRESS, change, 2);
        return ADDRESS_16;
    }
    if (fits(change, 32)) {
        append(w, STREAM_ADDRESS, change, 4);
        return ADDRESS_32;
    }
    if (fits(beside, 32)) {
        append(w, STREAM_ADDRESS, beside, 4);
        return ADDRESS_BESIDE_32;
    }
    append(w, STREAM_ADDRESS, address, 8);
    return ADDRESS_FULL;
}

static unsigned put_word(struct story_writer *w, struct story_store *s, uint64_t value, unsigned size)
{
    uint64_t difference = value - s->value;
    s->value = value;
    if (!difference)
        return VALUE_SAME;
    if (!value)
        return VALUE_ZERO;
    if (value < 256) {
        append(w, STREAM_VALUE, value, 1);
        return VALUE_8;
    }
    if (fits(difference, 8)) {
        append(w, STREAM_VALUE, difference, 1);
        return VALUE_NEAR;
    }
    if (value < 1u << 16) {
        append(w, STREAM_VALUE, value, 2);
        return VALUE_16;
    }
    if (value <= UINT32_MAX) {
        append(w, STREAM_VALUE, value, 4);
        return VALUE_32;
    }
    if (size == 8 && fits(difference, 32)) {
        append(w, STREAM_VALUE, difference, 4);
        return VALUE_NEAR_32;
    }
    append(w, STREAM_VALUE, value, size);
    return VALUE_RAW;
}

static unsigned put_value(struct story_writer *w, struct story_store *s, const uint8_t *bytes, unsigned size)
{
    if (size <= 8) {
        uint64_t value;
        memcpy(&value, bytes, 8);
        return put_word(w, s, value & story_mask(size), size);
    }
    unsigned any = 0;
    for (unsigned i = 0; i < size; i++)
        any |= bytes[i];
    if (!any)
        return VALUE_ZERO;
    memcpy(w->at[STREAM_VALUE], bytes, size);
    w->at[STREAM_VALUE] += size;
    return VALUE_RAW;
}

static int reserve_write(struct story_writer *w)
{
    int rc = reserve(w, STREAM_CONTROL, 1);
    if (!rc)
        rc = reserve(w, STREAM_ADDRESS, ENTRY_MAX);
    if (!rc)
        rc = reserve(w, STREAM_VALUE, ENTRY_MAX);
    return rc;
}

int story_write(struct story_writer *w, unsigned index, unsigned size, uint64_t address, uint64_t length,
                const void *bytes)
{
    int rc = reserve_write(w);
    if (rc)
        return rc;
    bool explicit;
    struct story_store *s = store_for(w, index, size, &explicit);
    if (!s)
        return -ENOMEM;
    unsigned control = 0;
    if (explicit) {
        append(w, STREAM_ADDRESS, index | size << 16, 3);
        control = CONTROL_EXPLICIT;
    }
    control |= put_address(w, s, address);
    if (!size)
        w->at[STREAM_ADDRESS] = varint_put(w->at[STREAM_ADDRESS], length);
    if (length <= CHRON_SHORT)
        control |= put_value(w, s, bytes, (unsigned)length) << 3;
    else
        control |= CONTROL_LONG;
    *w->at[STREAM_CONTROL]++ = (uint8_t)control;
    w->count++;
    w->writes++;
    return 0;
}

int story_event(struct story_writer *w, uint64_t clock_event, const struct story_event *e,
                const uint64_t *lengths)
{
    int rc = end_execution(w);
    if (!rc)
        rc = reserve(w, STREAM_FLOW, ENTRY_MAX + e->neffects * 10);
    if (rc)
        return rc;
    flush_hits(w);
    flow(w, FLOW_OTHER_EVENT << 2 | FLOW_OTHER);
    flow(w, zigzag(e->number - clock_event));
    flow(w, e->kind);
    flow(w, e->nr);
    flow(w, e->flags);
    flow(w, e->pc);
    flow(w, zigzag(e->result));
    flow(w, e->neffects);
    for (uint64_t i = 0; i < e->neffects; i++)
        flow(w, lengths[i]);
    return 0;
}

int story_effect(struct story_writer *w, uint64_t address, uint64_t length, const void *bytes)
{
    int rc = reserve_write(w);
    if (rc)
        return rc;
    unsigned control = put_address(w, &w->shared, address);
    if (!bytes)
        control |= CONTROL_LONG;
    else
        control |= put_value(w, &w->shared, bytes, (unsigned)length) << 3;
    *w->at[STREAM_CONTROL]++ = (uint8_t)control;
    w->writes++;
    return 0;
}

int story_moment(struct story_writer *w, const struct chron_clock *clock)
{
    int rc = end_execution(w);
    if (!rc)
        rc = reserve(w, STREAM_FLOW, ENTRY_MAX);
    if (rc)
        return rc;
    flush_hits(w);
    flow(w, FLOW_OTHER_MOMENT << 2 | FLOW_OTHER);
    flow(w, clock->event);
    flow(w, clock->tick);
    flow(w, clock->step);
    return 0;
}

int story_cut(struct story_writer *w)
{
    int rc = end_execution(w);
    if (!rc)
        rc = reserve(w, STREAM_FLOW, ENTRY_MAX);
    if (!rc)
        flush_hits(w);
    return rc;
}
