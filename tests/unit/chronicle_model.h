/*
 * chronicle_model.h: makes up a random but lawful log for the chronicle's builder and remembers every write
 * of it, so that answers can be compared with a plain search through the list.
 */
#ifndef CLIO_TESTS_CHRONICLE_MODEL_H
#define CLIO_TESTS_CHRONICLE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chronicle/format.h"
#include "chronicle/log.h"
#include "trace/record.h"

enum model_kind { MODEL_STORE, MODEL_MEMORY, MODEL_MAP, MODEL_UNMAP };

struct model_write {
    uint64_t address, length, pc, event;
    enum model_kind kind;
    struct chron_clock clock, before;
    const uint8_t *bytes; /* in the log: valid while the model is */
    uint64_t at;          /* its place in words, until bytes is set */
};

struct model {
    uint64_t random;
    uint64_t *words;
    uint64_t nwords, room;
    struct model_write *writes;
    uint64_t nwrites, writes_room;
    struct chron_clock clock; /* of the next instruction */
    struct chron_block *blocks;
    uint64_t nblocks;
    uint64_t instructions, executions, events;
    bool started;
};

static inline uint64_t model_random(struct model *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}
static inline uint64_t model_below(struct model *m, uint64_t n)
{
    return model_random(m) % n;
}

static inline uint64_t *model_words(struct model *m, uint64_t n)
{
    while (m->nwords + n > m->room) {
        m->room = m->room ? 2 * m->room : 1 << 16;
        m->words = realloc(m->words, m->room * 8);
    }
    m->nwords += n;
    return memset(m->words + m->nwords - n, 0, n * 8);
}

static inline struct model_write *model_write(struct model *m)
{
    if (m->nwrites == m->writes_room) {
        m->writes_room = m->writes_room ? 2 * m->writes_room : 1 << 12;
        m->writes = realloc(m->writes, m->writes_room * sizeof *m->writes);
    }
    return memset(&m->writes[m->nwrites++], 0, sizeof *m->writes);
}

static inline void model_blocks(struct model *m, uint64_t n)
{
    m->blocks = calloc(n, sizeof *m->blocks);
    m->nblocks = n;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t ninsns = 1 + (uint32_t)model_below(m, 20);
        uint16_t *lengths = malloc(ninsns * sizeof *lengths);
        for (uint32_t j = 0; j < ninsns; j++)
            lengths[j] = (uint16_t)(1 + model_below(m, 15));
        m->blocks[i] = (struct chron_block){
            .number = i, .pc = 0x10000000 + i * 0x200, .ninsns = ninsns, .lengths = lengths};
    }
}

static inline uint64_t model_pc(const struct chron_block *b, uint32_t index)
{
    uint64_t pc = b->pc;
    for (uint32_t i = 0; i < index; i++)
        pc += b->lengths[i];
    return pc;
}

/* Mostly a few hot cache lines across a page border, sometimes anywhere in 64 KiB. */
static inline uint64_t model_address(struct model *m)
{
    uint64_t r = model_below(m, 100);
    if (r < 50)
        return 0x110000000fc0 + model_below(m, 128);
    if (r < 90)
        return 0x110000000000 + model_below(m, 0x4000);
    return 0x110000000000 + model_below(m, 0x10000);
}

static inline void model_bytes(struct model *m, uint64_t *to, uint64_t n)
{
    static const uint64_t masks[] = {0, 0xff, 0xffff, 0xffffffff, UINT64_MAX};
    uint64_t mask = masks[model_below(m, 5)];
    for (uint64_t i = 0; i < (n + 7) / 8; i++)
        to[i] = model_random(m) & mask;
}

static inline void model_store(struct model *m, uint64_t block, uint32_t index, uint64_t size)
{
    bool range = size > CHRON_SHORT || model_below(m, 100) == 0;
    uint64_t head = range ? 3 : 2, address = model_address(m);
    uint64_t *w = model_words(m, head + (size + 7) / 8);
    w[0] = (range ? (uint64_t)LOG_RANGE << 56 : (uint64_t)LOG_WRITE << 56 | size << 40) | index;
    w[1] = address;
    if (range)
        w[2] = size;
    model_bytes(m, w + head, size);
    struct model_write *write = model_write(m);
    *write = (struct model_write){.address = address,
                                  .length = size,
                                  .pc = model_pc(&m->blocks[block], index),
                                  .kind = MODEL_STORE,
                                  .clock = m->clock,
                                  .at = m->nwords - (size + 7) / 8};
    write->clock.step += index;
    write->before = write->clock;
}

/* Runs `count` instructions of a block; the clock moves past them. */
static inline void model_block(struct model *m, uint64_t block, bool tick, uint32_t count)
{
    static const uint8_t sizes[] = {1, 2, 4, 8, 8, 8, 8, 4, 16, 32, 64, 3, 10, 28};
    *model_words(m, 1) = (uint64_t)LOG_BLOCK << 56 | (tick ? LOG_BLOCK_TICK : 0) | block;
    if (tick)
        m->clock = (struct chron_clock){m->clock.event, m->clock.tick + 1, 0};
    uint64_t pattern = block * 0x9e3779b97f4a7c15ull;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t size = sizes[(pattern >> (i % 40)) % sizeof sizes];
        if (model_below(m, 200) == 0)
            size = 65 + model_below(m, 9000);
        if (pattern >> (i + 3) % 60 & 1 && model_below(m, 50))
            model_store(m, block, i, size);
    }
    m->clock.step += count;
    m->instructions += count;
    m->executions++;
}

/* An event at pc, with effects; the clock restarts. */
static inline void model_event(struct model *m, uint64_t pc, uint32_t kind, uint32_t flags)
{
    uint64_t effects = model_below(m, 4), number = m->clock.event + 1;
    struct chron_clock before = m->started ? m->clock : (struct chron_clock){number - 1, 0, 0};
    uint64_t *w = model_words(m, 5);
    w[0] = (uint64_t)LOG_EVENT << 56 | number;
    w[1] = pc;
    w[2] = (uint64_t)flags << 48 | (uint64_t)kind << 32 | model_below(m, 300);
    w[3] = model_below(m, 3) ? model_below(m, 100) : -model_below(m, 40);
    w[4] = effects;
    m->clock = (struct chron_clock){.event = number};
    m->started = true;
    m->events++;
    for (uint64_t i = 0; i < effects; i++) {
        enum model_kind what = model_below(m, 3) ? MODEL_MEMORY : model_below(m, 2) ? MODEL_MAP : MODEL_UNMAP;
        uint64_t address = model_address(m),
                 length = model_below(m, 5) ? model_below(m, 200) : model_below(m, 70000);
        if (what != MODEL_MEMORY) {
            address &= ~4095ull;
            length = length ? (length + 4095) & ~4095ull : 0;
            if (model_below(m, 4) == 0)
                length <<= model_below(m, 18);
        }
        uint64_t bytes = what == MODEL_MEMORY ? (length + 7) / 8 : 0;
        w = model_words(m, 2 + bytes);
        w[0] = address;
        w[1] = length | (what == MODEL_MAP     ? LOG_EFFECT_MAP
                         : what == MODEL_UNMAP ? LOG_EFFECT_UNMAP
                                               : LOG_EFFECT_MEM);
        model_bytes(m, w + 2, what == MODEL_MEMORY ? length : 0);
        if (length)
            *model_write(m) = (struct model_write){.address = address,
                                                   .length = length,
                                                   .pc = pc,
                                                   .event = number,
                                                   .kind = what,
                                                   .clock = m->clock,
                                                   .before = before,
                                                   .at = m->nwords - bytes};
    }
}

static inline void model_moment(struct model *m)
{
    uint64_t *w = model_words(m, 3);
    w[0] = (uint64_t)LOG_MOMENT << 56 | m->clock.event;
    w[1] = m->clock.tick;
    w[2] = m->clock.step;
    m->started = true;
}

/* One block run, whole or in part, with what may follow it. */
static inline void model_step(struct model *m)
{
    uint64_t block = model_below(m, 8) ? m->executions % m->nblocks : model_below(m, m->nblocks);
    const struct chron_block *b = &m->blocks[block];
    uint64_t what = model_below(m, 100);
    uint32_t part = (uint32_t)model_below(m, b->ninsns);
    bool tick = model_below(m, 3) == 0;
    if (what < 3) {
        model_block(m, block, tick, part);
        model_event(m, model_pc(b, part), EV_SIGNAL, EVF_SYNC);
    } else if (what < 6) {
        model_block(m, block, tick, b->ninsns - 1);
        model_event(m, model_pc(b, b->ninsns - 1), EV_SYSCALL, 0);
    } else if (what < 7) {
        model_block(m, block, tick, b->ninsns);
        model_event(m, b->pc, EV_SIGNAL, 0);
    } else if (what < 8) {
        model_block(m, block, tick, part);
        model_moment(m);
    } else {
        model_block(m, block, tick, b->ninsns);
    }
}

/* A log of `steps` block runs; seed is not 0. */
static inline void model_make(struct model *m, uint64_t seed, uint64_t nblocks, uint64_t steps)
{
    *m = (struct model){.random = seed};
    model_blocks(m, nblocks);
    m->clock.event = model_below(m, 1000);
    if (seed & 1) {
        model_event(m, 0x1234, EV_START, 0);
    } else {
        m->clock.tick = model_below(m, 10);
        m->clock.step = model_below(m, 10);
        model_moment(m);
    }
    for (uint64_t i = 0; i < steps; i++)
        model_step(m);
    for (uint64_t i = 0; i < m->nwrites; i++)
        m->writes[i].bytes = (const uint8_t *)(m->words + m->writes[i].at);
}

static inline void model_free(struct model *m)
{
    for (uint64_t i = 0; i < m->nblocks; i++)
        free((void *)m->blocks[i].lengths);
    free(m->blocks);
    free(m->words);
    free(m->writes);
}

/* Builds the model's chronicle at path. 0 or the builder's error. */
static inline int model_build(struct model *m, const char *path)
{
    struct chron_builder *b;
    uint64_t from[3] = {0}, to[3] = {m->clock.event, m->clock.tick, m->clock.step};
    int rc = chron_build_open(&b, path, "/nonexistent/trace", 7);
    if (rc)
        return rc;
    for (uint64_t i = 0; !rc && i < m->nblocks; i++)
        rc = chron_build_block(b, &m->blocks[i]);
    if (!rc)
        rc = chron_build_log(b, m->words, m->nwords);
    if (!rc)
        return chron_build_close(b, from, to);
    chron_build_abandon(b);
    return rc;
}

static inline bool model_happened(const struct model_write *w, const struct chron_clock *at)
{
    int order = chron_clock_compare(&w->clock, at);
    return w->kind == MODEL_STORE ? order < 0 : order <= 0;
}

/* The last write to a byte below write number `limit`, or NULL. */
static inline const struct model_write *model_last(const struct model *m, uint64_t address, uint64_t limit)
{
    while (limit-- > 0) {
        const struct model_write *w = &m->writes[limit];
        if (address >= w->address && address - w->address < w->length)
            return w;
    }
    return NULL;
}
static inline const struct model_write *model_first(const struct model *m, uint64_t address, uint64_t from)
{
    for (; from < m->nwrites; from++) {
        const struct model_write *w = &m->writes[from];
        if (address >= w->address && address - w->address < w->length)
            return w;
    }
    return NULL;
}
/* The number of writes that had happened at a moment. */
static inline uint64_t model_ordinal(const struct model *m, const struct chron_clock *at)
{
    uint64_t n = 0;
    while (n < m->nwrites && model_happened(&m->writes[n], at))
        n++;
    return n;
}

#endif
