/*
 * home.h: walking the traces of the trace home.
 */
#ifndef CLIO_CMD_HOME_H
#define CLIO_CMD_HOME_H

#include <stddef.h>
#include <stdint.h>

struct home_trace {
    char *name, *path;
    uint64_t start_ns; /* 0 when its header cannot be read */
};

/* All directories of the trace home that hold a file `trace`, oldest first. Ends the command when there is no
 * home. */
struct home_trace *home_traces(size_t *count);
void home_traces_free(struct home_trace *traces, size_t count);

#endif
