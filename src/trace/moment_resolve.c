/* moment_resolve.c: finding symbolic moments in a trace; see moment.h. */
#include <errno.h>
#include <stdlib.h>

#include "trace/event_reader.h"
#include "trace/fault.h"
#include "trace/moment.h"

struct walk {        /* what one pass over a space's events gives */
    uint64_t *ticks; /* ticks[i]: between event i+1 and event i+2; the last: after the last event */
    uint64_t events, capacity;
    uint64_t crash; /* number of the fatal signal's event, or 0 */
    struct trace_reader_end end;
};

static bool walk_add(struct walk *walk, const struct trace_item *item, struct clio_error *error)
{
    if (walk->events == walk->capacity) {
        uint64_t n = walk->capacity * 2 + 1024;
        uint64_t *p = reallocarray(walk->ticks, n, sizeof *p);
        if (!p)
            return fault_system(error, ENOMEM, "looking for a moment");
        walk->ticks = p;
        walk->capacity = n;
    }
    if (walk->events)
        walk->ticks[walk->events - 1] = item->event->ticks;
    walk->ticks[walk->events++] = 0;
    if (item->event->rec.kind == EV_SIGNAL && item->event->rec.flags & EVF_FATAL)
        walk->crash = item->number;
    return true;
}

/* Reads all events there are. Damage ends the walk like the end of the trace: what precedes it counts. */
static bool walk_space(struct clio_source *source, uint32_t space, struct walk *walk,
                       struct clio_error *error)
{
    struct trace_reader *reader = trace_reader_open(source, space, error);
    if (!reader)
        return false;
    struct trace_item item;
    bool good = true;
    enum clio_next next;
    while (good && (next = trace_reader_next(reader, &item)) == CLIO_RECORD)
        good = walk_add(walk, &item, error);
    trace_reader_end(reader, &walk->end);
    if (good && walk->events == 0)
        good = fault_set(error, CLIO_FAULT_MISSING, "space %u has no events", space);
    if (good && next != CLIO_CLEAN_END)
        walk->ticks[walk->events - 1] = walk->end.ticks;
    trace_reader_close(reader);
    return good;
}

/* The moment `before` ticks before the last one; the first moment when there are not as many. */
static struct moment back_from_end(const struct walk *walk, uint64_t before)
{
    uint64_t i = walk->events - 1;
    for (; before > walk->ticks[i]; i--) {
        before -= walk->ticks[i];
        if (i == 0)
            return (struct moment){1, 0, 0};
    }
    return (struct moment){i + 1, walk->ticks[i] - before, 0};
}

static bool pick(const struct walk *walk, uint32_t space, struct moment_ref ref, struct moment *m,
                 struct clio_error *error)
{
    char text[MOMENT_TEXT];
    switch (ref.kind) {
    case MOMENT_START:
        *m = (struct moment){1, 0, 0};
        return true;
    case MOMENT_END:
        *m = back_from_end(walk, ref.ticks_before);
        return true;
    case MOMENT_CRASH:
        *m = (struct moment){walk->crash, 0, 0};
        return walk->crash ||
               fault_set(error, CLIO_FAULT_MISSING, "space %u did not crash: it %s", space, walk->end.text);
    case MOMENT_POINT:
        break;
    }
    *m = ref.point;
    if (m->event >= 1 && m->event <= walk->events)
        return true;
    return fault_set(error, CLIO_FAULT_MISSING, "moment %s lies outside space %u, whose events are 1 to %llu",
                     moment_print(*m, text), space, (unsigned long long)walk->events);
}

/* Whether the space has the event, without reading what precedes it. */
static bool has_event(struct clio_source *source, uint32_t space, uint64_t event)
{
    struct clio_error ignored;
    struct trace_item item;
    struct trace_reader *reader = trace_reader_open(source, space, &ignored);
    bool found =
        reader && trace_reader_seek(reader, event) && trace_reader_next(reader, &item) == CLIO_RECORD;
    trace_reader_close(reader);
    return found;
}

bool moment_resolve(struct clio_source *source, uint32_t space, struct moment_ref ref, struct moment *m,
                    struct clio_error *error)
{
    if ((ref.kind == MOMENT_POINT && has_event(source, space, ref.point.event)) ||
        (ref.kind == MOMENT_START && has_event(source, space, 1))) {
        *m = ref.kind == MOMENT_START ? (struct moment){1, 0, 0} : ref.point;
        return true;
    }
    struct walk walk = {0};
    bool good = walk_space(source, space, &walk, error) && pick(&walk, space, ref, m, error);
    free(walk.ticks);
    return good;
}
