/* moment.c: parsing, printing and comparing moments. Finding symbolic ones in a trace: moment_resolve.c. */
#include "trace/moment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int moment_compare(struct moment a, struct moment b)
{
    if (a.event != b.event)
        return a.event < b.event ? -1 : 1;
    if (a.tick != b.tick)
        return a.tick < b.tick ? -1 : 1;
    if (a.step != b.step)
        return a.step < b.step ? -1 : 1;
    return 0;
}

const char *moment_print(struct moment m, char text[MOMENT_TEXT])
{
    if (m.step)
        snprintf(text, MOMENT_TEXT, "%" PRIu64 ":%" PRIu64 ":%" PRIu64, m.event, m.tick, m.step);
    else if (m.tick)
        snprintf(text, MOMENT_TEXT, "%" PRIu64 ":%" PRIu64, m.event, m.tick);
    else
        snprintf(text, MOMENT_TEXT, "%" PRIu64, m.event);
    return text;
}

/* Reads a decimal number that fits 64 bits; returns what follows it, or NULL. */
static const char *number(const char *p, uint64_t *value)
{
    if (*p < '0' || *p > '9')
        return NULL;
    uint64_t v = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return NULL;
    *value = v;
    return p;
}

bool moment_parse(const char *text, struct moment *m)
{
    uint64_t part[3] = {0};
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        p = number(p, &part[i]);
        if (!p)
            return false;
        if (*p == 0) {
            *m = (struct moment){part[0], part[1], part[2]};
            return true;
        }
        if (*p++ != ':')
            return false;
    }
    return false;
}

bool moment_ref_parse(const char *text, struct moment_ref *ref)
{
    *ref = (struct moment_ref){.kind = MOMENT_POINT};
    if (strcmp(text, "start") == 0)
        ref->kind = MOMENT_START;
    else if (strcmp(text, "crash") == 0)
        ref->kind = MOMENT_CRASH;
    else if (strcmp(text, "end") == 0)
        ref->kind = MOMENT_END;
    else if (strncmp(text, "end-", 4) == 0) {
        ref->kind = MOMENT_END;
        const char *rest = number(text + 4, &ref->ticks_before);
        return rest && *rest == 0;
    } else
        return moment_parse(text, &ref->point);
    return true;
}
