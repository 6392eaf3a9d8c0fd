/* kinds.c: names of what kinds.h lists. */
#include <string.h>

#include "clio/trace.h"
#include "trace/record.h"

static const struct kind {
    uint16_t kind;
    const char *name;
} kinds[] = {
#define KIND(constant, number, name, ...) {constant, #name},
    TRACE_EVENT_KINDS(KIND) TRACE_OTHER_KINDS(KIND)
#undef KIND
};

enum { KINDS = sizeof kinds / sizeof *kinds };

const char *clio_kind_name(uint16_t kind)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return NULL;
}

int clio_kind_number(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    return -1;
}

#define NAME(constant, number, name) [number] = #name,

const char *trace_insn_name(uint16_t nr)
{
    static const char *const names[] = {TRACE_INSNS(NAME)};
    return nr < sizeof names / sizeof *names && names[nr] ? names[nr] : "?";
}

const char *trace_map_op_name(uint8_t op)
{
    static const char *const names[] = {TRACE_MAP_OPS(NAME)};
    return op < sizeof names / sizeof *names && names[op] ? names[op] : "?";
}
