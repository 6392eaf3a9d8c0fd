/* Sockets, descriptors in messages, and the ways to wait for many. */
// VARIANTS: o2
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static void pairs(void)
{
    int s[2];
    is(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0, "socketpair");
    int p[2];
    pipe(p);
    char control[CMSG_SPACE(2 * sizeof(int))] = {0}, text[32] = "";
    struct iovec v = {"with fds", 8};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), p, sizeof p);
    is(sendmsg(s[0], &m, 0), 8, "sendmsg with descriptors");
    memset(control, 0, sizeof control);
    v = (struct iovec){text, sizeof text};
    m = (struct msghdr){
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    is(recvmsg(s[1], &m, MSG_CMSG_CLOEXEC), 8, "recvmsg");
    int got[2];
    c = CMSG_FIRSTHDR(&m);
    ok(c && c->cmsg_type == SCM_RIGHTS && m.msg_controllen == sizeof control, "its control part");
    memcpy(got, CMSG_DATA(c), sizeof got);
    write(got[1], "through", 7);
    is(read(p[0], text, 7), 7, "a received descriptor works");
    int on = 1;
    setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    send(s[0], "cred", 4, 0);
    char big[256];
    v = (struct iovec){text, 2};
    m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = big, .msg_controllen = sizeof big};
    is(recvmsg(s[1], &m, 0), 2, "a message cut");
    c = CMSG_FIRSTHDR(&m);
    struct ucred *u = c ? (struct ucred *)CMSG_DATA(c) : NULL;
    ok((m.msg_flags & MSG_TRUNC) && u && u->pid == getpid(), "MSG_TRUNC and credentials");
    struct mmsghdr mm[3] = {0};
    struct iovec mv[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    for (int i = 0; i < 3; i++)
        mm[i].msg_hdr = (struct msghdr){.msg_iov = &mv[i], .msg_iovlen = 1};
    is(sendmmsg(s[0], mm, 3, 0), 3, "sendmmsg");
    char in[3][16];
    for (int i = 0; i < 3; i++)
        mv[i] = (struct iovec){in[i], 16};
    is(recvmmsg(s[1], mm, 3, 0, NULL), 3, "recvmmsg");
    ok(mm[2].msg_len == 5 && !memcmp(in[2], "three", 5), "the third");
    is(shutdown(s[0], SHUT_WR), 0, "shutdown");
    is(recv(s[1], text, 1, 0), 0, "end");
}

static void tcp(void)
{
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
    is(bind(l, (void *)&a, sizeof a), 0, "bind");
    is(listen(l, 5), 0, "listen");
    socklen_t len = sizeof a;
    is(getsockname(l, (void *)&a, &len), 0, "getsockname");
    pid_t child = fork();
    if (child == 0) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c, (void *)&a, sizeof a) != 0)
            _exit(1);
        char b[6];
        send(c, "ping", 4, MSG_NOSIGNAL);
        recv(c, b, 4, MSG_WAITALL);
        _exit(memcmp(b, "pong", 4) != 0);
    }
    len = sizeof peer;
    int c = accept4(l, (void *)&peer, &len, SOCK_CLOEXEC);
    ok(c >= 0 && len == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK), "accept4");
    char b[4];
    is(recvfrom(c, b, 4, 0, NULL, NULL), 4, "recvfrom");
    int on = 1, type = 0;
    is(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0, "setsockopt");
    len = sizeof type;
    is(getsockopt(c, SOL_SOCKET, SO_TYPE, &type, &len), 0, "getsockopt");
    is(type, SOCK_STREAM, "its value");
    is(sendto(c, "pong", 4, 0, NULL, 0), 4, "sendto");
    int status;
    waitpid(child, &status, 0);
    is(status, 0, "the client");
    is(getpeername(l, (void *)&peer, &len), -1, "getpeername of a listener");
    is(connect(socket(AF_INET, SOCK_STREAM, 0),
               (void *)&(struct sockaddr_in){
                   .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
               sizeof a),
       -1, "connect to nobody");
    is(errno, ECONNREFUSED, "ECONNREFUSED");
    int u1 = socket(AF_INET, SOCK_DGRAM, 0), u2 = socket(AF_INET, SOCK_DGRAM, 0);
    a.sin_port = 0;
    bind(u1, (void *)&a, sizeof a);
    len = sizeof a;
    getsockname(u1, (void *)&a, &len);
    is(sendto(u2, "datagram", 8, 0, (void *)&a, sizeof a), 8, "UDP");
    len = sizeof peer;
    is(recvfrom(u1, b, 4, MSG_TRUNC, (void *)&peer, &len), 8, "its length though cut");
}

static void multiplex(void)
{
    int a[2], b[2];
    pipe(a);
    pipe(b);
    struct pollfd pf[3] = {{a[0], POLLIN, 0}, {b[0], POLLIN, 0}, {99, POLLIN, 0}};
    is(poll(pf, 2, 0), 0, "poll of nothing");
    write(b[1], "x", 1);
    is(poll(pf, 3, 1000), 2, "poll");
    ok(pf[0].revents == 0 && pf[1].revents == POLLIN && pf[2].revents == POLLNVAL, "which");
    fd_set r;
    FD_ZERO(&r);
    FD_SET(a[0], &r);
    FD_SET(b[0], &r);
    struct timeval tv = {1, 0};
    is(select(b[0] + 1, &r, NULL, NULL, &tv), 1, "select");
    ok(FD_ISSET(b[0], &r) && !FD_ISSET(a[0], &r) && tv.tv_usec > 0, "which, and the time left");
    struct timespec ts = {0, 1000000};
    FD_ZERO(&r);
    FD_SET(a[0], &r);
    is(pselect(a[0] + 1, &r, NULL, NULL, &ts, NULL), 0, "pselect runs out");
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0x1122334455667788}, out[4];
    is(epoll_ctl(ep, EPOLL_CTL_ADD, b[0], &ev), 0, "epoll_ctl");
    is(epoll_ctl(ep, EPOLL_CTL_ADD, b[0], &ev), -1, "twice");
    is(epoll_wait(ep, out, 4, 1000), 1, "epoll_wait");
    ok(out[0].data.u64 == 0x1122334455667788 && out[0].events == EPOLLIN, "its data");
    is(epoll_pwait(ep, out, 4, 0, NULL), 1, "epoll_pwait");
    int e = eventfd(3, EFD_NONBLOCK);
    uint64_t n = 4;
    write(e, &n, 8);
    read(e, &n, 8);
    is(n, 7, "eventfd");
    is(read(e, &n, 8), -1, "empty");
    is(errno, EAGAIN, "EAGAIN");
}

int main(void)
{
    pairs();
    tcp();
    multiplex();
    return finish();
}
