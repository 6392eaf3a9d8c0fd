/*
 * moment.h: a point of a space's execution, `event:tick:step`, and the symbolic names for some.
 *
 * `event` is the number of the last event before the point, `tick` counts ticks since that event, `step`
 * instructions since that tick (or event). Moments of one space are ordered left to right. `1523` means
 * `1523:0:0`.
 */
#ifndef CLIO_TRACE_MOMENT_H
#define CLIO_TRACE_MOMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clio/trace.h"

struct moment {
    uint64_t event, tick, step;
};

/* A moment as a user writes it: a plain one, `start`, `end`, `end-N` (N ticks before the end) or `crash`. */
enum moment_kind { MOMENT_POINT, MOMENT_START, MOMENT_END, MOMENT_CRASH };
struct moment_ref {
    enum moment_kind kind;
    struct moment point;   /* MOMENT_POINT */
    uint64_t ticks_before; /* MOMENT_END: N of end-N */
};

enum { MOMENT_TEXT = 64 }; /* enough for any printed moment */

/* <0, 0, >0 */
int moment_compare(struct moment a, struct moment b);
/* Prints 1523, 1523:7 or 1523:7:2: the shortest form that parses back. Returns text. */
const char *moment_print(struct moment m, char text[MOMENT_TEXT]);
/* The whole text must be a moment. Returns false when it is none. */
bool moment_parse(const char *text, struct moment *m);
bool moment_ref_parse(const char *text, struct moment_ref *ref);

/*
 * Finds the moment meant by ref in a space. `start` is 1:0:0, `end` the last published event (and the ticks
 * known after it), `crash` the fatal signal's event. A plain moment must not lie after the last event's.
 * Fails by name.
 */
bool moment_resolve(struct clio_source *source, uint32_t space, struct moment_ref ref, struct moment *m,
                    struct clio_error *error);

#endif
