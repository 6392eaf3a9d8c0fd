/*
 * clio replay -a: repeats a recording to its end and says whether everything matched.
 *
 * The engine does the work: one process begins with the root space (or the one asked for) and makes a process
 * of its own for each forked space. This command tells them beforehand, in memory they share
 * (protocol/replay_shared.h), in which order the outputs of all spaces came, waits for them, and reports. A
 * space is out of reach when the event that would start it was not published before its parent was killed.
 *
 * Engine processes may crash, and one that waits for the output of a crashed one would wait for ever: this
 * process is the subreaper, watches its descendants, and ends all waiting by `abort` when one died, and all
 * of them by SIGKILL when that does not help.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/error.h"
#include "base/libexec.h"
#include "base/log.h"
#include "clio/trace.h"
#include "cmd/cmd.h"
#include "cmd/process.h"
#include "cmd/trace_text.h"
#include "trace/event_reader.h"
#include "trace/moment.h"
#include "trace/record.h"
#include "protocol/replay_shared.h"

enum {
    LOOK_MS = 100,  /* between looks at the engine processes */
    ABORT_MS = 3000 /* between `abort` and SIGKILL */
};

struct member { /* a space of the trace */
    const struct clio_space_info *info;
    bool chosen;       /* it is replayed */
    bool cut;          /* its records end without a last event */
    uint64_t last_seq; /* of its last event */
};

static struct {
    /* what the user wants */
    bool all, single_block;
    bool live;      /* the trace was still growing when the replay began: it is followed */
    uint32_t space; /* 0: the root */
    const char *topics, *log_file, *trace;

    struct clio_source *source;
    struct member *members;
    size_t nmembers;
    size_t nchosen, nunreachable;
    uint64_t *outputs;
    size_t noutputs, outputs_capacity;
    char damage[sizeof((struct clio_error *)0)->text]; /* the first thing that could not be read */

    char lost[sizeof((struct clio_error *)0)->text]; /* where the first cut stream ends */

    struct replay_shared *shared;
    size_t shared_size;
    int shared_fd, log_fd;
    pid_t engine;
    char crash[300];     /* how an engine process died, if one did */
    uint64_t aborted_ms; /* when `abort` was set; 0: not */
    int interrupted;     /* by this signal */
} rep = {.log_fd = -1};

/* ---- options ---- */

static uint32_t parse_space(const char *text)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || end == text || errno || n == 0 || n > UINT32_MAX)
        usage("replay: '%s' is no number of a space; clio ps lists them", text);
    return (uint32_t)n;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {{"all", 0, NULL, 'a'},          {"space", 1, NULL, 's'},
                                            {"log", 1, NULL, 'l'},          {"log-file", 1, NULL, 'f'},
                                            {"single-block", 0, NULL, 'b'}, {NULL, 0, NULL, 0}};
    const char *bad;
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":a", options, NULL)) != -1;) {
        switch (c) {
        case 'a':
            rep.all = true;
            break;
        case 's':
            rep.space = parse_space(optarg);
            break;
        case 'b':
            rep.single_block = true;
            break;
        case 'f':
            rep.log_file = optarg;
            break;
        case 'l':
            rep.topics = optarg;
            if (log_select(optarg, &bad))
                usage("replay: unknown log topic '%s'", bad);
            break;
        case ':':
            usage("replay: %s needs an argument", argv[optind - 1]);
        default:
            usage("replay: unknown option %s", argv[optind - 1]);
        }
    }
    if (argc - optind > 1)
        usage("replay: one trace at a time, not also %s", argv[optind + 1]);
    if (!rep.all)
        usage("replay: only `clio replay -a` exists, which runs to the end without a debugger");
    rep.trace = argv[optind];
}

static void open_log(void)
{
    if (!rep.topics)
        return;
    rep.log_fd = rep.log_file ? open(rep.log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                              : fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (rep.log_fd < 0)
        die("cannot open the log %s: %s", rep.log_file ? rep.log_file : "on stderr", strerror(errno));
    log_open(rep.log_fd);
}

/* ---- what is to be replayed ---- */

static void note_damage(const struct clio_error *error)
{
    if (!*rep.damage)
        snprintf(rep.damage, sizeof rep.damage, "%s", error->text);
}

static struct member *member(uint32_t space)
{
    for (size_t i = 0; i < rep.nmembers; i++)
        if (rep.members[i].info->space == space)
            return &rep.members[i];
    return NULL;
}

/* Chooses the first space and every space that can be reached from it. Spaces come in order of their numbers,
 * parents first. */
static void choose(void)
{
    const struct clio_space_info *spaces;
    struct clio_error error;
    if (!clio_source_spaces(rep.source, &spaces, &rep.nmembers, &error))
        note_damage(&error); /* what was found before it can be replayed */
    rep.members = calloc(rep.nmembers + 1, sizeof *rep.members);
    if (!rep.members)
        die("no memory for %zu spaces", rep.nmembers);
    bool found = false;
    for (size_t i = 0; i < rep.nmembers; i++) {
        struct member *m = &rep.members[i];
        m->info = &spaces[i];
        const struct member *parent = m->info->parent ? member(m->info->parent) : NULL;
        bool first = rep.space ? m->info->space == rep.space : !found;
        found |= first;
        bool born = parent && parent->chosen;
        bool reached = first || (born && m->info->parent_event <= parent->info->events);
        m->chosen = reached && m->info->events > 0;
        rep.nchosen += m->chosen;
        rep.nunreachable += born && !reached;
    }
    if (rep.nmembers && rep.members[0].info->origin == CLIO_ORIGIN_UNKNOWN)
        die("%s/tasks does not say how space %u began; clio verify shows what is left",
            clio_source_path(rep.source), rep.members[0].info->space);
    if (!found && rep.space)
        die("%s has no space %u; clio ps lists them", clio_source_path(rep.source), rep.space);
    if (rep.nchosen == 0 && *rep.damage)
        die("%s", rep.damage);
}

/* A recording that was cut before its first event replays to its end at once. */
static int nothing_to_replay(void)
{
    if (clio_source_live(rep.source))
        die("nothing is recorded yet in %s", clio_source_path(rep.source));
    warning("%s was cut before the first event: its recorder was killed before the program began",
            clio_source_path(rep.source));
    return EXIT_DONE;
}

static void add_output(uint64_t seq)
{
    if (rep.noutputs == rep.outputs_capacity) {
        rep.outputs_capacity = rep.outputs_capacity ? rep.outputs_capacity * 2 : 1024;
        rep.outputs = reallocarray(rep.outputs, rep.outputs_capacity, sizeof *rep.outputs);
        if (!rep.outputs)
            die("no memory for %zu outputs", rep.outputs_capacity);
    }
    rep.outputs[rep.noutputs++] = seq;
}

/* Reads the heads of a space's events: the order of its outputs, and how its records end. */
static void scan(struct member *m)
{
#define KIND(constant, ...) constant,
    static const uint16_t kinds[] = {TRACE_EVENT_KINDS(KIND)};
#undef KIND
    struct clio_error error;
    struct clio_stream *stream =
        clio_stream_open(rep.source, m->info->space, kinds, sizeof kinds / sizeof *kinds, &error);
    if (!stream) {
        note_damage(&error);
        return;
    }
    const struct clio_record_head *record;
    enum clio_next next;
    while ((next = clio_stream_next(stream, &record, &error)) == CLIO_RECORD) {
        const struct trace_event *e = (const struct trace_event *)record;
        if (record->flags & (EVF_OUTPUT | EVF_OUTERR))
            add_output(e->seq);
        m->last_seq = e->seq;
    }
    if (next == CLIO_ERROR)
        note_damage(&error);
    m->cut = next == CLIO_CUT_HERE || next == CLIO_ERROR; /* a growing one is not cut yet */
    if (next == CLIO_CUT_HERE && !*rep.lost)
        snprintf(rep.lost, sizeof rep.lost, "%s", error.text);
    clio_stream_close(stream);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void share(void)
{
    if (rep.noutputs)
        qsort(rep.outputs, rep.noutputs, sizeof *rep.outputs, ascending);
    rep.shared_size = sizeof *rep.shared + rep.noutputs * sizeof *rep.outputs;
    rep.shared_fd = memfd_create("clio-replay", MFD_CLOEXEC);
    if (rep.shared_fd < 0 || ftruncate(rep.shared_fd, (off_t)rep.shared_size))
        die("cannot make %zu bytes of shared memory: %s", rep.shared_size, strerror(errno));
    rep.shared = mmap(NULL, rep.shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, rep.shared_fd, 0);
    if (rep.shared == MAP_FAILED)
        die("cannot map %zu bytes of shared memory: %s", rep.shared_size, strerror(errno));
    rep.shared->noutputs = (uint32_t)rep.noutputs;
    if (rep.noutputs)
        memcpy(rep.shared->outputs, rep.outputs, rep.noutputs * sizeof *rep.outputs);
}

/* ---- the engine ---- */

static char *number(uint64_t n)
{
    char *text;
    if (asprintf(&text, "%" PRIu64, n) < 0)
        die("no memory");
    return text;
}

static char *pass(int fd)
{
    fcntl(fd, F_SETFD, 0);
    return number((uint64_t)fd);
}

static _Noreturn void run_engine(const char *engine, const sigset_t *mask)
{
    char *argv[20], *empty[] = {NULL};
    int n = 0;
    argv[n++] = "clio-engine";
    argv[n++] = "replay";
    argv[n++] = "--shared-fd";
    argv[n++] = pass(rep.shared_fd);
    if (rep.space) {
        argv[n++] = "--space";
        argv[n++] = number(rep.space);
    }
    if (rep.topics) {
        argv[n++] = "--log-fd";
        argv[n++] = pass(rep.log_fd);
        argv[n++] = "--log";
        argv[n++] = (char *)rep.topics;
    }
    if (rep.single_block)
        argv[n++] = "--single-block";
    argv[n++] = "--trace";
    argv[n++] = (char *)clio_source_path(rep.source);
    argv[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(engine, argv, empty);
    fprintf(stderr, "clio: cannot run %s: %s\n", engine, strerror(errno));
    _exit(EXIT_ENVIRONMENT);
}

static void start_engine(const sigset_t *mask)
{
    char engine[PATH_MAX];
    int error = libexec_path(engine, sizeof engine, "clio-engine");
    if (error)
        die("cannot find clio-engine (%s): %s", engine, strerror(-error));
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        die("cannot become the subreaper of the engine's processes: %s", strerror(errno));
    rep.engine = fork();
    if (rep.engine < 0)
        die("cannot fork for the engine: %s", strerror(errno));
    if (rep.engine == 0)
        run_engine(engine, mask);
}

/* ---- watching ---- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* Ends all waiting in the engine's processes. */
static void abort_replay(void)
{
    if (!rep.aborted_ms)
        rep.aborted_ms = now_ms();
    __atomic_store_n(&rep.shared->abort, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &rep.shared->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void note_crash(pid_t pid, int status)
{
    if (WIFSIGNALED(status) && !*rep.crash && !rep.interrupted && !rep.aborted_ms)
        snprintf(rep.crash, sizeof rep.crash, "engine process %d was killed by signal %d (%s)", (int)pid,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WIFSIGNALED(status))
        abort_replay();
}

/* Walks the descendants of `pid`: notes those that lie dead and unreaped, and sends `signal` when it is not
 * 0. */
static void walk_descendants(pid_t pid, int signal)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    while (fscanf(f, "%d", &child) == 1) {
        char state;
        int status;
        if (process_look(child, &state, &status) && state == 'Z' && WIFSIGNALED(status))
            note_crash(child, status);
        if (signal)
            kill(child, signal);
        walk_descendants(child, signal);
    }
    fclose(f);
}

/* Reaps what has ended; false when no process is left. */
static bool reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        note_crash(pid, status);
    return pid == 0;
}

static void wait_for_engine(const sigset_t *signals)
{
    while (reap()) {
        struct timespec pause = {0, LOOK_MS * 1000000L};
        int signal = sigtimedwait(signals, NULL, &pause);
        if (signal == SIGCHLD)
            continue;
        if (signal > 0) {
            rep.interrupted = signal;
            abort_replay();
            walk_descendants(getpid(), SIGKILL);
        }
        if (__atomic_load_n(&rep.shared->diverged, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&rep.shared->failed, __ATOMIC_ACQUIRE))
            abort_replay();
        walk_descendants(getpid(), rep.aborted_ms && now_ms() - rep.aborted_ms > ABORT_MS ? SIGKILL : 0);
    }
}

/* ---- report ---- */

/* Where and why a cut space ends: "the recording of space 3 (process 77, /bin/cat) ends at 15: killed inside
 * read(...)". */
static void say_cut(const struct member *m, size_t others)
{
    struct clio_error error;
    struct trace_item item;
    struct trace_reader_end end = {.text = "cut short"};
    char moment[MOMENT_TEXT], more[80] = "";
    struct trace_reader *reader = trace_reader_open(rep.source, m->info->space, &error);
    if (reader && trace_reader_seek(reader, m->info->events + 1)) {
        trace_reader_next(reader, &item);
        trace_reader_end(reader, &end);
    }
    if (reader)
        trace_reader_close(reader);
    if (others)
        snprintf(more, sizeof more, "; %zu other spaces end so, too", others);
    fprintf(stderr, "clio: the recording of space %u (process %d, %s) ends at %s: %s%s\n", m->info->space,
            m->info->pid, m->info->exe, moment_print((struct moment){m->info->events, end.ticks, 0}, moment),
            end.text, more);
}

static void say_cuts(void)
{
    const struct member *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < rep.nmembers; i++) {
        const struct member *m = &rep.members[i];
        if (!m->chosen || !m->cut)
            continue;
        n++;
        if (!last || m->last_seq > last->last_seq)
            last = m;
    }
    if (n)
        say_cut(last, n - 1);
    if (rep.nunreachable)
        fprintf(
            stderr,
            "clio: %zu spaces cannot be replayed: their parents were killed before the fork was recorded\n",
            rep.nunreachable);
}

static int bad(const char *text)
{
    fprintf(stderr, "clio: %s\n", text);
    return EXIT_ENVIRONMENT;
}

static int report(void)
{
    const struct replay_shared *sh = rep.shared;
    char text[sizeof rep.lost + 100];
    if (rep.interrupted)
        return 128 + rep.interrupted;
    if (sh->diverged) {
        fprintf(stderr, "clio: %.*s\n", (int)sizeof sh->text, sh->text);
        return EXIT_NOT_SO;
    }
    if (*rep.damage)
        return bad(rep.damage);
    if (sh->failed)
        return bad(sh->text);
    if (*rep.crash) {
        snprintf(text, sizeof text, "%.150s; this is a fault of Clio", rep.crash);
        return bad(text);
    }
    if (sh->spaces_done + sh->spaces_cut < rep.nchosen) {
        snprintf(text, sizeof text, "only %u of %zu spaces were replayed%s%s",
                 sh->spaces_done + sh->spaces_cut, rep.nchosen, *rep.lost ? ": " : "", rep.lost);
        return bad(text);
    }
    say_cuts();
    if (rep.live && sh->spaces_cut)
        fprintf(stderr, "clio: %u spaces of %s end without a last event; clio ps says why\n", sh->spaces_cut,
                clio_source_path(rep.source));
    return EXIT_DONE;
}

int cmd_replay(int argc, char **argv)
{
    struct clio_error error;
    parse(argc, argv);
    descriptors_lift_limit(NULL);
    open_log();
    rep.source = clio_source_open(rep.trace, &error);
    if (!rep.source)
        die("%s", error.text);
    choose();
    if (rep.nchosen == 0)
        return nothing_to_replay();
    need_cpu(rep.source);
    for (size_t i = 0; i < rep.nmembers; i++)
        if (rep.members[i].chosen)
            scan(&rep.members[i]);
    share();
    rep.live = clio_source_live(rep.source);
    if (rep.live)
        warning(
            "%s is still being recorded and is followed to its end; what several processes print from now on "
            "may come in another order",
            clio_source_path(rep.source));

    static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    sigset_t signals, mask;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&signals, handled[i]);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would let no child be waited for */
    sigprocmask(SIG_BLOCK, &signals, &mask);
    start_engine(&mask);
    wait_for_engine(&signals);
    return report();
}
