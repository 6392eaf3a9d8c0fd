/*
 * store.h: the parts of the store (build/clio-store), the process that writes a trace.
 *
 *   main.c     start, the poll loop, the end
 *   spaces.c   the rings: finding, draining, and ending those whose process died
 *   serve.c    requests on the socket, reports to the recorder
 *   pool.c     captured files
 *
 * One thread. Invariants:
 *   - A ring's tail moves only after the sink took the records, so a record is in the ring, in the
 *     substreams, or in both; the sink tells repeats by their ring positions.
 *   - A full disk stops the tails and nothing else: requests that need room wait, producers wait at full
 *     rings.
 *   - The store is the producer of a ring only after the ring's process is dead, to publish its REC_END.
 */
#ifndef CLIO_STORE_STORE_H
#define CLIO_STORE_STORE_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/pool.h"
#include "protocol/store.h"
#include "trace/dir_sink.h"
#include "trace/ring.h"

struct space { /* a ring being drained */
    uint32_t number;
    int pid;             /* in our pid namespace; 0: not known yet */
    int pidfd;           /* -1: not to be had, the pid is asked instead */
    bool dead;           /* the process is gone */
    uint64_t dead_ms;    /* since when we know */
    bool ended_by_store; /* its REC_END is ours */
    uint64_t seen_head;  /* at the last turn */
    uint64_t since_ms;   /* when the oldest record still in the ring was first seen */
    struct ring_header *ring;
    uint8_t *data;
};

struct missing { /* a number given out whose ring is not there yet */
    uint32_t number;
    int pid; /* from STORE_SPACE, or 0 */
    uint64_t since_ms;
};

struct waiting { /* a request that could not be answered because the disk is full */
    struct waiting *next;
    struct store_request request;
    int reply, file; /* -1: none */
    char text[];
};

struct report { /* one that the recorder's socket did not take yet */
    struct report *next;
    struct store_report head;
    size_t textlen;
    char text[];
};

struct store {
    int dir, rings, files; /* descriptors of TRACE, TRACE/rings, TRACE/files */
    int listener, report;  /* report -1: nobody listens any more */
    int recorder;          /* pidfd, or -1 before STORE_HELLO */
    bool recorder_dead;
    bool goodbye;
    uint64_t goodbye_ms;
    struct ring_control *control;
    struct trace_sink *sink;
    struct pool *pool;

    struct space *spaces;
    size_t nspaces, spaces_capacity;
    struct missing *missing;
    size_t nmissing, missing_capacity;
    uint32_t spaces_seen; /* control->spaces that are in spaces, missing, or over */

    int *clients;
    size_t nclients, clients_capacity;
    struct waiting *waiting;
    struct report *reports;

    bool disk_full;
    uint64_t retry_ms; /* while disk_full: when to try again */
};

uint64_t now_ms(void); /* CLOCK_MONOTONIC */
/* Makes room for one more element of an array; ends the store (exit 3) without memory. */
void *grow_array(void *array, size_t count, size_t *capacity, size_t size);

/* ---- spaces.c ---- */

/* Takes up every ring in TRACE/rings, whoever announced it; for takeover and for the end. */
void spaces_find_all(struct store *s);
/* A space was announced; pid 0 when it is not known. */
void spaces_announce(struct store *s, uint32_t number, int pid);
/* Finds new rings and drains those that are due (all of them when `all`). Returns true when records came in
 * since the last turn, so that the next turn should be soon. */
bool spaces_turn(struct store *s, bool all);
/* True when a ring is so full that it should not wait for the next turn. */
bool spaces_pressing(const struct store *s);
/* The number of a space that waits for its ring because the disk has no room for one; 0: there is none. */
uint32_t spaces_starved(const struct store *s);
/* The space's pidfd became readable. */
void spaces_died(struct store *s, int pidfd);
/* Asks the kernel about processes without pidfd, and about all when `all`; true when one lives. */
bool spaces_alive(struct store *s, bool all);
int spaces_make_ring(struct store *s, uint32_t number); /* descriptor or -errno */

/* ---- serve.c ---- */

/* Reads one request from a client; false when the connection is over. */
bool serve_request(struct store *s, int client);
/* Repeats what waits for disk space; returns false while it must still wait. */
bool serve_waiting(struct store *s);
void report_send(struct store *s, const struct store_report *head, const char *text);
void report_flush(struct store *s);
/* Puts a warning into the trace and tells the recorder. */
void store_note(struct store *s, uint32_t space, const char *text);
/* A write met a full disk, or went well again. */
void store_disk_full(struct store *s, const char *what);
void store_disk_free(struct store *s);

#endif
