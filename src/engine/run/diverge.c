/* diverge.c: see diverge.h. */
#include "engine/run/diverge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "engine/kernel/table.h"
#include "engine/memory/space.h"

const char *diverge_place(char *text, size_t size, uint64_t pc)
{
    const struct vma *v = space_find(&guest_space, pc);
    if (v && v->file) {
        const char *base = strrchr(v->file->path, '/');
        snprintf(text, size, "%#lx (%s+%#lx)", (unsigned long)pc, base ? base + 1 : v->file->path,
                 (unsigned long)(pc - v->start + v->offset));
    } else {
        snprintf(text, size, "%#lx", (unsigned long)pc);
    }
    return text;
}

struct out {
    char *p;
    size_t left;
};

static void put(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct out *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(o->p, o->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < o->left ? (size_t)n : o->left - 1;
    o->p += used;
    o->left -= used;
}

static void put_kind(struct out *out, uint16_t kind, uint16_t nr, const uint8_t *siginfo)
{
    int signo;
    char signal[32];
    unsigned traits = trace_kind_traits(kind);
    if (traits & KIND_CALL) {
        put(out, "system call %s (%u)", sys_name(nr) ?: "?", nr);
    } else if (traits & KIND_INSN) {
        put(out, "instruction %s", trace_insn_name(nr));
    } else if (kind != EV_SIGNAL) {
        put(out, "event of kind %u", kind);
    } else if (!siginfo) {
        put(out, "the point where a signal was delivered");
    } else {
        memcpy(&signo, siginfo, 4);
        put(out, "%s", signal_name(signo, signal));
    }
}

/* Why this usually happens, from what differs. */
static const char *likely_cause(const struct trace_item *expected, const struct observed *o)
{
    const struct trace_event *e = expected->event;
    if (o->siginfo)
        return "memory differs from the recording: something wrote it unseen (shared memory from outside, or "
               "an effect that was not "
               "recorded)";
    if (o->pc == e->pc && o->ticks == e->ticks)
        return "same place and time, other register values: a value came in unseen since the last event "
               "(shared memory, an effect "
               "that was not recorded, an instruction that differs between CPUs)";
    if (o->pc == e->pc)
        return "same place after another number of jumps: a loop went on a different number of times, so a "
               "value differed "
               "before it";
    return "another path was taken: a value that decides a branch differed, most likely since the last event";
}

void diverge_describe(char *text, size_t size, const struct task *t, const struct trace_item *expected,
                      const struct observed *o, uint64_t done)
{
    struct out out = {text, size};
    char place[512];
    put(&out, "diverged: space %u, task %d, moment %lu:%lu, after event %lu matched\n", engine.space_number,
        t->tid, (unsigned long)done, (unsigned long)o->ticks, (unsigned long)done);
    if (expected) {
        const struct trace_event *e = expected->event;
        const struct trace_ev_signal *s = expected->part;
        put(&out, "  expected: ");
        put_kind(&out, e->rec.kind, e->nr, e->rec.kind == EV_SIGNAL ? s->siginfo : NULL);
        put(&out, " at %s, %lu ticks, registers %08x\n", diverge_place(place, sizeof place, e->pc),
            (unsigned long)e->ticks, e->hash);
    } else {
        put(&out, "  expected: nothing more\n");
    }
    put(&out, "  found:    ");
    put_kind(&out, o->kind, o->nr, o->siginfo);
    put(&out, " at %s, %lu ticks, registers %08x\n", diverge_place(place, sizeof place, o->pc),
        (unsigned long)o->ticks, o->hash);
    for (int i = 0; i < 16; i++)
        put(&out, "%s%s %lx", i % 8 ? "  " : "\n  " + (i ? 0 : 1), register_names[i],
            (unsigned long)t->regs.gpr[i]);
    if (expected)
        put(&out, "\n  likely cause: %s", likely_cause(expected, o));
}
