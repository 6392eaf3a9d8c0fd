/*
 * clio query: asks a chronicle.
 *
 *     clio query DB last-write ADDRESS [--before M]      who wrote these bytes last
 *     clio query DB first-write ADDRESS [--after M]      who writes them next
 *     clio query DB crash                                how the process died
 *     clio query DB info                                 what the chronicle holds
 *
 * ADDRESS is a number (hexadecimal with 0x) or the name of a function or variable, also written &name; a name
 * may be followed by +OFFSET; then +LENGTH may follow. Without a length it is 8 bytes, or the whole variable.
 * Moments are as everywhere; start, end and crash are those of the chronicle.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "clio/chronicle.h"
#include "cmd/answer.h"
#include "cmd/cmd.h"
#include "trace/moment.h"

enum { DEFAULT_LENGTH = 8 };

struct options {
    const char *database, *question, *address, *before, *after, *trace;
    bool json;
};

typedef int ask_fn(struct answer_context *c, struct clio_chronicle *chronicle, const struct options *o);
static ask_fn ask_last_write, ask_first_write, ask_crash, ask_info;

static const struct {
    const char *name;
    ask_fn *ask;
    bool address, before, after; /* what it takes */
} questions[] = {
    {"last-write", ask_last_write, true, true, false},
    {"first-write", ask_first_write, true, false, true},
    {"crash", ask_crash, false, false, false},
    {"info", ask_info, false, false, false},
};

enum { QUESTIONS = sizeof questions / sizeof *questions };

static int question_number(const char *name)
{
    for (int i = 0; i < QUESTIONS; i++)
        if (!strcmp(questions[i].name, name))
            return i;
    usage("query: there is no question '%s'; ask last-write, first-write, crash or info", name);
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {{"before", 1, NULL, 'b'},
                                            {"after", 1, NULL, 'a'},
                                            {"trace", 1, NULL, 't'},
                                            {"json", 0, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    *o = (struct options){0};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        switch (c) {
        case 'b':
            o->before = optarg;
            break;
        case 'a':
            o->after = optarg;
            break;
        case 't':
            o->trace = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case ':':
            usage("query: %s needs an argument", argv[optind - 1]);
        default:
            usage("query: unknown option %s", argv[optind - 1]);
        }
    }
    int given = argc - optind;
    if (given < 2)
        usage("query: which chronicle, and which question? clio query DB last-write|first-write|crash|info "
              "...");
    int q = question_number(argv[optind + 1]);
    o->database = argv[optind];
    o->question = argv[optind + 1];
    if (given != 2 + questions[q].address)
        usage(questions[q].address ? "query: %s needs one ADDRESS[+LENGTH]" : "query: %s takes no argument",
              o->question);
    if (questions[q].address)
        o->address = argv[optind + 2];
    if (o->before && !questions[q].before)
        usage("query: %s takes no --before", o->question);
    if (o->after && !questions[q].after)
        usage("query: %s takes no --after", o->question);
    return q;
}

/* ---- addresses ---- */

/* A number at text, which ends at its end or at '+'. Returns the position after it or NULL. */
static const char *read_number(const char *text, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    int base = text[0] == '0' && (text[1] | 32) == 'x' ? 16 : 10;
    errno = 0;
    *value = strtoull(text, &end, base);
    return errno || (*end && *end != '+') ? NULL : end;
}

static bool find_symbol(const struct answer_context *c, const char *name, uint64_t *address, uint64_t *size)
{
    size_t n = clio_chronicle_info(c->chronicle)->modules;
    for (size_t i = 0; i < n; i++) {
        struct symbols_map map = answer_map(clio_chronicle_module_number(c->chronicle, i));
        if (symbols_find(c->symbols, &map, name, address, size))
            return true;
    }
    return false;
}

/* Reads a name and its offset; the length becomes what is left of the variable. */
static const char *read_symbol(const struct answer_context *c, const char *text, uint64_t *address,
                               uint64_t *length)
{
    uint64_t size, offset;
    const char *name = text + (*text == '&');
    char *copy = strndup(name, strcspn(name, "+"));
    if (!copy)
        die("query: no memory");
    if (!find_symbol(c, copy, address, &size))
        usage("query: '%s' is neither a number nor a symbol of a module in the chronicle", copy);
    name += strlen(copy);
    free(copy);
    *length = size ? size : DEFAULT_LENGTH;
    if (*name != '+')
        return name;
    name = read_number(name + 1, &offset);
    if (!name)
        return NULL;
    *address += offset;
    *length = offset < size ? size - offset : DEFAULT_LENGTH;
    return name;
}

static void read_address(const struct answer_context *c, const char *text, uint64_t *address,
                         uint64_t *length)
{
    *length = DEFAULT_LENGTH;
    const char *end =
        *text >= '0' && *text <= '9' ? read_number(text, address) : read_symbol(c, text, address, length);
    if (end && *end == '+')
        end = read_number(end + 1, length);
    if (!end || *end)
        usage("query: '%s' is no address; write 0x7ff0, 0x7ff0+16, name, name+OFFSET or name+OFFSET+LENGTH",
              text);
    if (!*length || *length > CLIO_RANGE_MAX)
        usage("query: %s: a range has 1 to %d bytes", text, CLIO_RANGE_MAX);
}

/* ---- moments ---- */

static struct clio_moment read_moment(const struct clio_chronicle *c, const char *option, const char *text)
{
    const struct clio_chronicle_info *i = clio_chronicle_info(c);
    const struct clio_crash *crash = clio_chronicle_crash(c);
    struct moment_ref ref;
    if (!moment_ref_parse(text, &ref) || (ref.kind == MOMENT_END && ref.ticks_before))
        usage("query: %s '%s' is no moment; write EVENT, EVENT:TICK, EVENT:TICK:STEP, start, end or crash",
              option, text);
    if (ref.kind == MOMENT_CRASH && !crash)
        usage("query: %s crash: the interval does not end with a crash", option);
    return ref.kind == MOMENT_START   ? i->from
           : ref.kind == MOMENT_END   ? i->to
           : ref.kind == MOMENT_CRASH ? crash->moment
                                      : (struct clio_moment){ref.point.event, ref.point.tick, ref.point.step};
}

/* ---- questions ---- */

static _Noreturn void refuse(const struct clio_error *error)
{
    if (error->fault == CLIO_FAULT_ARGUMENT)
        usage("query: %s", error->text);
    die("%s", error->text);
}

typedef bool writes_fn(struct clio_chronicle *c, uint64_t address, uint64_t length,
                       const struct clio_moment *moment, const struct clio_write **answers, size_t *count,
                       struct clio_error *error);

static void say_nothing_wrote(const struct answer_context *c, const struct answer_question *q)
{
    const struct clio_chronicle_info *i = clio_chronicle_info(c->chronicle);
    struct clio_moment from = q->first ? q->moment : i->from, to = q->first ? i->to : q->moment;
    char from_text[MOMENT_TEXT], to_text[MOMENT_TEXT];
    warning("query: nothing wrote 0x%" PRIx64 "..0x%" PRIx64 " from %s to %s", q->address,
            q->address + q->length,
            moment_print((struct moment){from.event, from.tick, from.step}, from_text),
            moment_print((struct moment){to.event, to.tick, to.step}, to_text));
}

static int ask_writes(struct answer_context *c, struct clio_chronicle *chronicle, const struct options *o,
                      struct answer_question q, writes_fn *ask)
{
    const struct clio_write *answers;
    struct clio_error error;
    size_t count;
    read_address(c, o->address, &q.address, &q.length);
    if (!ask(chronicle, q.address, q.length, &q.moment, &answers, &count, &error))
        refuse(&error);
    bool any = count != 1 || answers[0].kind != CLIO_WRITE_NONE;
    if (o->json)
        answer_writes_json(c, &q, answers, count);
    else if (any)
        answer_writes_text(c, &q, answers, count);
    else
        say_nothing_wrote(c, &q);
    return any ? EXIT_DONE : EXIT_NOT_SO;
}

static int ask_last_write(struct answer_context *c, struct clio_chronicle *chronicle, const struct options *o)
{
    struct answer_question q = {.name = o->question,
                                .moment = read_moment(chronicle, "--before", o->before ?: "end")};
    return ask_writes(c, chronicle, o, q, clio_chronicle_last_write);
}

static int ask_first_write(struct answer_context *c, struct clio_chronicle *chronicle,
                           const struct options *o)
{
    struct answer_question q = {
        .name = o->question, .first = true, .moment = read_moment(chronicle, "--after", o->after ?: "start")};
    return ask_writes(c, chronicle, o, q, clio_chronicle_first_write);
}

static int ask_crash(struct answer_context *c, struct clio_chronicle *chronicle, const struct options *o)
{
    const struct clio_crash *crash = clio_chronicle_crash(chronicle);
    if (!crash) {
        if (o->json)
            answer_no_crash_json();
        warning("query: the interval of %s does not end with a crash", o->database);
        return EXIT_NOT_SO;
    }
    (o->json ? answer_crash_json : answer_crash_text)(c, crash);
    return EXIT_DONE;
}

static int ask_info(struct answer_context *c, struct clio_chronicle *chronicle, const struct options *o)
{
    (o->json ? answer_info_json : answer_info_text)(c);
    return EXIT_DONE;
}

int cmd_query(int argc, char **argv)
{
    struct options o;
    struct clio_error error;
    int q = parse(argc, argv, &o);
    struct clio_chronicle *chronicle = clio_chronicle_open(o.database, &error);
    if (!chronicle)
        die("%s", error.text);
    const struct clio_chronicle_info *info = clio_chronicle_info(chronicle);
    struct symbols_map *maps = calloc(info->modules + 1, sizeof *maps);
    for (size_t i = 0; maps && i < info->modules; i++)
        maps[i] = answer_map(clio_chronicle_module_number(chronicle, i));
    struct answer_context c = {.chronicle = chronicle};
    c.symbols = maps ? symbols_open(o.trace ?: info->trace, maps, info->modules) : NULL;
    if (!c.symbols)
        die("query: no memory");
    int status = questions[q].ask(&c, chronicle, &o);
    symbols_close(c.symbols);
    free(maps);
    clio_chronicle_close(chronicle);
    return status;
}
