/* session.c: see session.h. */
#include "engine/event/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/event/event.h"
#include "engine/host/raw.h"
#include "engine/host/hostfd.h"
#include "protocol/store.h"

static int lifeline = -1; /* handle of hostfd_keep */

void session_init(void)
{
    int fd = openat(hostfd(engine.trace_dir), "rings/control", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die("cannot open rings/control of the trace: %s", strerror(errno));
    engine.control = mmap(NULL, sizeof *engine.control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (engine.control == MAP_FAILED || engine.control->magic != CONTROL_MAGIC)
        die("rings/control of the trace is not usable");
}

uint32_t session_new_space(void)
{
    return __atomic_add_fetch(&engine.control->spaces, 1, __ATOMIC_RELAXED);
}

/* ---- rings ---- */

static int tell_store(enum store_op op, uint32_t number, int32_t status, int reply)
{
    struct store_request request = {
        .op = op, .wants_reply = reply >= 0, .space = number, .pid = getpid(), .status = status};
    struct iovec iov = {&request, sizeof request};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (reply >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &reply, sizeof reply);
    }
    return sendmsg(hostfd(engine.store), &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The store makes a file for a guest that may no longer do so. Returns its descriptor or -errno. */
static int made_by_store(enum store_op op, uint32_t number, int32_t status)
{
    int pair[2], fd = -EPIPE;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -errno;
    int error = tell_store(op, number, status, pair[1]);
    close(pair[1]);
    struct store_reply reply;
    struct iovec iov = {&reply, sizeof reply};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    if (!error) {
        ssize_t n;
        do
            n = recvmsg(pair[0], &message, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        const struct cmsghdr *h = n == sizeof reply ? CMSG_FIRSTHDR(&message) : NULL;
        if (n == sizeof reply && reply.error)
            fd = -reply.error;
        else if (h && h->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(h), sizeof fd);
    }
    close(pair[0]);
    return error ? error : fd;
}

static int ring_from_store(uint32_t number)
{
    return made_by_store(STORE_MAKE_RING, number, 0);
}

int session_make_memory(const void *bytes, uint32_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= size) {
        int fd = memfd_create("proc", MFD_CLOEXEC);
        if (fd < 0 || write(fd, bytes, size) == (ssize_t)size)
            return fd < 0 ? -errno : fd;
        close(fd);
        return -ENOSPC;
    }
    int fd = made_by_store(STORE_MAKE_MEMORY, engine.space_number, (int32_t)size);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        int error = fd < 0 ? fd : -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    memcpy(p, bytes, size);
    munmap(p, size);
    return fd;
}

static int make_ring(uint32_t number)
{
    char name[32];
    struct rlimit size;
    if (!getrlimit(RLIMIT_FSIZE, &size) && size.rlim_cur < RING_HEADER_SIZE + RING_CAPACITY)
        return ring_from_store(number); /* trying would cost us a SIGXFSZ */
    snprintf(name, sizeof name, "rings/%u", number);
    int fd = openat(hostfd(engine.trace_dir), name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EACCES || errno == EPERM || errno == EROFS ? ring_from_store(number) : -errno;
    int error = posix_fallocate(fd, 0, RING_HEADER_SIZE + RING_CAPACITY);
    if (!error)
        return fd;
    close(fd);
    unlinkat(hostfd(engine.trace_dir), name, 0);
    return -error;
}

static void pause_briefly(void)
{
    const struct timespec t = {0, 100 * 1000 * 1000};
    nanosleep(&t, NULL);
}

void session_leave_ring(void)
{
    if (engine.ring)
        munmap(engine.ring, RING_HEADER_SIZE + RING_CAPACITY);
    engine.ring = NULL;
}

void session_open_ring(uint32_t number)
{
    int fd;
    while ((fd = make_ring(number)) == -ENOSPC || fd == -EPIPE || fd == -ECONNRESET || fd == -EDQUOT ||
           fd == -EINTR) {
        if (engine.control->stop)
            raise(SIGKILL);
        pause_briefly();
    }
    if (fd < 0)
        die("cannot make the ring of space %u: %s", number, strerror(-fd));
    struct ring_header *r =
        mmap(NULL, RING_HEADER_SIZE + RING_CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (r == MAP_FAILED)
        die("cannot map the ring of space %u: %s", number, strerror(errno));
    session_leave_ring();
    r->version = TRACE_FORMAT_VERSION;
    r->header_size = RING_HEADER_SIZE;
    r->capacity = RING_CAPACITY;
    r->space = number;
    r->pid = getpid();
    r->state = RING_RUNNING;
    __atomic_store_n(&r->magic, RING_MAGIC, __ATOMIC_RELEASE);
    engine.ring = r;
    engine.space_number = number;
    tell_store(STORE_SPACE, number, 0, -1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Bytes of argv joined by NUL, at most `room`; written to `to` unless that is NULL. */
static uint32_t join(char *to, uint32_t room, char *const *argv)
{
    uint32_t n = 0;
    for (; *argv; argv++) {
        uint32_t len = (uint32_t)strlen(*argv) + 1;
        if (n + len > room)
            break;
        if (to)
            memcpy(to + n, *argv, len);
        n += len;
    }
    return n;
}

void session_publish_space(uint32_t parent, uint64_t parent_event, enum trace_space_origin origin,
                           const char *exe, char *const *argv)
{
    enum { COMMAND_MAX = 16384 };
    static char *const none[] = {NULL};
    uint32_t exelen = (uint32_t)strlen(exe);
    uint32_t cmdlen = join(NULL, COMMAND_MAX, argv ? argv : none);
    uint32_t size = (uint32_t)sizeof(struct trace_space) + ((exelen + cmdlen + 7) & ~7u);
    struct trace_space *s = calloc(1, size);
    if (!s)
        die("out of memory");
    *s = (struct trace_space){
        .rec = {size, REC_SPACE, 0},
        .space = engine.space_number,
        .parent = parent,
        .parent_event = parent_event,
        .seq = __atomic_fetch_add(&engine.control->seq, 1, __ATOMIC_RELAXED),
        .origin = origin,
        .pid = getpid(),
        .ppid = getppid(),
        .cpu_level = (uint32_t)engine.cpu.level,
        .time_ns = now_ns(),
        .exelen = exelen,
        .cmdlen = cmdlen,
    };
    memcpy(s + 1, exe, exelen);
    join((char *)(s + 1) + exelen, COMMAND_MAX, argv ? argv : none);
    event_record(&s->rec);
    free(s);
}

void event_end(enum trace_end_why why, int status, const char *text)
{
    uint32_t len = text ? (uint32_t)strlen(text) : 0;
    if (len > 4000)
        len = 4000;
    uint8_t room[sizeof(struct trace_end) + 4008] = {0};
    struct trace_end *e = (struct trace_end *)room;
    *e = (struct trace_end){
        .rec = {(uint32_t)sizeof *e + ((len + 7) & ~7u), REC_END, 0},
        .space = engine.space_number,
        .why = why,
        .status = status,
        .textlen = len,
        .seq = __atomic_fetch_add(&engine.control->seq, 1, __ATOMIC_RELAXED),
        .time_ns = now_ns(),
        .events = engine.ring->events,
    };
    memcpy(e + 1, text ? text : "", len);
    event_record(&e->rec);
    __atomic_store_n(&engine.ring->call.active, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&engine.ring->state, RING_ENDED, __ATOMIC_RELEASE);
}

/* ---- lifeline ---- */

void session_arm_lifeline(void)
{
    char path[64] = "lifeline";
    int dir = hostfd(engine.trace_dir);
    if (lifeline >= 0) {
        /* through our inherited one, which works for a guest that may no longer enter the trace directory */
        snprintf(path, sizeof path, "/proc/self/fd/%d", hostfd(lifeline));
        dir = AT_FDCWD;
    }
    int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (lifeline < 0)
            die("cannot open the trace's lifeline: %s", strerror(errno));
        event_note("process %d could not be tied to the recorder's life: %s", (int)getpid(), strerror(errno));
        return;
    }
    if (fcntl(fd, F_SETOWN, getpid()) || fcntl(fd, F_SETSIG, SIGKILL) ||
        fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC))
        die("cannot tie this process to the recorder's life: %s", strerror(errno));
    int old = lifeline;
    lifeline = hostfd_keep(fd);
    if (lifeline < 0)
        die("cannot hide a descriptor: %s", strerror(-lifeline));
    hostfd_drop(old);
}
