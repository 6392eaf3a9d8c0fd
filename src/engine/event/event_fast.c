/*
 * event_fast.c: events into the ring. FAST: see Makefile.
 *
 * Order of stores: DATA and MAP records, then the EV_ record, then head with release. A piece of data too
 * large for the free room is published in parts; a reader ignores data that no event follows.
 */
#include "engine/event/event.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#include "engine/guest/access.h"
#include "engine/guest/layout.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "protocol/store.h"

enum { INLINE_MAX = 512, ZERO_MIN = 256 };

static uint8_t *ring_data(void)
{
    return (uint8_t *)engine.ring + RING_HEADER_SIZE;
}

static inline __attribute__((always_inline)) void add(struct effects *e, uint64_t addr, uint64_t len,
                                                      uint32_t flags)
{
    struct trace_effect *last = e->v + e->count - 1;
    if (!len)
        return;
    if (e->count && last->addr + last->len == addr && last->flags == flags && last->len + len <= UINT32_MAX) {
        last->len += (uint32_t)len;
        return;
    }
    for (; len; e->count++) {
        if (e->count == e->capacity)
            effects_grow(e);
        uint32_t n = len > (1u << 30) ? 1u << 30 : (uint32_t)len;
        e->v[e->count] = (struct trace_effect){addr, n, flags};
        addr += n;
        len -= n;
    }
}

void effect_add(struct task *t, uint64_t addr, uint64_t len)
{
    add(&t->effects, addr, len, 0);
}

void effect_add_file(struct task *t, uint64_t addr, uint64_t end)
{
    for (uint64_t next; addr < end; addr = next) {
        char byte;
        next = PAGE_DOWN(addr) + PAGE_SIZE < end ? PAGE_DOWN(addr) + PAGE_SIZE : end;
        if (!safe_copy(&byte, (const void *)addr, 1))
            add(&t->effects, addr, next - addr, EFF_FILE);
    }
}

/* Memory from the kernel, not malloc: this may run with the guest's fs. */
void effects_grow(struct effects *e)
{
    uint32_t capacity = e->capacity ? 2 * e->capacity : 256;
    uint64_t size = capacity * sizeof *e->v;
    int64_t p = e->capacity ? raw6(SYS_mremap, (uint64_t)e->v, e->capacity * sizeof *e->v, size, 1, 0, 0)
                            : raw6(SYS_mmap, 0, size, 3, 0x22, (uint64_t)-1, 0);
    if (p < 0)
        __builtin_trap();
    e->v = (struct trace_effect *)p;
    e->capacity = capacity;
}

/* ---- a list that fits one record ---- */

/* Its entries, with an event's head and own part, are well below RING_RECORD_MAX. */
enum { EFFECTS_MAX = RING_RECORD_MAX / 2 / sizeof(struct trace_effect), GAP_FIRST = 64 };

bool (*event_may_cover)(uint64_t from, uint64_t to);

static void sift_down(struct trace_effect *v, uint32_t root, uint32_t count)
{
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && v[child].addr < v[child + 1].addr)
            child++;
        if (v[root].addr >= v[child].addr)
            return;
        struct trace_effect swapped = v[root];
        v[root] = v[child];
        v[child] = swapped;
    }
}

/* The order of effects has no meaning: all bytes are those after the call. */
static void sort_effects(struct effects *e)
{
    for (uint32_t i = e->count / 2; i-- > 0;)
        sift_down(e->v, i, e->count);
    for (uint32_t last = e->count; last-- > 1;) {
        struct trace_effect swapped = e->v[0];
        e->v[0] = e->v[last];
        e->v[last] = swapped;
        sift_down(e->v, 0, last);
    }
}

static bool can_join(const struct trace_effect *a, const struct trace_effect *b, uint64_t gap)
{
    uint64_t end = a->addr + a->len;
    if (a->flags != b->flags || b->addr + b->len - a->addr > 1u << 30)
        return false;
    return b->addr <= end ||
           (b->addr - end <= gap && !a->flags && event_may_cover && event_may_cover(end, b->addr));
}

static void join_effects(struct effects *e, uint64_t gap)
{
    uint32_t kept = 0;
    for (uint32_t i = 1; i < e->count; i++) {
        struct trace_effect *a = &e->v[kept], *b = &e->v[i];
        uint64_t end = b->addr + b->len;
        if (!can_join(a, b, gap))
            e->v[++kept] = *b;
        else if (end > a->addr + a->len)
            a->len = (uint32_t)(end - a->addr);
    }
    e->count = kept + 1;
}

bool event_fits(struct task *t)
{
    struct effects *e = &t->effects;
    if (e->count <= EFFECTS_MAX)
        return true;
    sort_effects(e);
    for (uint64_t gap = GAP_FIRST; e->count > EFFECTS_MAX && gap <= 1u << 30; gap *= 8)
        join_effects(e, gap);
    return e->count <= EFFECTS_MAX;
}

/* ---- maps ---- */

struct trace_map *event_map_room(struct task *t, uint32_t size)
{
    uint32_t needed = t->maps_used + size;
    if (needed > t->maps_capacity) {
        uint32_t capacity = (uint32_t)PAGE_UP(2 * needed);
        int64_t p = t->maps_capacity
                        ? raw6(SYS_mremap, (uint64_t)t->maps, t->maps_capacity, capacity, 1, 0, 0)
                        : raw6(SYS_mmap, 0, capacity, 3, 0x22, (uint64_t)-1, 0);
        if (p < 0)
            __builtin_trap();
        t->maps = (uint8_t *)p;
        t->maps_capacity = capacity;
    }
    struct trace_map *m = (struct trace_map *)(t->maps + t->maps_used);
    zero_bytes(m, size);
    t->maps_used += size;
    t->maps_count++;
    return m;
}

void event_resize(struct task *t, uint16_t object, uint64_t size)
{
    struct trace_map *m = event_map_room(t, sizeof *m);
    m->rec = (struct trace_record){sizeof *m, REC_MAP, object};
    m->op = MAP_OP_RESIZE;
    m->aux = size;
}

/* ---- room ---- */

static void wake_store(void)
{
    struct store_request request = {.op = STORE_WAKE, .space = engine.space_number};
    raw6(SYS_sendto, (uint64_t)hostfd(engine.store), (uint64_t)&request, sizeof request,
         0x4040 /* DONTWAIT NOSIGNAL */, 0, 0);
}

/* The recording is over: dies without touching anything more. */
static _Noreturn void stop_here(void)
{
    for (;;)
        raw2(SYS_kill, raw0(SYS_getpid), 9);
}

static void wait_for_room(uint64_t needed)
{
    struct ring_header *r = engine.ring;
    const struct timespec half_second = {0, 500000000};
    for (;;) {
        __atomic_store_n(&r->producer_waits, 1, __ATOMIC_SEQ_CST);
        uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_SEQ_CST);
        if (r->capacity - (r->head - tail) >= needed)
            break;
        if (__atomic_load_n(&engine.control->stop, __ATOMIC_RELAXED))
            stop_here();
        wake_store();
        raw4(SYS_futex, &r->producer_waits, FUTEX_WAIT, 1, &half_second);
    }
    __atomic_store_n(&r->producer_waits, 0, __ATOMIC_RELAXED);
}

/* Room for a record of `size` bytes that does not wrap, at unpublished position *at (beyond head). */
static uint8_t *ring_reserve(uint64_t *at, uint32_t size)
{
    struct ring_header *r = engine.ring;
    uint64_t offset = *at & (r->capacity - 1);
    uint64_t pad = offset + size > r->capacity ? r->capacity - offset : 0;
    uint64_t needed = *at + pad + size - __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
    if (needed > r->capacity) {
        /* what is before this record must be visible, or the store could never make room */
        __atomic_store_n(&r->head, *at, __ATOMIC_RELEASE);
        wait_for_room(pad + size);
    }
    if (pad) {
        struct trace_record *filler = (struct trace_record *)(ring_data() + offset);
        *filler = (struct trace_record){(uint32_t)pad, REC_PAD, 0};
        *at += pad;
        offset = 0;
    }
    *at += size;
    return ring_data() + offset;
}

static void ring_publish(uint64_t at)
{
    struct ring_header *r = engine.ring;
    uint64_t before = r->head;
    __atomic_store_n(&r->head, at, __ATOMIC_SEQ_CST);
    uint64_t half = r->capacity / 2;
    if (before / half != at / half && __atomic_load_n(&engine.control->store_sleeps, __ATOMIC_RELAXED))
        wake_store();
    if (__atomic_load_n(&engine.control->stop, __ATOMIC_RELAXED))
        stop_here();
}

/* ---- publishing ---- */

/* Streams effects' bytes into REC_DATA records. */
static void put_data(struct task *t, uint64_t *at, uint64_t total)
{
    struct effects *e = &t->effects;
    uint32_t i = 0;
    uint64_t done = 0; /* of effect i */
    while (total) {
        uint32_t n = total > RING_RECORD_MAX - 8 ? RING_RECORD_MAX - 8 : (uint32_t)total;
        uint32_t padded = (n + 7u) & ~7u;
        uint8_t *p = ring_reserve(at, padded + 8);
        *(struct trace_record *)p = (struct trace_record){padded + 8, REC_DATA, (uint16_t)(padded - n)};
        p += 8;
        total -= n;
        while (n) {
            if (e->v[i].flags & EFF_ZERO) {
                i++;
                continue;
            }
            uint64_t left = e->v[i].len - done;
            uint32_t piece = left < n ? (uint32_t)left : n;
            size_t missed = safe_copy(p, (const void *)(e->v[i].addr + done), piece);
            if (missed)
                zero_bytes(p + piece - missed, missed);
            p += piece;
            n -= piece;
            done += piece;
            if (done == e->v[i].len) {
                i++;
                done = 0;
            }
        }
    }
}

static void put_inline(struct task *t, uint8_t *p, uint32_t padded)
{
    uint8_t *end = p + padded;
    for (uint32_t i = 0; i < t->effects.count; i++) {
        const struct trace_effect *e = &t->effects.v[i];
        if (e->flags & EFF_ZERO)
            continue;
        if (safe_copy(p, (const void *)e->addr, e->len))
            zero_bytes(p, e->len);
        p += e->len;
    }
    zero_bytes(p, (size_t)(end - p));
}

static void put_maps(struct task *t, uint64_t *at)
{
    for (uint32_t done = 0; done < t->maps_used;) {
        const struct trace_record *m = (const struct trace_record *)(t->maps + done);
        copy_bytes(ring_reserve(at, m->size), m, m->size);
        done += m->size;
    }
}

/* Whether all of it can be read and is zero. */
static bool all_zero(uint64_t addr, uint64_t len)
{
    uint64_t piece[ZERO_MIN / 8];
    for (uint64_t n; len; addr += n, len -= n) {
        n = len < sizeof piece ? len : sizeof piece;
        piece[(n - 1) / 8] = 0; /* its last bytes may not be copied over */
        if (safe_copy(piece, (const void *)addr, n))
            return false;
        for (uint64_t i = 0; i < (n + 7) / 8; i++)
            if (piece[i])
                return false;
    }
    return true;
}

/* Marks large effects that are all zero. Returns the bytes that the others have. */
static uint64_t stored_bytes(struct effects *e)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->v[i].len >= ZERO_MIN && all_zero(e->v[i].addr, e->v[i].len))
            e->v[i].flags |= EFF_ZERO;
        else
            total += e->v[i].len;
    }
    return total;
}

void (*event_before_publish)(struct task *t);

void event_publish(struct task *t, const struct event_head *head)
{
    if (event_before_publish)
        event_before_publish(t);
    if (!event_fits(t)) /* never on the fast path, which has asked before */
        event_unsupported("one event that sets more than %d separate pieces of memory", (int)EFFECTS_MAX);
    struct effects *e = &t->effects;
    uint64_t total = stored_bytes(e), at = engine.ring->head;
    put_maps(t, &at);
    bool inlined = total <= INLINE_MAX;
    uint32_t tail = inlined ? ((uint32_t)total + 7) & ~7u : 0;
    if (!inlined)
        put_data(t, &at, total);
    uint32_t list = e->count * (uint32_t)sizeof(struct trace_effect);
    uint32_t size = (uint32_t)sizeof(struct trace_event) + head->own_size + list + tail;
    uint8_t *p = ring_reserve(&at, size);
    *(struct trace_event *)p = (struct trace_event){
        .rec = {size, head->kind,
                (uint16_t)(head->flags | (inlined && total ? EVF_INLINE : 0) |
                           t->maps_count << EVF_NMAPS_SHIFT)},
        .seq = __atomic_fetch_add(&engine.control->seq, 1, __ATOMIC_RELAXED),
        .ticks = task_ticks(t),
        .pc = head->pc,
        .result = head->result,
        .hash = head->hash,
        .nr = head->nr,
        .neffects = (uint16_t)e->count,
    };
    p += sizeof(struct trace_event);
    copy_bytes(p, head->own, head->own_size);
    p += head->own_size;
    copy_bytes(p, e->v, list);
    if (tail)
        put_inline(t, p + list, tail);
    engine.ring->events++;
    ring_publish(at);
    e->count = 0;
    t->maps_used = t->maps_count = 0;
    task_reset_ticks(t);
}

void event_entered(struct task *t, const struct sys_call *c, uint64_t pc, uint32_t hash)
{
    struct ring_call *call = &engine.ring->call;
    call->nr = c->nr;
    call->pc = pc;
    call->ticks = task_ticks(t);
    for (int i = 0; i < 6; i++)
        call->args[i] = c->args[i];
    call->hash = hash;
    __atomic_store_n(&call->active, 1, __ATOMIC_RELEASE);
}

void event_returned(void)
{
    __atomic_store_n(&engine.ring->call.active, 0, __ATOMIC_RELEASE);
}

void event_record(const struct trace_record *record)
{
    uint64_t at = engine.ring->head;
    copy_bytes(ring_reserve(&at, record->size), record, record->size);
    ring_publish(at);
}

bool event_output_begin(void)
{
    enum { TRIES = 100 };
    uint32_t *turn = &engine.control->output_turn, me = (uint32_t)engine.ring->pid;
    for (int i = 0; i < TRIES; i++) {
        uint32_t nobody = 0;
        if (__atomic_compare_exchange_n(turn, &nobody, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
        if (i == TRIES / 2 && raw2(SYS_kill, nobody, 0) == -ESRCH)
            __atomic_compare_exchange_n(turn, &nobody, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        raw0(SYS_sched_yield);
    }
    return false;
}

void event_output_end(bool taken)
{
    if (taken)
        __atomic_store_n(&engine.control->output_turn, 0, __ATOMIC_RELEASE);
}
