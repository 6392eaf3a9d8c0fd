/*
 * dump.c: `clio dump [--json] [--follow] [--space N] [TRACE] [KIND...]`: the records of a trace, one a line.
 *
 * Space after space in the order of their numbers, each in order of publication: an event's map and data
 * records before the event. Of a trace that is being written, what is there is printed; --follow goes on
 * until the recording has ended.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/names.h"
#include "base/syscall_names.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"
#include "trace/event_reader.h"
#include "trace/moment.h"
#include "trace/record.h"

#define NAME(constant, number, name, ...) " " #name
#define ALL_KINDS                         TRACE_EVENT_KINDS(NAME) TRACE_OTHER_KINDS(NAME)

enum { KINDS_MAX = 32, SHOWN_BYTES = 24, FOLLOW_US = 20000 };

static struct {
    bool json, follow;
    uint32_t space; /* 0: all */
    const char *trace;
    uint16_t kinds[KINDS_MAX];
    size_t nkinds;
} want;

struct line { /* a record and where it belongs */
    uint32_t space;
    uint64_t event;
    const struct trace_record *record;
};

/* ---- names ---- */

static const char *call_name(uint16_t nr, char text[32])
{
    const char *name = syscall_name(nr);
    if (name)
        snprintf(text, 32, "%s", name);
    else
        snprintf(text, 32, "syscall_%u", nr);
    return text;
}

/* "5", "-1 ENOENT", "0x7f..." */
static const char *result_text(int64_t result, char text[48])
{
    const char *name = result < 0 && result > -4096 ? strerrorname_np((int)-result) : NULL;
    if (name)
        snprintf(text, 48, "%" PRId64 " %s", result, name);
    else if (result > 1 << 30 || result < 0)
        snprintf(text, 48, "0x%" PRIx64, (uint64_t)result);
    else
        snprintf(text, 48, "%" PRId64, result);
    return text;
}

static char *hex(const uint8_t *bytes, size_t size, char *text)
{
    for (size_t i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    text[2 * size] = 0;
    return text;
}

static uint64_t data_size(const struct trace_record *r)
{
    uint32_t body = r->size - sizeof *r;
    return r->flags <= body ? body - r->flags : 0;
}

/* The parts of an event; the stream has checked that they are there. */
static struct trace_item split(const struct line *l)
{
    struct trace_item item;
    const char *complaint = trace_event_split(l->record, &item);
    if (complaint)
        BUG("space %u, event %" PRIu64 ": %s", l->space, l->event, complaint);
    return item;
}

/* ---- text ---- */

static void text_effects(const struct trace_item *p)
{
    const uint8_t *bytes = p->bytes;
    char text[2 * SHOWN_BYTES + 1];
    for (uint32_t i = 0; i < p->event->neffects; i++) {
        const struct trace_effect *f = &p->effects[i];
        printf("%s0x%" PRIx64 "+%u", i ? ", " : "; sets ", f->addr, f->len);
        if (f->flags & EFF_ZERO)
            printf("=0");
        else if (bytes) {
            size_t shown = f->len < SHOWN_BYTES ? f->len : SHOWN_BYTES;
            printf("=%s%s", hex(bytes, shown, text), shown < f->len ? ".." : "");
            bytes += f->len;
        }
        if (f->flags & EFF_FILE)
            printf(" in the file");
    }
}

static void text_signal(const struct trace_item *p)
{
    const struct trace_ev_signal *s = p->part;
    uint16_t flags = p->event->rec.flags;
    siginfo_t info;
    char name[32];
    memcpy(&info, s->siginfo, sizeof info);
    printf("%s code %d", signal_name((int)p->event->result, name), info.si_code);
    if (flags & EVF_SYNC)
        printf(" address 0x%" PRIx64, (uint64_t)(uintptr_t)info.si_addr);
    printf("%s%s%s%s at 0x%" PRIx64, flags & EVF_ENTRY ? " before a call" : "",
           flags & EVF_EXIT ? " after a call" : "", flags & EVF_SYNC ? " by the instruction" : "",
           flags & EVF_FATAL ? ", fatal," : "", p->event->pc);
    if (!(flags & EVF_FATAL))
        printf(", handler 0x%" PRIx64, s->regs.rip);
}

static void text_start(const struct trace_item *p)
{
    const struct trace_ev_start *s = p->part;
    printf("rip 0x%" PRIx64 " rsp 0x%" PRIx64 " brk 0x%" PRIx64, s->regs.rip, s->regs.gpr[4], s->brk);
}

static void text_syscall(const struct trace_item *p)
{
    char name[32], result[48];
    const struct trace_event *e = p->event;
    printf("%s = %s at 0x%" PRIx64 "%s%s", call_name(e->nr, name), result_text(e->result, result), e->pc,
           e->rec.flags & EVF_OUTPUT ? " to stdout" : "", e->rec.flags & EVF_OUTERR ? " to stderr" : "");
}

static void text_insn(const struct trace_item *p)
{
    const struct trace_ev_insn *i = p->part;
    printf("%s at 0x%" PRIx64 " gives rax 0x%" PRIx64 " rbx 0x%" PRIx64 " rcx 0x%" PRIx64 " rdx 0x%" PRIx64,
           trace_insn_name(p->event->nr), p->event->pc, i->rax, i->rbx, i->rcx, i->rdx);
}

static void text_fork(const struct trace_item *p)
{
    char name[32], result[48];
    printf("%s = %s, space %u, at 0x%" PRIx64, call_name(p->event->nr, name),
           result_text(p->event->result, result), ((const struct trace_ev_fork *)p->part)->child_space,
           p->event->pc);
}

static void text_exec(const struct trace_item *p)
{
    char name[32];
    printf("%s at 0x%" PRIx64 " becomes space %u", call_name(p->event->nr, name), p->event->pc,
           ((const struct trace_ev_exec *)p->part)->next_space);
}

static void text_exit(const struct trace_item *p)
{
    char name[32];
    printf("%s(%" PRId64 ") at 0x%" PRIx64, call_name(p->event->nr, name), p->event->result, p->event->pc);
}

static void text_map(const struct trace_record *r)
{
    const struct trace_map *m = (const struct trace_map *)r;
    char file[65];
    if (m->op == MAP_OP_RESIZE) {
        printf("%s object %u to 0x%" PRIx64, trace_map_op_name(m->op), m->rec.flags, m->aux);
        return;
    }
    if (m->op == MAP_OP_CHECK) {
        printf("%s memory of %zu mappings", trace_map_op_name(m->op),
               m->pathlen / sizeof(struct trace_check));
        return;
    }
    printf("%s 0x%" PRIx64 "+0x%" PRIx64 " %c%c%c%c", trace_map_op_name(m->op), m->addr, m->len,
           m->prot & PROT_READ ? 'r' : '-', m->prot & PROT_WRITE ? 'w' : '-', m->prot & PROT_EXEC ? 'x' : '-',
           m->shared ? 's' : 'p');
    if (m->op == MAP_OP_MOVE)
        printf(" from 0x%" PRIx64 "+0x%" PRIx64, m->offset, m->aux);
    if (m->op == MAP_OP_FILE)
        printf(" offset 0x%" PRIx64 " of %.*s (%.16s)", m->offset, (int)m->pathlen, trace_map_path(m),
               hex(m->file, 32, file));
    if (m->rec.flags)
        printf(" object %u", m->rec.flags);
}

static void text_space(const struct trace_record *r)
{
    const struct trace_space *s = (const struct trace_space *)r;
    const char *text = (const char *)(s + 1);
    printf("%s", origin_name(s->origin <= SPACE_EXEC ? (enum clio_origin)s->origin : CLIO_ORIGIN_UNKNOWN));
    if (s->parent)
        printf(" of space %u at its event %" PRIu64, s->parent, s->parent_event);
    printf(", pid %d, %.*s:", s->pid, (int)s->exelen, text);
    for (uint32_t i = 0; i < s->cmdlen; i++) {
        unsigned char c = (unsigned char)text[s->exelen + i];
        if (i == 0 || text[s->exelen + i - 1] == 0)
            putchar(' ');
        if (c)
            putchar(c < 0x20 || c == 0x7f ? '?' : c);
    }
}

static void text_data(const struct trace_record *r)
{
    char text[2 * SHOWN_BYTES + 1];
    uint64_t size = data_size(r), shown = size < SHOWN_BYTES ? size : SHOWN_BYTES;
    printf("%" PRIu64 " bytes: %s%s", size, hex((const uint8_t *)(r + 1), shown, text),
           shown < size ? ".." : "");
}

static void text_end(const struct trace_record *r)
{
    const struct trace_end *e = (const struct trace_end *)r;
    printf("%s, status %d, %" PRIu64 " events%s%.*s",
           end_name(e->why <= END_INTERNAL ? (enum clio_end)e->why : 0), e->status, e->events,
           e->textlen ? ": " : "", (int)e->textlen, (const char *)(e + 1));
}

static void text_note(const struct trace_record *r)
{
    const struct trace_note *n = (const struct trace_note *)r;
    printf("%.*s", (int)n->textlen, (const char *)(n + 1));
}

/* ---- JSON ---- */

/* Addresses and register values do not fit a JSON number of every reader: they are strings. */
static json_t *address(uint64_t value)
{
    return json_sprintf("0x%" PRIx64, value);
}

static json_t *bytes_json(const uint8_t *bytes, uint64_t size)
{
    char *text = malloc(2 * size + 1);
    if (!text)
        die("out of memory");
    json_t *json = json_string(hex(bytes, size, text));
    free(text);
    return json;
}

static json_t *span_json(const char *text, uint32_t size)
{
    char *copy = strndup(text, size);
    json_t *json = copy ? text_json(copy) : NULL;
    free(copy);
    return json;
}

static json_t *effects_json(const struct trace_item *p)
{
    json_t *list = json_array();
    const uint8_t *bytes = p->bytes;
    for (uint32_t i = 0; i < p->event->neffects; i++) {
        const struct trace_effect *f = &p->effects[i];
        json_t *effect = json_pack("{so sI}", "addr", address(f->addr), "len", (json_int_t)f->len);
        if (f->flags & EFF_ZERO)
            json_object_set_new(effect, "zero", json_true());
        else if (bytes) {
            json_object_set_new(effect, "bytes", bytes_json(bytes, f->len));
            bytes += f->len;
        }
        if (f->flags & EFF_FILE)
            json_object_set_new(effect, "file", json_true());
        json_array_append_new(list, effect);
    }
    return list;
}

static json_t *regs_json(const struct trace_regs *regs)
{
    json_t *json = json_object();
    for (int i = 0; i < 16; i++)
        json_object_set_new(json, register_names[i], address(regs->gpr[i]));
    json_object_set_new(json, "rip", address(regs->rip));
    json_object_set_new(json, "rflags", address(regs->rflags));
    json_object_set_new(json, "fs_base", address(regs->fs_base));
    json_object_set_new(json, "gs_base", address(regs->gs_base));
    return json;
}

static void json_signal(json_t *json, const struct trace_item *p)
{
    const struct trace_ev_signal *s = p->part;
    uint16_t flags = p->event->rec.flags;
    siginfo_t info;
    char name[32];
    memcpy(&info, s->siginfo, sizeof info);
    json_object_set_new(json, "signal", json_string(signal_name((int)p->event->result, name)));
    json_object_set_new(json, "code", json_integer(info.si_code));
    if (flags & EVF_SYNC)
        json_object_set_new(json, "address", address((uint64_t)(uintptr_t)info.si_addr));
    json_object_set_new(json, "fatal", json_boolean(flags & EVF_FATAL));
    json_object_set_new(json, "regs", regs_json(&s->regs));
}

static void json_start(json_t *json, const struct trace_item *p)
{
    const struct trace_ev_start *s = p->part;
    json_object_set_new(json, "regs", regs_json(&s->regs));
    json_object_set_new(json, "brk", address(s->brk));
}

static void json_syscall(json_t *json, const struct trace_item *p)
{
    if (p->event->rec.flags & EVF_OUTPUT)
        json_object_set_new(json, "output", json_string("stdout"));
    if (p->event->rec.flags & EVF_OUTERR)
        json_object_set_new(json, "output", json_string("stderr"));
}

static void json_insn(json_t *json, const struct trace_item *p)
{
    const struct trace_ev_insn *i = p->part;
    json_object_set_new(json, "insn", json_string(trace_insn_name(p->event->nr)));
    json_object_set_new(json, "rax", address(i->rax));
    json_object_set_new(json, "rbx", address(i->rbx));
    json_object_set_new(json, "rcx", address(i->rcx));
    json_object_set_new(json, "rdx", address(i->rdx));
    json_object_set_new(json, "rflags", address(i->rflags));
}

static void json_fork(json_t *json, const struct trace_item *p)
{
    json_object_set_new(json, "child_space",
                        json_integer(((const struct trace_ev_fork *)p->part)->child_space));
}

static void json_exec(json_t *json, const struct trace_item *p)
{
    json_object_set_new(json, "next_space",
                        json_integer(((const struct trace_ev_exec *)p->part)->next_space));
}

static void json_exit(json_t *json, const struct trace_item *p)
{
}

static void json_map(json_t *json, const struct trace_record *r)
{
    const struct trace_map *m = (const struct trace_map *)r;
    json_object_set_new(json, "op", json_string(trace_map_op_name(m->op)));
    json_object_set_new(json, "addr", address(m->addr));
    json_object_set_new(json, "len", json_integer((json_int_t)m->len));
    json_object_set_new(json, "prot", json_integer(m->prot));
    json_object_set_new(json, "shared", json_boolean(m->shared));
    if (m->rec.flags)
        json_object_set_new(json, "object", json_integer(m->rec.flags));
    if (m->op == MAP_OP_RESIZE)
        json_object_set_new(json, "file_size", json_integer((json_int_t)m->aux));
    if (m->op == MAP_OP_MOVE) {
        json_object_set_new(json, "old_addr", address(m->offset));
        json_object_set_new(json, "old_len", json_integer((json_int_t)m->aux));
    }
    if (m->op == MAP_OP_FILE) {
        json_object_set_new(json, "offset", json_integer((json_int_t)m->offset));
        json_object_set_new(json, "file_size", json_integer((json_int_t)m->aux));
        json_object_set_new(json, "path", span_json(trace_map_path(m), m->pathlen));
        json_object_set_new(json, "file", bytes_json(m->file, 32));
    }
}

static void json_space(json_t *json, const struct trace_record *r)
{
    const struct trace_space *s = (const struct trace_space *)r;
    const char *text = (const char *)(s + 1);
    json_t *argv = json_array();
    for (uint32_t at = 0; at < s->cmdlen;) {
        uint32_t size = (uint32_t)strnlen(text + s->exelen + at, s->cmdlen - at);
        json_array_append_new(argv, span_json(text + s->exelen + at, size));
        at += size + 1;
    }
    json_object_set_new(json, "origin",
                        json_string(origin_name(s->origin <= SPACE_EXEC ? (enum clio_origin)s->origin : 0)));
    json_object_set_new(json, "parent", json_integer(s->parent));
    json_object_set_new(json, "parent_event", json_integer((json_int_t)s->parent_event));
    json_object_set_new(json, "pid", json_integer(s->pid));
    json_object_set_new(json, "exe", span_json(text, s->exelen));
    json_object_set_new(json, "argv", argv);
}

static void json_data(json_t *json, const struct trace_record *r)
{
    json_object_set_new(json, "bytes", bytes_json((const uint8_t *)(r + 1), data_size(r)));
}

static void json_end(json_t *json, const struct trace_record *r)
{
    const struct trace_end *e = (const struct trace_end *)r;
    json_object_set_new(json, "why",
                        json_string(end_name(e->why <= END_INTERNAL ? (enum clio_end)e->why : 0)));
    json_object_set_new(json, "status", json_integer(e->status));
    json_object_set_new(json, "events", json_integer((json_int_t)e->events));
    json_object_set_new(json, "text", span_json((const char *)(e + 1), e->textlen));
}

static void json_note(json_t *json, const struct trace_record *r)
{
    const struct trace_note *n = (const struct trace_note *)r;
    json_object_set_new(json, "text", span_json((const char *)(n + 1), n->textlen));
}

/* ---- lines ---- */

static void show_event(const struct line *l, void (*text)(const struct trace_item *),
                       void (*json)(json_t *, const struct trace_item *), json_t *to)
{
    struct trace_item p = split(l);
    const struct trace_event *e = p.event;
    char name[32];
    if (!to) {
        printf("+%-8" PRIu64 " ", e->ticks);
        text(&p);
        text_effects(&p);
        return;
    }
    json_object_set_new(to, "seq", json_integer((json_int_t)e->seq));
    json_object_set_new(to, "ticks", json_integer((json_int_t)e->ticks));
    json_object_set_new(to, "pc", address(e->pc));
    json_object_set_new(to, "result", json_integer(e->result));
    json_object_set_new(to, "hash", address(e->hash));
    if (trace_kind_traits(e->rec.kind) & KIND_CALL) {
        json_object_set_new(to, "nr", json_integer(e->nr));
        json_object_set_new(to, "call", json_string(call_name(e->nr, name)));
    }
    json(to, &p);
    json_object_set_new(to, "effects", effects_json(&p));
}

static void show_other(const struct line *l, void (*text)(const struct trace_record *),
                       void (*json)(json_t *, const struct trace_record *), json_t *to)
{
    if (to)
        json(to, l->record);
    else
        text(l->record);
}

/* Prints what the record says, or adds it to the object `to`. */
static void show_body(const struct line *l, json_t *to)
{
    switch (l->record->kind) {
#define EVENT(constant, number, name, ...)                                                                   \
    case constant:                                                                                           \
        show_event(l, text_##name, json_##name, to);                                                         \
        break;
#define OTHER(constant, number, name, ...)                                                                   \
    case constant:                                                                                           \
        show_other(l, text_##name, json_##name, to);                                                         \
        break;
        TRACE_EVENT_KINDS(EVENT)
        TRACE_OTHER_KINDS(OTHER)
#undef EVENT
#undef OTHER
    }
}

static void text_line(const struct line *l)
{
    printf("%-3u %8" PRIu64 " %-7s ", l->space, l->event, clio_kind_name(l->record->kind));
    show_body(l, NULL);
    putchar('\n');
}

static void json_line(const struct line *l)
{
    json_t *json = json_pack("{sI sI ss}", "space", (json_int_t)l->space, "event", (json_int_t)l->event,
                             "kind", clio_kind_name(l->record->kind));
    show_body(l, json);
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
}

/* ---- walking ---- */

static bool well_formed(const struct trace_record *r)
{
    if (r->size < trace_head_size(r->kind))
        return false;
    return r->kind != REC_MAP || ((const struct trace_map *)r)->pathlen <= r->size - sizeof(struct trace_map);
}

static void show(struct clio_stream *stream, uint32_t space, const struct clio_record_head *head)
{
    struct line l = {space, clio_stream_event(stream), (const struct trace_record *)head};
    if (head->kind == REC_SPACE)
        l.event = 0;
    if (!clio_kind_name(head->kind))
        return; /* optional, of a later version */
    if (!well_formed(l.record))
        die("space %u, event %" PRIu64 ": malformed %s record", space, l.event, clio_kind_name(head->kind));
    (want.json ? json_line : text_line)(&l);
    if (ferror(stdout))
        exit(errno == EPIPE ? EXIT_DONE : EXIT_ENVIRONMENT);
}

/* Prints a space; false with *error when damage ended it. */
static bool dump_space(struct clio_source *source, uint32_t space, struct clio_error *error)
{
    struct clio_stream *stream =
        clio_stream_open(source, space, want.nkinds ? want.kinds : NULL, want.nkinds, error);
    if (!stream)
        return false;
    const struct clio_record_head *record;
    enum clio_next next;
    for (;;) {
        next = clio_stream_next(stream, &record, error);
        if (next == CLIO_RECORD)
            show(stream, space, record);
        else if (next == CLIO_NOTHING_YET && want.follow) {
            fflush(stdout);
            usleep(FOLLOW_US);
        } else
            break;
    }
    if (next == CLIO_CUT_HERE) {
        fflush(stdout);
        warning("space %u: cut here: %s", space, error->text);
    }
    clio_stream_close(stream);
    return next != CLIO_ERROR;
}

/* Prints the spaces there are; with --follow, those that are born meanwhile, too. */
static bool dump_all(struct clio_source *source, struct clio_error *error)
{
    uint32_t last = 0;
    bool good = true, live;
    do {
        const struct clio_space_info *spaces;
        struct clio_error later;
        size_t count;
        live = want.follow && clio_source_live(source);
        if (!clio_source_spaces(source, &spaces, &count, good ? error : &later))
            good = false;
        uint32_t *numbers = calloc(count + 1, sizeof *numbers);
        size_t n = 0;
        for (size_t i = 0; numbers && i < count; i++)
            if (spaces[i].space > last)
                numbers[n++] = spaces[i].space;
        for (size_t i = 0; i < n; i++) {
            last = numbers[i];
            if (!dump_space(source, last, good ? error : &later))
                good = false;
        }
        free(numbers);
        if (live && n == 0)
            usleep(FOLLOW_US);
    } while (live);
    return good;
}

static uint32_t parse_space(const char *text)
{
    char *end;
    unsigned long space = text ? strtoul(text, &end, 10) : 0;
    if (!text || !*text || *end || space == 0 || space > UINT32_MAX)
        usage("--space wants the number of a space (clio ps shows them), not `%s`", text ? text : "");
    return (uint32_t)space;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        int kind = clio_kind_number(a);
        if (strcmp(a, "--json") == 0)
            want.json = true;
        else if (strcmp(a, "--follow") == 0)
            want.follow = true;
        else if (strcmp(a, "--space") == 0)
            want.space = parse_space(argv[++i]);
        else if (a[0] == '-')
            usage("dump: unknown option %s", a);
        else if (kind >= 0 && want.nkinds < KINDS_MAX)
            want.kinds[want.nkinds++] = (uint16_t)kind;
        else if (want.trace || want.nkinds)
            usage("`%s` is no kind of record:" ALL_KINDS, a);
        else
            want.trace = a;
    }
}

int cmd_dump(int argc, char **argv)
{
    struct clio_error error;
    parse(argc, argv);
    struct clio_source *source = open_trace(want.trace);
    bool good = want.space ? dump_space(source, want.space, &error) : dump_all(source, &error);
    if (!good) {
        fflush(stdout);
        trace_failed(&error);
    }
    clio_source_close(source);
    return EXIT_DONE;
}
