/* story_read.c: decodes chunks; see story.h. Trusts no byte: a chunk that breaks a rule is -EBADMSG. */
#include "chronicle/story.h"

#include <errno.h>
#include <stdlib.h>

#include "trace/record.h"

struct decoder {
    struct story_reader *r;
    const struct chron_chunk *chunk;
    struct story_decoded *out;
    const uint8_t *at[CHRON_STREAMS], *end[CHRON_STREAMS];
    struct story_store shared;
    struct chron_clock clock; /* its step: where the current block began */
    uint64_t next_step;       /* where the next block begins unless a tick comes first */
    uint64_t last_address, content;
    uint32_t previous; /* block executed last, or STORY_NONE */
    uint32_t executions;
};

static int take(struct decoder *d, int stream, void *to, size_t n)
{
    if ((size_t)(d->end[stream] - d->at[stream]) < n)
        return -EBADMSG;
    memcpy(to, d->at[stream], n);
    d->at[stream] += n;
    return 0;
}

static int number(struct decoder *d, int stream, uint64_t *v)
{
    const uint8_t *p = varint_get(d->at[stream], d->end[stream], v);
    if (!p)
        return -EBADMSG;
    d->at[stream] = p;
    return 0;
}

/* The next n bytes as a signed number. */
static int signed_number(struct decoder *d, int stream, size_t n, uint64_t *v)
{
    uint64_t raw = 0;
    int rc = take(d, stream, &raw, n);
    unsigned unused = 64 - 8 * (unsigned)n;
    *v = (uint64_t)((int64_t)(raw << unused) >> unused);
    return rc;
}

static int get_address(struct decoder *d, struct story_store *s, unsigned mode, uint64_t *address)
{
    static const uint8_t bytes[8] = {[ADDRESS_NEAR] = 1, [ADDRESS_BESIDE] = 1,    [ADDRESS_16] = 2,
                                     [ADDRESS_32] = 4,   [ADDRESS_BESIDE_32] = 4, [ADDRESS_FULL] = 8};
    uint64_t v = s->change;
    if (mode > ADDRESS_FULL)
        return -EBADMSG;
    if (mode != ADDRESS_STRIDE) {
        int rc = signed_number(d, STREAM_ADDRESS, bytes[mode], &v);
        if (rc)
            return rc;
    }
    uint64_t base = s->address;
    if (mode == ADDRESS_BESIDE || mode == ADDRESS_BESIDE_32)
        base = d->last_address;
    else if (mode == ADDRESS_FULL)
        base = 0;
    *address = base + v;
    s->change = *address - s->address;
    s->address = d->last_address = *address;
    return 0;
}

static int get_word(struct decoder *d, struct story_store *s, unsigned mode, unsigned size)
{
    uint64_t v = 0;
    int rc = 0;
    switch (mode) {
    case VALUE_SAME:
        return 0;
    case VALUE_ZERO:
        break;
    case VALUE_NEAR:
    case VALUE_NEAR_32:
        rc = signed_number(d, STREAM_VALUE, mode == VALUE_NEAR ? 1 : 4, &v);
        v += s->value;
        break;
    case VALUE_8:
    case VALUE_16:
    case VALUE_32:
        rc = take(d, STREAM_VALUE, &v, 1u << (mode - VALUE_8));
        break;
    case VALUE_RAW:
        rc = take(d, STREAM_VALUE, &v, size);
        break;
    default:
        return -EBADMSG;
    }
    s->value = v;
    return rc;
}

/* Decodes a value of size bytes, 1..CHRON_SHORT, to the end of out->values. */
static int get_value(struct decoder *d, struct story_store *s, unsigned mode, unsigned size)
{
    struct story_decoded *o = d->out;
    if (o->values_used + CHRON_SHORT > o->values_room) {
        uint64_t room = o->values_room ? 2 * o->values_room : 1 << 16;
        uint8_t *p = realloc(o->values, room);
        if (!p)
            return -ENOMEM;
        o->values = p;
        o->values_room = room;
    }
    uint8_t *to = o->values + o->values_used;
    o->values_used += size;
    if (size <= 8) {
        int rc = get_word(d, s, mode, size);
        memcpy(to, &s->value, size);
        return rc;
    }
    memset(to, 0, size);
    if (mode == VALUE_ZERO)
        return 0;
    return mode == VALUE_RAW ? take(d, STREAM_VALUE, to, size) : -EBADMSG;
}

/* What both kinds of write have in common; w->length is set, or to be read as a varint when it is 0. */
static int get_write(struct decoder *d, struct story_read_write *w, struct story_store *s, unsigned control)
{
    int rc = get_address(d, s, control & 7, &w->address);
    if (!rc && !w->length)
        rc = number(d, STREAM_ADDRESS, &w->length);
    if (rc)
        return rc;
    if (!w->length || w->length > CHRON_ADDRESS_END || w->address > CHRON_ADDRESS_END - w->length)
        return -EBADMSG;
    if (w->kind == STORY_MAP || w->kind == STORY_UNMAP)
        return control & CONTROL_LONG ? 0 : -EBADMSG;
    if (!!(control & CONTROL_LONG) != (w->length > CHRON_SHORT))
        return -EBADMSG;
    if (control & CONTROL_LONG) {
        w->place = d->content;
        d->content += w->length;
        return 0;
    }
    w->place = d->out->values_used;
    return get_value(d, s, control >> 3 & 7, (unsigned)w->length);
}

static struct story_read_write *next_write(struct decoder *d)
{
    struct story_decoded *o = d->out;
    return o->nwrites < d->chunk->writes ? &o->writes[o->nwrites++] : NULL;
}

/* The state of a static store, fresh at its first use in a chunk. */
static struct story_store *static_store(struct decoder *d, uint32_t slot, int *rc)
{
    struct story_store *s = &d->r->stores[slot];
    if (s->chunk == d->r->chunk)
        return s;
    if (!s->chunk)
        *rc = d->r->slot(d->r->context, slot, &s->fixed);
    if (!*rc)
        *s = (struct story_store){.chunk = d->r->chunk, .fixed = s->fixed};
    return s;
}

static int store(struct decoder *d, const struct chron_static *block, uint32_t number, uint32_t j)
{
    struct story_read_write *w = next_write(d);
    uint8_t control;
    int rc = w ? take(d, STREAM_CONTROL, &control, 1) : -EBADMSG;
    struct story_store *s = &d->shared;
    if (!rc && j < block->nslots)
        s = static_store(d, block->slots + j, &rc);
    else if (!rc && !(control & CONTROL_EXPLICIT))
        rc = -EBADMSG;
    if (rc)
        return rc;
    struct chron_slot slot = s->fixed;
    if (control & CONTROL_EXPLICIT && take(d, STREAM_ADDRESS, &slot, 3))
        return -EBADMSG;
    if (slot.index >= block->ninsns || slot.size > CHRON_SHORT)
        return -EBADMSG;
    *w = (struct story_read_write){
        .length = slot.size, .source = number, .index = slot.index, .clock = d->clock};
    w->clock.step += slot.index;
    return get_write(d, w, s, control);
}

static struct story_known *known(struct decoder *d, uint32_t number, int *rc)
{
    struct story_reader *r = d->r;
    if (number >= r->nblocks) {
        *rc = -EBADMSG;
        return NULL;
    }
    struct story_known *k = &r->blocks[number];
    if (k->chunk == r->chunk)
        return k;
    if (!k->chunk)
        *rc = r->block(r->context, number, &k->fixed);
    if (!*rc && (k->fixed.nslots > r->nslots || k->fixed.slots > r->nslots - k->fixed.nslots))
        *rc = -EBADMSG;
    if (*rc)
        return NULL;
    k->chunk = r->chunk;
    k->next = k->count = STORY_NONE;
    return k;
}

/* One execution of a block; count STORY_NONE: as predicted. */
static int execution(struct decoder *d, uint32_t symbol, uint32_t count)
{
    int rc = 0;
    struct story_known *k = known(d, symbol >> 1, &rc);
    if (rc)
        return rc;
    if (count == STORY_NONE)
        count = k->count;
    if (count == STORY_NONE || d->executions == d->chunk->executions)
        return -EBADMSG;
    d->executions++;
    k->count = count;
    if (d->previous != STORY_NONE)
        d->r->blocks[d->previous].next = symbol;
    d->previous = symbol >> 1;
    d->clock.tick += symbol & 1;
    d->clock.step = symbol & 1 ? 0 : d->next_step;
    d->next_step = d->clock.step + k->fixed.ninsns;
    for (uint32_t j = 0; !rc && j < count; j++)
        rc = store(d, &k->fixed, symbol >> 1, j);
    return rc;
}

static int hits(struct decoder *d, uint64_t n)
{
    int rc = 0;
    while (!rc && n--) {
        uint32_t next = d->previous == STORY_NONE ? STORY_NONE : d->r->blocks[d->previous].next;
        rc = next == STORY_NONE ? -EBADMSG : execution(d, next, STORY_NONE);
    }
    return rc;
}

/*
 * The moment at which an event comes, in the time of the event before it; for an event at the very
 * beginning of the story, of which no more is known, the one right after the event before it.
 */
static int moment_before(struct decoder *d, struct story_read_event *e)
{
    e->before = d->clock;
    e->before.step = d->next_step;
    if (e->event.number == d->clock.event)
        e->before = (struct chron_clock){.event = d->clock.event - !!d->clock.event};
    if (d->previous == STORY_NONE || d->next_step == 0)
        return 0;
    if (e->event.kind == EV_SIGNAL && !(e->event.flags & EVF_SYNC))
        return 0;
    const struct chron_static *b = &d->r->blocks[d->previous].fixed;
    if (d->next_step != d->clock.step + b->ninsns)
        return 0;
    uint8_t *lengths = malloc(b->ninsns + 1);
    if (!lengths)
        return -ENOMEM;
    int rc = d->r->lengths(d->r->context, b, lengths);
    if (!rc)
        e->before.step = d->clock.step + story_index_of(b->pc, lengths, b->ninsns, e->event.pc);
    free(lengths);
    return rc;
}

static int effects(struct decoder *d, uint64_t n, uint32_t source)
{
    int rc = 0;
    for (uint64_t i = 0; !rc && i < n; i++) {
        uint64_t v;
        uint8_t control;
        struct story_read_write *w = next_write(d);
        rc = w ? number(d, STREAM_FLOW, &v) : -EBADMSG;
        if (!rc)
            rc = take(d, STREAM_CONTROL, &control, 1);
        if (rc)
            break;
        if (v >> 2 == 0 || (v & 3) > STORY_UNMAP - STORY_MEMORY)
            return -EBADMSG;
        *w = (struct story_read_write){.length = v >> 2, .source = source, .clock = d->clock};
        w->kind = (uint16_t)(STORY_MEMORY + (v & 3));
        rc = get_write(d, w, &d->shared, control);
    }
    return rc;
}

static int event(struct decoder *d)
{
    struct story_decoded *o = d->out;
    if (o->nevents == o->events_room) {
        uint64_t room = o->events_room ? 2 * o->events_room : 64;
        struct story_read_event *p = realloc(o->events, room * sizeof *p);
        if (!p)
            return -ENOMEM;
        o->events = p;
        o->events_room = room;
    }
    uint64_t v[7];
    for (int i = 0; i < 7; i++) {
        int rc = number(d, STREAM_FLOW, &v[i]);
        if (rc)
            return rc;
    }
    struct story_read_event *e = &o->events[o->nevents];
    *e = (struct story_read_event){.event = {.number = d->clock.event + unzigzag(v[0]),
                                             .kind = (uint32_t)v[1],
                                             .nr = (uint32_t)v[2],
                                             .flags = (uint32_t)v[3],
                                             .pc = v[4],
                                             .result = unzigzag(v[5]),
                                             .neffects = v[6]}};
    int rc = moment_before(d, e);
    d->clock = (struct chron_clock){.event = e->event.number};
    d->next_step = 0;
    return rc ? rc : effects(d, v[6], o->nevents++);
}

static int moment(struct decoder *d)
{
    int rc = number(d, STREAM_FLOW, &d->clock.event);
    if (!rc)
        rc = number(d, STREAM_FLOW, &d->clock.tick);
    if (!rc)
        rc = number(d, STREAM_FLOW, &d->clock.step);
    d->next_step = d->clock.step;
    return rc;
}

static int token(struct decoder *d)
{
    uint64_t t, count;
    int rc = number(d, STREAM_FLOW, &t);
    if (rc)
        return rc;
    uint64_t n = t >> 2;
    switch (t & 3) {
    case FLOW_HITS:
        return hits(d, n);
    case FLOW_BLOCK:
        return n < STORY_NONE ? execution(d, (uint32_t)n, STORY_NONE) : -EBADMSG;
    case FLOW_BLOCK_COUNT:
        rc = number(d, STREAM_FLOW, &count);
        if (!rc && (n >= STORY_NONE || count >= STORY_NONE))
            rc = -EBADMSG;
        return rc ? rc : execution(d, (uint32_t)n, (uint32_t)count);
    default:
        return n == FLOW_OTHER_EVENT ? event(d) : n == FLOW_OTHER_MOMENT ? moment(d) : -EBADMSG;
    }
}

void story_decoded_free(struct story_decoded *d)
{
    free(d->writes);
    free(d->events);
    free(d->values);
    memset(d, 0, sizeof *d);
}

static int room_for_writes(struct story_decoded *o, uint64_t n)
{
    if (n <= o->writes_room)
        return 0;
    free(o->writes);
    o->writes = malloc(n * sizeof *o->writes);
    o->writes_room = o->writes ? n : 0;
    return o->writes ? 0 : -ENOMEM;
}

int story_decode(struct story_reader *r, const struct chron_chunk *chunk,
                 const uint8_t *const streams[CHRON_STREAMS], struct story_decoded *out)
{
    struct decoder d = {.r = r,
                        .chunk = chunk,
                        .out = out,
                        .clock = chunk->clock,
                        .next_step = chunk->clock.step,
                        .content = chunk->content,
                        .previous = STORY_NONE};
    out->nwrites = out->nevents = 0;
    out->values_used = 0;
    for (int i = 0; i < CHRON_STREAMS; i++) {
        d.at[i] = streams[i];
        d.end[i] = streams[i] + chunk->raw[i];
    }
    r->chunk++;
    d.shared.chunk = r->chunk;
    if (chunk->writes > chunk->raw[STREAM_CONTROL])
        return -EBADMSG;
    int rc = room_for_writes(out, chunk->writes);
    while (!rc && d.at[STREAM_FLOW] < d.end[STREAM_FLOW])
        rc = token(&d);
    for (int i = 0; !rc && i < CHRON_STREAMS; i++)
        rc = d.at[i] == d.end[i] ? 0 : -EBADMSG;
    if (!rc && (out->nwrites != chunk->writes || d.executions != chunk->executions))
        rc = -EBADMSG;
    if (rc)
        out->nwrites = out->nevents = 0;
    return rc;
}
