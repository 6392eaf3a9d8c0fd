/*
 * files.c: calls on descriptors that need more than their row: hidden descriptors in the way, ranges,
 * waiting.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/kcmp.h>

#include "engine/host/raw.h"
#include "engine/kernel/effects.h"
#include "engine/kernel/files.h"
#include "engine/host/hostfd.h"

/* ---- what leads to the recording's output ---- */

/* Descriptors beyond the first three that a program may be started with and that are looked at. */
enum { FILE_INHERITED = 64 };

/*
 * epoll knows an open file by the file and the number together: adding the same number again, which names b
 * by then, fails only when b is the file that a is. -1 for files that cannot be polled.
 */
static int same_polled(int a, int b)
{
    struct epoll_event event = {0};
    int poll = epoll_create1(EPOLL_CLOEXEC), copy = fcntl(a, F_DUPFD_CLOEXEC, 0), same = -1;
    if (!epoll_ctl(poll, EPOLL_CTL_ADD, copy, &event) && dup2(b, copy) == copy)
        same = epoll_ctl(poll, EPOLL_CTL_ADD, copy, &event) && errno == EEXIST;
    close(copy);
    close(poll);
    return same;
}

/* What /proc says of an open file: position, flags, mount and inode. */
static bool describe_file(int fd, char *text, int size)
{
    snprintf(text, (size_t)size, "/proc/self/fdinfo/%d", fd);
    int info = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(info, text, (size_t)size - 1);
    close(info);
    text[n > 0 ? n : 0] = 0;
    char *end = strstr(text, "lock:"); /* kept for each file, not for each open file */
    if (end)
        *end = 0;
    return n > 0;
}

/*
 * Both numbers were made from one another, as `2>&1` or a shell on a terminal does. Unknown counts as not.
 * kcmp, which answers this, is refused in many containers. Regular files at the same position with the same
 * flags count as the same there.
 */
static bool same_file(int a, int b)
{
    char text_a[512], text_b[512];
    int pid = (int)raw0(SYS_getpid);
    int64_t compared = raw5(SYS_kcmp, pid, pid, KCMP_FILE, a, b);
    if (compared >= 0 || compared == -EBADF)
        return compared == 0;
    if (raw2(SYS_fcntl, a, F_GETFD) < 0 || raw2(SYS_fcntl, b, F_GETFD) < 0)
        return false;
    int same = same_polled(a, b);
    if (same >= 0)
        return same;
    return describe_file(a, text_a, sizeof text_a) && describe_file(b, text_b, sizeof text_b) &&
           !strcmp(text_a, text_b);
}

/* What stdout and stderr were at the start, for descriptors that come back after all known ones were closed. */
static struct stat origin[2];
static int origin_flags[2];

void files_begin(void)
{
    memset(files_class, 0, sizeof files_class);
    hostfd_describe(files_class, sizeof files_class);
    hostfd_describe(files_id, sizeof files_id);
    files_class[1] = FILE_OUT;
    files_class[2] = FILE_ERR;
    for (int i = 0; i < 2; i++)
        if (fstat(i + 1, &origin[i]) || (origin_flags[i] = fcntl(i + 1, F_GETFL)) < 0)
            origin[i] = (struct stat){0};
    for (int fd = 0; fd < FILE_INHERITED; fd++)
        if (fd != 1 && fd != 2 && !hostfd_is(fd))
            files_class[fd] = same_file(fd, 1) ? FILE_OUT : same_file(fd, 2) ? FILE_ERR : 0;
}

static bool same_object(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_rdev == b->st_rdev &&
           (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT);
}

/* A dup of another descriptor. A copy made to find out would drop the program's record locks when it is closed. */
static bool same_open_file(int a, int b)
{
    enum { F_DUPFD_QUERY = 1027 };
    char text_a[512], text_b[512];
    int pid = (int)raw0(SYS_getpid);
    int64_t same = raw3(SYS_fcntl, a, F_DUPFD_QUERY, b);
    if (same >= 0)
        return same == 1;
    same = raw5(SYS_kcmp, pid, pid, KCMP_FILE, a, b);
    if (same >= 0)
        return same == 0;
    return describe_file(a, text_a, sizeof text_a) && describe_file(b, text_b, sizeof text_b) &&
           !strcmp(text_a, text_b);
}

/*
 * fd is none of the known descriptors of the object that stdout (0) or stderr (1) was. Whatever is written to a pipe, a
 * socket or a terminal goes to the same place, by whichever open file. Of others, it must be the one that was there at the
 * start, if none of its copies is open any more.
 */
static bool leads_there(int fd, const struct stat *st, int which, unsigned open_still)
{
    if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode) || isatty(fd))
        return true;
    return !(open_still & (which ? FILE_ERR : FILE_OUT)) && fcntl(fd, F_GETFL) == origin_flags[which];
}

void files_received(int fd)
{
    struct stat st;
    files_same(fd, -1);
    if ((unsigned)fd >= FILE_TRACKED || fstat(fd, &st) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return;
    bool is[2] = {same_object(&st, &origin[0]), same_object(&st, &origin[1])};
    unsigned open_still = 0;
    for (int other = 0; (is[0] || is[1]) && other < FILE_TRACKED; other++) {
        open_still |= files_output(other);
        if (files_output(other) && other != fd && same_open_file(fd, other)) {
            files_same(fd, other);
            return;
        }
    }
    for (int i = 0; i < 2; i++)
        if (is[i] && leads_there(fd, &st, i, open_still)) {
            files_class[fd] = i ? FILE_ERR : FILE_OUT;
            return;
        }
}

static void message_received(uint64_t at)
{
    struct msghdr m;
    struct cmsghdr head;
    if (guest_read(&m, at, sizeof m))
        return;
    uint64_t here = (uint64_t)m.msg_control, end = here + m.msg_controllen;
    for (; here && here + sizeof head <= end && !guest_read(&head, here, sizeof head);
         here += CMSG_ALIGN(head.cmsg_len)) {
        if (head.cmsg_len < sizeof head || head.cmsg_len > end - here)
            return;
        bool rights = head.cmsg_level == SOL_SOCKET && head.cmsg_type == SCM_RIGHTS;
        int fd;
        for (size_t i = sizeof head; rights && i + sizeof fd <= head.cmsg_len; i += sizeof fd)
            if (!guest_read(&fd, here + i, sizeof fd))
                files_received(fd);
    }
}

int64_t rec_recvmsg(struct task *t, struct sys_call *c)
{
    sys_generic(t, c, &sys_table[c->nr]);
    if (!c->restart && c->result >= 0)
        message_received(c->args[1]);
    return c->result;
}

int64_t rec_recvmmsg(struct task *t, struct sys_call *c)
{
    sys_generic(t, c, &sys_table[c->nr]);
    for (int64_t i = 0; !c->restart && i < c->result; i++)
        message_received(c->args[1] + (uint64_t)i * sizeof(struct mmsghdr));
    return c->result;
}

/* A number that is hidden here is hidden in our relatives, too. */
int64_t rec_pidfd_getfd(struct task *t, struct sys_call *c)
{
    if (hostfd_is((int32_t)c->args[1]))
        return c->result = -EBADF;
    sys_generic(t, c, &sys_table[c->nr]);
    if (!c->restart && c->result >= 0)
        files_received((int)c->result);
    return c->result;
}

/* Only when the message names a descriptor of ours. */
int64_t rec_sendmsg(struct task *t, struct sys_call *c)
{
    return c->result = -EBADF;
}

int64_t rec_sendmmsg(struct task *t, struct sys_call *c)
{
    return c->result = -EBADF;
}

void files_exec(void)
{
    for (int fd = 0; fd < FILE_TRACKED; fd++)
        if (files_class[fd] && (raw2(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC))
            files_class[fd] = 0;
}

/* ---- numbers that are ours ---- */

static int64_t duplicate_over(struct task *t, struct sys_call *c)
{
    hostfd_make_way((int)c->args[1]);
    return sys_generic(t, c, &sys_table[c->nr]);
}

/* The first number from the one asked for that the program does not use must not be one of ours. */
int64_t rec_fcntl(struct task *t, struct sys_call *c)
{
    struct rlimit limit;
    raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit);
    for (uint64_t fd = (uint32_t)c->args[2]; fd < limit.rlim_cur; fd++)
        if (hostfd_is((int64_t)fd)) {
            hostfd_make_way((int)fd);
            break;
        } else if (raw2(SYS_fcntl, fd, F_GETFD) < 0) {
            break;
        }
    return sys_generic(t, c, &sys_table[c->nr]);
}

/* A dup2 that would fail leaves ours alone: it moves only when the source is open. */
int64_t rec_dup2(struct task *t, struct sys_call *c)
{
    if (raw2(SYS_fcntl, (int)c->args[0], F_GETFD) < 0)
        return c->result = -EBADF;
    return duplicate_over(t, c);
}

int64_t rec_dup3(struct task *t, struct sys_call *c)
{
    return duplicate_over(t, c);
}

/* The parts of [first, last] between ours, one kernel call each. */
static int64_t close_parts(uint32_t first, uint32_t last, uint32_t flags)
{
    int hidden[HOSTFD_MAX];
    int count = hostfd_list(hidden);
    int64_t result = 0;
    uint64_t from = first;
    for (int i = 0; i <= count && from <= last && !result; i++) {
        uint64_t next = i < count ? (uint64_t)hidden[i] : (uint64_t)last + 1;
        if (next > (uint64_t)last + 1)
            next = (uint64_t)last + 1;
        if (next < from)
            continue;
        if (next > from)
            result = raw3(SYS_close_range, from, next - 1, flags);
        from = next + 1;
    }
    return result;
}

int64_t rec_close_range(struct task *t, struct sys_call *c)
{
    enum { UNSHARE = 2, CLOEXEC = 4, KNOWN = 6 };
    uint32_t first = (uint32_t)c->args[0], last = (uint32_t)c->args[1], flags = (uint32_t)c->args[2];
    if (first > last || (flags & ~(uint32_t)KNOWN))
        return c->result = -EINVAL;
    if (flags & UNSHARE)
        hostfd_unshare();
    c->result = close_parts(first, last, flags & ~(uint32_t)UNSHARE);
    for (uint64_t fd = first; !c->result && !(flags & CLOEXEC) && fd <= last && fd < FILE_TRACKED; fd++)
        files_same((int)fd, -1);
    return c->result;
}

int64_t rec_unshare(struct task *t, struct sys_call *c)
{
    int error = hostfd_unshare_begin();
    if (error)
        return c->result = error;
    sys_generic(t, c, &sys_table[c->nr]);
    hostfd_unshare_end(!c->result);
    return c->result;
}

/* ---- waiting for descriptors that are ours: they are not open ---- */

/* Polls a copy of the guest's array in which hidden descriptors are numbers that are never open. */
static int64_t poll_hidden(struct task *t, struct sys_call *c)
{
    uint64_t guest = c->args[0], size = (uint64_t)(uint32_t)c->args[1] * sizeof(struct pollfd);
    struct pollfd *copy = malloc(size);
    if (!copy)
        return c->result = -ENOMEM;
    if (guest_read(copy, guest, size)) {
        free(copy);
        return c->result = -EFAULT;
    }
    for (uint64_t i = 0; i < size / sizeof *copy; i++)
        if (hostfd_is(copy[i].fd))
            copy[i].fd = INT_MAX;
    c->args[0] = (uint64_t)copy;
    task_syscall(t, c);
    c->args[0] = guest;
    if (!c->restart && (c->result >= 0 || c->result == -EINTR)) {
        for (uint64_t i = 0; i < size / sizeof *copy; i++)
            guest_write(guest + i * sizeof *copy + offsetof(struct pollfd, revents), &copy[i].revents, 2);
        effect_add_writable(t, guest, size);
    }
    free(copy);
    return c->result;
}

int64_t rec_poll(struct task *t, struct sys_call *c)
{
    return poll_hidden(t, c);
}

int64_t rec_ppoll(struct task *t, struct sys_call *c)
{
    poll_hidden(t, c);
    if (!c->restart && c->args[2])
        effect_add_writable(t, c->args[2], 16);
    return c->result;
}

static bool set_has_hidden(uint64_t set, int count)
{
    int hidden[HOSTFD_MAX];
    int n = hostfd_list(hidden);
    for (int i = 0; set && i < n && hidden[i] < count; i++) {
        uint8_t byte;
        if (!guest_read(&byte, set + (uint64_t)hidden[i] / 8, 1) && (byte >> hidden[i] % 8 & 1))
            return true;
    }
    return false;
}

int64_t rec_select(struct task *t, struct sys_call *c)
{
    for (int i = 1; i <= 3; i++)
        if (set_has_hidden(c->args[i], (int)c->args[0]))
            return c->result = -EBADF;
    return sys_generic(t, c, &sys_table[c->nr]);
}

int64_t rec_pselect6(struct task *t, struct sys_call *c)
{
    return rec_select(t, c);
}
