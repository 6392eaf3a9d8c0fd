/*
 * test_store.c: the store (build/clio-store) as a process, with producers that write rings by the protocol as
 * the engine does, and this program in the place of `clio record`.
 *
 * Every event a producer publishes has bytes and a result that follow from its number, so reading a trace
 * back finds an event that is lost, doubled or torn. The store and the producers are killed at random
 * moments, the disk is filled.
 */
// LINK: src/store/pool.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/packet.h"
#include "store/pool.h"
#include "protocol/store.h"
#include "trace/dir_sink.h"
#include "trace/event_reader.h"

/* ---- a recording without recorder and engine ---- */

static char base[1000]; /* directory of this run */

static struct {
    char path[1100];
    int dir, pool, report, connection;
    pid_t store, recorder; /* recorder: a process that sleeps */
    struct ring_control *control;
    int ends[16]; /* REPORT_END by reason */
    int full, resumed, notes, done, done_status;
    char last_note[1000], last_end[1000];
} r;

static uint64_t seed = 12345;
static uint32_t roll(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start_recorder(void)
{
    r.recorder = fork();
    if (r.recorder == 0) {
        close_range(0, ~0u, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

static void make_trace(const char *under, const char *name)
{
    struct clio_error error;
    const char *argv[] = {"test", NULL};
    struct clio_trace_info info = {.cpu_level = 3, .argc = 1, .argv = argv};
    memset(&r, 0, sizeof r);
    trace_info_here(&info);
    snprintf(r.path, sizeof r.path, "%s/%s", under, name);
    r.dir = trace_dir_create(r.path, &info, &error);
    if (r.dir < 0)
        fail_msg("%s", error.text);
    char pool[PATH_MAX];
    snprintf(pool, sizeof pool, "%s/pool", under);
    mkdir(pool, 0700);
    r.pool = open(pool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(r.dir, "rings/control", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(posix_fallocate(fd, 0, 4096), 0);
    r.control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *r.control = (struct ring_control){.magic = CONTROL_MAGIC, .version = TRACE_FORMAT_VERSION, .seq = 1};
    start_recorder();
}

/* Takes one report; false when there is none within ms. */
static bool hear(int ms)
{
    static struct packet p;
    struct store_report head;
    struct pollfd wait = {r.report, POLLIN, 0};
    if (poll(&wait, 1, ms) <= 0 || packet_receive(r.report, &head, sizeof head, &p, 0) <= 0)
        return false;
    switch (head.op) {
    case REPORT_FAILED:
        fail_msg("the store failed: %s", p.text);
        break;
    case REPORT_NOTE:
        r.notes++;
        snprintf(r.last_note, sizeof r.last_note, "%.900s", p.text);
        break;
    case REPORT_END:
        r.ends[head.why & 15]++;
        snprintf(r.last_end, sizeof r.last_end, "%.900s", p.text);
        break;
    case REPORT_DISK_FULL:
        r.full++;
        break;
    case REPORT_RESUMED:
        r.resumed++;
        break;
    case REPORT_DONE:
        r.done++;
        r.done_status = head.status;
        break;
    }
    return true;
}

/* Sends a request and returns the answer's error; reply and *fd_out may be NULL. */
static int ask(struct store_request q, int fd, struct store_reply *out, int *fd_out)
{
    struct store_reply reply;
    static struct packet p;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    int fds[2] = {pair[1], fd};
    q.wants_reply = 1;
    int error = packet_send(r.connection, &q, sizeof q, NULL, 0, fds, fd >= 0 ? 2 : 1, 0);
    close(pair[1]);
    if (!error && packet_receive(pair[0], &reply, sizeof reply, &p, 0) <= 0)
        error = -EPIPE;
    close(pair[0]);
    if (error)
        return -error;
    if (fd_out && p.nfds) {
        *fd_out = p.fds[0];
        p.fds[0] = -1;
    }
    packet_close(&p);
    if (out)
        *out = reply;
    return reply.error;
}

static const char *store_program(void)
{
    static char path[PATH_MAX];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/clio-store", build ? build : "build");
    return path;
}

static void start_store(void)
{
    static char program[PATH_MAX];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    snprintf(program, sizeof program, "%s", store_program());
    r.store = fork();
    if (r.store == 0) {
        char dir[16], pool[16], report[16];
        snprintf(dir, sizeof dir, "%d", dup(r.dir));
        snprintf(pool, sizeof pool, "%d", dup(r.pool));
        snprintf(report, sizeof report, "%d", dup(pair[1]));
        execl(program, "clio-store", "--dir-fd", dir, "--pool-fd", pool, "--report-fd", report, NULL);
        _exit(127);
    }
    close(pair[1]);
    r.report = pair[0];
    if (!hear(10000))
        fail_msg("%s does not start", program);
    r.connection = packet_connect(r.dir, "socket");
    assert_true(r.connection >= 0);
    int recorder = pidfd_open(r.recorder, 0);
    assert_int_equal(ask((struct store_request){.op = STORE_HELLO}, recorder, NULL, NULL), 0);
    close(recorder);
}

static void kill_store(void)
{
    kill(r.store, SIGKILL);
    waitpid(r.store, NULL, 0);
    while (hear(0))
        ;
    close(r.report);
    close(r.connection);
}

/* The recorder's goodbye; the store must end by itself and say that it is done. */
static void end_store(void)
{
    assert_int_equal(ask((struct store_request){.op = STORE_GOODBYE}, -1, NULL, NULL), 0);
    int status;
    while (!r.done && hear(10000))
        ;
    assert_int_equal(r.done, 1);
    assert_int_equal(waitpid(r.store, &status, 0), r.store);
    assert_int_equal(status, 0);
    close(r.report);
    close(r.connection);
    kill(r.recorder, SIGKILL);
    waitpid(r.recorder, NULL, 0);
}

static void forget_trace(void)
{
    munmap(r.control, 4096);
    close(r.dir);
    close(r.pool);
}

/* ---- producers ---- */

struct producer {
    struct ring_header *ring;
    uint8_t *data;
    uint64_t written; /* position behind what is not yet published */
    uint32_t space;
    uint64_t events;
    bool random; /* bytes that do not compress */
};

static uint8_t byte_of(uint32_t space, uint64_t event, uint32_t at, bool random)
{
    uint64_t x = space * 7919u + event * 31 + at;
    if (!random)
        return (uint8_t)x;
    x = (event << 20 | at) * 0x9e3779b97f4a7c15u;
    return (uint8_t)((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 56);
}

static uint32_t length_of(uint64_t event, bool random)
{
    return random ? 4000 : event % 50 == 0 ? 3000 : event % 5 == 0 ? (uint32_t)(event % 97) : 0;
}

/* Waits until `size` more bytes fit. */
static void wait_for_room(struct producer *p, uint64_t size)
{
    struct ring_header *h = p->ring;
    for (;;) {
        uint64_t used = p->written + size - __atomic_load_n(&h->tail, __ATOMIC_ACQUIRE);
        if (used > h->capacity / 2 && __atomic_exchange_n(&r.control->store_sleeps, 0, __ATOMIC_SEQ_CST)) {
            struct store_request q = {.op = STORE_WAKE};
            packet_send(r.connection, &q, sizeof q, NULL, 0, NULL, 0, MSG_DONTWAIT);
        }
        if (used <= h->capacity)
            return;
        __atomic_store_n(&h->producer_waits, 1, __ATOMIC_SEQ_CST);
        if (p->written + size - __atomic_load_n(&h->tail, __ATOMIC_SEQ_CST) > h->capacity)
            syscall(SYS_futex, &h->producer_waits, FUTEX_WAIT, 1, NULL, NULL, 0);
        __atomic_store_n(&h->producer_waits, 0, __ATOMIC_SEQ_CST);
    }
}

static void *put(struct producer *p, uint64_t size)
{
    uint64_t at = p->written % p->ring->capacity, rest = p->ring->capacity - at;
    if (rest < size) {
        wait_for_room(p, rest + size);
        struct trace_record pad = {(uint32_t)rest, REC_PAD, 0};
        memcpy(p->data + at, &pad, sizeof pad);
        p->written += rest;
        at = 0;
    }
    wait_for_room(p, size);
    p->written += size;
    return p->data + at;
}

static void publish(struct producer *p)
{
    __atomic_store_n(&p->ring->events, p->events, __ATOMIC_RELAXED);
    __atomic_store_n(&p->ring->head, p->written, __ATOMIC_RELEASE);
}

static uint64_t next_seq(void)
{
    return __atomic_fetch_add(&r.control->seq, 1, __ATOMIC_RELAXED);
}

static void begin_space(struct producer *p, uint32_t space, pid_t pid, bool announce)
{
    char name[32];
    snprintf(name, sizeof name, "rings/%u", space);
    int fd = openat(r.dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, RING_HEADER_SIZE + RING_CAPACITY), 0);
    struct ring_header *h =
        mmap(NULL, RING_HEADER_SIZE + RING_CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(h != MAP_FAILED);
    *h = (struct ring_header){.version = TRACE_FORMAT_VERSION,
                              .header_size = RING_HEADER_SIZE,
                              .capacity = RING_CAPACITY,
                              .space = space,
                              .pid = pid,
                              .state = RING_RUNNING};
    __atomic_store_n(&h->magic, RING_MAGIC, __ATOMIC_RELEASE);
    *p = (struct producer){.ring = h, .data = (uint8_t *)h + RING_HEADER_SIZE, .space = space};
    struct trace_space *s = put(p, sizeof *s + 8);
    *s = (struct trace_space){.rec = {sizeof *s + 8, REC_SPACE, 0},
                              .space = space,
                              .seq = next_seq(),
                              .origin = SPACE_ROOT,
                              .pid = pid,
                              .exelen = 3,
                              .cmdlen = 3};
    memcpy(s + 1,
           "exe"
           "cmd\0\0",
           8);
    publish(p);
    struct store_request q = {.op = STORE_SPACE, .space = space, .pid = pid};
    if (announce)
        packet_send(r.connection, &q, sizeof q, NULL, 0, NULL, 0, 0);
}

static void put_event(struct producer *p)
{
    uint64_t event = ++p->events;
    uint32_t len = length_of(event, p->random);
    if (len) {
        uint32_t padded = (len + 7) & ~7u;
        struct trace_data *d = put(p, sizeof *d + padded);
        d->rec = (struct trace_record){(uint32_t)sizeof *d + padded, REC_DATA, (uint16_t)(padded - len)};
        for (uint32_t i = 0; i < padded; i++)
            ((uint8_t *)(d + 1))[i] = i < len ? byte_of(p->space, event, i, p->random) : 0;
    }
    uint32_t size = (uint32_t)(sizeof(struct trace_event) + (len ? sizeof(struct trace_effect) : 0));
    struct trace_event *e = put(p, size);
    *e = (struct trace_event){.rec = {size, EV_SYSCALL, 0},
                              .seq = next_seq(),
                              .ticks = event % 100,
                              .pc = 0x400000 + event % 64,
                              .result = (int64_t)event,
                              .nr = 1,
                              .neffects = len != 0};
    if (len)
        *(struct trace_effect *)(e + 1) = (struct trace_effect){0x10000, len, 0};
    publish(p);
}

static void end_space(struct producer *p)
{
    struct trace_event *e = put(p, sizeof *e);
    p->events++;
    *e = (struct trace_event){.rec = {sizeof *e, EV_EXIT, 0}, .seq = next_seq(), .nr = 231};
    struct trace_end *end = put(p, sizeof *end);
    *end = (struct trace_end){.rec = {sizeof *end, REC_END, 0},
                              .space = p->space,
                              .why = END_EXIT,
                              .seq = next_seq(),
                              .events = p->events};
    publish(p);
    __atomic_store_n(&p->ring->state, RING_ENDED, __ATOMIC_RELEASE);
}

static void release(struct producer *p)
{
    munmap(p->ring, RING_HEADER_SIZE + RING_CAPACITY);
}

static uint32_t next_space(void)
{
    return __atomic_add_fetch(&r.control->spaces, 1, __ATOMIC_SEQ_CST);
}

/* A process that publishes `events` events (the last one an exit), or for ever when `events` is 0. */
static pid_t start_producer(uint64_t events, bool random, unsigned pause_us)
{
    uint32_t space = next_space();
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct producer p;
    begin_space(&p, space, getpid(), true);
    p.random = random;
    for (uint64_t i = 1; i != events; i++) {
        put_event(&p);
        if (pause_us && i % 64 == 0)
            usleep(pause_us);
    }
    end_space(&p);
    _exit(0);
}

/* Until the ring of the producer just started is there; before that nothing could be lost. */
static void wait_for_ring(uint32_t space)
{
    char name[32];
    snprintf(name, sizeof name, "rings/%u", space);
    for (uint64_t magic = 0; magic != RING_MAGIC; usleep(100)) {
        int fd = openat(r.dir, name, O_RDONLY);
        if (fd < 0 || read(fd, &magic, sizeof magic) != sizeof magic)
            magic = 0;
        if (fd >= 0)
            close(fd);
    }
}

/* ---- reading back ---- */

/* Checks every event of a space; returns how many there are, and how it ends. */
static uint64_t check_space(uint32_t space, bool random, enum clio_next *last, struct trace_reader_end *end)
{
    struct clio_error error;
    struct clio_source *source = clio_source_open(r.path, &error);
    if (!source)
        fail_msg("%s", error.text);
    struct trace_reader *reader = trace_reader_open(source, space, &error);
    if (!reader)
        fail_msg("%s", error.text);
    struct trace_item item;
    uint64_t n = 0;
    while ((*last = trace_reader_next(reader, &item)) == CLIO_RECORD) {
        n++;
        assert_int_equal(item.number, n);
        if (item.event->rec.kind != EV_SYSCALL)
            continue;
        uint32_t len = length_of(n, random);
        assert_int_equal(item.event->result, n);
        assert_int_equal(item.nbytes, len);
        for (uint32_t i = 0; i < len; i++)
            if (item.bytes[i] != byte_of(space, n, i, random))
                fail_msg("space %u, event %lu: byte %u is wrong", space, (unsigned long)n, i);
    }
    if (*last == CLIO_ERROR)
        fail_msg("%s", trace_reader_error(reader)->text);
    if (end)
        trace_reader_end(reader, end);
    trace_reader_close(reader);
    clio_source_close(source);
    return n;
}

static void expect_whole(uint32_t space, uint64_t events)
{
    enum clio_next last;
    struct trace_reader_end end;
    assert_int_equal(check_space(space, false, &last, &end), events);
    assert_int_equal(last, CLIO_CLEAN_END);
    assert_true(end.known);
    assert_int_equal(end.why, END_EXIT);
}

static int count_entries(const char *part)
{
    int fd = openat(r.dir, part, O_RDONLY | O_DIRECTORY), n = 0;
    DIR *d = fdopendir(fd);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* ---- tests ---- */

static void moves_everything(void **state)
{
    make_trace(base, "everything");
    start_store();
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        pids[i] = start_producer(30000, false, 0);
    for (int i = 0; i < 3; i++)
        waitpid(pids[i], NULL, 0);
    end_store();
    assert_int_equal(r.ends[END_EXIT], 3);
    assert_int_equal(r.done_status, 0);
    for (uint32_t i = 1; i <= 3; i++)
        expect_whole(i, 30000);
    assert_int_equal(count_entries("rings"), 1); /* control */
    assert_int_equal(faccessat(r.dir, "socket", F_OK, 0), -1);
    forget_trace();
}

/* Nothing announces the spaces: the counter in the control page does. */
static void finds_unannounced_spaces(void **state)
{
    make_trace(base, "unannounced");
    start_store();
    struct producer p;
    begin_space(&p, next_space(), getpid(), false);
    for (int i = 1; i < 100; i++)
        put_event(&p);
    end_space(&p);
    release(&p);
    end_store();
    expect_whole(1, 100);
    forget_trace();
}

static void store_dies_and_is_replaced(void **state)
{
    make_trace(base, "replaced");
    start_store();
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        pids[i] = start_producer(20000, false, 500);
    int alive = 3;
    for (int kills = 0; alive && kills < 200; kills++) {
        usleep(roll(kills % 4 ? 5000 : 40000));
        kill_store();
        usleep(roll(3000));
        start_store();
        while (alive && waitpid(-1, NULL, WNOHANG) > 0)
            alive--;
    }
    for (int i = 0; i < 3; i++)
        waitpid(pids[i], NULL, 0);
    end_store();
    for (uint32_t i = 1; i <= 3; i++)
        expect_whole(i, 20000);
    forget_trace();
}

static void store_dies_for_good(void **state)
{
    make_trace(base, "for-good");
    for (uint32_t i = 1; i <= 20; i++) {
        start_store();
        pid_t pid = start_producer(0, false, 50);
        wait_for_ring(i);
        usleep(roll(i % 2 ? 20000 : 200000));
        pid_t first = i % 3 ? pid : r.store, second = i % 3 ? r.store : pid;
        kill(first, SIGKILL);
        kill(second, SIGKILL);
        waitpid(pid, NULL, 0);
        kill_store();
        char name[32];
        struct ring_header head = {0};
        snprintf(name, sizeof name, "rings/%u", i);
        int fd = openat(r.dir, name, O_RDONLY);
        assert_true(fd < 0 || read(fd, &head, sizeof head) == sizeof head);
        close(fd);
        enum clio_next last;
        uint64_t found = check_space(i, false, &last, NULL);
        if (fd >= 0) /* an event may be published between the ring's counter and its head */
            assert_true(found == head.events || found + 1 == head.events);
        assert_int_equal(last, CLIO_CUT_HERE);
    }
    kill(r.recorder, SIGKILL);
    waitpid(r.recorder, NULL, 0);
    forget_trace();
}

static void producer_is_killed(void **state)
{
    make_trace(base, "killed");
    start_store();
    for (uint32_t i = 1; i <= 20; i++) {
        pid_t pid = start_producer(0, false, 20);
        wait_for_ring(i);
        usleep(roll(15000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    while (r.ends[END_KILLED] < 20 && hear(3000))
        ;
    assert_int_equal(r.ends[END_KILLED], 20);
    end_store();
    for (uint32_t i = 1; i <= 20; i++) {
        enum clio_next last;
        struct trace_reader_end end;
        check_space(i, false, &last, &end);
        assert_int_equal(last, CLIO_CUT_HERE);
        assert_int_equal(end.why, END_KILLED);
    }
    forget_trace();
}

static void says_in_which_call_it_was_killed(void **state)
{
    make_trace(base, "in-call");
    start_store();
    uint32_t space = next_space();
    pid_t pid = fork();
    if (pid == 0) {
        struct producer p;
        begin_space(&p, space, getpid(), true);
        put_event(&p);
        p.ring->call = (struct ring_call){.active = 1, .nr = 34}; /* pause */
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
    while (!r.ends[END_KILLED] && hear(3000))
        ;
    assert_non_null(strstr(r.last_end, "killed inside pause("));
    end_store();
    forget_trace();
}

static void recorder_is_killed(void **state)
{
    make_trace(base, "no-recorder");
    start_store();
    pid_t pid = start_producer(0, false, 50);
    usleep(50000);
    kill(r.recorder, SIGKILL);
    waitpid(r.recorder, NULL, 0);
    kill(pid, SIGKILL); /* as the lifeline does */
    waitpid(pid, NULL, 0);
    close(r.connection);
    while (!r.done && hear(5000))
        ;
    assert_int_equal(r.ends[END_RECORDER], 1);
    assert_string_equal(r.last_end, "clio record died");
    int status;
    waitpid(r.store, &status, 0);
    assert_int_equal(status, 0);
    close(r.report);
    forget_trace();
}

static void signals_do_not_end_it(void **state)
{
    make_trace(base, "deaf");
    start_store();
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        kill(r.store, signals[i]);
    assert_int_equal(getsid(r.store), r.store);
    struct producer p;
    begin_space(&p, next_space(), getpid(), true);
    for (int i = 1; i < 100; i++)
        put_event(&p);
    end_space(&p);
    release(&p);
    end_store();
    expect_whole(1, 100);
    forget_trace();
}

static void bad_ring_is_named(void **state)
{
    make_trace(base, "bad-ring");
    start_store();
    uint32_t space = next_space();
    pid_t pid = fork();
    if (pid == 0) {
        struct producer p;
        begin_space(&p, space, getpid(), true);
        for (int i = 0; i < 10; i++)
            put_event(&p);
        *(struct trace_record *)put(&p, 64) = (struct trace_record){12, EV_SYSCALL, 0};
        publish(&p);
        for (;;)
            pause();
    }
    while (!r.ends[END_INTERNAL] && hear(5000))
        ;
    assert_int_equal(r.ends[END_INTERNAL], 1);
    assert_non_null(strstr(r.last_end, "rings/1"));
    int status;
    waitpid(pid, &status, 0); /* it is not left to write on */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    end_store();
    forget_trace();
}

static int open_fds(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void thousands_of_spaces(void **state)
{
    enum { SPACES = 2000, ALIVE = 40 };
    static struct producer p[ALIVE];
    make_trace(base, "thousands");
    start_store();
    for (uint32_t i = 0; i < SPACES; i++) {
        struct producer *q = &p[i % ALIVE];
        if (i >= ALIVE) {
            end_space(q);
            release(q);
        }
        begin_space(q, next_space(), getpid(), true);
        for (int e = 1; e < 20; e++)
            put_event(q);
    }
    for (uint32_t i = 0; i < ALIVE; i++) {
        end_space(&p[i]);
        release(&p[i]);
    }
    int fds = open_fds(r.store);
    end_store();
    assert_true(fds < 400);
    assert_int_equal(count_entries("rings"), 1);
    for (uint32_t i = 1; i <= SPACES; i += 37)
        expect_whole(i, 20);
    forget_trace();
}

/* ---- a full disk ---- */

static bool mount_small(char path[1060], const char *name)
{
    snprintf(path, 1060, "%s/%s", base, name);
    mkdir(path, 0700);
    if (mount("tmpfs", path, "tmpfs", 0, "size=3m") == 0)
        return true;
    print_message("cannot mount a tmpfs: %s\n", strerror(errno));
    return false;
}

static void wait_until_full(void)
{
    double end = seconds() + 10;
    while (!r.full && seconds() < end)
        hear(100);
    assert_int_equal(r.full, 1);
    assert_int_equal(r.control->disk_full, 1);
}

static void disk_full_pauses_and_resumes(void **state)
{
    static char small[1060];
    if (!mount_small(small, "small"))
        skip();
    make_trace(small, "t");
    start_store();
    pid_t pid = start_producer(2000, true, 0); /* 8 MB that do not compress */
    wait_until_full();
    usleep(500000);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* paused */
    assert_int_equal(mount("tmpfs", small, "tmpfs", MS_REMOUNT, "size=32m"), 0);
    waitpid(pid, NULL, 0);
    end_store();
    assert_int_equal(r.resumed, 1);
    enum clio_next last;
    assert_int_equal(check_space(1, true, &last, NULL), 2000);
    assert_int_equal(last, CLIO_CLEAN_END);
    forget_trace();
    umount2(small, MNT_DETACH);
}

static void disk_full_to_the_end(void **state)
{
    static char small[1060];
    if (!mount_small(small, "small2"))
        skip();
    make_trace(small, "t");
    start_store();
    pid_t pid = start_producer(0, true, 0);
    wait_until_full();
    usleep(100000);
    r.control->stop = 1;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    struct ring_header head;
    int fd = openat(r.dir, "rings/1", O_RDONLY);
    assert_int_equal(read(fd, &head, sizeof head), sizeof head);
    close(fd);
    end_store();
    assert_int_equal(r.done_status, 1);
    enum clio_next last;
    assert_int_equal(check_space(1, true, &last, NULL), head.events);
    assert_int_equal(last, CLIO_CUT_HERE);
    forget_trace();
    umount2(small, MNT_DETACH);
}

/* A file that does not fit is answered when there is room again. */
static void disk_full_delays_a_capture(void **state)
{
    static char small[1060];
    if (!mount_small(small, "small3"))
        skip();
    make_trace(small, "t");
    start_store();
    FILE *f = tmpfile();
    for (int i = 0; i < 4 << 20; i++)
        putc((int)roll(256), f);
    fflush(f);
    pid_t helper = fork();
    if (helper == 0) {
        usleep(700000);
        _exit(mount("tmpfs", small, "tmpfs", MS_REMOUNT, "size=32m") != 0);
    }
    double start = seconds();
    struct store_reply reply;
    assert_int_equal(ask((struct store_request){.op = STORE_FILE}, fileno(f), &reply, NULL), 0);
    assert_true(seconds() - start > 0.5);
    assert_int_equal(reply.size, 4 << 20);
    fclose(f);
    waitpid(helper, NULL, 0);
    while (!r.resumed && hear(2000))
        ;
    assert_int_equal(r.resumed, 1);
    end_store();
    forget_trace();
    umount2(small, MNT_DETACH);
}

/* ---- captured files ---- */

static int make_file(const char *name, const void *bytes, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%.100s", base, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void expect_content(const uint8_t hash[32], const void *bytes, size_t size)
{
    char name[POOL_NAME_SIZE], path[POOL_NAME_SIZE + 8];
    char *found = malloc(size + 1);
    pool_name(name, hash);
    snprintf(path, sizeof path, "files/%s", name);
    int fd = openat(r.dir, path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, found, size + 1), size);
    assert_memory_equal(found, bytes, size);
    close(fd);
    free(found);
}

static void captures_files(void **state)
{
    char bytes[10000];
    struct store_reply a, b;
    struct store_request file = {.op = STORE_FILE};
    memset(bytes, 'x', sizeof bytes);
    make_trace(base, "files");
    start_store();
    int fd = make_file("one", bytes, sizeof bytes), twin = make_file("two", bytes, sizeof bytes);
    assert_int_equal(ask(file, fd, &a, NULL), 0);
    assert_int_equal(ask(file, twin, &b, NULL), 0);
    assert_int_equal(a.size, sizeof bytes);
    assert_memory_equal(a.hash, b.hash, 32);
    assert_int_equal(count_entries("files"), 1);
    expect_content(a.hash, bytes, sizeof bytes);

    bytes[77] = 'y'; /* in place, as `cp` does */
    close(make_file("one", bytes, sizeof bytes));
    assert_int_equal(ask(file, fd, &b, NULL), 0);
    assert_memory_not_equal(a.hash, b.hash, 32);
    expect_content(b.hash, bytes, sizeof bytes);
    close(fd);
    close(twin);

    fd = make_file("empty", "", 0);
    assert_int_equal(ask(file, fd, &a, NULL), 0);
    assert_int_equal(a.size, 0);
    close(fd);
    fd = open("/dev/null", O_RDONLY);
    assert_int_equal(ask(file, fd, &a, NULL), ENODEV);
    close(fd);
    assert_int_equal(ask(file, -1, &a, NULL), EBADF);
    assert_int_equal(ask((struct store_request){.op = 99}, -1, &a, NULL), ENOSYS);
    end_store();
    forget_trace();
}

static void makes_rings_for_others(void **state)
{
    struct store_reply reply;
    struct stat st;
    int fd = -1, again = -1;
    make_trace(base, "make-ring");
    start_store();
    struct store_request q = {.op = STORE_MAKE_RING, .space = 5};
    assert_int_equal(ask(q, -1, &reply, &fd), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, RING_HEADER_SIZE + RING_CAPACITY);
    assert_int_equal(ask(q, -1, &reply, &again), 0);
    struct stat st2;
    fstat(again, &st2);
    assert_int_equal(st.st_ino, st2.st_ino);
    close(fd);
    close(again);
    end_store();
    forget_trace();
}

struct pools {
    struct pool *pool;
    int pool_dir, files_dir;
};

static void open_pools(struct pools *p, const char *files)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/pool-alone", base);
    mkdir(path, 0700);
    p->pool_dir = open(path, O_RDONLY | O_DIRECTORY);
    snprintf(path, sizeof path, "%s/%.50s", base, files);
    mkdir(path, 0700);
    p->files_dir = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(pool_open(&p->pool, p->pool_dir, p->files_dir), 0);
}

static void close_pools(struct pools *p)
{
    pool_close(p->pool);
    close(p->pool_dir);
    close(p->files_dir);
}

/* What is old and has no writer is hashed once, by whatever recording. */
static void hashes_a_file_once_ever(void **state)
{
    struct pools p;
    struct pool_file a, b;
    int fd = make_file("old", "some bytes", 10);
    open_pools(&p, "files-a");
    assert_int_equal(pool_capture(p.pool, fd, false, &a), 0);
    assert_int_equal(pool_capture(p.pool, fd, false, &b), 0); /* too young to be trusted */
    assert_int_equal(pool_counts(p.pool).hashed, 2);
    usleep(2200000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pool_capture(p.pool, fd, false, &b), 0);
    assert_int_equal(pool_counts(p.pool).hashed, 3);
    assert_int_equal(pool_counts(p.pool).remembered, 2);
    close_pools(&p);

    open_pools(&p, "files-b");
    int identities = openat(p.pool_dir, "identities", O_WRONLY | O_APPEND);
    assert_int_equal(write(identities, "torn line", 9), 9);
    close(identities);
    assert_int_equal(pool_capture(p.pool, fd, false, &b), 0);
    assert_int_equal(pool_counts(p.pool).hashed, 0);
    assert_int_equal(pool_counts(p.pool).remembered, 1);
    assert_memory_equal(a.hash, b.hash, 32);
    char name[POOL_NAME_SIZE];
    struct stat in_pool, in_trace;
    pool_name(name, a.hash);
    assert_int_equal(fstatat(p.pool_dir, name, &in_pool, 0), 0);
    assert_int_equal(fstatat(p.files_dir, name, &in_trace, 0), 0);
    assert_int_equal(in_pool.st_ino, in_trace.st_ino);
    assert_int_equal(in_pool.st_mode & 0777, 0400);

    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/old", base);
    int writer = open(path, O_WRONLY); /* it could change a mapped page without touching the ctime */
    assert_int_equal(pool_capture(p.pool, fd, false, &b), 0);
    assert_int_equal(pool_counts(p.pool).hashed, 1);
    close(writer);
    assert_int_equal(pool_capture(p.pool, fd, true, &b),
                     0); /* nor is it believed when the asker knows better */
    assert_int_equal(pool_counts(p.pool).hashed, 2);
    close(fd);
    close_pools(&p);
}

static void sparse_files_cost_what_they_hold(void **state)
{
    struct pools p;
    struct pool_file a, b;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sparse", base);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(ftruncate(fd, 1ll << 40), 0);
    assert_int_equal(pwrite(fd, "data", 4, 1ll << 39), 4);
    open_pools(&p, "files-c");
    double start = seconds();
    assert_int_equal(pool_capture(p.pool, fd, false, &a), 0);
    assert_true(seconds() - start < 2);
    assert_int_equal(a.size, 1ll << 40);
    char name[POOL_NAME_SIZE];
    struct stat st;
    pool_name(name, a.hash);
    assert_int_equal(fstatat(p.files_dir, name, &st, 0), 0);
    assert_int_equal(st.st_size, 1ll << 40);
    assert_true(st.st_blocks < 1000);
    assert_int_equal(pwrite(fd, "date", 4, 1ll << 39), 4);
    assert_int_equal(pool_capture(p.pool, fd, false, &b), 0);
    assert_memory_not_equal(a.hash, b.hash, 32);
    close(fd);

    /* Small holes are zeros: the name is that of the same bytes written out. */
    static char zeros[100000];
    fd = make_file("plain", zeros, sizeof zeros);
    assert_int_equal(pool_capture(p.pool, fd, false, &a), 0);
    close(fd);
    fd = make_file("holes", "", 0);
    snprintf(path, sizeof path, "%s/holes", base);
    assert_int_equal(truncate(path, sizeof zeros), 0);
    assert_int_equal(pool_capture(p.pool, fd, false, &b), 0);
    assert_memory_equal(a.hash, b.hash, 32);
    close(fd);
    close_pools(&p);
}

/* ---- speed ---- */

static void speed(void **state)
{
    enum { EVENTS = 1000000 };
    make_trace(base, "speed");
    start_store();
    uint32_t space = next_space();
    pid_t pid = fork();
    if (pid == 0) {
        struct producer p;
        begin_space(&p, space, getpid(), true);
        for (uint32_t i = 0; i < EVENTS; i++) {
            struct trace_event *e = put(&p, sizeof *e);
            *e = (struct trace_event){.rec = {sizeof *e, EV_SYSCALL, 0},
                                      .seq = next_seq(),
                                      .ticks = roll(1000),
                                      .pc = 0x400000 + roll(64) * 16,
                                      .result = roll(100),
                                      .hash = (uint32_t)(seed >> 20),
                                      .nr = (uint16_t)roll(8)};
            p.events++;
            publish(&p);
        }
        end_space(&p);
        _exit(0);
    }
    double start = seconds();
    waitpid(pid, NULL, 0);
    double produced = seconds() - start;
    assert_int_equal(ask((struct store_request){.op = STORE_GOODBYE}, -1, NULL, NULL), 0);
    while (!r.done && hear(10000))
        ;
    struct rusage usage;
    int status;
    wait4(r.store, &status, 0, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    struct stat st;
    fstatat(r.dir, "spaces/1/events", &st, 0);
    printf("# store: %d events of %zu bytes: %.3f s of processor time, %.1f bytes an event on disk, produced "
           "in %.2f s\n",
           EVENTS, sizeof(struct trace_event), cpu, (double)st.st_size / EVENTS, produced);
    assert_true(cpu < 1.5);
    kill(r.recorder, SIGKILL);
    waitpid(r.recorder, NULL, 0);
    close(r.report);
    close(r.connection);
    forget_trace();
}

static int remove_all(void **state)
{
    char command[PATH_MAX + 20];
    if (chdir("/"))
        return -1;
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command) ? -1 : 0;
}

static int make_base(void **state)
{
    char here[900];
    if (!getcwd(here, sizeof here))
        return -1;
    snprintf(base, sizeof base, "%s/store-XXXXXX", here);
    return mkdtemp(base) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_everything),
        cmocka_unit_test(finds_unannounced_spaces),
        cmocka_unit_test(store_dies_and_is_replaced),
        cmocka_unit_test(store_dies_for_good),
        cmocka_unit_test(producer_is_killed),
        cmocka_unit_test(says_in_which_call_it_was_killed),
        cmocka_unit_test(recorder_is_killed),
        cmocka_unit_test(signals_do_not_end_it),
        cmocka_unit_test(bad_ring_is_named),
        cmocka_unit_test(thousands_of_spaces),
        cmocka_unit_test(disk_full_pauses_and_resumes),
        cmocka_unit_test(disk_full_to_the_end),
        cmocka_unit_test(disk_full_delays_a_capture),
        cmocka_unit_test(captures_files),
        cmocka_unit_test(makes_rings_for_others),
        cmocka_unit_test(hashes_a_file_once_ever),
        cmocka_unit_test(sparse_files_cost_what_they_hold),
        cmocka_unit_test(speed),
    };
    return cmocka_run_group_tests(tests, make_base, remove_all);
}
