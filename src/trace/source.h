/*
 * source.h: what a clio_source is, for those inside src/trace.
 */
#ifndef CLIO_TRACE_SOURCE_H
#define CLIO_TRACE_SOURCE_H

#include "clio/trace.h"
#include "trace/header.h"
#include "trace/tasks.h"

struct clio_source {
    char *path;
    int dir;
    struct trace_header header;
    struct tasks tasks;
    struct clio_space_info *spaces; /* of the last clio_source_spaces */
    size_t nspaces;
    char **memory; /* what their strings point into, one for each space */
};

/* Whether there is anything of this space: records, a directory or a ring. */
bool source_has_space(struct clio_source *source, uint32_t space);

#endif
