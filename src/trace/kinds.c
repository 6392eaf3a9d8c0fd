/* kinds.c: the names of record kinds, written once. */
#include <string.h>

#include "clio/trace.h"
#include "trace/record.h"

static const struct {
    uint16_t kind;
    const char *name;
} kinds[] = {
    {EV_START, "start"}, {EV_SYSCALL, "syscall"}, {EV_SIGNAL, "signal"}, {EV_INSN, "insn"},
    {EV_FORK, "fork"},   {EV_EXEC, "exec"},       {EV_EXIT, "exit"},     {REC_DATA, "data"},
    {REC_MAP, "map"},    {REC_SPACE, "space"},    {REC_END, "end"},      {REC_NOTE, "note"},
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
