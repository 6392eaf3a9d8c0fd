/*
 * story.h: the story of a chronicle: the log, compressed in chunks that can be decoded alone.
 *
 * Both sides predict from what the chunk has said so far and store only what the prediction misses; the
 * static stores of blocks (TABLE_SLOTS) are known to both from the start. A chunk begins at a block entry, or
 * at the story's first entry, and has four streams:
 *
 *   flow     varints. A token t: t & 3 is its type, t >> 2 its argument n:
 *              0  n executions of the predicted block with the predicted number of writes
 *              1  an execution of symbol n (block << 1 | entered by a tick), number of writes as predicted
 *              2  the same; the number of writes follows
 *              3  n = 0: an event; zigzag(number - clock.event), kind, nr, flags, pc, zigzag(result),
 *                 the number of effects, then for each effect length << 2 | kind
 *                 n = 1: the clock is set: event, tick, step
 *            The predicted block is the one that followed the last execution of the preceding block, the
 *            predicted number of writes that of the block's last execution.
 *   control  one byte a write: bits 0-2 enum address_mode, bits 3-5 enum value_mode, bit 6: not the
 *            block's static store, bit 7: longer than CHRON_SHORT, the value is in the content blocks
 *   address  per write: with bit 6, index (2 bytes) and size (1; 0: a range); the bytes of the address
 *            mode; for a range of an instruction, its length as a varint
 *   value    per write of at most CHRON_SHORT bytes: the bytes of the value mode
 *
 * Each static store has a state: its last address, the last change of that, and its last value. Effects of
 * events, and stores beyond the static ones, share one state.
 */
#ifndef CLIO_CHRONICLE_STORY_H
#define CLIO_CHRONICLE_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chronicle/format.h"

enum { STREAM_FLOW, STREAM_CONTROL, STREAM_ADDRESS, STREAM_VALUE };
enum flow_token { FLOW_HITS, FLOW_BLOCK, FLOW_BLOCK_COUNT, FLOW_OTHER };
enum { FLOW_OTHER_EVENT, FLOW_OTHER_MOMENT };

/* How an address is told. In brackets: the bytes that follow. */
enum address_mode {
    ADDRESS_STRIDE,    /* [0] last address + its last change */
    ADDRESS_NEAR,      /* [1] signed difference to the store's last address */
    ADDRESS_BESIDE,    /* [1] signed difference to the last write of any store */
    ADDRESS_16,        /* [2] signed difference to the store's last address */
    ADDRESS_32,        /* [4] the same */
    ADDRESS_BESIDE_32, /* [4] signed difference to the last write of any store */
    ADDRESS_FULL       /* [8] */
};

/* How a value is told; all but ZERO and RAW only for values of at most 8 bytes. */
enum value_mode {
    VALUE_SAME, /* [0] as the store's last value */
    VALUE_ZERO, /* [0] */
    VALUE_NEAR, /* [1] signed difference to the last value */
    VALUE_8,    /* [1], [2], [4] the value, the rest is zero */
    VALUE_16,
    VALUE_32,
    VALUE_RAW,    /* all of it */
    VALUE_NEAR_32 /* [4] signed difference to the last value; values of 8 bytes */
};

enum { CONTROL_EXPLICIT = 64, CONTROL_LONG = 128 };
enum { STORY_SLOTS_MAX = 64 /* static stores of a block */ };
#define STORY_NONE UINT32_MAX

/* What is known of one store; `chunk` says for which chunk it is valid (each begins with zeros). */
struct story_store {
    uint64_t address, change, value;
    uint32_t chunk;
    struct chron_slot fixed; /* what the block's static store is */
};

static inline uint64_t story_mask(unsigned size)
{
    return size >= 8 ? ~0ull : (1ull << 8 * size) - 1;
}

/*
 * The index in the block of the instruction at pc, or ninsns when no instruction of it begins there.
 */
static inline uint32_t story_index_of(uint64_t block_pc, const uint8_t *lengths, uint32_t ninsns, uint64_t pc)
{
    uint32_t i = 0;
    while (i < ninsns && block_pc != pc)
        block_pc += lengths[i++];
    return i;
}

/* ---- writing ---- */

struct story_block {
    uint32_t ninsns, slots; /* first of its room in `stores` */
    uint16_t nslots, room;
    uint32_t next, count; /* predictions, valid for `chunk` */
    uint32_t chunk;
};

struct story_writer {
    struct story_block *blocks;
    struct story_store *stores;
    uint64_t nblocks, blocks_room, nslots, slots_room;
    struct story_store shared;
    uint8_t *start[CHRON_STREAMS], *at[CHRON_STREAMS], *limit[CHRON_STREAMS];
    uint64_t last_address;
    uint64_t hits;
    uint32_t chunk;              /* number of the chunk being written, from 1 */
    uint32_t previous, current;  /* blocks or STORY_NONE */
    uint32_t symbol, count;      /* of the current execution */
    uint32_t writes, executions; /* in this chunk */
};

int story_writer_init(struct story_writer *w); /* 0 or -ENOMEM */
void story_writer_free(struct story_writer *w);
int story_add_block(struct story_writer *w, uint32_t ninsns);
/* The next entry is a block's. Ends the execution before it. */
int story_block(struct story_writer *w, uint32_t number, bool tick);
/*
 * A write by instruction `index`; size 0: a range of `length` bytes. bytes: not looked at when longer than
 * CHRON_SHORT; else padded to a multiple of 8, as in the log.
 */
int story_write(struct story_writer *w, unsigned index, unsigned size, uint64_t address, uint64_t length,
                const void *bytes);
struct story_event {
    uint64_t number, pc, result, neffects;
    uint32_t kind, nr, flags;
};
/* Ends the execution; `lengths` has an entry (length << 2 | kind) per effect; the effects follow in order. */
int story_event(struct story_writer *w, uint64_t clock_event, const struct story_event *e,
                const uint64_t *lengths);
int story_effect(struct story_writer *w, uint64_t address, uint64_t length, const void *bytes);
int story_moment(struct story_writer *w, const struct chron_clock *clock);
/* Ends the chunk: its streams are start[i]..at[i] until story_restart, which begins the next one. */
int story_cut(struct story_writer *w);
void story_restart(struct story_writer *w);

/* ---- reading ---- */

enum story_kind {
    STORY_STORE,
    STORY_MEMORY,
    STORY_MAP,
    STORY_UNMAP
}; /* the last three: effects of an event */

struct story_read_write { /* one decoded write */
    uint64_t address, length;
    uint64_t place;  /* of the value: in `values` up to CHRON_SHORT bytes, else the content position */
    uint32_t source; /* STORY_STORE: block number; else which of `events` */
    uint16_t index;  /* STORY_STORE: instruction */
    uint16_t kind;   /* enum story_kind */
    struct chron_clock clock; /* of the instruction; of an event: event:0:0 */
};

struct story_read_event {
    struct story_event event;
    struct chron_clock before; /* the moment at which the event came, counted from the event before it */
};

struct story_decoded {
    struct story_read_write *writes;
    struct story_read_event *events;
    uint8_t *values;
    uint32_t nwrites, nevents;
    uint64_t values_used, events_room, values_room, writes_room;
};

/* The blocks as a reader sees them, with the state of predictions. */
struct story_reader {
    void *context;
    /* Static parts; return 0 or an error that story_decode passes on. */
    int (*block)(void *context, uint32_t number, struct chron_static *out);
    int (*slot)(void *context, uint32_t slot, struct chron_slot *out);
    int (*lengths)(void *context, const struct chron_static *block, uint8_t *out);
    struct story_known {
        struct chron_static fixed;
        uint32_t next, count, chunk;
    } * blocks;
    struct story_store *stores;
    uint64_t nblocks, nslots;
    uint32_t chunk;
};

/*
 * Decodes a chunk; `streams` have the lengths chunk->raw. Returns 0, -ENOMEM, -EBADMSG for bytes that are no
 * chunk, or the error of a callback. On an error `out` is empty. The memory of `out` (zero at first) is used
 * again.
 */
int story_decode(struct story_reader *r, const struct chron_chunk *chunk,
                 const uint8_t *const streams[CHRON_STREAMS], struct story_decoded *out);
void story_decoded_free(struct story_decoded *d);

#endif
