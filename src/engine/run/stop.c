/* stop.c: see stop.h. */
#include "engine/run/stop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "chronicle/log.h"
#include "engine/event/event.h"
#include "engine/guest/layout.h"
#include "engine/memory/space.h"
#include "engine/run/replay.h"
#include "engine/translate/instrument.h"
#include "engine/translate/translate.h"

/* ---- the way to a space ---- */

static struct step { /* at event `event` of `space`, go on as `child` */
    uint32_t space, child;
    uint64_t event;
} * steps;
static uint32_t nsteps;

static const struct clio_space_info *find_space(const struct clio_space_info *all, size_t n, uint32_t space)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].space == space)
            return &all[i];
    replay_fail("the trace has no space %u", space);
}

uint32_t stop_plan(struct clio_source *source, uint32_t space)
{
    const struct clio_space_info *all;
    size_t n;
    struct clio_error error;
    if (!clio_source_spaces(source, &all, &n, &error))
        replay_fail("%s", error.text);
    const struct clio_space_info *at = find_space(all, n, space);
    while (at->origin == CLIO_ORIGIN_FORK) {
        steps = realloc(steps, (nsteps + 1) * sizeof *steps);
        if (!steps)
            replay_fail("out of memory");
        steps[nsteps++] = (struct step){at->parent, at->space, at->parent_event};
        at = find_space(all, n, at->parent);
    }
    return at->space;
}

uint32_t stop_becomes(uint32_t space, uint64_t event)
{
    for (uint32_t i = 0; i < nsteps; i++)
        if (steps[i].space == space && steps[i].event == event)
            return steps[i].child;
    return 0;
}

/* ---- the interval ---- */

static struct {
    bool wanted, active;
    uint32_t space;
    struct stop_interval interval;
    struct chron_builder *builder;
    uint64_t planned; /* tick at which the budget ends for the interval's sake; 0: none */
} chron;

void stop_interval_set(uint32_t space, const struct stop_interval *interval)
{
    chron.wanted = true;
    chron.space = space;
    chron.interval = *interval;
}

static void build(int error, const char *what)
{
    if (!error)
        return;
    char text[1200];
    snprintf(text, sizeof text, "cannot %s: %s", what, chron_build_error(chron.builder));
    chron_build_abandon(chron.builder);
    chron.builder = NULL;
    replay_fail("%s", text);
}

static void flush_log(struct task *t)
{
    uint64_t *words = (uint64_t *)INSTRUMENT_LOG_LOW;
    uint64_t count = (t->log_pointer - INSTRUMENT_LOG_LOW) / 8;
    t->log_pointer = INSTRUMENT_LOG_LOW;
    if (count && chron.builder)
        build(chron_build_log(chron.builder, words, count), "write the chronicle");
}

static void describe_block(const struct chron_block *block)
{
    if (chron.builder)
        build(chron_build_block(chron.builder, block), "write the chronicle");
}

/* One entry of several words and bytes, put together in a buffer that is kept. */
static uint64_t *entry;
static uint64_t entry_words, entry_capacity;

static uint64_t *entry_room(uint64_t words)
{
    if (entry_words + words > entry_capacity) {
        entry_capacity = 2 * (entry_words + words);
        entry = realloc(entry, entry_capacity * 8);
        if (!entry)
            replay_fail("out of memory");
    }
    uint64_t *at = entry + entry_words;
    entry_words += words;
    return at;
}

static void put_word(uint64_t word)
{
    *entry_room(1) = word;
}

static void put_bytes(const void *bytes, uint64_t n)
{
    uint64_t words = (n + 7) / 8;
    uint64_t *at = entry_room(words);
    if (words)
        at[words - 1] = 0;
    memcpy(at, bytes, n);
}

static void send_entry(void)
{
    build(chron_build_log(chron.builder, entry, entry_words), "write the chronicle");
    entry_words = 0;
}

static void log_range(struct task *t, uint32_t index, uint64_t address, uint64_t size)
{
    flush_log(t);
    put_word((uint64_t)LOG_RANGE << LOG_KIND_SHIFT | index);
    put_word(address);
    put_word(size);
    put_bytes((const void *)address, size);
    send_entry();
}

static void describe_modules_in(uint64_t low, uint64_t high)
{
    const struct space *s = &guest_space;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vma *v = &s->vmas[i];
        if (v->file && v->start < high && v->end > low)
            build(
                chron_build_module(chron.builder, v->start, v->end, v->offset, v->file->path, v->file->hash),
                "describe a module");
    }
}

static void begin(struct task *t, struct moment at)
{
    LOG(chronicle, "instrumenting from %lu:%lu", (unsigned long)at.event, (unsigned long)at.tick);
    int error = chron_build_open(&chron.builder, chron.interval.out, chron.interval.trace, chron.space);
    if (error)
        replay_fail("%s", chron_build_error(NULL));
    chron.active = true;
    instrument_sink = (struct instrument_sink){flush_log, log_range, describe_block};
    instrument_begin(t);
    translate_options.instrument = true;
    cache_unshare("it is instrumented");
    cache_flush();
    describe_modules_in(0, USER_END);
    put_word((uint64_t)LOG_MOMENT << LOG_KIND_SHIFT | at.event);
    put_word(at.tick);
    put_word(0);
    send_entry();
}

static _Noreturn void finish(struct task *t)
{
    const struct moment *from = &chron.interval.from, *to = &chron.interval.to;
    flush_log(t);
    if (chron_build_close(chron.builder, (const uint64_t[3]){from->event, from->tick, from->step},
                          (const uint64_t[3]){to->event, to->tick, to->step}))
        replay_fail("cannot finish %s: %s", chron.interval.out, chron_build_error(NULL));
    _exit(EXIT_DONE);
}

/* ---- ticks ---- */

static void plan(struct task *t, uint64_t tick)
{
    int64_t ticks = (int64_t)task_ticks(t), left = (int64_t)tick - ticks - 1;
    if (left < 0 || left >= t->budget)
        return; /* the next event comes first */
    t->budget = left;
    t->tick_base = ticks + left;
    chron.planned = tick;
}

void stop_set_budget(struct task *t, uint64_t done, uint64_t next)
{
    const struct stop_interval *i = &chron.interval;
    chron.planned = 0;
    if (!chron.wanted || engine.space_number != chron.space)
        return;
    if (chron.active && done > i->to.event)
        finish(t);
    if (!chron.active && done >= i->from.event) {
        if (done == i->from.event && i->from.tick)
            plan(t, i->from.tick);
        else
            begin(t, (struct moment){done, 0, 0});
    }
    if (chron.active && done == i->to.event)
        plan(t, i->to.tick + 1);
}

bool stop_reached(struct task *t, uint64_t event_tick)
{
    uint64_t tick = task_ticks(t);
    if (!chron.planned || tick != chron.planned) {
        if (chron.active)
            t->log_flags |= LOG_BLOCK_TICK; /* the tick that led here; an event clears it */
        return false;
    }
    chron.planned = 0;
    if (chron.active)
        finish(t);
    begin(t, (struct moment){chron.interval.from.event, tick, 0});
    /* as after any event, so that even dead flags agree with the recording's */
    int64_t ticks = (int64_t)tick;
    t->tick_base = event_tick ? (int64_t)event_tick - 1 : BUDGET_FULL;
    t->budget = t->tick_base - ticks;
    if (chron.interval.to.event == chron.interval.from.event)
        plan(t, chron.interval.to.tick + 1);
    return event_tick != tick;
}

/* ---- events ---- */

static bool moves_memory(const struct trace_map *m)
{
    return m->op != MAP_OP_PROTECT && m->op != MAP_OP_RESIZE && m->op != MAP_OP_CHECK;
}

static void put_effects(const struct trace_item *item)
{
    const uint8_t *bytes = item->bytes;
    for (uint32_t i = 0; i < item->nmaps; i++) {
        const struct trace_map *m = item->maps[i];
        if (m->op == MAP_OP_MOVE) {
            put_word(m->offset);
            put_word(m->aux | LOG_EFFECT_UNMAP);
        }
        if (!moves_memory(m))
            continue;
        put_word(m->addr);
        put_word(m->len | (m->op == MAP_OP_UNMAP ? LOG_EFFECT_UNMAP : LOG_EFFECT_MAP));
    }
    for (uint32_t i = 0; i < item->event->neffects; i++) {
        const struct trace_effect *e = &item->effects[i];
        put_word(e->addr);
        put_word(e->len | LOG_EFFECT_MEM);
        if (e->flags & EFF_ZERO)
            put_bytes((const void *)e->addr, e->len);
        else
            put_bytes(bytes, e->len);
        bytes += e->flags & EFF_ZERO ? 0 : e->len;
    }
}

static uint64_t count_effects(const struct trace_item *item)
{
    uint64_t n = item->event->neffects;
    for (uint32_t i = 0; i < item->nmaps; i++)
        n += item->maps[i]->op == MAP_OP_MOVE ? 2 : moves_memory(item->maps[i]);
    return n;
}

static void note_crash(const struct trace_item *item)
{
    const struct trace_ev_signal *s = item->part;
    struct chron_crash crash = {.event = item->number};
    memcpy(&crash.signo, s->siginfo, 4); /* siginfo_t: signo, errno, code, then for faults the address */
    memcpy(&crash.code, s->siginfo + 8, 4);
    memcpy(&crash.address, s->siginfo + 16, 8);
    memcpy(&crash.regs, &s->regs, sizeof crash.regs);
    build(chron_build_crash(chron.builder, &crash), "write the chronicle");
}

void stop_event(struct task *t, const struct trace_item *item)
{
    const struct trace_event *e = item->event;
    if (!chron.active)
        return;
    flush_log(t);
    t->log_flags &= ~LOG_BLOCK_TICK;
    put_word((uint64_t)LOG_EVENT << LOG_KIND_SHIFT | item->number);
    put_word(e->pc);
    put_word((uint64_t)e->rec.flags << 48 | (uint64_t)e->rec.kind << 32 | e->nr);
    put_word((uint64_t)e->result);
    put_word(count_effects(item));
    put_effects(item);
    send_entry();
    for (uint32_t i = 0; i < item->nmaps; i++)
        if (item->maps[i]->op == MAP_OP_FILE)
            describe_modules_in(item->maps[i]->addr, item->maps[i]->addr + item->maps[i]->len);
    if (e->rec.kind == EV_SIGNAL && (e->rec.flags & EVF_FATAL))
        note_crash(item);
}

void stop_at_end(void)
{
    if (!chron.wanted)
        return;
    if (!chron.active)
        replay_fail("the recording ends before the interval begins");
    finish(engine.task);
}
