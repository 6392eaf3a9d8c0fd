/*
 * generic.c: recording a call that needs libc: dispatch to the family's function, the row, or the search for
 * writes.
 */
#include <errno.h>
#include <stdio.h>

#include "engine/host/raw.h"
#include "engine/kernel/table.h"

static int64_t refuse(struct sys_call *c, const struct sys_row *row)
{
    if (!(row->flags & ROW_QUIET))
        event_note("%s cannot be recorded: the program was told that the kernel lacks it", row->name);
    return c->result = -row->refusal;
}

/*
 * Numbers that no kernel gives to a call: 387 to 423 are kept free for other machines, 512 and up were x32's, and what is
 * larger by far is nobody's. The kernel takes the low half of rax as a signed number.
 */
static bool is_nobodys(uint32_t nr)
{
    return (nr >= 387 && nr <= 423) || nr >= 512;
}

static int64_t answer_nobodys(struct sys_call *c)
{
    const uint32_t x32 = 0x40000000;
    if ((c->nr & ~0xfffu) == x32 && raw0(x32 + SYS_getppid) >= 0)
        event_note("x32 calls cannot be recorded: the program was told that the kernel lacks them");
    return c->result = -ENOSYS;
}

int64_t sys_record(struct task *t, struct sys_call *c)
{
    const struct sys_row *row = c->nr < sys_table_count ? &sys_table[c->nr] : NULL;
    if (is_nobodys(c->nr))
        return answer_nobodys(c);
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
