/*
 * clio record: runs a program and everything it starts under the engine.
 *
 * Processes: the one that the shell started becomes the front (front.h), which returns when the program ends.
 * Its child, the recorder, starts the store (writer.h) and the root guest's engine, which starts the rest.
 * The recorder is the subreaper of the tree, so that orphaned guests are waited for as well. It holds the
 * only end for writing of the FIFO TRACE/lifeline; engines have it open for reading with SIGKILL as its
 * signal, so the kernel kills them all when the recorder dies or closes it.
 *
 * When the root guest is gone and descendants of it are not, the recorder lets the front go, leaves session,
 * terminal and inherited descriptors, and goes on until they are gone or `clio stop` comes (through the
 * store); with --wait the front waits as well.
 *
 * Signals are blocked here and read from a signalfd; guests get the mask and the dispositions the front was
 * started with. What a terminal sends to its foreground group reaches the guests by itself and is theirs to
 * judge; what was sent to the front alone is passed on to the root guest, or to all when that is gone.
 * SIGTERM, SIGINT and SIGHUP of the latter kind, and a terminal's hangup, end the recording: guests that live
 * on for 2 seconds, or when the signal is repeated, are killed.
 *
 * Nothing is written to stderr before the root guest is gone, except when the disk is full: the guests stand
 * still then.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/front.h"
#include "cmd/guests.h"
#include "cmd/program.h"
#include "cmd/recording.h"
#include "cmd/require.h"
#include "cmd/trace_text.h"
#include "cmd/writer.h"
#include "engine/cpu/cpu.h"
#include "trace/record.h"
#include "trace/ring.h"

enum {
    GRACE_MS = 2000, /* between a signal that ends the recording and SIGKILL for who is left */
    REPEAT_MS =
        200, /* the same signal sooner than this is the same request (a group and its leader get it) */
    STRAGGLER_MS = 500, /* unrecorded guests know no lifeline: killed by hand after this */
    SETTLE_MS = 100,    /* between the program's end and the background: who is about to end does so */
    RETRY_MS = 20,
};

extern char **environ;

struct recording rec = {.dir = -1, .lifeline = -1, .log_fd = -1, .signals = -1, .front = {.channel = -1}};

/* ---- options ---- */

/* The guest's processor: what was asked for, or the best that is not of v4, which few machines have. */
static void choose_cpu(void)
{
    struct cpu_host host;
    char problem[200], best[] = "v0";
    cpu_host_ask(&host);
    best[1] = (char)('0' + cpu_best_level(&host));
    if (!cpu_choose(rec.cpu ? rec.cpu : best, &host, &rec.choice, problem, sizeof problem))
        usage("--cpu=%s: %s", rec.cpu, problem);
    char missing[CPU_NAMES_MAX];
    cpu_names(cpu_missing(rec.choice.asked, &host), missing, sizeof missing);
    if (*missing)
        die("--cpu=%s: this machine's processor lacks %s", rec.cpu ? rec.cpu : best, missing);
    cpu_names(rec.choice.features & ~cpu_level_features(rec.choice.level), rec.features, sizeof rec.features);
}

static int parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"cpu", 1, NULL, 'c'},          {"aslr", 0, NULL, 'a'},         {"log", 1, NULL, 'l'},
        {"log-file", 1, NULL, 'f'},     {"single-block", 0, NULL, 's'}, {"output", 1, NULL, 'o'},
        {"check-memory", 2, NULL, 'm'}, {"wait", 0, NULL, 'w'},         {NULL, 0, NULL, 0}};
    const char *bad;
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "+:o:", options, NULL)) != -1;) {
        switch (c) {
        case 'o':
            rec.output = optarg;
            if (!*optarg)
                usage("record: -o needs the name of a directory");
            break;
        case 'c':
            rec.cpu = optarg;
            break;
        case 'a':
            rec.aslr = true;
            break;
        case 's':
            rec.single_block = true;
            break;
        case 'w':
            rec.wait = true;
            break;
        case 'm':
            rec.check_memory = optarg ? optarg : "1";
            if (strspn(rec.check_memory, "0123456789") != strlen(rec.check_memory) ||
                atoi(rec.check_memory) < 1)
                usage("record: --check-memory=%s: a number of events from 1 is needed", rec.check_memory);
            break;
        case 'f':
            rec.log_file = optarg;
            break;
        case 'l':
            rec.topics = optarg;
            if (log_select(optarg, &bad))
                usage("record: unknown log topic '%s'", bad);
            break;
        case ':':
            usage("record: %s needs an argument", argv[optind - 1]);
        default:
            usage("record: unknown option %s", argv[optind - 1]);
        }
    }
    if (optind >= argc)
        usage("record: which program? clio record [-o DIR] [--] PROG [ARG...]");
    return optind;
}

/*
 * Descriptors 0 to 2 that are closed stay closed for the guest, but must not become ours: a warning written
 * to the lifeline would kill every engine process.
 */
static void occupy_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != fd)
            die("cannot open /dev/null: %s", strerror(errno));
}

static void open_log(void)
{
    if (!rec.topics)
        return;
    rec.log_fd = rec.log_file ? open(rec.log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                              : fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (rec.log_fd < 0)
        die("cannot open the log %s: %s", rec.log_file ? rec.log_file : "on stderr", strerror(errno));
    log_open(rec.log_fd);
}

/* ---- reports of the store ---- */

static void add_note(const char *text)
{
    for (size_t i = 0; i < rec.nnotes; i++)
        if (!strcmp(rec.notes[i], text))
            return;
    char **notes = realloc(rec.notes, (rec.nnotes + 1) * sizeof *notes);
    if (!notes)
        return;
    rec.notes = notes;
    char *copy = strdup(text);
    if (copy)
        rec.notes[rec.nnotes++] = copy;
}

static void heard_end(const struct store_report *report, const char *text)
{
    char note[1400];
    if (report->why != END_UNSUPPORTED && report->why != END_INTERNAL)
        return;
    snprintf(note, sizeof note, "%s %d (space %u) ended: %.1200s",
             report->space == 1 ? "the program, process" : "process", report->pid, report->space, text);
    add_note(note);
}

/* Acted upon when the store's reports are read: to read them may come in the midst of anything. */
static bool stop_asked;

static void heard(const struct store_report *report, const char *text)
{
    switch (report->op) {
    case REPORT_NOTE:
        add_note(text);
        break;
    case REPORT_END:
        heard_end(report, text);
        break;
    case REPORT_DISK_FULL:
        warning("disk full: guest paused (%s)", text);
        break;
    case REPORT_STOP:
        stop_asked = true;
        break;
    case REPORT_RESUMED:
        warning("there is room on the disk again: guest resumed");
        break;
    }
}

/* ---- children ---- */

static void kill_one(pid_t pid, void *context)
{
    kill(pid, SIGKILL);
}

/* The recording is over, whatever the guests think of it. */
static void kill_guests(void)
{
    if (rec.killing_ms)
        return;
    rec.killing_ms = writer_now_ms();
    __atomic_store_n(&rec.control->stop, 1, __ATOMIC_RELEASE);
    close(rec.lifeline);
    rec.lifeline = -1;
    if (rec.guest && !rec.guest_gone)
        kill(rec.guest, SIGKILL);
}

static void give_up(const char *why)
{
    snprintf(rec.failure, sizeof rec.failure, "%s", why);
    kill_guests();
}

static void guest_changed(const siginfo_t *info)
{
    if (info->si_code == CLD_STOPPED) {
        rec.runs_again = false;
        front_stop(&rec.front, info->si_status);
    } else if (info->si_code == CLD_CONTINUED) {
        rec.runs_again = true;
    } else if (info->si_code == CLD_EXITED || info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED) {
        rec.guest_gone = rec.runs_again = true;
        rec.gone_ms = writer_now_ms();
        rec.status = info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
    }
}

static void store_changed(const siginfo_t *info)
{
    int status = info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status;
    if (!writer_died(&rec.writer, status, &rec.old_mask))
        give_up(rec.writer.error);
}

/* Takes in what children have done. */
static void reap(void)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) || !info.si_pid)
            return;
        if (info.si_pid == rec.guest)
            guest_changed(&info);
        else if (info.si_pid == rec.writer.pid && info.si_code != CLD_STOPPED &&
                 info.si_code != CLD_CONTINUED)
            store_changed(&info);
    }
}

/* ---- signals ---- */

static const struct {
    int signal;
    bool ends; /* the recording, unless a terminal sent it */
} handled[] = {{SIGCHLD, false}, {SIGTERM, true},  {SIGINT, true},   {SIGHUP, true},
               {SIGQUIT, false}, {SIGTSTP, false}, {SIGTTIN, false}, {SIGTTOU, false},
               {SIGCONT, false}, {SIGUSR1, false}, {SIGUSR2, false}, {SIGPIPE, false}};

/* The signals that are handled; those that were ignored stay so. */
static sigset_t block_signals(void)
{
    sigset_t set;
    struct sigaction action;
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &normal, &rec.old_chld); /* ignored, it would let no child be waited for */
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        if (sigaction(handled[i].signal, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, handled[i].signal);
    sigprocmask(SIG_BLOCK, &set, &rec.old_mask);
    return set;
}

static void take_signals(const sigset_t *set)
{
    rec.signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (rec.signals < 0)
        die("cannot make a signalfd: %s", strerror(errno));
}

static bool ends(int signal)
{
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        if (handled[i].signal == signal)
            return handled[i].ends;
    return false;
}

static void end_by(int signal)
{
    uint64_t now = writer_now_ms();
    if (!rec.ending) {
        rec.ending = signal;
        rec.ending_ms = now;
    } else if (now - rec.ending_ms > REPEAT_MS) {
        kill_guests();
    }
}

/* The signal that ends the recording goes to every guest; stopped ones are continued to take it. */
static void tell_all(void)
{
    if (rec.all_told)
        return;
    rec.all_told = true;
    guests_signal(rec.writer.pid, rec.ending);
    guests_continue(rec.writer.pid);
}

/* A signal that the front got. */
static void passed_on(int signal)
{
    LOG(process, "signal %d was sent to the recording", signal);
    if (rec.guest && !rec.guest_gone)
        kill(rec.guest, signal);
    if (ends(signal))
        end_by(signal);
}

/*
 * A signal that this process got itself. While there is a front that is what people know, and a signal to its
 * group reaches it as well: there is nothing to pass on.
 */
static void handle_signal(const struct signalfd_siginfo *info)
{
    int signal = (int)info->ssi_signo;
    bool terminal = info->ssi_code == SI_KERNEL;
    if (signal == SIGCHLD)
        return; /* children are asked after in any case */
    LOG(process, "signal %d, code %d, of %u", signal, info->ssi_code, info->ssi_pid);
    if (ends(signal) && (!terminal || signal == SIGHUP))
        end_by(signal);
}

static void read_signals(void)
{
    struct signalfd_siginfo info;
    while (read(rec.signals, &info, sizeof info) == sizeof info)
        handle_signal(&info);
}

/* ---- the loop ---- */

static int milliseconds_to(uint64_t when)
{
    uint64_t now = writer_now_ms();
    return when > now ? (int)(when - now) : 0;
}

static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Of an end under way: does what is due and returns how long nothing more will be; -1: for ever. */
static int ending_timers(uint64_t now)
{
    if (rec.ending && rec.guest_gone)
        tell_all();
    if (rec.ending && !rec.killing_ms && now - rec.ending_ms >= GRACE_MS)
        kill_guests();
    if (rec.killing_ms && now - rec.killing_ms >= STRAGGLER_MS) {
        guests_all(rec.writer.pid, kill_one, NULL);
        return 50;
    }
    if (rec.killing_ms)
        return milliseconds_to(rec.killing_ms + STRAGGLER_MS);
    return rec.ending ? milliseconds_to(rec.ending_ms + GRACE_MS) : -1;
}

/* There is a front that has no reason to wait for who is left. */
static bool may_go_on_alone(void)
{
    return rec.guest_gone && !rec.background && !rec.wait && !rec.ending && !rec.killing_ms;
}

static int timers(void)
{
    int next = ending_timers(writer_now_ms());
    if (rec.runs_again && front_continue(&rec.front))
        next = sooner(next, RETRY_MS);
    if (may_go_on_alone()) {
        int settled = milliseconds_to(rec.gone_ms + SETTLE_MS);
        next = sooner(next, settled ? settled : RETRY_MS);
    }
    return next;
}

/* It was killed: so is what it stands for, as its parent sees it. */
static void front_is_gone(void)
{
    LOG(process, "the front is gone");
    close(rec.front.channel);
    rec.front = (struct front){.channel = -1};
    rec.background = true;
    if (!rec.ending)
        rec.ending = SIGKILL;
    kill_guests();
}

static void wait_for_news(int timeout)
{
    struct pollfd polls[] = {
        {rec.signals, POLLIN, 0}, {rec.writer.report, POLLIN, 0}, {rec.front.channel, POLLIN, 0}};
    poll(polls, 3, timeout);
    if (polls[0].revents)
        read_signals();
    if (polls[1].revents)
        writer_listen(&rec.writer);
    if (polls[2].revents && !front_listen(&rec.front, passed_on))
        front_is_gone();
    if (stop_asked && !rec.ending) {
        end_by(SIGTERM);
        tell_all();
    }
    reap();
}

/* ---- the background ---- */

static void say_notes(void)
{
    while (rec.nsaid < rec.nnotes)
        warning("%s", rec.notes[rec.nsaid++]);
}

/* Nothing of the front's world is held from here on, as no daemon's parent would. */
static void leave_session(void)
{
    int keep[] = {rec.dir,           rec.lifeline,          rec.log_fd,          rec.signals,
                  rec.writer.report, rec.writer.connection, rec.writer.pool_dir, rec.front.channel};
    if (setsid() < 0 || chdir("/"))
        LOG(process, "leaving the session: %s", strerror(errno));
    fflush(stderr);
    descriptors_close_others(keep, sizeof keep / sizeof *keep);
}

/*
 * The program is gone, others are not. Where the front is the first process of its pid namespace the kernel
 * would kill everything with it: there is no background then.
 */
static void go_on_alone(void)
{
    int n = guests_all(rec.writer.pid, NULL, NULL);
    if (n == 0)
        return;
    if (rec.front.pid == 1) {
        kill_guests();
        return;
    }
    char *path = command_text(1, (const char *const *)&rec.path);
    say_notes();
    warning("%d process%s that the program left behind go%s on in the background, recorded still: "
            "`clio stop %s` ends %s",
            n, n == 1 ? "" : "es", n == 1 ? "es" : "", path, n == 1 ? "it" : "them");
    free(path);
    leave_session();
    rec.background = true;
    front_dismiss(&rec.front, rec.status);
}

static void wait_for_guests(void)
{
    while (!rec.guest_gone || guests_children(rec.writer.pid)) {
        if (may_go_on_alone() && writer_now_ms() >= rec.gone_ms + SETTLE_MS)
            go_on_alone();
        wait_for_news(timers());
    }
}

/* Sends the store away and waits until it has put everything in its place. */
static void dismiss_store(void)
{
    const char *reason = *rec.failure ? rec.failure : rec.ending ? strsignal(rec.ending) : "";
    bool told = false;
    pid_t told_to = 0;
    while (rec.writer.pid > 0 && !*rec.failure) {
        if (!told || told_to != rec.writer.pid) {
            told = writer_goodbye(&rec.writer, rec.status, reason);
            told_to = rec.writer.pid;
        }
        wait_for_news(told ? -1 : 20);
    }
}

static int conclude(void)
{
    say_notes();
    if (rec.writer.incomplete)
        warning("disk full: the last part of the recording stays in %s/rings and is read from there",
                rec.path);
    if (*rec.failure) {
        warning("the recording in %s ended early: %s", rec.path, rec.failure);
        return EXIT_ENVIRONMENT;
    }
    return rec.status;
}

static void run_unrecorded(void)
{
    warning("%s is not recorded: %s", rec.program.path, rec.program.unrecorded);
    execve(rec.program.path, rec.program.argv, environ);
    die("cannot run %s: %s", rec.program.path, strerror(errno));
}

int cmd_record(int argc, char **argv)
{
    int first = parse(argc, argv), status;
    choose_cpu();
    program_find(&rec.program, argv + first);
    if (rec.program.unrecorded)
        run_unrecorded();
    const char *missing = require_all();
    if (missing)
        die("cannot record here: %s", missing);
    descriptors_lift_limit(&rec.old_files);
    occupy_standard_descriptors();
    open_log();
    sigset_t signals = block_signals();
    rec.caller = getppid();
    if (!front_split(&rec.front, &signals, &status))
        return status;
    prctl(PR_SET_NAME, "clio-recorder");
    take_signals(&signals);
    error_set_exit(record_leave);
    record_create_trace(argc - first, argv + first);
    record_need_room();
    record_create_lifeline();
    record_create_control();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        die("cannot become the subreaper of the guests: %s", strerror(errno));
    rec.writer = (struct writer){.dir = rec.dir,
                                 .pool_dir = record_open_pool(),
                                 .log_fd = rec.log_fd,
                                 .topics = rec.topics,
                                 .heard = heard};
    if (!writer_start(&rec.writer, &rec.old_mask))
        die("%s", rec.writer.error);
    record_set_latest();
    guests_children(rec.writer.pid); /* there is none, but that this can be found out is needed later */
    record_start_guest();
    wait_for_guests();
    dismiss_store();
    return conclude();
}
