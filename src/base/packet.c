/* packet.c: see packet.h. */
#include "base/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int packet_send(int sock, const void *head, size_t headlen, const char *text, size_t textlen, const int *fds,
                int nfds, int flags)
{
    struct iovec iov[2] = {{(void *)head, headlen}, {(void *)text, textlen}};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
    } control;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = textlen ? 2 : 1};
    if (nfds > 0) {
        msg.msg_control = control.room;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
    }
    for (;;) {
        if (sendmsg(sock, &msg, MSG_NOSIGNAL | flags) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

static void take_control(struct packet *p, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred cred;
            memcpy(&cred, CMSG_DATA(c), sizeof cred);
            p->pid = cred.pid;
        } else if (c->cmsg_type == SCM_RIGHTS) {
            int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (int i = 0; i < n && p->nfds < PACKET_FDS_MAX; i++)
                memcpy(&p->fds[p->nfds++], CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(int));
        }
    }
}

int packet_receive(int sock, void *head, size_t headlen, struct packet *p, int flags)
{
    struct iovec iov[2] = {{head, headlen}, {p->text, PACKET_TEXT_MAX}};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct msghdr msg = {
        .msg_iov = iov, .msg_iovlen = 2, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    p->nfds = 0;
    p->pid = 0;
    p->textlen = 0;
    take_control(p, &msg);
    if (n == 0)
        return 0;
    if ((size_t)n < headlen || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        packet_close(p);
        return -EBADMSG;
    }
    p->textlen = (size_t)n - headlen;
    p->text[p->textlen] = 0;
    return 1;
}

void packet_close(struct packet *p)
{
    for (int i = 0; i < p->nfds; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
    p->nfds = 0;
}

/* A socket's address holds 107 bytes; a name below an open directory is always short. */
static int address(struct sockaddr_un *a, int dirfd, const char *name)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%s", dirfd, name);
    return n < (int)sizeof a->sun_path ? 0 : -ENAMETOOLONG;
}

int packet_connect(int dirfd, const char *name)
{
    struct sockaddr_un a;
    int error = address(&a, dirfd, name);
    if (error)
        return error;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int packet_listen(int dirfd, const char *name)
{
    struct sockaddr_un a;
    int error = address(&a, dirfd, name);
    if (error)
        return error;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (unlinkat(dirfd, name, 0) && errno != ENOENT)
        goto fail;
    mode_t old = umask(0177);
    int bound = bind(fd, (struct sockaddr *)&a, sizeof a);
    error = errno;
    umask(old);
    errno = error;
    int yes = 1;
    if (bound || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) || listen(fd, 128))
        goto fail;
    return fd;
fail:
    error = -errno;
    close(fd);
    return error;
}
