/*
 * guests.h: the processes of a recording, as the recorder's descendants: recorded or not, whatever became of
 * their parents, since the recorder is the subreaper of them all.
 */
#ifndef CLIO_CMD_GUESTS_H
#define CLIO_CMD_GUESTS_H

#include <sys/types.h>

/* Whether this process has children but `store`, zombies included. Ends the command where /proc does not
 * tell. */
int guests_children(pid_t store);
/* All descendants but `store` that are no zombies, as far as /proc shows them; calls each(pid, context). */
int guests_all(pid_t store, void (*each)(pid_t pid, void *context), void *context);
/* Sends a signal to all of them. */
void guests_signal(pid_t store, int signal);
/* Continues those that are stopped. */
void guests_continue(pid_t store);

#endif
