/*
 * hostfd.h: descriptors of ours inside the guest's process.
 *
 * They lie above the guest's soft limit of descriptors where the hard limit allows, else at the end of the
 * range, and never far up, because fork copies descriptor tables. The guest cannot see, close, duplicate or
 * replace them: calls that name one answer EBADF, and one that is in the way of dup2 moves. Since they may
 * move, they are kept by handle.
 */
#ifndef CLIO_ENGINE_HOST_HOSTFD_H
#define CLIO_ENGINE_HOST_HOSTFD_H

#include <sys/resource.h>

#include <stdbool.h>
#include <stdint.h>

enum { HOSTFD_MAX = 32 };

struct hostfd_table {
    int32_t fd[HOSTFD_MAX]; /* -1: free */
    uint64_t lowest;        /* no hidden descriptor is below; ~0 when there is none */
};
extern struct hostfd_table hostfd_table;

/* Moves fd up (fd itself is closed) and returns a handle, or -errno with fd still open. */
int hostfd_keep(int fd);
/* Where the descriptor of a handle is, or -1. FAST. */
static inline int hostfd(int handle)
{
    return handle >= 0 && handle < HOSTFD_MAX ? hostfd_table.fd[handle] : -1;
}
/* Closes the descriptor of a handle, which is free then; -1 is none. */
void hostfd_drop(int handle);
/* True when fd is one of ours. FAST. */
bool hostfd_is(int64_t fd);
/* The guest wants descriptor number fd (dup2, dup3, F_DUPFD): moves ours away if it is there. */
void hostfd_make_way(int fd);
/* The limit of descriptors changed: moves ours out of the guest's range where that is possible. */
void hostfd_settle(void);
/*
 * While the engine works for a call that needs no descriptor in the kernel (fork, exec), the guest's limit
 * must not stop it: raises the soft limit as far as allowed; hostfd_limit_restore puts it back.
 */
void hostfd_limit_raise(struct rlimit *saved);
void hostfd_limit_restore(const struct rlimit *saved);
/* Copies the hidden numbers, ascending, into list (HOSTFD_MAX of them at most). Returns how many. */
int hostfd_list(int *list);

#endif
