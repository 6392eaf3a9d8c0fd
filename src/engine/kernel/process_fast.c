/* process_fast.c: who a process descends from. FAST: see Makefile. */
#include "engine/guest/engine.h"
#include "engine/kernel/process.h"

int process_parent(int parent)
{
    const struct ring_control *control = engine.control;
    if (!parent || parent != control->recorder)
        return parent;
    return engine.ring->pid == control->program ? control->caller : 1;
}

void after_getppid(struct task *t, struct sys_call *c)
{
    c->result = process_parent((int)c->result);
}
