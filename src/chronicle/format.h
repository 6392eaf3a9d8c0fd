/*
 * format.h: a chronicle file, as it lies on disk; docs/chronicle-format.md says the same byte by byte.
 *
 *     header    one page
 *     blobs     story chunks, content blocks and index blocks, in the order in which they were finished
 *     meta      one blob: trace path, crash record, modules
 *     tables    arrays of fixed-size records in checksummed pages: a lookup verifies only what it reads
 *
 * Everything is little endian. Every byte is covered by a checksum: the header and the table pages by their
 * own last 8 bytes, each blob by its record in a table.
 *
 * The STORY is the log in order: block executions, writes and events, cut into chunks that can be decoded
 * alone (see story.h). Every write, be it by an instruction or one effect of an event, has an ORDINAL: its
 * number in the story, from 0.
 *
 * The INDEX is the sorted set of pairs (key, ordinal). A write of [a, a + n) is cut into PIECES: parts of one
 * aligned granule of 8 bytes, or aligned powers of two from 8 bytes up; each piece has one key:
 *
 *     bits 16..63   page, address >> 12, of the piece's start
 *     bits  7..15   granule in the page
 *     bits  0..6    code: 0..35 the part of one granule (start and length); 36.. a piece of 2^4, 2^5...
 *
 * So a mapping of 1 GiB is a few dozen pairs at most, and the pairs of one page are neighbours. A byte is in
 * at most 20 parts of its granule and one piece of each size, so its last write before an ordinal takes a
 * bounded number of searches, whatever the length of the story.
 */
#ifndef CLIO_CHRONICLE_FORMAT_H
#define CLIO_CHRONICLE_FORMAT_H

#include <stdint.h>
#include <string.h>

#define CHRON_MAGIC "CLIOCHR\n"

enum {
    CHRON_VERSION = 1,
    CHRON_HEADER_SIZE = 4096,
    CHRON_PAGE = 4096,
    CHRON_PAGE_ROOM = CHRON_PAGE - 8,
    CHRON_CONTENT_BLOCK = 256 * 1024,
    CHRON_SHORT = 64, /* longer values live in content blocks */
    CHRON_STREAMS = 4,
};

#define CHRON_ADDRESS_END (1ull << 55) /* written addresses lie below */

enum chron_table {
    TABLE_CHUNKS,  /* struct chron_chunk, ordered by ordinal and moment */
    TABLE_CONTENT, /* struct chron_content: block i holds content bytes from i * CHRON_CONTENT_BLOCK */
    TABLE_INDEX,   /* struct chron_index, ordered by (key, ordinal) */
    TABLE_BLOCKS,  /* struct chron_static, by block number */
    TABLE_LENGTHS, /* uint8_t: instruction lengths of all blocks */
    TABLE_SLOTS,   /* struct chron_slot: static stores of all blocks */
    TABLE_COUNT
};

struct chron_clock {
    uint64_t event, tick, step;
};

struct chron_chunk {
    uint64_t offset;                /* in the file, of the streams, one after the other */
    uint64_t checksum;              /* xxh64 of the stored bytes */
    uint64_t ordinal;               /* of its first write */
    uint64_t content;               /* content bytes before it */
    struct chron_clock clock;       /* where it begins */
    uint32_t writes, executions;    /* of blocks */
    uint32_t stored[CHRON_STREAMS]; /* equal to raw: not compressed; else one zstd frame */
    uint32_t raw[CHRON_STREAMS];
};

struct chron_content {
    uint64_t offset, checksum;
    uint32_t stored, raw;
};

struct chron_index {
    uint64_t key, ordinal; /* of its first pair */
    uint64_t offset, checksum;
    uint32_t stored, raw;
};

struct chron_static {
    uint64_t pc;
    uint32_t lengths, slots; /* first record in TABLE_LENGTHS, TABLE_SLOTS */
    uint32_t ninsns, nslots;
};

/* The j-th store of a block as seen first. Others are told apart in the story. */
struct chron_slot {
    uint16_t index; /* instruction */
    uint8_t size;   /* bytes; 0: a long range */
    uint8_t pad;
};

struct chron_section {
    uint64_t offset, count; /* bytes before the first page; records */
    uint32_t record_size, pad;
};

enum { CHRON_FLAG_CRASH = 1 };

struct chron_header {
    char magic[8];
    uint32_t version, header_size;
    uint64_t required; /* feature bits a reader must know; none defined */
    uint64_t optional; /* feature bits a reader may ignore; none defined */
    uint64_t file_size;
    uint64_t trace_identity; /* xxh64 of TRACE/trace; 0 when that could not be read */
    uint32_t space, flags;
    struct chron_clock from, to;
    uint64_t instructions, executions, writes, events, content; /* content in bytes */
    uint64_t codes[2];                                          /* bit c: some key has code c */
    uint64_t meta_offset, meta_size, meta_checksum;
    struct chron_section tables[TABLE_COUNT];
};

/* The meta blob: struct chron_meta, then the trace's path, then nmodules times (struct chron_module, path).
 */
struct chron_meta {
    uint32_t path_length, nmodules;
    int32_t signo, code; /* crash; all zero without CHRON_FLAG_CRASH */
    uint64_t address;
    struct chron_clock clock;
    uint64_t gpr[16], rip, rflags, fs_base, gs_base;
};

struct chron_module {
    uint64_t start, end, offset;
    uint64_t ordinal; /* number of writes in the story when it was mapped */
    uint8_t hash[32];
    uint32_t path_length, pad;
};

_Static_assert(sizeof(struct chron_chunk) == 96 && sizeof(struct chron_content) == 24, "no hidden padding");
_Static_assert(sizeof(struct chron_index) == 40 && sizeof(struct chron_static) == 24, "no hidden padding");
_Static_assert(sizeof(struct chron_slot) == 4 && sizeof(struct chron_header) <= CHRON_PAGE_ROOM,
               "header fits");

static inline int chron_clock_compare(const struct chron_clock *a, const struct chron_clock *b)
{
    if (a->event != b->event)
        return a->event < b->event ? -1 : 1;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

/* ---- keys ---- */

enum { CODE_PARTS = 36, CODE_LARGEST = CODE_PARTS + 54 - 4, GRANULE = 8 };

/* Parts of a granule, in order of start, then of length: start 0 has codes 0..7, start 1 codes 8..14, ... */
static inline unsigned code_of_part(unsigned start, unsigned length)
{
    return start * 8 - start * (start - 1) / 2 + length - 1;
}
static inline unsigned code_of_level(unsigned level) /* a piece of 2^level bytes, level >= 3 */
{
    return level == 3 ? code_of_part(0, 8) : CODE_PARTS + level - 4;
}
static inline uint64_t key_of(uint64_t address, unsigned code)
{
    return address >> 3 << 7 | code;
}
/* The bytes [*start, *start + *length) of a key. */
static inline void key_extent(uint64_t key, uint64_t *start, uint64_t *length)
{
    unsigned code = key & 127, from = 0;
    *start = key >> 7 << 3;
    if (code >= CODE_PARTS) {
        *length = 16ull << (code - CODE_PARTS);
        return;
    }
    while (from < 7 && code >= code_of_part(from + 1, 1))
        from++;
    *start += from;
    *length = code - code_of_part(from, 1) + 1;
}
/* Cuts the first piece off [address, address + length), length > 0: its code; *size is its length. */
static inline unsigned piece_first(uint64_t address, uint64_t length, uint64_t *size)
{
    unsigned start = address & 7;
    if (start || length < 8) {
        *size = length < 8 - start ? length : 8 - start;
        return code_of_part(start, (unsigned)*size);
    }
    unsigned level = 63 - (unsigned)__builtin_clzll(length);
    unsigned aligned = address ? (unsigned)__builtin_ctzll(address) : 54;
    level = level < aligned ? level : aligned;
    level = level < 54 ? level : 54;
    *size = 1ull << level;
    return code_of_level(level);
}

/* ---- variable-length integers: 7 bits a byte, lowest first, bit 7 set on all but the last; at most 10 bytes
 * ---- */

static inline uint8_t *varint_put(uint8_t *p, uint64_t v)
{
    while (v >= 128) {
        *p++ = (uint8_t)(v | 128);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}
/* Returns the position after it, or NULL when it does not end before `end` or is longer than 64 bits. */
static inline const uint8_t *varint_get(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && p < end; shift += 7) {
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128)) {
            *v = value;
            return p;
        }
    }
    return NULL;
}
static inline uint64_t zigzag(uint64_t v) /* small for small v of either sign */
{
    return v << 1 ^ (uint64_t)((int64_t)v >> 63);
}
static inline uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ -(v & 1);
}

#endif
