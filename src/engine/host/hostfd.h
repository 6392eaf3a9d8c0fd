/*
 * hostfd.h: descriptors of ours inside the guest's process.
 *
 * They lie above the guest's soft limit of descriptors where the hard limit allows, else at the end of the
 * range, and never far up, because fork copies descriptor tables. The guest cannot see, close, duplicate or
 * replace them: calls that name one answer EBADF, and one that is in the way of dup2 moves. Since they may
 * move, they are kept by handle.
 *
 * Processes may share one table of descriptors (CLONE_FILES). What describes the table, this list of hidden
 * numbers included, is then memory that they share, too. A handle means the same in all of them and belongs to
 * those that had it when they were forked; the descriptor is closed with its last owner.
 */
#ifndef CLIO_ENGINE_HOST_HOSTFD_H
#define CLIO_ENGINE_HOST_HOSTFD_H

#include <sys/resource.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOSTFD_MAX = 128 };

struct hostfd_table {
    _Alignas(4096) int32_t fd[HOSTFD_MAX]; /* -1: free */
    int32_t
        users[HOSTFD_MAX]; /* processes with this handle; 0 with an open fd: its owner took another table */
    uint64_t lowest;       /* no hidden descriptor is below; ~0 when there is none */
    uint64_t stuck;        /* the value of `lowest` from which they could not move up */
    uint32_t floor;        /* ours lie there or higher, as far as the hard limit lets them */
    uint32_t lock;
    uint32_t arrived; /* processes that came to share the table and are ready */
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

/* ---- processes that share the table ---- */

/* Memory that describes descriptors, whole pages: shared from now on by those that share the table. */
void hostfd_describe(void *start, size_t size);
extern bool hostfd_sharing;
/* True while another process may have the same table. FAST. */
static inline bool hostfd_shared(void)
{
    return hostfd_sharing;
}
/* Around a fork: before it (0 or -errno), and after it in either process. share: with CLONE_FILES. */
int hostfd_fork_begin(bool share);
void hostfd_fork_parent(bool share, bool failed);
void hostfd_fork_child(bool share);
/*
 * With CLONE_FILES: the child says that it has opened what it needs to begin, for which it uses numbers that are the
 * guest's; the parent waits for that, so that neither's numbers depend on the other's engine.
 */
void hostfd_arrived(void);
void hostfd_await_arrival(uint32_t before);
/* Around a call that gives this process a table of its own; `done`: it did. */
int hostfd_unshare_begin(void);
void hostfd_unshare_end(bool done);
/* As exec: gives this process a table of its own. */
void hostfd_unshare(void);
/* The process ends: its hidden descriptors go, though the table may stay. */
void hostfd_leave(void);

/* fd, if it is one, is the guest's and near the first of ours or above it. FAST. */
static inline bool hostfd_near(int64_t fd)
{
    enum { NEAR = 16 };
    return (uint64_t)fd - (hostfd_table.lowest - NEAR) < NEAR + HOSTFD_MAX &&
           hostfd_table.lowest != hostfd_table.stuck;
}
/*
 * A call has returned a number that may be a descriptor near ours: the guest has opened very many. They go up, so that it
 * gets all numbers in their order.
 */
void hostfd_make_room(int64_t fd);

/* Copies the hidden numbers, ascending, into list (HOSTFD_MAX of them at most). Returns how many. */
int hostfd_list(int *list);

#endif
