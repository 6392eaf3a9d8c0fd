/*
 * front.h: `clio record` is two processes.
 *
 *     the shell ── front ── recorder ──> the store, the guests
 *
 * The front is the one that the shell started and waits for: it stops and continues with the program, passes
 * on what signals it gets, and returns the program's status. The recorder has the guests as its children and
 * does all the work; it goes on by itself when the program has ended and descendants of it have not.
 *
 * They speak over a socketpair. Its end tells either that the other is gone: a recorder whose front was
 * killed ends the recording at once.
 */
#ifndef CLIO_CMD_FRONT_H
#define CLIO_CMD_FRONT_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct front {   /* as the recorder sees it */
    int channel; /* readable: call front_listen. -1: the front has gone its way */
    pid_t pid;
    bool stopped; /* it was told to stop and has not said yet that it goes on */
};

/*
 * Splits this process. Returns true in the recorder. In the front returns false when there is nothing to wait
 * for any longer, with *status, the command's. `blocked` is the signals that the front passes on.
 */
bool front_split(struct front *f, const sigset_t *blocked, int *status);

/* The program was stopped by this signal: so is the front, for the shell that waits for it. */
void front_stop(struct front *f, int signal);
/* The program runs again. True when front_continue must be called once more, after a moment. */
bool front_continue(struct front *f);
/* The program has ended with this status, and the recorder goes on alone. */
void front_dismiss(struct front *f, int status);
/* Hears the front: calls passed_on(signal) for each signal that was sent to it. False when it is gone. */
bool front_listen(struct front *f, void (*passed_on)(int signal));

#endif
