/* answer.c: the words for events, places, values and registers; see answer.h. */
#include "cmd/answer.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/names.h"
#include "base/syscall_names.h"
#include "symbols/disassemble.h"
#include "trace/moment.h"
#include "trace/record.h"

enum { TEXT = 600, LONGEST_INSTRUCTION = 15, PLACES = 1009 };

struct symbols_map answer_map(const struct clio_module *m)
{
    return (struct symbols_map){m->start, m->end, m->offset, m->path, m->file};
}

static const char *moment_text(struct clio_moment m, char text[MOMENT_TEXT])
{
    return moment_print((struct moment){m.event, m.tick, m.step}, text);
}

/* ---- places ---- */

struct place {
    uint64_t pc;
    const struct clio_module *module; /* NULL: it is in none */
    struct symbols_place symbols;
    char instruction[160]; /* "" when not known */
};

static void look_up(const struct answer_context *c, const struct clio_module *m, uint64_t pc, struct place *p)
{
    uint8_t bytes[LONGEST_INSTRUCTION];
    *p = (struct place){.pc = pc, .module = m};
    if (!m)
        return;
    struct symbols_map map = answer_map(m);
    symbols_lookup(c->symbols, &map, pc, &p->symbols);
    size_t n = symbols_bytes(c->symbols, &map, pc, bytes, sizeof bytes);
    disassemble(bytes, n, pc, p->instruction, sizeof p->instruction);
}

/*
 * The place of a pc when the write with this ordinal happened. Many answers share a place, and finding one in
 * debug information is slow: the last ones are kept. Valid until the next call.
 */
static const struct place *find_place(const struct answer_context *c, uint64_t pc, uint64_t ordinal)
{
    static struct place kept[PLACES];
    const struct clio_module *m = clio_chronicle_module(c->chronicle, pc, ordinal);
    struct place *p = &kept[pc % PLACES];
    if (p->pc != pc || p->module != m || !m)
        look_up(c, m, pc, p);
    return p;
}

static void print_frame(const struct place *p, int i)
{
    const struct symbols_frame *f = &p->symbols.frames[i];
    bool outermost = i == p->symbols.count - 1;
    printf("    %s ", i ? "inlined into" : "in");
    if (f->function && outermost)
        printf("%s+0x%" PRIx64, f->function, p->symbols.function_offset);
    else if (f->function)
        printf("%s", f->function);
    else
        printf("%s+0x%" PRIx64, p->symbols.module, p->symbols.module_offset);
    if (f->file)
        printf(" (%s:%d)", f->file, f->line);
}

static void print_place(const struct place *p)
{
    if (p->module)
        print_frame(p, 0);
    else
        printf("    in no module");
    if (p->module)
        printf("  [%s]", p->symbols.module);
    printf("  pc 0x%" PRIx64, p->pc);
    printf("%s%s\n", *p->instruction ? "  " : "", p->instruction);
    for (int i = 1; p->module && i < p->symbols.count; i++) {
        print_frame(p, i);
        printf("\n");
    }
}

static void set_hex(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_sprintf("0x%" PRIx64, value));
}

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text)
        json_object_set_new(object, key, json_sprintf("%s", text));
}

static void set_moment(json_t *object, const char *key, struct clio_moment m)
{
    char text[MOMENT_TEXT];
    set_text(object, key, moment_text(m, text));
}

static void set_place(json_t *object, const struct place *p)
{
    set_hex(object, "pc", p->pc);
    if (*p->instruction)
        set_text(object, "instruction", p->instruction);
    if (!p->module)
        return;
    const struct symbols_place *s = &p->symbols;
    set_text(object, "module", s->module);
    set_hex(object, "module_address", s->module_offset);
    const struct symbols_frame *outer = &s->frames[s->count - 1];
    if (outer->function)
        set_hex(object, "function_offset", s->function_offset);
    set_text(object, "function", s->frames[0].function);
    set_text(object, "file", s->frames[0].file);
    if (s->frames[0].file)
        json_object_set_new(object, "line", json_integer(s->frames[0].line));
    json_t *inlined = json_array();
    for (int i = 1; i < s->count; i++) {
        json_t *frame = json_object();
        set_text(frame, "function", s->frames[i].function);
        set_text(frame, "file", s->frames[i].file);
        if (s->frames[i].file)
            json_object_set_new(frame, "line", json_integer(s->frames[i].line));
        json_array_append_new(inlined, frame);
    }
    if (json_array_size(inlined))
        json_object_set(object, "inlined_into", inlined);
    json_decref(inlined);
}

static void print_json(json_t *object)
{
    if (json_dumpf(object, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER))
        die("cannot print JSON");
    printf("\n");
    json_decref(object);
}

/* ---- writes ---- */

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

static void add_call(char *text, const struct clio_write *w)
{
    const char *name = syscall_name(w->event_nr);
    if (name)
        add(text, TEXT, "system call %s", name);
    else
        add(text, TEXT, "system call number %u", w->event_nr);
    const char *error = w->result < 0 && w->result > -4096 ? strerrorname_np((int)-w->result) : NULL;
    if (error)
        add(text, TEXT, " = -%s", error);
    else
        add(text, TEXT, w->result < 1 << 20 ? " = %" PRId64 : " = 0x%" PRIx64, w->result);
}

/* What the event was: "system call read = 12". */
static const char *event_text(const struct clio_write *w, char text[TEXT])
{
    char name[32];
    text[0] = 0;
    if (trace_kind_traits((uint16_t)w->event_kind) & KIND_CALL)
        add_call(text, w);
    else if (w->event_kind == EV_START)
        add(text, TEXT, "the start of the program");
    else if (w->event_kind == EV_SIGNAL)
        add(text, TEXT, "the frame of signal %s", signal_name((int)w->result, name));
    else
        add(text, TEXT, "event of kind %s", clio_kind_name((uint16_t)w->event_kind) ?: "unknown");
    return text;
}

/* Numbers for what looks like one, else the bytes; known: a bit for each byte that is. */
static const char *value_text(const uint8_t *bytes, uint32_t n, uint64_t known, char text[TEXT])
{
    uint64_t all = n >= 64 ? UINT64_MAX : (1ull << n) - 1, number = 0;
    text[0] = 0;
    if (n <= 8 && !(n & (n - 1)) && (known & all) == all) {
        memcpy(&number, bytes, n);
        add(text, TEXT, "0x%" PRIx64, number);
        return text;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *space = i ? " " : "";
        if (known >> i & 1)
            add(text, TEXT, "%s%02x", space, bytes[i]);
        else
            add(text, TEXT, "%s??", space);
    }
    return text;
}

static void print_value(const struct clio_write *w)
{
    char text[TEXT];
    bool part = w->length != w->write_length;
    printf(" %" PRIu64 " byte%s", w->write_length, w->write_length == 1 ? "" : "s");
    if (part)
        printf(" at 0x%" PRIx64 ", here", w->write_address);
    printf(" %s%s\n", value_text(w->value, w->value_length, UINT64_MAX, text),
           w->value_length < w->length ? " ... (the first 64 bytes)" : "");
}

static void print_old(const struct clio_write *w)
{
    char text[TEXT], moment[MOMENT_TEXT];
    if (!w->old_known)
        return;
    printf("    before it (at %s): %s%s\n", moment_text(w->before, moment),
           value_text(w->old, w->value_length, w->old_known, text),
           w->value_length < w->length ? " ... (the first 64 bytes)" : "");
}

static void print_write(const struct answer_context *c, const struct answer_question *q,
                        const struct clio_write *w)
{
    char text[TEXT], moment[MOMENT_TEXT], end[MOMENT_TEXT];
    const char *when = q->first ? "first" : "last";
    printf("0x%" PRIx64 "..0x%" PRIx64 "  ", w->address, w->address + w->length);
    if (w->kind == CLIO_WRITE_NONE) {
        const struct clio_chronicle_info *i = clio_chronicle_info(c->chronicle);
        printf("not written from %s to %s\n", moment_text(q->first ? q->moment : i->from, moment),
               moment_text(q->first ? i->to : q->moment, end));
        return;
    }
    moment_text(w->moment, moment);
    switch (w->kind) {
    case CLIO_WRITE_STORE:
        printf("%s written at %s by a store of", when, moment);
        print_value(w);
        break;
    case CLIO_WRITE_EVENT:
        printf("%s written at %s by %s:", when, moment, event_text(w, text));
        print_value(w);
        break;
    default:
        printf("%s %s at %s by %s: 0x%" PRIx64 "..0x%" PRIx64 "\n", when,
               w->kind == CLIO_WRITE_MAP ? "mapped" : "unmapped", moment, event_text(w, text),
               w->write_address, w->write_address + w->write_length);
    }
    print_place(find_place(c, w->pc, w->ordinal));
    print_old(w);
}

void answer_writes_text(const struct answer_context *c, const struct answer_question *q,
                        const struct clio_write *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        print_write(c, q, &w[i]);
}

static void set_bytes(json_t *object, const char *key, const uint8_t *bytes, uint32_t n, uint64_t known)
{
    char text[2 * CLIO_VALUE_MAX + 1] = "";
    for (uint32_t i = 0; i < n; i++)
        if (known >> i & 1)
            sprintf(text + 2 * i, "%02x", bytes[i]);
        else
            strcpy(text + 2 * i, "??");
    set_text(object, key, text);
}

static json_t *write_object(const struct answer_context *c, const struct clio_write *w)
{
    static const char *const kinds[] = {
        [CLIO_WRITE_NONE] = "none", [CLIO_WRITE_STORE] = "store", [CLIO_WRITE_EVENT] = "event",
        [CLIO_WRITE_MAP] = "map",   [CLIO_WRITE_UNMAP] = "unmap",
    };
    json_t *o = json_object();
    char text[TEXT];
    set_hex(o, "address", w->address);
    json_object_set_new(o, "length", json_integer((json_int_t)w->length));
    set_text(o, "kind", kinds[w->kind]);
    if (w->kind == CLIO_WRITE_NONE)
        return o;
    set_moment(o, "moment", w->moment);
    set_moment(o, "before", w->before);
    set_hex(o, "write_address", w->write_address);
    json_object_set_new(o, "write_length", json_integer((json_int_t)w->write_length));
    if (w->kind != CLIO_WRITE_STORE) {
        json_object_set_new(o, "event", json_integer((json_int_t)w->event));
        set_text(o, "event_kind", clio_kind_name((uint16_t)w->event_kind));
        set_text(o, "event_text", event_text(w, text));
        if (w->event_kind == EV_SYSCALL || w->event_kind == EV_FORK)
            set_text(o, "call", syscall_name(w->event_nr));
        json_object_set_new(o, "result", json_integer(w->result));
    }
    if (w->value_length) {
        set_bytes(o, "value", w->value, w->value_length, UINT64_MAX);
        set_bytes(o, "old", w->old, w->value_length, w->old_known);
        json_object_set_new(o, "value_cut", json_boolean(w->value_length < w->length));
    }
    set_place(o, find_place(c, w->pc, w->ordinal));
    return o;
}

void answer_writes_json(const struct answer_context *c, const struct answer_question *q,
                        const struct clio_write *w, size_t count)
{
    json_t *o = json_object(), *answers = json_array();
    set_text(o, "query", q->name);
    set_hex(o, "address", q->address);
    json_object_set_new(o, "length", json_integer((json_int_t)q->length));
    set_moment(o, q->first ? "after" : "before", q->moment);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(answers, write_object(c, &w[i]));
    json_object_set_new(o, "answers", answers);
    print_json(o);
}

/* ---- crash ---- */

static const struct {
    int signo, code;
    const char *name, *text;
} codes[] = {
    {SIGSEGV, SEGV_MAPERR, "SEGV_MAPERR", "nothing is mapped there"},
    {SIGSEGV, SEGV_ACCERR, "SEGV_ACCERR", "not permitted there"},
    {SIGBUS, BUS_ADRALN, "BUS_ADRALN", "misaligned"},
    {SIGBUS, BUS_ADRERR, "BUS_ADRERR", "beyond the end of the mapped file"},
    {SIGFPE, FPE_INTDIV, "FPE_INTDIV", "integer division"},
    {SIGFPE, FPE_INTOVF, "FPE_INTOVF", "integer overflow"},
    {SIGFPE, FPE_FLTDIV, "FPE_FLTDIV", "floating-point division by zero"},
    {SIGFPE, FPE_FLTINV, "FPE_FLTINV", "invalid floating-point operation"},
    {SIGILL, ILL_ILLOPC, "ILL_ILLOPC", "illegal opcode"},
    {SIGILL, ILL_ILLOPN, "ILL_ILLOPN", "illegal operand"},
    {SIGTRAP, TRAP_BRKPT, "TRAP_BRKPT", "breakpoint instruction"},
};

static const char *code_name(const struct clio_crash *k, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].signo == k->signo && codes[i].code == k->code) {
            *text = codes[i].text;
            return codes[i].name;
        }
    return k->code == SI_USER     ? "SI_USER"
           : k->code == SI_TKILL  ? "SI_TKILL"
           : k->code == SI_KERNEL ? "SI_KERNEL"
                                  : NULL;
}

/* Whether si_addr means something. */
static bool has_address(const struct clio_crash *k)
{
    return k->code > 0 && k->code != SI_KERNEL &&
           (k->signo == SIGSEGV || k->signo == SIGBUS || k->signo == SIGFPE || k->signo == SIGILL ||
            k->signo == SIGTRAP);
}

void answer_crash_text(const struct answer_context *c, const struct clio_crash *k)
{
    char name[32], moment[MOMENT_TEXT];
    const char *text, *code = code_name(k, &text);
    printf("killed by %s (%s) at %s", signal_name(k->signo, name), strsignal(k->signo),
           moment_text(k->moment, moment));
    if (has_address(k))
        printf(", address 0x%" PRIx64, k->address);
    printf(", code %d%s%s%s%s\n", k->code, code ? " " : "", code ?: "", text ? ": " : "", text ?: "");
    print_place(find_place(c, k->rip, UINT64_MAX));
    for (int i = 0; i < 16; i++)
        printf("%s%-3s 0x%016" PRIx64 "%s", i % 4 ? "" : "    ", register_names[i], k->gpr[i],
               i % 4 == 3 ? "\n" : "  ");
    printf("    rip 0x%016" PRIx64 "  rflags 0x%" PRIx64 "  fs 0x%" PRIx64 "  gs 0x%" PRIx64 "\n", k->rip,
           k->rflags, k->fs_base, k->gs_base);
}

void answer_no_crash_json(void)
{
    json_t *o = json_object();
    set_text(o, "query", "crash");
    json_object_set_new(o, "signal", json_null());
    print_json(o);
}

void answer_crash_json(const struct answer_context *c, const struct clio_crash *k)
{
    char name[32];
    const char *text;
    json_t *o = json_object(), *registers = json_object();
    set_text(o, "query", "crash");
    json_object_set_new(o, "signal", json_integer(k->signo));
    set_text(o, "signal_name", signal_name(k->signo, name));
    json_object_set_new(o, "code", json_integer(k->code));
    set_text(o, "code_name", code_name(k, &text));
    if (has_address(k))
        set_hex(o, "address", k->address);
    set_moment(o, "moment", k->moment);
    set_place(o, find_place(c, k->rip, UINT64_MAX));
    for (int i = 0; i < 16; i++)
        set_hex(registers, register_names[i], k->gpr[i]);
    set_hex(registers, "rip", k->rip);
    set_hex(registers, "rflags", k->rflags);
    set_hex(registers, "fs_base", k->fs_base);
    set_hex(registers, "gs_base", k->gs_base);
    json_object_set_new(o, "registers", registers);
    print_json(o);
}

/* ---- info ---- */

void answer_info_text(const struct answer_context *c)
{
    const struct clio_chronicle_info *i = clio_chronicle_info(c->chronicle);
    const struct clio_crash *k = clio_chronicle_crash(c->chronicle);
    char from[MOMENT_TEXT], to[MOMENT_TEXT], name[32];
    printf("chronicle of space %u of %s, format %u\n", i->space, i->trace, i->version);
    printf("interval      %s to %s\n", moment_text(i->from, from), moment_text(i->to, to));
    printf("instructions  %" PRIu64 " in %" PRIu64 " blocks\n", i->instructions, i->blocks);
    printf("writes        %" PRIu64 "\n", i->writes);
    printf("events        %" PRIu64 "\n", i->events);
    printf("size          %" PRIu64 " bytes", i->file_size);
    if (i->instructions)
        printf(", %.2f an instruction", (double)i->file_size / (double)i->instructions);
    printf("\n");
    if (k)
        printf("crash         %s at %s\n", signal_name(k->signo, name), moment_text(k->moment, from));
    for (size_t n = 0; n < i->modules; n++) {
        const struct clio_module *m = clio_chronicle_module_number(c->chronicle, n);
        printf("module        0x%" PRIx64 "..0x%" PRIx64 " offset 0x%" PRIx64 " %s\n", m->start, m->end,
               m->offset, m->path);
    }
}

void answer_info_json(const struct answer_context *c)
{
    const struct clio_chronicle_info *i = clio_chronicle_info(c->chronicle);
    json_t *o = json_object(), *modules = json_array();
    set_text(o, "query", "info");
    set_text(o, "trace", i->trace);
    json_object_set_new(o, "space", json_integer(i->space));
    json_object_set_new(o, "version", json_integer(i->version));
    set_moment(o, "from", i->from);
    set_moment(o, "to", i->to);
    json_object_set_new(o, "instructions", json_integer((json_int_t)i->instructions));
    json_object_set_new(o, "blocks", json_integer((json_int_t)i->blocks));
    json_object_set_new(o, "writes", json_integer((json_int_t)i->writes));
    json_object_set_new(o, "events", json_integer((json_int_t)i->events));
    json_object_set_new(o, "bytes", json_integer((json_int_t)i->file_size));
    json_object_set_new(o, "crash", json_boolean(clio_chronicle_crash(c->chronicle) != NULL));
    for (size_t n = 0; n < i->modules; n++) {
        const struct clio_module *m = clio_chronicle_module_number(c->chronicle, n);
        json_t *module = json_object();
        set_hex(module, "start", m->start);
        set_hex(module, "end", m->end);
        set_hex(module, "offset", m->offset);
        set_text(module, "path", m->path);
        set_text(module, "file", m->file);
        json_array_append_new(modules, module);
    }
    json_object_set_new(o, "modules", modules);
    print_json(o);
}
