/*
 * locate.h: where traces live and how they are named.
 *
 * The trace home is $CLIO_TRACE_DIR, else $XDG_DATA_HOME/clio, else ~/.local/share/clio. A trace there is
 * called after its program, `program-N`, with the first free N from 0; the link `latest` names the newest.
 */
#ifndef CLIO_TRACE_LOCATE_H
#define CLIO_TRACE_LOCATE_H

#include <stdbool.h>

#include "clio/trace.h"

/* The trace home. The string is allocated and the caller's; NULL with *error when no variable tells where it
 * is. */
char *trace_home(struct clio_error *error);
/*
 * A path for a new trace of `program` (any path; its last part is used) in the trace home, which is made if
 * missing. The directory is not made: when trace_dir_create finds it taken (EEXIST), ask again. Allocated;
 * NULL with *error.
 */
char *trace_new_path(const char *program, struct clio_error *error);
/* Makes `latest` in the trace home point to `path`, atomically; `path` may lie anywhere. False with *error.
 */
bool trace_set_latest(const char *path, struct clio_error *error);
/*
 * The directory meant by a trace argument: a path with a slash or an existing directory, else a name in the
 * trace home; NULL or "latest": the newest. Allocated; NULL with *error when there is none.
 */
char *trace_resolve(const char *argument, struct clio_error *error);

#endif
