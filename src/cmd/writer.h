/*
 * writer.h: the store as `clio record` sees it: started, listened to, started again when it dies, sent away.
 *
 * One writer at a time. Functions that fail fill writer_error() and return false; nothing here ends the
 * command.
 */
#ifndef CLIO_CMD_WRITER_H
#define CLIO_CMD_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <signal.h>
#include <sys/types.h>

#include "protocol/store.h"

struct writer {
    int dir, pool_dir;     /* borrowed: the trace and the pool */
    int log_fd;            /* borrowed, or -1 */
    const char *topics;    /* for --log, or NULL */
    pid_t pid;             /* 0: none runs */
    int report;            /* its reports arrive here; -1: none */
    int connection;        /* shared with every engine process; -1: none */
    bool done;             /* it reported REPORT_DONE */
    bool incomplete;       /* ... with some of the trace only in rings, because the disk is full */
    uint64_t deaths_ms[5]; /* when it last died, oldest first */
    char error[1200];
    /* Called for every report but REPORT_READY. */
    void (*heard)(const struct store_report *report, const char *text);
};

/* Starts the store (with the signal mask `mask`) and connects to it. Fields up to topics and heard are set.
 */
bool writer_start(struct writer *w, const sigset_t *mask);
/* Handles reports that have arrived. */
void writer_listen(struct writer *w);
/*
 * The store's process `w->pid` was reaped with this wait status. Starts another one, unless it was done.
 * False when that failed, or when it dies again and again.
 */
bool writer_died(struct writer *w, int status, const sigset_t *mask);
/* Tells the store that no more spaces will come. It answers by REPORT_DONE and ends. */
bool writer_goodbye(struct writer *w, int status, const char *reason);
/* Sends a request to the store at the other end of `connection` and waits for its answer, which has no
 * content but its error. `fd` goes with it unless it is -1. Returns 0 or an errno. */
int writer_ask(int connection, struct store_request *q, const char *text, int fd);
/* Milliseconds of CLOCK_MONOTONIC. */
uint64_t writer_now_ms(void);

#endif
