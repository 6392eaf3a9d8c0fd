/*
 * clio chronicle: builds the database of an interval of one recorded process.
 *
 * Chooses the space and turns the interval's ends into moments; the engine replays the interval, writes the
 * database, and says what went wrong. Exit status: 0 built; 1 `crash` of a space that did not crash, or the
 * replay diverged; 2 an interval that makes no sense; 3 as ever.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/error.h"
#include "base/libexec.h"
#include "base/log.h"
#include "clio/chronicle.h"
#include "clio/trace.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"
#include "trace/event_reader.h"
#include "trace/moment.h"

struct wish { /* what the user wants */
    const char *trace, *from, *to, *output, *topics;
    uint32_t space; /* 0: to be chosen */
    int pid;        /* 0: any */
};

static uint64_t number(const char *option, const char *text, uint64_t limit)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || end == text || errno || *text == '-' || n == 0 || n > limit)
        usage("chronicle: %s needs a number from 1 to %llu, not '%s'; clio ps lists them", option,
              (unsigned long long)limit, text);
    return n;
}

static void parse(int argc, char **argv, struct wish *w)
{
    static const struct option options[] = {
        {"space", 1, NULL, 's'},  {"pid", 1, NULL, 'p'}, {"from", 1, NULL, 'f'}, {"to", 1, NULL, 't'},
        {"output", 1, NULL, 'o'}, {"log", 1, NULL, 'l'}, {NULL, 0, NULL, 0}};
    const char *bad;
    *w = (struct wish){.from = "start", .to = "end"};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":o:", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            w->space = (uint32_t)number("--space", optarg, UINT32_MAX);
            break;
        case 'p':
            w->pid = (int)number("--pid", optarg, INT_MAX);
            break;
        case 'f':
            w->from = optarg;
            break;
        case 't':
            w->to = optarg;
            break;
        case 'o':
            w->output = optarg;
            break;
        case 'l':
            w->topics = optarg;
            if (log_select(optarg, &bad))
                usage("chronicle: unknown log topic '%s'", bad);
            break;
        case ':':
            usage("chronicle: %s needs an argument", argv[optind - 1]);
        default:
            usage("chronicle: unknown option %s", argv[optind - 1]);
        }
    }
    if (argc - optind > 1)
        usage("chronicle: one trace at a time, not also %s", argv[optind + 1]);
    if (w->space && w->pid)
        usage("chronicle: --space or --pid, not both");
    if (!w->output)
        usage("chronicle: -o FILE says where the database goes");
    w->trace = argv[optind];
}

/* ---- which space ---- */

/* Signals whose default action is a core file: what people call a crash. */
static bool is_crash(int signo)
{
    static const int crashes[] = {SIGSEGV, SIGABRT, SIGBUS,  SIGFPE,  SIGILL,
                                  SIGTRAP, SIGSYS,  SIGQUIT, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (crashes[i] == signo)
            return true;
    return false;
}

/* The space that the root became by its execs, as far as they are recorded. */
static const struct clio_space_info *last_of_root(const struct clio_space_info *spaces, size_t n)
{
    const struct clio_space_info *last = &spaces[0];
    for (size_t i = 1; i < n; i++)
        if (spaces[i].origin == CLIO_ORIGIN_EXEC && spaces[i].parent == last->space)
            last = &spaces[i];
    return last;
}

static const struct clio_space_info *choose(const struct wish *w, const struct clio_space_info *spaces,
                                            size_t n)
{
    const struct clio_space_info *crashed = NULL, *killed = NULL, *of_pid = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct clio_space_info *s = &spaces[i];
        if (w->space && s->space == w->space)
            return s;
        if (w->pid && s->pid == w->pid)
            of_pid = s;
        if (s->end != CLIO_END_SIGNAL)
            continue;
        if (!crashed && is_crash(s->status))
            crashed = s;
        if (!killed)
            killed = s;
    }
    if (w->space)
        usage("chronicle: %s has no space %u; clio ps lists them", w->trace ? w->trace : "the trace",
              w->space);
    if (w->pid && !of_pid)
        usage("chronicle: %s has no process %d; clio ps lists them", w->trace ? w->trace : "the trace",
              w->pid);
    return of_pid ? of_pid : crashed ? crashed : killed ? killed : last_of_root(spaces, n);
}

/* ---- which interval ---- */

/* A moment's tick must have happened; where the next event is unknown nobody can tell. */
static void check_tick(struct clio_source *source, uint32_t space, const char *option, struct moment m)
{
    struct clio_error error;
    struct trace_item item;
    struct trace_reader *reader = m.tick ? trace_reader_open(source, space, &error) : NULL;
    if (!reader)
        return;
    if (trace_reader_seek(reader, m.event + 1) && trace_reader_next(reader, &item) == CLIO_RECORD &&
        m.tick > item.event->ticks)
        usage("chronicle: %s %" PRIu64 ":%" PRIu64 " lies outside: event %" PRIu64 " is followed by %" PRIu64
              " ticks, then by the next event",
              option, m.event, m.tick, m.event, item.event->ticks);
    trace_reader_close(reader);
}

/* The moment of an option's text. Ends the program when there is none. */
static struct moment resolve(struct clio_source *source, uint32_t space, const char *option, const char *text)
{
    struct moment_ref ref;
    struct moment m;
    struct clio_error error;
    if (!moment_ref_parse(text, &ref))
        usage("chronicle: %s '%s' is no moment; write EVENT, EVENT:TICK, EVENT:TICK:STEP, start, end, end-N "
              "or crash",
              option, text);
    if (!moment_resolve(source, space, ref, &m, &error)) {
        if (error.fault != CLIO_FAULT_MISSING)
            die("chronicle: %s %s: %s", option, text, error.text);
        if (ref.kind == MOMENT_POINT)
            usage("chronicle: %s: %s", option, error.text);
        warning("chronicle: %s %s: %s", option, text, error.text);
        exit(EXIT_NOT_SO);
    }
    check_tick(source, space, option, m);
    return m;
}

/* ---- the engine ---- */

static char *number_text(uint64_t n)
{
    char *text;
    if (asprintf(&text, "%" PRIu64, n) < 0)
        die("chronicle: no memory");
    return text;
}

/* All three parts, whatever they are. */
static char *whole_moment(struct moment m)
{
    char *text;
    if (asprintf(&text, "%" PRIu64 ":%" PRIu64 ":%" PRIu64, m.event, m.tick, m.step) < 0)
        die("chronicle: no memory");
    return text;
}

static _Noreturn void run_engine(const char *engine, const char *trace, uint32_t space, struct moment from,
                                 struct moment to, const struct wish *w)
{
    char *empty[] = {NULL}, *argv[20];
    int n = 0;
    argv[n++] = "clio-engine";
    argv[n++] = "chronicle";
    argv[n++] = "--trace";
    argv[n++] = (char *)trace;
    argv[n++] = "--space";
    argv[n++] = number_text(space);
    argv[n++] = "--from";
    argv[n++] = whole_moment(from);
    argv[n++] = "--to";
    argv[n++] = whole_moment(to);
    argv[n++] = "--out";
    argv[n++] = (char *)w->output;
    if (w->topics) {
        argv[n++] = "--log-fd";
        argv[n++] = number_text((uint64_t)dup(2));
        argv[n++] = "--log";
        argv[n++] = (char *)w->topics;
    }
    argv[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execve(engine, argv, empty);
    fprintf(stderr, "clio: cannot run %s: %s\n", engine, strerror(errno));
    _exit(EXIT_ENVIRONMENT);
}

/* Bytes a process has written so far; 0 when nobody tells. */
static uint64_t written_by(pid_t pid)
{
    char path[64], line[128];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "wchar: %" SCNu64, &bytes) == 1)
            break;
    if (f)
        fclose(f);
    return bytes;
}

/* Waits for the engine; on a terminal, with a line that shows that it works. */
static int wait_for(pid_t pid)
{
    const struct timespec look = {0, 100 * 1000 * 1000};
    bool terminal = isatty(2);
    int status;
    for (unsigned tenths = 0;; tenths++) {
        pid_t got = waitpid(pid, &status, terminal ? WNOHANG : 0);
        if (got < 0 && errno != EINTR)
            die("cannot wait for the engine: %s", strerror(errno));
        if (got == pid)
            break;
        if (terminal && tenths % 10 == 9)
            fprintf(stderr, "\rclio: %u s, %.1f MB written ", (tenths + 1) / 10,
                    (double)written_by(pid) / 1e6);
        if (terminal)
            nanosleep(&look, NULL);
    }
    if (terminal)
        fprintf(stderr, "\r\033[K");
    return status;
}

/* Runs the engine to its end and returns its exit status. */
static int build(const char *trace, uint32_t space, struct moment from, struct moment to,
                 const struct wish *w)
{
    char engine[PATH_MAX];
    int error = libexec_path(engine, sizeof engine, "clio-engine");
    if (error)
        die("cannot find clio-engine (%s): %s", engine, strerror(-error));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        die("cannot fork for the engine: %s", strerror(errno));
    if (pid == 0)
        run_engine(engine, trace, space, from, to, w);
    int status = wait_for(pid);
    if (WIFSIGNALED(status))
        die("the engine building %s was killed by signal %d (%s)", w->output, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status);
}

static void report(const struct wish *w)
{
    struct clio_error error;
    struct clio_chronicle *c = clio_chronicle_open(w->output, &error);
    if (!c)
        die("the engine left no chronicle: %s", error.text);
    const struct clio_chronicle_info *i = clio_chronicle_info(c);
    printf("%s: %" PRIu64 " instructions, %" PRIu64 " writes, %" PRIu64 " events in %" PRIu64 " bytes\n",
           w->output, i->instructions, i->writes, i->events, i->file_size);
    clio_chronicle_close(c);
}

int cmd_chronicle(int argc, char **argv)
{
    struct wish w;
    struct clio_error error;
    const struct clio_space_info *spaces;
    size_t n;
    char from_text[MOMENT_TEXT], to_text[MOMENT_TEXT];
    parse(argc, argv, &w);
    descriptors_lift_limit(NULL);
    if (!access(w.output, F_OK))
        die("chronicle: %s exists; remove it or choose another name", w.output);
    struct clio_source *source = clio_source_open(w.trace, &error);
    if (!source || !clio_source_spaces(source, &spaces, &n, &error))
        die("%s", error.text);
    if (!n)
        die("nothing was recorded in %s", clio_source_path(source));
    need_cpu(source);
    const struct clio_space_info *s = choose(&w, spaces, n);
    struct moment from = resolve(source, s->space, "--from", w.from),
                  to = resolve(source, s->space, "--to", w.to);
    if (moment_compare(from, to) >= 0)
        usage("chronicle: the interval from %s to %s is empty", moment_print(from, from_text),
              moment_print(to, to_text));
    if (isatty(2))
        fprintf(stderr, "clio: replaying space %u (process %d, %s) from %s to %s\n", s->space, s->pid, s->exe,
                moment_print(from, from_text), moment_print(to, to_text));
    int status = build(clio_source_path(source), s->space, from, to, &w);
    if (status == EXIT_DONE)
        report(&w);
    clio_source_close(source);
    return status;
}
