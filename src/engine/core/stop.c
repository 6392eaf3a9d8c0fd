/* stop.c: see stop.h. */
#include "engine/core/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/event.h"
#include "engine/core/replay.h"

/* ---- the way to a space ---- */

static struct step { /* at event `event` of `space`, go on as `child` */
    uint32_t space, child;
    uint64_t event;
} *steps;
static uint32_t nsteps;

static const struct clio_space_info *find_space(const struct clio_space_info *all, size_t n, uint32_t space)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].space == space)
            return &all[i];
    replay_fail("the trace has no space %u", space);
}

uint32_t stop_plan(struct clio_source *source, uint32_t space)
{
    const struct clio_space_info *all;
    size_t n;
    struct clio_error error;
    if (!clio_source_spaces(source, &all, &n, &error))
        replay_fail("%s", error.text);
    const struct clio_space_info *at = find_space(all, n, space);
    while (at->origin == CLIO_ORIGIN_FORK) {
        steps = realloc(steps, (nsteps + 1) * sizeof *steps);
        if (!steps)
            replay_fail("out of memory");
        steps[nsteps++] = (struct step){at->parent, at->space, at->parent_event};
        at = find_space(all, n, at->parent);
    }
    return at->space;
}

uint32_t stop_becomes(uint32_t space, uint64_t event)
{
    for (uint32_t i = 0; i < nsteps; i++)
        if (steps[i].space == space && steps[i].event == event)
            return steps[i].child;
    return 0;
}

void stop_set_budget(struct task *t, uint64_t done, uint64_t next)
{
}
bool stop_reached(struct task *t)
{
    return false;
}
void stop_event(struct task *t, const struct trace_item *item)
{
}
void stop_interval_set(uint32_t space, const struct stop_interval *i)
{
}
void stop_at_end(void)
{
}
