/*
 * clio-store: the process that writes a trace. See store.h for its parts and protocol.h for what it is told.
 *
 *     clio-store --dir-fd N --pool-fd N --report-fd N [--log TOPICS --log-fd N]
 *
 * Started by `clio record` with an empty environment. It is a session of its own, deaf to terminals and
 * polite signals, so that nothing but SIGKILL ends it before its work is done. Another one may have died
 * before it: what that left in TRACE/rings is taken up where it stopped.
 *
 * It ends when the recorder says goodbye, or when the recorder and every client are gone: what is left in the
 * rings is moved, spaces without an end get one, the socket and the lifeline are removed.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/packet.h"

enum {
    BUSY_MS = 20,       /* between turns while records come in */
    IDLE_MS = 1000,     /* ... and while none do */
    SETTLE_MS = 10,     /* ... and at the end */
    GOODBYE_MS = 2000,  /* how long processes may outlive the recorder's goodbye */
    DISK_FULL_MS = 500, /* how long the end waits for room on the disk */
    LOCK_MS = 2000,     /* how long a predecessor may keep the trace locked */
};

static struct store store = {.dir = -1, .listener = -1, .report = -1, .recorder = -1};

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void *grow_array(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 16;
    array = realloc(array, *capacity * size);
    if (!array)
        die("no memory for %zu more", *capacity);
    return array;
}

/* ---- start ---- */

static void say_to_recorder(const char *text)
{
    LOG(store, "%s", text);
    struct store_report head = {.op = REPORT_FAILED};
    if (store.report >= 0)
        packet_send(store.report, &head, sizeof head, text, strlen(text), NULL, 0, 0);
}

static int descriptor(const char *text)
{
    char *end;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 0 || fcntl((int)fd, F_GETFD) < 0)
        usage("clio-store: '%s' is no open descriptor", text);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    return (int)fd;
}

static void parse(int argc, char **argv, int *pool_dir, int *log_fd)
{
    static const struct option options[] = {{"dir-fd", 1, NULL, 'd'},    {"pool-fd", 1, NULL, 'p'},
                                            {"report-fd", 1, NULL, 'r'}, {"log", 1, NULL, 'l'},
                                            {"log-fd", 1, NULL, 'f'},    {NULL, 0, NULL, 0}};
    const char *bad;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'd':
            store.dir = descriptor(optarg);
            break;
        case 'p':
            *pool_dir = descriptor(optarg);
            break;
        case 'r':
            store.report = descriptor(optarg);
            break;
        case 'f':
            *log_fd = descriptor(optarg);
            log_open(*log_fd);
            break;
        case 'l':
            if (log_select(optarg, &bad))
                usage("clio-store: unknown log topic '%s'", bad);
            break;
        default:
            exit(EXIT_USAGE);
        }
    }
    if (store.dir < 0 || *pool_dir < 0 || store.report < 0 || optind < argc)
        usage("clio-store is started by `clio record`: --dir-fd, --pool-fd and --report-fd are needed");
}

/* The largest file is the program's concern as well. */
static void lift_file_size(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void detach(int pool_dir, int log_fd)
{
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
                                  SIGTTOU, SIGPIPE, SIGIO,   SIGXFSZ, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() < 0)
        LOG(store, "setsid: %s", strerror(errno));
    int keep[] = {store.dir, pool_dir, store.report, log_fd};
    descriptors_close_others(keep, sizeof keep / sizeof *keep);
    if (chdir("/"))
        LOG(store, "chdir /: %s", strerror(errno));
    umask(077);
    descriptors_lift_limit(NULL);
    lift_file_size();
}

static int open_at(int dir, const char *name, int flags)
{
    int fd = openat(dir, name, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        die("cannot open %s in the trace: %s", name, strerror(errno));
    return fd;
}

/* One store writes at a time. A predecessor that was killed holds the lock until the kernel has cleaned it
 * up. */
static void lock_trace(void)
{
    int fd = open_at(store.dir, "lock", O_RDWR | O_CREAT);
    for (uint64_t end = now_ms() + LOCK_MS; flock(fd, LOCK_EX | LOCK_NB);) {
        if (errno != EWOULDBLOCK)
            die("cannot lock the trace: %s", strerror(errno));
        if (now_ms() > end)
            die("another store writes this trace");
        usleep(2000);
    }
}

static void open_trace(int pool_dir)
{
    struct clio_error error;
    lock_trace();
    store.rings = open_at(store.dir, "rings", O_RDONLY | O_DIRECTORY);
    store.files = open_at(store.dir, "files", O_RDONLY | O_DIRECTORY);
    int fd = open_at(store.rings, "control", O_RDWR);
    store.control = mmap(NULL, sizeof *store.control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (store.control == MAP_FAILED)
        die("cannot map rings/control: %s", strerror(errno));
    if (store.control->magic != CONTROL_MAGIC || store.control->version != TRACE_FORMAT_VERSION)
        die("rings/control is none of this version");
    store.sink = trace_sink_open(store.dir, &error);
    if (!store.sink)
        die("%s", error.text);
    int failed = pool_open(&store.pool, pool_dir, store.files);
    if (failed)
        die("cannot open the pool of captured files: %s", strerror(-failed));
}

static void start_serving(void)
{
    store.listener = packet_listen(store.dir, "socket");
    if (store.listener < 0)
        die("cannot listen at the trace's socket: %s", strerror(-store.listener));
    store.control->store_pid = (uint32_t)getpid();
    __atomic_store_n(&store.control->disk_full, 0, __ATOMIC_RELEASE);
    spaces_find_all(&store);
    report_send(&store, &(struct store_report){.op = REPORT_READY}, "");
}

/* ---- the loop ---- */

static void accept_clients(void)
{
    for (int fd; (fd = accept4(store.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        int yes = 1;
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
        store.clients = grow_array(store.clients, store.nclients, &store.clients_capacity, sizeof(int));
        store.clients[store.nclients++] = fd;
    }
}

static void serve_client(int fd, short events)
{
    bool open = true;
    for (int i = 0; open && i < 64 && (events & POLLIN); i++) {
        struct pollfd more = {fd, POLLIN, 0};
        if (poll(&more, 1, 0) <= 0)
            break;
        open = serve_request(&store, fd);
    }
    if (open && !(events & (POLLHUP | POLLERR) && !(events & POLLIN)))
        return;
    for (size_t i = 0; i < store.nclients; i++)
        if (store.clients[i] == fd)
            store.clients[i] = store.clients[--store.nclients];
    close(fd);
}

static void recorder_is_dead(void)
{
    if (!store.recorder_dead && !store.goodbye)
        LOG(store, "the recorder is gone");
    store.recorder_dead = !store.goodbye;
}

static void serve_report(short events)
{
    if (events & POLLOUT)
        report_flush(&store);
    if (store.report >= 0 && (events & (POLLHUP | POLLERR))) {
        close(store.report);
        store.report = -1;
        recorder_is_dead();
    }
}

/* Waits for anything to happen, or timeout ms, and handles it. */
static void wait_and_serve(int timeout)
{
    static struct pollfd *polls;
    static size_t capacity;
    size_t n = 0, total = 3 + store.nclients + store.nspaces;
    while (capacity < total)
        polls = grow_array(polls, capacity, &capacity, sizeof *polls);
    polls[n++] = (struct pollfd){store.listener, POLLIN, 0};
    polls[n++] = (struct pollfd){store.report, store.reports ? POLLOUT : 0, 0};
    polls[n++] = (struct pollfd){store.recorder_dead ? -1 : store.recorder, POLLIN, 0};
    size_t clients = n;
    for (size_t i = 0; i < store.nclients; i++)
        polls[n++] = (struct pollfd){store.clients[i], POLLIN, 0};
    size_t spaces = n;
    for (size_t i = 0; i < store.nspaces; i++)
        polls[n++] = (struct pollfd){store.spaces[i].pidfd, POLLIN, 0};

    if (poll(polls, n, timeout) <= 0)
        return;
    if (polls[2].revents)
        recorder_is_dead();
    if (polls[1].revents)
        serve_report(polls[1].revents);
    for (size_t i = clients; i < spaces; i++)
        if (polls[i].revents)
            serve_client(polls[i].fd, polls[i].revents);
    for (size_t i = spaces; i < n; i++)
        if (polls[i].revents)
            spaces_died(&store, polls[i].fd);
    if (polls[0].revents)
        accept_clients();
}

/* poll, but first say that we sleep, and then look once more for what a producer did before it could know. */
static void sleep_and_serve(int timeout)
{
    __atomic_store_n(&store.control->store_sleeps, 1, __ATOMIC_SEQ_CST);
    wait_and_serve(spaces_pressing(&store) ? 0 : timeout);
    __atomic_store_n(&store.control->store_sleeps, 0, __ATOMIC_SEQ_CST);
}

/* True when nothing more will come from anybody. */
static bool over(void)
{
    if (store.goodbye)
        return !spaces_alive(&store, true) || now_ms() - store.goodbye_ms > GOODBYE_MS;
    return store.recorder_dead && store.nclients == 0 && !spaces_alive(&store, true);
}

static int timeout_of(bool active)
{
    if (store.disk_full) {
        uint64_t now = now_ms();
        return store.retry_ms > now ? (int)(store.retry_ms - now) : BUSY_MS;
    }
    if (active || store.recorder_dead || store.goodbye || store.nmissing)
        return BUSY_MS;
    for (size_t i = 0; i < store.nspaces; i++)
        if (store.spaces[i].dead)
            return BUSY_MS;
    return IDLE_MS;
}

static void retry_after_full_disk(void)
{
    if (!store.disk_full || now_ms() < store.retry_ms)
        return;
    bool served = serve_waiting(&store);
    bool undrained = false;
    for (size_t i = 0; i < store.nspaces; i++)
        undrained |= store.spaces[i].ring->head != store.spaces[i].ring->tail;
    if (served && !undrained)
        store_disk_free(&store);
}

static void run(void)
{
    while (!over()) {
        retry_after_full_disk();
        bool active = spaces_turn(&store, false);
        spaces_alive(&store, false);
        sleep_and_serve(timeout_of(active));
    }
}

/* ---- end ---- */

/* Moves what is left. Returns false when some of it must stay in the rings. */
static bool finish(void)
{
    uint64_t end = now_ms() + DISK_FULL_MS;
    spaces_find_all(&store);
    for (;;) {
        if (store.disk_full)
            store.retry_ms = 0;
        spaces_turn(&store, true);
        if (store.nspaces == 0)
            return true;
        if (now_ms() > end || !(store.disk_full || spaces_alive(&store, true)))
            return false;
        wait_and_serve(SETTLE_MS);
    }
}

static void close_trace(bool complete)
{
    struct clio_error error;
    struct pool_counts c = pool_counts(store.pool);
    LOG(store, "files: %llu asked, %llu remembered, %llu reflinked, %llu copied (%llu bytes)",
        (unsigned long long)c.asked, (unsigned long long)c.remembered, (unsigned long long)c.reflinked,
        (unsigned long long)c.copied, (unsigned long long)c.bytes_copied);
    pool_close(store.pool);
    if (!trace_sink_close(store.sink, false, &error)) {
        say_to_recorder(error.text);
        complete = false;
    }
    unlinkat(store.dir, "socket", 0);
    unlinkat(store.dir, "lifeline", 0);
    report_send(&store, &(struct store_report){.op = REPORT_DONE, .status = !complete}, "");
    /* The recorder waits for these; a recorder that is gone has closed its end. */
    while (store.reports && store.report >= 0) {
        struct pollfd p = {store.report, POLLOUT, 0};
        if (poll(&p, 1, GOODBYE_MS) <= 0 || (p.revents & (POLLHUP | POLLERR)))
            break;
        report_flush(&store);
    }
}

int main(int argc, char **argv)
{
    int pool_dir = -1, log_fd = -1;
    parse(argc, argv, &pool_dir, &log_fd);
    error_set_hook(say_to_recorder);
    detach(pool_dir, log_fd);
    open_trace(pool_dir);
    start_serving();
    run();
    bool complete = finish();
    close_trace(complete);
    return EXIT_DONE;
}
