/*
 * generic.c: recording a call that needs libc: dispatch to the family's function, the row, or the search for
 * writes.
 */
#include <errno.h>
#include <stdio.h>

#include "engine/kernel/table.h"

static int64_t refuse(struct sys_call *c, const struct sys_row *row)
{
    if (!(row->flags & ROW_QUIET))
        event_note("%s cannot be recorded: the program was told that the kernel lacks it", row->name);
    return c->result = -row->refusal;
}

int64_t sys_record(struct task *t, struct sys_call *c)
{
    const struct sys_row *row = c->nr < sys_table_count ? &sys_table[c->nr] : NULL;
    if (!row || !row->name) {
        char what[32];
        snprintf(what, sizeof what, "call %u", c->nr);
        return sys_record_unknown(t, c, what);
    }
    if (row->flags & ROW_REFUSED)
        return refuse(c, row);
    if (row->both)
        return c->result = row->both(t, c);
    if (sys_names_hidden(row, c))
        return c->result = -EBADF;
    if (row->record && (!row->slow || row->slow(c)))
        return c->result = row->record(t, c);
    return sys_generic(t, c, row);
}
