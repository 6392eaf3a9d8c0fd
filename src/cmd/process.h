/* process.h: what /proc says of another process. */
#ifndef CLIO_CMD_PROCESS_H
#define CLIO_CMD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* State (a letter) and exit status (as wait returns it) from /proc/PID/stat; false when the process is gone. */
bool process_look(pid_t pid, char *state, int *status);

#endif
