/*
 * log.h: the stream of entries that an instrumented replay produces and the chronicle's builder consumes.
 *
 * Entries are 8-byte aligned, in execution order. The first word of each is (kind << 56) | payload. Blocks
 * are described once, by chron_build_block, when they are translated, before their first LOG_BLOCK.
 *
 *   LOG_BLOCK   payload: block number. The block begins. Bit 55 set: entered by a tick (ticks since the
 *               event grow by one, step goes to 0).
 *   LOG_WRITE   payload: (size in bytes << 40) | index of the writing instruction in the block; then the
 *               address, then the bytes now in memory, padded to 8 (1 <= size <= 64).
 *   LOG_RANGE   as LOG_WRITE for stores longer than 64 bytes (rep, xsave): payload index; then address,
 *               length, then the bytes, padded to 8. A length of 0 is allowed and means nothing.
 *   LOG_EVENT   payload: the event's number; then pc, then (flags << 48 | kind << 32 | nr), then result,
 *               then the number of effects E, then E times: address, length, (bytes padded to 8). kind, nr,
 *               flags, pc and result as in struct trace_event. Instructions of the last block from the
 *               event's pc on were not run (but a signal without EVF_SYNC comes after the whole block).
 *               Moment of the event is (payload:0:0).
 *               Mapping changes are effects, too: kind in the top byte of length: 0 memory, 1 mapped (no
 *               bytes follow), 2 unmapped (no bytes follow). Effects come in the order in which they
 *               happened: mappings first.
 *   LOG_MOMENT  payload: event; then tick, then step: sets the clock for the next LOG_BLOCK (which is then
 *               not entered by a tick). Needed as the first entry when the log does not begin with a
 *               LOG_EVENT, and wherever a block was left before its end without an event (retranslation of
 *               code that changes).
 *
 * Time of an instruction: event:tick:step with event the number of the last event before it, tick the number
 * of ticks since that event, step the number of instructions retired since the last tick or event (state "at
 * a moment" is before that instruction). Index i of a block that was entered at step s has step s + i; s
 * continues over blocks that are entered without a tick. A repeated instruction (rep) is one step.
 */
#ifndef CLIO_CHRONICLE_LOG_H
#define CLIO_CHRONICLE_LOG_H

#include <stdint.h>

enum chron_log_kind { LOG_BLOCK = 1, LOG_WRITE, LOG_RANGE, LOG_EVENT, LOG_MOMENT };
#define LOG_KIND_SHIFT   56
#define LOG_BLOCK_TICK   (1ull << 55)
#define LOG_EFFECT_MEM   0ull
#define LOG_EFFECT_MAP   (1ull << 56)
#define LOG_EFFECT_UNMAP (2ull << 56)

/* A basic block's static part. */
struct chron_block {
    uint64_t number; /* dense, from 0 */
    uint64_t pc;
    uint32_t ninsns;
    const uint16_t *lengths; /* of each instruction, in bytes */
};

struct chron_builder; /* build.c */

/*
 * Entry points the engine calls (chronicle/build.c). Builder calls return 0 or -errno; after an error every
 * later call returns it again and chron_build_error says what happened to what. Nothing appears at `path`
 * before chron_build_close succeeds; a builder that is killed leaves nothing behind where the file system has
 * unnamed files (O_TMPFILE), else one file `path`.PID.part.
 */
int chron_build_open(struct chron_builder **b, const char *path, const char *trace_path, uint32_t space);
int chron_build_block(struct chron_builder *b, const struct chron_block *block);
int chron_build_log(struct chron_builder *b, const uint64_t *words, uint64_t count); /* whole entries only */
/* The space's mapped modules at the interval's start and whenever one is mapped: for symbols. hash as in
 * trace_map. */
int chron_build_module(struct chron_builder *b, uint64_t start, uint64_t end, uint64_t offset,
                       const char *path, const uint8_t hash[32]);
struct chron_crash { /* how the space died, when the interval reaches its end */
    int signo, code;
    uint64_t address; /* si_addr */
    uint64_t event, tick, step;
    struct {
        uint64_t gpr[16], rip, rflags, fs_base, gs_base;
    } regs; /* as struct trace_regs */
};
int chron_build_crash(struct chron_builder *b, const struct chron_crash *crash);
/* Interval bounds as moments; closes, syncs and renames the database into place. Frees b in every case. */
int chron_build_close(struct chron_builder *b, const uint64_t from[3], const uint64_t to[3]);
void chron_build_abandon(struct chron_builder *b); /* frees b and everything it wrote */
/* Text for the last error; valid until b is freed. With b NULL: of the last failed open or close. */
const char *chron_build_error(const struct chron_builder *b);

#endif
