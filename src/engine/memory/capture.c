/*
 * files.c: see files.h.
 *
 * A file_ref stands for one content under one path. The table finds it by device and inode. Times prove that
 * a file is unchanged only when they had moved on before it was captured: a file written within its clock's
 * granularity before the capture may be written again with the same times. Such captures, those on file
 * systems that do not stamp writes through mappings, and those of files that the guest itself maps shared and
 * writable are asked for again each time, with `status` 1 in the request.
 */
#include "engine/memory/capture.h"

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <limits.h>

#include "base/log.h"
#include "engine/event/event.h"
#include "engine/guest/task.h"
#include "engine/host/hostfd.h"
#include "protocol/store.h"

enum { BUCKETS = 256, RETRIES = 100, RETRY_MS = 100 };

struct entry {
    struct entry *next;
    bool unstable;  /* its times prove nothing */
    bool stored_to; /* and never will: a mapping may be written to */
    struct file_ref ref;
};

static struct entry *table[BUCKETS];

static uint32_t bucket_of(uint64_t dev, uint64_t ino)
{
    return (uint32_t)((dev * 31 + ino) * 0x9e3779b97f4a7c15ull >> 56) % BUCKETS;
}

static uint64_t nanoseconds(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

size_t file_path(int fd, char *text, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, text, size - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    return (size_t)n;
}

static bool same_file(const struct file_ref *r, const struct stat *st)
{
    return r->dev == st->st_dev && r->ino == st->st_ino && r->size == (uint64_t)st->st_size &&
           r->mtime_ns == nanoseconds(&st->st_mtim) && r->ctime_ns == nanoseconds(&st->st_ctim);
}

static struct entry *find(const struct stat *st, const char *path)
{
    struct entry *e = table[bucket_of(st->st_dev, st->st_ino)];
    while (e && !(same_file(&e->ref, st) && !strcmp(e->ref.path, path)))
        e = e->next;
    return e;
}

static const struct file_ref *add(const struct stat *st, const uint8_t hash[32], const char *path,
                                  bool unstable)
{
    size_t len = strlen(path) + 1;
    struct entry *e = calloc(1, sizeof *e + len);
    if (!e)
        return NULL;
    e->unstable = unstable;
    e->ref.dev = st->st_dev;
    e->ref.ino = st->st_ino;
    e->ref.size = (uint64_t)st->st_size;
    e->ref.mtime_ns = nanoseconds(&st->st_mtim);
    e->ref.ctime_ns = nanoseconds(&st->st_ctim);
    memcpy(e->ref.hash, hash, 32);
    memcpy(e->ref.path, path, len);
    uint32_t b = bucket_of(st->st_dev, st->st_ino);
    e->next = table[b];
    table[b] = e;
    return &e->ref;
}

const struct file_ref *file_known(const uint8_t hash[32], uint64_t size, const char *path)
{
    uint64_t key;
    memcpy(&key, hash, sizeof key);
    struct stat st = {.st_ino = key, .st_size = (off_t)size};
    path = path ? path : "";
    for (struct entry *e = table[bucket_of(0, key)]; e; e = e->next)
        if (e->ref.ino == key && !memcmp(e->ref.hash, hash, 32) && !strcmp(e->ref.path, path))
            return &e->ref;
    return add(&st, hash, path, true);
}

void file_changes(const struct file_ref *file)
{
    for (struct entry *e = table[bucket_of(file->dev, file->ino)]; e; e = e->next)
        if (e->ref.dev == file->dev && e->ref.ino == file->ino)
            e->unstable = e->stored_to = true;
}

/* ---- asking the store ---- */

/* One more descriptor for a moment, although the guest may have used up its limit. */
static int make_pair(int pair[2])
{
    if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return 0;
    struct rlimit old, wide;
    if (errno != EMFILE || getrlimit(RLIMIT_NOFILE, &old))
        return -errno;
    wide =
        (struct rlimit){old.rlim_cur + 2, old.rlim_max < old.rlim_cur + 2 ? old.rlim_cur + 2 : old.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &wide))
        return -EMFILE;
    int error = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ? -errno : 0;
    setrlimit(RLIMIT_NOFILE, &old);
    return error;
}

/* Sends the request with the store's end of the pair and the file. */
static int send_request(int fd, int end, const char *path, bool unstable)
{
    struct store_request request = {.op = STORE_FILE,
                                    .wants_reply = 1,
                                    .space = engine.space_number,
                                    .pid = getpid(),
                                    .status = unstable,
                                    .textlen = (uint32_t)strlen(path)};
    struct iovec iov[2] = {{&request, sizeof request}, {(void *)path, request.textlen}};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_iov = iov, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(c), (int[2]){end, fd}, 2 * sizeof(int));
    ssize_t n;
    do
        n = sendmsg(hostfd(engine.store), &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* 0 with *reply, a negative errno of our own side, or 1 when the store is gone. */
static int ask(int fd, const char *path, bool unstable, struct store_reply *reply)
{
    int pair[2];
    int error = make_pair(pair);
    if (error)
        return error;
    error = send_request(fd, pair[1], path, unstable);
    close(pair[1]);
    ssize_t n = 0;
    if (!error) {
        do
            n = recv(pair[0], reply, sizeof *reply, 0);
        while (n < 0 && errno == EINTR);
    }
    close(pair[0]);
    if (error == -EPIPE || error == -ECONNRESET || error == -ENOTCONN || error == -ECONNREFUSED)
        return 1;
    if (error)
        return error;
    return n == (ssize_t)sizeof *reply ? 0 : 1;
}

/* A new store listens at the same place. The path goes through our descriptor, since the guest may have moved
 * root. */
static bool reconnect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", hostfd(engine.trace_dir));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return false;
    }
    int handle = hostfd_keep(fd);
    if (handle < 0)
        return false;
    hostfd_drop(engine.store);
    engine.store = handle;
    return true;
}

static int ask_until_answered(int fd, const char *path, bool unstable, struct store_reply *reply)
{
    for (int try = 0; try < RETRIES; try++) {
        int result = ask(fd, path, unstable, reply);
        if (result <= 0)
            return result;
        if (!reconnect())
            poll(NULL, 0, RETRY_MS);
    }
    event_unsupported("the store is gone and no other took over; %s could not be captured", path);
}

/* True when a later write might leave the file's times as they are. */
static bool times_prove_nothing(int fd, const struct stat *st)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
        fs.f_type == HUGETLBFS_MAGIC)
        return true;
    uint64_t mtime = nanoseconds(&st->st_mtim), ctime = nanoseconds(&st->st_ctim);
    bool whole_seconds = !st->st_mtim.tv_nsec && !st->st_ctim.tv_nsec;
    uint64_t granularity = whole_seconds ? 2000000000u : 100000000u;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (mtime > ctime ? mtime : ctime) + granularity > nanoseconds(&now);
}

/* The guest maps, or has mapped, the file for shared writing. */
static bool stores_seen(const struct stat *st)
{
    for (const struct entry *e = table[bucket_of(st->st_dev, st->st_ino)]; e; e = e->next)
        if (e->ref.dev == st->st_dev && e->ref.ino == st->st_ino && e->stored_to)
            return true;
    return false;
}

const struct file_ref *file_capture(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st))
        return NULL;
    if (!S_ISREG(st.st_mode)) {
        errno = ENODEV;
        return NULL;
    }
    char text[PATH_MAX];
    if (!file_path(fd, text, sizeof text))
        snprintf(text, sizeof text, "%s", path ? path : "");
    struct entry *known = find(&st, text);
    if (known && !known->unstable)
        return &known->ref;
    bool stored_to = stores_seen(&st);
    bool unstable = stored_to || (known && known->unstable) || times_prove_nothing(fd, &st);
    struct store_reply reply = {0};
    int error = ask_until_answered(fd, text, unstable, &reply);
    if (error || reply.error) {
        errno = error ? -error : reply.error;
        return NULL;
    }
    LOG(file, "captured %s, %lu bytes", text, (unsigned long)reply.size);
    if (known && !memcmp(known->ref.hash, reply.hash, 32)) {
        known->unstable = known->unstable && (stored_to || times_prove_nothing(fd, &st));
        return &known->ref;
    }
    const struct file_ref *ref = add(&st, reply.hash, text, unstable);
    if (ref && stored_to)
        file_changes(ref);
    return ref;
}
