/*
 * packet.h: datagrams with descriptors over AF_UNIX SOCK_SEQPACKET sockets.
 *
 * A datagram is a fixed head followed by text; both ends know the head's size. Descriptors received are
 * close-on-exec. All functions retry on EINTR and return -errno on failure. No thread state.
 */
#ifndef CLIO_BASE_PACKET_H
#define CLIO_BASE_PACKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { PACKET_FDS_MAX = 4, PACKET_TEXT_MAX = 16384 };

struct packet {
    int fds[PACKET_FDS_MAX]; /* the receiver's to close */
    int nfds;
    pid_t pid; /* the sender, in our pid namespace; 0 where the socket has no SO_PASSCRED */
    char text[PACKET_TEXT_MAX + 1]; /* what follows the head, NUL-terminated */
    size_t textlen;
};

/* Sends head and text (textlen <= PACKET_TEXT_MAX) with nfds descriptors; never raises SIGPIPE. flags:
 * MSG_DONTWAIT or 0. Returns 0 or -errno. */
int packet_send(int sock, const void *head, size_t headlen, const char *text, size_t textlen, const int *fds,
                int nfds, int flags);

/* Receives one datagram. Returns 1, 0 at the end of the connection, or -errno (-EBADMSG: shorter than a head
 * or longer than allowed, descriptors closed). */
int packet_receive(int sock, void *head, size_t headlen, struct packet *p, int flags);

/* Closes the descriptors that are still in p (set an entry to -1 to keep it). */
void packet_close(struct packet *p);

/* Connects to or listens at the socket `name` in directory dirfd, however long the directory's path is.
 * Return the descriptor (close-on-exec) or -errno. packet_listen replaces a socket that a dead process left.
 */
int packet_connect(int dirfd, const char *name);
int packet_listen(int dirfd, const char *name);

#endif
